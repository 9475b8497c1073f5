"""Exact sums for aggregates of one or two columns: sums of powers and products, as integers of any length.

The numbers are lists of digits (`devices/array/digits.py`). Each sum is a part of a block: aggregates that need the
same one share it, and a running window updates it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa

from gpu_ops.operators.aggregates.block import Block, with_special
from gpu_ops.operators.aggregates.forms import PartName, input_names, nearest_floats
from gpu_ops.plan.aggregate_kinds import number_form
from gpu_ops.plan.aggregates import Aggregate

P = ParamSpec("P")
T = TypeVar("T")
Result = tuple[Any, Any | None, pa.DataType]
Digits = Sequence[Any]


def factors(part: PartName) -> list[PartName]:
    """The floats of whose limbs a part's limbs are products; a float is repeated as often as it is a factor."""
    kind, column, where = part
    if kind == "squares":
        return [("float", column, where)] * 2
    if kind == "moment":
        names, powers = json.loads(str(column))
        return [_digits_name(names, at, where) for at, power in enumerate(powers) for _ in range(power)]
    return [part]


def _digits_name(names: Sequence[str], at: int, where: str | None) -> PartName:
    return "digits", json.dumps([list(names), at]), where


def computed_once(function: Callable[Concatenate[Taken, P], T]) -> Callable[Concatenate[Taken, P], T]:
    """Let a function of some events compute its result once for all aggregates of these events.

    Its arguments are given by their places: they are part of the name under which the result is found again.
    """

    @wraps(function)
    def found(some: Taken, /, *args: P.args, **kwargs: P.kwargs) -> T:
        name = (function.__qualname__, args, some.names, some.which)
        return some.block.part(name, lambda: function(some, *args, **kwargs))

    return found


