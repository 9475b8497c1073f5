"""Windows by a condition on what is in them: which rows are in when a row comes depends on those that were in before.

For a group the oldest row ``o`` and the newest row ``n`` say what is in. The condition is computed for a block of pairs
(o, n) at a time, of many groups at once, and a kernel walks through it: one step to the next newest row where the
condition holds, one to the next oldest where it does not. So a row costs as many evaluations as a block is wide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from gpu_ops.devices import Device
from gpu_ops.operators.data_windows import STAYS, UNKNOWN, Held, Stay
from gpu_ops.plan.expressions import exact_divisions
from gpu_ops.plan.window_conditions import COUNT, OLDEST, SUM, Until, While, spoken
from gpu_ops.time import TICK, TIME_TYPE

_CELLS = 1 << 20
"""So many pairs are looked at together."""

_WIDEST, _NARROWEST = 64, 8

WALK_WHILE, WALK_UNTIL, WALK_BEFORE = 0, 1, 2
"""How `window_walk` goes on: rows leave one by one; batches with the row that ends them; batches without it."""


def keep_while(window: While, held: Held, device: Device) -> Stay:
    """When each row is in a window that the oldest leave until a condition holds."""
    begins = held.bounds[:-1]
    left = _walked(window.condition, WALK_WHILE, held, begins, _fresh(held, device), device)
    gone = left >= 0
    leave = np.where(gone, held.start[np.where(gone, left, 0)], UNKNOWN)
    return Stay(held.start, leave, held.index, left)


def batches_until(window: Until, held: Held, device: Device) -> Stay:
    """When each row is in a batch: from the row that ends its own to the one that ends the next."""
    mode = WALK_UNTIL if window.include_trigger else WALK_BEFORE
    # Rows of the batch that is out come first; those of the one that gathers have not entered yet.
    out = np.concatenate([np.zeros_like(held.bounds[:1]), np.cumsum(held.enter != UNKNOWN)])
    begins = held.bounds[:-1] + out[held.bounds[1:]] - out[held.bounds[:-1]]
    ends = _walked(window.condition, mode, held, begins, np.maximum(begins, _fresh(held, device)), device)
    gathers = held.enter == UNKNOWN
    # A batch that is complete is followed by one that begins with the row that completed it, or the one after that.
    complete = ends[device.kernels.keep(ends >= 0)]
    opens = np.unique(np.concatenate([begins, complete + (1 if mode == WALK_UNTIL else 0), [len(held)]]))
    batch = np.searchsorted(opens, held.index, side="right") - 1
    first = np.where(gathers, opens[np.maximum(batch, 0)], 0)
    entered = np.where(gathers, ends[first], -1)
    # A row leaves when the batch after its own is complete; after one that is out already, when the first one is.
    after = np.where(gathers, opens[np.minimum(batch + 1, len(opens) - 1)], begins[held.code])
    known = (after < held.bounds[held.code + 1]) & (~gathers | (entered >= 0))
    left = np.where(known, ends[np.where(known, after, 0)], -1)
    return Stay(np.where(gathers, _times(held, entered), held.enter), _times(held, left), entered, left)


def _times(held: Held, rows: Any) -> Any:
    return np.where(rows >= 0, held.start[np.maximum(rows, 0)], UNKNOWN)


def _fresh(held: Held, device: Device) -> Any:
    """int64 index of each group's first row that has just come."""
    groups = np.arange(len(held.bounds) - 1, like=held.start).astype(np.int32)
    return device.kernels.search_pairs(held.code, held.number, groups, held.before - 1)


