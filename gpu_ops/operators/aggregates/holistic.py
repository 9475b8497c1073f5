"""Aggregates that cannot be computed of bounded parts: order statistics, lists, and the user's functions.

Values are ranked, and `range_kth` finds the k-th rank of all slots at once, however many events each slot holds. Only
lists, and functions that need the events, go through every pair of an event and a slot, a bounded number at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.polars_frames import empty_table
from gpu_ops.operators.aggregates.block import Block
from gpu_ops.operators.aggregates.forms import Column, column_name, nearest_floats, no_columns, ordered_columns
from gpu_ops.operators.row_order import run_starts, stable_order, tied_rows
from gpu_ops.plan.aggregate_kinds import (
    AggregateKind,
    AllEvents,
    FirstBy,
    FirstEvents,
    SortedValues,
    has_order,
    order_form,
    ordered_type,
)
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.ordered_aggregates import RANK, placed_type, quantile_type, ranked_type, share

_DENSE = 1 << 16
"""The widest range of codes that always serves as ranks without sorting, however few events there are."""

_PAIRS = 4
"""Up to so many slots for each event, pairs of an event and a slot are listed to find the first events of each."""


# Which events take part, and in which order


@dataclass(frozen=True)
class Members:
    """The events of a block that an aggregate is over.

    Attributes:
        at: Their indices among the block's events; None for all of them.
        first: Their first slots.
        last: One past their last slots.
        counts: How many of them hold each of the block's slots.
    """

    at: Any | None
    first: Any
    last: Any
    counts: Any

    def pick(self, values: Any, block: Block) -> Any:
        """The values of these events, of values for all the block's events."""
        return values if self.at is None else block.device.kernels.take(values, self.at)


def members(block: Block, aggregate: Aggregate, columns: Sequence[Column]) -> Members:
    """The events for which an aggregate's condition holds and some columns are not null."""
    block.check_whole(aggregate)
    at, first, last = block.taking_part(aggregate, columns)
    counts = block.rows if at is None else block.device.kernels.range_count(first, last, block.size, block.slots)
    return Members(at, first, last, counts)


def column_of(block: Block, expression: Any, form: str | None = None) -> Column:
    """A block's column in a form; without a form, in the one that has an order."""
    name = column_name(expression)
    return block.columns[name, order_form(block.schema.field(name).type) if form is None else form]


def whole(block: Block, expression: Any) -> Column:
    """A block's column with its values unchanged."""
    return column_of(block, expression, "rows")


def order_keys(block: Block, expressions: Sequence[Any], chosen: Members, descending: Sequence[bool] = ()) -> list[Any]:
    """Keys that order events by some columns, the first column before the others; nulls come first.

    The first columns may be descending, nulls last.

    Last, the bits order floats that are equal (0.0 and -0.0, any two NaNs): the order of results must not depend on how
    the input is cut.
    """
    keys, bits = [], []
    for at, expression in enumerate(expressions):
        made = []
        if has_order(block.schema.field(column_name(expression)).type):
            column = column_of(block, expression)
            codes = block.order_codes(chosen.pick(column.arrays[0], block))
            if column.valid is not None:
                made.append(chosen.pick(column.valid, block))
                codes = np.where(made[0], codes, np.zeros_like(codes))
            made.append(codes)
        here = []
        if (column_name(expression), "bits") in block.columns:
            here.append(chosen.pick(column_of(block, expression, "bits").arrays[0], block))
        if at < len(descending) and descending[at]:
            made, here = [~each for each in made], [~each for each in here]
        keys += made
        bits += here
    return keys + bits


def _placed(block: Block, order: Any) -> Any:
    """The place of each event in an order."""
    places = np.empty_like(order)
    places[order] = block.device.columns.array(np.arange(len(order)))
    return places


def _dense_ranks(block: Block, codes: Any) -> tuple[Any, Any]:
    """(ranks from 0 on, codes by rank): ranks are dense, or differ from dense codes by an offset."""
    if not len(codes):
        return codes, codes
    least, most = int(codes.min()), int(codes.max())
    if most - least < _DENSE + 4 * len(codes):
        return codes - least, block.device.columns.array(np.arange(most - least + 1)) + least
    distinct, ranks = np.unique(codes, return_inverse=True)
    return ranks, distinct


