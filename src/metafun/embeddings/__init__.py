"""From rows to vectors before any learner: images by a convolutional network, tables column by column."""

from .base import Embedded, Embedding
from .columns import ColumnEmbedding
from .convolutional import ConvNet

__all__ = ["ColumnEmbedding", "ConvNet", "Embedded", "Embedding"]
