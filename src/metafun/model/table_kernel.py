"""A covariance of rows of a table, with a relevance of each column: any columns in any order."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

# Scales of a column: see `Metric.scales`.
SCALES = 8
# Terms of the covariance: see `Metric.amplitudes`.
TERMS = 7
# Statistics of a column: see `evidence`.
STATISTICS = 9
# Stands for a missing entry when entries are compared.
MISSING = -1e6


class Cells(eqx.Module):
    """Entries of rows, as the covariance sees them.

    Args:
        values: standardised entries, 0 where missing.
        codes: the entries themselves, which are equal or not, with `MISSING` where missing.
        features: learned features of each entry.
    """

    values: Float[Array, "n d"]
    codes: Float[Array, "n d"]
    features: Float[Array, "n d q"]


class Metric(eqx.Module):
    """The covariance of rows of one task: a sum of terms, each with a weight of every column.

    Args:
        scales: of each column, its weights in the linear term, in the additive term of features, in the squared
            distances (of values and of features) of the smooth and of the mixed term, in the additive term of
            categories, and of unequal entries in the mixed term. 0 for columns without entries.
        amplitudes: variances of the constant, linear, additive, product, smooth, mixed and categorical term.
    """

    scales: Float[Array, "d scales"]
    amplitudes: Float[Array, " terms"]

    def terms(self, a: Cells, b: Cells) -> list[Float[Array, "m n"]]:
        """The terms of k(x, x') but for the constant: products, distances and equality of entries, in closed form."""
        linear, additive, smooth, smooth_features, mixed, mixed_features, categorical, unequal = self.scales.T
        product = (a.values * linear) @ b.values.T
        distance = _distances(a, b, smooth, smooth_features)
        rough = _distances(a, b, mixed, mixed_features)
        differing = _unequal(a.codes, b.codes, jnp.stack([categorical, unequal]))
        return [
            product,
            _flat(a.features * additive[:, None]) @ _flat(b.features).T,
            jnp.square(product),
            jnp.exp(-distance / 2),
            1 / (1 + (rough + differing[1]) / 2),
            categorical.sum() - differing[0],
        ]

    def __call__(self, a: Cells, b: Cells) -> Float[Array, "m n"]:
        """k(x, x')."""
        weighted = zip(self.amplitudes[1:], self.terms(a, b), strict=True)
        return self.amplitudes[0] + sum(amplitude * term for amplitude, term in weighted)

    def variance(self, a: Cells) -> Float[Array, " m"]:
        """k(x, x)."""
        linear, additive, *_, categorical, _unused = self.scales.T
        product = jnp.square(a.values) @ linear
        features = jnp.square(a.features).sum(-1) @ additive
        constant, *amplitudes = self.amplitudes
        ones = jnp.ones_like(product)
        terms = product, features, jnp.square(product), ones, ones, categorical.sum() * ones
        return constant + sum(amplitude * term for amplitude, term in zip(amplitudes, terms, strict=True))


def evidence(
    metric: Metric, cells: Cells, coefficients: Float[Array, "n k"], precision: Float[Array, "n n"]
) -> Float[Array, "d statistics"]:
    """arsinh(2 ∂ log P(y)/∂ log s) for the scales s of each column, products aside, and a ratio.

    With K the covariance of y and α = K⁻¹ y, the derivative is ½ αᵀ (∂K) α − ½ tr(K⁻¹ ∂K). Its terms are squared
    correlations of a column with what the others leave unexplained, and their expectation; the ratio is that of the
    linear term, as a logarithm.

    Args:
        metric: the covariance.
        cells: the rows of the context.
        coefficients: α, 0 where a row is padding; one column for each output.
        precision: K⁻¹, 0 where a row is padding.
    """
    linear, additive, smooth, smooth_features, mixed, mixed_features, categorical, unequal = metric.scales.T
    _, a_linear, a_additive, _, a_smooth, a_mixed, a_categorical = metric.amplitudes
    terms = metric.terms(cells, cells)
    # Scaled such that both have the same trace: the overall scale of y does not count.
    scale = jnp.trace(precision) / jnp.maximum(jnp.square(coefficients).sum(), 1e-12)
    observed = scale * coefficients @ coefficients.T
    excess = observed - precision

    near, rough = a_smooth * excess * terms[3], a_mixed * excess * jnp.square(terms[4])
    (s_values, s_features), (r_values, r_features) = _spread(near, cells), _spread(rough, cells)
    differing = _unequal_sums(cells.codes, jnp.stack([a_categorical * excess, rough]))
    seen, expected = _quadratic(observed, cells.values), _quadratic(precision, cells.values)
    gradients = [
        a_linear * linear * (seen - expected),
        a_additive * additive * _of_features(excess, cells),
        -smooth * s_values / 2,
        -smooth_features * s_features / 2,
        -mixed * r_values / 2,
        -mixed_features * r_features / 2,
        categorical * (a_categorical * excess.sum() - differing[0]),
        -unequal * differing[1] / 2,
    ]
    ratio = jnp.log((seen + 0.1) / (jnp.maximum(expected, 0) + 0.1))
    return jnp.stack([*(jnp.arcsinh(g) for g in gradients), ratio], -1)


def _quadratic(form: Float[Array, "n n"], z: Float[Array, "n d"]) -> Float[Array, " d"]:
    """zⱼᵀ form zⱼ."""
    return (z * (form @ z)).sum(0)


def _of_features(form: Float[Array, "n n"], cells: Cells) -> Float[Array, " d"]:
    """The same of the features, summed over those of a column."""
    return jnp.einsum("ndq,ndq->d", cells.features, jnp.tensordot(form, cells.features, 1))


def _spread(form: Float[Array, "n n"], cells: Cells) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """Σᵢᵢ' form (zᵢ − zᵢ')² of the values, and of the features."""
    rows = form.sum(1)
    values = 2 * (rows @ jnp.square(cells.values) - _quadratic(form, cells.values))
    return values, 2 * (rows @ jnp.square(cells.features).sum(-1) - _of_features(form, cells))


def _distances(a: Cells, b: Cells, values: Float[Array, " d"], features: Float[Array, " d"]) -> Float[Array, "m n"]:
    """Σⱼ vⱼ (xⱼ − x'ⱼ)² + fⱼ ‖φⱼ − φ'ⱼ‖²."""
    # Roots of the weights would have no derivative where a weight is 0.
    q = _joined(a) * (weights := jnp.concatenate([values, jnp.repeat(features, a.features.shape[2])]))
    k = _joined(b)
    lengths = (q * _joined(a)).sum(-1)[:, None] + jnp.square(k) @ weights
    return jnp.maximum(lengths - 2 * q @ k.T, 0)


def _joined(cells: Cells) -> Float[Array, "n dq"]:
    return jnp.concatenate([cells.values, _flat(cells.features)], -1)


def _flat(features: Float[Array, "n d q"]) -> Float[Array, "n dq"]:
    return features.reshape(features.shape[0], features.shape[1] * features.shape[2])


# Recomputed for the gradient: otherwise it would keep a number for each pair of rows and column.
@jax.checkpoint
def _unequal(a: Float[Array, "m d"], b: Float[Array, "n d"], weights: Float[Array, "s d"]) -> list[Float[Array, "m n"]]:
    """Σⱼ wⱼ [xⱼ ≠ x'ⱼ] for each of the weightings."""
    return [jnp.where(a[:, None] != b, w, 0).sum(-1) for w in weights]


@jax.checkpoint
def _unequal_sums(codes: Float[Array, "n d"], forms: Float[Array, "s n n"]) -> list[Float[Array, " d"]]:
    """Σᵢᵢ' formᵢᵢ' [xᵢⱼ ≠ xᵢ'ⱼ] of each column, for each of the forms."""
    return [jnp.where(codes[:, None] != codes, form[..., None], 0).sum((0, 1)) for form in forms]


def present_codes(x: Float[Array, "n d"]) -> tuple[Float[Array, "n d"], Bool[Array, "n d"]]:
    """The entries with `MISSING` where they are missing, and which are there."""
    missing = jnp.isnan(x)
    return jnp.where(missing, MISSING, x), ~missing
