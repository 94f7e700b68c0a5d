"""MetaFun: the algorithm (`metafun.py`), the parts it is assembled from, and the interface of a learner."""

from .learner import Learner
from .metafun import FunctionalRepresentation, MetaFun
from .stochastic import StochasticMetaFun
from .task import Points, Task, stack
