"""A distribution over small tables, for models that are to work on any of them."""

from .tables import LabelTables, NumberTables, Tables

__all__ = ["LabelTables", "NumberTables", "Tables"]
