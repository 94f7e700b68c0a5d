"""How measured values are written: mean ± standard deviation, powers of ten, seconds and what shared the device."""

from collections.abc import Mapping, Sequence
from math import floor, log10
from statistics import fmean, stdev
from typing import Any

from metafun.paper import Measured

MISSING = "not measured yet"
# Smaller values are written with a power of ten: five digits after the point would hide them.
SMALL = 1e-3
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def mean_std(values: Sequence[float], digits: int = 5) -> str:
    """Mean ± standard deviation over the seeds, or the mean alone of a single seed; small ones as (5.6 ± 1.5)·10⁻⁵.

    Args:
        values: one for each seed.
        digits: digits after the decimal point, if the mean is not small.
    """
    mean = fmean(values)
    std = stdev(values) if len(values) > 1 else None
    if digits < 4 or mean == 0 or abs(mean) >= SMALL:
        return f"{mean:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")
    power = floor(log10(abs(mean)))
    factor = f"10{str(power).translate(_SUPERSCRIPT)}"
    scaled = f"{mean / 10**power:.1f}"
    return f"{scaled}·{factor}" if std is None else f"({scaled} ± {std / 10**power:.1f})·{factor}"


def record_cell(record: Mapping[str, Any], metric: str, digits: int = 5, scale: float = 1) -> str:
    """A metric of a recorded run over its seeds; seeds whose loss broke away are counted.

    Args:
        record: the recorded run.
        metric: name of the metric.
        digits: as in `mean_std`.
        scale: factor of the values, 100 for per cent.
    """
    values = [scale * value for value in record["metrics"][metric]["seeds"]]
    return mean_std(values, digits) + broken_note(record.get("broke_away", ()))


def broken_note(steps: Sequence[int | None]) -> str:
    """How many seeds broke away; empty if none did, or if that was not recorded yet."""
    broken = sum(step is not None for step in steps)
    return f"; {broken} of {len(steps)} seeds broke away" if broken else ""


def measured_cell(lines: Sequence[Measured], percent: bool) -> str:
    """A cell: its value over the seeds, and how many of them broke away or are not finite.

    Args:
        lines: the seeds of one cell.
        percent: whether values are shown in per cent.
    """
    if not lines:
        return ""
    scale, digits = (100, 2) if percent else (1, 5)
    values = [scale * line.value for line in lines if line.value is not None]
    if len(values) < len(lines):
        return f"{len(lines) - len(values)} of {len(lines)} seeds are not finite"
    return mean_std(values, digits) + broken_note([line.broke_away for line in lines])


def interval_cell(lines: Sequence[Measured], percent: bool) -> str:
    """The 95 % interval of the mean over the test tasks, mean over the seeds; empty if it was not recorded."""
    scale, digits = (100, 2) if percent else (1, 5)
    found = [scale * line.interval for line in lines if line.interval is not None]
    return mean_std([fmean(found)], digits) if found else ""


def seconds_cell(seconds: float | None, beside: int | None, device: str | None) -> str:
    """Seconds of a training on a GPU, and how many others shared it; empty where that was not recorded.

    Args:
        seconds: of the training.
        beside: other processes that shared the device.
        device: kind of device; seconds on a CPU depend on the machine and its load, and are not shown.
    """
    if seconds is None or beside is None or device in (None, "cpu"):
        return ""
    return f"{seconds:.0f}" if beside == 0 else f"{seconds:.0f} (shared with {beside})"


def record_seconds(record: dict[str, Any]) -> str:
    """`seconds_cell` of a recorded run."""
    return seconds_cell(record.get("train_seconds"), record["beside"], record["device"])


def shared(beside: int | None) -> str:
    """What shared the device, in a cell."""
    if beside is None:
        return "not recorded"
    return "nothing else" if beside == 0 else f"{beside} others"


def timing(seconds: float, beside: int) -> str:
    """Seconds and what shared the device, in words."""
    return f"{seconds:.0f} s " + ("alone on the device" if beside == 0 else f"on a device shared with {beside} others")
