"""Colours and layout shared by all figures."""

import io
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..files import write_atomically

# Later updates are darker, so that their order is visible.
SHADES = matplotlib.colormaps["Blues"]
# The palette of Okabe and Ito, which readers with any colour vision can tell apart.
BLUE, RED, GREEN, ORANGE, PURPLE, SKY = "#0072b2", "#d55e00", "#009e73", "#e69f00", "#b5679a", "#56b4e9"
GREY, INK = "0.55", "0.1"
# In an SVG on a dark page, paper and ink swap; the other colours are readable on both.
_DARK = """
@media (prefers-color-scheme: dark) {
  svg { fill: #e6e6e6 }
  [style*="fill: #ffffff"] { fill: #17191c !important }
  [style*="stroke: #ffffff"] { stroke: #17191c !important }
  [style*="fill: #1a1a1a"], [style*="fill: #000000"] { fill: #e6e6e6 !important }
  [style*="stroke: #1a1a1a"], [style*="stroke: #000000"] { stroke: #e6e6e6 !important }
  [style*="stroke: #0072b2"] { stroke: #3a9ad9 !important }
  [style*="fill: #0072b2"] { fill: #3a9ad9 !important }
}
"""


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
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "metafun"}):
        figure.savefig(buffer, format=form, dpi=150, metadata={"Date": None} if form == "svg" else None)
    content = buffer.getvalue()
    if form == "svg":
        content = content.replace(b"</style>", _DARK.encode() + b"</style>", 1)
    write_atomically(path, content)
    return path
