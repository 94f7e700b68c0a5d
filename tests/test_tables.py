"""Any small table: the tables that are made up, the model that must not care how they are written down, and `fit`."""

import dataclasses
import json
import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.utils import get_tags
from typer.testing import CliRunner

import examples
from metafun import MetaFunClassifier, MetaFunRegressor, load_config
from metafun.cli import app
from metafun.config import resolve
from metafun.errors import InvalidConfig
from metafun.estimators.trained import Trained
from metafun.model.task import Points
from metafun.tasks.prior import LabelTables, MixedLabelTables, MixedNumberTables, NumberTables, features, functions
from metafun.tasks.scaling import OUTPUT_CLIP, ClippedScaling, RobustScaling, compress_tails, table_scaling
from metafun.training.evaluation import MAX_TASKS_AT_ONCE, tasks_at_once

TINY = ["model.representation=8", "model.pooling.width=8", "model.update.width=8", "model.iterations=2"]
SMALL = ["tasks.columns=5", "embedding.cells=6", "embedding.about=6", "embedding.entries=4", "embedding.size=8", *TINY]
SMALL_WIDE = [f"model.population.{name}=8" for name in ("cells", "about", "entries", "size")] + TINY
SMALL_WIDE += ["model.population.rounds=1", "model.population.mixing=1", "model.population.features=2"]
KINDS = ("tables-regression", "tables-classification")
WIDE_KINDS = ("wide-tables-regression", "wide-tables-classification")