def _kth(block: Block, ranks: Any, first: Any, last: Any, slots: Any, k: Any) -> Any:
    return block.device.kernels.range_kth(ranks, first, last, block.size, slots, k)


# Quantiles and modes


def picked_ranks(block: Block, aggregate: Aggregate) -> tuple[str, Any, Any, Any, Any]:
    """(form, ranks, codes by rank, first, last) of an aggregate's values, shared by all aggregates over them."""
    form = order_form(block.type_of(aggregate))
    identity, (values,), first, last = block.picked(aggregate, form)
    ranks, codes = block.part(
        ("ranked", *identity),
        lambda: _dense_ranks(block, block.order_codes(values)),
    )
    return form, ranks, codes, first, last


def _asked(block: Block, aggregate: Aggregate, form: str, slots: Any, k: Any) -> tuple[Any, Any]:
    """(codes by rank, ranks): the rank of the k-th least value of some slots; -1 if a slot has no such value."""
    known = block.throughout(aggregate, form, slots, k)
    if known is None:
        _, ranks, codes, first, last = picked_ranks(block, aggregate)
        return codes, _kth(block, ranks, first, last, slots, k)
    _, (values,), first, last = block.picked(aggregate, form)
    ranks, codes = _dense_ranks(block, np.concatenate([block.order_codes(values), known[0]]))
    first, last = np.concatenate([first, known[1]]), np.concatenate([last, known[2]])
    return codes, _kth(block, ranks, first, last, slots, k - known[3])


