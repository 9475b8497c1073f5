"""Expressions over whole numbers, by NumPy, piece by piece in the cache.

To have Polars run an expression takes fifty microseconds, however few the rows, and each of its functions passes over
all of them. Comparisons and sums of int64 columns without nulls need neither: here they give the same numbers, which
wrap around as Polars' do; nothing is filled where nothing is null, and what is compared with a float need not become
one. Everything else is left to Polars.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np

from gpu_ops.core.arrow_buffers import room
from gpu_ops.core.threads import in_parallel, parts
from gpu_ops.devices.cpu.series import Array

_PIECE = 1 << 15
"""Rows of a piece: its numbers, and those in between, stay in the cache."""

_FEW = 4
"""Of so many numbers each is compared by itself."""

_INT64 = np.iinfo(np.int64)


@dataclass(frozen=True)
class PlainNumbers:
    """An expression over columns of whole numbers without nulls.

    Attributes:
        read: The columns that it reads.
        wide: Those among them that are int64; the others may be of any signed type.
        dtype: The type of its values: int64, or bool.
    """

    read: frozenset[str]
    wide: frozenset[str]
    dtype: np.dtype[Any]
    _steps: tuple[tuple[Callable[..., Any], tuple[int, ...]], ...]
    _given: tuple[str | int, ...]

    def over(self, columns: Mapping[str, Array]) -> Array:
        """Its values.

        Args:
            columns: Columns of one length, those that it reads among them.

        Examples:
            >>> plain_numbers(nw.col("v") * 2 + 1).over({"v": np.array([3, 4])})
            array([7, 9])
        """
        first = columns[next(iter(self.read))]
        size = len(first)
        if not self._steps:
            return first
        if size <= _PIECE:
            return self._piece(columns, 0, size)
        made = room(size, self.dtype)

        def fill(part: tuple[int, int]) -> None:
            for low in range(*part, _PIECE):
                high = min(low + _PIECE, part[1])
                self._piece(columns, low, high, made[low:high])

        in_parallel(fill, parts(size))
        return made

    def _piece(self, columns: Mapping[str, Array], low: int, high: int, into: Array | None = None) -> Array:
        """The values of some rows, maybe in an array for them."""
        values: list[Any] = [each if isinstance(each, int) else columns[each][low:high] for each in self._given]
        *steps, (last, operands) = self._steps
        for function, others in steps:
            values.append(function(*[values[at] for at in others]))
        found: Array
        if into is not None and isinstance(last, np.ufunc):
            found = last(*[values[at] for at in operands], out=into)
            return found
        found = last(*[values[at] for at in operands])
        if into is not None:
            into[:] = found
        return found


def plain_numbers(expression: nw.Expr) -> PlainNumbers | None:
    """An expression, if it is one of these; None if it is not.

    Examples:
        >>> plain_numbers((nw.col("v") < 500) & (nw.col("v") != nw.col("w"))).dtype
        dtype('bool')
        >>> plain_numbers(nw.col("v") / 2), plain_numbers(nw.col("v") < 0.5)
        (None, None)
        >>> plain_numbers(nw.col("v").fill_null(0).is_in([1, 4])).over({"v": np.array([3, 4])})
        array([False,  True])
        >>> plain_numbers((nw.col("v").cast(nw.Int64) > 3).fill_null(False)).over({"v": np.array([3, 4])})
        array([False,  True])
    """
    steps = _Steps()
    try:
        last = steps.of(expression)
    except _NotPlainError:
        return None
    # Steps are numbered behind what is given, which is complete only now.
    count, given = len(steps.given), list(steps.given)
    numbers = {key: at for at, key in enumerate(given)} | {key: count + at for at, key in enumerate(steps.made)}
    functions = tuple((_FUNCTIONS[name], tuple(numbers[each] for each in keys)) for name, *keys in steps.made)
    if numbers[last] != count + len(functions) - 1:
        return None
    read = frozenset(key[1] for key in given if isinstance(key[1], str))
    # To be compared for being the same, a number need not be as wide as others.
    reading = [last, *(key for name, *keys in steps.made if name != "is_in" for key in keys)]
    wide = frozenset(key[1] for key in reading if key in steps.given) & read
    dtype = np.dtype(np.bool_ if steps.is_flag[last] else np.int64)
    return PlainNumbers(read, wide, dtype, functions, tuple(key[1] for key in given)) if read else None


class _NotPlainError(Exception):
    """An expression has a part that is not one of these."""


_Key = tuple[Any, ...]
"""What a step computes: the name of its function, and those of its operands; ``("given", name or number)``."""


def _is_in(numbers: Array, *among: int) -> Array:
    return functools.reduce(np.logical_or, [numbers == each for each in among])


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "__lt__": np.less,
    "__le__": np.less_equal,
    "__gt__": np.greater,
    "__ge__": np.greater_equal,
    "__eq__": np.equal,
    "__ne__": np.not_equal,
    "__add__": np.add,
    "__sub__": np.subtract,
    "__mul__": np.multiply,
    "__neg__": np.negative,
    "__and__": np.logical_and,
    "__or__": np.logical_or,
    "__invert__": np.logical_not,
    # NumPy's own remainder takes four times as long as its quotient.
    "__mod__": lambda number, by: number - number // by * by,
    "when_then": np.where,
    "is_in": _is_in,
}


class _Steps:
    """The steps of an expression, each once however often it stands there."""

    def __init__(self) -> None:
        self.given, self.made = dict[_Key, None](), dict[_Key, None]()
        self.is_flag = dict[_Key, bool]()

    def of(self, part: Any) -> _Key:
        """The key of a part.

        Raises:
            _NotPlainError: It has something else in it.
        """
        if isinstance(part, int) and not isinstance(part, bool) and _INT64.min <= part <= _INT64.max:
            return self._have(self.given, ("given", part), is_flag=False)
        if not isinstance(part, nw.Expr):
            raise _NotPlainError
        first, *rest = part._nodes  # noqa: SLF001  (as in gpu_ops.plan.terms)
        found = self._first(first)
        for node in rest:
            if found[0] == _AS_FLOAT:
                found = self._compared(found[1], node)
            elif node.name == "is_in":
                found = self._among(found, node.kwargs["other"])
            elif node.name == "fill_null":
                self._check_filled(found, node)
            elif node.name == "cast" and node.kwargs["dtype"] == nw.Float64:
                found = _AS_FLOAT, self._number(found)
            elif node.name == "cast":
                self._check_cast(found, node)
            elif node.name != "alias":
                found = self._applied(str(node.name), [found, *map(self.of, node.exprs)])
        if found[0] == _AS_FLOAT:
            raise _NotPlainError
        return found

    def _first(self, node: Any) -> _Key:
        if node.kind.name == "COL" and len(node.kwargs["names"]) == 1:
            return self._have(self.given, ("given", str(node.kwargs["names"][0])), is_flag=False)
        if node.kind.name == "LITERAL" and (node.kwargs["dtype"] is None or node.kwargs["dtype"] == nw.Int64):
            return self.of(node.kwargs["value"])
        if node.name in {"all_horizontal", "any_horizontal"}:
            found, *others = map(self.of, node.exprs)
            for other in others:
                found = self._applied("__and__" if node.name == "all_horizontal" else "__or__", [found, other])
            if self.is_flag[found]:
                return found
        if node.name == "when_then" and len(node.exprs) == 3:
            return self._applied("when_then", [self.of(each) for each in node.exprs])
        raise _NotPlainError

    def _among(self, found: _Key, values: Any) -> _Key:
        """Whether numbers are among a few."""
        if self.is_flag[found] or isinstance(found[1], int) or not isinstance(values, list | tuple):
            raise _NotPlainError
        if not 1 <= len(values) <= _FEW or any(isinstance(each, nw.Expr) for each in values):
            raise _NotPlainError
        return self._have(self.made, ("is_in", found, *map(self.of, values)), is_flag=True)

    def _check_filled(self, found: _Key, node: Any) -> None:
        """Refuse values in place of nulls, of which there are none, that would have the column be of another type."""
        value = node.exprs[0] if len(node.exprs) == 1 else None
        if not isinstance(value, int) or isinstance(value, bool) != self.is_flag[found] or node.kwargs["strategy"]:
            raise _NotPlainError
        if isinstance(found[1], int) or not _INT64.min <= value <= _INT64.max:
            raise _NotPlainError

    def _check_cast(self, found: _Key, node: Any) -> None:
        """Refuse casts but to the type that numbers have."""
        self._number(found)
        if node.kwargs["dtype"] != nw.Int64:
            raise _NotPlainError

    def _number(self, found: _Key) -> _Key:
        """What is a number of each row; nothing else has a cast here."""
        if self.is_flag[found] or isinstance(found[1], int):
            raise _NotPlainError
        return found

    def _compared(self, found: _Key, node: Any) -> _Key:
        """Whole numbers as floats beside a literal, which is between two of them or is one: they need not be floats."""
        bound = node.exprs[0] if node.name in _BOUNDS else None
        if isinstance(bound, nw.Expr):
            first, *rest = bound._nodes  # noqa: SLF001  (as in gpu_ops.plan.terms)
            is_plain = first.kind.name == "LITERAL" and not rest and first.kwargs["dtype"] in (None, nw.Float64)
            bound = first.kwargs["value"] if is_plain else None
        # Up to this bound each whole number is a float, and larger ones become none that are below it.
        if not isinstance(bound, int | float) or isinstance(bound, bool) or not abs(bound) < _EXACT:
            raise _NotPlainError
        return self._applied(str(node.name), [found, self.of(_BOUNDS[node.name](bound))])

    def _applied(self, name: str, keys: list[_Key]) -> _Key:
        if name in {"__radd__", "__rsub__", "__rmul__"}:
            name, keys = f"__{name[3:]}", keys[::-1]
        flags = [self.is_flag[each] for each in keys]
        said = [each[1] for each in keys if each[0] == "given" and isinstance(each[1], int)]
        # Of literals alone Polars makes narrower numbers.
        fits = _TAKES.get(name) == flags and (all(flags) or len(said) < flags.count(False))
        if name == "__mod__":
            fits = fits and keys[1][1] in said and keys[1][1] > 0
        if not fits:
            raise _NotPlainError
        return self._have(self.made, (name, *keys), is_flag=name in _FLAGS)

    def _have(self, among: dict[_Key, None], key: _Key, *, is_flag: bool) -> _Key:
        among.setdefault(key)
        self.is_flag[key] = is_flag
        return key


_AS_FLOAT = "as float"
"""The name of a number that is cast to a float."""

_BOUNDS: dict[str, Callable[[float], int]] = {
    "__lt__": math.ceil,
    "__le__": math.floor,
    "__gt__": math.floor,
    "__ge__": math.ceil,
}
"""For each comparison the whole number that does as well as a float."""

_EXACT = 1 << 53

_FLAGS = {"__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__", "__and__", "__or__", "__invert__"}
"""The functions whose values are flags."""

_TAKES = {
    **{name: [False, False] for name in _FUNCTIONS},
    "__neg__": [False],
    "__and__": [True, True],
    "__or__": [True, True],
    "__invert__": [True],
    "when_then": [True, False, False],
}
"""For each operand of a function whether it is a flag."""
