"""Tasks over a table of features: which rows they are made of."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples import clusters
from metafun.config import load_config, parse_config, parse_toml, resolve
from metafun.data import Table
from metafun.data.table_folder import save_table
from metafun.errors import InvalidConfig, InvalidData
from metafun.schema import to_table
from metafun.tasks import Episodes, EpisodeTasks
from metafun.tasks.row_transforms import UnitLength


def numbered(counts=(7, 5, 9, 6), splits=("train", "train", "train", "test")) -> Table:
    """Row i is the direction (cos, sin) of i degrees, so that an x tells which row it came from."""
    angles = np.radians(np.arange(sum(counts)))
    labels = np.repeat([f"c{i}" for i in range(len(counts))], counts)
    features = 3 * np.stack([np.cos(angles), np.sin(angles)], 1)
    return Table.of("numbered", features.astype(np.float32), labels.tolist(), np.repeat(splits, counts).tolist())


def row_of(x) -> np.ndarray:
    return np.rint(np.degrees(np.arctan2(x[..., 1], x[..., 0]))).astype(int)


def sample(tasks, count=200):
    return jax.vmap(tasks.sample)(jax.random.split(jax.random.key(0), count))


def test_a_task_has_the_shape_that_was_asked_for():
    task = Episodes.over(clusters(), ["train"], ways=4, shots=2, queries=3).sample(jax.random.key(0))
    assert task.context.x.shape == (8, 12) and task.target.x.shape == (12, 12)
    np.testing.assert_array_equal(task.context.y, np.repeat(np.eye(4), 2, axis=0))
    np.testing.assert_array_equal(task.target.y, np.repeat(np.eye(4), 3, axis=0))
    assert task.context.mask.all() and task.target.mask.all()


def test_rows_have_length_one():
    task = Episodes.over(clusters(), ["test"], ways=3, shots=1, queries=2).sample(jax.random.key(1))
    np.testing.assert_allclose(jnp.linalg.norm(task.context.x, axis=-1), 1, rtol=1e-5)


@pytest.mark.parametrize("size", [1e-30, 1e25])
def test_rows_far_from_one_have_length_one_too(size):
    """Their squares are beyond float32."""
    table = Table.of("far", np.float32(size) * clusters().features[:6], ["a"] * 3 + ["b"] * 3, ["train"] * 6)
    task = Episodes.over(table, ["train"], ways=2, shots=1, queries=2).sample(jax.random.key(1))
    np.testing.assert_allclose(jnp.linalg.norm(task.context.x, axis=-1), 1, rtol=1e-5)


def test_a_row_of_zeros_stays_zero():
    table = Table.of("zeros", np.zeros((6, 3), np.float32), ["a", "a", "a", "b", "b", "b"], ["train"] * 6)
    task = Episodes.over(table, ["train"], ways=2, shots=1, queries=2).sample(jax.random.key(1))
    np.testing.assert_array_equal(task.context.x, 0)


@pytest.mark.parametrize("wide", [False, True])
def test_no_row_is_drawn_twice_and_none_of_another_class(wide):
    with jax.enable_x64(wide):
        check_rows()


def check_rows():
    tasks = Episodes.over(numbered(), ["train"], ways=3, shots=2, queries=3)
    batch = sample(tasks)
    starts, counts = np.array([0, 7, 12]), np.array([7, 5, 9])
    for context, target in zip(row_of(batch.context.x), row_of(batch.target.x), strict=True):
        rows = np.concatenate([context.reshape(3, 2), target.reshape(3, 3)], axis=1)
        assert len(np.unique(rows)) == rows.size
        classes = np.searchsorted(starts, rows, side="right") - 1
        assert (classes == classes[:, :1]).all() and len(set(classes[:, 0])) == 3
        assert (rows < (starts + counts)[classes]).all()


def test_every_row_and_every_class_is_as_likely_as_any_other():
    """Within a class: each of its rows is in the context equally often, in a small class and in a large one."""
    tasks = Episodes.over(numbered(), ["train"], ways=2, shots=1, queries=4)
    context = row_of(sample(tasks, 6000).context.x).ravel()
    for start, count in ((0, 7), (7, 5), (12, 9)):
        seen = np.bincount(context, minlength=21)[start : start + count]
        total = 6000 * 2 / 3
        np.testing.assert_allclose(seen.sum(), total, atol=5 * np.sqrt(total))
        np.testing.assert_allclose(seen, total / count, atol=5 * np.sqrt(total / count))


def test_tasks_come_from_the_named_splits_alone():
    assert (row_of(sample(Episodes.over(numbered(), ["train"], ways=3, shots=1, queries=1)).target.x) < 21).all()
    both = Episodes.over(numbered(), ["train", "test"], ways=4, shots=1, queries=1)
    assert (row_of(sample(both).target.x) >= 21).any()


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_the_table_stays_as_it_was_stored(dtype):
    features = np.arange(1, 25).reshape(8, 3).astype(dtype)
    table = Table.of("small", features, ["a"] * 4 + ["b"] * 4, ["train"] * 8)
    tasks = Episodes.over(table, ["train"], ways=2, shots=1, queries=1)
    assert tasks.features.dtype == dtype
    assert tasks.sample(jax.random.key(0)).context.x.dtype == jnp.float32


def test_noise_has_the_length_it_is_given():
    table = clusters(dx=400, spread=0.0, rows=3)
    clean, noisy = (
        Episodes.over(table, ["train"], ways=4, shots=1, queries=1, transform=UnitLength(noise))
        for noise in (0.0, 0.75)
    )
    a, b = (sample(tasks, 50).context.x for tasks in (clean, noisy))
    # |x + e|² = 1 + 0.75² for a direction e that is nearly orthogonal to x: the cosine to the clean row is 1/1.25.
    np.testing.assert_allclose((a * b).sum(-1).mean(), 1 / 1.25, atol=0.01)
    np.testing.assert_allclose(jnp.linalg.norm(b, axis=-1), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (dict(ways=4, shots=1, queries=1), "'numbered', train: 4 ways need as many classes, and there are 3"),
        (dict(ways=2, shots=0, queries=1), "every class needs at least one context row"),
        (dict(ways=2, shots=3, queries=3), r"need 3 \+ 3 rows of each class; these have fewer: 'c1' \(5\);"),
        (dict(ways=2, shots=3, queries=5), r"'c0' \(7\), 'c1' \(5\);"),
    ],
)
def test_classes_that_are_too_few_or_too_small_are_named(sizes, message):
    with pytest.raises(InvalidData, match=message):
        Episodes.over(numbered(), ["train"], **sizes)


def test_a_split_without_classes_is_refused():
    with pytest.raises(InvalidData, match="'numbered' have no classes in val; they have: train, test"):
        Episodes.over(numbered(), ["val"], ways=2, shots=1, queries=1)


@pytest.fixture
def shifted(tmp_path, monkeypatch):
    """Clusters that share a large mean, stored under two names with different rows."""
    monkeypatch.setenv("METAFUN_DATA", str(tmp_path))
    for name, shift in (("shifted", 5.0), ("elsewhere", 7.0)):
        table = clusters(name=name)
        splits = [rows.split for rows in table.classes for _ in range(rows.count)]
        labels = [rows.name for rows in table.classes for _ in range(rows.count)]
        save_table(Table.of(name, table.features + np.float32(shift), labels, splits), tmp_path, "random numbers")
    return clusters().features[: 6 * 9].astype(np.float64).mean(0) + 5.0


def test_the_mean_of_the_training_rows_is_subtracted_everywhere(shifted):
    tasks = EpisodeTasks(data="shifted", queries=4, centre=True).resolve(validates=True)
    np.testing.assert_allclose(tasks.mean, shifted, rtol=1e-6)
    rows = tasks.table().features
    centred = (rows - shifted) / np.linalg.norm(rows - shifted, axis=1, keepdims=True)
    for drawn in (tasks.training(), tasks.validation(), next(tasks.test())[1]):
        x = np.asarray(drawn.sample(jax.random.key(0)).context.x)
        assert (np.abs(x[:, None] - centred).max(-1).min(1) < 1e-5).all(), "each is a centred row"
    np.testing.assert_allclose(tasks.scaling(rows, None).scale_inputs(rows), centred, atol=1e-6)


def test_the_mean_travels_with_the_configuration(shifted):
    """Through TOML, into the protocol's second training, and to other data."""
    settings = ["tasks.data=shifted", "tasks.queries=4"]
    experiment = resolve(load_config("simpleshot", settings))
    again = parse_config(parse_toml(experiment.config.to_toml(), "a run"))
    assert again == experiment.config and again.tasks.mean == experiment.tasks.mean
    assert again.tasks.including_validation().resolve(validates=False).mean == again.tasks.mean
    moved = again.tasks.with_data("elsewhere")
    assert moved.mean == again.tasks.mean and moved.resolve(validates=False).mean == again.tasks.mean


