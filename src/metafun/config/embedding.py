"""The embedding of inputs, before a model sees them: of images, of the columns of tables, of features."""

import math
from dataclasses import dataclass
from typing import Literal

import jax
from jaxtyping import PRNGKeyArray

from ..embeddings.columns import ColumnEmbedding, Relation, RelationToClasses, RelationToNumbers
from ..embeddings.convolutional import ConvNet
from ..embeddings.linear import LinearMap
from ..errors import InvalidConfig
from ..model.nn import MLP
from ..values import Depth, Width

# Of a block.
MOST_CHANNELS = 2**16


@dataclass(frozen=True)
class ConvNetConfig:
    """A convolutional network for images.

    Args:
        blocks: number of blocks of convolution, normalisation, ReLU and pooling.
        channels: channels of the first block.
        growth: factor between the channels of a block and of the next.
        groups: number of groups of channels in the normalisation.
        precision: type of the products; bfloat16 takes half the memory.
    """

    kind: Literal["convnet"] = "convnet"
    blocks: Depth = 4
    channels: Width = 64
    growth: Width = 1
    groups: Width = 8
    precision: Literal["float32", "bfloat16"] = "float32"

    def build(self, sizes: tuple[int, int], image: tuple[int, int] | None, key: PRNGKeyArray) -> ConvNet:
        """A network with random weights.

        Args:
            sizes: dim(x) and dim(y).
            image: height and width; None if inputs are not images.
            key: source of the initial weights.
        """
        if image is None:
            raise InvalidConfig("embedding.kind = 'convnet' is for images; set tasks.pixels, and use image data.")
        if self.channels % self.groups:
            raise InvalidConfig(
                f"embedding.channels = {self.channels} cannot be divided into embedding.groups = {self.groups}."
            )
        widths = [self.channels * self.growth**block for block in range(self.blocks)]
        if widths[-1] > MOST_CHANNELS:
            raise InvalidConfig(
                f"embedding.growth = {self.growth} gives {float(min(widths[-1], 10**300)):.3g} channels in the last "
                f"block, more than {MOST_CHANNELS:,}; choose a smaller one."
            )
        return ConvNet(image, [sizes[0] // math.prod(image), *widths], self.groups, self.precision, key=key)


@dataclass(frozen=True)
class ColumnsConfig:
    """An embedding of the rows of any table.

    Args:
        cells: number of features of a cell.
        about: length of the summary of a column.
        entries: length of the vector of a cell and its column's summary.
        size: length of a row's vector.
        outputs: number of learned functions of y that columns are correlated with, in regression.
    """

    kind: Literal["columns"] = "columns"
    cells: Width = 32
    about: Width = 32
    entries: Width = 16
    size: Width = 128
    outputs: Width = 4

    def build(self, sizes: tuple[int, int], image: tuple[int, int] | None, key: PRNGKeyArray) -> ColumnEmbedding:
        """An embedding with random weights.

        Args:
            sizes: number of columns, and dim(y), 0 in classification.
            image: not used.
            key: source of the initial weights.
        """
        key_relation, key_columns = jax.random.split(key)
        columns, outputs = sizes
        relation: Relation = RelationToClasses()
        if outputs:
            relation = RelationToNumbers(MLP([outputs, 4 * self.outputs, self.outputs], "gelu", key=key_relation))
        widths = dict(cells=self.cells, about=self.about, entries=self.entries, size=self.size)
        return ColumnEmbedding(columns, relation, **widths, key=key_columns)


@dataclass(frozen=True)
class LinearConfig:
    """A linear map of features: it learns which directions matter.

    Args:
        directions: how many directions of the data it combines, the most telling first (see `tasks.discriminant`); if
            not given, it starts as the identity and combines all features.
    """

    kind: Literal["linear"] = "linear"
    directions: Width | None = None

    def build(self, sizes: tuple[int, int], image: tuple[int, int] | None, key: PRNGKeyArray) -> LinearMap:
        """The identity; a training gives it the directions of its data.

        Args:
            sizes: dim(x) and dim(y).
            image: not used.
            key: not used.
        """
        return LinearMap(sizes[0], self.directions)
