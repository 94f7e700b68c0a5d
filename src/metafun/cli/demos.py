"""metafun demo: a minute on a laptop, and a picture."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ..paper.published import published
from ..training.measure import measure
from ..training.progress import train
from ..training.run import Run
from .console import app, err, out, write_json
from .options import Overwrite, Resume, Settings, check_resumable, configure, with_plugins
from .show import show


class Demo(StrEnum):
    """What to learn."""

    sinusoid = "sinusoid"
    glyphs = "glyphs"
    gp = "gp"


DemoFolder = Annotated[
    Path | None, typer.Option("--out", help="Run folder; by default demo, demo-glyphs or demo-gp.", show_default=False)
]


@app.command()
@with_plugins
def demo(
    which: Annotated[Demo, typer.Argument(help="What to learn.")] = Demo.sinusoid,
    out_dir: DemoFolder = None,
    settings: Settings = None,
    overwrite: Overwrite = False,
    resume: Resume = False,
) -> None:
    """Train for about a minute, evaluate, draw a picture.

    `sinusoid`: regression, and the functional updates step by step. `glyphs`: classify five characters of an unseen
    alphabet from one example of each. `gp`: curves of a Gaussian process, with uncertainty beside the exact posterior.

    Examples:

      metafun demo

      metafun demo glyphs --out demo-glyphs

      metafun demo gp
    """
    preset = "demo" if which is Demo.sinusoid else f"demo-{which.value}"
    path = out_dir or Path(preset)
    check_resumable(resume, path)
    run = Run.open(path, configure(preset, settings), overwrite=overwrite, resume=resume)
    train(run, err)
    results = measure(run, err)
    show(results)
    from ..plots import draw  # matplotlib is slow to import

    figure = next(iter(draw(run).values()))
    metrics = {name: value["mean"] for name, value in results["metrics"].items()}
    facts = {key: results[key] for key in ("parameters", "train_seconds", "steps", "test_tasks", "device", "version")}
    paper = {name: mean for name, (mean, _) in published(results).items() if name in metrics}
    write_json(run.path / "summary.json", metrics | facts | {"paper": paper, "figure": str(figure)})
    out.print(f"figure:  {figure}\nsummary: {run.path / 'summary.json'}")
