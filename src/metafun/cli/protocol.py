"""metafun protocol: tune, train on train+val, test."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from ..config import Config
from ..training import protocol as steps
from ..training.run_folder import Run
from . import running
from .console import AsJson, app, append_json, err, write_json
from .experiments import Preset
from .running import Data, Overwrite, Record, Resume, Seeds, Settings, Vary


@app.command()
def protocol(
    preset: Preset,
    settings: Settings = None,
    data: Data = None,
    seeds: Seeds = None,
    vary: Vary = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder; runs/PRESET-protocol if not given.", show_default=False)
    ] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    record: Record = None,
) -> None:
    """The paper's protocol: choose the number of steps on val, train on train+val, test once.

    Two run folders are made, `tune` and `final`; the test split is looked at after the second.

    Examples:

      metafun protocol mini-dfp-1shot --seeds 5

      metafun protocol mini-kfp-5shot --data mine --record results/mine.jsonl
    """
    running.check_record(record)
    config = running.configure(preset, settings, seeds, data, vary)
    folder = out_dir or Path("runs") / f"{Path(preset).stem}-protocol"
    as_it_is = not settings and not vary and seeds is None and data is None
    final, chosen = follow(folder, config, overwrite=overwrite, resume=resume, as_it_is=as_it_is)
    results = running.measure(final) | {"run": folder.name, "preset": preset, "validation": chosen}
    if as_json:
        print(json.dumps(results))
    else:
        running.show(results)
    err.print(escape(f"the model is in {final.path}. Next: metafun plot {final.path}"))
    write_json(folder / "evaluation.json", results)
    append_json(record, results)


def follow(
    folder: Path, config: Config, *, overwrite: bool, resume: bool, as_it_is: bool = False
) -> tuple[Run, dict[str, Any]]:
    """Both trainings: the run that is to be tested, and what was chosen on val."""
    steps.check(config)
    tune_path, final_path = steps.paths(folder)
    if overwrite and (final_path / "config.toml").exists():
        Run(final_path).clear()  # it belongs to the tuning that is about to go
    tuned = running.open_run(tune_path, config, overwrite=overwrite, resume=resume, as_it_is=as_it_is)
    running.train(tuned, "tuning")
    chosen = steps.choose(tuned)
    best = f" with {running.varied(tuned, chosen['variant'])}" if tuned.config.vary else ""
    err.print(escape(f"val is best after {chosen['step']} steps{best}: accuracy {1 - chosen['error']:.2%}"))
    final = running.open_run(final_path, steps.final_config(tuned), overwrite=overwrite, resume=resume)
    running.train(final, "final training")
    return final, chosen