def metafun(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def untrained(kind: str, *settings: str) -> Trained:
    if kind not in WIDE_KINDS:
        return examples.untrained(kind, *SMALL, *settings)
    trained = examples.untrained(kind, *SMALL_WIDE, *settings)
    # Outputs of such random networks are large; as corrections they would leave nothing else to see.
    return dataclasses.replace(trained, model=eqx.tree_at(lambda m: m.gain, trained.model, jnp.asarray(1e-3)))


def classifies(kind: str) -> bool:
    return kind.endswith("classification")


def table(kind: str, columns=4, n=12, m=7):
    rng = np.random.default_rng(0)
    x, x_ = rng.normal(size=(n, columns)), rng.normal(size=(m, columns))
    y = np.array(["no", "yes", "maybe"])[np.arange(n) % 3] if classifies(kind) else x[:, 0] - x[:, 1]
    return x, y, x_


def said(kind: str, x, y, x_, *settings):
    model = (MetaFunClassifier if classifies(kind) else MetaFunRegressor)(untrained(kind, *settings)).fit(x, y)
    return model.predict_proba(x_) if classifies(kind) else np.stack(model.predict(x_, return_std=True), -1)


PRIORS = {
    "y": NumberTables(6, (2, 20), 9),
    "class": LabelTables(6, (2, 20), 9, 5),
    "mixed y": MixedNumberTables(6, (2, 20), 9),
    "mixed class": MixedLabelTables(6, (2, 20), 9, 5),
}


@pytest.fixture(scope="module", params=PRIORS.values(), ids=PRIORS)
def drawn(request):
    keys = jax.random.split(jax.random.key(0), 300)
    return request.param, jax.tree.map(np.asarray, jax.jit(jax.vmap(request.param.sample))(keys))


def test_tables_of_every_size_are_made_up(drawn):
    tasks = drawn[1]
    rows = tasks.context.mask.sum(1)
    assert rows.min() == 2 and rows.max() == 20 and len(set(rows.tolist())) > 15
    assert (np.sort(tasks.context.mask, axis=1)[:, ::-1] == tasks.context.mask).all(), "the context comes first"
    present = ~np.isnan(tasks.context.x) & tasks.context.mask[..., None]
    there = present.any(1)
    counts = there.sum(1)[rows > 10]
    assert set(range(1, 7)) == set(counts[counts > 0].tolist())
    assert (counts == 0).mean() < 0.05, "tables whose only column is constant in the context"
    gaps = ~present & tasks.context.mask[..., None] & there[:, None]
    assert 0.05 < gaps.any((1, 2)).mean() < 0.4
    for points in (tasks.context, tasks.target):
        assert np.isfinite(points.y).all() and not np.isinf(points.x).any()


def test_numbers_are_standardised_by_the_context(drawn):
    tables, tasks = drawn
    even = []
    for x, mask in zip(tasks.context.x, tasks.context.mask, strict=True):
        known = [column[~np.isnan(column)] for column in x[mask].T if not np.isnan(column).all()]
        even.append(all(abs(np.median(column)) < 1e-4 for column in known))
    if isinstance(tables, NumberTables | LabelTables):
        assert 0.75 < np.mean(even) < 0.95, "all but those that are given by components, which have means of 0"
    else:
        assert np.mean(even) > 0.99
    if isinstance(tables, NumberTables | MixedNumberTables):
        y = np.where(tasks.context.mask, tasks.context.y[..., 0], np.nan)
        np.testing.assert_allclose(np.nanmedian(y, axis=1), 0, atol=1e-4)
        assert abs(tasks.target.y[tasks.target.mask]).max() < OUTPUT_CLIP
        assert tasks.target.mask.mean() > 0.9


@pytest.mark.parametrize("drawn", [PRIORS["class"], PRIORS["mixed class"]], indirect=True)
def test_classes_are_shown_before_they_are_asked_for(drawn):
    tasks = drawn[1]
    counts = (tasks.context.y * tasks.context.mask[..., None]).sum(1)
    asked = (tasks.target.y * tasks.target.mask[..., None]).sum(1)
    assert not (asked[counts == 0]).any()
    ways = (counts > 0).sum(1)
    assert {2, 3, 4, 5} <= set(ways.tolist()) and (ways == 1).mean() < 0.01, "one class only if there is no other"
    even = [c[c > 0].max() - c[c > 0].min() <= 1 for c in counts if c.sum() >= 6 and (c > 0).sum() > 1]
    assert 0.3 < np.mean(even) < 0.95, "half of the tables show their classes evenly"


def test_functions_differ_and_are_even():
    x = jax.random.normal(jax.random.key(0), (200, 4))
    for kind in functions.MORE_KINDS:
        values = jax.vmap(lambda key, kind=kind: kind(key, x, 3))(jax.random.split(jax.random.key(1), 5))
        assert values.shape == (5, 200, 3) and np.isfinite(values).all()
        assert values.std(1).min() > 1e-3
    mixed = functions.draw(jax.random.key(2), x, 3)
    np.testing.assert_allclose(mixed.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(mixed.std(0), 1, atol=1e-3)
    # Columns of zeros say nothing: whatever is drawn, it is a function of the only one that differs.
    single = jnp.zeros((200, 40)).at[:, 2].set(x[:, 2])
    for kind in functions.KINDS:
        values = jax.vmap(lambda key, kind=kind: kind(key, single, 1))(jax.random.split(jax.random.key(4), 20))
        assert values.std(1).min() > 0


def test_components_are_the_principal_ones():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 6)) * [9, 5, 3, 0.5, 0.3, 0.1] @ np.linalg.qr(rng.normal(size=(6, 6)))[0]
    found = features.principal(jnp.asarray(x), jnp.arange(40) < 30, 3)
    _, sizes, directions = np.linalg.svd(x[:30] - x[:30].mean(0), full_matrices=False)
    expected = x @ directions[:3].T / (sizes[0] / np.sqrt(30))
    np.testing.assert_allclose(abs(found), abs(expected), atol=0.05)
    scaled = table_scaling(x[:30], None, 3).scale_inputs(x)
    even = compress_tails(RobustScaling.of(x[:30])(x))
    np.testing.assert_allclose(
        abs(scaled), abs(features.principal(jnp.asarray(even), jnp.arange(40) < 30, 3)), atol=1e-3
    )


