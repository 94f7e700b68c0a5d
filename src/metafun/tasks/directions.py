"""Directions of features: those that tell known classes apart, and principal components."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

# Added to the covariances, in units of the mean of their eigenvalues: few rows and classes know them badly.
WITHIN_SHRINKAGE, BETWEEN_SHRINKAGE = 1.0, 3.0


@dataclass(frozen=True)
class Scatter:
    """How rows scatter.

    Args:
        within: W, the mean over the classes of the covariance of their rows.
        between: B, the covariance of the means of the classes.
    """

    within: Float[np.ndarray, "dx dx"]
    between: Float[np.ndarray, "dx dx"]

    @classmethod
    def of(cls, classes: Iterable[Float[np.ndarray, "_ dx"]]) -> "Scatter":
        """The scatter of the rows of some classes, all with the same weight.

        Args:
            classes: the rows of each class.
        """
        means, within = [], 0.0
        for rows in classes:
            means.append(rows.mean(0, dtype=np.float64))
            centred = rows - means[-1].astype(rows.dtype)
            within = within + (centred.T @ centred / len(rows)).astype(np.float64)
        centred = np.stack(means) - np.mean(means, axis=0)
        return cls(within / len(means), centred.T @ centred / len(means))

    @classmethod
    def mixed(cls, shares: Iterable[tuple[float, "Scatter"]]) -> "Scatter":
        """Σⱼ shareⱼ·scatterⱼ."""
        within, between = zip(*((share * each.within, share * each.between) for share, each in shares), strict=True)
        return cls(sum(within), sum(between))


def discriminant(scatter: Scatter) -> Float[np.ndarray, "dx dx"]:
    """D = P·U·diag(b + γ)^¼ with P = (W + λ)^−½ and PᵀBP = U·diag(b)·Uᵀ, the most telling directions first.

    Rows are whitened within classes, and directions along which classes differ more count more: between all alike and
    in proportion to b, cosines weigh them by √b.

    Args:
        scatter: W and B; λ and γ are their mean eigenvalues times `WITHIN_SHRINKAGE` and `BETWEEN_SHRINKAGE`.
    """
    variances, axes = np.linalg.eigh(scatter.within)
    whiten = axes / np.sqrt(_shrunken(variances, WITHIN_SHRINKAGE))
    spread, axes = np.linalg.eigh(whiten.T @ scatter.between @ whiten)
    found = (whiten @ (axes * _shrunken(spread, BETWEEN_SHRINKAGE) ** 0.25))[:, ::-1]
    # Of length one in the mean, as rows are.
    return found / np.sqrt(np.square(found).sum() / len(found))


def principal(scatter: Scatter) -> Float[np.ndarray, "dx dx"]:
    """The principal components, the largest first: a rotation, which leaves all distances and cosines as they are."""
    return np.linalg.eigh(scatter.within + scatter.between)[1][:, ::-1]


def _shrunken(eigenvalues: Float[np.ndarray, " dx"], shrinkage: float) -> Float[np.ndarray, " dx"]:
    """The eigenvalues and a share of their mean; all 1 where nothing varies."""
    eigenvalues = eigenvalues.clip(0)
    return eigenvalues + shrinkage * eigenvalues.mean() if eigenvalues.mean() > 0 else np.ones_like(eigenvalues)
