"""The kinds of values a setting can have, with their bounds."""

from typing import Annotated, Literal

from .schema import Between

Count = Annotated[int, Between(1, 2**31 - 1)]
# A file from outside must not make us build a network without end before its shapes can be checked.
Depth = Annotated[int, Between(1, 100)]
Size = Annotated[int, Between(0, 2**31 - 1)]
Seed = Annotated[int, Between(0, 2**32 - 1)]
Real = Annotated[float, Between(-1e30, 1e30)]
NonNegative = Annotated[float, Between(0, 1e30)]
Positive = Annotated[float, Between(1e-30, 1e30)]
Share = Annotated[float, Between(0, 1)]
# A share that leaves something.
Part = Annotated[float, Between(0, 0.999)]
Activation = Literal["relu", "gelu", "silu", "tanh"]
# Test classes are never trained on.
TrainingSplit = Literal["train", "val"]
