"""Tables of features: what classification tasks are drawn from, and where they come from."""

from .catalog import open_table
from .table import SPLITS, Table

__all__ = ["SPLITS", "Table", "open_table"]