def _quantile(block: Block, aggregate: Aggregate) -> Any:
    form = order_form(block.type_of(aggregate))
    counts, valid = block.counts(aggregate, form), block.present(aggregate, form)
    over, under = share(aggregate.options["q"])
    way = aggregate.options["interpolation"]
    place = np.maximum(counts - 1, 0) * over
    lower = place // under
    rest = place - lower * under
    if way not in ("linear", "midpoint"):
        if way == "discrete":
            lower = np.maximum((counts * over + (under - 1)) // under - 1, 0)
        elif way == "higher":
            lower = lower + (rest > 0)
        codes, found = _asked(block, aggregate, form, block.slots, lower)
        return block.of_codes(aggregate, form, _codes_at(block, codes, found, valid), valid)
    (low, high), numbers = _numbers_at(block, aggregate, form, [lower, lower + (rest > 0)])
    plain = low.astype(np.float64, copy=False)
    with np.errstate(invalid="ignore", over="ignore"):  # infinities and NaN, as IEEE 754 has them
        part = rest / float(under)
        halfway = way == "midpoint" or under == 2  # wherever it is between two values
        between = None if halfway else plain * (1.0 - part) + high * part
        if halfway or under % 2 == 0:
            middle = _mean_of_two(low, high, numbers, block)
            between = middle if halfway else np.where(part == 0.5, middle, between)
    return np.where((rest == 0) | (low == high), plain, between), valid, pa.float64()


@dataclass(frozen=True)
class Ordered:
    """The numbers that an aggregate is over, by their place in order; NaN is the greatest.

    Attributes:
        block: The block.
        aggregate: The aggregate, whose columns are `ordered_columns`.
    """

    block: Block
    aggregate: Aggregate

    @property
    def _form(self) -> str:
        return order_form(self.block.type_of(self.aggregate))

    def count(self) -> Any:
        """int64: how many there are in each slot."""
        return self.block.counts(self.aggregate, self._form)

    def kth(self, *places: Any) -> list[Any]:
        """For each of some places, from 0 on for the least, the number there in each slot.

        Ask for all places at once: that is one sweep. A place out of range gives the slot's least or greatest number; a
        slot without numbers gives 0.

        Args:
            places: int64, one for each slot.
        """
        highest = np.maximum(self.count() - 1, 0)
        clamped = [np.minimum(np.maximum(each, 0), highest) for each in places]
        return _numbers_at(self.block, self.aggregate, self._form, clamped)[0]


def _numbers_at(block: Block, aggregate: Aggregate, form: str, places: Sequence[Any]) -> tuple[list[Any], Any]:
    """(for each of some places the number there in each slot, all numbers of the column by rank).

    The places of each slot stand next to each other: one sweep answers all.
    """
    many = len(places)
    asked = np.stack(places, axis=1).ravel()
    codes, found = _asked(block, aggregate, form, np.repeat(block.slots, many), asked)
    numbers, valid = _numbers_by_rank(block, aggregate, form, codes), block.present(aggregate, form)
    return [_codes_at(block, numbers, found[at::many].copy(), valid) for at in range(many)], numbers


def _mean_of_two(low: Any, high: Any, numbers: Any, block: Block) -> Any:
    """The means of pairs of numbers, each rounded once; ``numbers`` holds all numbers that may occur."""
    if low.dtype.kind != "f":
        if not len(numbers) or (int(numbers.min()) >= -1 << 62 and int(numbers.max()) < 1 << 62):
            return (low + high) * 0.5
        kernels = block.device.kernels
        limbs = zip(kernels.exact_limbs_int(low), kernels.exact_limbs_int(high), strict=True)
        return kernels.mean_limbs([one + other for one, other in limbs], np.full_like(low, 2, dtype=np.int64), 32, 0)
    # If half of a sum is subnormal, the sum is exact; if the sum overflows, the halves are exact.
    both = low + high
    return np.where(np.isfinite(both), both * 0.5, low * 0.5 + high * 0.5)


def _codes_at(block: Block, codes: Any, found: Any, valid: Any | None) -> Any:
    """Codes by rank; 0 for slots that hold none."""
    if not len(codes):
        return np.zeros_like(found, dtype=codes.dtype)
    if valid is None:
        return block.device.kernels.take(codes, found)
    return np.where(valid, block.device.kernels.take(codes, np.maximum(found, 0)), np.zeros_like(codes[:1]))


def _numbers_by_rank(block: Block, aggregate: Aggregate, form: str, codes: Any) -> Any:
    """Numbers by rank: integers, or float64."""
    kernels = block.device.kernels
    column = column_of(block, aggregate.expression, form)
    if column.distinct is not None:
        # A decimal: ranks point into the frame of its values.
        low, high, _ = block.device.columns.words(column.distinct, column_name(aggregate.expression))
        values = nearest_floats((low, high), block.type_of(aggregate), block.device)
        return kernels.take(values, codes) if len(values) else codes.astype(np.float64)
    return block.of_codes(aggregate, form, codes, None)[0]


def _mode(block: Block, aggregate: Aggregate) -> Any:
    """The most frequent value: between the ends of its own events' ranges, the count of a value is constant.

    So each value has pieces with a count. A slot's mode is the greatest (count, value) of the pieces that hold it.
    """
    kernels = block.device.kernels
    form, ranks, codes, first, last = picked_ranks(block, aggregate)
    valid = block.present(aggregate, form)
    order = kernels.group_order(ranks.astype(np.int32), len(codes), first)
    rank, first, last = (kernels.take(each, order) for each in (ranks, first, last))
    if not len(rank):
        return block.of_codes(aggregate, form, np.zeros_like(block.slots), valid)
    owner, places, begin, finish = kernels.axis(rank.astype(np.int32), first, last)
    pieces, counts = kernels.occupied(begin, finish, len(places))
    owner, low, high = kernels.slot_bounds(owner, places, pieces)
    worth = counts * len(codes) + (len(codes) - 1 - owner)
    best = kernels.range_max(worth, low, high, block.size, block.slots)
    best = len(codes) - 1 - (best if valid is None else np.where(valid, best, 0)) % len(codes)
    return block.of_codes(aggregate, form, _codes_at(block, codes, best, valid), valid)


# What stands where


def members_of(block: Block, aggregate: Aggregate, value: Column) -> Members:
    """The events whose value counts: not those whose value is null, unless the aggregate keeps nulls."""
    return members(block, aggregate, [] if aggregate.options.get("keeps_null") else [value])


def _nth(block: Block, aggregate: Aggregate) -> Any:
    value = whole(block, aggregate.expression)
    chosen = members_of(block, aggregate, value)
    down = aggregate.options.get("descending", ())
    keys = order_keys(block, (*aggregate.others, aggregate.expression), chosen, down)
    order = stable_order(keys, chosen.first, block.device)
    n = aggregate.options["n"]
    k = np.full_like(chosen.counts, n) if n >= 0 else chosen.counts + n
    found = _kth(block, _placed(block, order), chosen.first, chosen.last, block.slots, k)
    valid = found >= 0
    name = column_name(aggregate.expression)
    columns = block.device.columns
    if not len(order):
        return columns.rename(columns.nulls(value.distinct, len(found)), name, aggregate.name)
    rows = chosen.pick(value.arrays[0], block)[order[np.maximum(found, 0)]]
    frame = columns.take(value.distinct, rows)
    return columns.rename(columns.null_where(frame, None if bool(valid.all()) else valid), name, aggregate.name)


def _first_of(aggregate: Aggregate) -> FirstBy | None:
    """The first events that the one at a place needs."""
    options = aggregate.options
    plain = aggregate.filter is None and not aggregate.distinct and options.get("keeps_null", False)
    if options["n"] < 0 or not plain or not aggregate.others:
        return None
    return FirstBy(column_name(aggregate.others[0]), bool(options.get("descending", (False,))[0]), options["n"] + 1)


def _top(block: Block, aggregate: Aggregate) -> Any:
    value, k, take = whole(block, aggregate.expression), aggregate.options["k"], block.device.kernels.take
    by = aggregate.others or (aggregate.expression,)
    chosen = members(block, aggregate, [value, column_of(block, by[0])])
    codes = _best_first(block, by[0], chosen, descending=aggregate.options["descending"])
    found, counts = _firsts(block, chosen, codes, (aggregate.expression,), k, ties=False)
    values = block.device.columns.take(value.distinct, take(chosen.pick(value.arrays[0], block), found))
    return as_lists(block, aggregate, [(values, counts)])


def _ranked(block: Block, aggregate: Aggregate) -> Any:
    """Rows with SQL's RANK; ties with the last row asked for are included, as in Trill."""
    kernels, columns = block.device.kernels, block.device.columns
    chosen = members(block, aggregate, [column_of(block, aggregate.expression)])
    codes = _best_first(block, aggregate.expression, chosen, descending=aggregate.options["descending"])
    found, counts = _firsts(block, chosen, codes, aggregate.others, aggregate.options["k"], ties=True)
    slot, place = kernels.expand(counts)
    # A row's rank is that of the first equal row of its slot.
    changes = run_starts(kernels.take(codes, found), slot)
    begins = kernels.keep(changes)
    rank = kernels.take(place, kernels.take(begins, np.cumsum(changes.astype(np.int64)) - 1)) + 1
    frames = [columns.build({RANK: (rank, None, pa.int64())})]
    for expression in aggregate.others:
        column = whole(block, expression)
        frames.append(columns.take(column.distinct, kernels.take(chosen.pick(column.arrays[0], block), found)))
    names = [column_name(each) for each in aggregate.others]
    # The types of the result, under the names that the block's columns have.
    types = zip((RANK, *names), aggregate.options["returns"].types, strict=True)
    table = columns.to_arrow(columns.beside(*frames), pa.schema(types))
    return structs(block, aggregate, [table], columns.host(counts))


def _best_first(block: Block, expression: Any, chosen: Members, *, descending: bool) -> Any:
    """int64 codes of events by a column without nulls; the greatest value has the least code if ``descending``."""
    codes = block.order_codes(chosen.pick(column_of(block, expression).arrays[0], block))
    return ~codes if descending else codes


def _firsts(block: Block, chosen: Members, codes: Any, others: Sequence[Any], k: int, *, ties: bool) -> tuple[Any, Any]:
    """(events, counts): the first ``k`` events of each slot, in order, and how many each has.

    Args:
        block: The block.
        chosen: The events.
        codes: int64 code of each; the least comes first.
        others: The columns that order events of one code.
        k: How many events.
        ties: Whether all events with the code of the last one are among them.
    """
    kernels, few = block.device.kernels, _few_pairs(block, chosen)
    if few is None:
        return _firsts_by_place(block, chosen, codes, others, k, ties=ties)
    source, bounds = few
    found, counts = kernels.least_rows(codes if source is None else kernels.take(codes, source), bounds, k)
    if source is not None:
        found = kernels.take(source, found)
    slot, place = kernels.expand(counts)
    codes = kernels.take(codes, found)
    order = kernels.group_order(slot.astype(np.int32), len(counts), codes)
    found, codes = kernels.take(found, order), kernels.take(codes, order)
    tied = tied_rows(slot, codes, block.device)
    if tied is not None:
        some = found[tied]
        keys = order_keys(block, others, replace(chosen, at=some if chosen.at is None else chosen.at[some]))
        runs = np.cumsum(run_starts(slot[tied], codes[tied]))
        found[tied] = some[stable_order([runs, *keys], some, block.device)]
    if not ties and bool((counts > k).any()):
        found, counts = kernels.take(found, kernels.keep(place < k)), np.minimum(counts, k)
    return found, counts


def _few_pairs(block: Block, chosen: Members) -> tuple[Any | None, Any] | None:
    """(the events of all pairs of a slot and an event, by slot; where each slot's begin); None if there are many pairs.

    The events are None where each has one slot and they stand in the order of slots.
    """
    kernels, first, last = block.device.kernels, chosen.first, chosen.last
    bounds = np.concatenate([np.zeros_like(chosen.counts[:1]), np.cumsum(chosen.counts)])
    total = int(bounds[-1])
    if total > _PAIRS * len(first):
        return None
    if total == len(first) and bool((last - first == 1).all()) and kernels.ascends(first):
        return None, bounds
    begin, end = np.searchsorted(block.slots, first), np.searchsorted(block.slots, last)
    source, offset = kernels.expand(end - begin)
    slot = (kernels.take(begin, source) + offset).astype(np.int32)
    return kernels.take(source, kernels.group_order(slot, len(block.slots), source)), bounds


def _firsts_by_place(
    block: Block, chosen: Members, codes: Any, others: Sequence[Any], k: int, *, ties: bool
) -> tuple[Any, Any]:
    """`_firsts` by the places of all events in order, however many slots an event has."""
    kernels = block.device.kernels
    order = stable_order([codes, *order_keys(block, others, chosen)], codes, block.device)
    places, counts = _placed(block, order), np.minimum(chosen.counts, k)
    if ties:
        counts = _with_ties(block, chosen, places, kernels.take(codes, order), counts)
    source, at = kernels.expand(counts)
    found = _kth(block, places, chosen.first, chosen.last, kernels.take(block.slots, source), at)
    return kernels.take(order, found), counts


def _with_ties(block: Block, chosen: Members, places: Any, by: Any, counts: Any) -> Any:
    """How many events come up to the last one asked for, ties included: a search for the last tie."""
    kernels = block.device.kernels
    last = kernels.take(by, np.maximum(_kth(block, places, chosen.first, chosen.last, block.slots, counts - 1), 0))
    low, high = counts, chosen.counts
    tied = kernels.keep(low < high)
    jump = 1
    while len(tied):
        # All up to ``low`` belong. Search from there to ``high``: steps of growing length, then halves.
        middle = np.minimum(low[tied] + jump, (low[tied] + high[tied] + 1) // 2)
        found = _kth(block, places, chosen.first, chosen.last, kernels.take(block.slots, tied), middle - 1)
        belongs = kernels.take(by, found) == last[tied]
        low, high = low.copy(), high.copy()
        low[tied] = np.where(belongs, middle, low[tied])
        high[tied] = np.where(belongs, high[tied], middle - 1)
        tied = tied[low[tied] < high[tied]]
        jump *= 2
    return low


def _rate(block: Block, aggregate: Aggregate) -> Any:
    counts = members(block, aggregate, []).counts
    options = aggregate.options
    if "over" in options:
        return counts * options["per"] / float(options["over"]), None, pa.float64()
    places = block.where_windows_are()
    return counts * options["per"] / (places.end - places.start), None, pa.float64()


# Lists


def as_lists(block: Block, aggregate: Aggregate, pieces: Any) -> Any:
    """A frame of one column of lists, from frames of one column and the lengths of the lists."""
    columns = block.device.columns
    made = aggregate.field(block.schema).type.value_type
    values, counts = [], [np.zeros(1, np.int64)]
    for frame, some in pieces:
        values.append(columns.to_arrow(frame, pa.schema([pa.field(frame.columns[0], made)])).column(0))
        counts.append(columns.host(some))
    flat = pa.chunked_array([chunk for each in values for chunk in each.chunks], made).combine_chunks()
    return _list_frame(block, aggregate, flat, np.concatenate(counts[1:]) if len(counts) > 1 else counts[0][:0])


def structs(block: Block, aggregate: Aggregate, tables: Sequence[pa.Table], counts: Any) -> Any:
    """A frame of one column of lists of structs, from all rows and the lengths of the lists."""
    returns = aggregate.options["returns"]
    whole = (
        pa.concat_tables([table.rename_columns(returns.names) for table in tables]) if tables else empty_table(returns)
    )
    flat = pa.StructArray.from_arrays([each.combine_chunks() for each in whole.columns], fields=list(returns))
    return _list_frame(block, aggregate, flat, counts)


def _list_frame(block: Block, aggregate: Aggregate, flat: pa.Array, counts: Any) -> Any:
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    if offsets[-1] >= 1 << 31:
        lists = pa.LargeListArray.from_arrays(pa.array(offsets), flat)
    else:
        lists = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), flat)
    return block.device.columns.from_arrow(pa.table({aggregate.name: lists}))


