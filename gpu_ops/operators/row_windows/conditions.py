"""Windows by a condition on their content: the rows in a window depend on the rows that were in it before.

The oldest row ``o`` and the newest row ``n`` say which rows of a group are in. Each step goes on to the next oldest or
the next newest row, as the condition decides. There are two ways to compute the walk, both for many groups at once:

- A guess of the whole way, as if the condition changed but once along each line: by binary search, some ten evaluations
  a row. Then the condition is computed for all pairs that lie on it. The first that is not as expected says where the
  guess goes wrong, and everything before it is the way.
- Where guesses lead nowhere, or few rows are left: the condition is computed for a block of pairs, and a kernel walks
  through it. So a row costs as many evaluations as a block is wide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from gpu_ops.core.time import TICK, TIME_TYPE
from gpu_ops.devices import Device
from gpu_ops.errors import IntegerOverflowError, SumOverflowError
from gpu_ops.operators.aggregates.block import with_special
from gpu_ops.operators.checked import holds
from gpu_ops.operators.events import Events
from gpu_ops.operators.row_windows.data_windows import assigns, gathering_begins, index_of
from gpu_ops.plan.expressions import exact_divisions, guards
from gpu_ops.plan.window_conditions import COUNT, OLDEST, SUM, Until, While, condition_fields, spoken
from gpu_ops.plan.window_kinds import UNKNOWN, Membership, WindowRows

_CELLS = 1 << 20
"""Pairs that are computed at a time."""

_WIDEST, _NARROWEST = 64, 8

_MOST_ROWS, _MOST_GROUPS, _FEWEST_ROWS, _STRIDE = 1 << 18, 1 << 8, 1 << 10, 32
"""A guess takes at most this many rows of this many groups; it pays if it leads past `_FEWEST_ROWS`. The binary search
looks at one row of each stride before those between."""

WALK_WHILE, WALK_UNTIL, WALK_BEFORE = 0, 1, 2
"""The modes of `window_walk`: rows leave one by one; batches with the row that ends them; batches without it."""


@assigns(While)
def keep_while(window: While, held: WindowRows, device: Device) -> Membership:
    """When each row is in a window that the oldest leave until a condition holds."""
    begins = held.bounds[:-1]
    left = _walked(window.condition, WALK_WHILE, held, begins, _fresh(held, device), device)
    gone = left >= 0
    leave = np.where(gone, held.start[np.where(gone, left, 0)], UNKNOWN)
    if window.refused == "shown":
        leave = np.where(left == index_of(held), held.start + TICK, leave)
    return Membership(held.start, leave, index_of(held), left)


@assigns(Until)
def batches_until(window: Until, held: WindowRows, device: Device) -> Membership:
    """When each row is in a batch: from the row that ends its own to the one that ends the next."""
    mode = WALK_UNTIL if window.include_trigger else WALK_BEFORE
    begins = gathering_begins(held)
    ends = _walked(window.condition, mode, held, begins, np.maximum(begins, _fresh(held, device)), device)
    gathers = held.enter == UNKNOWN
    # A complete batch is followed by one that begins with the row that completed it, or with the row after that.
    complete = ends[device.kernels.keep(ends >= 0)]
    past = np.full_like(begins, len(held), shape=(1,))
    opens = np.unique(np.concatenate([begins, complete + (1 if mode == WALK_UNTIL else 0), past]))
    batch = np.searchsorted(opens, index_of(held), side="right") - 1
    first = np.where(gathers, opens[np.maximum(batch, 0)], 0)
    entered = np.where(gathers, ends[first], -1)
    # A row leaves when the batch after its own is complete; a row of the batch that is out, when the first one is.
    after = np.where(gathers, opens[np.minimum(batch + 1, len(opens) - 1)], begins[held.code])
    known = (after < held.bounds[held.code + 1]) & (~gathers | (entered >= 0))
    left = np.where(known, ends[np.where(known, after, 0)], -1)
    return Membership(np.where(gathers, _times(held, entered), held.enter), _times(held, left), entered, left)


def _times(held: WindowRows, rows: Any) -> Any:
    return np.where(rows >= 0, held.start[np.maximum(rows, 0)], UNKNOWN)


def _fresh(held: WindowRows, device: Device) -> Any:
    """int64 index of each group's first new row."""
    groups = np.arange(len(held.bounds) - 1, like=held.start).astype(np.int32)
    return device.kernels.search_pairs(held.code, held.number, groups, held.before - 1)


