"""The methods that the paper compares with, as learners: they share tasks, training and evaluation with MetaFun."""

from .leo import LEO
from .logistic import LogisticRegression
from .maml import MAML
from .metric import Matching, Prototypes
