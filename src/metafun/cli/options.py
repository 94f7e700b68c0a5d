"""Options that several commands share."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from ..config import Config, load_config, load_plugin, parse_setting, says_no_tasks, with_changes
from ..errors import InvalidConfig, InvalidRun
from ..schema import UNSET
from ..training.run import Run
from ..training.run_folder import RunFolder
from ..training.session import Start
from .console import err

# Of benchmarks.
Methods = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="NAME", help="Measure this method only. Repeatable.", show_default=False),
]
Figure = Annotated[
    Path | None, typer.Option("--figure", help="File of the figure.", show_default="beside the results, .png")
]
# Of all commands that take settings.
Preset = Annotated[str, typer.Argument(metavar="PRESET_OR_TOML", help="A preset (see `metafun info`) or a TOML file.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help=f"Change a setting: --set training.steps=1000; KEY={UNSET} unsets an optional one. May be repeated.",
    ),
]
Data = Annotated[str | None, typer.Option("--data", help="A table of features: a name or a path.", show_default=False)]
Seeds = Annotated[
    int | None,
    typer.Option("--seeds", min=1, help="Number of models, with seeds 0, 1, …", show_default="set by the preset"),
]
Vary = Annotated[
    list[str] | None,
    typer.Option(
        "--vary",
        metavar="KEY=A,B,…",
        help="Train these values of a setting at once and keep the best on validation. Repeat it for several settings.",
    ),
]
OutDir = Annotated[
    Path | None,
    typer.Option("--out", help="Folder; by default in runs/, named after the preset.", show_default=False),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the run in the folder.")]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Continue what is in the folder. To extend a run, add --set training.steps=…"),
]
Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        metavar="FILE.py",
        help="Python file that registers parts of your own. It is executed: name only files that you trust.",
        show_default=False,
    ),
]
RecordTo = Annotated[
    Path | None, typer.Option("--record", help="Append the result to this .jsonl file.", show_default=False)
]


@dataclass(frozen=True)
class TrainingOptions:
    """The options of commands that train a preset."""

    preset: Preset
    settings: Settings = None
    data: Data = None
    seeds: Seeds = None
    vary: Vary = None
    out_dir: OutDir = None
    resume: Resume = False
    overwrite: Overwrite = False

    def config(self) -> Config:
        """The preset with all changes."""
        return configure(self.preset, self.settings, self.seeds, self.data, self.vary)

    def folder(self, suffix: str = "") -> Path:
        """Where the run goes."""
        return self.out_dir or Path("runs") / f"{Path(self.preset).stem}{suffix}"

    def for_protocol(self) -> dict[str, bool]:
        """How to open the runs; without any change of the preset, the settings in the folder are resumed."""
        return {"overwrite": self.overwrite, "resume": self.resume, "keep_settings": not self._is_changed}

    def open_run(self, folder: Path, start: Start | None = None) -> Run:
        """A new run in the folder; or the one in it, extended if there are changes.

        Args:
            folder: where it is, or goes.
            start: the model that a new run starts from; None for random weights.
        """
        if not self.resume or self.overwrite or RunFolder.is_free(folder) or start is not None:
            return Run.open(folder, self.config(), overwrite=self.overwrite, resume=self.resume, start=start)
        run = Run(folder)
        if self._is_changed:
            run.extend(configure(run.config, self.settings, self.seeds, self.data, self.vary))
        return run

    @property
    def _is_changed(self) -> bool:
        return bool(self.settings or self.vary or self.seeds is not None or self.data is not None)


def with_options(options: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator: adds the fields of the dataclass `options` to the command line, and passes them as one argument."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        shared = list(inspect.signature(options).parameters.values())

        @wraps(command)
        def wrapper(**values: Any) -> None:
            return command(options(**{p.name: values.pop(p.name) for p in shared}), **values)

        return _with_parameters(wrapper, [*shared, *list(inspect.signature(command).parameters.values())[1:]])

    return decorate


def with_plugins(command: Callable[..., None]) -> Callable[..., None]:
    """A decorator: adds --plugin to the command line, and loads the files before the command runs."""

    @wraps(command)
    def wrapper(*, plugins: list[Path] | None = None, **values: Any) -> None:
        for path in plugins or ():
            load_plugin(path)
        return command(**values)

    plugin = inspect.Parameter("plugins", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Plugins)
    return _with_parameters(wrapper, [*inspect.signature(command).parameters.values(), plugin])


def _with_parameters(wrapper: Any, parameters: Sequence[inspect.Parameter]) -> Callable[..., None]:
    """The function with the signature that the command line is made from."""
    named = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    wrapper.__signature__ = inspect.Signature(named)
    wrapper.__annotations__ = {p.name: p.annotation for p in named}
    return wrapper


def configure(
    source: str | Config,
    settings: Sequence[str] | None = None,
    seeds: int | None = None,
    data: str | None = None,
    vary: Sequence[str] | None = None,
) -> Config:
    """A preset, file or configuration with changes; some settings have options of their own."""
    for key, value in (("training.seeds", seeds), ("tasks.data", data)):
        if value is not None and any(setting.startswith(key + "=") for setting in settings or ()):
            raise InvalidConfig(f"--{key.split('.')[1]} and --set {key}=… set the same thing; give one of them.")
    changes: dict[str, Any] = {} if seeds is None else {"training.seeds": list(range(seeds))}
    if vary:
        changes["vary"] = dict(map(_parse_varied, vary))
    if isinstance(source, str):
        config = load_config(source, settings or (), changes)
        if says_no_tasks(source):
            what = f"model.kind = '{config.model.kind}' on {config.tasks.trained_on}"
            remedy = 'to start from a preset, add base = "PRESET"'
            err.print(escape(f"note: {source} names no base and no tasks, so it trains {what}; {remedy}"))
    else:
        config = with_changes(source, dict(map(parse_setting, settings or ())) | changes)
    return config if data is None else replace(config, tasks=config.tasks.with_data(data))


def _parse_varied(text: str) -> tuple[str, Any]:
    """KEY=[A,B]; without brackets too, which some shells would expand."""
    key, equals, values = text.partition("=")
    return parse_setting(text if values.startswith("[") else f"{key}{equals}[{values}]")


def check_resumable(resume: bool, folder: Path) -> None:
    """InvalidRun if nothing in `folder` could be resumed."""
    if resume and not folder.exists():
        raise InvalidRun(f"--resume: there is no folder {folder} to continue; name it with --out, or drop --resume.")


def check_folder(option: str, path: Path | None) -> None:
    """InvalidConfig before any work is done, if the file `path` could not be written after it."""
    if path is not None and not path.absolute().parent.is_dir():
        raise InvalidConfig(f"{option} {path}: there is no folder {path.absolute().parent}; make it first.")


def check_files(results: Path, figure: Path | None) -> None:
    """InvalidConfig before any work is done, if one of the files of a benchmark could not be written after it."""
    from ..plots import check_suffix  # matplotlib is slow to import

    check_folder("--results", results)
    check_folder("--figure", figure)
    if figure is not None:
        check_suffix(figure, "--figure")
