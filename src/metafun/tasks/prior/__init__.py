"""A prior over small tables, on which models of any table are trained."""

from .tables import LabelTables, NumberTables, Tables
