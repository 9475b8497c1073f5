"""A runtime of queries in cycles: events are sent, the clock is advanced, and listeners are told what comes of it."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from gpu_ops.core.arguments import by_names, callback, path_like, whole
from gpu_ops.core.bounds import Bounds
from gpu_ops.core.cycles import CYCLE_NUMBER, Schedule
from gpu_ops.core.own_errors import of_methods, own_errors
from gpu_ops.core.state_tables import OLDER
from gpu_ops.core.time import MAX_TIME, TICK, TIME_TYPE, Duration, positive_ticks
from gpu_ops.core.turns import CLOCK, PLACE, TURN
from gpu_ops.devices import check_name
from gpu_ops.engines.local.placing import place
from gpu_ops.errors import ColumnError, GpuOpsError, PlanError, SourceError, is_one_of, shown
from gpu_ops.operators.runtime.steps import running
from gpu_ops.plan.cycles import Intake
from gpu_ops.plan.nodes import Feed
from gpu_ops.rql.checkpoints import EPOCH, read_cycles, restore_cycles, write_cycles
from gpu_ops.rql.parsing import parse
from gpu_ops.rql.planning.known import (
    KnownSources,
    KnownStream,
    KnownTable,
    OwnAggregate,
    QuerySettings,
    SizesByKey,
    WindowSize,
)
from gpu_ops.rql.planning.planned import planned
from gpu_ops.rql.running import AT, CycleResult, RunningCycles, cycles_in
from gpu_ops.rql.types import column_types
from gpu_ops.texts.feeding import TICKS, PlacedRows, TickRows
from gpu_ops.texts.placed_error import shown_in
from gpu_ops.texts.sent_rows import arrival_times, milliseconds, placed, table_of

_OWN = ((CLOCK, TIME_TYPE), (PLACE, pa.int64()))
_HOUR = 3_600_000
_MILLISECOND = 1000


class SentCycles(Sequence[CycleResult]):
    """What queries gave in a call: the rows of each cycle, in order of the clock, then of the queries.

    Args:
        made: The results of each query, by its name.
    """

    def __init__(self, made: Sequence[tuple[str, pa.Table]]) -> None:
        every = [result for name, table in made for result in cycles_in(name, table)]
        self._results = sorted(every, key=lambda each: each.at)

    def __repr__(self) -> str:
        return f"<results of cycles: {len(self)}>"

    def __len__(self) -> int:
        return len(self._results)

    def __getitem__(self, index: Any) -> Any:
        return self._results[index]

    def __iter__(self) -> Iterator[CycleResult]:
        return iter(self._results)


@of_methods
class CycleRuntime:
    """Queries in cycles, their streams and tables, and a clock.

    Nothing happens by itself: `send`, `insert` and `advance` say what happens. What comes at one millisecond comes to
    one cycle, however it is sent: so the cycles of a millisecond run when the clock has left it.

    Args:
        types: The columns of each stream: types such as `"int"`, `"string"` and `"timestamp"`, or Arrow's.
        times: For streams whose events have times of their own the column that has them, whole milliseconds since 1970:
            spans (`store last 5 seconds`) are of these.
        tables: The columns of each plain table.
        start: What the clock shows first: milliseconds since 1970, or an aware datetime; by default 0.
        refresh: How often partitions' conditions read tables again: at multiples of this since 1970.
        device: Where queries compute: `"cpu"`, `"array"` or `"cuda"`.
        aggregates: Own aggregates (StreamCruncher: custom aggregates) by the names that texts give them:
            `custom(name, column, 5) as alias` is what the function makes of `("column", 5)`, such as a
            `g.window_function` or an `extend.aggregate` of a kind of yours.

    Examples:
        >>> from gpu_ops import rql
        >>> runtime = rql.Runtime({"request": {"id": "int", "ip": "string"}})
        >>> busy = runtime.register(
        ...     "busy",
        ...     "select ip, n from request (partition by ip store last 3 with count(id) as n) as t "
        ...     "where t.$row_status is new and n > 1;",
        ... )
        >>> busy.listen(lambda result: print(result.at, result.cycle, result.rows.to_pylist()))
        >>> _ = runtime.send("request", [{"id": 1, "ip": "a"}, {"id": 2, "ip": "b"}], at=[0, 0])
        >>> _ = runtime.send("request", {"id": 3, "ip": "a"}, at=[7])
        >>> _ = runtime.advance(8)
        7 1 [{'ip': 'a', 'n': 2}]
    """

    @own_errors
    def __init__(
        self,
        types: Mapping[str, Mapping[str, Any] | pa.Schema],
        *,
        times: Mapping[str, str] | None = None,
        tables: Mapping[str, Mapping[str, Any] | pa.Schema] | None = None,
        start: int | dt.datetime | None = None,
        refresh: Duration = "1h",
        device: str = "cpu",
        aggregates: Mapping[str, OwnAggregate] | None = None,
    ) -> None:
        self.errors: list[tuple[str, Exception]] = []
        self._lock = threading.RLock()
        self._clock = milliseconds(0 if start is None else start)
        self._start, self._next = self._clock, 0
        self._refresh = positive_ticks(refresh, name="refresh") // _MILLISECOND
        if self._refresh < 1:
            raise PlanError("refresh is less than a millisecond.", remedy='Say refresh="1s".')
        check_name(device)
        known_types = by_names(types, name="types", holds="the columns of each stream")
        known_times = by_names(times, name="times", holds="the column with each stream's times")
        known_tables = by_names(tables, name="tables", holds="the columns of each table")
        self._device, self._aggregates = device, dict(by_names(aggregates, name="aggregates", holds="functions"))
        for name, function in self._aggregates.items():
            callback(
                function, name=f"aggregates[{name!r}]", takes="names of columns and constants, and gives an aggregate"
            )
        self.ticks = Feed(TICKS, (), TICK)
        self._queries: dict[str, RunningCycles] = {}
        self._streams: dict[str, KnownStream] = {}
        self._tables: dict[str, _RunningTable] = {}
        for name, fields in known_types.items():
            self._streams[name] = _known(name, column_types(fields), known_times.get(name, ""))
        for name in known_times:
            if name not in self._streams:
                raise PlanError(f"times= names {name!r}, which is no stream.", remedy="Give its columns too.")
        for name, fields in known_tables.items():
            if name in self._streams:
                raise PlanError(f"{name!r} is a stream and a table.", remedy="Name one of them otherwise.")
            schema = column_types(fields)
            self._tables[name] = _RunningTable(schema, _feed(schema), _feed(schema))

    # Queries

    def __repr__(self) -> str:
        return f"<Runtime, queries: {len(self._queries)}, clock {self._clock} ms>"

    @property
    def clock(self) -> int:
        """What the clock shows, in milliseconds since 1970."""
        return self._clock

    @property
    def queries(self) -> tuple[RunningCycles, ...]:
        """The registered queries, in the order in which they came."""
        return tuple(self._queries.values())

    def __getitem__(self, name: str) -> RunningCycles:
        """A query by its name."""
        if not is_one_of(name, self._queries):
            raise PlanError(f"There is no query {shown(name)}.", remedy=f"Known: {', '.join(self._queries) or 'none'}.")
        return self._queries[name]

    def register(
        self,
        name: str,
        text: str,
        *,
        weights: Mapping[str, float] | None = None,
        every: Duration | None = None,
        pauses: Sequence[tuple[int, int]] = (),
        waiting: Mapping[str, int] | None = None,
        sizes: Mapping[str, SizesByKey] | None = None,
        baselines: Mapping[str, float] | None = None,
        seed: int = 0,
    ) -> RunningCycles:
        """Have a query run from now on. Other queries can read what it gives as a stream of its name.

        Args:
            name: Its name.
            text: The query.
            weights: For each stream how much of a cycle an event asks for: a cycle runs when those that have come ask
                for 1 together (StreamCruncher: weights). By default each event asks for 1.
            every: The time between two cycles, if the query runs at fixed times and at no other.
            pauses: Pairs of milliseconds between which it does not run; what falls due then runs at the second.
            waiting: For each stream how many rows may wait for a full window (`store last N`); the oldest of those
                above are dropped. By default any number.
            sizes: Sizes of windows by key, by the names that the text gives them (`store last 5 'name'`): a
                `WindowSize` for each tuple of values; others have the size in the text.
            baselines: Numbers by the names that the text gives them behind `$diff`.
            seed: What decides which rows `store random` takes.

        Raises:
            TextError: The text cannot be read, or asks for what there is not.
            PlanError: There is a query or a stream of this name, or weights or rows that wait are of none.
            ColumnError: The query has a column `cycle` or `at`, as results have.
        """
        with self._lock:
            called: object = name  # whatever was handed in
            if not isinstance(called, str) or not called:
                raise PlanError(f"The name of a query is {shown(name)}.", remedy="Give a text.")
            if name in self._queries or name in self._streams or name in self._tables:
                raise PlanError(f"There is a query, a stream or a table {name!r}.", remedy="Take another name.")
            known_sizes = by_names(sizes, name="sizes", holds="sizes by key")
            given = {
                "weights": dict(by_names(weights, name="weights", holds="how much of a cycle an event asks for")),
                "every": 0 if every is None else positive_ticks(every, name="every") // _MILLISECOND,
                "pauses": [[int(begin), int(end)] for begin, end in pauses],
                "waiting": dict(by_names(waiting, name="waiting", holds="how many rows may wait")),
                "sizes": {each: _listed(by_key) for each, by_key in known_sizes.items()},
                "baselines": dict(by_names(baselines, name="baselines", holds="numbers")),
                "seed": whole(seed, name="seed", least=0),
            }
            made = self._add(name, text, given)
            self._begin(made)
            return made

    def _add(self, name: str, text: str, given: Mapping[str, Any]) -> RunningCycles:
        schedule = Schedule(self._start, given["every"], tuple((begin, end) for begin, end in given["pauses"]))
        sizes = {
            each: {tuple(key): WindowSize(count, length) for key, count, length in by_key}
            for each, by_key in given["sizes"].items()
        }
        numbers = given["baselines"], given["seed"]
        settings = QuerySettings(schedule, given["weights"], given["waiting"], sizes, *numbers, self._aggregates)
        settings.check_names(self._streams)
        inserted = Schedule(self._start)
        tables = {
            name: KnownTable(each.schema, Intake(each.inserted, (self.ticks,), True, inserted), each.read)
            for name, each in self._tables.items()
        }
        known = KnownSources(self._streams, tables, (self.ticks,), ticks=True)
        query = parse(text)
        with shown_in(text):
            plan = planned(query, known, settings)
        for column in (CYCLE_NUMBER, AT):
            if column in plan.columns.names:
                raise ColumnError("Results have a column of this name.", column=column, remedy="Select it as another.")
        device = place(plan.node, self._device)
        made = RunningCycles(name, text, given, plan, device, running(plan.node, device), self.errors)
        self._queries[name] = made
        if len(set(plan.columns.names)) == len(plan.columns):
            self._streams[name] = _known(name, plan.columns, CLOCK)
        return made

    def _begin(self, query: RunningCycles) -> None:
        """Show a query what tables hold."""
        first = self._next
        self._next += 1
        clock, at = self._clock, first * TURN
        arrived: dict[Feed, PlacedRows] = {}
        for known in self._tables.values():
            for leaf, seen in ((known.inserted, MAX_TIME), (known.read, clock)):
                some = [rows.filter(pa.array(epochs <= seen)) for epochs, rows in known.content]
                rows = pa.concat_tables([known.schema.empty_table(), *some]).combine_chunks()
                if len(rows):
                    arrived[leaf] = _at(rows, at + 2 * np.arange(len(rows)), self._start)
        ticks = TickRows(lambda: (np.array([at]), np.array([clock * _MILLISECOND]), np.zeros(1, np.bool_)))
        query.step(arrived, (self.ticks, ticks), self._next * TURN)

    def unregister(self, name: str) -> None:
        """Take a query away.

        Raises:
            PlanError: There is no such query, or another one reads what it gives.
        """
        with self._lock:
            self[name]
            readers = [each.name for each in self.queries if name in each.plan.streams]
            if readers:
                raise PlanError(
                    f"{readers[0]!r} reads what {name!r} gives.", remedy=f"Unregister {readers[0]!r} first."
                )
            del self._queries[name]
            self._streams.pop(name, None)

    # Events and time

    def send(self, stream: str, rows: Any, *, at: Any = None) -> SentCycles:
        """Send events, in their order.

        Args:
            stream: Their stream.
            rows: A row as a mapping, a list of rows, an Arrow table or record batch, or a frame. A column that a
                mapping leaves out is null.
            at: When each event comes: milliseconds since 1970, or Arrow timestamps, one for each row, none before the
                one above it or before the clock. By default the clock stays.

        Returns:
            The rows of the cycles whose milliseconds are over.

        Raises:
            PlanError: There is no such stream, or times go back.
            ColumnError: A column is missing, or a value is of another type.
        """
        with self._lock:
            if not is_one_of(stream, self._streams) or stream in self._queries:
                raise PlanError(
                    f"There is no stream {shown(stream)}.",
                    remedy=f"Known: {', '.join({*self._streams} - {*self._queries}) or 'none'}.",
                )
            known = self._streams[stream]
            table = table_of(rows, known.schema)
            return self._sent(known.arrivals, table, at)

    def insert(self, table: str, rows: Any, *, at: Any = None) -> SentCycles:
        """Insert rows into a plain table; they stay there. See `send`.

        Queries see them from the cycle of the same millisecond on; partitions' conditions when they read the table
        again.
        """
        with self._lock:
            if not is_one_of(table, self._tables):
                known_names = ", ".join(self._tables) or "none"
                raise PlanError(f"There is no table {shown(table)}.", remedy=f"Known: {known_names}.")
            known = self._tables[table]
            given = table_of(rows, known.schema)
            times = np.full(len(given), self._clock) if at is None else arrival_times(at, len(given))
            placed(times, self._clock, self._next)  # times that go back are refused before anything has changed
            epochs = self._epochs(times)
            known.content.append((epochs, given))
            # What comes while the clock shows the very time of a reading is read at once.
            return self._sent(known.inserted, given, at, (known.read, epochs <= self._clock))

    def _epochs(self, times: Any) -> Any:
        """int64: when partitions' conditions see rows that come to a table at some milliseconds."""
        return np.where(times <= self._start, self._start, -(-times // self._refresh) * self._refresh)

    def advance(self, now: int | dt.datetime) -> SentCycles:
        """Set the clock: the cycles of all milliseconds before run, each at its time.

        Args:
            now: Milliseconds since 1970, or an aware datetime; not before what the clock shows.
        """
        with self._lock:
            return self._advanced(milliseconds(now))

    # Checkpoints

    def checkpoint(self, path: str | Path, *, keep: int | None = None) -> None:
        """Write all that the runtime holds to a file, atomically: a zip archive of Arrow IPC files and JSON.

        That is streams, tables, the clock, the queries with their texts and settings, what their windows and aggregates
        hold, and results that `RunningCycles.results` has not given yet. Listeners and `errors` are not saved.

        Args:
            path: The file. An older checkpoint there is replaced.
            keep: How many checkpoints are kept: this one at the path, the one before it at ``path.1`` and so on. None
                replaces the last one and leaves older ones.

        Raises:
            SourceError: The file system refuses. Then an older checkpoint at the path is unchanged.
        """
        path_like(path, name="path")
        with self._lock:
            streams = {name: each for name, each in self._streams.items() if name not in self._queries}
            facts = {
                "clock": self._clock,
                "begun": self._start,
                "turn": self._next,
                "refresh": self._refresh,
                "times": {name: each.time for name, each in streams.items() if each.time},
            }
            contents = {name: each.whole for name, each in self._tables.items()}
            schemas = {name: each.schema for name, each in streams.items()}
            write_cycles(Path(path), facts, schemas, contents, self.queries, keep)

    @classmethod
    @own_errors
    def restore(
        cls,
        path: str | Path,
        *,
        device: str = "cpu",
        trust: bool = False,
        max_bytes: int | None = None,
        aggregates: Mapping[str, OwnAggregate] | None = None,
    ) -> Self:
        """A runtime as a checkpoint found it: it goes on as the one that wrote it would have. Listeners come anew.

        Args:
            path: What `checkpoint` wrote.
            device: Where queries compute; it may be another device than before.
            trust: Whether the tables in the checkpoint are taken as they are; else they are checked.
            max_bytes: How many bytes they may unpack to.
            aggregates: Own aggregates, which a checkpoint does not hold; they have to be those that they were.

        Raises:
            SourceError: There is no checkpoint, or it is damaged, or an own aggregate has changed, or this version of
                gpu_ops plans a query otherwise
                than the one that wrote it.
        """
        path_like(path, name="path")
        bounds = Bounds(trust, max_bytes)
        written = read_cycles(Path(path), bounds)
        facts = written.facts
        try:
            tables = {name: each.drop_columns([EPOCH]).schema for name, each in written.contents.items()}
            refresh = f"{facts['refresh']}ms"
            made = cls(
                written.streams,
                times=facts["times"],
                tables=tables,
                start=facts["begun"],
                refresh=refresh,
                device=device,
                aggregates=aggregates,
            )
            for said in facts["cycles"]:
                if said["name"] in made._queries:
                    raise PlanError(f"There are two queries {said['name']!r}.", remedy="")
                made._add(said["name"], said["text"], said["settings"])
        except (GpuOpsError, TypeError, ValueError, KeyError) as error:
            raise SourceError(f"The checkpoint {path} is damaged: {error}", remedy=OLDER) from error
        restore_cycles(Path(path), written, made.queries, trusted=trust)
        made._clock, made._next = facts["clock"], facts["turn"]
        for name, table in written.contents.items():
            if len(table):
                made._tables[name].content.append((table[EPOCH].to_numpy(), table.drop_columns([EPOCH])))
        return made

    # Steps

    def _advanced(self, now: int) -> SentCycles:
        if now < self._clock:
            raise PlanError(f"The clock shows {self._clock}, and cannot go back to {now}.", remedy="Give a later time.")
        first, before = self._next, self._clock
        self._next, self._clock = first + 1, now
        return self._turned({}, np.array([first * TURN]), np.array([now]), first, before)

    def _sent(self, leaf: Any, table: pa.Table, at: Any, also: tuple[Any, Any] | None = None) -> SentCycles:
        """Some rows of a stream or a table, each when the clock shows its time.

        Args:
            leaf: Their leaf.
            table: The rows.
            at: When each comes, as in `send`.
            also: Another leaf, and which of the rows come to it too.
        """
        if not len(table):
            return SentCycles([])
        first, before = self._next, self._clock
        times = np.full(len(table), before) if at is None else arrival_times(at, len(table))
        places = placed(times, before, first)
        self._next, self._clock = int(places[-1]) // TURN + 1, int(times[-1])
        moved = np.flatnonzero(np.diff(places, prepend=(first - 1) * TURN) > TURN)
        rows = PlacedRows(places, table, times * _MILLISECOND)
        arrived = {leaf: rows}
        if also is not None and also[1].any():
            some = table.filter(pa.array(also[1]))
            arrived[also[0]] = PlacedRows(places[also[1]], some, times[also[1]] * _MILLISECOND)
        return self._turned(arrived, places[moved] - TURN, times[moved], first, before)

    def _turned(self, arrived: dict[Feed, PlacedRows], places: Any, clocks: Any, first: int, before: int) -> SentCycles:
        """Have the queries take some turns.

        Args:
            arrived: The rows of leaves.
            places: int64 places of the moves of the clock.
            clocks: int64 milliseconds that it then shows.
            first: The number of the first turn.
            before: What the clock showed before.
        """
        ticks = None
        if len(places):
            asks = np.zeros(len(places), np.bool_)
            ticks = TickRows(lambda: (places, clocks * _MILLISECOND, asks))
            arrived |= self._read_again(places, clocks, before)
        made: list[tuple[str, pa.Table]] = []
        failures: list[RunningCycles] = []
        for query in self.queries:
            if query.failed is not None:
                continue
            try:
                results = query.step(arrived, (self.ticks, ticks), self._next * TURN)
            except BaseException as error:  # noqa: BLE001  (the other queries take the turns, then it is raised)
                query.failed = error
                failures.append(query)
                continue
            query.keep(results)
            if len(results):
                made.append((query.name, results))
                if query.name in self._streams:
                    at = first * TURN + 2 * np.arange(len(results))
                    own = results.select(range(2, results.num_columns))
                    arrived[_leaf(self._streams[query.name].arrivals)] = _at(own, at, results[AT].to_numpy())
        sent = SentCycles(made)
        if any(query.is_heard for query in self.queries):
            for result in sent:
                self[result.query].tell(result)
        for query in failures:
            if query.failed is not None:
                raise query.failed
        return sent

    def _read_again(self, places: Any, clocks: Any, before: int) -> dict[Feed, PlacedRows]:
        """The rows of tables that partitions' conditions see from one of these moves of the clock on."""
        found: dict[Feed, PlacedRows] = {}
        for known in self._tables.values():
            rows, at = [], []
            for epochs, table in known.content:
                now = (epochs > before) & (epochs <= clocks[-1])
                if now.any():
                    rows.append(table.filter(pa.array(now)))
                    at.append(np.searchsorted(clocks, epochs[now]))
            if rows:
                moves = np.concatenate(at)
                order = np.argsort(moves, kind="stable")
                moves = moves[order]
                number = np.arange(len(moves)) - np.searchsorted(moves, moves)
                table = pa.concat_tables(rows).combine_chunks().take(pa.array(order))
                found[known.read] = _at(table, places[moves] + 2 * (number + 1), clocks[moves])
        return found


@dataclass(frozen=True)
class _RunningTable:
    """A plain table.

    Attributes:
        schema: Its columns.
        inserted: The leaf of its rows as they are inserted.
        read: The leaf of its rows as partitions' conditions read them.
        content: What was inserted, and at which millisecond conditions see each row.
    """

    schema: pa.Schema
    inserted: Feed
    read: Feed
    content: list[tuple[Any, pa.Table]] = field(default_factory=list)

    @property
    def whole(self) -> pa.Table:
        """All rows, with the milliseconds at which conditions see them."""
        parts = [rows.append_column(EPOCH, pa.array(epochs, pa.int64())) for epochs, rows in self.content]
        empty = pa.schema([*self.schema, (EPOCH, pa.int64())]).empty_table()
        return pa.concat_tables([empty, *parts]).combine_chunks()


def _listed(sizes: SizesByKey) -> list[Any]:
    """Sizes of windows as a checkpoint has them."""
    return [[list(key), each.count, each.milliseconds] for key, each in sizes.items()]


def _feed(schema: pa.Schema) -> Feed:
    """The leaf of rows that come."""
    return Feed(pa.schema([*schema, *_OWN]), (), TICK)


def _leaf(node: Any) -> Feed:
    return node  # type: ignore[no-any-return]


def _at(rows: pa.Table, places: Any, clocks: Any) -> PlacedRows:
    """Rows at places, as the clock shows some milliseconds."""
    return PlacedRows(places, rows, np.broadcast_to(np.asarray(clocks) * _MILLISECOND, len(rows)).astype(np.int64))


def _known(name: str, schema: pa.Schema, time: str) -> KnownStream:
    for each in schema:
        if each.name.startswith("@"):
            raise ColumnError("No column begins with @.", column=each.name, remedy="Rename it.")
    if time and time != CLOCK:
        if time not in schema.names:
            raise ColumnError(
                f"{name!r} has no such column, which is to have its events' times.",
                column=time,
                remedy=f"It has: {', '.join(schema.names)}.",
            )
        if schema.field(time).type != pa.int64():
            raise ColumnError("Times are whole milliseconds, longs.", column=time, remedy='Say its type "timestamp".')
    return KnownStream(schema, _feed(schema), time)
