"""What a device computes: the kernels that operators may call, described once for all devices.

A device has a module with these functions, and mypy holds each module to the names, the arguments and the results said
here. They are pure functions of one-dimensional contiguous arrays of the device: they write into no input (but a dense
grid's ``into``) and trust their arguments, so that an index out of range is not noticed. Every device gives the same
bytes, whatever the order in which its threads come; tests compare them. What a function of the CPU's says besides, an
example mostly, is beside it in ``devices/cpu``; how the GPU does it, in ``devices/array``.
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
    """Events in order: of group, then start; and what is taken in another order."""

    def group_order(self, codes: Codes, groups: int, start: Ints) -> Ints:
        """The order of events by group, then start; events equal in both keep theirs.

        Args:
            codes: int32 group of each event, ``0 … groups - 1``.
            groups: How many groups there are.
            start: int64 ticks.

        Returns:
            int64 indices of the events.
        """

    def group_bounds(self, codes: Codes, groups: int) -> Ints:
        """Where each group begins once events stand in group order.

        Args:
            codes: int32 group of each event, ``0 … groups - 1``.
            groups: How many groups there are; some may be empty.

        Returns:
            int64[groups + 1]: group g's events are ``bounds[g] … bounds[g + 1] - 1``.
        """

    def group_codes(self, bounds: Ints) -> Codes:
        """The codes of events in group order: int32, group g as often as it has events."""

    def is_ordered(self, codes: Codes, start: Ints) -> bool:
        """Whether events stand in order of group and start already."""

    def ascends(self, values: Ints) -> bool:
        """Whether no value is less than the one before."""

    def extent(self, values: Ints) -> tuple[int, int]:
        """The least and the greatest value; there is at least one."""

    def partition(self, codes: Codes, groups: int, arrays: Sequence[Array]) -> tuple[Codes, Ints, list[Array]]:
        """Events ordered by group, then start.

        Args:
            codes: int32 group of each event, ``0 … groups - 1``.
            groups: How many groups there are.
            arrays: What belongs to the events, numbers or bools of any width; the first is their start, int64 ticks.

        Returns:
            (codes, bounds, arrays): the same in the new order; group g's events are ``bounds[g] … bounds[g + 1] - 1``,
            and ``bounds`` is a host array. What was in order already is handed back as it is.
        """

    def take(self, values: Array, indices: Ints) -> Array:
        """The values at these indices: numbers or bools of any width."""

    def search_pairs(self, codes: Codes, places: Ints, of_codes: Codes, of_places: Ints) -> Ints:
        """For each of some pairs of a group and a place, where the first greater one stands.

        Args:
            codes: int32 group of each row. Rows stand in order of group, then place.
            places: int64 place of each row.
            of_codes: int32 groups looked for, in any order.
            of_places: int64 places looked for.

        Returns:
            int64 indices of rows; how many rows there are where none is greater.
        """


class RangeKernels(Protocol):
    """Ranges of slots ``[first, last)``: what holds each slot, added up, compared or counted."""

    def expand(self, counts: Ints) -> tuple[Ints, Ints]:
        """Each index as often as its count says.

        Args:
            counts: How often, none negative.

        Returns:
            (source, offset): index i ``counts[i]`` times, and 0, 1, … within each.
        """

    def keep(self, mask: Bools) -> Ints:
        """The indices at which a mask holds, ascending."""

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
        """Group, begin and end of slots that hold events (so that each has a next boundary in its group)."""

    def range_count(self, first: Ints, last: Ints, size: int, slots: Ints) -> Ints:
        """How many events hold each of some slots.

        Args:
            first: Each event's first slot.
            last: One past its last slot.
            size: How many slots there are.
            slots: The slots asked for, ascending.

        Returns:
            int64: for each of them the number of events with ``first <= slot < last``.
        """

    def range_sum(self, values: Ints, first: Ints, last: Ints, size: int, slots: Ints) -> Ints:
        """The sum of the events' values in each of some slots, modulo 2**64.

        The caller knows that it fits, or sums limbs.

        Args:
            values: int64 value of each event.
            first: Each event's first slot.
            last: One past its last slot.
            size: How many slots there are.
            slots: The slots asked for, ascending.
        """

    def range_max(self, values: Ints, first: Ints, last: Ints, size: int, slots: Ints) -> Ints:
        """The greatest of the events' values in each of some slots, the least int64 where there is none.

        The minimum is ``~range_max(~values, …)``.

        Args:
            values: int64 value (or order code) of each event.
            first: Each event's first slot.
            last: One past its last slot.
            size: How many slots there are.
            slots: The slots asked for, ascending.
        """

    def range_kth(self, ranks: Ints, first: Ints, last: Ints, size: int, slots: Ints, k: Ints) -> Ints:
        """The k-th least of the ranks of the events that hold each of some slots.

        Args:
            ranks: int64 rank of each event, from 0 on; equal values have equal ranks.
            first: Each event's first slot.
            last: One past its last slot.
            size: How many slots there are.
            slots: The slots asked for, ascending; one may be asked for several times.
            k: Of each of them how many of its ranks come before the one asked for.

        Returns:
            int64: the ranks; -1 where a slot holds no more than k events, or k is negative.
        """

    def merged_ranges(self, codes: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints, Ints]:
        """The ranges of events with equal codes, put together where they overlap or touch.

        What adds up over the merged ranges counts each code once in each slot.

        Args:
            codes: int64 code of each event's value, none negative.
            first: Each event's first slot.
            last: One past its last slot, after the first.

        Returns:
            (events, first, last): for each merged range the event that it begins with, the first one of them in the
            order given, and the slots. In order of (first, event).
        """

    def runs_between(
        self, codes: Codes, values: Ints, sums: Ints, bounds: Ints, of_codes: Codes, low: Ints, high: Ints
    ) -> tuple[Ints, Ints, Ints]:
        """Where some groups' values from one rank to another stand in each of some runs.

        A value is in a group as often as the weights of its rows add up to, over all runs; never less than not at all.

        Args:
            codes: int32 group of each row, run after run. The rows of a run stand in order of group and value, and no
                two have the same of both.
            values: int64 value of each row.
            sums: int64: the weights of a run's rows, added up from its first row on.
            bounds: Run r's rows are ``bounds[r] … bounds[r + 1] - 1``.
            of_codes: The group of each query.
            low: The first rank that is asked for, from 0 on.
            high: One past the last one; it is in the group, or no more than ``low``.

        Returns:
            (begin, end, before): query by query, for each run which rows there are between the value of the first rank
            and that of the last one; and how many values of the group are less than the first. Nothing where no rank is
            asked for.
        """

    def running_max(self, values: Ints) -> Ints:
        """The greatest of the first 1, 2, … values."""

    def quotient(self, totals: Ints, counts: Ints) -> Floats:
        """Totals over counts, each rounded to float64 first."""


class WindowKernels(Protocol):
    """Window axes, grids of windows, and windows that are walked through row by row."""

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

        Each group has a boundary before all others and one after all others. In between are the starts of the events
        that begin in the step, the ends of those that end in it, the boundary that is known from before, and a forced
        one.

        Args:
            codes: int32 group of each event.
            low: int64 place where each begins. The first ``earlier`` events began in earlier steps, at ``before``.
            high: int64 place where each ends; ``after`` if it does not end in this step.
            earlier: How many events began before.
            known: int64 for each group a boundary that it has; ``before`` for none.
            force: A boundary that every group has, at or after all others; ``after`` for none.
            before: Less than every place.
            after: Greater than every place.

        Returns:
            (axis_code int32, axis, first, last, slots, group, begin, end): the boundaries; each event's first boundary
            and the one it ends at; the slots, one from each boundary but a group's last, by number; the group of each
            slot; and where among the slots each group's first and last one stand.
        """

    def stitch_order(self, codes: Codes, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Events of one group joined where one ends exactly at the start of another (Trill's Stitch).

        Of several that end at a time, in order of their starts, the k-th goes on as the k-th of those that start there,
        in order of their ends: first in, first out. So the joined lifetimes do not depend on the order of equal events.

        Args:
            codes: int32 group of each event; events are ordered by group, then start.
            start: int64 ticks.
            end: int64 ticks, after the start.

        Returns:
            (first, last): of each joined event the index of its first and of its last piece, by the first ascending.
        """

    def grid_ranges(self, start: Ints, end: Ints | int, size: int, hop: int, align: int) -> tuple[Ints, Ints]:
        """Which windows of a grid each event overlaps; window k is ``[align + k hop, align + k hop + size)``.

        Moving ``align`` by whole hops renumbers the windows at no cost.

        Args:
            start: int64 ticks.
            end: int64 ticks, after the start; or for how many ticks every event lasts.
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
        """What `dense_count` and `dense_sum` add to: differences between a window and the one before, all zero.

        Args:
            like: Any array of the device.
            groups: How many groups there are.
            windows: How many windows there are, numbered from 0.

        Returns:
            int64[(windows + 1) x groups]; group g of window w is at ``w x groups + g``.
        """

    def dense_count(self, into: Ints, codes: Codes, first: Ints, last: Ints, groups: int) -> Ints:
        """Count events into a dense grid.

        Args:
            into: From `dense_zeros` or an earlier call. It is used up: on the CPU the result is made in it.
            codes: int32 group of each event.
            first: Each event's first window, from 0.
            last: One past its last window, at most the number of windows.
            groups: How many groups there are.

        Returns:
            ``into`` with the events added; `dense_totals` turns it into counts.
        """

    def dense_sum(self, into: Ints, codes: Codes, first: Ints, last: Ints, values: Ints, groups: int) -> Ints:
        """Sum events' values into a dense grid, modulo 2**64.

        Args:
            into: From `dense_zeros` or an earlier call. It is used up: on the CPU the result is made in it.
            codes: int32 group of each event.
            first: Each event's first window, from 0.
            last: One past its last window, at most the number of windows.
            values: int64 value of each event.
            groups: How many groups there are.

        Returns:
            ``into`` with the values added; `dense_totals` turns it into sums.
        """

    def dense_totals(self, into: Ints, groups: int) -> Ints:
        """From differences to totals: a running sum down the windows of each group.

        Args:
            into: From `dense_count` or `dense_sum`; used up, as there.
            groups: How many groups there are.

        Returns:
            int64[windows x groups]; group g of window w is at ``w x groups + g``.
        """

    def dense_slots(self, counts: Ints, groups: int, start: int, hop: int) -> tuple[Ints, Ints, Codes, Ints]:
        """The places of some rows of a dense grid that hold any event.

        Args:
            counts: int64[rows x groups] from `dense_totals`.
            groups: How many groups there are.
            start: When the first row's windows start, in ticks.
            hop: Ticks from one row's windows to the next's.

        Returns:
            (slots, start, codes int32, counts): of each such place its index, its window's start, its group, its count.
        """

    def best_rows(self, codes: Codes, ranks: Ints, unique: Ints, count: int) -> Ints:
        """Which row makes each one leave, where the ``count`` best rows of a group are kept.

        Of the rows with the least rank the oldest leaves, be it the one that has just come.

        Args:
            codes: int32 group of each row; groups stand together, each in the order in which its rows come.
            ranks: int64; the greatest are the best.
            unique: int64 numbers ``0 … rows - 1`` of which a group keeps at most one row each: a later row puts an
                earlier one out before it is compared. Rows of two groups have different ones. Empty where nothing is
                unique.
            count: How many are kept.

        Returns:
            int64: the index of the row with which each leaves; its own for one that is never kept; as many as there are
            rows for one that stays.
        """

    def reached(self, following: Ints, roots: Ints) -> Bools:
        """Which places are reached from some roots, going on from each to the one that follows it.

        Args:
            following: int64 place that follows each; as many as there are places where none does. No place follows two
                that are reached, and none itself.
            roots: int64 places to begin with.
        """

    def timed_batches(
        self, start: Ints, begins: Ints, ends: Ints, closed: Ints, span: int, count: int, turns: int
    ) -> Ints:
        """Which rows open a batch that is complete with ``count`` rows, or when its time is over, and when that is.

        A clock runs in each group. It is set to ``span`` after each time at which a batch is complete, and again if no
        row came by then, so ``turns`` times; when it has run out, the next row sets it anew. A row at the very time is
        of the next batch.

        Args:
            start: int64 ticks of the rows; those of a group stand together, in order.
            begins: int64 index of each group's first row.
            ends: int64 index after its last one.
            closed: int64 time at which each group's batch before these rows was complete; ``1 << 62`` for none.
            span: The clock's.
            count: How many rows a batch has at most.
            turns: How many times a clock is set before a row comes.

        Returns:
            int64: for a row that opens a batch, when its time is over; the least int64 for others.
        """

    def window_walk(
        self, holds: Bools, width: int, oldest: Ints, newest: Ints, ends: Ints, mode: int
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """Walk through windows by a condition, which is known for a block of pairs of an oldest and a newest row.

        Args:
            holds: bool: for each group ``width * width`` pairs: that of the rows ``oldest + a`` and ``newest + b`` at
                ``a * width + b``.
            width: How wide a block is.
            oldest: int64 index of each group's oldest row.
            newest: int64 index of the row that comes next.
            ends: int64 one past its last row.
            mode: 0: the oldest leave until the condition holds. 1: a batch ends with the row that makes it hold.
                2: it ends before that row.

        Returns:
            (oldest, newest, rows, by): how far each group has come; and in mode 0 the rows that leave, and the row with
            which each does; in the others the first rows of batches, and the row that ends each. Rows ascend.
        """


class Joins(Protocol):
    """Pairs of events that are alive together."""

    def coverage(self, codes: Codes, start: Ints, end: Ints) -> tuple[Codes, Ints, Ints]:
        """When at least one event of a group is alive: lifetimes that neither overlap nor touch.

        Args:
            codes: int32 group of each event. Events stand in order of group, then start.
            start: int64 ticks.
            end: int64 ticks.

        Returns:
            (codes, start, end) of the covers, in the same order.
        """

    def starts_within(
        self, codes: Codes, start: Ints, end: Ints, other_codes: Codes, other_start: Ints, other_end: Ints
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """For each event the others of its group that start within its lifetime, and for each other the events that do.

        Of two that start together the other is among the event's, and not the reverse: each pair is found once.

        Args:
            codes: int32 group of each event. Events stand in order of group, then start; so do the others.
            start: int64 ticks.
            end: int64 ticks.
            other_codes: int32 group of each of the others.
            other_start: int64 ticks.
            other_end: int64 ticks.

        Returns:
            (first, offsets, other_first, other_offsets): int64; event i meets the others from ``first[i]`` on, so many
            as `pair_offsets` says; and other j the events from ``other_first[j]`` on, after its own start.
        """

    def pair_offsets(self, first: Ints, last: Ints) -> Ints:
        """How many pairs there are before each event's, and in all.

        Args:
            first: int64 the first other that each event meets.
            last: int64 the one after the last.

        Returns:
            int64, one more than events.
        """

    def meetings(
        self, first: Ints, offsets: Ints, end: Ints, other_start: Ints, other_end: Ints, low: int, high: int
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """Some of the pairs of events and the others that they meet, in order of the events, and when both are alive.

        Args:
            first: int64 the first other that each event meets.
            offsets: int64, one more than events: how many pairs there are before each event's.
            end: int64 ticks, of each event.
            other_start: int64 ticks, of each of the others, not before the start of an event that it meets.
            other_end: int64 ticks.
            low: The number of the first pair.
            high: The number after the last one.

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
        """Some of the pairs of events and the others that they meet, as `meetings`, with what belongs to both.

        Args:
            first: As in `meetings`, and so the next four.
            offsets: Likewise.
            end: Likewise.
            other_start: Likewise.
            other_end: Likewise.
            mine: What belongs to the events, numbers or bools of any width.
            others: What belongs to the others.
            low: As in `meetings`.
            high: Likewise.

        Returns:
            (start, end, mine, others) of each pair.
        """

    def last_started(self, codes: Codes, start: Ints, other_codes: Codes, other_start: Ints) -> Ints:
        """For each event the last of the others of its group that starts when it does or before.

        Args:
            codes: int32 group of each event. Events stand in order of group, then start; so do the others.
            start: int64 ticks.
            other_codes: int32 group of each of the others.
            other_start: int64 ticks.

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
        """What sums of `exact_limbs_int` limbs come to.

        Returns:
            (values int64, overflow bool): where ``overflow`` holds, the sum does not fit int64.
        """

    def join_unsigned(self, low: Array, high: Array) -> tuple[Array, Array]:
        """What sums of `exact_limbs_int` limbs come to, as uint64.

        Returns:
            (values uint64, overflow bool): where ``overflow`` holds, the sum does not fit uint64.
        """

    def join_decimal(self, limb_sums: Sequence[Array], precision: int) -> tuple[Array, Array, Array]:
        """What sums of `exact_limbs_decimal` limbs come to.

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
            limb_bits: As `limb_plan` says, likewise the other two.
            lowest_exponent: Of what every value is a multiple.
            limbs: How many.

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
        """The float64 nearest to what sums of limbs come to, half to even; past the greatest float64 an infinity.

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


class Means(Protocol):
    """What exact sums come to when they are divided, rounded once. Digits are int64, 26 bits each, the lowest first."""

    def mean_limbs(
        self, limb_sums: Sequence[Ints], counts: Ints, limb_bits: int, lowest_exponent: int, places: int = 0
    ) -> Floats:
        """The float64 nearest to what sums of limbs come to over counts, half to even: rounded once, subnormal or not.

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
            ddof: What is taken off n in the divisor: 1 for a sample, 0 for a population.

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
        """What sums of limbs come to, as digits of 26 bits.

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
            below: Digits; where they come to 0, so does the result.
            exponent: The quotients are multiplied by two to its power.
        """

    def round_digits(self, digits: Sequence[Array]) -> tuple[Array, Array]:
        """The nearest float64 to each number, half to even, for which no number is too large.

        Args:
            digits: Or sums of digits, each of a magnitude below 2**62.

        Returns:
            (fraction, exponent): float64 in 0.5 … 1 with the sign, or 0.0, and int64: ``fraction * 2**exponent``.
        """

    def scaled(self, values: Array, exponent: Array) -> Array:
        """``values * 2**exponent``, rounded where that is subnormal, infinite where it is too large.

        Args:
            values: float64, finite.
            exponent: int64.
        """


class Kernels(OrderKernels, RangeKernels, WindowKernels, Joins, NumberKernels, Means, Protocol):
    """All kernels of a device."""
