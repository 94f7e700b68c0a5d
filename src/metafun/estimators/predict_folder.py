"""Predictions for a folder of CSV and Parquet files that may be larger than any memory: resumable, on any engine."""

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..data.pieces import FORMATS, require_pyarrow
from ..data.table import counted, printable
from ..errors import InvalidConfig, InvalidData
from ..files import locked, read_text, remove_leftovers, subfolder, write_atomically
from .classifier import MetaFunClassifier
from .files import files_below
from .notes import Notes
from .predict_files import FilePredictor, FileResult
from .regressor import MetaFunRegressor

# In the folder of predictions: what they were made with.
MANIFEST = ".metafun.json"
# Lines of one kind that are shown.
MOST_LINES = 10

# Predicts files (source, destination) in any order.
Engine = Callable[[FilePredictor, Sequence[tuple[Path, Path]]], Iterator[FileResult]]


def one_after_another(predictor: FilePredictor, files: Sequence[tuple[Path, Path]]) -> Iterator[FileResult]:
    """The engine that needs no other process."""
    for source, destination in files:
        yield predictor(source, destination)


def predict_folder(
    estimator: MetaFunRegressor | MetaFunClassifier,
    folder: str | Path,
    out: str | Path,
    target: str | Sequence[str] = "y",
    *,
    quantiles: Sequence[float] = (),
    workers: int | None = None,
    scheduler: str | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> list[FileResult]:
    """Predicts all CSV and Parquet files of a folder and its subfolders, each into a file of the same name in `out`.

    A file is written when it is complete, and the same call after an interruption predicts only what is left. Returns
    what became of each file that was not predicted before; InvalidData at the end if some failed.

    Args:
        estimator: fitted to a data frame, whose columns the files have too.
        folder: the files.
        out: folder for the files with predictions.
        target: names of the predicted columns.
        quantiles: quantiles of a regressor's predictions, between 0 and 1.
        workers: number of processes on this machine; default: this one alone. A script needs
            `if __name__ == "__main__":` around its commands. Needs the extra `dask`, as `scheduler` does.
        scheduler: address of a Dask cluster instead, whose workers see both folders under the same paths and have the
            same version of metafun.
        overwrite: predict all files again.
        progress: show progress on stderr.
    """
    labels = [target] if isinstance(target, str) else list(target)
    predictor = FilePredictor(estimator, labels, quantiles)
    plan = FolderPlan.of(predictor, Path(folder), Path(out), Notes())
    console = Console(stderr=True, soft_wrap=True, highlight=False, quiet=not progress)
    with engine_for(workers, scheduler) as engine, plan.opened(overwrite) as left:
        results = list(watched(len(left), engine(predictor, left), console))
    require_all(results)
    return results


@contextlib.contextmanager
def engine_for(workers: int | None, scheduler: str | None) -> Iterator[Engine]:
    """The engine for the options of `predict_folder`.

    Args:
        workers: number of processes on this machine.
        scheduler: address of a cluster.
    """
    if workers is None and scheduler is None:
        yield one_after_another
        return
    if workers is not None and scheduler is not None:
        raise InvalidConfig("--workers starts processes here, --scheduler uses a cluster that runs; give one of them.")
    if find_spec("distributed") is None:
        raise InvalidConfig('several processes need Dask; install it: pip install "metafun[dask]"')
    from .cluster import dask_engine

    with dask_engine(workers, scheduler) as engine:
        yield engine


@dataclass(frozen=True)
class FolderPlan:
    """The files to predict.

    Args:
        fingerprint: that of the predictor.
        folder: the files, absolute.
        out: folder for the files with predictions, absolute.
        names: the files in `folder`, relative to it.
    """

    fingerprint: str
    folder: Path
    out: Path
    names: tuple[Path, ...]

    @classmethod
    def of(cls, predictor: FilePredictor, folder: Path, out: Path, notes: Notes) -> "FolderPlan":
        """All files of a folder; InvalidData if there are none, or if `out` is within it.

        Args:
            predictor: predicts them.
            folder: the folder, which may be from a stranger: links that lead out of it are left out.
            out: the folder to write.
            notes: receives what is left out.
        """
        if not folder.is_dir():
            raise InvalidData(f"{folder} is no folder.")
        folder, out = folder.resolve(), out.resolve()
        if out.is_relative_to(folder) or folder.is_relative_to(out):
            raise InvalidData(f"{out} and {folder} contain one another; choose an --out beside the files.")
        names = []
        for path in files_below(folder, folder, notes):
            name = path.relative_to(folder)
            if any(part.startswith("_") for part in name.parts):
                continue  # _SUCCESS, _temporary and the like, which Spark and others leave beside their files
            if name.suffix.lower() in FORMATS:
                names.append(name)
            else:
                notes.left_out.append(printable(f"{path}: neither .csv nor .parquet"))
        if not names:
            raise InvalidData(f"{folder} has no files that end in .csv or .parquet.")
        if any(name.suffix.lower() == ".parquet" for name in names):
            require_pyarrow()
        return cls(predictor.fingerprint, folder, out, tuple(names))

    @contextlib.contextmanager
    def opened(self, overwrite: bool = False) -> Iterator[list[tuple[Path, Path]]]:
        """The files that are left to predict, with those to write, while no other process writes there.

        Args:
            overwrite: remove the predictions that are there.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        with locked(self.out, "predicting"):
            manifest = self.out / MANIFEST
            if overwrite:
                # In this order: predictions that a kill leaves here belong to no manifest.
                manifest.unlink(missing_ok=True)
                for name in self.names:
                    (self.out / name).unlink(missing_ok=True)
            self._check_manifest(manifest)
            write_atomically(manifest, json.dumps({"made_with": self.fingerprint}).encode())
            for name in self._folders:
                self._make_folder(name)
            self._remove_leftovers()
            both = [(self.folder / name, self.out / name) for name in self.names]
            yield [(source, destination) for source, destination in both if not _is_newer(destination, source)]
            self._remove_leftovers()

    def _check_manifest(self, manifest: Path) -> None:
        """InvalidData if the folder holds other files of these names."""
        if manifest.exists():
            try:
                made_with = json.loads(read_text(manifest))["made_with"]
            except (ValueError, KeyError, TypeError, RecursionError):
                raise InvalidData(f"{manifest} is damaged; choose another --out, or add --overwrite.") from None
            if made_with != self.fingerprint:
                raise InvalidData(
                    f"{self.out} has predictions of another model, context or target; choose another --out, or replace "
                    "them with --overwrite."
                )
        elif there := next((name for name in self.names if (self.out / name).exists()), None):
            raise InvalidData(f"{self.out / there} exists already; choose another --out, or add --overwrite.")

    @property
    def _folders(self) -> list[Path]:
        """The folders to write to, relative to `out`."""
        return list(dict.fromkeys(name.parent for name in self.names))

    def _make_folder(self, name: Path) -> None:
        folder = self.out
        for part in name.parts:
            folder = subfolder(folder, part)
        folder.mkdir(parents=True, exist_ok=True)

    def _remove_leftovers(self) -> None:
        """Removes what killed writers left."""
        for name in self._folders:
            remove_leftovers(self.out / name)


def _is_newer(destination: Path, source: Path) -> bool:
    """Whether a finished file was made from the present content of its source."""
    if destination.is_symlink() or not destination.is_file():
        return False
    return destination.stat().st_mtime_ns >= source.stat().st_mtime_ns


def watched(total: int, results: Iterator[FileResult], console: Console) -> Iterator[FileResult]:
    """Shows progress, the first problems and the first warnings, and yields the results.

    Args:
        total: number of files to predict.
        results: their results.
        console: shows progress.
    """
    columns = (
        TextColumn("predicting"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("files, {task.fields[rows]} rows"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    rows, shown = 0, {"failed": 0, "warning": 0}

    def show(kind: str, line: str) -> None:
        shown[kind] += 1
        if shown[kind] <= MOST_LINES:
            console.print(escape(f"{kind}: {line}"))

    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total, rows="0")
        for result in results:
            rows += result.rows
            bar.update(task, advance=1, rows=f"{rows:,}")
            for line in result.warnings:
                show("warning", line)
            if result.problem is not None:
                show("failed", result.problem)
            yield result
    for kind, count in shown.items():
        if count > MOST_LINES:
            console.print(f"{kind}: {count - MOST_LINES:,} more lines like these")


def require_all(results: Sequence[FileResult]) -> None:
    """InvalidData if some files failed."""
    failed = [result for result in results if result.problem is not None]
    if failed:
        raise InvalidData(
            f"{counted(len(failed), 'files')} failed, the other {len(results) - len(failed):,} are written. Mend or "
            f"remove them; the same command then predicts what is left. The first: {failed[0].problem}"
        )
