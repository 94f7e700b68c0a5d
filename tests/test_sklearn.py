"""All of scikit-learn's estimator checks, with the models for any table."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from metafun import MetaFunClassifier, MetaFunRegressor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")


@parametrize_with_checks([MetaFunRegressor(), MetaFunClassifier()])
def test_scikit_learn_check(estimator, check):
    check(estimator)
