"""fit and predict: the conventions of scikit-learn, and predictions equal to those of the model."""

import contextlib
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from examples import TINY, TINY_EPISODES, untrained
from metafun import MetaFunClassifier, MetaFunRegressor, Points
from metafun.errors import InvalidCheckpoint, InvalidRun
from metafun.estimators import padding
from metafun.estimators.trained import Trained, open_trained
from metafun.model.metafun import MetaFun

FEATURES = 12


@pytest.fixture(scope="module")
def regression(tmp_path_factory):
    path = tmp_path_factory.mktemp("estimators") / "waves.safetensors"
    untrained("sinusoid", *TINY, "model.loss.kind=gaussian").save(path)
    return path


@pytest.fixture(scope="module")
def classification(tmp_path_factory):
    path = tmp_path_factory.mktemp("estimators") / "classes.safetensors"
    untrained("features", *TINY_EPISODES, f"tasks.features={FEATURES}").save(path)
    return path


def wave(n=7, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-5, 5, (n, 1))
    return x, 2 * np.sin(x[:, 0])


def blobs(n=4, classes=("cat", "dog", "owl"), seed=0):
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(9).normal(size=(len(classes), FEATURES))
    labels = np.repeat(np.arange(len(classes)), n)
    return centres[labels] + 0.3 * rng.normal(size=(len(labels), FEATURES)), np.array(classes)[labels]


def test_a_regressor_predicts_what_the_model_does(regression):
    x, y = wave()
    anywhere = np.linspace(-5, 5, 30)[:, None]
    mean, std = MetaFunRegressor(regression).fit(x, y).predict(anywhere, return_std=True)
    model = open_trained(regression).model
    expected = model.predict(model.encode(Points.of(x, y[:, None])), jnp.asarray(anywhere, float))
    np.testing.assert_allclose(mean, expected.mean[:, 0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(std, expected.std[:, 0], rtol=1e-4)
    assert np.ptp(mean) > 0.1
    matrix = MetaFunRegressor(regression).fit(x, y[:, None]).predict(anywhere)
    np.testing.assert_array_equal(matrix, mean[:, None])


def test_a_classifier_predicts_labels_by_the_probabilities_of_the_model(classification):
    x, y = blobs()
    estimator = MetaFunClassifier(str(classification)).fit(x, y)
    assert estimator.classes_.tolist() == ["cat", "dog", "owl"]
    others, _ = blobs(n=10, seed=1)
    probabilities = estimator.predict_proba(others)
    model, one_hot = open_trained(classification).model, np.eye(3)[np.searchsorted(estimator.classes_, y)]
    unit_x, unit_others = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x, others))
    expected = model.predict(model.encode(Points.of(unit_x, one_hot)), jnp.asarray(unit_others))
    np.testing.assert_allclose(probabilities, expected.probabilities, atol=1e-5)
    assert (estimator.predict(others) == estimator.classes_[probabilities.argmax(1)]).all()
    assert set(estimator.predict(others)) == {"cat", "dog", "owl"} and np.ptp(probabilities) > 1e-2

    # Labels are names: another order of them changes nothing.
    renamed = MetaFunClassifier(classification).fit(x, np.array([{"cat": "z", "dog": "y", "owl": "x"}[c] for c in y]))
    np.testing.assert_allclose(renamed.predict_proba(others)[:, ::-1], probabilities, atol=1e-5)


def test_large_inputs_are_predicted_in_chunks(regression, monkeypatch):
    x, y = wave()
    model, many = MetaFunRegressor(regression).fit(x, y), np.linspace(-5, 5, 100)[:, None]
    whole = model.predict(many)
    monkeypatch.setattr(padding, "MAX_ROWS_AT_ONCE", 16)
    np.testing.assert_allclose(model.predict(many), whole, rtol=1e-5, atol=1e-6)


def test_the_same_sizes_are_compiled_once(regression, monkeypatch):
    traced = []
    encode = MetaFun.encode
    monkeypatch.setattr(MetaFun, "encode", lambda self, *rest: traced.append(1) or encode(self, *rest))
    for n in (17, 20, 64):
        x, y = wave(n, seed=n)
        MetaFunRegressor(regression).fit(x, y).predict(x)
    assert len(traced) <= 1, "17, 20 and 64 points are padded to 64"


def test_few_numbers_of_classes_are_compiled(classification, monkeypatch):
    traced = []
    encode = MetaFun.encode
    monkeypatch.setattr(MetaFun, "encode", lambda self, *rest: traced.append(1) or encode(self, *rest))
    x = np.random.default_rng(0).normal(size=(15, FEATURES))
    for k in (3, 4, 5):
        probabilities = MetaFunClassifier(classification).fit(x, np.arange(15) % k).predict_proba(x)
        assert probabilities.shape == (15, k)
        np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    assert len(traced) <= 1, "3, 4 and 5 classes are padded to 5"


