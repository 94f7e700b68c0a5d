"""The best possible prediction of curves when the family of processes is known, but not the hyperparameters.

The exact GP knows the length scale ℓ and the scale s of each curve; no model does. Without them, the best prediction
weights all (ℓ, s) by the likelihood of the context, computed here on a fine grid.

    python scripts/gp_ceiling.py [--beside N] [PRESET …] >> results/gp-ceiling.jsonl
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
from provenance import parser, provenance

from metafun.config import load_config
from metafun.model.likelihoods import masked_mean
from metafun.tasks.gp import KERNELS, GaussianProcess

TASKS, GRID, SEED = 5000, 16, 0


def ceiling(preset: str) -> dict[str, float]:
    """Mean log-likelihood per target over test tasks, with ℓ and s known and with both unknown."""
    tasks = load_config(preset).tasks.training()
    # ℓ and s are uniform in their ranges: the grid has the midpoints of equal parts.
    middles = [low + (high - low) * (np.arange(GRID) + 0.5) / GRID for low, high in (tasks.lengthscale, tasks.scale)]
    lengthscales, scales = (jnp.asarray(a.ravel(), jnp.float32) for a in np.meshgrid(*middles))

    def log_probs(key):
        task = tasks.sample(key)

        def given(lengthscale, scale):
            process = GaussianProcess(KERNELS[tasks.kernel](scale, lengthscale), jnp.asarray(tasks.noise[0]))
            return process.log_prob(task.context), process.predict(task.context, task.target.x).log_prob(task.target.y)

        weights, points = jax.vmap(given)(lengthscales, scales)
        unknown = jax.nn.logsumexp(jax.nn.log_softmax(weights)[:, None] + points, axis=0)
        known = tasks.oracle(key, task).prediction.log_prob(task.target.y)
        return [masked_mean(values, task.target.mask) for values in (known, unknown)]

    known, unknown = jax.lax.map(jax.jit(log_probs), jax.random.split(jax.random.key(SEED), TASKS), batch_size=10)
    return {"known": float(known.mean()), "unknown": float(unknown.mean())}


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("presets", nargs="*", default=["gp-bnp", "gp-bnp-matern"], metavar="PRESET")
    given = options.parse_args()
    for preset in given.presets:
        line = {"preset": preset, "tasks": TASKS, "grid": GRID, **ceiling(preset)}
        command = f"python scripts/gp_ceiling.py {preset}"
        print(json.dumps(line | provenance([SEED], given.beside, command=command)), flush=True)
