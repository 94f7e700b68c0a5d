"""The static version of the page of `metafun play` for the documentation: the curves, computed in the browser.

The files are those of the package, with the model's checkpoint and a description of both (info.json).
"""

import json
from typing import Any

import numpy as np

from metafun.estimators.trained import locate, open_trained
from metafun.model import MetaFun
from metafun.model.likelihoods import NormalLikelihood
from metafun.model.pooling import DeepKernel
from metafun.play.curves import CurveModel
from metafun.play.exact import KEPT, processes
from metafun.play.server import page_files
from metafun.tasks.curves import CurveTasks

MODEL = "gp-rbf"
# Of the tabs that need Python.
SERVER_ONLY = ("glyphs.js", "table.js")


def static_files() -> dict[str, bytes]:
    """The files of the page by name."""
    weights = f"{MODEL}.safetensors"
    files = {name: content for name, content in page_files().items() if name not in SERVER_ONLY}
    info = {"curves": [{**describe(), "weights": weights}]}
    return {**files, weights: locate(MODEL).read_bytes(), "info.json": (json.dumps(info) + "\n").encode()}


def describe() -> dict[str, object]:
    """What the page needs to know of the model, and of the process that its curves were drawn from."""
    trained = open_trained(MODEL)
    model, tasks = trained.model, trained.tasks
    assert isinstance(model, MetaFun) and isinstance(tasks, CurveTasks)
    pooling, likelihood = model.pools[0], model.likelihood
    assert isinstance(pooling, DeepKernel) and isinstance(likelihood, NormalLikelihood)
    drawn: Any = processes(tasks)
    rows = np.stack([drawn.kernel.lengthscale, drawn.kernel.scale, drawn.noise], 1)
    return {
        **CurveModel(MODEL, trained).description,
        "functions": 0,  # drawing them takes seconds in JavaScript
        "settings": {"iterations": model.iterations, "heads": pooling.heads, "min_std": likelihood.min_std},
        "exact": {"kept": KEPT, "processes": rows.astype(float).round(6).tolist()},
    }