def test_partial_fit_adds_points(regression, classification):
    x, y = wave(9)
    apart = MetaFunRegressor(regression).partial_fit(x[:4], y[:4]).partial_fit(x[4:], y[4:])
    np.testing.assert_array_equal(apart.predict(x), MetaFunRegressor(regression).fit(x, y).predict(x))
    x, y = blobs()
    grown = MetaFunClassifier(classification).fit(x[:8], y[:8]).partial_fit(x[8:], y[8:])
    assert grown.classes_.tolist() == ["cat", "dog", "owl"]


def test_sampled_outputs_have_the_predicted_mean(regression):
    x, y = wave()
    model = MetaFunRegressor(regression).fit(x, y)
    drawn = model.sample_y(x, n_samples=500, random_state=0)
    assert drawn.shape == (7, 500)
    mean, std = model.predict(x, return_std=True)
    np.testing.assert_allclose(drawn.mean(1), mean, atol=5 * std.max() / np.sqrt(500))
    np.testing.assert_array_equal(drawn, model.sample_y(x, n_samples=500, random_state=0))


def test_a_joint_sample_of_one_row_is_a_sample_of_it():
    """In the units of y, by a model that scales them."""
    x, y = wave(6)
    model = MetaFunRegressor(untrained("curves", *TINY)).fit(x, 500 + 100 * y)
    mean, std = (found[0] for found in model.predict([[0.3]], return_std=True))
    drawn = model.sample_y([[0.3]], 400, random_state=0, joint=True)
    assert drawn.shape == (1, 400)
    assert abs(drawn.mean() - mean) < 5 * std / 20 and 0.8 < drawn.std() / std < 1.2
    np.testing.assert_array_equal(drawn, model.sample_y([[0.3]], 400, random_state=0, joint=True))


def test_joint_samples_are_curves():
    """Where the curve is unknown, what is drawn at one point determines what is drawn beside it."""
    model = MetaFunRegressor("gp-rbf").fit([[-1.9], [-1.8]], [0.3, 0.4])
    near = [[1.0], [1.05], [-0.5]]
    joint, apart = (model.sample_y(near, 200, random_state=0, joint=joint) for joint in (True, False))
    assert np.corrcoef(joint)[0, 1] > 0.8 and abs(np.corrcoef(apart)[0, 1]) < 0.3
    std = model.predict(near, return_std=True)[1]
    np.testing.assert_allclose(joint.std(1), std, rtol=0.3)
    assert model.sample_y(near, 0, joint=True).shape == (3, 0)


def test_clone_pickle_pipeline_and_search_work(regression, classification):
    x, y = wave(12)
    model = MetaFunRegressor(regression)
    assert clone(model).get_params() == {"checkpoint": regression}
    fitted = model.fit(x, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(x), fitted.predict(x))
    assert len(cross_val_score(MetaFunRegressor(regression), x, y, cv=3)) == 3
    x, y = blobs()
    pipeline = make_pipeline(StandardScaler(), MetaFunClassifier(classification)).fit(x, y)
    assert pipeline.predict(x).shape == y.shape
    search = GridSearchCV(MetaFunClassifier(classification), {"checkpoint": [classification]}, cv=2).fit(x, y)
    assert search.best_params_ == {"checkpoint": classification}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (np.where(x > 0, x, np.nan), y), "contains NaN"),
        (lambda x, y: (np.where(x > 0, x, np.inf), y), "contains infinity"),
        (lambda x, y: (np.full(x.shape, "a"), y), "could not convert string to float"),
        (lambda x, y: (x[:0], y[:0]), "0 sample"),
        (lambda x, y: (np.c_[x, x], y), r"X has 24 features, but the model takes 12"),
        (lambda x, y: (x, np.full(len(y), "cat")), "one class only"),
        (lambda x, y: (np.full(x.shape, 1e300), y), None),  # only the direction of a row counts
        (lambda x, y: (x, y[:-1]), "inconsistent numbers of samples"),
    ],
)
def test_bad_input_gets_scikit_learns_errors(classification, change, message):
    with contextlib.nullcontext() if message is None else pytest.raises(ValueError, match=message):
        MetaFunClassifier(classification).fit(*change(*blobs()))


