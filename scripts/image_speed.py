"""Throughput of the convolutional embedding, forward and backward, in two precisions.

Three seeds at once, as in training. Half precision halves the memory traffic, not the arithmetic: if the rate rises,
memory bandwidth is the bottleneck.

    python scripts/image_speed.py --beside 0 >> results/image-speed.jsonl
"""

import itertools
import json
import time

import jax
import jax.numpy as jnp
from provenance import parser, provenance

from metafun.embeddings.convolutional import ConvNet

IMAGES, STEPS, SEEDS, SIDE = 6144, 20, 3, 28


def rate(channels: int, precision: str, images: int, steps: int) -> float:
    """Images per second, without compilation."""
    keys = jax.random.split(jax.random.key(0), SEEDS)
    nets = jax.vmap(lambda key: ConvNet((SIDE, SIDE), [1, *[channels] * 4], 8, precision, key=key))(keys)
    x = jax.random.uniform(jax.random.key(1), (SEEDS, images, SIDE * SIDE))
    gradient = jax.grad(lambda net, x: jnp.square(net(x) - 1).mean())

    def descend(nets, x):
        def step(nets, _):
            slopes = jax.vmap(gradient)(nets, x)
            return jax.tree.map(lambda p, g: p - 1e-3 * g, nets, slopes), None

        return jax.lax.scan(step, nets, None, length=steps)[0]

    run = jax.jit(descend).lower(nets, x).compile()
    jax.block_until_ready(run(nets, x))
    start = time.perf_counter()
    jax.block_until_ready(run(nets, x))
    return SEEDS * images * steps / (time.perf_counter() - start)


def operations(channels: int) -> int:
    """Floating-point operations per image: two for each product, and the backward pass costs two forward ones."""
    sides, sizes = [28, 14, 7, 3], itertools.pairwise([1, *[channels] * 4])
    return 3 * 2 * sum(side**2 * 9 * i * o for side, (i, o) in zip(sides, sizes, strict=True))


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--images", type=int, default=IMAGES, help="images of a step")
    options.add_argument("--steps", type=int, default=STEPS, help="steps that are timed")
    given = options.parse_args()
    for channels in (64, 128):
        for precision in ("float32", "bfloat16"):
            found = rate(channels, precision, given.images, given.steps)
            line = {
                "channels": channels,
                "precision": precision,
                "images_per_second": found,
                "teraflops": found * operations(channels) / 1e12,
                **provenance(range(SEEDS), given.beside),
            }
            print(json.dumps(line), flush=True)
