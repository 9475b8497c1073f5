"""Aggregates over every pair of a slot and an event in it, a bounded number of pairs at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.block import Block, Column, nan_if_special
from gpu_ops.operators.aggregates.forms import column_name, nearest_floats, number_columns, ordered_columns
from gpu_ops.operators.aggregates.holistic import (
    Members,
    as_lists,
    column_of,
    list_of_ordered,
    members_of,
    order_keys,
    picked_ranks,
    whole,
    with_order,
)
from gpu_ops.operators.aggregates.plain import mean as mean_of
from gpu_ops.operators.row_order import stable_order
from gpu_ops.operators.sizes import refuse_counts
from gpu_ops.plan.aggregate_kinds import AggregateKind, AllEvents, float_of_numbers, number_form
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.ordered_aggregates import placed_type

_FEWER = "Choose shorter windows or a longer hop: each window's list has all of its events. Or ask for top or highest."

_PAIRS = 1 << 20
"""About how many pairs of an event and a slot are held at a time."""


@dataclass(frozen=True)
class SlotEvents:
    """The events of some slots, slot by slot.

    Attributes:
        low: The first of these slots, as an index into the block's.
        high: One past the last.
        at: Indices of the events among the members, those of each slot in order.
        counts: How many each slot has.
    """

    low: int
    high: int
    at: Any
    counts: Any


def pairs(block: Block, chosen: Members, order: Any) -> Iterator[SlotEvents]:
    """All pairs of slots and the events that hold them, a bounded number at a time.

    Args:
        block: The block.
        chosen: Which events.
        order: Their order within a slot.
    """
    kernels, columns = block.device.kernels, block.device.columns
    first, last = kernels.take(chosen.first, order), kernels.take(chosen.last, order)
    total = columns.host(np.cumsum(chosen.counts))
    low = 0
    while low < len(total):
        before = int(total[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(total, before + _PAIRS)))
        slots = block.slots[low:high]
        near = kernels.keep((first <= int(slots[-1])) & (last > int(slots[0])))
        begin = np.searchsorted(slots, kernels.take(first, near))
        end = np.searchsorted(slots, kernels.take(last, near))
        source, offset = kernels.expand(end - begin)
        slot = (kernels.take(begin, source) + offset).astype(np.int32)
        by_slot = kernels.group_order(slot, high - low, columns.array(np.arange(len(slot))))
        at = kernels.take(kernels.take(order, kernels.take(near, source)), by_slot)
        yield SlotEvents(low, high, at, chosen.counts[low:high])
        low = high


def _listed(block: Block, aggregate: Aggregate, value: Column) -> Iterator[tuple[Any, Any]]:
    """(values in order, how many each slot has), some slots at a time."""
    chosen, columns = members_of(block, aggregate, value), block.device.columns
    refuse_counts(chosen.counts, what="collect_list", remedy=_FEWER, width=1)
    down = aggregate.options.get("descending", ())
    keys = order_keys(block, (*aggregate.others, aggregate.expression), chosen, down)
    order = stable_order(keys, chosen.first, block.device)
    rows, number = chosen.pick(value.arrays[0], block), None
    if aggregate.options.get("once"):
        number = chosen.pick(column_of(block, aggregate.others[-1]).arrays[0], block)
    for each in pairs(block, chosen, order):
        some = each if number is None else _once(each, number, block.device)
        yield columns.take(value.distinct, rows[some.at]), some.counts


def _once(some: SlotEvents, number: Any, device: Device) -> SlotEvents:
    """The first of the events of a slot that have one number."""
    take = device.kernels.take
    slot, _ = device.kernels.expand(some.counts)
    own = take(number, some.at)
    order = stable_order([slot, own], slot, device)
    sorted_slot, sorted_own = take(slot, order), take(own, order)
    is_first = np.ones_like(sorted_slot, dtype=np.bool_)
    is_first[1:] = (sorted_slot[1:] != sorted_slot[:-1]) | (sorted_own[1:] != sorted_own[:-1])
    kept = np.empty_like(is_first)
    kept[order] = is_first
    before = np.concatenate([np.zeros_like(slot, shape=(1,), dtype=np.int64), np.cumsum(kept.astype(np.int64))])
    ends = np.cumsum(some.counts)
    return SlotEvents(some.low, some.high, some.at[kept], before[ends] - before[ends - some.counts])


def _collect(block: Block, aggregate: Aggregate) -> Any:
    return as_lists(block, aggregate, _listed(block, aggregate, whole(block, aggregate.expression)))


def _nth_listed(block: Block, aggregate: Aggregate) -> Any:
    """What stands at a place of the list that `collect_list` makes."""
    value, n = whole(block, aggregate.expression), aggregate.options["n"]
    columns, name, made = block.device.columns, column_name(aggregate.expression), []
    for frame, counts in _listed(block, aggregate, value):
        ends = np.cumsum(counts)
        found = (ends - counts if n >= 0 else ends) + n
        there = (counts > n) if n >= 0 else (counts >= -n)
        if not columns.rows(frame):
            made.append(columns.nulls(frame, len(counts)))
            continue
        made.append(columns.null_where(columns.take(frame, np.where(there, found, np.zeros_like(found))), there))
    if not made:
        made.append(columns.nulls(value.distinct, 0))
    return columns.rename(made[0] if len(made) == 1 else columns.concat(made), name, aggregate.name)


def _collect_set(block: Block, aggregate: Aggregate) -> Any:
    form, ranks, codes, first, last = picked_ranks(block, aggregate)
    chosen = Members(None, first, last, block.counts(aggregate, form))
    take, columns = block.device.kernels.take, block.device.columns
    lists = []
    for some in pairs(block, chosen, stable_order([ranks], ranks, block.device)):
        made = block.of_codes(aggregate, form, take(codes, take(ranks, some.at)), None)
        lists.append((columns.build({aggregate.name: made}) if isinstance(made, tuple) else made, some.counts))
    return as_lists(block, aggregate, lists)


def _mean_absolute_deviation(block: Block, aggregate: Aggregate) -> Any:
    kernels = block.device.kernels
    mean, valid, _ = mean_of(block, aggregate)
    dtype = block.type_of(aggregate)
    form = number_form(dtype)
    identity, arrays, first, last = block.picked(aggregate, form)
    values, special = block.finite(identity, nearest_floats(arrays, dtype, block.device), first, last)
    mean = mean if special is None else np.where(np.isfinite(mean), mean, 0.0)
    counts = block.counts(aggregate, form)
    chosen = Members(None, first, last, counts)
    order = block.device.columns.array(np.arange(len(first)))
    sums = []
    for some in pairs(block, chosen, order):
        source, _ = kernels.expand(some.counts)
        means = kernels.take(mean[some.low : some.high], source)
        with np.errstate(over="ignore"):
            away = np.abs(kernels.take(values, some.at) - means)
        # A difference that overflows is infinite, and so is the sum.
        finite = np.where(np.isfinite(away), away, 0.0)
        bits, lowest, limbs = kernels.limb_plan(finite, len(finite))
        ends = np.cumsum(some.counts)
        totals = []
        for limb in kernels.float_limbs(finite, bits, lowest, limbs):
            running = np.concatenate([np.zeros_like(limb, shape=(1,)), np.cumsum(limb)])
            totals.append(running[ends] - running[ends - some.counts])
        mean_away = kernels.mean_limbs(totals, np.maximum(some.counts, 1), bits, lowest)
        lost = np.concatenate([np.zeros_like(ends, shape=(1,)), np.cumsum((~np.isfinite(away)).astype(np.int64))])
        sums.append(np.where(lost[ends] > lost[ends - some.counts], np.inf, mean_away))
    return nan_if_special(np.concatenate(sums) if sums else mean, special), valid, pa.float64()


AggregateKind(
    name="collect_list",
    types=lambda aggregate, types: pa.list_(placed_type(aggregate, types)),
    columns=with_order,
    result=_collect,
    incremental=AllEvents(),
)
AggregateKind(name="nth_listed", types=placed_type, columns=with_order, result=_nth_listed, incremental=AllEvents())
AggregateKind(
    name="collect_set", types=list_of_ordered, columns=ordered_columns, result=_collect_set, incremental=AllEvents()
)
AggregateKind(
    name="mean_absolute_deviation",
    types=float_of_numbers,
    columns=number_columns,
    result=_mean_absolute_deviation,
    incremental=AllEvents(),
)
