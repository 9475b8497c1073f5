"""What would be answered differently from Esper, and is refused."""

from __future__ import annotations

from gpu_ops.core.turns import DUE
from gpu_ops.epl import queries as q
from gpu_ops.epl.planning.aggregates import PlannedAggregates
from gpu_ops.epl.planning.looking_back import looks_into_window
from gpu_ops.epl.planning.mentions import drops_oldest
from gpu_ops.epl.planning.parts import parts
from gpu_ops.epl.planning.subqueries import asks
from gpu_ops.epl.planning.windows import StreamWindows
from gpu_ops.plan.rates import Kind
from gpu_ops.texts.placed_error import failure_at, unsupported


def refuse_windows(query: q.Query, windows: StreamWindows) -> None:
    """Refuse what windows do not go with.

    Raises:
        PlacedError: There is such a thing.
    """
    if windows.in_batches and query.output is not None and query.output.selection == "snapshot":
        raise unsupported(query.output, "snapshots of windows of batches")
    if windows.posts is not None and query.where is not None:
        raise unsupported(query.where, "'where' beside FORCE_UPDATE")
    if windows.posts is not None and query.having is not None:
        raise unsupported(query.having, "'having' beside FORCE_UPDATE")


def refuse_aggregates(query: q.Query, aggregates: PlannedAggregates, *, gives_old: bool, by_group: bool) -> None:
    """Refuse aggregates where they would be others than Esper's.

    Raises:
        PlacedError: There is one.
    """
    has_windows = any(term.views for term in query.streams)
    for rate in aggregates.rates:
        if query.joins or has_windows or query.output or gives_old:
            raise unsupported(rate.call, "rates of seconds over windows, joins, outputs or old rows")
    for call in aggregates.nested.calls:
        if query.joins:
            raise unsupported(call, "aggregates of aggregates in joins")
        if gives_old and by_group:
            raise unsupported(call, "old rows of groups with aggregates of aggregates")
    for call in aggregates.known:
        if call.name == "window" and not has_windows:
            raise failure_at(call, "window needs a window, and the stream has none.", "Write one: #length(100).")
        if call.name == "rate" and query.joins:
            raise unsupported(call, f"{call.name} of joins")
        if call.name == "rate" and not all(map(drops_oldest, query.streams)):
            raise unsupported(call, f"{call.name} over such a window", "Take one that drops the oldest row.")


def refuse_outputs(query: q.Query, aggregates: PlannedAggregates) -> None:
    """Refuse rates of output where they would show others rows than Esper's.

    Raises:
        PlacedError: There is one.
    """
    output = query.output
    if output is None or output.selection != "first":
        return
    if output.after is not None and aggregates.made:
        raise unsupported(output, "output after … first of aggregates")
    if isinstance(output.rate, q.OutputWhen) and query.group_by:
        raise unsupported(output, "output first of groups when a condition holds")


def refuse_looking(query: q.Query, windows: StreamWindows) -> None:
    """Refuse `prev` of rows that see the window where they are output, where Esper has another window then.

    Raises:
        PlacedError: There is such a call.
    """
    in_having = next((part for part in parts(query.having) if looks_into_window(part)), None)
    if in_having is not None:
        raise unsupported(in_having, "prev in 'having' beside an output clause")
    by_clock = DUE in windows.memberships.schema.names
    at_clock = query.output is not None and not isinstance(query.output.rate, q.EventCount | q.OutputWhen)
    for part in parts((query.items, query.order_by)) if by_clock and at_clock else ():
        if looks_into_window(part):
            # At a tick at which rows leave and others are output, which is first is a matter of when that fell due.
            raise unsupported(
                part, "prev of a clock's window beside outputs at the clock", "Say: output every 2 events."
            )


def refuse_subqueries(
    query: q.Query, windows: StreamWindows, kind: Kind, *, has_clock: bool, gives_old: bool, limited: bool
) -> None:
    """Refuse sub-queries of rows that ask at other moments than Esper's.

    Args:
        query: The query around them.
        windows: Its windows.
        kind: Its kind.
        has_clock: Whether the clock drives one of their windows.
        gives_old: Whether old rows are shown.
        limited: Whether its rows are held back for an output; then they ask when they are output.

    Raises:
        PlacedError: There are such rows.
    """
    output, by_clock = query.output, DUE in windows.memberships.schema.names
    if limited and output is not None:
        if kind != "un-aggregated" and output.selection in {"last", "all"} and not query.order_by:
            # Esper evaluates such rows as they come, and others as they are output.
            raise unsupported(
                output, f"output {output.selection} of aggregates beside sub-queries", "Write an order by."
            )
        if asks(query.having) or (asks(query.where) and any(term.views for term in query.streams)):
            raise unsupported(output, "sub-queries in conditions beside an output clause", "Filter the stream by it.")
    if has_clock and output is not None and (by_clock or not isinstance(output.rate, q.EventCount)):
        raise unsupported(output, "outputs at the clock beside a sub-query over its window")
    if has_clock and by_clock and gives_old:
        # At a tick at which both lose rows, which of them does first is a matter of when that fell due.
        raise unsupported(query, "old rows of a clock's window beside a sub-query over another")
