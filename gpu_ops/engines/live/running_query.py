"""The engine that runs live: events and CTIs are pushed in, and results come out when they are final."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from gpu_ops.core.arguments import callback, whole
from gpu_ops.core.bounds import TRUSTLESS, Bounds
from gpu_ops.core.other_names import OtherNames
from gpu_ops.core.own_errors import own_errors
from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.time import Duration, Instant, instant
from gpu_ops.engines.live.calls import Calls, changes, looks, reads
from gpu_ops.engines.live.checkpoints import read_checkpoint, write_checkpoint
from gpu_ops.engines.live.facts import check_facts, of_query
from gpu_ops.engines.live.feeding import arun, run
from gpu_ops.engines.live.fingerprints import IfFunctionsChanged, check_functions, functions_held
from gpu_ops.engines.live.following import follow
from gpu_ops.engines.live.inputs import find
from gpu_ops.engines.live.places import Following, IfOtherStore
from gpu_ops.engines.live.recovering import again
from gpu_ops.engines.live.restoring import check_plan, check_rows, ours, restore_input, restore_node, split
from gpu_ops.engines.live.status import Status, shown_cti
from gpu_ops.engines.live.taking import Taking
from gpu_ops.engines.local.engine import output_schema, to_table
from gpu_ops.engines.local.placing import place
from gpu_ops.engines.local.shapes import Shape, shape_schema
from gpu_ops.errors import PlanError
from gpu_ops.ingest.counts import Counts
from gpu_ops.ingest.rules import IngestReport
from gpu_ops.microbatches.stores import Store
from gpu_ops.plan.nodes import Node, merged


class RunningQuery(Taking, OtherNames):
    """A query that runs: `Stream.start` makes one.

    Results are final: each is given once, whole, when a CTI says that nothing can change it any more. All that one call
    makes final comes before what the next call does. What it gives in all is what `Stream.collect` gives for the same
    events, however they are cut and wherever CTIs stand.

    It may be called from several threads: one call at a time is made, and the others wait. A call that fails before it
    has taken anything in leaves the query as it was. One that fails later, by an error of a function of yours or by
    Ctrl-C for instance, leaves it failed: results that were final before can be taken once, and every other call raises
    `QueryFailedError`.

    Args:
        node: The plan; its source says what events look like. What the source itself holds is not pushed.
        device: As in `Stream.collect`.
        on_results: Called with each table of results as soon as it is there; then `results` gives none. If it raises,
            the step stands, and the same table is offered again at the next call, before anything new.
        shape: As in `Stream.collect`.
        max_waiting: How many rows may wait for an input that says nothing; None for any number.

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

    _known_as = "live"

    def __init__(
        self,
        node: Node,
        device: str,
        on_results: Callable[[pa.Table], None] | None = None,
        shape: Shape = "interval",
        max_waiting: int | None = None,
    ) -> None:
        self._node = node
        self._device = place(node, device)
        self._on_results = on_results
        self._shape = shape
        callback(on_results, name="on_results", takes="a table")
        self._max_waiting = None if max_waiting is None else whole(max_waiting, name="max_waiting")
        self._schema = output_schema(node)
        self._given_schema = shape_schema(self._schema, shape)
        # Whether every event is final by itself.
        self._passes = all(each.stateless or each.comes_in for each in node.walk())
        self._calls = Calls()
        self._begin()
        self.positions: dict[str, int] = {}
        self.following = Following()
        # Now, and not when a checkpoint is made: what a function's closure holds may change while it runs.
        self._functions = functions_held(node)

    def __repr__(self) -> str:
        state = "failed, " if self._calls.what is not None else "closed, " if self._closed else ""
        return f"<RunningQuery {state}CTI {shown_cti(self._cti)}>"

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
        return self._cti

    @property
    def imports(self) -> bool:
        """Whether an input takes in CTIs of another."""
        return any(each.follows is not None for each in self._inputs)

    def input_ctis(self) -> dict[str, int]:
        """What each input promises, in ticks."""
        return {each.name: each.entrance.cti for each in self._own}

    # In

    @changes
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
            WaitingError: More rows than `max_waiting` would wait. Nothing of the batch is taken in then.
            PlanError: The query is closed, or is in the midst of another call.
            QueryFailedError: An earlier call has failed.
        """
        self._go_on()
        into = find(self._inputs, input)
        arrivals, counted = into.source.arrivals(batch, into.counts.rows)
        self._check_waiting(into, len(arrivals.start))
        self._bring(into, lambda: into.entrance.push(arrivals), counted)
        self._offer()

    @changes
    def advance(self, cti: Instant, *, input: str | None = None) -> None:  # noqa: A002
        """Say that no event that comes later starts before a time.

        Args:
            cti: An aware datetime, an ISO 8601 text with a zone, a ``numpy.datetime64`` (UTC), or ``"infinity"``. The
                unit of the source's own times does not count here. A time before the last CTI says nothing new.
            input: As in `push`.

        Raises:
            PlanError: As `push`.
            QueryFailedError: As `push`.
        """
        self._go_on()
        into = find(self._inputs, input)
        time = instant(cti, name="cti")
        self._bring(into, lambda: into.entrance.advance(time))
        self._offer()

    @changes
    def close(self) -> None:
        """End the input: a CTI at infinity (unless ``advance_time(final=False)``) makes all that is left final.

        Raises:
            PlanError: As `push`.
            QueryFailedError: As `push`.
        """
        again_offered = self._closed and self._offers
        self._offer()
        if again_offered:
            return
        self._check_open()
        self._bring(self._own[0], self._own[0].entrance.close, close=True)
        self._offer()

    # Out

    @looks
    def results(self) -> pa.Table:
        """The results that have become final since the last call: ``start``, ``end``, and the payload.

        Raises:
            QueryFailedError: The query has failed, and what was final before has been taken.
        """
        if not self._ready:
            self._calls.check()
        if self._calls.offers:
            return empty_table(self._given_schema)
        ready, self._ready = self._ready, []
        return pa.concat_tables(ready) if ready else empty_table(self._given_schema)

    @looks
    def late(self) -> pa.Table | None:
        """The rows that were not let in as they came since the last call, and what was done with each; None if none.

        Of those that ``late="drop"`` leaves out no rows are kept: `status` counts them.

        Raises:
            QueryFailedError: As `results`.
        """
        if not self._late_rows:
            self._calls.check()
        rows, self._late_rows = self._late_rows, []
        return pa.concat_tables(rows) if rows else None

    @reads
    def report(self) -> IngestReport:
        """What came in: rows, valid rows, refused rows by rule, late rows by fate; as `Stream.report` of a batch.

        Raises:
            QueryFailedError: The query has failed.
        """
        reports = {each.name: replace(each.counts.report(), late=each.entrance.counts) for each in self._own}
        return IngestReport.together(reports)

    @reads
    def rejected(self) -> Any:
        """The rows that were kept aside (``on_invalid="divert"``), with the rule that each one broke.

        They are kept as long as the query runs, and are in its checkpoints.

        Returns:
            A table; of several inputs a table of each by its name, as in `Stream.rejected`.

        Raises:
            QueryFailedError: The query has failed.
        """
        tables = {each.name: each.source.kept_aside(each.counts) for each in self._own}
        return tables if len(tables) > 1 else next(iter(tables.values()))

    def run(self, batches: Iterable[Any] | None = None) -> Iterator[pa.Table]:
        """Push batch after batch, close, and give results as they become final, with a progress bar where one is seen.

        Args:
            batches: What `push` takes, or pairs of an input's name and that; by default what the sources hold, table
                by table in turns.
        """
        return run(self, self._own, batches)

    def source_tables(self, *, input: str | None = None) -> Iterator[pa.Table]:  # noqa: A002
        """What a source of the stream holds, as it is, for `push`.

        Args:
            input: As in `push`.
        """
        return find(self._inputs, input).source.raw_tables()

    def arun(self, batches: AsyncIterable[Any]) -> AsyncIterator[pa.Table]:
        """`run` over batches that come asynchronously; between two of them the event loop goes on."""
        return arun(self, batches)

    @own_errors
    def follow(
        self,
        store: Store | Mapping[str, Store],
        *,
        into: Store | None = None,
        late_into: Store | None = None,
        checkpoint: str | Path | None = None,
        every: int | Duration = 100,
        keep: int = 1,
        timeout: Duration | None = None,
        on_step: Callable[[Self], None] | None = None,
        stop_on: Iterable[int] = (),
        if_other_store: IfOtherStore = "raise",
    ) -> Status:
        """Push what is in a store and what comes into it, batch by batch, and keep the results in another.

        With a checkpoint it is exactly once: when the process is killed, whenever that is, a query that is restored
        from the checkpoint goes on where that was made. What it gives again is the same as before, batch by batch, so
        what is in ``into`` already is not written again. A step that fails is made again likewise: the query restores
        itself from the checkpoint, says so in the log of ``gpu_ops`` (`logging`), and goes on.

        Args:
            store: The store that is followed, until its CTI is infinity; of several inputs one each, by their names.
                The next batch is always of the one that is the furthest behind, so that it is the same each time.
            into: Where results go, with the CTI behind them; without it, `results` gives them.
            late_into: Where the rows of `late` go; without it they are counted, and not kept.
            checkpoint: A file that is written before the first batch, then as often as `every` says, and at the end.
            every: After how many batches, or after how much time (``"10s"``) if there was a batch.
            keep: How many checkpoints are kept: the last one under the path, those before it under ``path.1`` and on.
                If there were more, those beyond are removed.
            timeout: How long without a new batch until it returns (``"10s"``, or 0); without it, it waits for ever.
            on_step: Called with the running query after each batch.
            stop_on: Signals, such as ``signal.SIGTERM``, at which it ends the batch that it is at, writes the
                checkpoint and raises `SystemExit` with 128 + the signal's number. A second one does what it did before.
            if_other_store: What happens if a store has another identity than the checkpoint says, or holds the results
                of another run: an error, or ``"adopt"``, once it is known to be right, a restored backup for instance.

        Raises:
            SourceError: A store is damaged, has another writer, is not the one that the checkpoint was made with, lacks
                batches that the query needs, or holds other batches than the query wrote.
            QueryFailedError: A step failed again at the same batch, by the same error, which is the cause.
            PlanError: An argument makes no sense, `stop_on` is used outside of the main thread, or the query follows a
                store already.
        """
        path = None if checkpoint is None else Path(checkpoint)
        calls, mine = self._calls, False

        def attempt() -> None:
            follow(self, store, into, late_into, path, every, timeout, on_step, keep, stop_on, if_other_store)

        try:
            with calls.lock:
                calls.begin_to_follow()
                mine, calls.follower = True, threading.get_ident()
            again(calls, path, self._restore, attempt)
        finally:
            if mine:
                calls.follower = None
                calls.at(None)
        return self.status()

    def at_batch(self, batch: str | None) -> None:
        """What `follow` is at, for errors to name it; None once it is done.

        Args:
            batch: In words.
        """
        self._calls.at(batch)

    @looks
    def status(self) -> Status:
        """How far it is; of a query that has failed, how far it was."""
        failed = self._calls.what
        nodes = [] if failed else [each.own for each in self._running.walk() if each.own is not None]
        invalid = sum((each.counts.invalid for each in self._own), Counter[str]())
        waits = 0 if failed else sum(each.waits for each in self._own)
        ctis = [each.promised[0] if failed else each.entrance.cti for each in self._own]
        return Status(
            events_in=self.rows_in,
            events_out=self._given,
            alive=waits + sum(each.alive for each in nodes),
            late=dict(self._late),
            cti_in=min(ctis),
            cti_out=self._cti,
            state_bytes=0 if failed else sum(table.nbytes for table in self.state().values()),
            waiting=0 if failed else self._waiting,
            invalid=dict(invalid),
            failed=failed,
        )

    # State

    @reads
    def state(self) -> dict[str, pa.Table]:
        """All that it remembers, as tables that can be read: per node, by ``"<number> <node>/<table>"``.

        Raises:
            QueryFailedError: The query has failed.
        """
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

    @reads
    def checkpoint(self, path: str | Path, *, keep: int | None = None) -> None:
        """Write all that it remembers to a file, whole or not at all: a zip archive of Arrow IPC files and the plan.

        Results that `results` has not given yet are in it too.

        Args:
            path: The file; an older checkpoint there is replaced, and gives it its mode. A link there is replaced
                itself, not what it leads to.
            keep: How many checkpoints are kept, as in `follow`; None replaces the last one, and no other.

        Raises:
            SourceError: The file system refuses.
        """
        tables = {f"state/{name}": table for name, table in self.state().items()}
        if self._ready:
            tables["results"] = pa.concat_tables(self._ready)
        if self._late_rows:
            tables["late"] = pa.concat_tables(self._late_rows)
        for each in self._inputs:
            if each.counts.rejected:
                tables[f"rejected/{each.prefix}"] = each.source.kept_aside(each.counts)
        nodes = self._running.walk()
        facts = {
            "plan": self._plan(),
            "rows_in": [each.counts.rows for each in self._inputs],
            "ingest": [each.counts.facts() for each in self._inputs],
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
        self._calls.kept = Path(path)

    def _restore(self, path: Path) -> None:
        with ours(path):
            # It wrote the file itself: damage is looked for, and what is sound is not doubted.
            self._restore_from(path, *read_checkpoint(path, TRUSTLESS), "raise", trusted=True)

    def _restore_from(
        self,
        path: Path,
        facts: Any,
        tables: Mapping[str, pa.Table],
        if_functions_changed: IfFunctionsChanged,
        *,
        trusted: bool,
    ) -> None:
        self._check(path, facts, if_functions_changed)
        try:
            self._remember(path, facts, tables, trusted=trusted)
        except BaseException as error:
            self._calls.fail(error)
            raise

    def _check(self, path: Path, facts: Mapping[str, Any], if_functions_changed: IfFunctionsChanged) -> None:
        """Refuse a checkpoint of another query, and one that does not say what it should."""
        check_plan(path, facts, self._plan())
        check_facts(path, facts, of_query(facts, len(self._inputs), len(self._running.walk())))
        check_functions(path, facts, self._functions, if_functions_changed)

    def _remember(self, path: Path, facts: Mapping[str, Any], tables: Mapping[str, pa.Table], *, trusted: bool) -> None:
        """All that was remembered when the checkpoint was made."""
        self._begin()
        state = {name.removeprefix("state/"): table for name, table in tables.items() if name.startswith("state/")}
        nodes = {f"{number} {each.node.describe()}/": each for number, each in enumerate(self._running.walk())}
        parts = split(path, state, [*nodes, *(f"{each.prefix}/" for each in self._inputs)])
        for number, (prefix, each) in enumerate(nodes.items()):
            each.cti, each.given = facts["ctis"][number], facts["given"][number]
            restore_node(path, number, each, parts[prefix], trusted=trusted)
        # An older checkpoint has no more than how many rows there were.
        ingest = facts.get("ingest") or [Counts(rows, rows).facts() for rows in facts["rows_in"]]
        for known, counted, promised in zip(self._inputs, ingest, facts["promised"], strict=True):
            restore_input(path, known, parts[f"{known.prefix}/"], self._device)
            aside = f"rejected/{known.prefix}"
            check_rows(path, tables, aside, [known.source.kept_aside(Counts()).schema], "rows that are kept aside")
            known.counts = Counts.restore(counted, tables.get(aside))
            # It has one promise, too: nothing was said of whole events beside open ones.
            known.promised = tuple(promised) if isinstance(promised, list) else (promised, promised)
        self._late, self._closed = Counter(facts["late"]), facts["closed"]
        self.positions, self.following = facts["positions"], Following.restore(facts.get("following"), path)
        check_rows(path, tables, "results", [self._given_schema], "its results")
        check_rows(path, tables, "late", [each.entrance.late_schema for each in self._inputs], "rows that are late")
        self._ready = [tables["results"]] if "results" in tables else []
        self._late_rows = [tables["late"]] if "late" in tables else []
        self._calls.kept = path
        self._settle()


def restored(
    path: Path,
    node: Node,
    device: str,
    on_results: Callable[[pa.Table], None] | None,
    shape: Shape,
    max_waiting: int | None,
    if_functions_changed: IfFunctionsChanged,
    bounds: Bounds,
) -> RunningQuery:
    """A running query as a checkpoint found it: of an older one, what was written twice in the plan runs twice."""
    made = RunningQuery(merged(node), device, on_results, shape, max_waiting)
    with ours(path):
        facts, tables = read_checkpoint(path, bounds)
        if facts.get("plan") != made._plan():  # noqa: SLF001
            with suppress(PlanError):
                older = RunningQuery(node, device, on_results, shape, max_waiting)
                made = older if facts.get("plan") == older._plan() else made  # noqa: SLF001
        made._restore_from(path, facts, tables, if_functions_changed, trusted=bounds.trust)  # noqa: SLF001
    return made
