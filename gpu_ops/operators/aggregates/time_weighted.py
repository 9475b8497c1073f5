"""Integrals over time in windows of a grid: an event counts for as long as its lifetime lies in a window.

That time is the earlier of the window's and the event's end, less the later of their starts. So the value is added,
times the window's end in windows that end before the event, and times the event's end in the others. It is subtracted,
times the event's start in windows that begin before it, and times the window's start in the others. These are four sums
over ranges of slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_ops.operators.aggregates.block import Block, with_special
from gpu_ops.operators.aggregates.exact_sums import Digits, Result, Taken, as_float, computed_once, scale, taken
from gpu_ops.operators.aggregates.forms import number_columns
from gpu_ops.plan.aggregate_kinds import AggregateKind, AllEvents, float_of_numbers
from gpu_ops.plan.aggregates import Aggregate


@dataclass(frozen=True)
class _WindowRanges:
    """Ranges of the slots that hold any event: ``first … last - 1``, in two parts each.

    Attributes:
        first: First slot of each event.
        ended: The first slot whose window does not end before the event.
        begun: The first slot whose window begins after the event.
        last: One past its last slot.
        start: Ticks at which the windows begin.
        end: Ticks at which they end.
    """

    first: Any
    ended: Any
    begun: Any
    last: Any
    start: Any
    end: Any


@computed_once
def _window_ranges(some: Taken) -> _WindowRanges:
    block, kernels = some.block, some.block.device.kernels
    places = block.where_windows_are()
    first = np.searchsorted(block.slots, some.first).astype(np.int64, copy=False)
    last = first + (some.last - some.first)
    code = kernels.take(places.group, np.minimum(first, max(len(block.slots) - 1, 0)))
    start, end = some.arrays(1)[0], some.arrays(2)[0]
    begun = kernels.search_pairs(places.group, places.start, code, start)
    ended = kernels.search_pairs(places.group, places.end, code, end - 1)
    ended, begun = (np.minimum(np.maximum(each, first), last) for each in (ended, begun))
    return _WindowRanges(first, ended, begun, last, places.start, places.end)


def _lasting(some: Taken, values: Digits) -> Digits:
    """Per slot, the sum of some numbers times the time in ticks for which their events are in its window."""
    kernels, ranges = some.block.device.kernels, _window_ranges(some)
    every = some.block.device.columns.array(np.arange(len(some.block.slots)))

    def sums(limbs: Digits, first: Any, last: Any) -> Digits:
        made = [kernels.range_sum(limb, first, last, len(every), every) for limb in limbs]
        return kernels.sum_digits([made], [1])

    def times(digits: Digits, ticks: Any) -> Digits:
        return kernels.multiply_digits(digits, kernels.digits_int(ticks))

    return kernels.sum_digits(
        [
            times(sums(values, ranges.first, ranges.ended), ranges.end),
            sums(times(values, some.arrays(2)[0]), ranges.ended, ranges.last),
            times(sums(values, ranges.begun, ranges.last), ranges.start),
            sums(times(values, some.arrays(1)[0]), ranges.first, ranges.begun),
        ],
        [1, 1, -1, -1],
    )


@computed_once
def _integral(some: Taken) -> tuple[Digits, int]:
    """(digits, exponent) of the sum of values times ticks."""
    digits, exponent = some.digits(0)
    return _lasting(some, digits), exponent


def _with_strange(some: Taken, made: Any) -> Any:
    """As IEEE 754 adds them: NaN and infinities count while they are in the window."""
    if some.strange() is None:
        return made
    values = some.floats(0)
    kinds = (("nan", np.isnan(values)), ("up", values == np.inf), ("down", values == -np.inf))
    nan, up, down = (some.count_if(kind, mask) for kind, mask in kinds)
    return with_special(made, (nan, up, down))


def _clipped_integral(block: Block, aggregate: Aggregate) -> Result:
    some = taken(block, aggregate)
    kernels = block.device.kernels
    digits, exponent = _integral(some)
    fraction, shift = kernels.round_digits(digits)
    made = kernels.scaled(fraction, shift + exponent) / float(aggregate.options["unit"]) / 10.0 ** scale(some, 0)
    return as_float(_with_strange(some, made), some.count() > 0)


def _clipped_mean(block: Block, aggregate: Aggregate) -> Result:
    some = taken(block, aggregate)
    digits, exponent = _integral(some)
    length = some.times_ten(_lasting(some, [np.ones_like(some.first)]), scale(some, 0))
    made = block.device.kernels.divide_digits(digits, length, exponent)
    return as_float(_with_strange(some, made), some.count() > 0)


for _name, _result in {"clipped_integral": _clipped_integral, "clipped_mean": _clipped_mean}.items():
    AggregateKind(
        name=_name,
        # Behind the value stands the lifetime.
        types=lambda aggregate, types: float_of_numbers(aggregate, types[:1]),
        columns=number_columns,
        result=_result,
        incremental=AllEvents(),
    )