def test_without_centring_nothing_is_subtracted_and_nothing_is_recorded(shifted):
    tasks = EpisodeTasks(data="shifted", queries=4).resolve(validates=True)
    assert tasks.mean is None and not {"centre", "mean"} & set(to_table(tasks, original=True))


def test_only_features_are_centred():
    with pytest.raises(InvalidConfig, match=r"tasks\.centre is for features, but tasks\.pixels makes rows images"):
        load_config("omniglot-5way-1shot", ["tasks.centre=true"])
    with pytest.raises(InvalidConfig, match=r"tasks\.mean is not known before the data are read"):
        EpisodeTasks(centre=True, features=12).training()


def test_the_classes_of_a_task_are_of_one_split_with_its_share():
    splits = ("train", "train", "val", "val")
    tasks = Episodes.over(
        numbered(splits=splits), ["train", "val"], ways=2, shots=1, queries=1, shares={"train": 0.25, "val": 0.75}
    )
    rows = row_of(sample(tasks, 2000).context.x)
    of_val = rows >= 7 + 5
    assert (of_val.all(1) | ~of_val.any(1)).all(), "no task has classes of both"
    assert of_val[:, 0].mean() == pytest.approx(0.75, abs=4 * np.sqrt(0.75 * 0.25 / 2000))


