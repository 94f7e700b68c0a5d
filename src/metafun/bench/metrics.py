"""The metrics of predictions on one split."""

import inspect
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.metrics import accuracy_score, log_loss, r2_score
from sklearn.pipeline import Pipeline

from ..model.likelihoods import reliability

# Probabilities and standard deviations are clipped here: a certain but wrong prediction would cost infinitely much.
SMALLEST = 1e-6


def classifier_metrics(
    probabilities: NDArray, classes: NDArray, y: NDArray
) -> tuple[dict[str, float], NDArray[np.floating]]:
    """Accuracy and mean log-likelihood, and the mean of `reliability` over the rows, [bins, 3].

    Args:
        probabilities: predicted probabilities, [rows, classes].
        classes: the labels of their columns, sorted, [classes].
        y: true labels, [rows].
    """
    predicted = classes[probabilities.argmax(1)]
    clipped = np.maximum(probabilities, SMALLEST)
    metrics = {
        "accuracy": float(accuracy_score(y, predicted)),
        "log_likelihood": -float(log_loss(y, clipped / clipped.sum(1, keepdims=True), labels=classes)),
    }
    bins = reliability(jnp.asarray(probabilities.max(1)), jnp.asarray(predicted == y, float))
    return metrics, np.asarray(bins, float).mean(0)


def regressor_metrics(mean: NDArray, std: NDArray | None, y: NDArray) -> dict[str, float]:
    """R², and the mean log-likelihood where standard deviations are given.

    Args:
        mean: predicted means, [rows].
        std: predicted standard deviations, [rows], or None.
        y: true values, [rows].
    """
    metrics = {"r2": float(r2_score(y, mean))}
    if std is not None:
        metrics["log_likelihood"] = float(norm.logpdf(y, mean, np.maximum(std, SMALLEST)).mean())
    return metrics


def predict_mean_and_std(fitted: Any, x: NDArray) -> tuple[NDArray, NDArray | None]:
    """Means and, if the model predicts them, standard deviations, [rows] each.

    Args:
        fitted: a regressor, or a pipeline of transformers and a regressor or a grid search for one.
        x: inputs, [rows, columns].
    """
    if isinstance(fitted, Pipeline):
        x, fitted = fitted[:-1].transform(x), getattr(fitted[-1], "best_estimator_", fitted[-1])
    if "return_std" in inspect.signature(fitted.predict).parameters:
        return fitted.predict(x, return_std=True)
    return fitted.predict(x), None
