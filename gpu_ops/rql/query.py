"""A query asked of data at rest: a text and its streams make one stream of results."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from gpu_ops.api.events import events
from gpu_ops.api.stream import Stream
from gpu_ops.core.cycles import CYCLE_NUMBER, Schedule
from gpu_ops.core.own_errors import own_errors
from gpu_ops.core.time import TIME_TYPE, Duration, positive_ticks
from gpu_ops.core.turns import CLOCK, PLACE
from gpu_ops.errors import ColumnError, PlanError, shown
from gpu_ops.plan.arrivals import on_turns
from gpu_ops.plan.nodes import Project
from gpu_ops.rql.parsing import parse
from gpu_ops.rql.planning.known import KnownSources, KnownStream, KnownTable, OwnAggregate, QuerySettings, SizesByKey
from gpu_ops.rql.planning.planned import PlannedQuery, plan_columns, planned
from gpu_ops.texts.at_rest import events_of
from gpu_ops.texts.placed_error import shown_in
from gpu_ops.texts.sent_rows import milliseconds

_MILLISECOND = 1000


@own_errors
def query(
    text: str,
    inputs: Mapping[str, Any] | None = None,
    /,
    *,
    order: str | None = None,
    time: str | None = None,
    times: Mapping[str, str] | None = None,
    tables: Mapping[str, Any] | None = None,
    start: int | dt.datetime = 0,
    until: int | dt.datetime | None = None,
    weights: Mapping[str, float] | None = None,
    every: Duration | None = None,
    pauses: Sequence[tuple[int, int]] = (),
    waiting: Mapping[str, int] | None = None,
    sizes: Mapping[str, SizesByKey] | None = None,
    baselines: Mapping[str, float] | None = None,
    seed: int = 0,
    aggregates: Mapping[str, OwnAggregate] | None = None,
    **more: Any,
) -> Stream:
    """What a query gives over data at rest: as a `Runtime` that is told all of it.

    Args:
        text: The query.
        inputs: The events of each stream, where its name is no argument's.
        order: A column that all streams have, which says in which order events of one time come: whole numbers, or
            times.
        time: The column that says when an event comes: times, or milliseconds since 1970. A `Stream` has times
            already: the starts of its events.
        times: For streams whose spans are of another time than that the column that has it.
        tables: The rows of plain tables, which stand still: frames or tables.
        start: From when on cycles can run: milliseconds since 1970, or an aware datetime.
        until: The last time of which cycles are shown; by default all, until the time of each row is up.
        weights: As in `Runtime.register`; so are the others.
        every: Likewise.
        pauses: Likewise.
        waiting: Likewise.
        sizes: Likewise.
        baselines: Likewise.
        seed: Likewise.
        aggregates: Own aggregates, as in `Runtime`.
        more: The events of each stream by its name: a frame, a table, or a `Stream`.

    Returns:
        A stream of the rows: ``cycle``, the number of the cycle among those of the query, from 0 on, and the columns of
        the query. The lifetime of a row is the tick at which the clock showed the cycle's time.

    Raises:
        TextError: The text cannot be read, or asks for what there is not.
        ColumnError: A column is missing, or two columns of the answer have one name. When data is read: two events come
            at one time, and nothing says which is first.
        PlanError: An input is no frame, nothing says when events come, or what is said of streams names another one.

    Examples:
        >>> from gpu_ops import rql
        >>> import pyarrow as pa
        >>> seen = pa.table({"at": [0, 1_000, 6_500], "ip": ["a", "a", "b"]})
        >>> text = (
        ...     "select ip, n from request (partition by ip store last 5 seconds with count(ip) as n) as t "
        ...     "where t.$row_status is new"
        ... )
        >>> answer = rql.query(text, request=seen, time="at").collect()
        >>> [(str(row["start"].time()), row["cycle"], row["ip"], row["n"]) for row in answer.to_pylist()]
        [('00:00:00', 0, 'a', 1), ('00:00:01', 1, 'a', 2), ('00:00:05', 2, 'a', 1), ('00:00:06.500000', 4, 'b', 1)]
    """
    given = {**(inputs or {}), **more}
    if not isinstance(text, str):
        raise PlanError(f"query takes a text, not {shown(text)}.", remedy="Write select … from stream (partition …).")
    if not given:
        raise PlanError("There are no events.", remedy="Give a frame for each stream: query(text, request=frame).")
    if time is None and not all(isinstance(each, Stream) for each in given.values()):
        raise PlanError("Nothing says when events come.", remedy='Name the column that does: time="at".')
    begin = milliseconds(start)
    nodes = {name: events_of(name, each, order, time) for name, each in given.items()}
    turns = on_turns(nodes, order=order, since=min(begin * _MILLISECOND, 0))
    streams = {}
    for name, node in turns.arrivals.items():
        own = [each for each in node.schema.names if each not in {CLOCK, PLACE}]
        schema = pa.schema([node.schema.field(each) for each in own])
        stamp = (times or {}).get(name, CLOCK)
        if stamp != CLOCK and stamp not in own:
            raise ColumnError(f"{name!r} has no such column.", column=stamp, remedy=f"It has: {', '.join(own)}.")
        streams[name] = KnownStream(schema, node, stamp)
    standing = tables or {}
    if not isinstance(standing, Mapping):
        raise PlanError(f"tables is {shown(tables)}.", remedy='Give the rows of each by its name: {"known": frame}.')
    for name in standing:
        if name in streams:
            raise PlanError(f"{name!r} is a stream and a table.", remedy="Name one of them otherwise.")
    for name in times or {}:
        if name not in streams:
            raise PlanError(f"times= names {name!r}, which is no stream.", remedy="Give its events too.")
    known = KnownSources(
        streams,
        {name: _standing(name, each) for name, each in standing.items()},
        tuple(nodes.values()),
        ticks=False,
    )
    settings = QuerySettings(
        Schedule(begin, 0 if every is None else positive_ticks(every, name="every") // _MILLISECOND, tuple(pauses)),
        weights or {},
        waiting or {},
        sizes or {},
        baselines or {},
        seed,
        dict(aggregates or {}),
    )
    settings.check_names(streams)
    said = parse(text)
    with shown_in(text):
        plan = planned(said, known, settings, None if until is None else milliseconds(until))
    return Stream(_named(plan))


def _named(plan: PlannedQuery) -> Project:
    number, *own = plan_columns(plan)
    names = plan.columns.names
    for name in (CYCLE_NUMBER, "start", "end"):
        if name in names:
            raise ColumnError("The query has a column of this name.", column=name, remedy="Select it as another.")
    columns = [nw.col(column).alias(name) for column, name in zip(own, names, strict=True)]
    return Project(plan.node, (nw.col(number), *columns), keep=False)


def _standing(name: str, given: Any) -> KnownTable:
    """A table that stands still: all of its rows are there from the beginning."""
    try:
        native = nw.from_native(given if not isinstance(given, Mapping) else pa.table(dict(given)), eager_only=True)
        rows = native.to_arrow().combine_chunks()
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise PlanError(f"The rows of {name!r} are {shown(given)}.", remedy="Give a frame or a table.") from error
    begins = "@begins"
    own = {
        begins: pa.array(np.zeros(len(rows), np.int64)).cast(TIME_TYPE),
        CLOCK: pa.array(np.zeros(len(rows), np.int64)).cast(TIME_TYPE),
        PLACE: pa.array(2 * np.arange(len(rows), dtype=np.int64)),
    }
    whole = rows
    for column, values in own.items():
        whole = whole.append_column(column, values)
    # A frame of Polars stays one, so that an answer of such frames is one too.
    frame = nw.from_arrow(whole, backend="polars").to_native() if native.implementation.is_polars() else whole
    node = events(frame, start=begins, name=name)._node  # noqa: SLF001  (the frame of all verbs)
    return KnownTable(rows.schema, node, node)
