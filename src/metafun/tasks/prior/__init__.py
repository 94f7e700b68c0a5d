"""Priors over small tables, on which models of any table are trained."""

from .mixed import MixedLabelTables, MixedNumberTables
from .tables import LabelTables, NumberTables, Tables
