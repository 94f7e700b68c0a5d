"""The static version of the page of `metafun play` for the documentation: the curves, computed in the browser.

The files are those of the package, with the model's checkpoint and a description of both (info.json). A browser loads
neither modules nor data from a folder, so a page that is opened from one takes them from a script (folder.js).
"""

import base64
import json
import re
from collections.abc import Mapping
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
# In the order in which they import each other.
MODULES = ("metafun.js", "process.js", "engine.js", "curves.js", "app.js")
FOLDER_SCRIPT = """<script>
      if (location.protocol === "file:") {
        document.head.append(Object.assign(document.createElement("script"), { src: "folder.js" }));
      }
    </script>
  </body>"""
# {data} maps names of files to their content in base64.
BUNDLE = """(() => {{
const data = {data}, modules = {{}};
const fetch = async (name) => new Response(Uint8Array.from(atob(data[name]), (character) => character.charCodeAt(0)));
{modules}
}})();
"""


def static_files() -> dict[str, bytes]:
    """The files of the page by name."""
    weights = f"{MODEL}.safetensors"
    files = {name: content for name, content in page_files().items() if name not in SERVER_ONLY}
    info = {"curves": [{**describe(), "weights": weights}]}
    files |= {weights: locate(MODEL).read_bytes(), "info.json": (json.dumps(info) + "\n").encode()}
    files["index.html"] = files["index.html"].replace(b"</body>", FOLDER_SCRIPT.encode())
    return {**files, "folder.js": folder_script(files, [weights, "info.json"]).encode()}


def folder_script(files: Mapping[str, bytes], data: list[str]) -> str:
    """The modules of the page and its data as one classic script.

    Args:
        files: the files of the page by name.
        data: names of those that the page fetches.
    """
    parts = []
    for name in MODULES:
        text = files[name].decode()
        exported = re.findall(r"^export (?:async )?(?:function|class) (\w+)", text, re.MULTILINE)
        text = re.sub(r'^import (\{.*\}) from "\./(.*)";', r'const \1 = modules["\2"];', text, flags=re.MULTILINE)
        text = re.sub("^export ", "", text, flags=re.MULTILINE)
        parts.append(f'modules["{name}"] = (() => {{\n{text}\nreturn {{ {", ".join(exported)} }};\n}})();')
    contents = {name: base64.b64encode(files[name]).decode() for name in data}
    return BUNDLE.format(data=json.dumps(contents), modules="\n".join(parts))


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