def test_each_split_with_a_share_needs_enough_classes():
    with pytest.raises(InvalidData, match="'numbered', val: 2 ways need as many classes, and there are 1"):
        Episodes.over(
            numbered(splits=("train", "train", "train", "val")),
            ["train", "val"],
            ways=2,
            shots=1,
            queries=1,
            shares={"train": 0.5, "val": 0.5},
        )


def saved_episodes(tmp_path, monkeypatch, **settings) -> EpisodeTasks:
    """Classes 0 and 1 in train, 2 to 5 in val, 6 and 7 in test; their rows are 10 degrees each."""
    monkeypatch.setenv("METAFUN_DATA", str(tmp_path))
    save_table(numbered((10,) * 8, ("train",) * 2 + ("val",) * 4 + ("test",) * 2), tmp_path, "a test")
    return EpisodeTasks(data="numbered", ways=2, shots=1, queries=1, **settings)


def classes_in(tasks) -> set[int]:
    return set((row_of(sample(tasks).context.x) // 10).ravel().tolist())


def test_a_fold_of_val_validates_and_the_rest_is_trained_on(tmp_path, monkeypatch):
    tasks = saved_episodes(tmp_path, monkeypatch, val_share=0.5)
    for folded, held_out in zip(tasks.tuning_sources(2), ({2, 3}, {4, 5}), strict=True):
        folded.check(validates=True)
        resolved = folded.resolve(validates=True)
        assert classes_in(resolved.training()) == set(range(6)) - held_out
        assert classes_in(resolved.validation()) == held_out
        assert classes_in(next(resolved.test())[1]) == {6, 7}
    final = resolved.including_validation()
    assert final.held_out is None and classes_in(final.resolve(validates=False).training()) == set(range(6))
    with pytest.raises(InvalidConfig, match=r"tasks.held_out = \[2, 2\], but .* the fold, must be from 0 to 1"):
        dataclasses.replace(folded, held_out=(2, 2)).check(validates=True)
    assert classes_in(tasks.resolve(validates=True).training()) == {0, 1}, "a plain training is on train alone"


def test_the_mean_weighs_train_and_val_by_their_share(tmp_path, monkeypatch):
    tasks = saved_episodes(tmp_path, monkeypatch, centre=True, val_share=0.25)
    rows = numbered((10,) * 8, ("train",) * 8).features
    train, val = rows[:20].mean(0), rows[20:60].mean(0)
    np.testing.assert_allclose(tasks.resolve(validates=True).mean, train, rtol=1e-5)
    np.testing.assert_allclose(tasks.including_validation().resolve(False).mean, 0.75 * train + 0.25 * val, rtol=1e-5)
