"""scikit-learn's own checks of estimators, with small models that take as many features as each check brings."""

import dataclasses

import jax
import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from metafun import MetaFunClassifier, MetaFunRegressor, load_config
from metafun.trained import Trained
from test_own import LINES, SMALL

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")

UNTRAINED = "the model has random parameters here: it knows nothing"


class AnyWidth:
    """A model for any number of features; a trained one is for those it was trained on."""

    def __init__(self, checkpoint="any"):
        self.checkpoint = checkpoint

    def fit(self, X, y):
        values = np.asarray(y)
        self._outputs = 1 if values.ndim < 2 else values.shape[1]
        return super().fit(X, y)

    def _load(self):
        preset, small = ("collected", LINES) if self.problem == "regression" else ("own-features", SMALL)
        if self.problem == "regression":
            small = {**small, "tasks.outputs": self._outputs}
        config = load_config(preset, (), small)
        config = dataclasses.replace(config, tasks=config.tasks.presumed(self.n_features_in_))
        return Trained(config, config.build_model(jax.random.key(0)))


class Regressor(AnyWidth, MetaFunRegressor):
    pass


class Classifier(AnyWidth, MetaFunClassifier):
    pass


def cannot_pass(estimator):
    return {"check_regressors_train": UNTRAINED, "check_classifiers_train": UNTRAINED}


@parametrize_with_checks([Regressor(), Classifier()], expected_failed_checks=cannot_pass)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)
