"""What the paper compares with, each with the interface of MetaFun: tasks, loop, evaluation and figures are shared."""

from .leo import LEO
from .logistic import LogisticRegression
from .maml import MAML
from .metric import Matching, Prototypes

__all__ = ["LEO", "MAML", "LogisticRegression", "Matching", "Prototypes"]