@pytest.mark.parametrize("columns", [3, 5, 9])
def test_scaling_equals_that_of_training(columns):
    """Of the same rows, `fit` makes the numbers that the compiled step makes, narrow tables and wide ones."""
    rng, tables = np.random.default_rng(0), NumberTables(5, (2, 12), 4)
    x = rng.normal(size=(16, columns)) ** 3
    x[2, 1], x[:, 2] = np.nan, 4.0  # a gap, and a column that does not differ
    drawn = np.full((16, 10), np.nan)
    drawn[:, :columns] = x
    task = tables.split(jnp.asarray(9), jnp.asarray(drawn), jnp.zeros((16, 1)), jnp.ones(16, bool))
    scaling = table_scaling(x[:9], None, 5)
    for found, expected in (
        (scaling.scale_inputs(x[:9]), task.context.x[:9]),
        (scaling.scale_inputs(x[12:]), task.target.x),
    ):
        assert (np.isnan(found) == np.isnan(expected)).all()
        np.testing.assert_allclose(abs(np.nan_to_num(found)), abs(np.nan_to_num(expected)), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS + WIDE_KINDS)
def test_the_order_of_rows_columns_and_classes_does_not_matter(kind):
    x, y, x_ = table(kind)
    expected = said(kind, x, y, x_)
    rows, columns = np.random.default_rng(1).permutation(len(x)), [2, 0, 3, 1]
    np.testing.assert_allclose(said(kind, x[rows], y[rows], x_), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(said(kind, x[:, columns], y, x_[:, columns]), expected, rtol=1e-4, atol=1e-5)
    assert not np.allclose(said(kind, x, y, x_[:, columns]), expected, atol=1e-3), "columns are told apart"
    if classifies(kind):
        renamed = np.array([{"no": "zebra", "yes": "ant", "maybe": "maybe"}[label] for label in y])
        # In the order of the names: maybe, no, yes and ant, maybe, zebra.
        np.testing.assert_allclose(said(kind, x, renamed, x_)[:, [1, 2, 0]], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS + WIDE_KINDS)
@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_units_do_not_matter(kind, scale):
    x, y, x_ = table(kind)
    expected = said(kind, x, y, x_)
    np.testing.assert_allclose(
        said(kind, scale * x + 7 * scale, y, scale * x_ + 7 * scale), expected, rtol=1e-3, atol=1e-4
    )
    if not classifies(kind):
        np.testing.assert_allclose(said(kind, x, scale * y, x_), scale * expected, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS + WIDE_KINDS)
def test_strange_tables_are_taken(kind):
    x, y, x_ = table(kind)
    plain = said(kind, x, y, x_)
    constant = said(kind, np.c_[x, np.full(len(x), 3.0)], y, np.c_[x_, np.full(len(x_), 4e9)])
    np.testing.assert_allclose(constant, plain, rtol=1e-5, atol=1e-6, err_msg="a constant column tells nothing")
    assert np.isfinite(said(kind, np.r_[x, x], np.r_[y, y[::-1]], x_)).all(), "the same rows with other labels"
    gaps = np.where(np.random.default_rng(0).random(x.shape) < 0.3, np.nan, x)
    assert np.isfinite(said(kind, gaps, y, np.full_like(x_, np.nan))).all()
    wide, wide_ = np.tile(x, 3) + 0.1 * np.arange(12), np.tile(x_, 3)
    assert np.isfinite(said(kind, wide, y, wide_)).all(), "principal components"
    assert abs(said(kind, np.ones((12, 9)), y, 5 * np.ones((7, 9)))).max() < 100, "wide, and nothing differs"
    assert not np.allclose(said(kind, gaps, y, x_), plain)


@pytest.mark.parametrize("estimator", [MetaFunRegressor, MetaFunClassifier])
def test_bad_tables_are_refused(estimator):
    x, y, _ = table(KINDS[0])
    labels = (y > 0).astype(int)
    model = estimator(untrained(KINDS[estimator is MetaFunClassifier]))
    with pytest.raises(ValueError, match="contains infinity"):
        model.fit(np.where(x > 1, np.inf, x), labels)
    with pytest.raises(ValueError, match="could not convert string to float"):
        model.fit(np.where(x > 1, "a", "b"), labels)
    if estimator is MetaFunClassifier:
        with pytest.raises(ValueError, match="one class only"):
            model.fit(x, np.zeros(len(x), int))
    else:
        with pytest.raises(ValueError, match="MultiOutputRegressor fits one model for each"):
            model.fit(x, np.c_[y, y])


def test_a_column_that_says_nothing_changes_nothing_but_what_it_says():
    """Padding is no column: the model is the same for tables of any width."""
    net = untrained(KINDS[1]).model.embedding
    x = jnp.asarray(np.random.default_rng(0).normal(size=(6, 5)))
    context = Points(x.at[:, 3:].set(jnp.nan), jnp.eye(2)[jnp.arange(6) % 2], jnp.ones(6, bool))
    summary = net.summarise_context(context)
    assert summary.nonempty.tolist() == [True, True, True, False, False]
    np.testing.assert_allclose(net(x.at[:, 3:].set(jnp.nan), summary), net(x.at[:, 3:].set(5.0), summary), rtol=1e-6)


def test_settings_of_tables_are_checked():
    with pytest.raises(InvalidConfig, match="the lower bound comes first"):
        load_config(KINDS[0], ["tasks.context=[9,2]"])
    with pytest.raises(InvalidConfig, match=r"tasks\.classes = 1; give 2 or more, or 0 for regression"):
        load_config(KINDS[1], ["tasks.classes=1"])
    experiment = resolve(load_config(KINDS[1], ["evaluation.shots=[4,8]"]))
    assert [kind for kind, _ in experiment.test_tasks()] == ["4shot", "8shot"]


def test_a_model_of_tables_is_trained_and_used(tmp_path):
    settings = [*SMALL, "tasks.context=[2,10]", "tasks.targets=8", "training.steps=20", "training.batch=4"]
    settings += [
        "training.chunk=10",
        "training.validate_every=10",
        "training.validation_tasks=10",
        "evaluation.tasks=20",
    ]
    words = [word for setting in settings for word in ("--set", setting)]
    assert metafun("train", KINDS[1], *words, "--out", tmp_path / "run").exit_code == 0
    done = metafun("evaluate", tmp_path / "run", "--shots", 5, "--json")
    assert 0 < json.loads(done.stdout)["metrics"]["accuracy_5shot"]["mean"] <= 1
    x, y, x_ = table(KINDS[1])
    assert MetaFunClassifier(tmp_path / "run").fit(x, y).predict(x_).shape == (7,)


def test_files_with_gaps_need_no_model_of_their_own(tmp_path):
    x, y, _ = table(KINDS[1])
    lines = ["a,b,c,d,kind", *(",".join([*map(str, row), label]) for row, label in zip(x.round(3), y, strict=True))]
    lines[3] = "," + lines[3].split(",", 1)[1]
    (tmp_path / "known.csv").write_text("\n".join(lines), "utf-8")
    (tmp_path / "new.csv").write_text("a,b,c,d\n1,,2,3\n,,,1\n", "utf-8")
    options = [tmp_path / "new.csv", "--context", tmp_path / "known.csv", "--json"]
    done = metafun("predict", "--model", KINDS[1], *options)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert len(found["kind"]) == 2 and set(found) == {"kind", "P(maybe)", "P(no)", "P(yes)"}
    refused = metafun("predict", "--model", "glyphs", *options)
    assert refused.exit_code == 2 and "column 'a' is missing in row 2, but was complete in training" in refused.stderr


@pytest.mark.parametrize(
    ("kind", "columns"), [(kind, 4) for kind in KINDS + WIDE_KINDS] + [(kind, 9) for kind in KINDS]
)
def test_they_travel_as_the_others_do(kind, columns, tmp_path):
    x, y, x_ = table(kind, columns)
    model = (MetaFunClassifier if classifies(kind) else MetaFunRegressor)(untrained(kind)).fit(x, y)
    answer = model.predict_proba if classifies(kind) else model.predict
    model.save(tmp_path / "model.safetensors")
    loaded = type(model).load(tmp_path / "model.safetensors")
    again = pickle.loads(pickle.dumps(model))
    for other in (loaded, again):
        found = other.predict_proba(x_) if classifies(kind) else other.predict(x_)
        np.testing.assert_allclose(found, answer(x_), rtol=1e-5)
    assert get_tags(loaded).input_tags.allow_nan
    model.export(tmp_path / "program")
    program = jax.export.deserialize(bytearray((tmp_path / "program").read_bytes()))
    out = program.call(jnp.asarray(x_, jnp.float32))
    np.testing.assert_allclose(out if classifies(kind) else out[0][:, 0], answer(x_), rtol=1e-3, atol=1e-4)


def test_names_of_columns_are_remembered(tmp_path):
    """By whatever way the context comes: a frame with its columns swapped is refused."""
    pandas = pytest.importorskip("pandas")
    x, y, _ = table(KINDS[1], 3)
    frame = pandas.DataFrame(x, columns=["a", "b", "c"])
    model = MetaFunClassifier(untrained(KINDS[1])).fit(frame, y)
    model.save(tmp_path / "model.safetensors")
    more = MetaFunClassifier(untrained(KINDS[1])).fit(frame, y).partial_fit(frame, y)
    for other in (
        model,
        pickle.loads(pickle.dumps(model)),
        more,
        MetaFunClassifier.load(tmp_path / "model.safetensors"),
    ):
        other.predict(frame)
        with pytest.raises(ValueError, match="feature names should match"):
            other.predict(frame[["c", "b", "a"]])


def test_rows_are_added_of_the_same_kind_only():
    x, y, _ = table(KINDS[1])
    model = MetaFunClassifier(untrained(KINDS[1])).fit(x, (y == "yes").astype(int))
    with pytest.raises(ValueError, match="give the same kind"):
        model.partial_fit(x, y)
    assert len(model.partial_fit(x, (y == "no").astype(int)).X_) == 24


def test_large_tables_are_evaluated_few_at_a_time():
    config = resolve(load_config("tables-classification"))
    small = resolve(load_config("tables-classification", SMALL))
    few, many = (tasks_at_once(c.blank_model(), c.tasks.validation()) for c in (config, small))
    assert few < many == MAX_TASKS_AT_ONCE
    # Seeds that are evaluated at once share what there is.
    twice = eqx.filter_eval_shape(eqx.filter_vmap(config.build_model), jax.random.split(jax.random.key(0)))
    assert tasks_at_once(twice, config.tasks.validation()) == few // 2


@pytest.mark.parametrize("layout", [lambda a: a[::2], lambda a: a[::-1], np.asfortranarray, lambda a: a[:, :3]])
def test_what_is_saved_is_what_was_fitted(layout, tmp_path):
    x, y, x_ = table(KINDS[0], columns=5, n=24)
    given, asked = layout(x), layout(x_)
    values = y[: len(given)]
    model = MetaFunRegressor(untrained(KINDS[0])).fit(given, values)
    before = model.predict(asked)
    model.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(MetaFunRegressor.load(tmp_path / "model.safetensors").predict(asked), before)


def test_the_arrays_of_the_caller_are_not_kept():
    x, y, x_ = table(KINDS[1])
    model = MetaFunClassifier().fit(x, y)
    before = model.predict_proba(x_)
    x[:] = 0
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(x_), before)


