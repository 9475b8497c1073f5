"""Aggregates that choose among events: the first, the last, all in an order, the one with the greatest value."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.turns import PLACE
from gpu_ops.epl.planning.aggregate_columns import AggregateColumns
from gpu_ops.epl.planning.events import bind_shown, event_of
from gpu_ops.epl.planning.mentions import properties_of
from gpu_ops.plan import aggregates as g
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.choices import first, last
from gpu_ops.plan.deliveries import Life
from gpu_ops.plan.ordered_aggregates import nth
from gpu_ops.texts.binding.bound import Bound
from gpu_ops.texts.binding.expressions import bind, constant
from gpu_ops.texts.binding.scope import StreamScope
from gpu_ops.texts.expressions import FunctionCall, SortKey, Wildcard
from gpu_ops.texts.placed_error import failure_at, unsupported

BY_PLACE = frozenset({"first", "last", "window", "nth"})
BY_VALUE = frozenset({"maxby", "minby", "sorted"})


def placed(
    column: str, n: int, order: Sequence[str] = (), down: Sequence[bool] = (), arrival: Sequence[str] = (PLACE,)
) -> Aggregate:
    """The n-th value in an order, -1 the last: by some columns, some of them descending, then by arrival."""
    return _in_order("nth", column, (*order, *arrival), down, {"n": n})


def listed(
    column: str,
    order: Sequence[str] = (),
    down: Sequence[bool] = (),
    arrival: Sequence[str] = (PLACE,),
    *,
    once: bool = False,
) -> Aggregate:
    """All values in an order, as `placed` has it; once for each value of the last column of the order."""
    return _in_order("collect_list", column, (*order, *arrival), down, {"once": True} if once else {})


def _in_order(kind: str, column: str, given: Sequence[str], down: Sequence[bool], options: dict[str, Any]) -> Aggregate:
    directions = tuple(down) + (False,) * (len(given) - len(down))
    return g.aggregate(
        kind, column, *map(nw.col, given), options={**options, "keeps_null": True, "descending": directions}
    )


def by_place(
    aggregates: AggregateColumns,
    call: FunctionCall,
    name: str,
    given: Sequence[Any],
    held: list[nw.Expr],
    keys: tuple[str, ...] | None,
    life: Life,
) -> Bound:
    """`first`, `last`, `window` and `nth`, of values or of whole events; `firstever` and `lastever`."""
    takes = 2 if name == "nth" else 1
    if not given and name in {"first", "last"} and life == "alive" and len(aggregates.events.streams) == 1:
        given = [Wildcard(place=call.place)]
    if len(given) < takes:
        what = "an expression and a number" if takes == 2 else "an expression, or *"
        raise failure_at(
            call, f"{call.name} takes {what}.", f"Write: {call.name}({'price, 1' if takes == 2 else '*'})."
        )
    bound = bind_shown(given[0], aggregates.events)
    column, index = aggregates.column(bound), _index(call, given)
    if aggregates.joined and name != "nth":
        return _of_join(aggregates, name, bound, index, held, keys, life)
    if name == "nth":
        known = [*held, ~bound.value.is_null()]
        return Bound(_nth(aggregates, column, index or 0, known, keys), bound.type)
    if life == "ever":
        choose = first if name == "first" else last
        known = [*held, ~bound.value.is_null()]
        return Bound(
            nw.col(aggregates.add(aggregates.only(choose(column, order=PLACE), known), keys, life)), bound.type
        )
    if name == "window":
        value = nw.col(aggregates.add(aggregates.only(listed(column, arrival=aggregates.arrival()), held), keys, life))
        return Bound(nw.when(value.list.len() > 0).then(value), pa.list_(bound.type))
    if index is None and not pa.types.is_nested(bound.type):
        return Bound(_first_or_last(aggregates, name, column, held, keys, life), bound.type)
    at = index or 0
    made = placed(column, at if name == "first" else -1 - at, arrival=aggregates.arrival())
    return Bound(nw.col(aggregates.add(aggregates.only(made, held), keys, life)), bound.type)


def _of_join(
    aggregates: AggregateColumns,
    name: str,
    bound: Bound,
    index: int | None,
    held: list[nw.Expr],
    keys: tuple[str, ...] | None,
    life: Life,
) -> Bound:
    """`first`, `last` and `window` of a join: each event of a stream is there once, however many others it meets.

    They stand in the order in which they met others first. Source: Esper's aggregates of events.
    """
    stream, column = aggregates.stream_of(bound.value), aggregates.column(bound)
    arrival, held = aggregates.arrival(stream), [*held, *_there(aggregates, stream)]
    held = [*held, ~bound.value.is_null()] if life == "ever" else held
    if name != "window" and not index:
        made = placed(column, 0 if name == "first" else -1, arrival=arrival)
        return Bound(nw.col(aggregates.add(aggregates.only(made, held), keys, life)), bound.type)
    made = listed(column, arrival=arrival, once=stream is not None)
    if name == "window":
        value = nw.col(aggregates.add(aggregates.only(made, held), keys, life))
        return Bound(nw.when(value.list.len() > 0).then(value), pa.list_(bound.type))
    at = (index or 0) if name == "first" else -1 - (index or 0)
    made = g.aggregate("nth_listed", column, *made.others, options={**made.options, "n": at})
    return Bound(nw.col(aggregates.add(aggregates.only(made, held), keys, life)), bound.type)


def _there(aggregates: AggregateColumns, stream: int | None) -> list[nw.Expr]:
    """That a row has an event of a stream: that of an outer join may have none."""
    there = "" if stream is None else aggregates.events.streams[stream].there
    return [~nw.col(there).is_null()] if there else []


def last_of(aggregates: AggregateColumns, bound: Bound, life: Life) -> nw.Expr:
    """What the last row has, null too, by the keys of the level."""
    column = aggregates.column(bound)
    if aggregates.joined or pa.types.is_nested(bound.type):
        return nw.col(aggregates.add(placed(column, -1, arrival=aggregates.arrival()), None, life))
    return _first_or_last(aggregates, "last", column, [], None, life)


def _nth(
    aggregates: AggregateColumns, column: str, back: int, held: list[nw.Expr], keys: tuple[str, ...] | None
) -> nw.Expr:
    """The value so many before the latest one that ever came, of those that are not null.

    As in Esper, it is there as long as so many are in the window, though it may have left itself.
    """
    if aggregates.joined:
        chosen = placed(column, -1 - back, arrival=aggregates.arrival())
    else:
        chosen = nth(column, -1 - back, order=PLACE)
    last = aggregates.add(aggregates.only(chosen, held), keys, "ever")
    count = aggregates.add(aggregates.only(g.count(), held), keys, "alive")
    return nw.when(nw.col(count).fill_null(0) >= back).then(nw.col(last))


def _first_or_last(
    aggregates: AggregateColumns,
    name: str,
    column: str,
    held: list[nw.Expr],
    keys: tuple[str, ...] | None,
    life: Life,
) -> nw.Expr:
    """The first or the last value, null too: that of those that are not null, if it stands first or last of all."""
    choose, most = (first, g.min) if name == "first" else (last, g.max)
    place = partial(choose, order=PLACE) if aggregates.in_other_order else most
    known = [*held, ~aggregates.columns[column].is_null()]
    value = aggregates.add(aggregates.only(choose(column, order=PLACE), held), keys, life)
    places = [aggregates.add(aggregates.only(place(PLACE), some), keys, life) for some in (held, known)]
    return nw.when(nw.col(places[0]) == nw.col(places[1])).then(nw.col(value))


def by_value(
    aggregates: AggregateColumns,
    call: FunctionCall,
    name: str,
    given: Sequence[Any],
    held: list[nw.Expr],
    keys: tuple[str, ...] | None,
    life: Life,
) -> Bound:
    """`sorted`, `maxby` and `minby`: events in the order of some values, of equal ones the one that came first."""
    whole, given = (given[0], given[1:]) if given and isinstance(given[0], Wildcard) else (None, given)
    if not given:
        raise failure_at(call, f"{call.name} needs what it sorts by.", f"Write: {call.name}(price).")
    event = _chosen(call, given, whole, aggregates.events)
    columns, down = [], []
    for each in given:
        node = each.expression if isinstance(each, SortKey) else each
        bound = bind(node, aggregates.events)
        if pa.types.is_nested(bound.type):
            raise unsupported(bound, f"{call.name} by arrays or records")
        columns.append(aggregates.column(bound))
        down.append((isinstance(each, SortKey) and each.descending) != (name == "maxby"))
    column, stream = aggregates.column(event), aggregates.stream_of(event.value)
    arrival, held = aggregates.arrival(stream), [*held, *_there(aggregates, stream)]
    if name == "sorted":
        every = listed(column, columns, down, arrival, once=stream is not None)
        value = nw.col(aggregates.add(aggregates.only(every, held), keys, life))
        return Bound(nw.when(value.list.len() > 0).then(value), pa.list_(event.type))
    best = nw.col(aggregates.add(aggregates.only(placed(column, 0, columns, down, arrival), held), keys, life))
    if life == "ever" and name == "maxby" and len(columns) == 1:
        # As in Esper, an event with a null key gives way to any that comes after it.
        known = nw.col(aggregates.add(aggregates.only(g.count(columns[0]), held), keys, life)).fill_null(0) > 0
        newest = nw.col(aggregates.add(aggregates.only(placed(column, -1, arrival=arrival), held), keys, life))
        best = nw.when(known).then(best).otherwise(newest)
    return Bound(best, event.type)


def _chosen(call: FunctionCall, given: Sequence[Any], whole: Wildcard | None, scope: StreamScope) -> Bound:
    """The whole event that is chosen: of a join's streams that which is said, or whose properties it sorts by."""
    if len(scope.streams) == 1 or (whole is not None and whole.of is not None):
        return bind_shown(whole or Wildcard(), scope)
    names = [properties_of(each.expression if isinstance(each, SortKey) else each, scope) for each in given]
    read = {name for each in names for name in each}
    for stream in scope.streams:
        own = {stream.columns.get(name, name) for name in stream.schema.names}
        if read and read <= own:
            return event_of(stream)
    raise failure_at(call, f"{call.name} chooses among events of one stream.", "Sort by properties of one.")


def _index(call: FunctionCall, given: Sequence[Any]) -> int | None:
    if len(given) < 2:
        return None
    value = constant(given[1])
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise failure_at(given[1], f"{call.name} needs a number from 0 on, not {given[1]}.")
    return value
