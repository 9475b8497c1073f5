"""The index of standing questions: for each row of a batch, those whose constants want it.

Constants stand in runs, each sorted once: by the key that equalities ask for, and within a key as ranges of integers
(`Kernels.pairs_holding`). A row finds its key, and its key's ranges that hold its value; what else is asked is asked of
these pairs alone. Questions that come make a new run; runs of like size become one, so each question is sorted a
logarithm of times. Those that go are left out of what is found, until they are many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.devices import Device
from gpu_ops.operators.events import Events
from gpu_ops.operators.operator import EachPiece, Operator
from gpu_ops.plan.nodes import Node
from gpu_ops.plan.standing import HOLDS, PASSES, InRange, StandingFilter

_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_PAIRS = 1 << 22
"""About how many pairs are made at once."""


@dataclass(frozen=True)
class _StandingRun:
    """Some questions, sorted.

    Attributes:
        constants: Their constants.
        slots: Host int32 slot of each, ascending.
        keys: The distinct keys, as a frame; None without equalities.
        question: The question of each entry, by its place here. A key's entries stand together, in order of slots.
        asking: int64 slot of the question of each entry.
        bounds: Where the entries of each key begin.
        low: The least code of the first range of each entry.
        high: The greatest one.
        by_low: As `Kernels.count_holding` takes it.
        by_high: Likewise.
        more: (low, high) of each entry for the other ranges.
    """

    constants: pa.Table
    slots: Any
    keys: Any
    question: Any
    asking: Any
    bounds: Any
    low: Any
    high: Any
    by_low: Any
    by_high: Any
    more: tuple[tuple[Any, Any], ...]


class StandingIndex:
    """Standing questions, by slots that ascend.

    Args:
        asked: What they ask.
        device: Where it computes.
    """

    def __init__(self, asked: StandingFilter, device: Device) -> None:
        self._asked, self._device = asked, device
        self._values = None if asked.values is None else _piecewise(asked.values, device)
        self._rest = None if asked.rest is None else _piecewise(asked.rest, device)
        self._runs: list[_StandingRun] = []
        self._new: list[tuple[pa.Table, Any]] = []
        self._gone, self._is_silent = 0, False
        self._there = self._asking = np.zeros(0, np.bool_)

    def add(self, constants: pa.Table, slots: Any) -> None:
        """Have questions.

        Args:
            constants: Their constants.
            slots: Host int32 slots, ascending, all above those that are there.
        """
        self._new.append((constants, slots))
        if len(slots) and int(slots[-1]) >= len(self._there):
            more = np.ones(max(int(slots[-1]) + 1, 2 * len(self._there)) - len(self._there), np.bool_)
            self._there, self._asking = (np.concatenate([each, more]) for each in (self._there, self._asking))

    def remove(self, slots: Sequence[int]) -> None:
        """Have some questions no more, which are there."""
        self._there[list(slots)] = self._asking[list(slots)] = False
        self._gone += len(slots)

    def silence(self, slots: Sequence[int]) -> None:
        """Have some questions that want no row any more."""
        self._asking[list(slots)] = False
        self._is_silent = True

    def questions(self) -> tuple[pa.Table, Any]:
        """(the constants of all that are there, their slots)."""
        parts = [*((run.constants, run.slots) for run in self._runs), *self._new]
        if not parts:
            return self._asked.constants.empty_table(), np.zeros(0, np.int32)
        return self._living(parts)

    def constants_of(self, slot: int) -> list[Any]:
        """The constants of one of them, as Python has them."""
        for table, slots in [*((run.constants, run.slots) for run in self._runs), *self._new]:
            at = int(np.searchsorted(slots, slot))
            if at < len(slots) and slots[at] == slot:
                return [column[at].as_py() for column in table.columns]
        raise KeyError(slot)

    def _living(self, parts: Sequence[tuple[pa.Table, Any]]) -> tuple[pa.Table, Any]:
        constants = pa.concat_tables([table for table, _ in parts]).combine_chunks()
        slots = np.concatenate([each for _, each in parts])
        there = self._there[slots]
        if there.all() or not constants.num_columns:
            slots = slots[there]
            return constants, slots
        return constants.take(np.flatnonzero(there)), slots[there]

    def matched(self, frame: Any, count: int) -> tuple[Any, Any]:
        """The pairs of rows and the questions that want them.

        Args:
            frame: The rows, on the device.
            count: How many there are.

        Returns:
            (int64 rows, int64 slots) in order of rows, then of slots.
        """
        self._settle()
        columns, kernels = self._device.columns, self._device.kernels
        none = columns.array(np.zeros(0, np.int64))
        if not count or not self._runs:
            return none, none
        start = columns.array(np.arange(count, dtype=np.int64))
        values = None if self._values is None else self._values.each(Events(start, 1, frame)).frame
        found = [_FoundKeys(each, *self._ranged(each, values, count)) for each in self._runs]
        counts = [
            kernels.count_holding(
                each.keys, each.values, each.run.bounds, each.run.low, each.run.high, each.run.by_low, each.run.by_high
            )
            for each in found
        ]
        made = []
        for low, upto in _pieces(columns.host(sum(counts[1:], counts[0]))):
            parts = [
                self._pairs(each, number[low:upto], low, upto, values)
                for each, number in zip(found, counts, strict=True)
            ]
            if len(parts) == 1:
                rows, slots = parts[0]
            else:
                rows, slots = (np.concatenate([part[at] for part in parts]) for at in (0, 1))
                order = np.argsort(rows, kind="stable")  # a later run has greater slots
                rows, slots = kernels.take(rows, order), kernels.take(slots, order)
            made.append((rows, slots))
        if len(made) == 1:
            return made[0]
        return np.concatenate([rows for rows, _ in made]), np.concatenate([slots for _, slots in made])

    def _pairs(self, found: _FoundKeys, counts: Any, low: int, upto: int, values: Any) -> tuple[Any, Any]:
        """The pairs of a run and some rows."""
        columns, kernels, run = self._device.columns, self._device.kernels, found.run
        keys, ranged = found.keys[low:upto], found.values[low:upto]
        rows, entries = kernels.pairs_holding(
            keys, ranged, run.bounds, run.low, run.high, run.by_low, run.by_high, counts
        )
        rows = rows + low if low else rows
        for (least, most), (of_rows, valid) in zip(run.more, found.more, strict=True):
            value = kernels.take(of_rows, rows)
            holds = (kernels.take(least, entries) <= value) & (value <= kernels.take(most, entries))
            if valid is not None:
                holds &= kernels.take(valid, rows)
            kept = kernels.keep(holds)
            rows, entries = kernels.take(rows, kept), kernels.take(entries, kept)
        slots = kernels.take(run.asking, entries)
        if self._gone or self._is_silent:
            kept = kernels.keep(kernels.take(columns.array(self._asking), slots))
            rows, slots, entries = (kernels.take(each, kept) for each in (rows, slots, entries))
        if self._rest is not None and len(rows):
            constants = columns.take(columns.from_arrow(run.constants), kernels.take(run.question, entries))
            frame = constants if values is None else columns.beside(columns.take(values, rows), constants)
            holds, valid = columns.values(self._rest.each(Events(rows, 1, frame)).frame, HOLDS)
            kept = kernels.keep((holds != 0) if valid is None else (holds != 0) & valid)
            rows, slots = kernels.take(rows, kept), kernels.take(slots, kept)
        return rows, slots

    def _ranged(self, run: _StandingRun, values: Any, count: int) -> tuple[Any, Any, list[tuple[Any, Any]]]:
        """(the key of each row, its code for the first range, codes and which are valid for the others)."""
        columns = self._device.columns
        keys = self._keyed(run, values, count)
        if values is not None and PASSES in values.columns:
            passes, valid = columns.values(values, PASSES)
            keys = np.where((passes != 0) if valid is None else (passes != 0) & valid, keys, np.int32(-1))
        codes = [_coded(self._device, values, each) for each in self._asked.between]
        if not codes:
            return keys, columns.array(np.zeros(count, np.int64)), []
        (first, valid), *more = codes
        return keys if valid is None else np.where(valid, keys, np.int32(-1)), first, more

    def _keyed(self, run: _StandingRun, values: Any, count: int) -> Any:
        """int32 key of each row; -1 where no question asks for it."""
        columns, kernels = self._device.columns, self._device.kernels
        if run.keys is None:
            return columns.array(np.zeros(count, np.int32))
        names = [each.value for each in self._asked.equal]
        known = columns.rows(run.keys)
        codes, groups, _ = columns.key_codes(columns.concat([columns.select(values, names), run.keys]), names)
        numbers = columns.array(np.full(groups, -1, np.int32))
        numbers[codes[count:]] = columns.array(np.arange(known, dtype=np.int32))
        return kernels.take(numbers, codes[:count].astype(np.int64))

    # Runs

    def _settle(self) -> None:
        """Sort the questions that have come, and those of runs of like size again."""
        new, self._new = self._new, []
        if self._gone and 2 * self._gone >= sum(len(run.slots) for run in self._runs):
            new = [(run.constants, run.slots) for run in self._runs] + new
            self._runs = []
        if not new:
            return
        size = sum(len(slots) for _, slots in new)
        while self._runs and len(self._runs[-1].slots) < 2 * size:
            last = self._runs.pop()
            new.insert(0, (last.constants, last.slots))
            size += len(last.slots)
        constants, slots = self._living(new)
        self._gone -= sum(len(each) for _, each in new) - len(slots)
        if len(slots):
            self._runs.append(self._sorted(constants, slots))

    def _sorted(self, constants: pa.Table, slots: Any) -> _StandingRun:
        columns = self._device.columns
        question, keys, codes = self._entries(constants, len(slots))
        ranges = []
        for each in self._asked.between:
            low, high, valid = _interval(self._device, constants, each)
            ranges.append((low[question], high[question], (valid & (low <= high))[question]))
        kept = np.logical_and.reduce([np.ones(len(question), np.bool_), *(valid for _, _, valid in ranges)])
        question, codes = question[kept], codes[kept]
        order = np.lexsort((question, codes))
        question, codes = question[order], codes[order]
        count = 1 if keys is None else columns.rows(keys)
        bounds = np.searchsorted(codes, np.arange(count + 1))
        sorted_ranges = [(low[kept][order], high[kept][order]) for low, high, _ in ranges]
        if not sorted_ranges:
            every = np.zeros(len(question), np.int64)
            sorted_ranges = [(every, every)]
        (low, high), *more = sorted_ranges
        to = columns.array
        return _StandingRun(
            constants,
            slots,
            keys,
            question=to(question.astype(np.int64)),
            asking=to(slots[question].astype(np.int64)),
            bounds=to(bounds.astype(np.int64)),
            low=to(low),
            high=to(high),
            by_low=to(np.lexsort((low, codes))),
            by_high=to(np.lexsort((~high, codes))),
            more=tuple((to(least), to(most)) for least, most in more),
        )

    def _entries(self, constants: pa.Table, count: int) -> tuple[Any, Any, Any]:
        """(the question of each entry, the distinct keys, the key of each entry): an entry for each key it asks for."""
        columns, equal = self._device.columns, self._asked.equal
        if not equal:
            return np.arange(count), None, np.zeros(count, np.int64)
        tables = []
        for options in product(*(each.options for each in equal)):
            chosen = zip(equal, options, strict=True)
            tables.append(pa.table({each.value: constants[name].cast(each.type) for each, name in chosen}))
        table = pa.concat_tables(tables).combine_chunks()
        question = np.tile(np.arange(count), len(tables))
        known = np.ones(len(table), np.bool_)
        for column in table.columns:
            known &= column.is_valid().to_numpy()
        table, question = table.take(np.flatnonzero(known)), question[known]
        frame = columns.from_arrow(table)
        codes, _, _ = columns.key_codes(frame, [each.value for each in equal])
        numbers = columns.host(codes).astype(np.int64)
        there, first, numbers = np.unique(numbers, return_index=True, return_inverse=True)
        keys = columns.take(frame, columns.array(first.astype(np.int64)))
        both = np.unique(numbers * max(count, 1) + question)  # an option may be said twice
        return both % max(count, 1), keys if len(there) else None, both // max(count, 1)


@dataclass(frozen=True)
class _FoundKeys:
    """A run, and what rows are to it: as `StandingIndex._ranged` gives it."""

    run: _StandingRun
    keys: Any
    values: Any
    more: list[tuple[Any, Any]]


def _piecewise(node: Node, device: Device) -> EachPiece:
    """The operator of a projection, which handles each piece of rows by itself."""
    operator = Operator.registered(node)
    assert operator is not None  # noqa: S101  (it is a projection)
    own = operator.of(node, device)
    assert isinstance(own, EachPiece)  # noqa: S101  (so it is)
    return own


def _pieces(counts: Any) -> Iterator[tuple[int, int]]:
    """(low, upto) of rows that make about `_PAIRS` pairs together."""
    sums, low = np.cumsum(counts), 0
    while low < len(counts):
        before = int(sums[low - 1]) if low else 0
        upto = max(low + 1, int(np.searchsorted(sums, before + _PAIRS, side="right")))
        yield low, upto
        low = upto


def _coded(device: Device, frame: Any, each: InRange) -> tuple[Any, Any]:
    """(the values of a column as int64 codes of the same order, which of them are numbers; None if all are)."""
    values, valid = device.columns.values(frame, each.value)
    if not pa.types.is_floating(each.type):
        return values.astype(np.int64, copy=False), valid
    values = values.astype(np.float64, copy=False)
    number = values == values  # noqa: PLR0124  (NaN is not)
    return device.kernels.order_float(values), number if valid is None else number & valid


def _interval(device: Device, constants: pa.Table, each: InRange) -> tuple[Any, Any, Any]:
    """(least and greatest code of each question, whether its constants are numbers), on the host."""
    count = len(constants)
    bounds, known = [], np.ones(count, np.bool_)
    for name in (each.low, each.high):
        if name:
            frame = device.columns.from_arrow(pa.table({each.value: constants[name].cast(each.type)}))
            codes, valid = _coded(device, frame, each)
            known &= np.ones(count, np.bool_) if valid is None else device.columns.host(valid)
            bounds.append(device.columns.host(codes))
        else:
            bounds.append(None)
    low, high = bounds
    if each.either and low is not None and high is not None:
        low, high = np.minimum(low, high), np.maximum(low, high)
    least = np.full(count, _LEAST) if low is None else low
    most = np.full(count, _MOST) if high is None else high
    if low is not None and not each.with_low:
        known, least = known & (least < _MOST), least + 1
    if high is not None and not each.with_high:
        known, most = known & (most > _LEAST), most - 1
    return least, most, known
