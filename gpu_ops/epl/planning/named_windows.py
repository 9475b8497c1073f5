"""`create window`: what is kept in a named window, and what the statements over it read."""

from __future__ import annotations

from collections.abc import Sequence

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import TICK, TIME_TYPE
from gpu_ops.core.turns import BATCH_DUE, CLOCK, DUE, INSTANCE, PLACE
from gpu_ops.epl import queries as q
from gpu_ops.epl import statements as s
from gpu_ops.epl.column_names import column_names
from gpu_ops.epl.patterns import EventFilter
from gpu_ops.epl.planning.arguments import clock_span, whole_number
from gpu_ops.epl.planning.known_contexts import reads_context
from gpu_ops.epl.planning.known_windows import CAME, ID, SILENT, KnownWindow, WindowLimits
from gpu_ops.epl.planning.planned import Ledger, known_type
from gpu_ops.epl.planning.windows import windowed
from gpu_ops.errors import ColumnError
from gpu_ops.plan.deliveries import Deliveries
from gpu_ops.plan.nodes import Feed, Node, extended, selected
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding.expressions import bind
from gpu_ops.texts.binding.scope import BoundStream, StreamScope
from gpu_ops.texts.binding.types import event_type
from gpu_ops.texts.placed_error import failure_at, unsupported

_BY_THEMSELVES = frozenset({"keepall", "time", "timetolive", "time_order"})
"""The views whose rows leave whatever becomes of other rows."""

_ON_A_GRID = frozenset({"time_batch", "ext_timed_batch"})
"""The views whose batches end so often since the first row."""


def window_schema(create: s.CreateWindow, ledger: Ledger) -> pa.Schema:
    """The columns of a named window.

    Raises:
        PlacedError: A type or a property is unknown.
    """
    if create.columns is not None:
        try:
            return event_type({each.name: str(each.type) for each in create.columns})
        except ColumnError as error:
            raise failure_at(create, str(error)) from None
    schema = known_type(EventFilter(create.type_name, place=create.place), ledger)
    if not create.items:
        return schema
    scope = StreamScope([BoundStream("", create.type_name, schema)])
    fields: dict[str, pa.Field] = {}
    for item, name in zip(create.items, column_names(create.items), strict=True):
        if isinstance(item.expression, e.Wildcard):
            fields |= {each.name: each for each in schema}
        elif name is not None:
            fields[name] = pa.field(name, bind(item.expression, scope).type)
    return pa.schema(list(fields.values()))


def known_window(create: s.CreateWindow, schema: pa.Schema, ledger: Ledger, context: str = "") -> KnownWindow:
    """A named window, which has one in each instance of a context if it is in one.

    Raises:
        PlacedError: There is no such view, or it is none of named windows.
    """
    own = [pa.field(ID, pa.int64()), pa.field(CLOCK, TIME_TYPE), pa.field(PLACE, pa.int64())]
    scope = StreamScope([BoundStream("", create.name, schema)])
    within = (INSTANCE,) if context else ()
    schema = pa.schema([*schema, *(pa.field(name, pa.int64()) for name in within)])
    arrivals = Feed(pa.schema([*schema, *own]), (), TICK)
    views = create.views or (q.View("keepall", place=create.place),)
    names = {view.name.lower() for view in views}
    for view in views:
        if view.name.lower() in {"expr", "expr_batch"} and "expired" in str(view):
            raise unsupported(view, "counts of expired rows in named windows")
    made = windowed(arrivals, ledger.ticks, views, create.retain, scope, deployed=ledger.clock, within=within)
    if made.posts is not None:
        raise unsupported(create, "FORCE_UPDATE of named windows")
    keeps_all = names == {"keepall"}
    hidden = [name for name, _ in made.order if name not in schema.names]
    fields = [*schema, *(made.memberships.schema.field(name) for name in hidden)]
    fields += [pa.field(CLOCK, TIME_TYPE), pa.field(PLACE, pa.int64())]
    content = Feed(pa.schema([*fields, pa.field(SILENT, pa.bool_())]), (), None)
    gathering = Feed(content.schema, (), None) if made.in_batches else None
    return KnownWindow(
        create.name,
        schema,
        arrivals,
        None if keeps_all else _moves(made.memberships, hidden, ledger),
        _moves(made.content, hidden, ledger) if made.in_batches else None,
        content,
        gathering,
        len(views) == 1 and names <= _BY_THEMSELVES,
        len(views) == 1 and names <= _ON_A_GRID,
        made.order,
        limits=_limits(views, schema, within),
        context=context,
    )


def _limits(views: Sequence[q.View], schema: pa.Schema, within: tuple[str, ...]) -> WindowLimits | None:
    """When rows leave, for a walk; None where they leave in another way."""
    if within and views[0].name.lower() in {"lastevent", "length"}:
        return None  # they are so many in each instance
    if len(views) > 1 or any(reads_context(each) for each in views[0].arguments):
        return None
    match views[0].name.lower(), views[0].arguments:
        case "keepall", ():
            return WindowLimits()
        case "lastevent", ():
            return WindowLimits(most=1)
        case "length", (count,):
            return WindowLimits(most=whole_number(count, "The length of a window"))
        case "time", (span,) if not (found := clock_span(span)).months:
            return WindowLimits(span=found.ticks)
        case "unique", keys:
            names = {each.name for each in keys if isinstance(each, e.Name) and each.name in schema.names}
            return WindowLimits(unique=tuple(sorted({*names, *within}))) if len(names) == len(keys) else None
    return None


def _moves(rows: Node, hidden: list[str], ledger: Ledger) -> Node:
    """What enters and leaves, as new and old rows that are points."""
    names = [name for name in rows.schema.names if name not in {PLACE, CLOCK, DUE, BATCH_DUE}]
    kept = [*dict.fromkeys([*names, *hidden])]
    came = extended(rows, [nw.col(CLOCK).alias(CAME)])
    return Deliveries(selected(came, [*kept, CAME, PLACE]), ledger.ticks, "row", old=True)
