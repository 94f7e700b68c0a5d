"""Every table and figure of the paper as data (TOML), and what has been measured of them."""

from .items import ITEMS, Address, Cell, Item, Job, load_item, plan
from .results import Measured, Results
