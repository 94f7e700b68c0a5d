"""The training loop: it learns, and what it computes depends on the seed and the step alone."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh

import metafun.training.trainer
from examples import TINY
from metafun.config import load_config
from metafun.model.nn import is_array
from metafun.tasks import Sinusoid
from metafun.training.devices import AXIS, task_mesh
from metafun.training.evaluation import evaluate, task_metrics
from metafun.training.optimiser import build_optimiser, clip_arrays, moving_average
from metafun.training.trainer import Trainer


def train(*settings):
    trainer = Trainer(load_config("sinusoid", [*TINY, *settings]))
    chunks = list(trainer.run(trainer.start()))
    return trainer, chunks[-1][0], np.concatenate([losses for _, losses in chunks])


def test_the_loss_falls():
    wide = [f"model.{key}=32" for key in ("representation", "pooling.width", "update.width", "decoder.width")]
    _, _, losses = train(
        *wide, "training.batch=16", "training.steps=800", "training.chunk=200", "training.validate_every=200"
    )
    assert losses[-50:].mean() < 0.5 * losses[:50].mean()


def test_a_seed_trains_the_same_alone_and_in_company():
    _, together, losses = train("training.seeds=[3,4,5]")
    _, alone, losses_alone = train("training.seeds=[4]")
    np.testing.assert_allclose(losses[:, 1], losses_alone[:, 0], rtol=1e-3)
    np.testing.assert_allclose(together.parameters[1], alone.parameters[0], atol=1e-4)
    assert not np.allclose(together.parameters[0], together.parameters[1], atol=1e-2)


def test_the_number_of_devices_does_not_matter(monkeypatch):
    if len(jax.local_devices()) < 2:
        pytest.skip("needs two devices")
    assert task_mesh(4).size > 1
    _, many, _ = train()
    monkeypatch.setattr(metafun.training.trainer, "task_mesh", lambda tasks: Mesh(jax.local_devices()[:1], (AXIS,)))
    _, one, _ = train()
    np.testing.assert_allclose(many.parameters, one.parameters, atol=1e-5)


def test_the_chunk_length_does_not_matter():
    _, a, _ = train("training.chunk=10")
    _, b, _ = train("training.chunk=20")
    np.testing.assert_allclose(a.parameters, b.parameters, atol=1e-5)


def test_chunks_of_one_length_are_compiled_once(monkeypatch):
    traced = []
    steps = Trainer.scan_steps
    monkeypatch.setattr(Trainer, "scan_steps", lambda self, *arguments: traced.append(1) or steps(self, *arguments))
    train("training.steps=40", "training.chunk=10")
    assert len(traced) == 1


def test_tasks_are_shared_out_evenly():
    devices = len(jax.local_devices())
    assert task_mesh(12 * devices).size == devices
    assert task_mesh(1).size == 1


def test_warm_up_then_cosine():
    training = load_config("sinusoid", ["training.steps=1000", "training.warmup=100"]).training
    parameters = np.zeros(1, np.float32)
    optimiser = build_optimiser(training, training.learning_rate, [])
    state, sizes = optimiser.init(parameters), []
    for _ in range(1000):
        change, state = optimiser.update(np.ones(1, np.float32), state, parameters)
        sizes.append(-float(change[0]))
    # Under a constant gradient Adam moves by the learning rate.
    expected = [optax.warmup_cosine_decay_schedule(0, training.learning_rate, 100, 1000)(i) for i in (0, 50, 100, 999)]
    np.testing.assert_allclose([sizes[i] for i in (0, 50, 100, 999)], expected, rtol=1e-3, atol=1e-8)


def test_clipping_bounds_the_gradient():
    training = load_config("sinusoid", ["training.clip=1.0", "training.schedule=constant"]).training
    optimiser = build_optimiser(training, training.learning_rate, [])
    _, (_, adam) = optimiser.update(np.full(4, 100.0, np.float32), optimiser.init(np.zeros(4, np.float32)))
    # Adam's first moment after one step is a tenth of the gradient it was given, here (½, ½, ½, ½).
    np.testing.assert_allclose(adam[0].mu, np.full(4, 0.05), rtol=1e-5)


def test_clipping_array_by_array():
    update = clip_arrays(1.0, [2, 1]).update
    np.testing.assert_allclose(update(jnp.array([3.0, 4.0, 0.5]), None)[0], [0.6, 0.8, 0.5], rtol=1e-6)
    np.testing.assert_allclose(update(jnp.array([0.3, 0.4, -5.0]), None)[0], [0.3, 0.4, -1.0], rtol=1e-6)


def test_evaluation_equals_a_loop_over_tasks():
    trainer, state, _ = train("training.seeds=[0,1]", "training.steps=20")
    models = trainer.models(state.parameters)
    key, tasks = jax.random.key(5), Sinusoid(context=(5, 5), targets=20, points=25)
    metrics = task_metrics(models, tasks, key, 6, "highest")
    for s in range(2):
        model = jax.tree.map(lambda leaf, s=s: leaf[s] if is_array(leaf) else leaf, models)
        for i, k in enumerate(jax.random.split(key, 6)):
            task = tasks.sample(k)
            mean = model.predict(model.encode(task.context), task.target.x).mean
            np.testing.assert_allclose(metrics["mse"][s, i], np.square(mean - task.target.y).mean(), rtol=1e-3)


def test_evaluation_repeats_itself_and_separates_shots():
    trainer, state, _ = train("training.steps=20")
    models = trainer.models(state.parameters)
    first, second = evaluate(models, trainer.experiment), evaluate(models, trainer.experiment)
    assert {"mse_5shot", "mse_10shot"} <= set(first)
    np.testing.assert_array_equal(first["mse_5shot"], second["mse_5shot"])
    assert first["mse_5shot"] != first["mse_10shot"]


def test_training_ends_where_it_is_told_to_and_keeps_to_its_schedule():
    """`stop` cuts a training short; `steps` would squeeze the schedule too."""
    _, _, losses = train()
    _, stopped, first = train("training.stop=30")
    assert stopped.step == 30
    np.testing.assert_allclose(first, losses[:30], rtol=1e-6)


def test_the_average_of_the_parameters_is_what_is_used():
    trainer, state, _ = train("training.average=0.9")
    plain_trainer, plain, _ = train()
    # Averaging leaves the training alone, but for the rounding of another program.
    np.testing.assert_allclose(state.parameters, plain.parameters, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(plain_trainer.trained(plain), plain.parameters)
    assert not np.allclose(trainer.trained(state), state.parameters, atol=1e-4)


def test_the_average_by_hand():
    optimiser, average = moving_average(0.5), 3.0
    state, parameters = optimiser.init(jnp.array([3.0])), jnp.array([3.0])
    for steps, d in enumerate((0.1, 2 / 11, 3 / 12, 4 / 13, 5 / 14)):
        change, state = optimiser.update(jnp.array([1.0]), state, parameters)
        parameters = parameters + change
        average = d * average + (1 - d) * parameters[0]
        np.testing.assert_allclose(state.average, average, rtol=1e-6, err_msg=f"after {steps + 1} steps")
    for _ in range(20):
        _, state = optimiser.update(jnp.array([0.0]), state, jnp.array([7.0]))
    np.testing.assert_allclose(state.average, 7.0, atol=1e-4)
