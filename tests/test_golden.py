"""Outputs of the authors' program (TensorFlow, 2020) on small random weights, reproduced."""

import json
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from metafun.decoders import Conditioned, PredictorWeights
from metafun.initial import Zero
from metafun.likelihoods import SquaredError
from metafun.model import MetaFun
from metafun.nn import MLP
from metafun.pooling import Attention, DeepKernel, SquaredExponential
from metafun.task import Task, stack
from metafun.updates import MLPUpdate

GOLDEN = Path(__file__).parent / "golden"
KEY = jax.random.key(0)


class Golden:
    """One file of golden numbers: inputs, weights by the authors' variable names, outputs."""

    def __init__(self, name: str):
        with np.load(GOLDEN / f"{name}.npz") as file:
            self.arrays = {path: jnp.asarray(file[path]) for path in file if path != "settings"}
            self.iterations = int(json.loads(str(file["settings"]))["num_iters"])

    def output(self, name: str):
        return self.arrays[f"outputs/{name}"]

    def weight(self, name: str):
        return self.arrays[f"weights/MetaFunRegressor/{name}"]

    def mlp(self, name: str) -> MLP:
        prefix = f"weights/MetaFunRegressor/{name}/linear_"
        layers = range(sum(path.startswith(prefix) and path.endswith("/w") for path in self.arrays))
        weights = tuple(self.weight(f"{name}/linear_{i}/w") for i in layers)
        biases = tuple(self.weight(f"{name}/linear_{i}/b") for i in layers)
        blank = MLP([len(weights[0]), *(w.shape[1] for w in weights)], "relu", key=KEY)
        return eqx.tree_at(lambda mlp: (mlp.weights, mlp.biases), blank, (weights, biases))

    def model(self, pool, decode) -> MetaFun:
        u = self.mlp("neural_local_updater/mlp")
        # The authors concatenate [r, y, x] where the paper, and we, have [x, y, r].
        first = jnp.concatenate([u.weights[0][-1:], u.weights[0][-2:-1], u.weights[0][:-2]])
        return MetaFun(
            initial=Zero(u.biases[-1].size),
            update=MLPUpdate(eqx.tree_at(lambda mlp: mlp.weights[0], u, first)),
            pool=pool,
            decode=decode,
            likelihood=SquaredError(min_std=0.1),
            # The authors add the pooled update where the paper, and we, subtract it.
            step_size=-float(self.weight("alpha").squeeze()),
            iterations=self.iterations,
            context_weight=1.0,
            target_weight=1.0,
        )

    def tasks(self) -> Task:
        names = ("x_context", "y_context", "x_target", "y_target")
        arrays = [np.asarray(self.arrays[f"inputs/{name}"]) for name in names]
        return stack([Task.of(*task) for task in zip(*arrays, strict=True)])


def attention_conditioned(golden: Golden) -> MetaFun:
    layers = [golden.mlp(f"predict/mlp{suffix}") for suffix in ("", "_1", "_2")]
    # The authors pass r through a mean/std split first, so their predictor sees half of it.
    blank = Conditioned(5, [1, 9, 9, 2], "relu", key=KEY)
    decode = eqx.tree_at(lambda d: d.layers, blank, tuple(layers))
    return golden.model(Attention(golden.mlp("attention_block/attention/mlp")), decode)


def deep_kernel_weights(golden: Golden) -> MetaFun:
    kernel = SquaredExponential(
        scale=float(golden.weight("deep_se_kernel/sigma")),
        lengthscale=float(golden.weight("deep_se_kernel/lengthscale")),
    )
    emit = golden.mlp("decoder/mlp")
    # Of the authors' 2·P emitted numbers the second half is never used: ours emits P.
    last = emit.weights[-1].shape[1] // 2
    emit = eqx.tree_at(
        lambda mlp: (mlp.weights[-1], mlp.biases[-1]),
        emit,
        (emit.weights[-1][:, :last], emit.biases[-1][:last]),
    )
    decode = PredictorWeights([9, 9, 9, 9], [1, 9, 9, 2], "relu", key=KEY)
    return golden.model(
        DeepKernel(golden.mlp("deep_se_kernel/mlp"), kernel), eqx.tree_at(lambda d: d.emit, decode, emit)
    )


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("regressor_attention_conditioned", attention_conditioned),
        ("regressor_deep_kernel_weights", deep_kernel_weights),
    ],
)
def test_matches_the_authors_program(name, build):
    golden = Golden(name)
    model, tasks = build(golden), golden.tasks()
    prediction = jax.vmap(lambda t: model.predict_trajectory(model.encode(t.context), t.target.x))(tasks)

    np.testing.assert_allclose(prediction.mean, golden.output("mean_by_iteration"), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(prediction.std, golden.output("std_by_iteration"), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(jax.vmap(model.loss)(tasks), golden.output("loss"), rtol=1e-5, atol=1e-5)
