"""What to learn from: a `TaskSource` describes tasks (its fields are settings), a `TaskDistribution` draws them."""

from .any_curve import AnyCurves, AnyCurveTasks
from .any_table import TableTasks
from .base import TaskDistribution, TaskSource
from .collected import Collected, CollectedTasks
from .curves import Curves, CurveTasks
from .episode_tasks import EpisodeTasks
from .episodes import Episodes
from .sinusoid import Sinusoid, SinusoidTasks