# What each takes


def with_order(aggregate: Aggregate, schema: pa.Schema) -> list[tuple[str, str]]:
    """The unchanged value, and the forms by which it is ordered."""
    name = column_name(aggregate.expression)
    return [(name, "rows"), *_order_forms((*aggregate.others, aggregate.expression), schema)]


def _order_forms(expressions: Sequence[Any], schema: pa.Schema) -> list[tuple[str, str]]:
    types = {column_name(each): schema.field(column_name(each)).type for each in expressions}
    bits = [(name, "bits") for name, dtype in types.items() if pa.types.is_floating(dtype)]
    return [(name, order_form(dtype)) for name, dtype in types.items() if has_order(dtype)] + bits


def _ranked_columns(aggregate: Aggregate, schema: pa.Schema) -> list[tuple[str, str]]:
    return [*_row_forms(aggregate.others, schema), *_order_forms((aggregate.expression, *aggregate.others), schema)]


def all_rows(aggregate: Aggregate, schema: pa.Schema) -> list[tuple[str, str]]:
    """All columns unchanged, and the forms by which they are ordered."""
    return [*_row_forms(aggregate.others, schema), *_order_forms(aggregate.others, schema)]


def _row_forms(expressions: Sequence[Any], schema: pa.Schema) -> list[tuple[str, str]]:
    return [(name, "rows") for name in map(column_name, expressions)]


# The kinds


def list_of_ordered(aggregate: Aggregate, types: tuple[pa.DataType, ...]) -> pa.DataType:
    """The type of a list of values that have an order."""
    return pa.list_(ordered_type(aggregate, types))


AggregateKind(
    name="quantile", types=quantile_type, columns=ordered_columns, result=_quantile, incremental=SortedValues()
)
AggregateKind(name="mode", types=ordered_type, columns=ordered_columns, result=_mode, incremental=AllEvents())
AggregateKind(name="nth", types=placed_type, columns=with_order, result=_nth, incremental=FirstEvents(_first_of))
AggregateKind(name="top", types=list_of_ordered, columns=with_order, result=_top, incremental=AllEvents())
AggregateKind(name="ranked", types=ranked_type, columns=_ranked_columns, result=_ranked, incremental=AllEvents())
AggregateKind(
    name="rate",
    types=lambda aggregate, types: pa.float64(),
    columns=no_columns,
    result=_rate,
    incremental=AllEvents(),
)
