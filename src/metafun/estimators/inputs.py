"""A user's X as rows of numbers: the columns of a data frame are encoded."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.encoding import ColumnCode, Encoding
from ..data.frames import CONTENT, array_columns, frame_columns, is_frame
from ..errors import InvalidData
from .trained import Trained


def encoding_for(trained: Trained, X: Any) -> Encoding | None:
    """How the columns of a context become numbers; None for an array that stays as it is.

    Args:
        trained: the model. Its own encoding, if it has one, takes precedence; the columns of X must be the same.
        X: the inputs of the context.
    """
    if (encoding := trained.encoding) is not None:
        if is_frame(X) and encoding.named:
            check_names([column.name for column in frame_columns(X)], encoding.names)
        return encoding
    if not is_frame(X):
        return None
    if not trained.tasks.accepts_any_table:
        return plain_encoding(X, keeps_missing=False)
    return Encoding.of(frame_columns(X), keeps_missing=True)


def encode_rows(encoding: Encoding | None, X: Any) -> NDArray:
    """X as numbers, [rows, dx].

    Args:
        encoding: how its columns become numbers; None: they are numbers.
        X: a data frame or an array of numbers.
    """
    if encoding is None:
        encoding = plain_encoding(X, keeps_missing=True)
    columns = frame_columns(X) if is_frame(X) else array_columns(np.asarray(X))
    if len(columns) != len(encoding.columns):
        raise InvalidData(f"X has {len(columns)} features, but the model was trained on {len(encoding.columns)}.")
    unlike = next((code for code in encoding.columns if code.kind != "number"), None)
    if unlike is not None and not is_frame(X):
        raise InvalidData(
            f"X is an array, but column '{unlike.name}' held {CONTENT[unlike.kind]} before; pass a data frame with the "
            "same columns."
        )
    return encoding(columns)


def plain_encoding(X: Any, keeps_missing: bool) -> Encoding:
    """The encoding of a frame of numbers, which stay as they are; InvalidData names a column of something else.

    Args:
        X: a data frame.
        keeps_missing: whether numbers may be missing.
    """
    columns = frame_columns(X)
    for column in columns:
        if column.kind != "number":
            raise InvalidData(
                f"column '{column.name}' holds {CONTENT[column.kind]}, but the model was trained on numbers; convert "
                "it, leave it out, or use a model for any table."
            )
    return Encoding(tuple(ColumnCode(column.name, "number") for column in columns), keeps_missing)


def check_names(found: list[str], expected: list[str], when: str = "meta_fit") -> None:
    """InvalidData unless the columns are the expected ones in their order.

    Args:
        found: names of the columns.
        expected: names that they should have.
        when: where the expected names come from.
    """
    if found == expected:
        return
    missing, new = ([name for name in a if name not in b] for a, b in ((expected, found), (found, expected)))
    if not missing and not new:
        raise InvalidData(f"the columns must be in the order of {when}; use X[{expected}].")
    parts = [f"{' and '.join(map(repr, missing))} missing"] if missing else []
    parts += [f"{' and '.join(map(repr, new))} new"] if new else []
    raise InvalidData(f"the columns are not those of {when}, {expected}: {', '.join(parts)}.")
