"""Embeddings of inputs, trained with the learner: a convolutional network for images, columns for tables."""

from .base import Embedded, Embedding
from .columns import ColumnEmbedding
from .convolutional import ConvNet
