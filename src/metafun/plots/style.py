"""Colours and manners that all figures share."""

from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# One blue for all t, from pale to dark, so that the eye reads a direction.
SHADES = matplotlib.colormaps["Blues"]
BLUE = SHADES(0.8)
RED, GREEN, GREY, INK = "#d62728", "#2ca02c", "0.55", "0.1"


def plain(axis: Axes) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(colors=GREY, labelcolor=INK)


def save(figure: Figure, path: Path) -> Path:
    # The same figure is the same file: no date, and no random names inside.
    with matplotlib.rc_context({"svg.hashsalt": "metafun"}):
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    return path