@dataclass(frozen=True)
class Taken:
    """The events of a block that take part in an aggregate of some columns: none of their values is null.

    Attributes:
        block: The block.
        names: The columns.
        types: Their types.
        which: The name of the other conditions under which events take part.
        indices: The indices of the events; None for all.
        first: First slot of each.
        last: One past its last slot.
        owner: The kind that owns the counts and totals, if it is declared outside of the package: it has own names.
    """

    block: Block
    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    which: str | None
    indices: Any | None
    first: Any
    last: Any
    owner: str = ""

    def arrays(self, at: int) -> list[Any]:
        """The values of a column, as numbers or words."""
        arrays = self.block.columns[self.names[at], number_form(self.types[at])].arrays
        if self.indices is None:
            return list(arrays)
        return [self.block.device.kernels.take(values, self.indices) for values in arrays]

    def floats(self, at: int) -> Any:
        """The values of a column, each as the nearest float64."""
        return nearest_floats(self.arrays(at), self.types[at], self.block.device)

    def name(self, kind: str, *more: Any) -> PartName:
        """The name of a part over these events."""
        return kind, json.dumps([list(self.names), *more]), self.which

    def count(self) -> Any:
        """How many of the events hold each slot."""
        name = self.name("count")
        return self.block.part(("counted", *name), lambda: self.block.count(name, self.first, self.last))

    def count_if(self, kind: str, mask: Any) -> Any:
        """How many of the events with a true mask hold each slot.

        Args:
            kind: A name under which a running window keeps the count; ask for it in each call.
            mask: One value for each event.
        """
        name = self.name("counted", self.owner, kind) if self.owner else self.name(kind)
        found = self.block.count_if(name, mask, self.first, self.last)
        return np.zeros_like(self.count()) if found is None else found

    def total(self, kind: str, values: Any) -> Any:
        """The exact sum of some floats in each slot, rounded once, with NaN and infinities as IEEE 754 adds them.

        Args:
            kind: A name under which a running window keeps the sum; ask for it in each call.
            values: float64, one for each event.
        """
        _, name, which = self.name("float", self.owner, kind)
        limbs, special = self.block.limbs_of((str(name), which), values, self.first, self.last)
        return with_special(self.block.device.kernels.round_limbs(*limbs), special)

    def sums(self, kind: str, limbs: Callable[[], Digits]) -> list[Any]:
        """The sums of numbers' limbs in each slot."""
        name = self.name(kind)
        return self.block.part(("summed", *name), lambda: self.block.sums(name, limbs(), self.first, self.last))

    @computed_once
    def strange(self) -> Any | None:
        """How many events of each slot have a value that is NaN or infinite; None if no event has one."""
        if not any(map(pa.types.is_floating, self.types)):
            return None
        mask = ~np.isfinite(self.floats(0))
        for at in range(1, len(self.names)):
            mask = mask | ~np.isfinite(self.floats(at))
        return self.block.count_if(self.name("strange"), mask, self.first, self.last)

    @computed_once
    def moment(self, *powers: int) -> tuple[Digits, int]:
        """(digits, exponent): per slot, the exact sum of the products of the columns' values to some powers.

        NaN and infinite values count as 0 (see `strange`), decimals as their unscaled integers.
        """
        chain = tuple(at for at, power in enumerate(powers) for _ in range(power))
        sums = self.block.sums(self.name("moment", powers), self._product(chain), self.first, self.last)
        return self.block.device.kernels.sum_digits([sums], [1]), sum(self.digits(at)[1] for at in chain)

    @computed_once
    def _product(self, chain: tuple[int, ...]) -> Digits:
        """Each event's product of the values of some columns."""
        if len(chain) == 1:
            return self.digits(chain[0])[0]
        half = len(chain) // 2
        return self.block.device.kernels.multiply_digits(self._product(chain[:half]), self._product(chain[half:]))

    @computed_once
    def digits(self, at: int) -> tuple[Digits, int]:
        """(digits, exponent) of a column's values."""
        kernels, dtype, arrays = self.block.device.kernels, self.types[at], self.arrays(at)
        if pa.types.is_decimal(dtype):
            return kernels.digits_decimal(*arrays), 0
        if pa.types.is_integer(dtype):
            whole = arrays[0] if dtype == pa.uint64() else arrays[0].astype(np.int64, copy=False)
            return kernels.digits_int(whole), 0
        values = self.floats(at)
        finite = values if self.strange() is None else np.where(np.isfinite(values), values, 0.0)
        plan = self.block.limb_plan(_digits_name(self.names, at, self.which), finite)
        return kernels.float_limbs(finite, *plan), plan[1]

    def times_ten(self, digits: Digits, places: int) -> Digits:
        """Numbers times a power of ten."""
        kernels, like = self.block.device.kernels, digits[0]
        for at in range(0, places, _PLACES):
            digits = kernels.multiply_digits(
                digits, kernels.digits_int(np.full_like(like, 10 ** min(_PLACES, places - at)))
            )
        return digits


_PLACES = 18
"""How many powers of ten an int64 holds."""


def taken(block: Block, aggregate: Aggregate) -> Taken:
    """The events that take part in an aggregate."""
    names = input_names(aggregate)
    types = tuple(block.schema.field(name).type for name in names)
    which = block.which(aggregate)

    def compute() -> tuple[Any, Any, Any]:
        if len(names) == 1:
            return block.selection(aggregate, number_form(types[0]))[1:]
        columns = [block.columns[name, number_form(dtype)] for name, dtype in zip(names, types, strict=True)]
        return block.taking_part(aggregate, columns)

    return Taken(block, names, types, which, *block.part(("taken", names, which), compute))


def as_float(values: Any, valid: Any) -> Result:
    """A result of floats, null where ``valid`` does not hold."""
    return values, None if bool(valid.all()) else valid, pa.float64()


def scale(some: Taken, at: int) -> int:
    """How many decimal places a column's unscaled integers have."""
    dtype = some.types[at]
    return int(dtype.scale) if pa.types.is_decimal(dtype) else 0
