"""A table or figure is rows of cells; a cell is a configuration, a metric and the published value."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from ..config import Config, EpisodesConfig, load_config, parse_toml, with_changes
from ..config.space import space_text
from ..errors import InvalidConfig, suggest
from ..schema import flatten, parse, to_table

ITEMS = ("table1", "table2", "table3", "figure3", "figure4", "figure5")


@dataclass(frozen=True)
class Cell:
    """`metric` of the model that `preset` with `settings` makes.

    With a `search`, settings in that space are drawn anew, those aside that are `fixed`.
    """

    preset: str
    metric: str
    settings: tuple[str, ...] = ()
    search: str | None = None
    fixed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """`published` has a mean and a standard deviation for each column, or nothing; `why` there are no cells."""

    name: str
    section: str = ""
    published: tuple[tuple[float, ...], ...] = ()
    cells: tuple[Cell, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Item:
    """`percent`: values are shares, shown in per cent. `draw` says which figure the runs make."""

    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    percent: bool = False
    draw: Literal["none", "comparison", "curves", "iterations"] = "none"


@dataclass(frozen=True)
class Address:
    """The place of a cell."""

    item: str
    row: str
    column: str
    metric: str

    def __str__(self) -> str:
        return f"{self.item}, {self.row}, {self.column}"


@dataclass(frozen=True)
class Job:
    """One training, by the paper's protocol and after a search where the cell says so, for all cells that it fills."""

    config: Config
    search: str | None
    fixed: tuple[str, ...]
    trials: int
    addresses: tuple[Address, ...]

    @property
    def protocol(self) -> bool:
        return isinstance(self.config.tasks, EpisodesConfig)

    @property
    def key(self) -> str:
        """A name for what is trained, whatever seeds are asked for."""
        plain = to_table(with_changes(self.config, {"training.seeds": [0]}), original_names=True)
        search = (space_text(self.search), self.fixed, self.trials) if self.search else None
        return hashlib.sha256(json.dumps((plain, search)).encode()).hexdigest()[:12]


def load_item(name: str) -> Item:
    if name not in ITEMS:
        raise InvalidConfig(f"the paper has no '{name}'; {suggest(name, [*ITEMS, 'all'])}")
    text = (resources.files("metafun") / "paper" / f"{name}.toml").read_text("utf-8")
    item = parse(Item, parse_toml(text, name))
    for row in item.rows:
        for values in (row.published, row.cells):
            assert len(values) in (0, len(item.columns)), f"{name}, {row.name}: a value for each column, or none"
    return item


def cells(names: Iterable[str], only: str | None = None) -> Iterator[tuple[Address, Cell]]:
    """All cells that can be measured, or those of the row `only`, or of all rows with that in their name."""
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
    """What has to be trained: cells that ask for the same thing share one job. `data` stands in for data by name."""
    found: dict[str, Job] = {}
    for address, cell in cells(names, only):
        config = load_config(cell.preset, cell.settings, {"training.seeds": list(range(seeds))})
        if isinstance(config.tasks, EpisodesConfig):
            config = with_changes(config, {"tasks.data": (data or {}).get(config.tasks.data, config.tasks.data)})
        job = Job(with_changes(config, _that_fit(config, changes or {})), cell.search, cell.fixed, trials, (address,))
        there = found.get(job.key)
        addresses = (*there.addresses, address) if there else (address,)
        found[job.key] = Job(job.config, job.search, job.fixed, trials, addresses)
    return list(found.values())


def _that_fit(config: Config, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the changes whose settings the configuration has."""
    settings: Sequence[str] = list(flatten(to_table(config)))
    return {key: value for key, value in changes.items() if key in settings}
