"""Bounds on the memory, depth and work of an untrusted pickle, found by following its opcodes without running them."""

import pickletools
from dataclasses import dataclass
from typing import Any

_OPCODES = {opcode.code: opcode for opcode in pickletools.opcodes}
_TEXTS = {"str", "bytes", "bytes_or_str", "bytearray"}
_SETS = {"EMPTY_SET", "FROZENSET", "ADDITEMS"}
_PUTS, _GETS = {"PUT", "BINPUT", "LONG_BINPUT"}, {"GET", "BINGET", "LONG_BINGET"}
_FILLS = {"APPEND", "APPENDS", "SETITEM", "SETITEMS", "BUILD"}

# Plain data nests a few levels. Python compares and hashes nested tuples by recursion in C, which has no bound.
MOST_LEVELS = 100
# A container takes some 60 bytes or more: those in a file may take a few times its size.
FREE_CONTAINERS, BYTES_PER_CONTAINER = 100_000, 16
# Of the features of a table, an array takes most of the file. A million operations take a second or two.
FREE_OPERATIONS, BYTES_PER_OPERATION = 2_000_000, 16
# Texts are hashed with a secret; numbers are not, so that keys can be chosen which collide.
MOST_NUMBER_KEYS = 10_000


@dataclass(slots=True)
class _Value:
    """What is known of a value of the pickle.

    Args:
        levels: how deep it nests.
        is_text: whether it is text.
        is_reused: whether other values may hold it. It must not be filled then: their levels would be wrong.
    """

    levels: int = 0
    is_text: bool = False
    is_reused: bool = False


class _Bounds:
    """Follows the stack of a pickle."""

    def __init__(self, size: int):
        self.containers_left = FREE_CONTAINERS + size // BYTES_PER_CONTAINER
        self.operations_left = FREE_OPERATIONS + size // BYTES_PER_OPERATION
        self.number_keys = 0
        self.stack: list[_Value | None] = []  # None is a mark
        self.memo: dict[int, _Value] = {}

    def step(self, opcode: Any, argument: Any) -> None:
        """Applies an opcode; ValueError if the pickle exceeds a bound."""
        name = opcode.name
        self.operations_left -= 1
        if self.operations_left < 0:
            raise ValueError("more operations than a file of its size should have")
        if name in _SETS:
            raise ValueError("it holds a set")
        if name in _PUTS:
            self.memo[argument] = self._top()
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = self._top()
        elif name in _GETS:
            self._reuse(self.memo.get(argument, _Value()))
        elif name == "DUP":
            self._reuse(self._top())
        elif name == "MARK":
            self.stack.append(None)
        elif name == "POP":
            self._pop(1) if self.stack and self.stack[-1] is not None else self.stack.pop()
        else:
            self._apply(opcode)

    def _apply(self, opcode: Any) -> None:
        before, after = opcode.stack_before, opcode.stack_after
        has_mark = pickletools.markobject in before
        items = self._pop_to_mark() if has_mark else []
        first = self._pop(before.index(pickletools.markobject) if has_mark else len(before))
        if opcode.name in ("SETITEM", "SETITEMS", "DICT"):
            keys = items[::2] if has_mark else first[1:2]
            self.number_keys += sum(not key.is_text for key in keys)
            if self.number_keys > MOST_NUMBER_KEYS:
                raise ValueError(f"dictionaries with more than {MOST_NUMBER_KEYS:,} keys that are not text")
        parts = [*first, *items]
        makes_container = bool(after) and (bool(parts) or opcode.name.startswith("EMPTY"))
        if makes_container and opcode.name not in _FILLS:
            self.containers_left -= 1
            if self.containers_left < 0:
                raise ValueError("more containers than a file of its size should have")
        made = [parts.pop(0)] if opcode.name in _FILLS else [_Value(is_text=kind.name in _TEXTS) for kind in after]
        levels = max((part.levels + 1 for part in parts), default=0)
        if levels > MOST_LEVELS:
            raise ValueError(f"containers inside one another, more than {MOST_LEVELS} deep")
        for value in made:
            if value.is_reused:
                raise ValueError("it fills a container after it has used it elsewhere")
            value.levels = max(value.levels, levels)
        self.stack += made

    def _reuse(self, value: _Value) -> None:
        value.is_reused = True
        self.stack.append(value)

    def _top(self) -> _Value:
        if not self.stack or (top := self.stack[-1]) is None:
            raise ValueError("it takes a value from an empty stack")
        return top

    def _pop(self, count: int) -> list[_Value]:
        popped = [value for value in self.stack[len(self.stack) - count :] if value is not None] if count else []
        if len(popped) < count:
            raise ValueError("it takes a value from an empty stack")
        if count:
            del self.stack[-count:]
        return popped

    def _pop_to_mark(self) -> list[_Value]:
        items: list[_Value] = []
        while self.stack:
            if (value := self.stack.pop()) is None:
                return items[::-1]
            items.append(value)
        raise ValueError("it closes a list that it has not opened")


def check_bounds(content: Any) -> None:
    """ValueError if reading the pickle would take too much memory, recursion or time.

    Args:
        content: the file, memory-mapped, at its start.
    """
    opcode, bounds = None, _Bounds(len(content))
    while opcode is None or opcode.name != "STOP":
        code = content.read(1).decode("latin1")
        opcode = _OPCODES.get(code)
        if opcode is None:
            raise ValueError(f"{code!r} is not an opcode" if code else "it ends early")
        argument = None
        if opcode.name == "STRING":
            content.readline()  # Python 2 wrote non-ASCII bytes, on which pickletools would fail
        elif opcode.arg is not None:
            argument = opcode.arg.reader(content)
            # pickle allocates memory for them before reading.
            if opcode.name in (*_PUTS, "FRAME") and argument > len(content):
                raise ValueError(f"{opcode.name} of {argument:,} in a file of {len(content):,} bytes")
        if opcode.name != "STOP":
            bounds.step(opcode, argument)