def _walked(condition: nw.Expr, mode: int, held: WindowRows, oldest: Any, newest: Any, device: Device) -> Any:
    """For each row the index of the row with which it leaves, or that ends the batch which it begins; -1 for none."""
    walk = _Walk(mode, oldest.copy(), newest.copy(), held.bounds[1:], np.full_like(held.start, -1))
    pairs = _PairCondition(condition, held, device)
    guesses, width = True, _WIDEST
    while len(active := device.kernels.keep(walk.newest < walk.ends)):
        guesses = guesses and walk.rows_left(active) > _FEWEST_ROWS
        try:
            if guesses:
                guesses = _walk_by_guess(walk, active[:_MOST_GROUPS], pairs, device) > _FEWEST_ROWS
            else:
                _walk_by_blocks(walk, active, width, pairs, device)
        except (IntegerOverflowError, SumOverflowError):
            # The overflow may be of rows that are never in together: go on pair by pair, as the walk meets them.
            if width == 1:
                raise
            guesses, width = False, 1
    return walk.left


@dataclass
class _Walk:
    """How far each group has come. Neither its oldest nor its newest row ever goes back.

    Attributes:
        mode: `WALK_WHILE`, `WALK_UNTIL` or `WALK_BEFORE`.
        oldest: int64 index of the row that each group looks at next as its oldest.
        newest: Likewise as its newest; at ``ends`` when the group is done.
        ends: int64 index after each group's last row.
        left: The result, as `_walked` gives it.
    """

    mode: int
    oldest: Any
    newest: Any
    ends: Any
    left: Any

    def rows_left(self, groups: Any) -> int:
        """How many rows of some groups the walk has not reached."""
        return int((self.ends - self.newest)[groups].sum())

    def go(self, groups: Any, oldest: Any, newest: Any, gone: Any, by: Any) -> int:
        """Set how far some groups have come, and note the rows that left. Returns how many rows were passed."""
        passed = int((newest - self.newest[groups]).sum())
        self.oldest[groups], self.newest[groups] = oldest, newest
        self.left[gone] = by
        return passed


