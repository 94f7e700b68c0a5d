"""Images in: rotations as classes, an embedding that leaks nothing, and everything around it unchanged."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from metafun import Run, load_config
from metafun.cli import app
from metafun.config import parse_config, resolve
from metafun.config.baselines import PrototypesConfig
from metafun.data import Table
from metafun.data.csv_columns import read_csv
from metafun.data.table_folder import save_table
from metafun.embeddings.base import Embedded
from metafun.embeddings.convolutional import ConvNet
from metafun.errors import InvalidConfig, InvalidData
from metafun.estimators.padding import rows_at_once
from metafun.plots import draw
from metafun.schema import to_table
from metafun.tasks import Episodes
from metafun.tasks.row_transforms import Pixels, jittered
from metafun.training.evaluation import MAX_TASKS_AT_ONCE, tasks_at_once

SIDE = 8


def metafun(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def drawings(classes=12, each=6, side=SIDE) -> Table:
    """Every class is a pattern of its own, with some noise, and looks different when it is turned."""
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 200, (classes, 1, side * side))
    rows = (patterns + rng.integers(0, 30, (classes, each, side * side))).astype(np.uint8)
    labels = np.repeat([f"c{i:02}" for i in range(classes)], each).tolist()
    splits = np.repeat([("train", "val", "test")[i % 3] for i in range(classes)], each).tolist()
    return Table.of("drawings", rows.reshape(-1, side * side), labels, splits, (side, side))


SMALL = [
    "embedding.blocks=2",
    "embedding.channels=4",
    "embedding.groups=2",
    "model.representation=8",
    "model.pooling.width=8",
    "model.update.width=8",
    "tasks.ways=3",
    "tasks.queries=3",
    "training.steps=20",
    "training.warmup=2",
    "training.batch=4",
    "training.chunk=10",
    "training.validate_every=10",
    "training.validation_tasks=10",
    "evaluation.tasks=20",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    save_table(drawings(), folder, "a test")
    return folder


def configuration(folder, *settings, preset="omniglot-5way-1shot"):
    return resolve(load_config(preset, [*SMALL, f"tasks.data={folder / 'drawings'}", *settings]))


def test_a_turned_class_is_a_class():
    table = drawings()
    episodes = Episodes.over(
        table, ["train"], ways=3, shots=1, queries=2, transform=Pixels((SIDE, SIDE), rotations=True)
    )
    turns = set()
    for seed in range(30):
        key = jax.random.key(seed)
        rows, copy = episodes.draw(jax.random.split(key)[0])
        task = episodes.sample(key)
        x = np.concatenate([np.reshape(p.x, (3, -1, SIDE, SIDE)) for p in (task.context, task.target)], axis=1)
        first = next(c for c in table.classes if c.split == "train").start
        images = table.features[first:].reshape(-1, SIDE, SIDE)[np.asarray(rows)] / 255
        for k in range(3):
            np.testing.assert_allclose(x[k], np.rot90(images[k], int(copy[k]), (1, 2)), rtol=1e-6)
            turns.add(int(copy[k]))
        pairs = {(int(r), int(c)) for r, c in zip(rows[:, 0] // 6, copy, strict=True)}
        assert len(pairs) == 3, "a class may be there twice, but not turned the same way"
    assert turns == {0, 1, 2, 3}


def test_jitter_moves_each_image_a_little_by_itself():
    image = jnp.zeros((9, 9, 1)).at[4, 4].set(1.0)
    keys = jax.random.split(jax.random.key(0), 200)
    seen = jax.vmap(lambda key: jittered(image, 0.1, key))(keys)
    assert len({np.asarray(one).tobytes() for one in seen}) == 200
    np.testing.assert_allclose(seen.sum((1, 2, 3)).mean(), 1, atol=0.1)  # as much ink as before
    middle = (seen[..., 0] * jnp.arange(9)[:, None]).sum((1, 2)) / seen.sum((1, 2, 3))
    assert abs(middle.mean() - 4) < 0.1 and 0.2 < middle.std() < 0.6  # half the image is 4 pixels
    np.testing.assert_allclose(jittered(image, 0.0, keys[0]), image, atol=1e-6)


def test_images_are_not_turned_in_tests(folder):
    config = configuration(folder, "tasks.pixels.jitter=0.1")
    assert config.tasks.training().transform == Pixels((SIDE, SIDE), rotations=True, jitter=0.1)
    for tasks in (config.tasks.validation(), dict(config.test_tasks())["3way_1shot"]):
        assert tasks.transform == Pixels((SIDE, SIDE))


def test_a_convolution_is_one():
    """The first block, before it is pooled, against JAX's own convolution and group normalisation by hand."""
    net = ConvNet((6, 7), [3, 4], 2, key=jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (3, 126))
    kernel = net.blocks[0].kernel.reshape(3, 3, 3, 4)
    dimensions = ("NHWC", "HWIO", "NHWC")
    h = jax.lax.conv_general_dilated(x.reshape(3, 6, 7, 3), kernel, (1, 1), "SAME", dimension_numbers=dimensions)
    groups = h.reshape(3, 6, 7, 2, 2)
    mean, variance = groups.mean((1, 2, 4), keepdims=True), groups.var((1, 2, 4), keepdims=True)
    h = jax.nn.relu(((groups - mean) / jnp.sqrt(variance + 1e-5)).reshape(h.shape))
    expected = jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    np.testing.assert_allclose(net(x), expected.reshape(3, -1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("preset", ["omniglot-5way-1shot", "omniglot-prototypes"])
def test_a_prediction_depends_on_nothing_else_that_is_asked(folder, preset):
    settings = [s for s in SMALL if preset != "omniglot-prototypes" or not s.startswith("model")]
    config = resolve(load_config(preset, [*settings, f"tasks.data={folder / 'drawings'}"]))
    # Before training it would say the same of everything.
    arrays, rest = eqx.partition(config.build_model(jax.random.key(0)), eqx.is_array)
    model = eqx.combine(jax.tree.map(lambda a: a + 0.3 * jnp.cos(jnp.arange(a.size).reshape(a.shape)), arrays), rest)
    task = config.tasks.validation().sample(jax.random.key(0))
    together = model.predict(model.encode(task.context), task.target.x).log_probabilities
    for i, x in enumerate(task.target.x[:3]):
        alone = model.predict(model.encode(task.context), x[None]).log_probabilities
        np.testing.assert_allclose(alone[0], together[i], rtol=1e-4, atol=1e-5)
    other = eqx.tree_at(lambda t: t.context.x, task, task.context.x[::-1])
    assert not np.allclose(model.predict(model.encode(other.context), task.target.x).log_probabilities, together)


def test_half_precision_is_nearly_the_same():
    whole, half = (ConvNet((8, 8), [1, 8, 8], 2, p, key=jax.random.key(0)) for p in ("float32", "bfloat16"))
    x = jax.random.uniform(jax.random.key(1), (3, 64))
    assert half(x).dtype == x.dtype and not np.array_equal(whole(x), half(x))
    np.testing.assert_allclose(half(x), whole(x), atol=0.1)


def test_tasks_of_images_are_predicted_few_at_a_time(folder):
    narrow, wide = configuration(folder), configuration(folder, "embedding.channels=1024", "tasks.ways=4")
    many, few = (tasks_at_once(config.blank_model(), config.tasks.validation()) for config in (narrow, wide))
    assert 1 <= few < many == MAX_TASKS_AT_ONCE


def test_the_embedding_is_trained_with_the_model(folder, tmp_path):
    run = Run.create(tmp_path / "run", configuration(folder))
    before = run.experiment.build_model(jax.random.split(jax.random.key(0))[0]).embedding.blocks[0].kernel
    for _ in run.train():
        pass
    assert not np.allclose(run.model().embedding.blocks[0].kernel, before)
    assert Run(run.path).config == run.config


def test_an_embedding_without_images_or_images_without_an_embedding(folder, tmp_path):
    with pytest.raises(InvalidConfig, match=r"is for images; set tasks\.pixels"):
        load_config("features", ["embedding.kind=convnet"])
    with pytest.raises(InvalidConfig, match=r"cannot be divided into embedding\.groups = 3"):
        load_config("omniglot-5way-1shot", ["embedding.groups=3"])
    labels = np.repeat(["a", "b", "c", "d"], 18).tolist()
    plain = Table.of("plain", drawings().features, labels, ["train"] * 36 + ["val"] * 36)
    save_table(plain, tmp_path, "a test")
    with pytest.raises(InvalidData, match="are not images; import a folder of images"):
        resolve(
            load_config("omniglot-5way-1shot", [f"tasks.data={tmp_path / 'plain'}", "tasks.ways=2", "tasks.queries=2"])
        )
    config = configuration(folder).config
    assert parse_config(to_table(config)) == config


def test_a_folder_of_images_becomes_a_classifier_in_three_commands(tmp_path, monkeypatch):
    monkeypatch.setenv("METAFUN_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    table = drawings()
    for rows in table.classes:
        for i in range(rows.count):
            path = tmp_path / "birds" / rows.name / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(table.features[rows.start + i].reshape(SIDE, SIDE)).save(path)
    (tmp_path / "birds" / "c00" / "notes.txt").write_text("not an image", "utf-8")

    done = metafun("data", "import-images", "birds", "--side", SIDE, "--split", "1,1,1")
    assert done.exit_code == 0, done.output
    assert "notes.txt: not an image" in done.stderr and "metafun train images --data birds" in done.stderr
    settings = [word for setting in SMALL for word in ("--set", setting)]
    assert metafun("train", "images", "--data", "birds", *settings).exit_code == 0
    for name in ("c02", "c05"):  # two classes, two pictures of each
        for i in range(2):
            known = tmp_path / "known" / name / f"{i}.png"
            known.parent.mkdir(parents=True, exist_ok=True)
            known.write_bytes((tmp_path / "birds" / name / f"{i}.png").read_bytes())
    (tmp_path / "new").mkdir()
    for i in range(2, 5):
        (tmp_path / "new" / f"{i}.png").write_bytes((tmp_path / "birds" / "c02" / f"{i}.png").read_bytes())
    (tmp_path / "new" / "broken.png").write_bytes(b"\x89PNG and no more")
    done = metafun("predict", "new", "--model", "runs/images", "--context", "known")
    assert done.exit_code == 0, done.output
    assert "left out: " in done.stderr and "broken.png" in done.stderr
    found = read_csv(tmp_path / "predictions.csv")
    assert found.names == ["file", "class", "P(c02)", "P(c05)"] and found.entries["file"] == ["2.png", "3.png", "4.png"]

    picture = (tmp_path / "new" / "2.png").read_bytes()
    for odd in ("known/.hidden/1.png", "new/.hidden/1.png", "new/caf\udce9.png"):  # the last is not UTF-8
        (tmp_path / odd).parent.mkdir(exist_ok=True)
        (tmp_path / odd).write_bytes(picture)
    (tmp_path / "known" / "empty").mkdir()
    said = metafun("predict", "new", "--model", "runs/images", "--context", "known", "--json")
    answers = json.loads(said.stdout)
    assert answers["file"] == ["2.png", "3.png", "4.png", "caf\udce9.png"] and set(answers) == set(found.names)
    assert "empty: no readable image, so no class" in said.stderr
    done = metafun("predict", "new", "--model", "runs/images", "--context", "known", "--out", "odd.csv")
    assert done.exit_code == 0 and b"caf\xe9.png" in (tmp_path / "odd.csv").read_bytes()
    refused = metafun("predict", "new", "--model", "gp-rbf", "--context", "known", "--json")
    assert refused.exit_code == 2 and "the model takes no images" in refused.stderr


def test_large_images_are_predicted_few_at_a_time():
    small, large = (load_config("images").embedding.build((s * s * 3, 0), (s, s), jax.random.key(0)) for s in (8, 64))
    assert rows_at_once(Embedded(large, PrototypesConfig().build(large.size, 0, jax.random.key(0)))) < 400
    assert rows_at_once(Embedded(small, PrototypesConfig().build(small.size, 0, jax.random.key(0)))) == 4096


def test_figures_of_images(folder, tmp_path):
    run = Run.create(tmp_path / "run", configuration(folder))
    for _ in run.train():
        pass
    figures = draw(run)
    assert all(figures[name].exists() for name in ("episodes", "weights", "reliability"))