def test_components_do_not_depend_on_the_order_of_anything():
    """Columns in opposite pairs, as those of two-valued categories: their directions sum to zero."""
    rng = np.random.default_rng(0)
    half = rng.normal(size=(40, 10))
    rows, order = np.hstack([half, -half]), rng.permutation(40)
    found = table_scaling(rows, None, 16).scale_inputs(rows)
    shuffled = table_scaling(rows[order], None, 16).scale_inputs(rows)
    np.testing.assert_allclose(shuffled, found, atol=1e-6)


def test_outputs_that_are_rarely_far_out_are_still_told_apart():
    """Few ones among zeros: the quartiles know nothing of them. Mistakes do not count."""
    y = np.where(np.arange(100) % 5 == 0, 100.0, 0.0)[:, None] + 1e-3 * np.arange(100)[:, None] / 100
    scaled = ClippedScaling.of(y)(y)
    assert 1 < scaled.max() < OUTPUT_CLIP
    wrong = np.append(np.linspace(0, 1, 50), 1e6)[:, None]
    assert ClippedScaling.of(wrong).deviation < 1
    with pytest.warns(UserWarning, match="1 of 51 y are more than 15 robust deviations"):
        MetaFunRegressor(untrained(KINDS[0])).fit(np.arange(51.0)[:, None], wrong[:, 0])


def test_one_row_is_refused():
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        MetaFunRegressor().fit([[1.0, 2.0]], [3.0])
