"""The paper's tables and figures as data: rows of cells, each with a configuration, a metric and a published value."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import resources
from typing import Any, Literal

from ..config import Config, Experiment, load_config, parse_toml, resolve, settings_hash, with_changes
from ..config.space import space_text
from ..errors import InvalidConfig, suggest
from ..schema import flatten, parse, to_table

# The paper's tables and figures, and one more table.
ITEMS = ("table1", "table2", "table3", "figure3", "figure4", "figure5", "tiered-standin")
# The data of that table, which stand in for tieredImageNet.
STAND_IN = "tinyimagenet_tiered_mid"


@dataclass(frozen=True)
class Cell:
    """One number of a table.

    Args:
        preset: configuration of the model.
        metric: name of the metric in an evaluation.
        settings: changes of the preset, as `key=value`.
        search: search space from which settings are drawn anew, if any.
        fixed: settings of that space that keep their value.
        search_seed: seed of the draws.
    """

    preset: str
    metric: str
    settings: tuple[str, ...] = ()
    search: str | None = None
    fixed: tuple[str, ...] = ()
    search_seed: int = 0


@dataclass(frozen=True)
class Row:
    """One row of a table.

    Args:
        name: its title.
        section: title of the part of the table that it belongs to.
        published: mean and standard deviation of each column, or nothing.
        cells: one for each column, or none.
        why: the reason if there are no cells.
    """

    name: str
    section: str = ""
    published: tuple[tuple[float, ...], ...] = ()
    cells: tuple[Cell, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Item:
    """One table or figure.

    Args:
        title: its title.
        caption: text below the title.
        columns: titles of the columns.
        rows: its rows.
        percent: whether values are shown in per cent.
        draw: the kind of figure that the runs make.
    """

    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    percent: bool = False
    draw: Literal["none", "comparison", "iterations"] = "none"


@dataclass(frozen=True)
class Address:
    """The place of a cell: table or figure, row, column and metric."""

    item: str
    row: str
    column: str
    metric: str

    def __str__(self) -> str:
        return f"{self.item}, {self.row}, {self.column}"


@dataclass(frozen=True)
class Job:
    """One training, for all cells that it fills.

    Args:
        config: what to train.
        search: search space that is searched first, if any.
        fixed: settings of the space that keep their value.
        search_seed: seed of the draws.
        trials: trials of the search.
        addresses: the cells.
    """

    config: Config
    search: str | None
    fixed: tuple[str, ...]
    search_seed: int
    trials: int
    addresses: tuple[Address, ...]

    @property
    def protocol(self) -> bool:
        """Whether the paper's protocol chooses the number of steps."""
        return self.config.tasks.splits_classes

    @cached_property
    def experiment(self) -> Experiment:
        """The configuration resolved against its data; InvalidData where these are missing."""
        return resolve(self.config)

    @cached_property
    def key(self) -> str:
        """A hash of what is trained, independent of the seeds."""
        search = (space_text(self.search), self.fixed, self.trials, self.search_seed) if self.search else None
        return settings_hash(self.config, search)


@cache
def load_item(name: str) -> Item:
    """A table or figure by its name in `ITEMS`."""
    if name not in ITEMS:
        raise InvalidConfig(f"the paper has no '{name}'; {suggest(name, [*ITEMS, 'all'])}")
    text = (resources.files("metafun") / "paper" / f"{name}.toml").read_text("utf-8")
    item = parse(Item, parse_toml(text, name))
    for row in item.rows:
        for values in (row.published, row.cells):
            assert len(values) in (0, len(item.columns)), f"{name}, {row.name}: a value for each column, or none"
    return item


def cells(names: Iterable[str], only: str | None = None) -> Iterator[tuple[Address, Cell]]:
    """All measurable cells of the items `names`; `only` is the name, or a part of the names, of rows."""
    items = {name: load_item(name) for name in names}
    known = {row.name for item in items.values() for row in item.rows}
    chosen = known
    if only is not None:
        chosen = {name for name in known if name.lower() == only.lower()}
        chosen = chosen or {name for name in known if only.lower() in name.lower()}
    if not chosen:
        raise InvalidConfig(f"{', '.join(items)} has no row '{only}'; {suggest(str(only), known)}")
    rows = [(name, row) for name, item in items.items() for row in item.rows if row.name in chosen]
    for name, row in rows:
        for column, cell in zip(items[name].columns, row.cells, strict=False):
            yield Address(name, row.name, column, cell.metric), cell


def plan(
    names: Iterable[str],
    *,
    only: str | None = None,
    seeds: int = 5,
    trials: int = 64,
    data: Mapping[str, str] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> list[Job]:
    """All jobs; cells with the same configuration share one.

    Args:
        names: tables and figures.
        only: rows, as in `cells`.
        seeds: number of seeds.
        trials: trials of each search.
        data: replacements of data sets, by name.
        changes: settings to change wherever a configuration has them.
    """
    found: dict[str, Job] = {}
    for address, cell in cells(names, only):
        config = load_config(cell.preset, cell.settings, {"training.seeds": list(range(seeds))})
        changed = _that_fit(config, changes or {})
        if replacement := (data or {}).get(config.tasks.data):
            changed["tasks.data"] = replacement
        config = with_changes(config, changed) if changed else config
        job = Job(config, cell.search, cell.fixed, cell.search_seed, trials, (address,))
        there = found.get(job.key)
        found[job.key] = replace(job, addresses=(*there.addresses, address)) if there else job
    return list(found.values())


def _that_fit(config: Config, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes whose settings the configuration has."""
    settings: Sequence[str] = list(flatten(to_table(config)))
    return {key: value for key, value in changes.items() if key in settings}
