"""A step of a running window: a block over the step's events, on top of totals of the events alive throughout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import integers, to_arrow
from gpu_ops.core.state_tables import Field, StateTable, counter
from gpu_ops.devices import Device
from gpu_ops.errors import PlanError
from gpu_ops.operators.aggregates.block import Block, Column, PartName, column_name
from gpu_ops.operators.aggregates.exact_sums import factors
from gpu_ops.operators.aggregates.selection import Extremum
from gpu_ops.operators.events import FEW, MANY
from gpu_ops.operators.row_order import greatest_by, run_starts, sums_by
from gpu_ops.operators.state.fields import table_of
from gpu_ops.operators.state.rows import AxisRows, grown, known_at
from gpu_ops.operators.windows.order_statistics import OrderStatistics
from gpu_ops.operators.windows.pareto_runs import CODES, ParetoRuns, pareto_run
from gpu_ops.operators.windows.value_counts import ValueCounts
from gpu_ops.plan.aggregates import Aggregate

_LIMB_BITS = {"float": 30, "reciprocal": 30, "digits": 26}
"""Bits of the limbs of floats in the state: 2**32 events can be alive at once without an overflow."""

_LOWEST, _HIGHEST = -1074, 1024
"""The exponents of float64."""

_MOST_LIMBS = 2 * ((_HIGHEST - _LOWEST) // 26 + 3)
"""The most limbs of a float or a product of two floats."""

_COUNTS = {"count", "counted", "nan", "inf", "-inf", "up", "down", "strange"}
"""Parts that are counts."""

_LIMBS = {"integer": 2, "decimal": 4}
"""The most limbs of parts whose limbs are fixed."""

_PLANS = {
    "kind": Field(pa.string(), words=tuple(_LIMB_BITS)),
    "column": Field(pa.string()),
    "where": Field(pa.string(), nullable=True),
    "lowest": Field(pa.int64(), least=_LOWEST - 30, most=_HIGHEST),
    "limbs": Field(pa.int64(), least=1, most=_MOST_LIMBS),
}
"""The columns of the table of plans."""

ROWS: PartName = ("count", None, None)


@dataclass
class Totals:
    """Sums over all live events, for each group.

    Attributes:
        limbs: int64 arrays by part; one for a count, one or more for a sum, the lowest limb first.
        plans: For floats: the exponent of the lowest limb, and the number of limbs.
    """

    limbs: dict[PartName, list[Any]] = field(default_factory=dict)
    plans: dict[PartName, tuple[int, int]] = field(default_factory=dict)

    def grow(self, like: Any, groups: int) -> None:
        """Make room for a number of groups."""
        for arrays in self.limbs.values():
            for at, values in enumerate(arrays):
                arrays[at] = grown(values, groups)
        if ROWS not in self.limbs:
            self.limbs[ROWS] = [grown(like[:0], groups)]

    def put(self, name: PartName, touched: Any, sums: Sequence[Any]) -> None:
        """Set the sums of some groups, the lowest limb first."""
        arrays = self.limbs.setdefault(name, [])
        arrays += [np.zeros_like(self.limbs[ROWS][0]) for _ in range(len(arrays), len(sums))]
        for values, some in zip(arrays, sums, strict=False):
            values[touched] = some

    def first_null(self, column: str) -> None:
        """Count the values of a column from now on; until now no value was null."""
        for (kind, of, where), arrays in list(self.limbs.items()):
            if kind == "count" and of is None and ("count", column, where) not in self.limbs:
                self.limbs["count", column, where] = [arrays[0].copy()]

    def widen(self, plans: Mapping[PartName, tuple[int, int]]) -> None:
        """Take new plans for some floats, on the same grid of exponents: parts get limbs below their lowest one."""
        for part, arrays in self.limbs.items():
            arrays[:0] = [np.zeros_like(arrays[0]) for _ in range(self.below(part, plans))]
        self.plans |= plans

    def below(self, part: PartName, plans: Mapping[PartName, tuple[int, int]]) -> int:
        """How many limbs below its lowest one a part gets with new plans."""
        # The exponents of factors add up in a product.
        known = (each for each in factors(part) if each in plans and each in self.plans)
        return sum((self.plans[each][0] - plans[each][0]) // _LIMB_BITS[each[0]] for each in known)

    def columns(self, numbers: Any, device: Device) -> dict[str, pa.Array]:
        """The sums of some groups, by int64 numbers."""
        return {
            stored(name[0], (*name[1:], str(at))): to_arrow(
                device.columns.host(known_at(values, numbers, device)), pa.int64()
            )
            for name, arrays in self.limbs.items()
            for at, values in enumerate(arrays)
        }

    def restore(self, table: pa.Table, device: Device) -> None:
        """Restore what `columns` gave; the table may have other columns."""
        for name in table.column_names:
            kind, *rest = name.split("/")
            if len(rest) == 3 and kind != "key":
                column, where = (text.replace("%2F", "/") or None for text in rest[:2])
                values = integers(table[name].combine_chunks())
                self.limbs.setdefault((kind, column, where), []).append(device.columns.array(values.copy()))

    @staticmethod
    def declared(names: Iterable[str], plans: Mapping[PartName, tuple[int, int]]) -> dict[str, Field]:
        """The columns that `columns` may have given: for each part all limbs from the lowest on.

        Args:
            names: The columns of the table.
            plans: The plans of floats.
        """
        made, found = {stored("count", (None, None, "0")): counter()}, Counter[PartName]()
        for name in names:
            kind, *rest = name.split("/")
            if len(rest) != 3 or kind in {"last", "key"}:
                continue
            column, where = (text.replace("%2F", "/") or None for text in rest[:2])
            part: PartName = (kind, column, where)
            planned = plans[part][1] if part in plans else len(plans) * _MOST_LIMBS + _MOST_LIMBS
            most = 1 if kind in _COUNTS else _LIMBS.get(kind, planned)
            if rest[2] != str(found[part]) or found[part] >= most or not _is_part(part):
                continue
            found[part] += 1
            made[name] = counter() if kind in _COUNTS else Field(pa.int64())
        return made

    def plan_table(self) -> pa.Table:
        """The plans, with a row for each."""
        return table_of(_PLANS, [(*name, *plan) for name, plan in self.plans.items()])

    @staticmethod
    def plans_declared() -> StateTable:
        """The table that `plan_table` gives."""
        return StateTable("floats", _PLANS, unique=("kind", "column", "where"))

    @staticmethod
    def plans_of(table: pa.Table) -> dict[PartName, tuple[int, int]]:
        """The plans that `plan_table` gave."""
        return {(row["kind"], row["column"], row["where"]): (row["lowest"], row["limbs"]) for row in table.to_pylist()}


def _is_part(part: PartName) -> bool:
    """Whether a part has a valid name."""
    try:
        return bool(factors(part))
    except (ValueError, TypeError, RecursionError):
        return False


def stored(kind: str, name: Iterable[str | None]) -> str:
    """The name of a table or column of the state."""
    return "/".join((kind, *("" if each is None else each.replace("/", "%2F") for each in name)))


def places_among(touched: Any, groups: int, device: Device) -> Callable[[Any], Any]:
    """A function from groups' numbers to their int32 places among the touched groups; -1 for other groups."""
    if len(touched) == groups:
        return lambda codes: codes
    if groups <= MANY * len(touched) + FEW:
        table = device.columns.array(np.full(groups, -1, np.int32))
        table[touched] = device.columns.array(np.arange(len(touched), dtype=np.int32))
        return lambda codes: table[codes]

    def found(codes: Any) -> Any:
        at = np.minimum(np.searchsorted(touched, codes), len(touched) - 1)
        return np.where(touched[at] == codes, at, -1).astype(np.int32)

    return found


