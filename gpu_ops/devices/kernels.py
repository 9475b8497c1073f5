"""What a device computes: the kernels that operators may call, described once for all devices.

Each device has a module with these functions, and mypy checks its names, arguments and results against this protocol.
Kernels are pure functions of the device's one-dimensional contiguous arrays. They write into no input (except a dense
grid's ``into``) and trust their arguments: an index out of range goes unnoticed. Every device gives the same bytes,
however its threads are scheduled, and tests compare them. Examples stand with the functions in ``devices/cpu``, the
GPU's algorithms in ``devices/array``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

Array = Any
"""Numbers or bools of any width, in the device's memory."""

Bools = Any
"""An array of bools."""

Codes = Any
"""An array of int32: groups, numbered from 0."""

Floats = Any
"""An array of float64."""

Ints = Any
"""An array of int64: ticks, indices, slots, counts, limbs or digits."""


class OrderKernels(Protocol):
    """Ordering events by group and start, and gathering values."""

    def group_order(self, codes: Codes, groups: int, start: Ints) -> Ints:
        """The order of events by group, then start; a stable sort.

        Args:
            codes: int32 group of each event, ``0 … groups - 1``.
            groups: How many groups there are.
            start: int64 ticks.

        Returns:
            int64 indices of the events.
        """

    def group_bounds(self, codes: Codes, groups: int) -> Ints:
        """Where each group begins when events are in group order.

        Args:
            codes: int32 group of each event, ``0 … groups - 1``.
            groups: How many groups there are; some may be empty.

        Returns:
            int64[groups + 1]: group g's events are ``bounds[g] … bounds[g + 1] - 1``.
        """

    def group_codes(self, bounds: Ints) -> Codes:
        """The codes of events in group order: int32, each group as often as it has events."""

    def is_ordered(self, codes: Codes, start: Ints) -> bool:
        """Whether events are in order of group, then start."""

    def ascends(self, values: Ints) -> bool:
        """Whether no value is less than the one before."""

    def extent(self, values: Array) -> tuple[int, int]:
        """The least and the greatest of integers of any width; there is at least one."""

    def partition(self, codes: Codes, groups: int, arrays: Sequence[Array]) -> tuple[Codes, Ints, list[Array]]:
        """Events ordered by group, then start.

        Args:
            codes: int32 group of each event, ``0 … groups - 1``.
            groups: How many groups there are.
            arrays: Values of the events, numbers or bools of any width; the first array is their start, int64 ticks.

        Returns:
            (codes, bounds, arrays): codes and arrays in the new order; group g's events are
            ``bounds[g] … bounds[g + 1] - 1``, and ``bounds`` is a host array. Arrays already in order are not copied.
        """

    def take(self, values: Array, indices: Ints) -> Array:
        """The values at these indices: numbers or bools of any width."""

    def search_pairs(self, codes: Codes, places: Ints, of_codes: Codes, of_places: Ints) -> Ints:
        """For each (group, place) pair, the first row that is greater.

        Args:
            codes: int32 group of each row; rows are in order of group, then place.
            places: int64 place of each row.
            of_codes: int32 groups of the pairs, in any order.
            of_places: int64 places of the pairs.

        Returns:
            int64 indices of rows; the number of rows where none is greater.
        """

    def merged_order(self, first: Ints, second: Ints) -> tuple[Ints, Ints]:
        """The order of two ascending runs of int64, one behind the other, and their values in that order.

        Of equal ones those of the first run come first.
        """

    def edge_counts(self, first: Ints, second: Ints) -> tuple[Ints, Ints, Ints]:
        """The distinct values of two ascending runs of int64, and how often each stands in the one and in the other."""

    def numbered_turns(
        self, starts: Ints, keys: Ints, begins: Ints, clock: int, turn: int
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """The places of the turns of events of several runs, and of those in which the clock moves.

        Events come in order of their starts, then of their keys, then of their runs. The clock moves before an event
        that starts later than it shows, by a turn of its own.

        Args:
            starts: int64 starts of all events, run by run; those of a run are in order.
            keys: int64 keys.
            begins: int64[runs + 1]: where each run begins.
            clock: What the clock shows before all events.
            turn: The number of the first turn.

        Returns:
            (int64 places of the events' turns; what the clock shows in each; the places of the turns in which it moves;
            what it shows then).
        """

    def touched_rows(self, codes: Codes, places: Ints, groups: int) -> tuple[Ints, Ints, Ints, Ints]:
        """A row for each group at each place that touches it, in order of the first of what touches it there.

        Args:
            codes: int32 group of each of what touches groups.
            places: int64 place of each, ascending.
            groups: The number of groups; some may be untouched.

        Returns:
            (int64 row of each; for each row the first and the last of what touches, and the row of its group before it,
            -1 for none).
        """

    def merged_rows(self, codes: Codes, places: Ints, groups: int) -> tuple[Ints, Ints, Ints]:
        """One row for the events of each group at each place, in order of their firsts.

        Args:
            codes: int32 group of each event.
            places: int64 place of each, ascending.
            groups: The number of groups.

        Returns:
            (int64 row of each event; for each row its first event, and how many it is of).
        """

    def row_sums(self, values: Ints, row: Ints, count: int) -> Ints:
        """The sum of the values of each row, modulo 2**64.

        Args:
            values: int64 value of each event.
            row: int64 row of each event, ``0 … count - 1``.
            count: How many rows there are.
        """

    def walked_totals(self, values: Ints, first: Ints, last: Ints, group: Codes, base: Ints) -> tuple[Ints, Ints]:
        """The totals of groups at some rows in turn, modulo 2**64: what has come by then, less what has gone.

        Args:
            values: int64 value of each event.
            first: The row at which it comes; the number of rows for none.
            last: The row at which it goes, likewise.
            group: int32 group of each row.
            base: int64 total of each group before the first row.

        Returns:
            (the total of its group at each row, that of each group behind the last row).
        """

    def due_places(self, due: Ints, places: Ints, clocks: Ints) -> Ints:
        """The places of the first ticks at or past times; of as many of the times as a tick has reached.

        Args:
            due: int64 times, ascending.
            places: int64 places of the ticks, ascending.
            clocks: int64 times of the ticks, ascending.
        """

    def ranks_among(self, values: Ints, among: Sequence[Ints]) -> tuple[Ints, int]:
        """How many distinct values of some arrays are less than each of some values, and how many there are.

        Args:
            values: int64, in any order.
            among: Arrays of int64.
        """

    def met_stretches(
        self, codes: Codes, places: Ints, of_codes: Codes, came: Ints, goes: Ints, gone: int, late: int
    ) -> tuple[Ints, Ints]:
        """The rows of a group that are there at some places, where those that came first go first.

        Args:
            codes: int32 group of each place, in order of group, then place.
            places: int64.
            of_codes: int32 group of each row, in order of group.
            came: int64 place at which each came, ascending within a group.
            goes: int64 place at which each goes, ascending within a group.
            gone: 1 if a row that goes at a place is there still, 0 if not.
            late: 1 if a row that comes at a place is not there yet, 0 if it is.

        Returns:
            int64 for each place (the first such row, one past the last of those that have come).
        """

    def pairs_in_turn(
        self, order: Ints, own: Ints, first: Ints, count: Ints, place: Ints, lefts: int
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """The pairs of rows of two sides with stretches of rows of the other side, one row after the other.

        Args:
            order: int64 numbers of the rows, those of the left side before the others, in the order of their pairs.
            own: int64 index of each row on its side.
            first: int64 index on the other side of the first row that it meets.
            count: int64: how many it meets from there on.
            place: int64 place of each.
            lefts: How many of them are of the left side.

        Returns:
            Of each pair (the index on the left side, that on the right side, the place, the number of the pair among
            its neighbours of the same place).
        """

    def clocks_at(self, at: Ints, places: Ints, clocks: Ints, before: Ints) -> Ints:
        """What the clock shows at some places: behind the last tick up to each, or before all ticks.

        Args:
            at: int64 places; it is a merge where they ascend.
            places: int64 places of the ticks, ascending.
            clocks: int64 times of the ticks.
            before: int64[1]: the time before all ticks.
        """

    def turn_rows(
        self, codes: Codes, came: Ints, enter: Ints, leave: Ints, groups: int, based: int
    ) -> tuple[Ints, Ints, Codes, Ints, Ints, Ints]:
        """A row for each group at each place where events enter or leave that do both in the same order.

        At a place those that enter come before those that leave.

        Args:
            codes: int32 group of each event.
            came: int64 number of each, by which rows of a place are ordered.
            enter: int64 place at which each of the last events enters, ascending; the others have entered before.
            leave: int64 place at which each of the first events leaves, ascending; the others stay.
            groups: The number of groups.
            based: 1 for a row for each group before all others, 0 for none.

        Returns:
            (the row at which each event enters, that at which it leaves, the number of rows for none; the group of each
            row; then, of each row but the first ones, its place, its order within it: `came` of what touches it first,
            `LEFT_FIRST` later for what leaves; and the number of the one of its group before it, -1 for none).
        """

    def output_rows(
        self, codes: Codes, enter: Ints, leave: Ints, limits: Ints, touched: Codes, groups: int, based: int
    ) -> tuple[Ints, Ints, Codes, Ints, Ints, Ints]:
        """A row for each group in each stretch between outputs in which events enter or leave, as `turn_rows`.

        Args:
            codes: int32 group of each event.
            enter: As in `turn_rows`.
            leave: Likewise.
            limits: int64 places, ascending: what happens before one of them is part of its output.
            touched: int32 groups, each once, that have a row in the first stretch in any case.
            groups: The number of groups.
            based: As in `turn_rows`.

        Returns:
            (the row at which each event enters, that at which it leaves, the number of rows for none; the group of each
            row; then, of each row but the first ones, the number of the limit that its stretch ends at, the number of
            limits behind the last; and the number of the one of its group before it, -1 for none; their numbers in
            order of their stretches, then of what touches them last).
        """

    def moment_places(
        self, codes: Codes, times: Ints, turns: Ints, of_codes: Codes, of_times: Ints, of_turns: Ints
    ) -> tuple[Ints, Ints]:
        """The places of moments in order of group, then time, then turn: from 1 on, equal moments at one place.

        Args:
            codes: int32 group of each moment.
            times: int64 ticks.
            turns: int64 order of moments at one time.
            of_codes: int32 group of each of some other moments.
            of_times: int64 ticks of these.
            of_turns: int64 order of these.

        Returns:
            (places, of_places): for each of the others the place of the first moment at or after it, of any group; one
            past the last place if there is none. It is a merge where both are in order.
        """


class RangeKernels(Protocol):
    """Ranges of slots ``[first, last)``: counts, sums and extremes of the events that hold each slot."""

    def expand(self, counts: Ints) -> tuple[Ints, Ints]:
        """Each index repeated by its count.

        Args:
            counts: The counts, none negative.

        Returns:
            (source, offset): index i ``counts[i]`` times, and 0, 1, … within its repeats.
        """

    def keep(self, mask: Bools) -> Ints:
        """The indices at which a mask holds, ascending."""

    def occurring(self, codes: Codes, count: int) -> Ints:
        """The codes that occur, ascending, of ``count`` codes."""

    def occupied(self, first: Ints, last: Ints, size: int) -> tuple[Ints, Ints]:
        """The slots that hold any event, and how many each holds.

        Args:
            first: Each event's first slot.
            last: One past its last slot.
            size: How many slots there are.

        Returns:
            (slots, counts): ascending slot numbers, and the number of events with ``first <= slot < last`` for each.
        """

    def slot_bounds(self, axis_code: Codes, axis_time: Ints, slots: Ints) -> tuple[Codes, Ints, Ints]:
        """Group, begin and end of slots that hold events, so that each has a next boundary in its group."""

    def range_count(self, first: Ints, last: Ints, size: int, slots: Ints) -> Ints:
        """How many events hold each of some slots.

        Args:
            first: Each event's first slot.
            last: One past its last slot.
            size: How many slots there are.
            slots: The slots to look at, ascending.

        Returns:
            int64: for each slot the number of events with ``first <= slot < last``.
        """

    def range_sum(self, values: Ints, first: Ints, last: Ints, size: int, slots: Ints) -> Ints:
        """The sum of the events' values in each of some slots, modulo 2**64.

        The caller knows that it fits, or sums limbs.

        Args:
            values: int64 value of each event.
            first: Each event's first slot.
            last: One past its last slot.
            size: How many slots there are.
            slots: The slots to look at, ascending.
        """

    def range_max(self, values: Ints, first: Ints, last: Ints, size: int, slots: Ints) -> Ints:
        """The greatest of the events' values in each of some slots, the least int64 where there is none.

        The minimum is ``~range_max(~values, …)``.

        Args:
            values: int64 value (or order code) of each event.
            first: Each event's first slot.
            last: One past its last slot.
            size: How many slots there are.
            slots: The slots to look at, ascending.
        """

    def range_kth(self, ranks: Ints, first: Ints, last: Ints, size: int, slots: Ints, k: Ints) -> Ints:
        """The k-th least of the ranks of the events that hold each of some slots.

        Args:
            ranks: int64 rank of each event, from 0 on; equal values have equal ranks.
            first: Each event's first slot.
            last: One past its last slot.
            size: How many slots there are.
            slots: The slots to look at, ascending; a slot may occur several times.
            k: The place of the wanted rank among the ranks of each slot, from 0.

        Returns:
            int64: the ranks; -1 where a slot holds no more than k events, or k is negative.
        """

    def merged_ranges(self, codes: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints, Ints]:
        """The ranges of events with equal codes, merged where they overlap or touch.

        Counts and sums over merged ranges count each code once in each slot.

        Args:
            codes: int64 code of each event's value, none negative.
            first: Each event's first slot.
            last: One past its last slot, after the first.

        Returns:
            (events, first, last): for each merged range, the first event that begins it, and its slots; in order of
            (first, event).
        """

    def runs_between(
        self, codes: Codes, values: Ints, sums: Ints, bounds: Ints, of_codes: Codes, low: Ints, high: Ints
    ) -> tuple[Ints, Ints, Ints]:
        """Where a group's values from one rank to another stand in each run.

        A value occurs in a group as often as the weights of its rows add up to over all runs, which is never negative.

        Args:
            codes: int32 group of each row, run after run. A run's rows are in order of group, then value, and no two
                share both.
            values: int64 value of each row.
            sums: int64: the running sum of the weights of a run's rows.
            bounds: Run r's rows are ``bounds[r] … bounds[r + 1] - 1``.
            of_codes: The group of each query.
            low: The first rank of each query, from 0.
            high: One past its last rank; at most the number of the group's values, or no more than ``low``.

        Returns:
            (begin, end, before): for each query and run, the rows from the value of the first rank to that of the last
            one; and for each query, how many values of the group are below the first. All 0 for a query without ranks.
        """

    def running_max(self, values: Ints) -> Ints:
        """The greatest of the first 1, 2, … values."""

    def quotient(self, totals: Ints, counts: Ints) -> Floats:
        """Totals over counts, each rounded to float64 first."""


class WindowKernels(Protocol):
    """Window axes, grids of windows, and windows that are walked row by row."""

    def axis(self, codes: Codes, start: Ints, end: Ints) -> tuple[Codes, Ints, Ints, Ints]:
        """The distinct boundaries of each group, ascending, and which of them each event lies between.

        Args:
            codes: int32 group of each event; events are ordered by group, then start.
            start: int64 ticks.
            end: int64 ticks, after the start.

        Returns:
            (axis_code int32, axis_time, first, last): boundary ``first[e]`` is event e's start in its group, and
            boundary ``last[e]`` its end.
        """

    def step_axis(
        self, codes: Codes, low: Ints, high: Ints, earlier: int, known: Ints, force: int, before: int, after: int
    ) -> tuple[Codes, Ints, Ints, Ints, Ints, Ints, Ints, Ints]:
        """The distinct boundaries of each group of a step, and which of them each event lies between.

        Each group has a first boundary, ``before``, and a last one, ``after``. Between them are the starts of events
        that begin in the step, the ends of events that end in it, the known boundary, and the forced one.

        Args:
            codes: int32 group of each event.
            low: int64 place where each begins. The first ``earlier`` events began in earlier steps, at ``before``.
            high: int64 place where each ends; ``after`` if it does not end in this step.
            earlier: How many events began in earlier steps.
            known: int64 boundary that each group already has; ``before`` for none.
            force: A boundary of every group, at or after all others; ``after`` for none.
            before: Less than every place.
            after: Greater than every place.

        Returns:
            (axis_code int32, axis, first, last, slots, group, begin, end): the boundaries with their groups; the
            boundaries where each event begins and ends; the slots, one from each boundary except a group's last; the
            group of each slot; and the places of each group's first and last slot among them.
        """

    def stitch_order(self, codes: Codes, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Events of one group joined where one ends exactly at the start of another (Trill's Stitch).

        If several events end at a time, the k-th of them by start is joined to the k-th by end of the events that
        start then: first in, first out. So the joined lifetimes do not depend on the order of equal events.

        Args:
            codes: int32 group of each event; events are ordered by group, then start.
            start: int64 ticks.
            end: int64 ticks, after the start.

        Returns:
            (first, last): the indices of each joined event's first and last piece, ascending by the first.
        """

    def grid_ranges(self, start: Ints, end: Ints | int, size: int, hop: int, align: int) -> tuple[Ints, Ints]:
        """Which windows of a grid each event overlaps; window k is ``[align + k hop, align + k hop + size)``.

        Moving ``align`` by whole hops renumbers the windows at no cost.

        Args:
            start: int64 ticks.
            end: int64 ticks, after the start; or the number of ticks that every event lasts.
            size: The windows' length in ticks, positive, at most the span of time there is.
            hop: Ticks from one window's start to the next's, positive, likewise.
            align: Where window 0 starts, in ticks, likewise. (So no sum here overflows.)

        Returns:
            (first, last): the event overlaps windows ``first … last - 1``; none if ``first == last``, in a gap.
        """

    def grid_ranges_by_start(self, start: Ints, size: int, hop: int, align: int) -> tuple[Ints, Ints]:
        """Which windows hold each event's start, as Trill numbers them.

        Window k is ``(align + k hop - size, align + k hop]``.

        Args:
            start: int64 ticks.
            size: The windows' length in ticks, positive.
            hop: Ticks from one window's end to the next's, positive.
            align: Where window 0 ends, in ticks.

        Returns:
            (first, last): the start lies in windows ``first … last - 1``; in none if ``first == last``, in a gap.
        """

    def dense_zeros(self, like: Array, groups: int, windows: int) -> Ints:
        """Zeros for `dense_count` and `dense_sum`, which add to them the differences between neighbouring windows.

        Args:
            like: Any array of the device.
            groups: How many groups there are.
            windows: How many windows there are, numbered from 0.

        Returns:
            int64[(windows + 1) x groups]; group g of window w is at ``w x groups + g``.
        """

    def dense_places(self, start: Ints, end: Ints | int, size: int, hop: int, align: int, windows: int | None) -> Any:
        """Where events are on a grid, in the form in which the device counts them.

        Args:
            start: As in `grid_ranges`.
            end: As in `grid_ranges`.
            size: As in `grid_ranges`.
            hop: As in `grid_ranges`.
            align: As in `grid_ranges`.
            windows: How many windows the table has: those before its first one and past its last one are left out. None
                if there are no such windows.

        Returns:
            What `dense_count` and `dense_sum` take.
        """

    def dense_count(self, into: Ints, codes: Codes, places: Any, groups: int) -> Ints:
        """Count events into a dense grid.

        Args:
            into: From `dense_zeros` or an earlier call. Do not use it afterwards: on the CPU it becomes the result.
            codes: int32 group of each event.
            places: From `dense_places`.
            groups: How many groups there are.

        Returns:
            ``into`` with the events added; `dense_totals` turns it into counts.
        """

    def dense_sum(self, into: Ints, codes: Codes, places: Any, values: Ints, groups: int) -> Ints:
        """Sum events' values into a dense grid, modulo 2**64.

        Args:
            into: From `dense_zeros` or an earlier call. Do not use it afterwards: on the CPU it becomes the result.
            codes: int32 group of each event.
            places: As in `dense_count`.
            values: int64 value of each event.
            groups: How many groups there are.

        Returns:
            ``into`` with the values added; `dense_totals` turns it into sums.
        """

    def dense_totals(self, into: Ints, groups: int) -> Ints:
        """From differences to totals: a running sum over the windows of each group.

        Args:
            into: From `dense_count` or `dense_sum`. Do not use it afterwards, as there.
            groups: How many groups there are.

        Returns:
            int64[windows x groups]; group g of window w is at ``w x groups + g``.
        """

    def dense_slots(self, counts: Ints, groups: int, start: int, hop: int) -> tuple[Ints, Ints, Codes, Ints]:
        """The places of a dense grid that hold events.

        Args:
            counts: int64[rows x groups] from `dense_totals`.
            groups: How many groups there are.
            start: When the first row's windows start, in ticks.
            hop: Ticks from one row's windows to the next's.

        Returns:
            (slots, start, codes int32, counts): the index of each place, its window's start, its group, its count.
        """

    def best_rows(self, codes: Codes, ranks: Ints, unique: Ints, count: int) -> Ints:
        """Which row pushes each row out, where a group keeps its ``count`` best rows.

        Of the rows with the least rank the oldest leaves, even if it has just arrived.

        Args:
            codes: int32 group of each row; a group's rows stand together, in order of arrival.
            ranks: int64; the greatest are the best.
            unique: int64 key of each row, ``0 … rows - 1``: a group keeps one row for each key, and a later row pushes
                the earlier one out before ranks are compared. Groups share no keys. Empty if rows have no keys.
            count: How many are kept.

        Returns:
            int64: the index of the row that pushes each out; its own if it is never kept; the number of rows if it
            stays.
        """

    def least_rows(self, codes: Ints, bounds: Ints, count: int) -> tuple[Ints, Ints]:
        """The rows of each stretch that have its ``count`` least codes, ties with the last of them included.

        Args:
            codes: int64 code of each row.
            bounds: int64: stretch s has the rows ``bounds[s] … bounds[s + 1] - 1``; all rows are in a stretch.
            count: How many codes, at least 1.

        Returns:
            (rows, counts): the rows, ascending, and how many each stretch has.
        """

    def reached(self, following: Ints, roots: Ints) -> Bools:
        """Which places are reached from some roots by going from each place to the one that follows it.

        Args:
            following: int64 place that follows each; the number of places where none does. No place follows itself,
                nor two places that are reached.
            roots: int64 places to begin at.
        """

    def timed_batches(
        self, start: Ints, begins: Ints, ends: Ints, closed: Ints, span: int, count: int, turns: int
    ) -> Ints:
        """Which rows open a batch that is complete with ``count`` rows, or when its time is over, and when that is.

        Each group has a timer. It is set to ``span`` when a batch is complete, and again when it runs out without a
        row, ``turns`` times in all; after that, the next row sets it. A row at the time when it runs out belongs to the
        next batch.

        Args:
            start: int64 ticks of the rows; a group's rows stand together, in order.
            begins: int64 index of each group's first row.
            ends: int64 index after its last one.
            closed: int64 time at which each group's batch before these rows was complete; ``1 << 62`` for none.
            span: The timer's ticks.
            count: How many rows a batch has at most.
            turns: How many times the timer is set before a row comes.

        Returns:
            int64: for a row that opens a batch, when its time is over; the least int64 for others.
        """

    def clocked_batches(
        self,
        place: Ints,
        due: Ints,
        begins: Ints,
        ends: Ints,
        timers: Ints,
        held: Bools,
        tick_place: Ints,
        tick_clock: Ints,
        tick_due: Ints,
        count: int,
        runs: int,
    ) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints, Bools]:
        """When batches are complete that ``count`` rows complete, or a tick at or past a timer.

        Each group has a timer. A row sets it where none is set, a complete batch sets it anew, and so does a tick that
        finds no row but a batch before that had rows; else the timer stops there, unless it ``runs`` on.

        Args:
            place: int64 places of the rows; a group's rows stand together, in order.
            due: int64: what the timer is set to by each row.
            begins: int64 index of each group's first row.
            ends: int64 index after its last one.
            timers: int64: the timer of each group; ``1 << 62`` for none.
            held: bool: whether the batch before these rows had rows.
            tick_place: int64 places of the ticks, in order; no row is at one.
            tick_clock: int64: what the clock shows after each; it never goes back.
            tick_due: int64: what the timer is set to at each.
            count: How many rows a batch has at most.
            runs: Whether the timer runs on without rows.

        Returns:
            (enter, leave, came, fell, over, over_fell, timers, fired): for each row the places at which its batch and
            the next one are complete, and the timers that completed the one and the other; for each group the place at
            which its first batch is complete, the timer that completed that, and the timer at the end; and for each
            tick whether a timer was due. ``1 << 62`` where a row or nothing did.
        """

    def window_walk(
        self, holds: Bools, width: int, oldest: Ints, newest: Ints, ends: Ints, mode: int
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """Walk windows by a condition that is known for a block of (oldest row, newest row) pairs.

        Args:
            holds: bool: for each group the condition of ``width * width`` pairs; that of the rows ``oldest + a`` and
                ``newest + b`` is at ``a * width + b``.
            width: How many rows a block has on each side.
            oldest: int64 index of each group's oldest row.
            newest: int64 index of the row that comes next.
            ends: int64 one past its last row.
            mode: 0: the oldest leave until the condition holds. 1: a batch ends with the row that makes it hold.
                2: it ends before that row.

        Returns:
            (oldest, newest, rows, by): how far each group has come; in mode 0, the rows that leave and the row that
            pushes each out; in the other modes, the first row of each batch and the row that ends it. Rows ascend.
        """


class JoinKernels(Protocol):
    """Pairs of events whose lifetimes overlap."""

    def coverage(self, codes: Codes, start: Ints, end: Ints) -> tuple[Codes, Ints, Ints]:
        """When at least one event of a group is alive: lifetimes that neither overlap nor touch.

        Args:
            codes: int32 group of each event. Events are in order of group, then start.
            start: int64 ticks.
            end: int64 ticks.

        Returns:
            (codes, start, end) of the covered intervals, in the same order.
        """

    def starts_within(
        self, codes: Codes, start: Ints, end: Ints, other_codes: Codes, other_start: Ints, other_end: Ints
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """For each event the others of its group that start within its lifetime, and for each other the events that do.

        If two start together, the other counts as starting within the event, not the reverse: each pair is found once.

        Args:
            codes: int32 group of each event. Events are in order of group, then start; so are the others.
            start: int64 ticks.
            end: int64 ticks.
            other_codes: int32 group of each of the others.
            other_start: int64 ticks.
            other_end: int64 ticks.

        Returns:
            (first, offsets, other_first, other_offsets): int64; event i meets ``offsets[i + 1] - offsets[i]`` others,
            from ``first[i]`` on, and likewise other j the events from ``other_first[j]`` on.
        """

    def pair_offsets(self, first: Ints, last: Ints) -> Ints:
        """How many pairs come before those of each event, and how many there are.

        Args:
            first: int64 the first other that each event meets.
            last: int64 the one after the last.

        Returns:
            int64, one more than there are events.
        """

    def meetings(
        self, first: Ints, offsets: Ints, end: Ints, other_start: Ints, other_end: Ints, low: int, high: int
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """A range of the pairs of events and the others that they meet, in order of the events, with their overlap.

        Args:
            first: int64 the first other that each event meets.
            offsets: int64, from `pair_offsets`.
            end: int64 ticks, of each event.
            other_start: int64 ticks, of each of the others, not before the start of an event that it meets.
            other_end: int64 ticks.
            low: The number of the first pair.
            high: The number after the last one.

        Returns:
            (event, other, start, end): int64 indices and ticks.
        """

    def meetings_in_order(
        self,
        first: Ints,
        offsets: Ints,
        new: Ints,
        rank: Ints,
        start: Ints,
        end: Ints,
        other_first: Ints,
        other_offsets: Ints,
        other_new: Ints,
        other_rank: Ints,
        other_start: Ints,
        other_end: Ints,
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """Pairs in the order in which the later ones of them come, then in that of the earlier ones.

        Args:
            first: int64 for each event the first that it meets of the others that are new, all of them later ones.
            offsets: int64, from `pair_offsets`.
            new: int64 indices of the new events.
            rank: int64 for each new event how many new events and others come before it.
            start: int64 ticks, of each event.
            end: int64 ticks.
            other_first: The same for the others: the first new event that each meets, and so the next five.
            other_offsets: Likewise.
            other_new: Likewise.
            other_rank: Likewise.
            other_start: Likewise.
            other_end: Likewise.

        Returns:
            (event, other, start, end): int64 indices and ticks.
        """

    def joined(
        self,
        first: Ints,
        offsets: Ints,
        end: Ints,
        other_start: Ints,
        other_end: Ints,
        mine: Sequence[Array],
        others: Sequence[Array],
        low: int,
        high: int,
    ) -> tuple[Ints, Ints, list[Array], list[Array]]:
        """A range of the pairs of events and the others that they meet, as `meetings`, with values of both.

        Args:
            first: As in `meetings`, and so the next four.
            offsets: Likewise.
            end: Likewise.
            other_start: Likewise.
            other_end: Likewise.
            mine: Values of the events, numbers or bools of any width.
            others: Values of the others.
            low: As in `meetings`.
            high: Likewise.

        Returns:
            (start, end, mine, others) of each pair.
        """

    def last_started(self, codes: Codes, start: Ints, other_codes: Codes, other_start: Ints) -> Ints:
        """For each event, the last of the others of its group that starts at or before its start.

        Args:
            codes: int32 group of each event. Events are in order of group, then start; so are the others.
            start: int64 ticks.
            other_codes: int32 group of each of the others.
            other_start: int64 ticks.

        Returns:
            int64 indices of the others; -1 where there is none.
        """

    def last_by_place(self, codes: Codes, places: Ints, other_codes: Codes, other_places: Ints, groups: int) -> Ints:
        """The same of events and others that are in order of place, their groups mixed.

        Args:
            codes: int32 group of each event.
            places: int64, ascending.
            other_codes: int32 group of each of the others.
            other_places: int64, ascending.
            groups: How many groups there are.

        Returns:
            int64 indices of the others; -1 where there is none.
        """


class NumberKernels(Protocol):
    """Numbers as integers that add up exactly, in any order: limbs, and codes of the same order."""

    def exact_limbs_int(self, values: Array) -> tuple[Array, Array]:
        """Integers as limbs of 32 bits.

        Args:
            values: int64 or uint64.

        Returns:
            (low, high), int64 both: ``value == high * 2**32 + low`` and ``0 <= low < 2**32``. Up to 2**30 of them can
            be summed.
        """

    def exact_limbs_decimal(self, low: Array, high: Array) -> tuple[Array, Array, Array, Array]:
        """128-bit integers, such as unscaled decimals, as four limbs of 32 bits, the lowest first.

        Args:
            low: The low 64 bits, as int64.
            high: The high 64 bits, int64; the sign is here.
        """

    def square_limbs_int(self, values: Array) -> tuple[Array, ...]:
        """The squares of integers as four limbs of 32 bits, the lowest first.

        Args:
            values: int64 or uint64.
        """

    def join_int(self, low: Array, high: Array) -> tuple[Array, Array]:
        """The integers that sums of `exact_limbs_int` limbs stand for.

        Returns:
            (values int64, overflow bool): where ``overflow`` holds, the sum does not fit int64.
        """

    def join_unsigned(self, low: Array, high: Array) -> tuple[Array, Array]:
        """The integers that sums of `exact_limbs_int` limbs stand for, as uint64.

        Returns:
            (values uint64, overflow bool): where ``overflow`` holds, the sum does not fit uint64.
        """

    def join_decimal(self, limb_sums: Sequence[Array], precision: int) -> tuple[Array, Array, Array]:
        """The decimals that sums of `exact_limbs_decimal` limbs stand for.

        Args:
            limb_sums: Four arrays of int64.
            precision: How many decimal digits there is room for, up to 38.

        Returns:
            (low, high, overflow): the two words of the sums, and whether they have more digits.
        """

    def limb_plan(self, values: Floats, n: int) -> tuple[int, int, int]:
        """How to cut finite floats into limbs: as few as the bits present need, two for most data.

        The rounded totals do not depend on the plan; it only has to fit the values.

        Args:
            values: float64, finite.
            n: How many values a sum has at most; up to 2**40.

        Returns:
            (limb_bits, lowest_exponent, limbs): limb_bits is even, at most 52, and ``n * 2**limb_bits <= 2**62``; every
            value is a multiple of ``2**lowest_exponent`` and smaller than ``2**(lowest_exponent + limbs * limb_bits)``.
        """

    def float_limbs(self, values: Floats, limb_bits: int, lowest_exponent: int, limbs: int) -> tuple[Ints, ...]:
        """Finite floats as limbs, exactly.

        Args:
            values: float64, finite.
            limb_bits: From `limb_plan`, like the other two.
            lowest_exponent: Every value is a multiple of 2 to its power.
            limbs: How many limbs.

        Returns:
            ``limbs`` arrays of int64, the lowest first:
            ``value == sum(limb[j] * 2**(lowest_exponent + j * limb_bits))`` and ``abs(limb[j]) < 2**limb_bits``.
        """

    def square_limbs(self, values: Floats, limb_bits: int, lowest_exponent: int) -> tuple[Ints, ...]:
        """The squares of finite floats as limbs, exactly, also where a float64 would overflow or underflow.

        Args:
            values: float64, finite.
            limb_bits: As `limb_plan` says for the values.
            lowest_exponent: Likewise.

        Returns:
            As many arrays of int64 as the greatest square needs, the lowest first:
            ``value**2 == sum(limb[j] * 2**(2 * lowest_exponent + j * limb_bits))``.
        """

    def round_limbs(self, limb_sums: Sequence[Ints], limb_bits: int, lowest_exponent: int) -> Floats:
        """The float64 nearest to sums of limbs, half to even; past the greatest float64 an infinity.

        Args:
            limb_sums: int64 sums of limbs, the lowest first, each of a magnitude below 2**62.
            limb_bits: As the limbs were cut.
            lowest_exponent: Likewise; at least -1074.

        Returns:
            float64 totals; an exact zero is +0.0.
        """

    def order_float(self, values: Array) -> Array:
        """Floats as integers of the same order, which `range_max` compares.

        Args:
            values: float64.

        Returns:
            int64 codes: all NaNs have one, the greatest; -0.0 has that of 0.0.
        """

    def unorder_float(self, codes: Array) -> Array:
        """The floats that `order_float` codes stand for; NaN for what is none."""

    def log_limbs(self, values: Array) -> tuple[Array, ...]:
        """The logarithms to base 2 of positive floats, to the nearest multiple of 2**-96.

        Args:
            values: float64, finite and positive.

        Returns:
            Four arrays of int64, the lowest first: ``log2(value) == sum(limb[j] * 2**(32 * j - 96))`` within 2**-96,
            and exactly for powers of two. Up to 2**30 of them can be summed.
        """

    def exp_limbs(self, limb_sums: Sequence[Array], divisor: Array) -> Array:
        """Two to the power of sums of `log_limbs` limbs, divided by whole numbers.

        Args:
            limb_sums: Four arrays of int64, each of a magnitude below 2**62.
            divisor: int64 from 1 to 2**30: 1 for a product, how many values there are for their geometric mean.

        Returns:
            float64: the power, computed to 80 bits and rounded; past the greatest float64 an infinity.
        """


class MeanKernels(Protocol):
    """Quotients of exact sums, rounded once. Digits are int64, 26 bits each, the lowest first."""

    def mean_limbs(
        self, limb_sums: Sequence[Ints], counts: Ints, limb_bits: int, lowest_exponent: int, places: int = 0
    ) -> Floats:
        """The float64 nearest to sums of limbs over counts, half to even: rounded once, subnormal or not.

        Args:
            limb_sums: int64 sums of limbs, the lowest first, each of a magnitude below 2**62; or one array of any
                int64.
            counts: int64 numbers of at least 1, none above ``2**(62 - limb_bits)``.
            limb_bits: As the limbs were cut; 32 for integers.
            lowest_exponent: Likewise; at least -1074.
            places: How many decimal places the sums have: they are divided by ``10**places`` too. Limbs have 32 bits
                then.

        Returns:
            float64; an exact zero is +0.0.
        """

    def variance(
        self,
        count: Ints,
        sums: Sequence[Ints],
        squares: Sequence[Ints],
        limb_bits: int,
        lowest_exponent: int,
        ddof: int,
    ) -> Floats:
        """The variance of each slot's values from their exact sums, ``(n S2 - S1**2) / (n (n - ddof))``.

        The numerator is computed in integers and rounded once, so nothing cancels: the variance of equal values is
        exactly zero, none is negative, and the relative error is below ``3.01 * 2**-53`` however large the mean is:
        three roundings, and one more where the result is subnormal. Only a result past the greatest float64 is
        infinite.

        Args:
            count: int64 number of values, n, in each slot.
            sums: int64 sums of the values' limbs, the lowest first. One array of plain integer sums will do as well.
            squares: int64 sums of the squares' limbs, likewise.
            limb_bits: As the limbs of both were cut; 32 for integers. It is even.
            lowest_exponent: That of the values, the squares' being twice as much; 0 for integers.
            ddof: Subtracted from n in the divisor: 1 for a sample, 0 for a population.

        Returns:
            float64; NaN where ``n <= ddof``.
        """

    def digits_int(self, values: Array) -> tuple[Array, ...]:
        """Integers as digits of 26 bits, as few as all of them need.

        Args:
            values: int64 or uint64.
        """

    def digits_decimal(self, low: Array, high: Array) -> tuple[Array, ...]:
        """128-bit integers, such as unscaled decimals, as five digits of 26 bits.

        Args:
            low: The low 64 bits, as int64.
            high: The high 64 bits, int64; the sign is here.
        """

    def digits_limbs(self, limb_sums: Sequence[Array], limb_bits: int) -> tuple[Array, ...]:
        """Sums of limbs as digits of 26 bits.

        Args:
            limb_sums: int64 sums of limbs, the lowest first, each of a magnitude below 2**62.
            limb_bits: As the limbs were cut.
        """

    def sum_digits(self, terms: Sequence[Sequence[Array]], factors: Sequence[int]) -> tuple[Array, ...]:
        """A sum of numbers, each times a factor.

        Args:
            terms: Lists of digits, or of sums of digits: below 2**62 when all are added up.
            factors: An integer for each.
        """

    def multiply_digits(self, left: Sequence[Array], right: Sequence[Array]) -> tuple[Array, ...]:
        """The products of two lists of numbers.

        Args:
            left: Digits, none of a greater magnitude than 2**26.
            right: Likewise; one of the two has at most a thousand.
        """

    def divide_digits(self, above: Sequence[Array], below: Sequence[Array], exponent: int) -> Array:
        """The float64 nearest to quotients of numbers, half to even: rounded once, subnormal or not.

        Args:
            above: Digits.
            below: Digits; where they are all 0, the result is 0.
            exponent: The quotients are multiplied by two to its power.
        """

    def round_digits(self, digits: Sequence[Array]) -> tuple[Array, Array]:
        """The nearest float64 to each number, half to even, as fraction and exponent, so that no number is too large.

        Args:
            digits: Or sums of digits, each of a magnitude below 2**62.

        Returns:
            (fraction, exponent): float64 in 0.5 … 1 with the sign, or 0.0, and int64: ``fraction * 2**exponent``.
        """

    def scaled(self, values: Array, exponent: Array) -> Array:
        """``values * 2**exponent``: subnormal results are rounded, too large ones infinite.

        Args:
            values: float64, finite.
            exponent: int64.
        """


class HoldingKernels(Protocol):
    """Ranges of integers in lists, one list for each key, and the values that they hold.

    Every range holds an integer, ``low <= high``. Key k has the ranges ``bounds[k] … bounds[k + 1] - 1``. Within them
    ``by_low`` has the indices in order of ``low``, and ``by_high`` those in falling order of ``high``.
    """

    def count_holding(
        self, keys: Codes, values: Ints, bounds: Ints, low: Ints, high: Ints, by_low: Ints, by_high: Ints
    ) -> Ints:
        """For each row how many ranges of its key hold its value.

        Args:
            keys: int32 key of each row; -1 for none.
            values: int64 value of each row.
            bounds: int64[keys + 1].
            low: int64 least integer of each range.
            high: int64 greatest integer of each range.
            by_low: int64 indices of ranges.
            by_high: int64 indices of ranges.
        """

    def pairs_holding(
        self, keys: Codes, values: Ints, bounds: Ints, low: Ints, high: Ints, by_low: Ints, by_high: Ints, counts: Ints
    ) -> tuple[Ints, Ints]:
        """For each row the ranges of its key that hold its value.

        Args:
            keys: As in `count_holding`, and so on.
            values: Likewise.
            bounds: Likewise.
            low: Likewise.
            high: Likewise.
            by_low: Likewise.
            by_high: Likewise.
            counts: What `count_holding` gives.

        Returns:
            (rows, ranges): int64 pairs, by row, then by range.
        """


class Kernels(
    OrderKernels, RangeKernels, WindowKernels, JoinKernels, NumberKernels, MeanKernels, HoldingKernels, Protocol
):
    """All kernels of a device."""
