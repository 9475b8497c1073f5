"""The engine that runs live: events and CTIs are pushed in, and results come out when they are final."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from gpu_ops.devices import choose
from gpu_ops.engines.checkpoints import read_checkpoint, write_checkpoint
from gpu_ops.engines.local import from_table, output_schema, to_table
from gpu_ops.engines.progress import Progress
from gpu_ops.engines.shapes import Shape, in_shape, shape_schema
from gpu_ops.errors import PlanError, SourceError
from gpu_ops.ingest.entrance import Admitted, Entrance
from gpu_ops.operators.events import Events
from gpu_ops.operators.steps import Fed, Running, running, takes_open
from gpu_ops.plan.advance import AdvanceTime, Late
from gpu_ops.plan.nodes import Node, Source
from gpu_ops.store.stores import Store
from gpu_ops.time import MAX_TIME, MIN_TIME, Instant, format_time, instant

if TYPE_CHECKING:
    from gpu_ops.ingest.sources import EventSource

_OWN = "0 entrance"
"""The name of the state of the query's own input."""

_WAITING_ROWS = 1 << 17
"""So many events wait at most for a CTI before a step takes them in."""


@dataclass(frozen=True)
class Status:
    """How far a running query is.

    Attributes:
        events_in: Rows that came in, late ones included.
        events_out: Results given.
        alive: Events that are kept, because their time has not come or has not passed.
        late: How many rows met each fate (dropped, adjusted, diverted …).
        cti_in: What the input promises.
        cti_out: What the results promise: none that comes later starts before.
        state_bytes: How large the tables of `RunningQuery.state` are.

    Examples:
        >>> Status(5, 2, 3, {"dropped": 1}, MAX_TIME, 0, 100)
        <Status 5 events in, 2 results out, 3 alive, late: 1 dropped; CTI in infinity, out 1970-01-01T00:00:00Z>
    """

    events_in: int
    events_out: int
    alive: int
    late: Mapping[str, int]
    cti_in: int
    cti_out: int
    state_bytes: int

    def __repr__(self) -> str:
        late = ", ".join(f"{count:,} {fate}" for fate, count in self.late.items() if count) or "none"
        return (
            f"<Status {self.events_in:,} events in, {self.events_out:,} results out, {self.alive:,} alive, "
            f"late: {late}; CTI in {_shown(self.cti_in)}, out {_shown(self.cti_out)}>"
        )


def _shown(cti: int) -> str:
    return "none yet" if cti == MIN_TIME else "infinity" if cti == MAX_TIME else format_time(cti)


@dataclass(eq=False)
class _Input:
    """Where a stream comes in: the query's own, or one that it imports CTIs from."""

    name: str
    source: EventSource
    entrance: Entrance
    follows: _Input | None
    rows: int = 0


def _inputs(node: Source | AdvanceTime, *, hands_out_open: bool) -> dict[str, _Input]:
    """The input of a node and all that it follows, by the names of their states; its own first."""
    made: dict[str, _Input] = {}

    def add(each: Source | AdvanceTime) -> _Input:
        leaf, settings, follows = (
            (each.source, each.settings, each.follows) if isinstance(each, AdvanceTime) else (each, None, None)
        )
        open_too = hands_out_open and leaf.source.edges and not made
        entrance = Entrance(settings, leaf.source.schema, hands_out_open=open_too)
        own = _Input(leaf.name or "input", leaf.source, entrance, None)
        made[_OWN if not made else f"{_OWN} {own.name}"] = own
        own.follows = None if follows is None else add(follows)
        return own

    add(node)
    return made


