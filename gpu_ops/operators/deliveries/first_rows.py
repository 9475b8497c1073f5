"""The first rows of each group: an interval of its own begins with each row that is shown (`output first`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpu_ops.core.state_tables import Field, StateTable, Tables, counter
from gpu_ops.core.time import MIN_TIME
from gpu_ops.core.turns import ENTERED, GROUPING, LEFT, NEW, OLD
from gpu_ops.devices import Device
from gpu_ops.operators.deliveries.firing import NEVER
from gpu_ops.operators.deliveries.gathered import Gathered, ShownRows
from gpu_ops.operators.deliveries.rows import numbers_of
from gpu_ops.operators.row_order import run_ends, run_starts
from gpu_ops.operators.state.fields import nullable_columns
from gpu_ops.operators.state.rows import GroupInterner, grown
from gpu_ops.plan.rates import AtTimes, EveryPeriod, EveryRows, OutputRate

Ints = npt.NDArray[np.int64]

_TABLE, _PREFIX = "groups", "key/"


class FirstOfGroups:
    """Which rows of groups are shown at once, step by step.

    A row is shown if none of its group was shown before, or if the rate would have fired since then: by the rows of
    the group that have come since, or by the clock. With ``"row per group"`` a group's new row stands for as many rows
    as its columns `@entered` and `@left` say (one that entered, where they are null); its old row is shown with it.

    Args:
        node: The node.
        device: Where arrays live.
    """

    def __init__(self, node: OutputRate, device: Device) -> None:
        self._node, self._device = node, device
        self._schema = pa.schema([node.schema.field(name) for name in node.group])
        self._groups = GroupInterner(node.group, node.schema, device)
        # By group: the clock from which on a row is shown, `MIN_TIME` if none was; the rows that came since the last.
        self._free, self._entered, self._left = (np.zeros(0, np.int64) for _ in range(3))

    def __len__(self) -> int:
        return len(self._groups) if self._groups.seen else 0

    def step(self, rows: Gathered, clocks: Any) -> list[ShownRows]:
        """The rows to show at once.

        Args:
            rows: The rows of a step.
            clocks: int64: the clock at each.
        """
        device, kernels, node = self._device, self._device.kernels, self._node
        per_group = node.kind == "row per group"
        at = kernels.keep(rows.passes & (rows.kind == NEW) if per_group else rows.passes)
        if not len(at):
            return []
        keys = device.columns.take(device.columns.select(rows.frame, list(node.group)), kernels.take(rows.at, at))
        codes = device.columns.host(self._groups.codes(keys)).astype(np.int64)
        self._grow()
        chosen = self._chosen(rows, at, codes, device.columns.host(kernels.take(clocks, at)))
        if not per_group:
            # Of those of a group that come or go at once, the last one is shown.
            place = device.columns.host(kernels.take(rows.place, at))[chosen]
            order = np.lexsort((chosen, codes[chosen], place))
            chosen = np.sort(chosen[order[run_ends(place[order], codes[chosen][order])]])
        found = kernels.take(at, device.columns.array(chosen))
        if not per_group:
            return [ShownRows(found, found, NEW)] if NEW in node.shows else []
        shown = [ShownRows(found, found, NEW)] if NEW in node.shows else []
        if OLD not in node.shows:
            return shown
        # Esper makes the old row of a group that a condition let through when the aggregates have changed already.
        return [*shown, ShownRows(found, found, OLD) if node.judged else self._old_rows(rows, found)]

    def _chosen(self, rows: Gathered, at: Any, codes: Ints, clocks: Ints) -> Ints:
        """Which of some rows are shown: their numbers among these, ascending; all of this is on the host."""
        order = np.argsort(codes, kind="stable")
        grouped = codes[order]
        begin = np.flatnonzero(run_starts(grouped))
        end = np.append(begin[1:], len(grouped))
        every = self._node.rate.every
        if isinstance(every, EveryRows):
            entered, left = self._moved(rows, at)
            return np.unique(order[self._by_count(grouped, begin, end, entered[order], left[order], every.rows)])
        chosen = order[self._by_clock(grouped, begin, end, clocks[order])]
        self._forget(int(clocks[-1]))
        return np.sort(chosen)

    def _by_clock(self, grouped: Ints, begin: Ints, end: Ints, clocks: Ints) -> Ints:
        """The rows of groups that come when their group is free again."""
        groups, free = grouped[begin], self._next(clocks)
        after = _first_at(grouped, clocks, grouped, free, self._device)
        starts = _first_at(grouped, clocks, groups, self._free[groups], self._device)
        chosen = _chain(starts, after, end, np.searchsorted(begin, np.arange(len(grouped)), side="right") - 1)
        self._free[grouped[chosen]] = free[chosen]  # ascending within a group: the last one stays
        return chosen

    def _next(self, clocks: Ints) -> Ints:
        """The clock from which on the next row is shown, behind rows that are shown."""
        every = self._node.rate.every
        if isinstance(every, EveryPeriod):
            later: Ints = every.period.after(clocks)
            return later
        assert isinstance(every, AtTimes)  # noqa: S101  (a node with a condition is refused)
        distinct, which = np.unique(clocks, return_inverse=True)
        return np.array([every.crontab.next_after(int(clock)) for clock in distinct], np.int64)[which]

    def _moved(self, rows: Gathered, at: Any) -> tuple[Ints, Ints]:
        """How many rows of their groups entered and left with some rows, on the host."""
        columns, take = self._device.columns, self._device.kernels.take
        if self._node.kind != "row per group":
            entered = columns.host(take(rows.kind, at)) == NEW
            return entered.astype(np.int64), (~entered).astype(np.int64)
        here, made = take(rows.at, at), []
        for name, otherwise in ((ENTERED, 1), (LEFT, 0)):
            values, valid = numbers_of(rows.frame, name, self._device), columns.validity(rows.frame, name)
            made.append(columns.host(take(values if valid is None else np.where(valid, values, otherwise), here)))
        if GROUPING in self._node.group:
            # Where there are several levels, what leaves counts as what enters.
            return made[0] + made[1], np.zeros_like(made[1])
        return made[0], made[1]

    def _by_count(self, grouped: Ints, begin: Ints, end: Ints, entered: Ints, left: Ints, rows: int) -> Ints:
        """The rows with which enough rows of their group have come; those that entered come before those that left."""
        moved = entered + left
        source = np.repeat(np.arange(len(grouped)), moved)
        offset = np.arange(len(source)) - np.repeat(np.cumsum(moved) - moved, moved)
        has_entered = offset < entered[source]
        entered, left = (
            np.concatenate([[0], np.cumsum(each)]).astype(np.int64) for each in (has_entered, ~has_entered)
        )
        units = np.concatenate([[0], np.cumsum(moved)])
        groups, begin, end = grouped[begin], units[begin], units[end]
        start = np.minimum(
            np.searchsorted(entered[1:], entered[begin] + rows - self._entered[groups]),
            np.searchsorted(left[1:], left[begin] + rows - self._left[groups]),
        )
        start = np.where(self._free[groups] == MIN_TIME, begin, start)  # the first one of its group
        after = np.minimum(np.searchsorted(entered[1:], entered[1:] + rows), np.searchsorted(left[1:], left[1:] + rows))
        chosen = _chain(start, after, end, np.searchsorted(begin, np.arange(len(source)), side="right") - 1)
        since, was = begin.copy(), np.zeros(len(groups), np.bool_)
        of = np.searchsorted(begin, chosen, side="right") - 1
        since[of], was[of] = chosen + 1, True
        self._entered[groups] = np.where(was, 0, self._entered[groups]) + entered[end] - entered[since]
        self._left[groups] = np.where(was, 0, self._left[groups]) + left[end] - left[since]
        self._free[groups] = np.where(was, 0, self._free[groups])
        return source[chosen]

    def _old_rows(self, rows: Gathered, found: Any) -> ShownRows:
        """The old rows of the groups and deliveries of some new rows."""
        device, kernels = self._device, self._device.kernels
        old = kernels.keep(rows.passes & (rows.kind != NEW))
        if not len(old) or not len(found):
            return ShownRows(old[:0], old[:0], OLD)
        names = list(self._node.group)
        both = np.concatenate([found, old])
        keys = device.columns.take(device.columns.select(rows.frame, names), kernels.take(rows.at, both))
        codes, count, _ = device.columns.key_codes(keys, names)
        place = kernels.take(rows.place, both)
        new = kernels.group_order(codes[: len(found)], count, place[: len(found)])
        of_codes, of_place = (kernels.take(each, new) for each in (codes, place))
        at = kernels.search_pairs(of_codes, of_place, codes[len(found) :], place[len(found) :] - 1)
        at = np.minimum(at, len(found) - 1)
        same = (kernels.take(of_codes, at) == codes[len(found) :]) & (kernels.take(of_place, at) == place[len(found) :])
        old = kernels.take(old, kernels.keep(same))
        return ShownRows(old, old, OLD)

    def _grow(self) -> None:
        count, before = len(self._groups), len(self._free)
        self._free, self._entered, self._left = (grown(each, count) for each in (self._free, self._entered, self._left))
        self._free[before:] = MIN_TIME

    def _forget(self, clock: int) -> None:
        """Forget groups whose next row is shown as a new group's would be."""
        if self._groups.crowded:
            used = self._free[: len(self._groups)] > clock
            if self._groups.forget(used) is not None:
                self._free, self._entered, self._left = (
                    each[: len(used)][used] for each in (self._free, self._entered, self._left)
                )

    # State

    def tables(self) -> dict[str, pa.Table]:
        """What is known of each group; no table before the first row."""
        keys = self._groups.keys
        if keys is None:
            return {}
        made = self._device.columns.to_arrow(keys, self._schema)
        count = len(self._groups)
        columns = {"free": self._free[:count], "entered": self._entered[:count], "left": self._left[:count]}
        named = {f"{_PREFIX}{name}": made[name] for name in made.column_names}
        return {_TABLE: pa.table({name: pa.array(each, pa.int64()) for name, each in columns.items()} | named)}

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The declaration of the table that `tables` gives."""
        del tables
        keys = nullable_columns(self._schema, _PREFIX)
        columns = {"free": Field(pa.int64(), least=MIN_TIME, most=NEVER), "entered": counter(), "left": counter()}
        yield StateTable(_TABLE, columns | keys, unique=tuple(keys))

    def restore(self, tables: Tables) -> None:
        """Restore the state that `tables` gave."""
        if _TABLE not in tables:
            return
        table = tables[_TABLE].combine_chunks()
        self._free, self._entered, self._left = (table[name].to_numpy().copy() for name in ("free", "entered", "left"))
        keys = {name: table[f"{_PREFIX}{name}"] for name in self._node.group}
        self._groups.restore(self._device.columns.from_arrow(pa.table(keys)))


def _first_at(codes: Ints, times: Ints, of_codes: Ints, of_times: Ints, device: Device) -> Ints:
    """For each (group, time) the first row of that group, or of one behind it, at or after the time."""
    array = device.columns.array
    found = device.kernels.search_pairs(
        array(codes.astype(np.int32)), array(times), array(of_codes.astype(np.int32)), array(of_times - 1)
    )
    return device.columns.host(found)  # type: ignore[no-any-return]


_MANY = 32
"""Groups from which on all go on at once; fewer go on one by one."""


def _chain(starts: Ints, after: Ints, ends: Ints, group: Ints) -> Ints:
    """The rows that follow one another from each group's first one, ascending.

    Args:
        starts: For each group the first row; at or behind its end if there is none.
        after: For each row the one that follows it; at or behind its group's end if none does.
        ends: For each group the row behind its last one.
        group: For each row its group's number.
    """
    chosen = np.zeros(len(after), np.bool_)
    now = starts[starts < ends]
    while len(now) > _MANY:
        chosen[now] = True
        following = after[now]
        now = following[following < ends[group[now]]]
    follows = after.tolist() if len(now) else []
    for first in now.tolist():
        at, end = first, int(ends[group[first]])
        found = list[int]()
        while at < end:
            found.append(at)
            at = follows[at]
        chosen[found] = True
    return np.flatnonzero(chosen)
