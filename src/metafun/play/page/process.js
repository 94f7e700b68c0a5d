// The exact prediction for curves from a Gaussian process (RBF kernel) whose hyperparameters are not known.

/** The factor L of a positive definite matrix [n, n], L Lᵀ = a. */
function cholesky(a, n) {
  const root = new Float64Array(n * n);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j <= i; j++) {
      let sum = a[i * n + j];
      for (let k = 0; k < j; k++) sum -= root[i * n + k] * root[j * n + k];
      root[i * n + j] = i === j ? Math.sqrt(sum) : sum / root[j * n + j];
    }
  }
  return root;
}

/** L⁻¹ b, in place. */
function solve(root, b, n) {
  for (let i = 0; i < n; i++) {
    for (let k = 0; k < i; k++) b[i] -= root[i * n + k] * b[k];
    b[i] /= root[i * n + i];
  }
  return b;
}

const NEGLIGIBLE = 1e-6;
// Of s², the least noise variance, as in Python.
const LEAST_NOISE = 1e-5;

/**
 * Mean and standard deviation of y at x, averaged over hyperparameters given the context.
 * @param context the points as [x, y]
 * @param x where to predict
 * @param exact {processes, kept}: hyperparameters [length scale, scale, noise], and how many with the most evidence count
 */
export function exactPrediction(context, x, { processes, kept }) {
  const n = context.length, m = x.length;
  const fits = processes.map(([length, scale, noise]) => {
    const s2 = scale * scale, v = Math.max(noise * noise, LEAST_NOISE * s2);
    const covariance = (a, b) => s2 * Math.exp(-((a - b) ** 2) / (2 * length * length));
    const among = context.flatMap((p, i) => context.map((q, j) => covariance(p[0], q[0]) + (i === j ? v : 0)));
    const root = cholesky(among, n);
    const z = solve(root, Float64Array.from(context, (p) => p[1]), n);
    let evidence = 0;
    for (let i = 0; i < n; i++) evidence -= (z[i] * z[i]) / 2 + Math.log(root[i * n + i]);
    return { covariance, s2, v, root, z, evidence };
  });
  fits.sort((a, b) => b.evidence - a.evidence);
  // Those with a negligible share cannot be seen.
  const chosen = fits.slice(0, kept).filter((fit) => (fit.weight = Math.exp(fit.evidence - fits[0].evidence)) > NEGLIGIBLE);
  const total = chosen.reduce((sum, fit) => sum + fit.weight, 0);
  const mean = new Float64Array(m), second = new Float64Array(m);
  for (const { covariance, s2, v, root, z, weight } of chosen) {
    for (let i = 0; i < m; i++) {
      const half = solve(root, Float64Array.from(context, (p) => covariance(x[i], p[0])), n);
      let mu = 0, reduction = 0;
      for (let j = 0; j < n; j++) {
        mu += half[j] * z[j];
        reduction += half[j] * half[j];
      }
      mean[i] += (weight / total) * mu;
      second[i] += (weight / total) * (Math.max(s2 - reduction, 0) + v + mu * mu);
    }
  }
  return { mean, std: second.map((value, i) => Math.sqrt(Math.max(value - mean[i] ** 2, 0))) };
}