@dataclass(frozen=True)
class StepSlots:
    """The slots of a step: for each group one before all its boundaries, those between them, one after the last.

    Attributes:
        all: The slots' numbers, ascending.
        group: int32 place among the step's groups of each slot's group.
        before: The index in ``all`` of each group's first slot.
        after: The index of its last slot.
        touched: int64 numbers of the groups.
        owners: int32 place of each boundary's group; a slot has the number of its first boundary.
    """

    all: Any
    group: Any
    before: Any
    after: Any
    touched: Any
    owners: Any


@dataclass
class RunningBlock(Block):
    """A block over a step's events, on top of totals of the events that were alive before it.

    Attributes:
        totals: The totals.
    """

    totals: Totals = None  # type: ignore[assignment]
    _plans: dict[PartName, tuple[int, int]] = field(default_factory=dict)
    _sums: dict[PartName, list[Any]] = field(default_factory=dict)

    def check_whole(self, aggregate: Aggregate) -> None:
        """Refuse it: of events that were alive before the step only totals are kept.

        Raises:
            PlanError: Always.
        """
        raise PlanError(
            f"Results of {aggregate.kind} ask for the events of windows, and its running window does not keep them.",
            remedy="Declare it incremental=Events() (docs/extending.md).",
        )

    def limb_plan(self, name: PartName, values: Any) -> tuple[int, int, int]:
        """A plan that includes the state, on one grid of exponents: a wider plan only adds limbs."""
        bits, known = _LIMB_BITS[name[0]], self._plans.get(name, self.totals.plans.get(name))
        if known is not None and not bool(values.any()):
            return bits, *known
        bits, lowest, limbs = self.device.kernels.limb_plan(values, 1 << (62 - bits))
        highest = lowest + limbs * bits
        lowest = (lowest - _LOWEST) // bits * bits + _LOWEST
        limbs = -(-(highest - lowest) // bits)
        if known is not None:
            above = max(lowest + limbs * bits, known[0] + known[1] * bits)
            lowest = min(lowest, known[0])
            limbs = (above - lowest) // bits
        self._plans[name] = lowest, limbs
        return bits, lowest, limbs

    def _remembers(self, name: PartName) -> bool:
        return name in self.totals.limbs

    def _all_finite(self, identity: tuple[str, str | None], values: Any) -> bool:
        return ("nan", *identity) not in self.totals.limbs and super()._all_finite(identity, values)

    def _integers(self, aggregate: Aggregate) -> tuple[list[Any], Any, Any, int]:
        _, (values,), first, last = self.picked(aggregate, "numbers")
        if values.dtype.itemsize < 8:
            return [values.astype(np.int64, copy=False)], first, last, (1 << 63) - 1
        whole = values if values.dtype == np.uint64 else values.astype(np.int64, copy=False)
        return list(self.device.kernels.exact_limbs_int(whole)), first, last, 1 << 64

    def squares_of(self, values: Any) -> Sequence[Any]:
        """The squares of integers, in as many limbs in each step."""
        return self.device.kernels.square_limbs_int(values)


@dataclass
class IncrementalBlock(RunningBlock):
    """A block over a step's events, on top of totals of the events that are alive throughout.

    Results read the state and do not change it. The changes are noted, and `update` applies them after all results are
    computed. Order statistics are the exception, since ranks are asked of the events that remain: `depart` removes the
    events that end in the step before any result is computed.

    Attributes:
        of_step: The step's slots.
        best: The part of the state's extremes that the step needs.
        events: The block's events.
        ended: How many of them began in earlier steps and end in this one; they come first.
        limit: The CTI's place.
        orders: The codes of the events that were alive, by column and condition.
        ordered: For each of them an aggregate that needs it.
        values: The values of the events that were alive, by column.
    """

    of_step: StepSlots = None  # type: ignore[assignment]
    best: dict[PartName, ExtremeCodes] = field(default_factory=dict)
    events: AxisRows = None  # type: ignore[assignment]
    ended: int = 0
    limit: int = 0
    orders: Mapping[PartName, OrderStatistics] = field(default_factory=dict)
    ordered: Mapping[PartName, Aggregate] = field(default_factory=dict)
    values: Mapping[str, ValueCounts] = field(default_factory=dict)
    _left: dict[PartName, AxisRows] = field(default_factory=dict)
    _came: dict[PartName, tuple[Any, Any]] = field(default_factory=dict)
    _counted: dict[tuple[str, str | None], tuple[Any, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kernels, slots = self.device.kernels, self.of_step
        counts = kernels.range_count(self.first, self.last, self.size, slots.all)
        rows = self._on_base(ROWS, [counts])[0]
        holds = rows > 0
        holds[slots.before] = False
        holds[slots.after] = False
        self._emitted = kernels.keep(holds)
        self.slots = kernels.take(slots.all, self._emitted)
        self.rows = kernels.take(rows, self._emitted)

    def depart(self) -> None:
        """Remove the events that end in the step from order statistics: the others are alive throughout."""
        for name, aggregate in self.ordered.items():
            at, gone, stays = self._moving(self.selection(aggregate, "numbers")[1])
            codes, groups = self.order_codes(self.picked(aggregate, "numbers")[1][0]), self.events.code
            groups = self.device.kernels.take(groups, at)
            self.orders[name].go(groups[gone], codes[gone])
            self._came[name] = groups[stays], codes[stays]

    def update(self) -> None:
        """Update the state to the events that are alive after the step."""
        self.totals.widen(self._plans)
        for part, sums in self._sums.items():
            self.totals.put(part, self.of_step.touched, sums)
        for part, rows in self._left.items():
            self.best[part].of.add(rows)
        for part, came in self._came.items():
            self.orders[part].come(*came)
        for (column, condition), (numbers, counts) in self._counted.items():
            self.values[column].put(condition, numbers, counts)

    def _moving(self, indices: Any | None) -> tuple[Any, Any, Any]:
        """(indices of some events, or of all; which of them began before the step and end in it; which stay alive)."""
        at = self.device.columns.array(np.arange(len(self.events))) if indices is None else indices
        gone = at < self.ended
        return at, gone, ~gone & (self.device.kernels.take(self.events.high, at) > self.limit)

    def _on_base(self, name: PartName, sums: Sequence[Any]) -> list[Any]:
        """Totals for each slot: the sums over the step's events plus the state's totals."""
        take, slots, known = self.device.kernels.take, self.of_step, self.totals.limbs.get(name, [])
        below = self.totals.below(name, self._plans) if known else 0
        made = []
        for at in range(max(len(sums), below + len(known))):
            there = below <= at < below + len(known)
            base = take(known[at - below], slots.touched) if there else np.zeros_like(slots.touched)
            if at < len(sums):
                base = base - take(sums[at], slots.before)
            total = take(base, slots.group)
            made.append(total + sums[at] if at < len(sums) else total)
        self._sums[name] = [take(total, slots.after) for total in made[: len(sums)]]
        return made

    def from_ranks(self, aggregate: Aggregate, distinct: Any, best: Any, valid: Any | None) -> Any:
        """Values by their rank, as a frame of one column."""
        # A foreign state may lack an event whose value is asked for: no index may leave the table.
        rows = self.device.columns.rows(distinct)
        return super().from_ranks(aggregate, distinct, np.clip(best, 0, max(rows - 1, 0)), valid)

    def _totals(self, name: PartName, of_step: Callable[[], list[Any]]) -> list[Any]:
        """Sums over the step's events and all that was alive, for each slot with a result; computed once."""

        def compute() -> list[Any]:
            return [self.device.kernels.take(total, self._emitted) for total in self._on_base(name, of_step())]

        return self.part(("total", *name), compute)

    def count(self, name: PartName, first: Any, last: Any) -> Any:
        """How many of all live events hold each slot."""
        count = self.device.kernels.range_count
        return self._totals(name, lambda: [count(first, last, self.size, self.of_step.all)])[0]

    def sums(self, name: PartName, limbs: Sequence[Any], first: Any, last: Any) -> list[Any]:
        """The sums over all live events for each slot."""
        total, slots = self.device.kernels.range_sum, self.of_step.all
        return self._totals(name, lambda: [total(limb, first, last, self.size, slots) for limb in limbs])

    def throughout(self, aggregate: Aggregate, form: str, slots: Any, k: Any) -> tuple[Any, Any, Any, Any] | None:
        """Values around a rank: a rank among all values differs from that in the state by at most the step's events."""
        kernels, of_step = self.device.kernels, self.of_step
        orders, first = self._ordered(aggregate), self.selection(aggregate, form)[2]
        group = self._group_of(slots)
        fresh = run_starts(group)
        asked, at = group[fresh], np.cumsum(fresh) - 1
        most, least = (greatest_by(at, each, len(asked), self.device) for each in (k, ~k))
        events = np.sort(self._group_of(first))
        count = np.searchsorted(events, asked, side="right") - np.searchsorted(events, asked)
        groups = kernels.take(of_step.touched, asked)
        there = orders.counts(groups)
        low = np.minimum(np.maximum(~least - count, 0), there)
        high = np.minimum(np.maximum(most + 1, low), there)
        query, codes = orders.between(groups.astype(np.int32), low, high)
        return codes, *self._whole_step(kernels.take(asked, query)), kernels.take(low, at)

    def _group_of(self, slots: Any) -> Any:
        """int64: which of the step's groups some slots belong to."""
        return self.device.kernels.take(self.of_step.owners, slots).astype(np.int64, copy=False)

    def _whole_step(self, group: Any) -> tuple[Any, Any]:
        """(first, last) slots of events that are alive throughout the step, in some of its groups."""
        take, slots = self.device.kernels.take, self.of_step
        return take(slots.all, take(slots.before, group)), take(slots.all, take(slots.after, group)) + 1

    def _ordered(self, aggregate: Aggregate) -> OrderStatistics:
        """The state's codes, without those of events that end in this step."""
        name: PartName = ("order", column_name(aggregate.expression), self.which(aggregate))
        if name not in self.orders:
            raise PlanError(
                f"Results of {aggregate.kind} ask for values by their order, and its running window keeps none.",
                remedy="Declare it incremental=Order(), Extreme() or Events() (docs/extending.md).",
            )
        return self.orders[name]

    def _once(self, aggregate: Aggregate) -> tuple[Any, Any, Any]:
        """Ranges of equal values; a value of the step's events that is alive throughout counts in every slot."""
        kernels = self.device.kernels
        name = column_name(aggregate.expression)
        column = self.columns[name, "codes"]
        at, gone, stays = self._moving(self.taking_part(aggregate, [column])[0])
        (numbers,) = column.arrays
        present, example, local = np.unique(kernels.take(numbers, at), return_index=True, return_inverse=True)
        went, came = (sums_by(local, each.astype(np.int64), len(present), self.device) for each in (gone, stays))
        there = self.values[name].there(self.which(aggregate), present) - went
        self._counted[name, self.which(aggregate)] = present, there + came
        lasting = kernels.keep(there > 0)
        owner = kernels.take(at, kernels.take(example, lasting))
        first, last = self._whole_step(self._group_of(kernels.take(self.first, owner)))
        events, first, last = kernels.merged_ranges(
            np.concatenate([local, lasting]),
            np.concatenate([kernels.take(self.first, at), first]),
            np.concatenate([kernels.take(self.last, at), last]),
        )
        return kernels.take(np.concatenate([at, owner]), events), first, last

    def greatest(self, aggregate: Aggregate, codes: Any, first: Any, last: Any) -> Any:
        """The greatest order code per slot, of the step's events and of the state's."""
        device, extreme = self.device, Extremum.of(aggregate, self.schema)
        name = extreme.name
        if name not in self.best:
            return self._greatest_in_order(extreme, codes, first, last)
        known = self.best[name]
        best = device.kernels.range_max(
            np.concatenate([codes, known.codes]),
            np.concatenate([first, known.first]),
            np.concatenate([last, known.last]),
            self.size,
            self.slots,
        )
        self._left[name] = self._left_of(extreme, codes)
        return best

    def _left_of(self, extreme: Extremum, codes: Any) -> AxisRows:
        """The events of the step that can still become an extreme after it."""
        device = self.device
        at, _, stays = self._moving(self.selection(extreme.aggregate, extreme.form)[1])
        staying = device.kernels.keep(stays)
        rows, order = self.events.take(at[staying], device), device.kernels.take(codes, staying)
        frame = None if not extreme.by_rank else device.columns.select(rows.frame, extreme.framed)
        rows = AxisRows(rows.code, rows.high, rows.high, {CODES: Column((order,), None)}, frame)
        touched = self.of_step.touched
        local = np.searchsorted(touched, rows.code).astype(np.int32)
        rows = rows.take(device.kernels.group_order(local, len(touched), rows.high), device)
        return pareto_run(rows, device)

    def _greatest_in_order(self, extreme: Extremum, codes: Any, first: Any, last: Any) -> Any:
        """The greatest code of the step's events and of the events in the state: one code for each group."""
        orders, touched = self._ordered(extreme.aggregate), self.of_step.touched
        there = orders.counts(touched)
        low = np.zeros_like(there) if extreme.least else np.maximum(there - 1, 0)
        group, known = orders.between(touched.astype(np.int32), low, np.minimum(low + 1, there))
        begin, end = self._whole_step(group)
        pieces = ((codes, extreme.turned(known)), (first, begin), (last, end))
        values, begins, ends = (np.concatenate(each) for each in pieces)
        return self.device.kernels.range_max(values, begins, ends, self.size, self.slots)


@dataclass(frozen=True)
class ExtremeCodes:
    """The part of an extreme's state that a step needs: order codes of some rows, and their slots in the step."""

    of: ParetoRuns
    codes: Any
    first: Any
    last: Any