def _walk_by_blocks(walk: _Walk, active: Any, width: int, pairs: _PairCondition, device: Device) -> None:
    """Go on in all active groups: the condition is computed for a block of pairs each, and a kernel walks through."""
    width = int(min(width, max(_NARROWEST, (_CELLS // len(active)) ** 0.5)))
    most = max(1, _CELLS // (width * width))
    for low in range(0, len(active), most):
        groups = active[low : low + most]
        first, last, end = walk.oldest[groups], walk.newest[groups], walk.ends[groups]
        found = pairs.block(first, last, end, width)
        walk.go(groups, *device.kernels.window_walk(found, width, first, last, end, walk.mode))


def _walk_by_guess(walk: _Walk, groups: Any, pairs: _PairCondition, device: Device) -> int:
    """Go on in some groups as far as a guess is right; returns how many rows that is."""
    first, last = walk.oldest[groups], walk.newest[groups]
    ends = np.minimum(walk.ends[groups], last + _MOST_ROWS // len(groups))
    guess = _guess_while if walk.mode == WALK_WHILE else _guess_batches
    return walk.go(
        groups, *_verified(guess(pairs, walk.mode, first, last, ends, device), pairs, walk.mode, ends, device)
    )


@dataclass(frozen=True)
class _Guess:
    """Pairs of an oldest and a newest row that groups would pass, in order of groups and of the way; none is computed.

    Attributes:
        oldest: int64 indices of rows.
        newest: Likewise.
        expected: bool: whether the guess takes the condition for held.
        group: Which group each pair is of, ascending.
        final: int64 index of the oldest row of each group at the end, where all is as expected.
    """

    oldest: Any
    newest: Any
    expected: Any
    group: Any
    final: Any


def _verified(guess: _Guess, pairs: _PairCondition, mode: int, ends: Any, device: Device) -> tuple[Any, Any, Any, Any]:
    """As `window_walk`: the way up to the first pair of each group that is not as expected, this pair among it."""
    kernels = device.kernels
    found = pairs.hold(guess.oldest, guess.newest)
    stop = _first_of_each(found != guess.expected, guess.group, len(ends), device)
    known = np.arange(len(found), like=stop) <= stop[guess.group]
    gone = kernels.keep(known & (~found if mode == WALK_WHILE else found))
    wrong = kernels.keep(stop < len(found))
    at = stop[wrong]
    oldest, newest, held = guess.oldest[at], guess.newest[at], found[at]
    first, last = guess.final.copy(), ends.copy()
    if mode == WALK_WHILE:
        first[wrong], last[wrong] = oldest + ~held, newest + held
    else:
        first[wrong], last[wrong] = np.where(held, newest + (mode == WALK_UNTIL), oldest), newest + 1
    return first, last, guess.oldest[gone], guess.newest[gone]


def _guess_while(pairs: _PairCondition, mode: int, oldest: Any, newest: Any, ends: Any, device: Device) -> _Guess:
    """The way if, with each newest row, the condition fails up to some oldest row and holds from there on."""
    kernels = device.kernels
    group, offset = kernels.expand(ends - newest)
    row, begin = newest[group] + offset, oldest[group]
    # From the first to the last row of all groups the oldest that is left never goes back.
    left = kernels.running_max(_least(begin, row + 1, lambda some, at: pairs.hold(some, row[at]), device))
    before = np.where(offset == 0, begin, np.concatenate([left[:1], left[:-1]]))
    source, step = kernels.expand(np.minimum(left, row) - before + 1)
    one = before[source] + step
    return _Guess(one, row[source], one == left[source], group[source], left[np.cumsum(ends - newest) - 1])


def _guess_batches(pairs: _PairCondition, mode: int, oldest: Any, newest: Any, ends: Any, device: Device) -> _Guess:
    """The way if, in each batch, the condition fails up to some newest row and holds from there on."""
    kernels = device.kernels
    after = 1 if mode == WALK_BEFORE else 0
    groups = np.arange(len(ends), like=ends)
    group, offset = kernels.expand(ends - newest)
    row = newest[group] + offset
    # The batch that gathers, and one that would begin with each row; of one row the former comes first.
    begin = np.concatenate([oldest, row])
    order = np.argsort(begin, kind="stable")
    begin, group = begin[order], np.concatenate([groups, group])[order]
    since = np.minimum(np.concatenate([np.maximum(newest, oldest + after), row + after])[order], ends[group])
    over = _least(since, ends[group], lambda some, at: pairs.hold(begin[at], some), device)
    # Which batch follows each, and so which of them the way meets.
    follows, end = over + (1 - after), ends[group]
    place = np.empty_like(order)
    place[order] = np.arange(len(order), like=order)
    at = len(ends) + (np.cumsum(ends - newest) - ends)[group] + follows
    following = np.where((over < end) & (follows < end), place[np.minimum(at, len(order) - 1)], len(order))
    met = kernels.keep(kernels.reached(following, place[: len(ends)]))
    begin, since, over, group, follows = (each[met] for each in (begin, since, over, group, follows))
    source, step = kernels.expand(np.minimum(over + 1, ends[group]) - since)
    other = since[source] + step
    # The last batch of each group gathers, or another one begins where it is over.
    last = np.searchsorted(group, groups, side="right") - 1
    final = np.where(over[last] < ends, follows[last], begin[last])
    return _Guess(begin[source], other, other == over[source], group[source], final)


def _first_of_each(found: Any, group: Any, groups: int, device: Device) -> Any:
    """int64: for each group the first place at which something is found; the number of all places where nothing is."""
    at = device.kernels.keep(found)
    numbers = np.arange(groups, dtype=group.dtype, like=group)
    low, high = (np.searchsorted(group[at], numbers, side=side) for side in ("left", "right"))
    first = np.full_like(numbers, len(found))
    first[high > low] = at[low[high > low]]
    return first


def _least(low: Any, high: Any, test: Callable[[Any, Any], Any], device: Device) -> Any:
    """int64: for each line the least number from ``low`` on that passes a test, if all after it do; ``high`` for none.

    The results of one line per stride bound the search on the lines between.
    """
    if len(low) > 2 * _STRIDE:
        some = np.concatenate([np.arange(0, len(low) - 1, _STRIDE, like=low), np.full_like(low[:1], len(low) - 1)])
        found = _least(low[some], high[some], lambda numbers, at: test(numbers, some[at]), device)
        next_one = np.searchsorted(some, np.arange(len(low), like=low))
        low = np.minimum(np.maximum(low, found[np.maximum(next_one - 1, 0)]), high)
        high = np.maximum(np.minimum(high, found[next_one]), low)
    low, high = low.copy(), high.copy()
    while True:
        at = device.kernels.keep(low < high)
        if not len(at):
            return low
        middle = (low[at] + high[at]) // 2
        passes = test(middle, at)
        high[at] = np.where(passes, middle, high[at])
        low[at] = np.where(passes, low[at], middle + 1)


class _PairCondition:
    """A condition, to be computed for pairs of an oldest and a newest row."""

    def __init__(self, condition: nw.Expr, held: WindowRows, device: Device) -> None:
        self._held, self._device = held, device
        schema = held.schema
        fields = condition_fields(schema)
        (self._condition,) = exact_divisions([condition], fields)
        self._guards = guards([condition], fields, [self._condition])
        self._read = spoken(schema, condition)
        self._sums: dict[str, Callable[[Any, Any], Any]] = {
            column: _range_sums(held, column, schema.field(column).type, device)
            for part, column in self._read.values()
            if part == SUM
        }
        self._schema = schema

    def block(self, oldest: Any, newest: Any, ends: Any, width: int) -> Any:
        """bool: for each group ``width * width`` pairs, ordered by the oldest row; False for missing pairs."""
        device = self._device
        steps = np.arange(width, like=oldest)
        one = (oldest[:, None, None] + steps[None, :, None] + 0 * steps[None, None, :]).reshape(-1)
        other = (newest[:, None, None] + 0 * steps[None, :, None] + steps[None, None, :]).reshape(-1)
        end = np.repeat(ends, width * width)
        at = device.kernels.keep((one <= other) & (other < end))
        found = np.zeros_like(one, dtype=np.bool_)
        found[at] = self.hold(one[at], other[at])
        return found

    def hold(self, oldest: Any, newest: Any) -> Any:
        """bool: for each pair whether the condition holds; false where it is null."""
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

        together = Events(take(held.start, newest), TICK, columns.beside(*frames))
        return holds(self._condition, self._guards, together, device)


def _range_sums(held: WindowRows, column: str, dtype: pa.DataType, device: Device) -> Callable[[Any, Any], Any]:
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
        return _integer_sums(column, np.where(present, values, 0), running, lambda o, n: between(counts, o, n) > 0)
    numbers = np.where(present, values, 0.0).astype(np.float64)
    finite = np.isfinite(numbers)
    odd = [running(mask) for mask in (np.isnan(numbers), numbers == np.inf, numbers == -np.inf)]
    tame = np.where(finite, numbers, 0.0)
    bits, lowest, limbs = kernels.limb_plan(tame, max(1, len(tame)))
    parts = [running(limb) for limb in kernels.float_limbs(tame, bits, lowest, limbs)]

    def floats(oldest: Any, newest: Any) -> Any:
        total = kernels.round_limbs([between(part, oldest, newest) for part in parts], bits, lowest)
        nan, plus, minus = (between(each, oldest, newest) for each in odd)
        return with_special(total, (nan, plus, minus)), between(counts, oldest, newest) > 0, pa.float64()

    return floats


def _integer_sums(
    column: str, values: Any, running: Callable[[Any], Any], counted: Callable[[Any, Any], Any]
) -> Callable[[Any, Any], Any]:
    """As `_range_sums`, of integers: the sum of their upper halves shows whether the sum has wrapped."""
    whole = running(values)
    half = min(32, 8 * values.dtype.itemsize - 1)
    upper = running(values >> half)

    def between(oldest: Any, newest: Any) -> Any:
        total = whole[newest + 1] - whole[oldest]
        # Each row's lower half adds less than one to the sum of upper halves, and there are fewer than 2**31 rows.
        near = (upper[newest + 1] - upper[oldest]).astype(np.float64) * 2.0**half
        wrong = np.abs(near - total.astype(np.float64)) > 2.0**63
        if bool(wrong.any()):
            raise SumOverflowError(
                "A sum in a condition on windows does not fit int64.",
                column=column,
                remedy="Divide or scale the column first, or cast it to float64.",
            )
        return total, counted(oldest, newest), pa.int64()

    return between
