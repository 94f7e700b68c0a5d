"""What turns inputs into vectors before a model sees them."""

import math
from dataclasses import dataclass
from typing import Literal

from jaxtyping import PRNGKeyArray

from ..embedding import ConvNet
from ..errors import InvalidConfig
from .values import Count, Depth


@dataclass(frozen=True)
class ConvNetConfig:
    """`blocks` of convolution, normalisation in `groups` of channels, ReLU and pooling, each with `channels`.

    Half `precision` takes half the memory, and on a GPU two thirds of the time.
    """

    kind: Literal["convnet"] = "convnet"
    blocks: Depth = 4
    channels: Count = 64
    groups: Count = 8
    precision: Literal["float32", "bfloat16"] = "float32"

    def build(self, dx: int, image: tuple[int, int] | None, key: PRNGKeyArray) -> ConvNet:
        if image is None:
            raise InvalidConfig(
                "embedding.kind = 'convnet' is for images; give tasks.pixels, and data that are images."
            )
        if self.channels % self.groups:
            raise InvalidConfig(
                f"embedding.channels = {self.channels} cannot be divided into embedding.groups = {self.groups}."
            )
        return ConvNet(
            image, [dx // math.prod(image), *[self.channels] * self.blocks], self.groups, self.precision, key=key
        )
