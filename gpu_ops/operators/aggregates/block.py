"""Aggregates over ranges of slots: kernels compute parts of columns, and results are computed of parts.

For one block of groups, an operator gives each event's range of slots ``[first, last)``. A kernel computes each part (a
count, an exact sum, an extreme) for all slots at once; aggregates that need the same part share it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from gpu_ops.core.time import format_time
from gpu_ops.core.types import counted
from gpu_ops.devices import Device
from gpu_ops.errors import FunctionError
from gpu_ops.operators.aggregates.forms import (
    Column,
    Columns,
    PartName,
    column_name,
    condition_holds,
    load_columns,
    order_codes,
)
from gpu_ops.plan.aggregates import Aggregate

__all__ = [
    "Block",
    "Column",
    "Columns",
    "PartName",
    "Places",
    "column_name",
    "condition_holds",
    "load_columns",
    "nan_if_special",
    "with_special",
]


T = TypeVar("T")


@dataclass(frozen=True)
class Places:
    """Where the windows of some slots are.

    Attributes:
        group: int32 group of each slot.
        start: int64 ticks at which its window begins.
        end: Ticks at which it ends.
        keys: A frame with row g for group g; None without a key.
        names: The key's columns.
    """

    group: Any
    start: Any
    end: Any
    keys: Any | None
    names: tuple[str, ...]


@dataclass
class Block:
    """The events of some groups with their ranges of slots, and the parts computed so far.

    Attributes:
        first: First slot of each event.
        last: One past its last slot.
        size: How many slots there are.
        columns: The events' columns, in the same order.
        schema: Their Arrow types.
        slots: The slots that have results, each of which holds an event; all that hold one if they are not given.
        places: Where these slots are in time; only some aggregates ask.
    """

    device: Device
    first: Any
    last: Any
    size: int
    columns: Columns
    schema: pa.Schema
    slots: Any = None
    places: Callable[[], Places] | None = None
    _memo: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kernels = self.device.kernels
        if self.slots is None:
            self.slots, self.rows = kernels.occupied(self.first, self.last, self.size)
        else:
            self.rows = kernels.range_count(self.first, self.last, self.size, self.slots)

    def shown(self, slot: int) -> str | None:
        """The window and the group of a slot, for an error; None if they are not known."""
        if self.places is None:
            return None
        places, columns = self.places(), self.device.columns
        times = [
            f"{name}={format_time(int(each[slot]))}" for name, each in (("start", places.start), ("end", places.end))
        ]
        if places.keys is None:
            return ", ".join(times)
        (values,) = columns.tuples(columns.take(places.keys, places.group[slot : slot + 1].astype(np.int64)))
        return ", ".join([*times, *(f"{name}={value!r}" for name, value in zip(places.names, values, strict=True))])

    def where_windows_are(self) -> Places:
        """Where the windows of the slots are; a block of an aggregate that asks for it always knows."""
        if self.places is None:
            raise AssertionError("an aggregate asks where windows are, and its block does not know it")
        return self.places()

    def count(self, name: PartName, first: Any, last: Any) -> Any:
        """How many of some events hold each slot; ``name`` names these events."""
        del name
        return self.device.kernels.range_count(first, last, self.size, self.slots)

    def sums(self, name: PartName, limbs: Sequence[Any], first: Any, last: Any) -> list[Any]:
        """The sums of each limb of some numbers per slot, modulo 2**64; ``name`` names these numbers."""
        del name
        return [self.device.kernels.range_sum(limb, first, last, self.size, self.slots) for limb in limbs]

    def part(self, name: Any, compute: Callable[[], T]) -> T:
        """A part, computed once for all aggregates that ask for it by its name."""
        if name not in self._memo:
            self._memo[name] = compute()
        made: T = self._memo[name]
        return made

    def check_whole(self, aggregate: Aggregate) -> None:
        """Refuse an aggregate that needs all events of its windows, if the block has only some of them."""

    # Which events take part

    def taking_part(self, aggregate: Aggregate, columns: Sequence[Column]) -> tuple[Any | None, Any, Any]:
        """(indices, first, last) of the events that take part: the condition holds, and no column is null.

        The indices are None if all events take part.
        """
        masks = [column.valid for column in columns if column.valid is not None]
        if aggregate.filter is not None:
            masks.append(condition_holds(self.columns, column_name(aggregate.filter)))
        if not masks:
            return None, self.first, self.last
        indices, take = self.device.kernels.keep(reduce(and_, masks)), self.device.kernels.take
        return indices, take(self.first, indices), take(self.last, indices)

    def selection(self, aggregate: Aggregate, form: str | None) -> tuple[tuple[str | None, str | None], Any, Any, Any]:
        """((nullable column, filter), indices or None, first, last) of the events that take part."""
        given = None if aggregate.expression is None or form is None else column_name(aggregate.expression)
        if given is not None and self.columns[given, str(form)].valid is None and not aggregate.distinct:
            given = None
        identity = (given, self.which(aggregate))

        def compute() -> tuple[Any, Any, Any]:
            if aggregate.distinct:
                return self._once(aggregate)
            return self.taking_part(aggregate, [] if given is None else [self.columns[given, str(form)]])

        return identity, *self.part(("selection", identity), compute)

    @staticmethod
    def which(aggregate: Aggregate) -> str | None:
        """A name for the events that take part: the condition, and whether equal values count once."""
        where = None if aggregate.filter is None else column_name(aggregate.filter)
        return f"{where or ''}\0distinct" if aggregate.distinct else where

    def _once(self, aggregate: Aggregate) -> tuple[Any, Any, Any]:
        """One event for each stretch of slots that is covered by participating events of one value."""
        kernels, column = self.device.kernels, self.columns[column_name(aggregate.expression), "codes"]
        at, first, last = self.taking_part(aggregate, [column])
        codes = column.arrays[0] if at is None else kernels.take(column.arrays[0], at)
        events, first, last = kernels.merged_ranges(codes, first, last)
        return events if at is None else kernels.take(at, events), first, last

    # Parts

    def counts(self, aggregate: Aggregate, form: str | None) -> Any:
        """How many events take part in each slot."""
        identity, indices, first, last = self.selection(aggregate, form)
        if indices is None:
            return self.rows
        name: PartName = ("count", *identity)
        return self.part(name, lambda: self.count(name, first, last))

    def picked(self, aggregate: Aggregate, form: str) -> tuple[tuple[str, str | None], list[Any], Any, Any]:
        """((column, filter), arrays, first, last) of the values that take part."""
        _, indices, first, last = self.selection(aggregate, form)
        name = column_name(aggregate.expression)
        arrays = list(self.columns[name, form].arrays)
        if indices is not None:
            arrays = [self.device.kernels.take(values, indices) for values in arrays]
        return (name, self.which(aggregate)), arrays, first, last

    def throughout(self, aggregate: Aggregate, form: str, slots: Any, k: Any) -> tuple[Any, Any, Any, Any] | None:
        """In a running window: the values alive throughout a step that may be the k-th value of some slots.

        Returns:
            (order codes, first slots, last slots; for each slot asked for, how many values come before them); None of a
            block that has all its events.
        """
        del aggregate, form, slots, k
        return None

    def limb_plan(self, name: PartName, values: Any) -> tuple[int, int, int]:
        """How to cut floats into limbs: (bits, lowest exponent, limbs); ``name`` names these floats."""
        # Digits have as many bits as allow for products of two.
        count = 1 << 36 if name[0] == "digits" else len(values)
        return self.device.kernels.limb_plan(values, count)

    def _remembers(self, name: PartName) -> bool:
        """Whether the state has a count of this name: then each step updates it, also without new events."""
        del name
        return False

    def count_if(self, name: PartName, mask: Any, first: Any, last: Any) -> Any | None:
        """How many events with a true mask hold each slot; None if the mask was never true."""

        def compute() -> Any | None:
            if not self._remembers(name) and not bool(mask.any()):
                return None
            at = self.device.kernels.keep(mask)
            return self.count(name, self.device.kernels.take(first, at), self.device.kernels.take(last, at))

        return self.part(("if", *name), compute)

    def limbs(self, name: PartName, values: Any, first: Any, last: Any) -> tuple[list[Any], int, int]:
        """Exact sums of finite floats: limb sums per slot, bits per limb, exponent of the lowest."""
        bits, lowest, limbs = self.limb_plan(name, values)
        split = self.device.kernels.float_limbs(values, bits, lowest, limbs)
        return self.sums(name, split, first, last), bits, lowest

    # Aggregates

    def results(self, aggregates: Sequence[Aggregate]) -> Any:
        """A frame with one row per non-empty slot and one column per aggregate."""
        columns: dict[str, Any] = {}
        frames: list[Any] = []
        for aggregate in aggregates:
            made = aggregate.kind.result(self, aggregate)
            if isinstance(made, tuple):
                self._check(made, aggregate)
                columns[aggregate.name] = made
            elif hasattr(made, "columns"):
                frames.append(made)
            else:
                raise self._unfit(aggregate, type(made).__name__)
        if columns:
            frames.insert(0, self.device.columns.build(columns))
        return self.device.columns.select(self.device.columns.beside(*frames), [each.name for each in aggregates])

    def _check(self, made: tuple[Any, ...], aggregate: Aggregate) -> None:
        """Refuse results of a user's kind that are not one for each slot."""
        wanted = self.slots.shape
        for each in made[:2]:
            found = getattr(each, "shape", None)
            if each is not None and found != wanted:
                raise self._unfit(aggregate, f"{type(each).__name__} of shape {found}")

    def _unfit(self, aggregate: Aggregate, found: str) -> FunctionError:
        return FunctionError(
            f"The results of {aggregate.kind} do not fit its windows: {found}, for {len(self.slots)} windows.",
            column=aggregate.name,
            remedy="Give one result for each window, as extend.as_float(values, valid) makes them (docs/extending.md).",
        )

    def type_of(self, aggregate: Aggregate) -> pa.DataType:
        """The Arrow type of an aggregate's values."""
        return self.schema.field(column_name(aggregate.expression)).type

    def present(self, aggregate: Aggregate, form: str) -> Any | None:
        """Which slots have a value of an aggregate; None if all slots have one."""
        if self.takes_all(aggregate, form):
            return None
        present = self.counts(aggregate, form) > 0
        return None if bool(present.all()) else present

    def takes_all(self, aggregate: Aggregate, form: str) -> bool:
        """Whether all events take part in an aggregate."""
        return self.selection(aggregate, form)[1] is None

    def _integers(self, aggregate: Aggregate) -> tuple[list[Any], Any, Any, int]:
        """(one array if its sums cannot overflow, else low and high limbs; first, last, a bound of all sums)."""
        _, (values,), first, last = self.picked(aggregate, "numbers")
        if values.dtype == np.uint64 and len(values):
            return list(self.device.kernels.exact_limbs_int(values)), first, last, 1 << 64
        whole = values.astype(np.int64, copy=False)
        most = max(abs(int(values.min())), abs(int(values.max()))) * len(values) if len(values) else 0
        if most < 1 << 63:
            return [whole], first, last, most
        return list(self.device.kernels.exact_limbs_int(whole)), first, last, most

    def squares_of(self, values: Any) -> Sequence[Any]:
        """The squares of integers: one array if its sums cannot overflow, else limbs."""
        most = max(abs(int(values.min())), abs(int(values.max()))) if len(values) else 0
        if most * most * len(values) < 1 << 63:
            whole = values.astype(np.int64, copy=False)
            return [whole * whole]
        return self.device.kernels.square_limbs_int(values)

    def integer_sums(self, aggregate: Aggregate) -> tuple[list[Any], int]:
        """(the sums' limbs, a bound of all sums): from 2**63 on there are two limbs."""
        name: PartName = ("integer", column_name(aggregate.expression), self.which(aggregate))

        def compute() -> tuple[list[Any], int]:
            limbs, first, last, most = self._integers(aggregate)
            return self.sums(name, limbs, first, last), most

        return self.part(name, compute)

    def special(
        self, identity: tuple[str, str | None], values: Any, first: Any, last: Any
    ) -> tuple[Any, Any, Any] | None:
        """How many values of each slot are NaN, +inf and -inf; None if all values are finite."""

        def count(kind: str, mask: Any) -> Any:
            at, kernels = self.device.kernels.keep(mask), self.device.kernels
            return self.count((kind, *identity), kernels.take(first, at), kernels.take(last, at))

        def compute() -> tuple[Any, Any, Any] | None:
            if self._all_finite(identity, values):
                return None
            return count("nan", np.isnan(values)), count("inf", values == np.inf), count("-inf", values == -np.inf)

        return self.part(("special", *identity), compute)

    def finite(
        self, identity: tuple[str, str | None], values: Any, first: Any, last: Any
    ) -> tuple[Any, tuple[Any, Any, Any] | None]:
        """(floats with 0 in place of NaN and infinities; their `special`)."""
        special = self.special(identity, values, first, last)
        return values if special is None else np.where(np.isfinite(values), values, 0.0), special

    def _all_finite(self, identity: tuple[str, str | None], values: Any) -> bool:
        del identity
        return bool(np.isfinite(values).all())

    def float_limbs(self, aggregate: Aggregate) -> tuple[tuple[list[Any], int, int], tuple[Any, Any, Any] | None]:
        """`limbs_of` an aggregate's values."""
        identity, (values,), first, last = self.picked(aggregate, "numbers")
        return self.limbs_of(identity, values.astype(np.float64, copy=False), first, last)

    def limbs_of(
        self, identity: tuple[str, str | None], values: Any, first: Any, last: Any
    ) -> tuple[tuple[list[Any], int, int], tuple[Any, Any, Any] | None]:
        """(`limbs` of the finite ones of some floats, `special` of the others)."""

        def compute() -> tuple[tuple[list[Any], int, int], tuple[Any, Any, Any] | None]:
            finite, special = self.finite(identity, values, first, last)
            return self.limbs(("float", *identity), finite, first, last), special

        return self.part(("float limbs", *identity), compute)

    def float_sum(self, aggregate: Aggregate) -> Any:
        """The correctly rounded sum per slot, with NaN and infinities as IEEE 754 adds them."""
        limbs, special = self.float_limbs(aggregate)
        return with_special(self.device.kernels.round_limbs(*limbs), special)

    def decimal_sums(self, aggregate: Aggregate) -> list[Any]:
        """The sums of decimals, as limbs of 32 bits."""
        identity, (low, high), first, last = self.picked(aggregate, "words")

        def compute() -> list[Any]:
            limbs = self.device.kernels.exact_limbs_decimal(low, high)
            return self.sums(("decimal", *identity), limbs, first, last)

        return self.part(("decimal", *identity), compute)

    def over(self, aggregate: Aggregate, counts: Any) -> Any:
        """The exact sums over some counts, of at least 1: each quotient is rounded once."""
        dtype, kernels = self.type_of(aggregate), self.device.kernels
        if pa.types.is_floating(dtype):
            (sums, bits, lowest), special = self.float_limbs(aggregate)
            return with_special(kernels.mean_limbs(sums, counts, bits, lowest), special)
        if pa.types.is_decimal(dtype):
            return kernels.mean_limbs(self.decimal_sums(aggregate), counts, 32, 0, dtype.scale)
        sums, most = self.integer_sums(aggregate)
        return kernels.quotient(sums[0], counts) if most <= 1 << 53 else kernels.mean_limbs(sums, counts, 32, 0)

    def greatest(self, aggregate: Aggregate, codes: Any, first: Any, last: Any) -> Any:
        """The greatest of the events' order codes in each slot."""
        del aggregate
        return self.device.kernels.range_max(codes, first, last, self.size, self.slots)

    def order_codes(self, values: Any) -> Any:
        """int64 numbers in the order of the values."""
        return order_codes(values, self.device)

    def of_codes(self, aggregate: Aggregate, form: str, codes: Any, valid: Any | None) -> Any:
        """Values of an aggregate's column by their order codes."""
        column = self.columns[column_name(aggregate.expression), form]
        if column.distinct is not None:
            return self.from_ranks(aggregate, column.distinct, codes, valid)
        if column.arrays[0].dtype.kind == "f":
            codes = self.device.kernels.unorder_float(codes)
        elif column.arrays[0].dtype == np.uint64:
            codes = codes.view(np.uint64) ^ np.uint64(1 << 63)
        return codes, valid, counted(self.type_of(aggregate))

    def from_ranks(self, aggregate: Aggregate, distinct: Any, best: Any, valid: Any | None) -> Any:
        """Values by their rank, as a frame of one column."""
        columns = self.device.columns
        source = column_name(aggregate.expression)
        if not columns.rows(distinct):
            return columns.rename(columns.nulls(distinct, len(best)), source, aggregate.name)
        return columns.rename(columns.null_where(columns.take(distinct, best), valid), source, aggregate.name)


def nan_if_special(values: Any, special: tuple[Any, Any, Any] | None) -> Any:
    """Values per slot, NaN where any of the slot's values is NaN or infinite."""
    if special is None:
        return values
    nan, plus, minus = special
    return np.where((nan > 0) | (plus > 0) | (minus > 0), np.nan, values)


def with_special(values: Any, special: tuple[Any, Any, Any] | None) -> Any:
    """Sums or means of finite values, corrected as IEEE 754 adds them by the counts of NaN, +inf and -inf per slot."""
    if special is None:
        return values
    nan, plus, minus = special
    values = np.where(plus > 0, np.inf, np.where(minus > 0, -np.inf, values))
    return np.where((nan > 0) | ((plus > 0) & (minus > 0)), np.nan, values)
