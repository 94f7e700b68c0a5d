"""The outputs of the authors' program (TensorFlow, 2020) on small random weights."""

import json
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from metafun.model.decoders import Conditioned, PredictorWeights, SoftmaxWeights
from metafun.model.initial import Constant, Zero
from metafun.model.likelihoods import CrossEntropy, SquaredError
from metafun.model.metafun import MetaFun
from metafun.model.nn import MLP
from metafun.model.pooling import Attention, DeepKernel, SquaredExponential
from metafun.model.regularisers import L2, Orthogonality
from metafun.model.task import Task, stack
from metafun.model.updates import ClasswiseUpdate, GradientUpdatePerClass, MLPUpdate
from metafun.training.evaluation import target_metrics

GOLDEN = Path(__file__).parent / "golden"
KEY = jax.random.key(0)


class Golden:
    """One file of golden numbers: inputs, weights by the authors' variable names, outputs."""

    def __init__(self, name: str):
        self.program = "MetaFunClassifier" if name.startswith("classifier") else "MetaFunRegressor"
        with np.load(GOLDEN / f"{name}.npz") as file:
            self.arrays = {path: jnp.asarray(file[path]) for path in file if path != "settings"}
            self.settings = json.loads(str(file["settings"]))
        self.iterations = int(self.settings["num_iters"])

    def output(self, name: str):
        return self.arrays[f"outputs/{name}"]

    def weight(self, name: str):
        return self.arrays[f"weights/{self.program}/{name}"]

    def mlp(self, name: str) -> MLP:
        prefix = f"weights/{self.program}/{name}/"
        layers = sorted({path.split("/")[-2] for path in self.arrays if path.startswith(prefix)})
        weights = tuple(self.weight(f"{name}/{layer}/w") for layer in layers)
        biases = tuple(self.weight(f"{name}/{layer}/b") for layer in layers)
        blank = MLP([len(weights[0]), *(w.shape[1] for w in weights)], "relu", key=KEY)
        return eqx.tree_at(lambda mlp: (mlp.weights, mlp.biases), blank, (weights, biases))

    def kernel(self, name: str) -> SquaredExponential:
        return SquaredExponential(float(self.weight(f"{name}/sigma")), float(self.weight(f"{name}/lengthscale")))

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
        if self.program == "MetaFunClassifier":
            arrays[1], arrays[3] = (np.eye(int(self.settings["num_classes"]))[y[..., 0]] for y in arrays[1::2])
        return stack([Task.of(*task) for task in zip(*arrays, strict=True)])


def attention_conditioned(golden: Golden) -> MetaFun:
    layers = [golden.mlp(f"predict/mlp{suffix}") for suffix in ("", "_1", "_2")]
    # The authors split r into mean and std first, so their predictor sees half of it.
    blank = Conditioned(5, [1, 9, 9, 2], "relu", key=KEY)
    decode = eqx.tree_at(lambda d: d.layers, blank, tuple(layers))
    return golden.model(Attention(golden.mlp("attention_block/attention/mlp")), decode)


def deep_kernel_weights(golden: Golden) -> MetaFun:
    emit = golden.mlp("decoder/mlp")
    # The authors emit 2·P weights and never use the second half; ours emits P.
    last = emit.weights[-1].shape[1] // 2
    emit = eqx.tree_at(
        lambda mlp: (mlp.weights[-1], mlp.biases[-1]),
        emit,
        (emit.weights[-1][:, :last], emit.biases[-1][:last]),
    )
    decode = PredictorWeights([9, 9, 9, 9], [1, 9, 9, 2], "relu", key=KEY)
    return golden.model(
        DeepKernel(golden.mlp("deep_se_kernel/mlp"), golden.kernel("deep_se_kernel")),
        eqx.tree_at(lambda d: d.emit, decode, emit),
    )


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("regressor_attention_conditioned", attention_conditioned),
        ("regressor_deep_kernel_weights", deep_kernel_weights),
    ],
)
def test_matches_the_authors_regressor(name, build):
    golden = Golden(name)
    model, tasks = build(golden), golden.tasks()

    @jax.jit
    @jax.vmap
    def outcome(task):
        return model.predict_trajectory(model.encode(task.context), task.target.x), model.loss(task)

    prediction, loss = outcome(tasks)
    np.testing.assert_allclose(prediction.mean, golden.output("mean_by_iteration"), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(prediction.std, golden.output("std_by_iteration"), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(loss, golden.output("loss"), rtol=1e-5, atol=1e-5)


def classifier(golden: Golden, pool, update, initial) -> MetaFun:
    alpha = float(golden.weight("alpha").squeeze())
    return MetaFun(
        initial=initial,
        update=update,
        pool=pool,
        decode=SoftmaxWeights(golden.mlp("decoder"), dropout=0.3),
        likelihood=CrossEntropy(label_smoothing=0.1),
        # The authors' gradient rule negates u, which makes their α that of ours.
        step_size=alpha if isinstance(update, GradientUpdatePerClass) else -alpha,
        iterations=golden.iterations,
        context_weight=0.0,
        target_weight=1.0,
        regularisers=(L2(0.001), Orthogonality(0.01)),
    )


def classwise(golden: Golden) -> ClasswiseUpdate:
    return ClasswiseUpdate(*(golden.mlp(f"neural_local_updater/{part}") for part in ("mlp", "true", "false")))


def constant(golden: Golden) -> Constant:
    return eqx.tree_at(lambda c: c.value, Constant(7), golden.weight("constant_initialiser/initial_state")[0])


def attention(golden: Golden) -> MetaFun:
    return classifier(golden, Attention(golden.mlp("attention_block/attention/mlp")), classwise(golden), Zero(7))


def se_kernel_constant(golden: Golden) -> MetaFun:
    return classifier(golden, golden.kernel("squared_exponential_kernel"), classwise(golden), constant(golden))


def deep_kernel_gradient(golden: Golden) -> MetaFun:
    pool = DeepKernel(golden.mlp("deep_se_kernel/mlp"), golden.kernel("deep_se_kernel"))
    rates = golden.weight("gradient_local_updater/lr").reshape(5, 7)
    update = eqx.tree_at(lambda u: u.scale, GradientUpdatePerClass(5, 7), rates)
    return classifier(golden, pool, update, constant(golden))


@pytest.mark.parametrize("build", [attention, se_kernel_constant, deep_kernel_gradient])
def test_matches_the_authors_classifier(build):
    golden = Golden(f"classifier_{build.__name__}")
    model, tasks = build(golden), golden.tasks()

    @jax.jit
    @jax.vmap
    def outcome(task):
        representation = model.encode(task.context)
        context, target = (model.predict(representation, points.x).logits for points in (task.context, task.target))
        return context, target, model.loss(task), target_metrics(model, task)["accuracy"]

    context, target, loss, accuracy = outcome(tasks)
    np.testing.assert_allclose(context, golden.output("logits_context"), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(target, golden.output("logits_target"), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(loss, golden.output("loss"), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(accuracy, golden.output("accuracy_target"), rtol=1e-6)
