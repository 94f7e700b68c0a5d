"""What turns inputs into vectors before a model sees them."""

import math
from dataclasses import dataclass
from typing import Literal

import jax
from jaxtyping import PRNGKeyArray

from ..embeddings.columns import ColumnEmbedding, Relation, RelationToClasses, RelationToNumbers
from ..embeddings.convolutional import ConvNet
from ..errors import InvalidConfig
from ..model.nn import MLP
from ..values import Count, Depth


@dataclass(frozen=True)
class ConvNetConfig:
    """`blocks` of convolution, normalisation in `groups` of channels, ReLU and pooling.

    The first block has `channels`, each further one `growth` times as many as the one before.

    Products in half `precision` take half the memory.
    """

    kind: Literal["convnet"] = "convnet"
    blocks: Depth = 4
    channels: Count = 64
    growth: Count = 1
    groups: Count = 8
    precision: Literal["float32", "bfloat16"] = "float32"

    def build(self, sizes: tuple[int, int], image: tuple[int, int] | None, key: PRNGKeyArray) -> ConvNet:
        if image is None:
            raise InvalidConfig(
                "embedding.kind = 'convnet' is for images; give tasks.pixels, and data that are images."
            )
        if self.channels % self.groups:
            raise InvalidConfig(
                f"embedding.channels = {self.channels} cannot be divided into embedding.groups = {self.groups}."
            )
        widths = [self.channels * self.growth**block for block in range(self.blocks)]
        return ConvNet(
            image,
            [sizes[0] // math.prod(image), *widths],
            self.groups,
            self.precision,
            key=key,
        )


@dataclass(frozen=True)
class ColumnsConfig:
    """Rows of any table: widths of what is said of a cell, a column, an entry, and the `size` of a row's vector."""

    kind: Literal["columns"] = "columns"
    cells: Count = 32
    about: Count = 32
    entries: Count = 16
    size: Count = 128
    outputs: Count = 4

    def build(self, sizes: tuple[int, int], image: tuple[int, int] | None, key: PRNGKeyArray) -> ColumnEmbedding:
        key_relation, key_columns = jax.random.split(key)
        columns, outputs = sizes
        relation: Relation = RelationToClasses()
        if outputs:
            relation = RelationToNumbers(MLP([outputs, 4 * self.outputs, self.outputs], "gelu", key=key_relation))
        widths = dict(cells=self.cells, about=self.about, entries=self.entries, size=self.size)
        return ColumnEmbedding(columns, relation, **widths, key=key_columns)
