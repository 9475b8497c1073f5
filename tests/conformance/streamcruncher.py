"""StreamCruncher's vectors: a query over a script, and the rows that it gives in each cycle.

Windows, aggregates and the query over them are one query of `gpu_ops` on the axis of cycles. What is done here is to
find the cycles, and to show each one's rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import pyarrow as pa

import gpu_ops as g
from gpu_ops import Stream
from tests.conformance.rql import parse
from tests.conformance.rql_answer import ALERT, CLOCK, Answer, Scope, clock, stated, tables_of
from tests.conformance.rql_structure import Inner, Part, Select, Status, Table, conjuncts
from tests.conformance.rql_values import condition, one_of, value
from tests.conformance.streamcruncher_alerts import fired
from tests.conformance.streamcruncher_script import Cycle, Cycles, Script
from tests.conformance.streamcruncher_windows import PLACE, TYPES, Ask, Fed, Window, number, window
from tests.conformance.unsupported import UnsupportedError
from tests.support.ticks import instants

Batch = tuple[int, list[list[Any]]]
"""The time of a cycle, and its rows."""

_TURNS = 200
_HOUR = 3_600_000
_AT, _SINCE, _NOW = "$at", "$since", "$now"


def difference(line: Mapping[str, Any], ask: Ask) -> str | None:
    """What is wrong with the answer to a vector's query; None when it is the engine's.

    Args:
        line: The vector.
        ask: How a query is run.

    Raises:
        UnsupportedError: There is no translation.
    """
    expected = line["expected"]
    if expected["kind"] != "batches":
        raise UnsupportedError(f"RQL: no {expected['kind']} of an answer yet")
    select = parse(line["rql"])
    found = list(Query(select, Script(line), ask).batches(expected["columns"]))
    horizon = line.get("horizon_ms", math.inf)
    found = [batch for batch in found if batch[0] <= horizon]
    wanted = [(batch["at_ms"], batch["rows"]) for batch in expected["batches"]]
    for (at, rows), (time, others) in zip(found, wanted, strict=False):
        if at != time or not _same(rows, others, ordered=expected["ordered"]):
            return f"at {at} {rows}, expected at {time} {others}"
    if len(found) != len(wanted):
        return f"{len(found)} batches, expected {len(wanted)}: {(found + wanted)[min(len(found), len(wanted)) :][:1]}"
    return None


def _same(rows: Sequence[Sequence[Any]], others: Sequence[Sequence[Any]], *, ordered: bool) -> bool:
    if len(rows) != len(others):
        return False
    if not ordered:
        rows, others = sorted(rows, key=_sortable), sorted(others, key=_sortable)
    return all(len(row) == len(other) and all(map(_equal, row, other)) for row, other in zip(rows, others, strict=True))


def _sortable(row: Sequence[Any]) -> list[tuple[str, float]]:
    """Rows that are equal but for the last digits sort alike."""
    return [("", float(f"{each:.9g}")) if isinstance(each, int | float) else (str(each), 0) for each in row]


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, int | float) and isinstance(right, int | float):
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12)
    return bool(left == right)


class Query:
    """A query, and the cycles that it needs."""

    def __init__(self, select: Select, script: Script, ask: Ask) -> None:
        self._select = select
        self._script = script
        self._ask = ask
        self._tables = list(tables_of(select))
        self._fed = {table.alias: self._accepted(table) for table in self._tables if table.parts}

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Batch]:
        """What each cycle gives that gives a row: these columns of it, or all."""
        cycles, windows = self._settled()
        answer = Answer(self._select, self._streams(cycles, windows), cycles)
        rows = answer.rows(self._ask)
        names = answer.names
        places = [names.index(column) for column in columns or names]
        for cycle, found in zip(cycles.all, rows, strict=True):
            if found:
                yield cycle[0], [[row[place] for place in places] for row in found]

    def _streams(self, cycles: Cycles, windows: Mapping[str, Window]) -> dict[str, Stream]:
        """All that is selected from, by the aliases."""
        if self._select.alert is not None:
            alert = self._select.alert
            return {ALERT: fired(alert, {table.alias: windows[table.alias].stream for table in alert.tables})}
        streams = {alias: stated(each.stream, alias) for alias, each in windows.items()}
        for table in self._tables:
            if table.itself:
                streams[table.alias] = stated(windows[table.name].stream, table.alias)
            elif not table.parts:
                streams[table.alias] = self._plain(table, cycles)
        return streams

    def _accepted(self, table: Table) -> list[int]:
        """The numbers of the arrivals that a partition takes."""
        part = table.parts[0]
        schema = self._schema(table.name)
        arrivals = [each for each in self._script.arrivals if each.stream == table.name]
        if part.where is None:
            return [each.number for each in arrivals]
        columns = {field.name: pa.array([each.event[field.name] for each in arrivals], field.type) for field in schema}
        numbers = pa.array([each.number for each in arrivals], pa.int64())
        at = pa.array([each.at for each in arrivals], pa.int64())
        starts = instants([each.at * 1000 for each in arrivals])
        stream = g.events(pa.table({"start": starts, **columns, PLACE: numbers, _AT: at}), start="start")
        kept = stream.filter(condition(part.where, _RowScope(stream, self._among)))
        return sorted(self._ask(kept)[PLACE].to_pylist())

    def _schema(self, name: str) -> pa.Schema:
        return pa.schema([(column, TYPES[kind]) for column, kind in self._script.line["schema"][name].items()])

    # Cycles

    def _settled(self) -> tuple[Cycles, dict[str, Window]]:
        """The windows with the cycles that they ask for.

        What runs earlier decides what runs later. So the first cycle that nothing asked for, after all, and all that
        was asked for behind it, are taken back until nothing changes.
        """
        asked: set[Cycle] = set()
        accepted = {number for numbers in self._fed.values() for number in numbers}
        arrivals = [each for each in self._script.arrivals if each.number in accepted]
        for _ in range(_TURNS):
            taken = self._script.taken(arrivals, asked)
            cycles = self._script.all_cycles({*taken.values(), *asked})
            windows = {table.alias: self._window(table, taken, cycles) for table in self._tables if table.parts}
            found = {cycle for each in windows.values() for cycle in each.asked}
            again = self._script.all_cycles({*self._script.taken(arrivals, found).values(), *found})
            if again.all == cycles.all:
                return cycles, windows
            wrong = min(set(cycles.all) - set(again.all), default=None)
            asked = found if wrong is None else {cycle for cycle in found if cycle < wrong}
        raise AssertionError("The cycles do not settle.")

    def _window(self, table: Table, taken: Mapping[int, Cycle], cycles: Cycles) -> Window:
        stamp = self._script.line["keys"][table.name].get("ts")
        events = {each.number: each.event for each in self._script.arrivals}
        fed = [
            Fed(events[number], taken[number], events[number][stamp] if stamp else None)
            for number in self._fed[table.alias]
            if number in taken
        ]
        pending = self._script.pending.get(table.name)
        first, *others = table.parts
        made = window(table.alias, first, fed, self._schema(table.name), cycles, self._script, pending, self._ask)
        asked = set(made.asked)
        for before, part in zip(table.parts, others, strict=False):
            fed = self._forwarded(before, part, made, stamp)
            schema = pa.schema([field for field in made.stream.schema if not field.name.startswith("$")])
            made = window(table.alias, part, fed, schema, made.cycles, self._script, None, self._ask)
            asked |= made.asked
        return replace(made, asked=asked)

    def _forwarded(self, before: Part, part: Part, made: Window, stamp: str | None) -> list[Fed]:
        """The rows that a partition hands on to the next one, in the cycle that makes them new or dead."""
        conditions = list(conjuncts(part.where))
        status = conditions[0] if conditions else None
        if not isinstance(status, Status) or status.alias or status.state == "not dead":
            raise UnsupportedError("RQL: a partition behind another one asks for new or dead rows first")
        since = made.stream.with_columns(**{_SINCE: number(g.col("start"))})
        moved = since.to_point() if status.state == "new" else since.point_at_end()
        moved = moved.join(clock(made.cycles, _AT)).with_columns(**{_NOW: number(g.col("start"))})
        for each in conditions[1:]:
            moved = moved.filter(condition(each, _RowScope(moved, self._among)))
        fed = []
        for row in self._ask(moved).to_pylist():
            since_cycle, now = made.cycles.all[row[_SINCE]], made.cycles.all[row[_NOW]]
            own = since_cycle[0] if before.aggregates else row.get(stamp or "")
            fed.append((now, row.get(PLACE, 0), Fed(row, now, own)))
        return [each for _, _, each in sorted(fed, key=lambda each: each[:2])]

    # Tables

    def _among(self, inner: Inner, of: nw.Expr) -> nw.Expr:
        """Whether a value is among a table's, as they were when the query's copy of them was last read."""
        every = (self._script.line.get("config") or {}).get("cache_refresh_ms", _HOUR)
        names = [table.name for table in tables_of(inner.select)]
        if inner.value is None or any(table.parts for table in tables_of(inner.select)):
            raise UnsupportedError("RQL: no such query in a partition's where")
        changes = sorted({-(-at // every) * every for name in names for at, _ in self._script.table(name) if at > 0})
        found: nw.Expr = g.lit(value=False)
        for start, end in zip([-(1 << 60), *changes], [*changes, 1 << 60], strict=True):
            values = self._values(inner.select, max(start, 0))
            held = (g.col(_AT) >= start) & (g.col(_AT) < end) & one_of(of, values)
            found |= held
        return found

    def _values(self, select: Select, time: int) -> list[Any]:
        """The one column of a query over tables at a time."""
        cycles = Cycles([(time, 0)])
        streams = {table.alias: self._plain(table, cycles) for table in tables_of(select)}
        (rows,) = Answer(select, streams, cycles).rows(self._ask)
        return [row[0] for row in rows]

    def _plain(self, table: Table, cycles: Cycles) -> Stream:
        """A table's rows from the first cycle that sees them."""
        if table.name not in (self._script.line.get("tables") or {}):
            raise UnsupportedError(f"RQL: no table {table.name!r}")
        columns = self._script.line["tables"][table.name]["columns"]
        given = [(cycles.first((at, 0)), row) for at, row in self._script.table(table.name)]
        rows = [(start, row) for start, row in given if start is not None]
        made = {
            f"{table.alias}.{name}": pa.array([row[at] for _, row in rows], TYPES[kind])
            for at, (name, kind) in enumerate(columns.items())
        }
        ends = instants([None for _ in rows])
        starts = instants([start for start, _ in rows])
        return g.events(
            pa.table({"start": starts, "end": ends, **made}),
            start="start",
            end="end",
            null_end="open",
            name=table.alias,
        )


@dataclass
class _RowScope(Scope):
    """A row before a window."""

    stream: Stream
    among: Callable[[Inner, nw.Expr], nw.Expr]

    def __post_init__(self) -> None:
        super().__init__(self.stream)

    def column(self, name: str) -> tuple[nw.Expr, str]:
        """The clock is the time of the arrival."""
        return (g.col(_AT), "whole") if name == CLOCK else super().column(name)

    def inner(self, inner: Inner) -> nw.Expr:
        """The values of a table."""
        if inner.value is None:
            raise UnsupportedError("RQL: no exists in a partition's where")
        return self.among(inner, value(inner.value, self)[0])
