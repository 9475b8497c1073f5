"""The engine that runs live: events and CTIs are pushed in, and results come out when they are final."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from gpu_ops.devices import choose
from gpu_ops.engines.checkpoints import read_checkpoint, write_checkpoint
from gpu_ops.engines.fingerprints import IfFunctionsChanged, check_functions, functions_held
from gpu_ops.engines.inputs import Input, inputs, is_late
from gpu_ops.engines.local import from_table, output_schema, to_table
from gpu_ops.engines.places import Following, IfOtherStore
from gpu_ops.engines.progress import Progress
from gpu_ops.engines.shapes import Shape, in_shape, shape_schema
from gpu_ops.errors import PlanError, SourceError
from gpu_ops.ingest.entrance import Admitted, Entrance
from gpu_ops.operators.events import Events
from gpu_ops.operators.steps import Running, running
from gpu_ops.plan.advance import AdvanceTime, Late
from gpu_ops.plan.nodes import Node
from gpu_ops.store.stores import Store
from gpu_ops.time import MAX_TIME, MIN_TIME, Instant, format_time, instant

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
        following: What is known of those stores.

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
        self._inputs = inputs([each for each in self._running.walk() if not each.below])
        self._own = [each for each in self._inputs if each.leaves]
        # Whether every event is final by itself.
        self._passes = all(each.stateless for each in node.walk() if not isinstance(each, AdvanceTime | Late))
        self._diverts = any(is_late(leaf) for each in self._own for leaf in each.leaves)
        self._late: Counter[str] = Counter()
        self._late_rows: list[pa.Table] = []
        self._ready: list[pa.Table] = []
        self._closed = False
        self.positions: dict[str, int] = {}
        self.following = Following()
        # Now, and not when a checkpoint is made: what a function's closure holds may change while it runs.
        self._functions = functions_held(node)

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

    @property
    def imports(self) -> bool:
        """Whether an input takes in CTIs of another."""
        return any(each.follows is not None for each in self._inputs)

    def input_ctis(self) -> dict[str, int]:
        """What each input promises, in ticks."""
        return {each.name: each.entrance.cti for each in self._own}

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
        for each in self._own:
            self._take(each, each.entrance.close())
        self._step()

    def _input(self, name: str | None) -> Input:
        names = ", ".join(repr(each.name) for each in self._inputs)
        if name is None:
            if len(self._own) > 1:
                raise PlanError("The query has several inputs.", remedy=f"Say which one it is: input= one of {names}.")
            return self._own[0]
        for known in self._inputs:
            if known.name == name:
                return known
        raise PlanError(f"The query has no input {name!r}.", remedy=f"It has {names}.")

    def _let_in(self, into: Input, admitted: Admitted) -> None:
        """Events go into the query; the CTIs of another input go where they are imported."""
        if into.leaves:
            self._take(into, admitted)
        for other in self._inputs:
            if other.follows is into:
                for cti in admitted.ctis.tolist():
                    self._let_in(other, other.entrance.advance(cti))
        self._step_if_due()

    def _check_open(self) -> None:
        if self._closed:
            raise PlanError("The running query is closed.", remedy="Start another one, or restore a checkpoint.")

    def _take(self, into: Input, admitted: Admitted) -> None:
        self._late.update(admitted.counts)
        if admitted.late is not None:
            self._late_rows.append(admitted.late)
        columns = self._device.columns
        into.note_edges(admitted)
        if admitted.diverted is not None and any(map(is_late, into.leaves)):
            late = admitted.diverted
            times = columns.array(late.start), columns.array(late.end)
            into.late.append(Events(*times, columns.from_arrow(late.payload)))
        if all(map(is_late, into.leaves)):
            return
        if len(admitted.start):
            end = 1 if into.source.points else columns.array(admitted.end)
            events = Events(columns.array(admitted.start), end, columns.from_arrow(admitted.payload))
            if admitted.closes is None:
                into.fresh.append(events)
            else:
                closes = columns.array(admitted.closes)
                into.fresh.append(events.where(~closes, self._device))
                into.closed.append(events.where(closes, self._device))
        if admitted.opened is not None:
            start = columns.array(admitted.opened.start)
            into.opened.append(Events(start, 1, columns.from_arrow(admitted.opened.payload)))

    def _step_if_due(self) -> None:
        """A step, if a CTI has moved, or if too much waits, or if nothing needs to."""
        waits = sum(len(events) for each in self._own for pieces in each.waiting().values() for events in pieces)
        moved = any(each.moved for each in self._own)
        if moved or waits >= _WAITING_ROWS or (waits and self._passes):
            self._step()

    def _step(self) -> None:
        fed = {node: given for each in self._own for node, given in each.fed().items()}
        for each in self._own:
            each.taken()
        given, _ = self._running.step(fed, self._device)
        self._running.rest()
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
            batches: What `push` takes, or pairs of an input's name and that; by default what the sources hold, table
                by table in turns.
        """
        with Progress(self._rows_there() if batches is None else None) as progress:
            for name, batch in self._sources() if batches is None else map(_named, batches):
                before = self._rows_in
                self.push(batch, input=name)
                progress.read(self._rows_in - before)
                if self._ready:
                    table = self.results()
                    progress.gave(table.num_rows)
                    yield table
            self.close()
            if self._ready:
                yield self.results()

    def source_tables(self, *, input: str | None = None) -> Iterator[pa.Table]:  # noqa: A002
        """What a source of the stream holds, as it is, for `push`.

        Args:
            input: As in `push`.
        """
        return self._input(input).source.raw_tables()

    def _sources(self) -> Iterator[tuple[str, pa.Table]]:
        """What the sources hold, a table of each in turns."""
        left = [(each.name, each.source.raw_tables()) for each in self._own]
        while left:
            for each in list(left):
                table = next(each[1], None)
                if table is None:
                    left.remove(each)
                else:
                    yield each[0], table

    def _rows_there(self) -> int | None:
        counts = [each.source.rows for each in self._own]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def _rows_in(self) -> int:
        return sum(each.rows for each in self._own)

    async def arun(self, batches: AsyncIterable[Any]) -> AsyncIterator[pa.Table]:
        """`run` over batches that come asynchronously; between two of them the event loop goes on."""
        async for batch in batches:
            name, rows = _named(batch)
            self.push(rows, input=name)
            if self._ready:
                yield self.results()
        self.close()
        if self._ready:
            yield self.results()

    def follow(
        self,
        store: Store | Mapping[str, Store],
        *,
        into: Store | None = None,
        late_into: Store | None = None,
        checkpoint: str | Path | None = None,
        every: int | str | timedelta = 100,
        keep: int = 1,
        timeout: float | None = None,
        on_step: Callable[[Self], None] | None = None,
        stop_on: Iterable[int] = (),
        if_other_store: IfOtherStore = "raise",
    ) -> Status:
        """Push what is in a store and what comes into it, batch by batch, and keep the results in another.

        With a checkpoint it is exactly once: when the process is killed, whenever that is, a query that is restored
        from the checkpoint goes on where that was made. What it gives again is the same as before, batch by batch, so
        what is in ``into`` already is not written again.

        Args:
            store: The store that is followed, until its CTI is infinity; of several inputs one each, by their names.
                The next batch is always of the one that is the furthest behind, so that it is the same each time.
            into: Where results go, with the CTI behind them; without it, `results` gives them.
            late_into: Where the rows of `late` go; without it they are counted, and not kept.
            checkpoint: A file that is written before the first batch, then as often as `every` says, and at the end.
            every: After how many batches, or after how much time (``"10s"``) if there was a batch.
            keep: How many checkpoints are kept: the last one under the path, those before it under ``path.1`` and on.
            timeout: Seconds without a new batch after which it returns; without it, it waits for ever.
            on_step: Called with the running query after each batch.
            stop_on: Signals, such as ``signal.SIGTERM``, at which it ends the batch that it is at, writes the
                checkpoint and raises `SystemExit` with 128 + the signal's number. A second one does what it did before.
            if_other_store: What happens if a store has another identity than the checkpoint says, or holds the results
                of another run: an error, or ``"adopt"``, once it is known to be right, a restored backup for instance.

        Raises:
            SourceError: A store is damaged, has another writer, is not the one that the checkpoint was made with, lacks
                batches that the query needs, or holds other batches than the query wrote.
            PlanError: An argument makes no sense, or `stop_on` is used outside of the main thread.
        """
        from gpu_ops.engines.following import follow

        path = None if checkpoint is None else Path(checkpoint)
        follow(self, store, into, late_into, path, every, timeout, on_step, keep, stop_on, if_other_store)
        return self.status()

    def status(self) -> Status:
        """How far it is."""
        nodes = self._running.walk()
        waiting = sum(len(events) for each in self._own for pieces in each.waiting().values() for events in pieces)
        return Status(
            events_in=self._rows_in,
            events_out=self._running.given,
            alive=waiting + sum(each.own.alive for each in nodes if each.own is not None),
            late=dict(self._late),
            cti_in=min(each.entrance.cti for each in self._own),
            cti_out=self._running.cti,
            state_bytes=sum(table.nbytes for table in self.state().values()),
        )

    # State

    def state(self) -> dict[str, pa.Table]:
        """All that it remembers, as tables that can be read: per node, by ``"<number> <node>/<table>"``."""
        made = {
            f"{each.prefix}/{name}": table for each in self._inputs for name, table in each.entrance.tables().items()
        }
        for each in self._own:
            for name, pieces in each.waiting().items():
                if pieces:
                    schema = output_schema(each.leaf(late=name == "late"))
                    tables = [to_table(events, schema, self._device) for events in pieces]
                    made[f"{each.prefix}/{name}"] = pa.concat_tables(tables)
        for number, node in enumerate(self._running.walk()):
            if node.own is not None:
                made |= {f"{number} {node.node.describe()}/{name}": table for name, table in node.own.tables().items()}
        return made

    def _plan(self) -> list[str]:
        lines = []
        for each in self._inputs:
            columns = each.source.schema.to_string(show_field_metadata=False).replace("\n", ", ")
            lines += [f"source {each.name}: {columns}", f"advance {each.entrance.settings}"]
            lines += [f"edges of {each.name}: open ones and whole events"] * (each.still_open is not None)
        lines += [each.node.describe() for each in self._running.walk() if each.below]
        return lines + ["late"] * self._diverts

    def checkpoint(self, path: str | Path, *, keep: int = 1) -> None:
        """Write all that it remembers to a file, whole or not at all: a zip archive of Arrow IPC files and the plan.

        Results that `results` has not given yet are in it too.

        Args:
            path: The file; an older checkpoint there is replaced.
            keep: How many checkpoints are kept, as in `follow`.

        Raises:
            SourceError: The file system refuses.
        """
        tables = {f"state/{name}": table for name, table in self.state().items()}
        if self._ready:
            tables["results"] = pa.concat_tables(self._ready)
        if self._late_rows:
            tables["late"] = pa.concat_tables(self._late_rows)
        nodes = self._running.walk()
        facts = {
            "plan": self._plan(),
            "rows_in": [each.rows for each in self._inputs],
            "late": dict(self._late),
            "promised": [each.promised for each in self._inputs],
            "ctis": [each.cti for each in nodes],
            "given": [each.given for each in nodes],
            "closed": self._closed,
            "positions": self.positions,
            "following": self.following.facts(),
            "functions": self._functions,
        }
        write_checkpoint(Path(path), facts, tables, keep=keep)

    def _restore(self, path: Path, if_functions_changed: IfFunctionsChanged = "raise") -> None:
        facts, tables = read_checkpoint(path)
        if facts["plan"] != self._plan():
            changes = difflib.ndiff(facts["plan"], self._plan())
            shown = "\n".join(line for line in changes if line[:1] in "+-")
            raise SourceError(
                f"The checkpoint {path} is of another plan (- then, + now):\n{shown}",
                remedy="Restore it with the query that wrote it, or start the new one afresh.",
            )
        check_functions(path, facts, self._functions, if_functions_changed)
        state = {name.removeprefix("state/"): table for name, table in tables.items() if name.startswith("state/")}
        nodes = self._running.walk()
        for number, each in enumerate(nodes):
            each.cti, each.given = facts["ctis"][number], facts["given"][number]
            if each.own is not None:
                each.own.restore(_below(state, f"{number} {each.node.describe()}/"))
        for known, rows, promised in zip(self._inputs, facts["rows_in"], facts["promised"], strict=True):
            kept = _below(state, f"{known.prefix}/")
            before = known.entrance
            known.restored(
                Entrance.restore(before.settings, known.source.schema, kept, hands_out_open=before.hands_out_open)
            )
            # Of an older checkpoint: nothing was promised of whole events beside open ones.
            known.rows, known.promised = rows, tuple(promised) if isinstance(promised, list) else (promised, promised)
            for name, pieces in known.waiting().items():
                if name in kept:
                    pieces.append(from_table(kept[name], self._device))
        self._late, self._closed = Counter(facts["late"]), facts["closed"]
        self.positions, self.following = facts["positions"], Following.restore(facts.get("following"), path)
        self._ready = [tables["results"]] if "results" in tables else []
        self._late_rows = [tables["late"]] if "late" in tables else []


def _named(batch: Any) -> tuple[str | None, Any]:
    """(input, batch) of a batch that may come with the name of its input."""
    named = isinstance(batch, tuple) and len(batch) == 2 and isinstance(batch[0], str)
    return (batch[0], batch[1]) if named else (None, batch)


def _below(tables: Mapping[str, pa.Table], prefix: str) -> dict[str, pa.Table]:
    return {name.removeprefix(prefix): table for name, table in tables.items() if name.startswith(prefix)}


def restored(
    path: Path,
    node: Node,
    device: str,
    on_results: Callable[[pa.Table], None] | None,
    shape: Shape,
    if_functions_changed: IfFunctionsChanged,
) -> RunningQuery:
    """A running query as a checkpoint found it."""
    made = RunningQuery(node, device, on_results, shape)
    made._restore(path, if_functions_changed)  # noqa: SLF001
    return made
