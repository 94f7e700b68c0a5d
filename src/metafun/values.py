"""The types of settings, with their bounds."""

from typing import Annotated, Literal

from .schema import Between

Count = Annotated[int, Between(1, 2**31 - 1)]
ClassCount = Annotated[int, Between(2, 2**16)]
# Bounded: a hostile file must not start building an endless network before its shapes can be checked.
Depth = Annotated[int, Between(1, 100)]
# Of an array: any model of this library is far smaller, and a file's header must not build gigabytes.
Width = Annotated[int, Between(1, 2**16)]
WidthOrZero = Annotated[int, Between(0, 2**16)]
DepthOrZero = Annotated[int, Between(0, 100)]
# Points of a task, or tasks of a step.
PointCount = Annotated[int, Between(1, 2**20)]
PointCountOrZero = Annotated[int, Between(0, 2**20)]
# Repetitions inside a compiled program.
LoopCount = Annotated[int, Between(1, 100_000)]
Size = Annotated[int, Between(0, 2**31 - 1)]
Seed = Annotated[int, Between(0, 2**32 - 1)]
Real = Annotated[float, Between(-1e30, 1e30)]
NonNegative = Annotated[float, Between(0, 1e30)]
Positive = Annotated[float, Between(1e-30, 1e30)]
Share = Annotated[float, Between(0, 1)]
# A share below 1, such as a dropout rate.
Part = Annotated[float, Between(0, 0.999)]
# Exponent of a power transform.
Power = Annotated[float, Between(0.1, 1)]
Activation = Literal["relu", "gelu", "silu", "tanh"]
# Without the test split: its classes are never trained on.
TrainingSplit = Literal["train", "val"]