def _walked(condition: nw.Expr, mode: int, held: Held, oldest: Any, newest: Any, device: Device) -> Any:
    """For each row the index of the row with which it leaves, or that ends the batch which it begins; -1 for none."""
    pairs = _Pairs(condition, held, device)
    left = np.full_like(held.start, -1)
    oldest, newest = oldest.copy(), newest.copy()
    ends = held.bounds[1:]
    while True:
        active = device.kernels.keep(newest < ends)
        if not len(active):
            return left
        width = int(min(_WIDEST, max(_NARROWEST, (_CELLS // len(active)) ** 0.5)))
        for low in range(0, len(active), max(1, _CELLS // (width * width))):
            groups = active[low : low + max(1, _CELLS // (width * width))]
            first, last, end = oldest[groups], newest[groups], ends[groups]
            holds = pairs.hold(first, last, end, width)
            oldest[groups], newest[groups], gone, by = device.kernels.window_walk(holds, width, first, last, end, mode)
            left[gone] = by


class _Pairs:
    """A condition, to be computed for pairs of an oldest and a newest row."""

    def __init__(self, condition: nw.Expr, held: Held, device: Device) -> None:
        self._held, self._device = held, device
        schema = held.schema
        (self._condition,) = exact_divisions([condition], _read_schema(schema, condition))
        self._read = spoken(schema, condition)
        self._sums: dict[str, Callable[[Any, Any], Any]] = {
            column: _range_sums(held, column, schema.field(column).type, device)
            for part, column in self._read.values()
            if part == SUM
        }
        self._schema = schema

    def hold(self, oldest: Any, newest: Any, ends: Any, width: int) -> Any:
        """bool: for each group ``width * width`` pairs, the oldest row by row; False for those that there are not."""
        device = self._device
        steps = np.arange(width, like=oldest)
        one = (oldest[:, None, None] + steps[None, :, None] + 0 * steps[None, None, :]).reshape(-1)
        other = (newest[:, None, None] + 0 * steps[None, :, None] + steps[None, None, :]).reshape(-1)
        end = np.repeat(ends, width * width)
        at = device.kernels.keep((one <= other) & (other < end))
        found = np.zeros_like(one, dtype=np.bool_)
        found[at] = self._holds(one[at], other[at])
        return found

    def _holds(self, oldest: Any, newest: Any) -> Any:
        device, held = self._device, self._held
        columns, take = device.columns, device.kernels.take
        frames, built = [], {}
        for name, (part, column) in self._read.items():
            if part == COUNT:
                built[name] = (newest - oldest + 1, None, pa.int64())
            elif part == SUM:
                built[name] = self._sums[column](oldest, newest)
            else:
                rows = oldest if part == OLDEST else newest
                if column == "start" and column not in self._schema.names:
                    built[name] = (take(held.start, rows), None, TIME_TYPE)
                else:
                    frames.append(
                        columns.rename(columns.take(columns.select(held.frame, [column]), rows), column, name)
                    )
        if built:
            frames.append(columns.build(built))
        frame = frames[0]
        for more in frames[1:]:
            frame = columns.beside(frame, more)

        def step(lazy: Any) -> Any:
            return lazy.select(nw.col("start"), nw.col("end"), __holds=self._condition)

        _, _, made = columns.evaluate(take(held.start, newest), TICK, frame, [step])
        values, valid = columns.values(made, "__holds")
        holds = values != 0
        return holds if valid is None else holds & valid


def _read_schema(schema: pa.Schema, condition: nw.Expr) -> pa.Schema:
    fields = []
    for name, (part, column) in spoken(schema, condition).items():
        if part == COUNT:
            fields.append(pa.field(name, pa.int64()))
        elif part == SUM:
            fields.append(pa.field(name, _sum_type(schema.field(column).type)))
        elif column in schema.names:
            fields.append(pa.field(name, schema.field(column).type))
        else:
            fields.append(pa.field(name, TIME_TYPE))
    return pa.schema(fields)


def _sum_type(dtype: pa.DataType) -> pa.DataType:
    return pa.float64() if pa.types.is_floating(dtype) else pa.int64()


def _range_sums(held: Held, column: str, dtype: pa.DataType, device: Device) -> Callable[[Any, Any], Any]:
    """From (oldest, newest) to (exact sums of a column from the one to the other, where there are any, their type)."""
    kernels = device.kernels
    values, valid = device.columns.values(held.frame, column)
    present = np.ones_like(values, dtype=np.bool_) if valid is None else valid

    def running(numbers: Any) -> Any:
        return np.concatenate([np.zeros_like(held.start[:1]), np.cumsum(numbers.astype(np.int64))])

    counts = running(present)

    def between(sums: Any, oldest: Any, newest: Any) -> Any:
        return sums[newest + 1] - sums[oldest]

    if not pa.types.is_floating(dtype):
        whole = running(np.where(present, values, 0))
        return lambda o, n: (between(whole, o, n), between(counts, o, n) > 0, pa.int64())
    numbers = np.where(present, values, 0.0).astype(np.float64)
    finite = np.isfinite(numbers)
    odd = [running(mask) for mask in (np.isnan(numbers), numbers == np.inf, numbers == -np.inf)]
    tame = np.where(finite, numbers, 0.0)
    bits, lowest, limbs = kernels.limb_plan(tame, max(1, len(tame)))
    parts = [running(limb) for limb in kernels.float_limbs(tame, bits, lowest, limbs)]

    def floats(oldest: Any, newest: Any) -> Any:
        total = kernels.round_limbs([between(part, oldest, newest) for part in parts], bits, lowest)
        nan, plus, minus = (between(each, oldest, newest) > 0 for each in odd)
        total = np.where(plus, np.inf, np.where(minus, -np.inf, total))
        total = np.where(nan | (plus & minus), np.nan, total)
        return total, between(counts, oldest, newest) > 0, pa.float64()

    return floats


STAYS.update({While: keep_while, Until: batches_until})
