"""Rows of events in sorted runs: by a place alone, or by group and place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from gpu_ops.core.sorted_runs import Run, SortedRuns
from gpu_ops.core.state_parts import Beyond, Parts, StatePart
from gpu_ops.devices import Device
from gpu_ops.operators.events import FEW, MANY, present
from gpu_ops.operators.state.rows import AxisRows, concat_rows, rows_from_arrow

_BEFORE_ALL, _AFTER_ALL = -(1 << 63), (1 << 63) - 1
_MANY, _SAMPLED, _PIECES = 1 << 14, 1 << 10, 16
"""Of more rows than so many the first one of so many pieces is sorted by their ends; a sample of so many says which."""

Place = Literal["low", "high"]
Key = tuple[Place] | tuple[Literal["group"], Place]


class RowRuns(SortedRuns[AxisRows]):
    """Events in sorted runs.

    Args:
        key: The order of the rows. By a place alone: time passes a row at that place. By group and place: time passes
            a row at its end.
        device: Where arrays live.
    """

    _whole = False
    """Whether more is known of rows than a run, which never changes, holds: then they are saved in one piece."""

    def __init__(self, key: Key, device: Device) -> None:
        super().__init__()
        self._place, self._by_group, self._device = key[-1], len(key) > 1, device
        self._done: int | None = None

    def due(self, limit: int) -> list[AxisRows]:
        """Take out the rows whose place is at most ``limit``; the runs are in order of the place alone."""
        due = []
        for run in self.runs:
            until = int(np.searchsorted(getattr(run.rows, self._place), limit, side="right"))
            if until > run.passed:
                due.append(run.rows.cut(run.passed, until, self._device))
                run.left -= until - run.passed
                run.passed = until
        self.runs = self._tidied()
        return due

    def through(self, fresh: Sequence[AxisRows], limit: int) -> AxisRows | None:
        """The waiting rows and the new rows that are due; the other new rows wait from now on."""
        due, keep = self.due(limit), self._device.kernels.keep
        for rows in fresh:
            now = getattr(rows, self._place) <= limit
            if bool(now.all()):
                due.append(rows)
            elif not bool(now.any()):
                self.add(rows)
            else:
                self.add(rows.take(keep(~now), self._device))
                due.append(rows.take(keep(now), self._device))
        due = [rows for rows in due if len(rows)]
        return concat_rows(due, self._device) if due else None

    def ended(self, limit: int) -> Iterator[tuple[Run[AxisRows], Any]]:
        """For each run the indices of the rows that have ended at a place and were not dropped before, each row once.

        The rows are no longer wanted; they keep their places until rows are added.
        """
        self._done = limit if self._done is None else max(self._done, limit)
        for run in self.runs:
            by_end, ends = self._by_end(run, limit)
            before = run.passed
            run.passed = max(before, int(np.searchsorted(ends, limit, side="right")))
            at = by_end[before : run.passed]
            at = at if run.gone is None else at[~run.gone[at]]
            run.left -= len(at)
            yield run, at

    def _by_end(self, run: Run[AxisRows], limit: int) -> tuple[Any, Any]:
        """(rows of a run that end first, by their ends, these ends): at least all that have ended by a place.

        Of many rows those are sorted that end before a time ahead, which a sample tells. A run just restored
        is looked at once, and not sorted.
        """
        kernels, high = self._device.kernels, run.rows.high
        if "by_end" not in run.beside:
            none = high[:0]
            run.beside |= {"by_end": none, "ends": none, "until": _BEFORE_ALL if len(high) else _AFTER_ALL}
        until = run.beside["until"]
        if limit > until or until == _BEFORE_ALL:
            ahead = _AFTER_ALL
            if len(high) > _MANY:
                sample = np.sort(high[:: len(high) // _SAMPLED])
                at = int(np.searchsorted(sample, max(limit, until), side="right")) + _SAMPLED // _PIECES
                ahead = int(sample[at]) if at < len(sample) else _AFTER_ALL
            fresh = kernels.keep((high > until) & (high <= ahead))
            fresh = kernels.take(fresh, np.argsort(kernels.take(high, fresh), kind="stable"))
            by_end = np.concatenate([run.beside["by_end"], fresh])
            run.beside |= {"by_end": by_end, "ends": kernels.take(high, by_end), "until": ahead}
        return run.beside["by_end"], run.beside["ends"]

    def end(self, limit: int) -> None:
        """Stop keeping the rows that have ended at a place."""
        for _ in self.ended(limit):
            pass

    def of_groups(
        self, groups: Any, below: tuple[tuple[str, str], Any] | None = None, *, first: bool = False
    ) -> Iterator[tuple[Run[AxisRows], Any]]:
        """For each run the indices of the rows of some groups that were not dropped.

        Args:
            groups: Numbers of groups, ascending.
            below: A column that ascends within each group, and for each group an int64 number that its rows are below.
            first: Whether the first row of each group in a run is among them in any case, unless it was dropped.
        """
        kernels, groups = self._device.kernels, groups.astype(np.int32, copy=False)
        for run in self.runs:
            begin, end = self._group_bounds(run, groups)
            if below is not None:
                least = np.minimum(begin + int(first), end)
                end = kernels.search_pairs(run.rows.code, run.rows.columns[below[0]].arrays[0], groups, below[1] - 1)
                end = np.maximum(end, least)
            source, offset = kernels.expand(end - begin)
            at = kernels.take(begin, source) + offset
            yield run, at if run.gone is None else at[~run.gone[at]]

    def most_of_groups(self, groups: Any) -> int:
        """How many rows some groups have at most, by ascending numbers; dropped rows may be among them."""
        groups = groups.astype(np.int32, copy=False)
        return sum(int((end - begin).sum()) for begin, end in (self._group_bounds(run, groups) for run in self.runs))

    def _group_bounds(self, run: Run[AxisRows], groups: Any) -> tuple[Any, Any]:
        """For each int32 group where its rows begin and end in a run."""
        begin, end = (np.searchsorted(run.rows.code, groups, side=side) for side in ("left", "right"))
        return begin, end

    def rows(self) -> AxisRows | None:
        """All wanted rows; None if there are none."""
        pieces = self.pieces()
        return concat_rows(pieces, self._device) if pieces else None

    def parts(self, table: Callable[[AxisRows], pa.Table]) -> list[StatePart]:
        """The wanted rows: run by run, each under the name of its run, or in one piece.

        Args:
            table: Makes a table of rows, in which ``high`` is a column.
        """
        if self._whole:
            rows = self.rows()
            return [] if rows is None else [StatePart.of(table(rows))]
        return [self._part(run, table) for run in self.runs if run.left]

    def _part(self, run: Run[AxisRows], table: Callable[[AxisRows], pa.Table]) -> StatePart:
        rows = partial(table, run.rows)
        if not self._by_group:
            return StatePart(rows, run.name, passed=run.passed)
        if run.left == len(run.rows):
            return StatePart(rows, run.name)
        beyond = None if self._done is None else Beyond("high", self._done)
        gone = None if run.gone is None else self._device.columns.host(run.gone)
        return StatePart(rows, run.name, beyond=beyond, gone=gone)

    def put_run_back(self, part: StatePart, rows: AxisRows, groups: int) -> AxisRows:
        """Restore a run that `parts` gave; one that is not in order, or of other groups, is made anew.

        Args:
            part: What is known of it. If it is sound, its order is not looked at again.
            rows: All its rows, as they were at first.
            groups: How many groups there are.

        Returns:
            The rows that are wanted, without their frame.
        """
        array = self._device.columns.array
        run = Run(str(part.name), rows, len(rows), gone=None if part.gone is None else array(part.gone))
        self._note(run, part)
        if not self._by_group:
            run.passed, run.left = part.passed, len(rows) - part.passed
        else:
            if part.beyond is not None:
                self._done = part.beyond.limit if self._done is None else max(self._done, part.beyond.limit)
                run.passed = int((rows.high <= part.beyond.limit).sum())
            # Codes of orders may be less than any time.
            lasting = np.ones_like(rows.code, dtype=np.bool_) if part.beyond is None else rows.high > part.beyond.limit
            run.left = int((lasting if run.gone is None else lasting & ~run.gone).sum())
        rest = self._rest(replace(run, rows=replace(rows, frame=None)))
        if part.is_sound or self._is_run(rows, groups):
            self.runs.append(run)
        else:
            self.put_back(self._rest(run))
        return rest

    def _note(self, run: Run[AxisRows], part: StatePart) -> None:
        """Note beside a restored run what its part says of it; most need nothing."""

    def _is_run(self, rows: AxisRows, groups: int) -> bool:
        """Whether rows are in order, and of these groups."""
        kernels, places = self._device.kernels, getattr(rows, self._place)
        in_order = kernels.is_ordered(rows.code, places) if self._by_group else kernels.ascends(places)
        return in_order and bool((rows.code >= 0).all()) and bool((rows.code < groups).all())

    def put_back(self, rows: AxisRows) -> None:
        """Restore what `rows` gave, in any order."""
        self.add(rows)

    def renumber(self, numbers: Any) -> None:
        """Give each group ``g`` the number ``numbers[g]``; the remaining groups keep their order."""
        self.replace([replace(rows, code=numbers[rows.code]) for rows in self.pieces()])

    def renumber_column(self, name: tuple[str, str], numbers: Any) -> None:
        """Give each value ``v`` of a column of numbers the number ``numbers[v]``."""
        made = []
        for rows in self.pieces():
            column = replace(rows.columns[name], arrays=(numbers[rows.columns[name].arrays[0]],))
            made.append(replace(rows, columns=rows.columns | {name: column}))
        self.replace(made)

    def least(self, column: tuple[str, str]) -> int | None:
        """The least value of an int64 column, in runs that are in order of a place alone; None without rows."""
        found = []
        for run in self.runs:
            if "least" not in run.beside:
                values, kernels = run.rows.columns[column].arrays[0], self._device.kernels
                every = self._device.columns.array(np.arange(len(values)))
                none = np.zeros_like(every)
                run.beside["least"] = ~kernels.range_max(~values, none, every + 1, len(values), every)
            found.append(int(run.beside["least"][run.passed]))
        return min(found, default=None)

    def _rest(self, run: Run[AxisRows]) -> AxisRows:
        rows = run.rows
        if not self._by_group:
            return rows.cut(run.passed, len(rows), self._device) if run.passed else rows
        if run.left == len(rows):
            return rows
        wanted = np.ones_like(rows.code, dtype=np.bool_) if self._done is None else rows.high > self._done
        wanted = wanted if run.gone is None else wanted & ~run.gone
        return rows.take(self._device.kernels.keep(wanted), self._device)

    def _ordered(self, rows: AxisRows) -> AxisRows:
        return ordered(rows, self._place, self._device) if self._by_group else self._in_time(rows)

    def _merged(self, pieces: Sequence[AxisRows]) -> AxisRows:
        rows = concat_rows(pieces, self._device)
        if not self._by_group:
            return self._in_time(rows)
        order = _interleaved(rows.code, getattr(rows, self._place), pieces, self._device)
        return rows.take(order, self._device)

    def _in_time(self, rows: AxisRows) -> AxisRows:
        places = getattr(rows, self._place)
        if self._device.kernels.ascends(places):
            return rows
        # Runs stand one behind the other: a stable sort merges their ascending stretches.
        return rows.take(np.argsort(places, kind="stable"), self._device)


def parts_of(runs: Mapping[str, RowRuns], table: Callable[[str, AxisRows], pa.Table]) -> dict[str, Sequence[StatePart]]:
    """The parts of some tables of rows, without tables that have none.

    Args:
        runs: The rows of each.
        table: Makes a table of a name of some rows.
    """
    made = {name: each.parts(partial(table, name)) for name, each in runs.items()}
    return {name: parts for name, parts in made.items() if parts}


def restore_runs(
    runs: Mapping[str, RowRuns],
    parts: Parts,
    device: Device,
    groups: int = 1,
    completed: Callable[[str, AxisRows], AxisRows] = lambda _, rows: rows,
) -> list[tuple[str, AxisRows]]:
    """Restore what `parts_of` gave.

    Args:
        runs: The rows of each table, of which there are none yet.
        parts: The parts; those of other tables are left out.
        device: Where arrays live.
        groups: How many groups there are.
        completed: Gives rows of a table the columns that it lacks.

    Returns:
        The rows of each part, by the name of its table.
    """
    made = []
    for name, each in runs.items():
        for part in parts.get(name, ()):
            rows = completed(name, rows_from_arrow(part.wanted() if part.name is None else part.rows(), device))
            if part.name is None:
                each.put_back(rows)
            else:
                rows = each.put_run_back(part, rows, groups)
            made.append((name, rows))
    return made


def _interleaved(codes: Any, places: Any, pieces: Sequence[AxisRows], device: Device) -> Any:
    """The order by group and place of concatenated pieces that each have it; of equal rows the older are first."""
    kernels, array = device.kernels, device.columns.array
    bounds = list(pairwise(accumulate(map(len, pieces), initial=0)))
    order, late_codes, late_places = array(np.arange(*bounds[-1])), pieces[-1].code, places[bounds[-1][0] :]
    for low, high in reversed(bounds[:-1]):
        before = kernels.search_pairs(codes[low:high], places[low:high], late_codes, late_places)
        at = before + array(np.arange(len(order)))
        both = np.empty_like(order, shape=(high - low + len(order),))
        is_early = np.ones_like(both, dtype=np.bool_)
        is_early[at] = False
        both[at] = order
        both[kernels.keep(is_early)] = array(np.arange(low, high))
        order = both
        if low:
            late_codes, late_places = kernels.take(codes, order), kernels.take(places, order)
    return order


def ordered(rows: AxisRows, place: Place, device: Device) -> AxisRows:
    """Rows in order of group and place."""
    places = getattr(rows, place)
    if device.kernels.is_ordered(rows.code, places):
        return rows
    code, groups = rows.code, int(rows.code.max()) + 1
    if groups > MANY * len(rows) + FEW:
        # A table of all groups would cost more than the rows.
        here = present(code, groups, device)
        code, groups = np.searchsorted(here, code).astype(np.int32), len(here)
    return rows.take(device.kernels.group_order(code, groups, places), device)
