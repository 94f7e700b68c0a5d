"""scikit-learn's own checks of estimators, all of them, with the models of any table."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from metafun import MetaFunClassifier, MetaFunRegressor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")


@parametrize_with_checks([MetaFunRegressor(), MetaFunClassifier()])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)
