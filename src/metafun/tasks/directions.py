"""Directions of features: those that tell known classes apart, and principal components."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

# How much more the covariance between classes is shrunken than that within them: it is known from fewer samples.
BETWEEN = 3.0
# Shrinkages that are compared, from the gentlest directions to the most pronounced.
SHRINKAGES = (10.0, 3.0, 1.0)


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
        means: list[np.ndarray] = []
        within = np.zeros(())
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


def discriminant(scatter: Scatter, shrinkage: float) -> Float[np.ndarray, "dx dx"]:
    """D = P·U·diag(b + γ)^¼ with P = (W + λ)^−½ and PᵀBP = U·diag(b)·Uᵀ, the most telling directions first.

    Rows are whitened within classes, and directions along which classes differ more count more: between all alike and
    in proportion to b, cosines weigh them by √b.

    Args:
        scatter: W and B.
        shrinkage: λ in units of the mean eigenvalue of W, and γ/`BETWEEN` in units of the mean b.
    """
    variances, axes = np.linalg.eigh(scatter.within)
    whiten = axes / np.sqrt(_shrunken(variances, shrinkage))
    spread, axes = np.linalg.eigh(whiten.T @ scatter.between @ whiten)
    found = (whiten @ (axes * _shrunken(spread, BETWEEN * shrinkage) ** 0.25))[:, ::-1]
    # Of length one in the mean, as rows are.
    return found / np.sqrt(np.square(found).sum() / len(found))


def principal(scatter: Scatter) -> Float[np.ndarray, "dx dx"]:
    """The principal components, the largest first: a rotation, which leaves all distances and cosines as they are."""
    return np.linalg.eigh(scatter.within + scatter.between)[1][:, ::-1]


def along_first_component(means: Float[np.ndarray, "k dx"]) -> list[int]:
    """The order of classes along the first principal component of their means."""
    centred = means - means.mean(0)
    along = centred @ np.linalg.svd(centred, full_matrices=False)[2][0]
    # The third moment fixes the sign.
    return np.argsort(-along if (along**3).sum() < 0 else along, kind="stable").tolist()


def _shrunken(eigenvalues: Float[np.ndarray, " dx"], shrinkage: float) -> Float[np.ndarray, " dx"]:
    """The eigenvalues and a share of their mean; all 1 where nothing varies."""
    eigenvalues = eigenvalues.clip(0)
    return eigenvalues + shrinkage * eigenvalues.mean() if eigenvalues.mean() > 0 else np.ones_like(eigenvalues)
