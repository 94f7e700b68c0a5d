"""Tables of features, from which tasks are drawn: reading, storing, finding and downloading them."""

from .catalog import absolute, is_path, open_table
from .table import SPLITS, Table