def test_numbers_beyond_float32_are_refused(regression):
    x, y = wave()
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="y has numbers beyond the range of float32"):
        MetaFunRegressor(regression).fit(x, 1e300 * y)
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="X has numbers beyond the range of float32"):
        MetaFunRegressor(regression).fit(1e300 * x, y)


def test_unsuitable_checkpoints_are_refused(regression, classification, tmp_path):
    with pytest.raises(InvalidCheckpoint, match="is a model for classification; this estimator is for regression"):
        MetaFunRegressor(classification).fit(np.ones((3, FEATURES)), np.arange(3.0))
    with pytest.raises(InvalidRun, match="is not a run folder"):
        MetaFunRegressor(tmp_path).fit(*wave())
    with pytest.raises(InvalidCheckpoint, match="there is no checkpoint"):
        MetaFunRegressor(tmp_path / "nothing").fit(*wave())
    with pytest.raises(NotFittedError):
        MetaFunRegressor(regression).predict(np.ones((1, 1)))
    with pytest.raises(ValueError, match=r"y has 2 outputs, but the model has 1"):
        MetaFunRegressor(regression).fit(np.ones((3, 1)), np.ones((3, 2)))


def test_a_model_for_the_squared_error_predicts_no_standard_deviation():
    model = MetaFunRegressor(untrained("sinusoid", *TINY)).fit(*wave())
    with pytest.raises(ValueError, match="predicts no standard deviation"):
        model.sample_y([[0.0]])
    with pytest.raises(ValueError, match=r"predicts no standard deviation; use one .* model\.loss\.kind=gaussian"):
        model.predict([[0.0]], return_std=True)


def test_a_sampled_function_is_the_same_in_every_chunk(monkeypatch):
    small = ["model.pooling.heads=2", "model.latent.size=4", "model.latent.width=8"]
    x, y = wave(3)
    model = MetaFunRegressor(untrained("gp-stochastic", *TINY, *small)).fit(x / 5, y)
    many = np.linspace(-2, 2, 40)[:, None]
    whole = model.sample_y(many, n_samples=3, random_state=0)
    monkeypatch.setattr(padding, "MAX_ROWS_AT_ONCE", 16)
    np.testing.assert_allclose(model.sample_y(many, n_samples=3, random_state=0), whole, rtol=1e-4, atol=1e-5)
    assert not np.allclose(whole[:, 0], whole[:, 1]), "samples are different functions"


def test_a_fit_that_fails_changes_nothing(regression, classification):
    x, y = wave()
    model = MetaFunRegressor(regression).fit(x, y)
    expected = model.predict(x)
    with pytest.raises(ValueError, match="beyond the range of float32"), pytest.warns(UserWarning, match="scale y"):
        model.fit(x, 1e300 * y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(x), expected)
    classifier = MetaFunClassifier(classification).fit(*blobs())
    with pytest.raises(InvalidCheckpoint):
        classifier.set_params(checkpoint=regression).fit(*blobs(classes=("u", "v")))
    assert classifier.classes_.tolist() == ["cat", "dog", "owl"]


def test_parameters_that_are_not_finite_are_refused(regression, tmp_path):
    trained = open_trained(regression)
    model = jax.tree.map(lambda leaf: leaf * np.nan, trained.model)
    Trained(trained.experiment, model).save(tmp_path / "nan.safetensors")
    with pytest.raises(InvalidCheckpoint, match="not finite; train the model again"):
        MetaFunRegressor(tmp_path / "nan.safetensors").fit(*wave())


def test_joint_samples_of_more_points_than_in_training_stay_in_range():
    """What is drawn joins the context: unweighed, the kernel sum over 250 points would diverge."""
    x, many = np.linspace(-1.5, 1.5, 6)[:, None], np.linspace(-1.9, 1.9, 250)[:, None]
    drawn = MetaFunRegressor("gp-rbf").fit(x, np.sin(2 * x[:, 0])).sample_y(many, 2, 0, True)
    assert abs(drawn).max() < 5


def test_more_points_than_in_training_improve_a_smooth_curve():
    """Kernel weights add up: without weighing, the sum over 256 points would diverge."""
    rng, anywhere = np.random.default_rng(0), np.linspace(-1.9, 1.9, 100)[:, None]
    errors = []
    for n in (64, 256):
        x = rng.uniform(-2, 2, (n, 1))
        y = np.sin(3 * x[:, 0]) + 0.1 * rng.normal(size=n)
        predicted = MetaFunRegressor("gp-rbf").fit(x, y).predict(anywhere)
        errors.append(np.sqrt(np.mean((predicted - np.sin(3 * anywhere[:, 0])) ** 2)))
    assert errors[1] < 0.8 * errors[0]
