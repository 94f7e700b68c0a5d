"""metafun demo: a minute on a laptop, and a picture."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ..config import load_config
from ..paper.published import published
from . import running
from .console import app, out, write_json
from .running import Overwrite, Resume, Settings


class Demo(StrEnum):
    sinusoid = "sinusoid"
    glyphs = "glyphs"
    gp = "gp"


@app.command()
def demo(
    which: Annotated[Demo, typer.Argument(help="What to learn.")] = Demo.sinusoid,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", help="Run folder; demo, demo-glyphs or demo-gp if not given.", show_default=False),
    ] = None,
    settings: Settings = None,
    overwrite: Overwrite = False,
    resume: Resume = False,
) -> None:
    """Train for about a minute, evaluate, draw a picture.

    `sinusoid`: regression, and the functional updates step by step. `glyphs`: tell five characters of an unseen
    alphabet apart from one example of each. `gp`: curves of a Gaussian process, with uncertainty beside the exact one.

    Examples:

      metafun demo

      metafun demo glyphs --out demo-glyphs

      metafun demo gp
    """
    preset = "demo" if which is Demo.sinusoid else f"demo-{which.value}"
    run = running.open_run(
        out_dir or Path(preset), load_config(preset, settings or ()), overwrite=overwrite, resume=resume
    )
    running.train(run)
    results = running.measure(run)
    running.show(results)
    figure = next(iter(running.plot(run).values()))
    metrics = {name: value["mean"] for name, value in results["metrics"].items()}
    facts = {key: results[key] for key in ("parameters", "train_seconds", "steps", "test_tasks", "device", "version")}
    paper = {name: mean for name, (mean, _) in published(results).items() if name in metrics}
    summary = run.path / "summary.json"
    write_json(summary, metrics | facts | {"paper": paper, "figure": str(figure)})
    out.print(f"figure:  {figure}\nsummary: {summary}")