class RunningQuery:
    """A query that runs: `Stream.start` makes one.

    Results are final: each is given once, whole, when a CTI says that nothing can change it any more. All that one call
    makes final comes before what the next call does. What it gives in all is what `Stream.collect` gives for the same
    events, however they are cut and wherever CTIs stand.

    Args:
        node: The plan; its source says what events look like. What the source itself holds is not pushed.
        device: As in `Stream.collect`.
        on_results: Called with each table of results as soon as it is there; then `results` gives none.
        shape: As in `Stream.collect`.

    Attributes:
        positions: How far `follow` is: sequence numbers of the stores.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.schema([("at", pa.int64()), ("price", pa.int64())])
        >>> counts = g.events(bids.empty_table(), start="at", unit="s").tumbling("1min").agg(n=g.count())
        >>> live = counts.start(device="cpu")
        >>> live.push({"at": [3, 61, 62], "price": [5, 6, 7]})
        >>> live.results()["n"].to_pylist()
        []
        >>> live.advance("1970-01-01T00:01:05Z")
        >>> live.results()["n"].to_pylist()
        [1]
        >>> live.close()
        >>> live.results()["n"].to_pylist()
        [2]
    """

    def __init__(
        self,
        node: Node,
        device: str,
        on_results: Callable[[pa.Table], None] | None = None,
        shape: Shape = "interval",
    ) -> None:
        self._node = node
        self._device = choose(device)
        self._on_results = on_results
        self._shape = shape
        self._schema = output_schema(node)
        self._given_schema = shape_schema(self._schema, shape)
        self._running: Running = running(node, self._device)
        self._diverts = any(isinstance(each, Late) for each in node.walk())
        entrances = [each for each in node.walk() if isinstance(each, Source | AdvanceTime)]
        self._inputs = _inputs(entrances[-1], hands_out_open=not self._diverts and takes_open(node))
        self._main = next(iter(self._inputs.values()))
        self._late: Counter[str] = Counter()
        self._late_rows: list[pa.Table] = []
        self._fresh: list[Events] = []
        self._opened_edges: list[Events] = []
        self._closed_edges: list[Events] = []
        self._ready: list[pa.Table] = []
        self._closed = False
        self.positions: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<RunningQuery {'closed, ' if self._closed else ''}CTI {_shown(self._running.cti)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._closed:
            self.close()

    @property
    def closed(self) -> bool:
        """Whether the input has ended."""
        return self._closed

    @property
    def cti(self) -> int:
        """What the results promise, in ticks: none that comes later starts before."""
        return self._running.cti

    # In

    def push(self, batch: Any, *, input: str | None = None) -> None:  # noqa: A002  (the word for it)
        """Take in more events, in the order of their arrival.

        Args:
            batch: A table or record batch, a frame, a mapping of columns, or a list of rows as mappings; the columns of
                the query's source. Columns that it has more are left out.
            input: The name of the stream that they are of, where CTIs of another are taken in; else the query's own.

        Raises:
            ColumnError: A column is missing.
            TimeError: A row has no valid lifetime, or starts before the last CTI and the policy is to raise. Nothing of
                the batch is taken in then.
            PlanError: The query is closed.
        """
        self._check_open()
        into = self._input(input)
        arrivals = into.source.arrivals(batch, into.rows)
        admitted = into.entrance.push(arrivals)
        into.rows += len(arrivals.start)
        self._let_in(into, admitted)

    def advance(self, cti: Instant, *, input: str | None = None) -> None:  # noqa: A002
        """Say that no event that comes later starts before a time.

        Args:
            cti: A timestamp with a zone, ISO 8601 text, or ticks (µs since 1970, UTC). A time before the last CTI says
                nothing new.
            input: As in `push`.
        """
        self._check_open()
        into = self._input(input)
        self._let_in(into, into.entrance.advance(cti if isinstance(cti, int) else instant(cti, name="cti")))

    def close(self) -> None:
        """End the input: a CTI at infinity (unless ``advance_time(final=False)``) makes all that is left final."""
        self._check_open()
        self._closed = True
        self._take(self._main.entrance.close())

    def _input(self, name: str | None) -> _Input:
        if name is None:
            return self._main
        for known in self._inputs.values():
            if known.name == name:
                return known
        names = ", ".join(repr(each.name) for each in self._inputs.values())
        raise PlanError(f"The query has no input {name!r}.", remedy=f"It has {names}.")

    def _let_in(self, into: _Input, admitted: Admitted) -> None:
        """Events go into the query; the CTIs of another input go where they are imported."""
        if into is self._main:
            self._take(admitted)
            return
        for other in self._inputs.values():
            if other.follows is into:
                for cti in admitted.ctis.tolist():
                    self._let_in(other, other.entrance.advance(cti))

    def _check_open(self) -> None:
        if self._closed:
            raise PlanError("The running query is closed.", remedy="Start another one, or restore a checkpoint.")

    def _take(self, admitted: Admitted) -> None:
        self._late.update(admitted.counts)
        if admitted.late is not None:
            self._late_rows.append(admitted.late)
        given, payload = admitted, admitted.payload
        columns = self._device.columns
        if self._diverts:
            if admitted.diverted is not None:
                late = admitted.diverted
                self._fresh.append(
                    Events(columns.array(late.start), columns.array(late.end), columns.from_arrow(late.payload))
                )
        elif len(given.start):
            end = 1 if self._main.source.points else columns.array(given.end)
            events = Events(columns.array(given.start), end, columns.from_arrow(payload))
            if given.closes is None:
                self._fresh.append(events)
            else:
                closes = columns.array(given.closes)
                self._fresh.append(events.where(~closes, self._device))
                self._closed_edges.append(events.where(closes, self._device))
        if given.opened is not None:
            start = columns.array(given.opened.start)
            self._opened_edges.append(Events(start, 1, columns.from_arrow(given.opened.payload)))
        promised = admitted.cti
        if self._diverts and promised != MAX_TIME:
            promised = MIN_TIME
        waits = sum(map(len, (*self._fresh, *self._opened_edges, *self._closed_edges)))
        if promised > self._promised or waits >= _WAITING_ROWS or (waits and self._passes):
            self._step(promised)

    @property
    def _promised(self) -> int:
        return self._running.walk()[0].cti

    @property
    def _passes(self) -> bool:
        """Whether every event is final by itself."""
        return all(node.stateless for node in self._node.walk() if not isinstance(node, AdvanceTime | Late))

    def _step(self, promised: int) -> None:
        fed = Fed(self._fresh, self._opened_edges, self._closed_edges)
        self._fresh, self._opened_edges, self._closed_edges = [], [], []
        given, _ = self._running.step(fed, promised, self._device)
        tables = [to_table(events, self._schema, self._device) for events in given.events if len(events)]
        if not tables:
            return
        results = in_shape(pa.concat_tables(tables), self._shape)
        if self._on_results is None:
            self._ready.append(results)
        else:
            self._on_results(results)

    # Out

    def results(self) -> pa.Table:
        """The results that have become final since the last call: ``start``, ``end``, and the payload."""
        ready, self._ready = self._ready, []
        return pa.concat_tables(ready) if ready else self._given_schema.empty_table()

    def late(self) -> pa.Table | None:
        """The rows that were not let in as they came since the last call, and what was done with each; None if none."""
        rows, self._late_rows = self._late_rows, []
        return pa.concat_tables(rows) if rows else None

    def run(self, batches: Iterable[Any] | None = None) -> Iterator[pa.Table]:
        """Push batch after batch, close, and give results as they become final, with a progress bar where one is seen.

        Args:
            batches: What `push` takes; the stream's own source by default.
        """
        with Progress(self._main.source.rows if batches is None else None) as progress:
            for batch in self.source_tables() if batches is None else batches:
                before = self._main.rows
                self.push(batch)
                progress.read(self._main.rows - before)
                if self._ready:
                    table = self.results()
                    progress.gave(table.num_rows)
                    yield table
            self.close()
            if self._ready:
                yield self.results()

    def source_tables(self) -> Iterator[pa.Table]:
        """What the stream's own source holds, as it is, for `push`."""
        return self._main.source.raw_tables()

    async def arun(self, batches: AsyncIterable[Any]) -> AsyncIterator[pa.Table]:
        """`run` over batches that come asynchronously; between two of them the event loop goes on."""
        async for batch in batches:
            self.push(batch)
            if self._ready:
                yield self.results()
        self.close()
        if self._ready:
            yield self.results()

    def follow(
        self,
        store: Store,
        *,
        into: Store | None = None,
        late_into: Store | None = None,
        checkpoint: str | Path | None = None,
        every: int = 100,
        timeout: float | None = None,
        on_step: Callable[[Self], None] | None = None,
    ) -> Status:
        """Push what is in a store and what comes into it, batch by batch, and keep the results in another.

        With a checkpoint it is exactly once: when the process is killed, whenever that is, a query that is restored
        from the checkpoint goes on where that was made. What it gives again is the same as before, batch by batch, so
        what is in ``into`` already is not written again.

        Args:
            store: The store that is followed, until its CTI is infinity.
            into: Where results go, with the CTI behind them; without it, `results` gives them.
            late_into: Where the rows of `late` go; without it they are counted, and not kept.
            checkpoint: A file that is written before the first batch, after every so many, and at the end.
            every: How many.
            timeout: Seconds without a new batch after which it returns; without it, it waits for ever.
            on_step: Called with the running query after each batch.

        Raises:
            SourceError: A store is damaged, has another writer, or is not the one that the checkpoint was made with.
        """
        from gpu_ops.engines.following import follow

        follow(self, store, into, late_into, None if checkpoint is None else Path(checkpoint), every, timeout, on_step)
        return self.status()

    def status(self) -> Status:
        """How far it is."""
        nodes = self._running.walk()
        waiting = sum(len(events) for pieces in self._not_taken().values() for events in pieces)
        return Status(
            events_in=self._main.rows,
            events_out=self._running.given,
            alive=waiting + sum(each.own.alive for each in nodes if each.own is not None),
            late=dict(self._late),
            cti_in=self._main.entrance.cti,
            cti_out=self._running.cti,
            state_bytes=sum(table.nbytes for table in self.state().values()),
        )

    # State

    def state(self) -> dict[str, pa.Table]:
        """All that it remembers, as tables that can be read: per node, by ``"<number> <node>/<table>"``."""
        made = {
            f"{prefix}/{name}": table
            for prefix, each in self._inputs.items()
            for name, table in each.entrance.tables().items()
        }
        schema = output_schema(self._source_node)
        for name, pieces in self._not_taken().items():
            if pieces:
                made[name] = pa.concat_tables([to_table(events, schema, self._device) for events in pieces])
        for number, each in enumerate(self._running.walk()):
            if each.own is not None:
                made |= {f"{number} {each.node.describe()}/{name}": table for name, table in each.own.tables().items()}
        return made

    def _not_taken(self) -> dict[str, list[Events]]:
        """What no step has taken in yet, by the names of its tables."""
        pieces = (self._fresh, self._opened_edges, self._closed_edges)
        return dict(zip((f"{_OWN}/fresh", f"{_OWN}/opened", f"{_OWN}/closed"), pieces, strict=True))

    @property
    def _source_node(self) -> Node:
        return self._running.walk()[0].node

    def _plan(self) -> list[str]:
        lines = []
        for each in self._inputs.values():
            columns = each.source.schema.to_string(show_field_metadata=False).replace("\n", ", ")
            lines += [f"source {each.name}: {columns}", f"advance {each.entrance.settings}"]
        lines += [each.node.describe() for each in self._running.walk()[1:]]
        return lines + ["late"] * self._diverts

    def checkpoint(self, path: str | Path) -> None:
        """Write all that it remembers to a file, whole or not at all: a zip archive of Arrow IPC files and the plan.

        Results that `results` has not given yet are in it too.

        Args:
            path: The file; an older checkpoint there is replaced.
        """
        tables = {f"state/{name}": table for name, table in self.state().items()}
        if self._ready:
            tables["results"] = pa.concat_tables(self._ready)
        if self._late_rows:
            tables["late"] = pa.concat_tables(self._late_rows)
        nodes = self._running.walk()
        facts = {
            "plan": self._plan(),
            "rows_in": [each.rows for each in self._inputs.values()],
            "late": dict(self._late),
            "ctis": [each.cti for each in nodes],
            "given": [each.given for each in nodes],
            "closed": self._closed,
            "positions": self.positions,
        }
        write_checkpoint(Path(path), facts, tables)

    def _restore(self, path: Path) -> None:
        facts, tables = read_checkpoint(path)
        if facts["plan"] != self._plan():
            changes = difflib.ndiff(facts["plan"], self._plan())
            shown = "\n".join(line for line in changes if line[:1] in "+-")
            raise SourceError(
                f"The checkpoint {path} is of another plan (- then, + now):\n{shown}",
                remedy="Restore it with the query that wrote it, or start the new one afresh.",
            )
        state = {name.removeprefix("state/"): table for name, table in tables.items() if name.startswith("state/")}
        nodes = self._running.walk()
        for number, each in enumerate(nodes):
            each.cti, each.given = facts["ctis"][number], facts["given"][number]
            if each.own is not None:
                each.own.restore(_below(state, f"{number} {each.node.describe()}/"))
        for (prefix, known), rows in zip(self._inputs.items(), facts["rows_in"], strict=True):
            kept = _below(state, f"{prefix}/")
            before = known.entrance
            known.entrance = Entrance.restore(
                before.settings, known.source.schema, kept, hands_out_open=before.hands_out_open
            )
            known.rows = rows
        for name, pieces in self._not_taken().items():
            if name in state:
                pieces.append(from_table(state[name], self._device))
        self._late, self._closed = Counter(facts["late"]), facts["closed"]
        self.positions = facts["positions"]
        self._ready = [tables["results"]] if "results" in tables else []
        self._late_rows = [tables["late"]] if "late" in tables else []


def _below(tables: Mapping[str, pa.Table], prefix: str) -> dict[str, pa.Table]:
    return {name.removeprefix(prefix): table for name, table in tables.items() if name.startswith(prefix)}


def restored(
    path: Path, node: Node, device: str, on_results: Callable[[pa.Table], None] | None, shape: Shape
) -> RunningQuery:
    """A running query as a checkpoint found it."""
    made = RunningQuery(node, device, on_results, shape)
    made._restore(path)  # noqa: SLF001
    return made
