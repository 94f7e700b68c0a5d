"""Colours and layout shared by all figures."""

import io
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..files import write_atomically

# Later updates are darker, so that their order is visible.
SHADES = matplotlib.colormaps["Blues"]
BLUE = SHADES(0.8)
RED, GREEN, GREY, INK = "#d62728", "#2ca02c", "0.55", "0.1"


def style_axis(axis: Axes) -> None:
    """Hides the upper and right borders and greys the ticks."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(colors=GREY, labelcolor=INK)


def save(figure: Figure, path: Path) -> Path:
    """Writes the figure and returns its path.

    Args:
        figure: the finished figure.
        path: its file; the suffix decides the format.
    """
    # Equal figures give equal files: no date, and no random identifiers.
    form = path.suffix.removeprefix(".")
    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "metafun"}):
        figure.savefig(content, format=form, dpi=150, metadata={"Date": None} if form == "svg" else None)
    write_atomically(path, content.getvalue())
    return path
