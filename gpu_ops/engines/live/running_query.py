"""The live engine: callers push events and CTIs, and take results once they are final."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from gpu_ops.core.arguments import path_like
from gpu_ops.core.arrow_buffers import table_copied
from gpu_ops.core.bounds import TRUSTLESS
from gpu_ops.core.other_names import OtherNames
from gpu_ops.core.own_errors import own_errors
from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.state_parts import Parts, StatePart, in_parts, whole
from gpu_ops.core.time import Duration, Instant, instant, utc
from gpu_ops.engines.live.attached import Attachable, Attached
from gpu_ops.engines.live.calls import changes, looks, reads
from gpu_ops.engines.live.checkpoints import read_checkpoint, write_checkpoint
from gpu_ops.engines.live.facts import check_facts, of_query
from gpu_ops.engines.live.fingerprints import IfFunctionsChanged, check_functions
from gpu_ops.engines.live.following import follow, retrying
from gpu_ops.engines.live.following_topics import follow_topics, of_topics
from gpu_ops.engines.live.inputs import find, tables_in_turn
from gpu_ops.engines.live.places import Following, IfOtherStore
from gpu_ops.engines.live.query_state import QueryState
from gpu_ops.engines.live.restoring import check_plan, check_rows, ours, put_node_back, restore_input, split
from gpu_ops.engines.live.saving import Saving, at, load_state, opened
from gpu_ops.engines.live.status import Status, shown_cti
from gpu_ops.engines.local.engine import output_schema, to_table
from gpu_ops.engines.progress import Progress, known_rows
from gpu_ops.errors import PlanError, SourceError, shown
from gpu_ops.ingest.counts import Counts
from gpu_ops.ingest.raw_source import Piece, RawSource, shown_shape
from gpu_ops.ingest.rules import IngestReport
from gpu_ops.microbatches.stores import Store
from gpu_ops.topics.topic import Topic


class RunningQuery(QueryState, OtherNames):
    """A running query, made by `Stream.start`.

    Results are final: each is given once, whole, when a CTI rules out any further change. Results that one call makes
    final come before those of the next call. In total they equal what `Stream.collect` gives for the same events,
    however the events are batched and wherever CTIs stand.

    Several threads may call it: one call runs at a time, and the others wait. A call that fails before it has taken in
    anything leaves the query as it was. One that fails later, by an error in a function of yours or by Ctrl-C, leaves
    the query failed: the results that were final before can be taken once, and every other call raises
    `QueryFailedError`.

    Args:
        node: The plan. Its source says what events look like; the source's own rows are not pushed.
        device: As in `Stream.collect`.
        on_results: Called with each table of results as soon as it is final; then `results` gives none. If it raises,
            the step stands, and the next call offers the same table again before it does anything else.
        shape: As in `Stream.collect`.
        max_waiting: How many rows may wait for an input that brings no CTI; None for any number.

    Attributes:
        positions: How far `follow` has come: a sequence number for each store.
        following: What the query knows of those stores.

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
        """The CTI of the results, in ticks: no later result starts before it."""
        return self._cti

    @property
    def imports(self) -> bool:
        """Whether an input imports the CTIs of another."""
        return any(each.follows is not None for each in self._inputs)

    def input_ctis(self) -> dict[str, int]:
        """The CTI of each input, in ticks."""
        return {each.name: each.ingress.cti for each in self._own}

    @property
    def given_schema(self) -> pa.Schema:
        """The columns of its results."""
        return self._given_schema

    def late_schema(self) -> pa.Schema | None:
        """The columns of `late`; None if its inputs differ in them."""
        schemas = [each.ingress.late_schema for each in self._own]
        return schemas[0] if all(each.equals(schemas[0]) for each in schemas) else None

    def pushed(self, *, input: str | None = None) -> int:  # noqa: A002  (the word for it)
        """How many rows of an input were pushed.

        Args:
            input: As in `push`.
        """
        return find(self._inputs, input).counts.rows

    # In

    @changes
    def skip(self, counts: Counts, *, input: str | None = None) -> None:  # noqa: A002
        """Count rows of an input that cannot be pushed, such as messages that cannot be decoded.

        Args:
            counts: Their number, and the rules that they break.
            input: As in `push`.

        Raises:
            PlanError: As `push`.
            QueryFailedError: As `push`.
        """
        self._begin_call()
        find(self._inputs, input).counts.add(counts)

    @changes
    def push(self, batch: Any, *, input: str | None = None) -> None:  # noqa: A002  (the word for it)
        """Take in more events, in the order of their arrival.

        Args:
            batch: A table or record batch, a frame, a mapping of columns, or a list of rows as mappings, with the
                columns of the query's source. Other columns are ignored.
            input: The name of the stream that the events belong to. A query with one input needs none.

        Raises:
            ColumnError: A column is missing.
            TimeError: A row has no valid lifetime, or starts before the last CTI and the policy is to raise. Then no
                row of the batch is taken in.
            WaitingError: More than `max_waiting` rows would wait. Then no row of the batch is taken in.
            PlanError: The query is closed, or another call of it is running.
            QueryFailedError: An earlier call has failed.
        """
        self._begin_call()
        into = find(self._inputs, input)
        arrivals, counted = into.source.arrivals(batch, into.counts.rows)
        self._check_waiting(into, len(arrivals.start))
        self._ingest(into, lambda: into.ingress.push(arrivals), counted)
        self._offer()

    @changes
    def advance(self, cti: Instant, *, input: str | None = None, partition: Any = None) -> None:  # noqa: A002
        """Promise that no later event starts before a time (a CTI, elsewhere a watermark).

        Args:
            cti: An aware datetime, an ISO 8601 text with a zone, a ``numpy.datetime64`` (UTC), or ``"infinity"``. The
                unit of the source's own times does not matter here. A time at or before the last CTI is ignored.
            input: As in `push`. Without it, a query with several inputs takes the promise for all of them, in one step.
            partition: With ``advance_time(…, per="device")``: the device that the promise is of, or a mapping from
                several columns to values. Without it the promise is of all of them, a low watermark.

        Raises:
            PlanError: As `push`; or the partition is none.
            QueryFailedError: As `push`.
        """
        self._begin_call()
        one = input is not None or len(self._own) == 1 or partition is not None
        every = [find(self._inputs, input)] if one else self._inputs
        time = instant(cti, name="cti")
        into, *others = [(each, partial(each.ingress.advance, time, each.named(partition))) for each in every]
        self._ingest(*into, besides=others)
        self._offer()

    @changes
    def close(self) -> None:
        """End the input: a CTI at infinity makes all remaining results final, unless ``advance_time(final=False)``.

        Raises:
            PlanError: As `push`.
            QueryFailedError: As `push`.
        """
        again_offered = self._closed and self._offers
        self._offer()
        if again_offered:
            return
        self._check_open()
        into, *others = [(each, each.ingress.close) for each in self._own]
        self._ingest(*into, besides=others, close=True)
        self._offer()

    # Queries behind this one

    def as_source(self) -> RawSource:
        """What it gives from now on, as the source of another running query: ``g.events(live)``.

        Raises:
            PlanError: It gives edges.
        """
        if self._shape not in ("interval", "point"):
            raise PlanError(
                f"The running query gives its results as {self._shape} events.",
                remedy='Queries behind it take whole events: start it with shape="interval".',
            )

        def read(columns: Sequence[str], rows: int) -> Iterator[Piece]:
            raise PlanError(
                "A running query gives its results as it runs: there is nothing to read.",
                remedy="Start the query that reads it: .start(); or collect the stream that it was started from.",
            )

        shape = shown_shape("results of a running query", None, len(self._given_schema))
        return RawSource(self._given_schema, read, "pyarrow", shape, replayable=False, fed_by=self)

    @changes
    def attach(self, query: Attachable, into: str, told: int | None = None) -> int:
        """Push the results of later calls, with their CTIs, into another running query. `Stream.start` calls this.

        Args:
            query: The other query. When this one is closed, its input ends. One that is closed or has failed is
                attached no more.
            into: The name of its input.
            told: How many results of this one there were up to the last that the other one took in; None if it begins
                here.

        Returns:
            How many results this query has given.

        Raises:
            PlanError: This query is closed, or another call of it is running.
            SourceError: This query has given more than that, or fewer.
            QueryFailedError: An earlier call has failed.
        """
        self._begin_call()
        if told is not None and told != self._given:
            raise SourceError(
                f"The query behind this one, by its input {into!r}, has taken in {told} of its results, and this one "
                f"has given {self._given}: their checkpoints are of two moments.",
                remedy="Restore both from checkpoints that were written between the same two calls; keep= keeps "
                "earlier ones.",
            )
        query.advance(utc(self._cti), input=into)
        self._attached.append(Attached(query, into, self._given))
        return self._given

    def attach_inputs(self) -> None:
        """Attach it to the running queries that its inputs are the results of."""
        for each in self._inputs:
            if each.source.fed_by is not None:
                rows = each.counts.rows
                before = self._given_before.get(each.name)
                given = each.source.fed_by.attach(self, each.name, None if before is None else before + rows)
                self._given_before[each.name] = given - rows

    @property
    def _is_fed(self) -> bool:
        return any(each.source.fed_by is not None for each in self._inputs)

    # Out

    @looks
    def results(self) -> pa.Table:
        """The results that became final since the last call: ``start``, ``end``, and the payload.

        Raises:
            QueryFailedError: The query has failed, and its final results were already taken.
        """
        if not self._ready:
            self._calls.check()
        if self._calls.offers:
            return empty_table(self._given_schema)
        ready, self._ready = self._ready, []
        return pa.concat_tables(ready) if ready else empty_table(self._given_schema)

    @looks
    def late(self) -> pa.Table | None:
        """The late rows since the last call, and what was done with each; None if there were none.

        Rows that ``late="drop"`` drops are not kept: `status` counts them.

        Raises:
            QueryFailedError: As `results`.
        """
        if not self._late_rows:
            self._calls.check()
        rows, self._late_rows = self._late_rows, []
        return pa.concat_tables(rows) if rows else None

    @reads
    def report(self) -> IngestReport:
        """Counts of the input: rows, valid rows, refused rows by rule, late rows by fate; as `Stream.report`.

        Raises:
            QueryFailedError: The query has failed.
        """
        reports = {each.name: replace(each.counts.report(), late=each.ingress.counts) for each in self._own}
        return IngestReport.together(reports)

    @reads
    def rejected(self) -> Any:
        """The invalid rows that were diverted (``on_invalid="divert"``), with the rule that each one broke.

        They are kept as long as the query runs, and its checkpoints hold them.

        Returns:
            A table; for several inputs a table of each by its name, as in `Stream.rejected`.

        Raises:
            QueryFailedError: The query has failed.
        """
        tables = {each.name: each.source.kept_aside(each.counts) for each in self._own}
        return tables if len(tables) > 1 else next(iter(tables.values()))

    def run(self, batches: Iterable[Any] | None = None) -> Iterator[pa.Table]:
        """Push batch after batch, close, and yield results as they become final; terminals show a progress bar.

        Args:
            batches: Batches as `push` takes them, or (input name, batch) pairs; by default the tables of the sources,
                one of each source in turn.
        """
        if batches is not None and not isinstance(batches, Iterable):
            raise PlanError(
                f"run takes batches, not {shown(batches)}.",
                remedy="Give a list of tables, or anything that yields them.",
            )
        with Progress(known_rows(each.source for each in self._own) if batches is None else None) as progress:
            for name, batch in tables_in_turn(self._own) if batches is None else map(_named, batches):
                before = self.rows_in
                self.push(batch, input=name)
                progress.read(self.rows_in - before)
                if self.is_ready:
                    table = self.results()
                    progress.gave(table.num_rows)
                    yield table
            self.close()
            if self.is_ready:
                yield self.results()

    async def arun(self, batches: AsyncIterable[Any]) -> AsyncIterator[pa.Table]:
        """`run` over batches that come asynchronously; between batches the event loop goes on."""
        if not isinstance(batches, AsyncIterable):
            raise PlanError(
                f"arun takes batches that come asynchronously, not {shown(batches)}.",
                remedy="Give an async generator; for others there is run.",
            )
        async for batch in batches:
            name, rows = _named(batch)
            self.push(rows, input=name)
            if self.is_ready:
                yield self.results()
        self.close()
        if self.is_ready:
            yield self.results()

    @own_errors
    def follow(
        self,
        store: Store | Topic | Mapping[str, Store] | Mapping[str, Topic],
        *,
        into: Store | Topic | None = None,
        late_into: Store | Topic | None = None,
        checkpoint: str | Path | None = None,
        every: int | Duration = 100,
        keep: int = 1,
        timeout: Duration | None = None,
        on_step: Callable[[Self], None] | None = None,
        stop_on: Iterable[int] = (),
        if_other_store: IfOtherStore = "raise",
    ) -> Status:
        """Push the batches of a store, old and new, and append the results to another store; or follow Kafka's topics.

        With a checkpoint, delivery is exactly once. After the process is killed, at any point, a query restored from
        the checkpoint resumes there. It computes the same batches of results again, and skips the batches that ``into``
        already holds. A failed step is retried in the same way: the query restores itself from the
        checkpoint, logs a warning (`logging`, logger ``gpu_ops``), and goes on.

        Of a topic (`gpu_ops.kafka`) a batch is what has come. Its results go into a topic or a store at the end of an
        epoch, which is as long as `every` says, and ends when a topic has no more messages: then the checkpoint is
        written with them, and the topic gets them in a transaction (`docs/live.md`).

        Args:
            store: The store to follow, until its CTI is infinity; for several inputs a store each, by input name. The
                next batch always comes from the input that is furthest behind, so the order is the same in each run.
                Or a topic, or topics of one cluster by input name, which are read in the order of their timestamps.
            into: The store for results and their CTIs; without it, `results` gives them. Or a topic, which has no CTIs.
            late_into: The store for the rows of `late`; without it they are counted, and not kept. Or a topic.
            checkpoint: A file that is written before the first batch, then as often as `every` says, and at the end; or
                a folder, which is there already: then each checkpoint writes what is new (`save`).
            every: Batches between two checkpoints, or the time between them (``"10s"``). Of a topic that is the longest
                that results wait.
            keep: How many checkpoints are kept: the last one at the path, earlier ones at ``path.1`` and so on, or by
                their numbers in the folder. Older ones are removed.
            timeout: How long to wait for a new batch before returning (``"10s"``, or 0); None waits for ever.
            on_step: Called with the running query after each batch.
            stop_on: Signals, such as ``signal.SIGTERM``. At the first one the query finishes its batch, writes the
                checkpoint and raises `SystemExit` with 128 + the signal's number. A second one has its usual effect.
            if_other_store: What happens if a store's identity is not the one in the checkpoint, or if it holds the
                results of another run: ``"raise"``, or ``"adopt"`` if the store is right, such as a restored backup.

        Raises:
            SourceError: A store is damaged, has another writer, is not the one in the checkpoint, lacks batches that
                the query needs, or holds batches that the query did not write; likewise a topic. Or a message cannot be
                decoded.
            QueryFailedError: A step failed again at the same batch by the same error, which is the cause.
            PlanError: An argument makes no sense, `stop_on` is used outside the main thread, or the query already
                follows a store.
        """
        if self._is_fed:
            raise PlanError(
                "The query takes in the results of a running query, and follows no store.",
                remedy="Have the first of the queries follow it.",
            )
        path = None if checkpoint is None else Path(checkpoint)
        calls, mine = self._calls, False

        def attempt() -> None:
            follows: Any = follow_topics if of_topics(store) else follow
            follows(self, calls, store, into, late_into, path, every, timeout, on_step, keep, stop_on, if_other_store)

        try:
            with calls.lock:
                calls.begin_to_follow()
                mine, calls.follower = True, threading.get_ident()
            retrying(calls, path, self._restore, attempt)
        finally:
            if mine:
                calls.follower = None
                calls.at(None)
        return self.status()

    @looks
    def status(self) -> Status:
        """How far the query is, or was when it failed."""
        failed = self._calls.what
        nodes = [] if failed else [each.own for each in self._running.walk() if each.own is not None]
        invalid = sum((each.counts.invalid for each in self._own), Counter[str]())
        waits = 0 if failed else sum(each.waits for each in self._own)
        ctis = [each.promised[0] if failed else each.ingress.cti for each in self._own]
        return Status(
            events_in=self.rows_in,
            events_out=self._given,
            alive=waits + sum(each.alive for each in nodes),
            late=dict(self._late),
            cti_in=min(ctis),
            cti_out=self._cti,
            state_bytes=0 if failed else sum(table.nbytes for table in whole(self._in_parts(named=True)).values()),
            waiting=0 if failed else self._waiting,
            invalid=dict(invalid),
            failed=failed,
        )

    @property
    def fates(self) -> dict[str, int]:
        """How many rows were late, by what was done with them: as `status`, without a look at what is alive."""
        return dict(self._late)

    # State

    @reads
    def state(self) -> dict[str, pa.Table]:
        """The query's whole state as readable tables, named ``"<number> <node>/<table>"``.

        They are copies: later steps do not change them.

        Raises:
            QueryFailedError: The query has failed.
        """
        return {name: table_copied(table) for name, table in whole(self._in_parts(named=False)).items()}

    def _in_parts(self, *, named: bool) -> dict[str, Sequence[StatePart]]:
        """Its tables in parts; ``named`` says that those which do not change have their names."""
        made = {
            f"{each.prefix}/{name}": table for each in self._inputs for name, table in each.ingress.tables().items()
        }
        for each in self._own:
            for name, pieces in each.waiting().items():
                if pieces:
                    schema = output_schema(each.leaf(late=name == "late"))
                    tables = [to_table(events, schema, self._device) for events in pieces]
                    made[f"{each.prefix}/{name}"] = pa.concat_tables(tables)
        parts: dict[str, Sequence[StatePart]] = {**in_parts(made)}
        for number, node in enumerate(self._running.walk()):
            if node.own is not None:
                own = node.own.state_parts() if named else in_parts(node.own.tables())
                parts |= {f"{number} {node.node.describe()}/{name}": each for name, each in own.items()}
        return parts

    def plan_lines(self) -> list[str]:
        """The plan as checkpoints have it."""
        lines = []
        for each in self._inputs:
            columns = each.source.schema.to_string(show_field_metadata=False).replace("\n", ", ")
            lines += [f"source {each.name}: {columns}", f"advance {each.ingress.settings}"]
            lines += [f"edges of {each.name}: open ones and whole events"] * (each.still_open is not None)
        lines += [each.node.describe() for each in self._running.walk() if each.below]
        return lines + ["late"] * self._diverts

    @reads
    def checkpoint(self, path: str | Path, *, keep: int | None = None) -> None:
        """Write the query's whole state to a file, atomically: a zip archive of Arrow IPC files and the plan.

        It includes results that `results` has not given yet.

        Args:
            path: The file. An older checkpoint there is replaced, and its file mode is kept. A symbolic link is
                replaced itself, not its target.
            keep: How many checkpoints are kept, as in `follow`; None replaces the last one and leaves older ones.

        Raises:
            SourceError: The file system refuses.
            PlanError: An argument makes no sense; or a query that is attached to this one has not taken in all results:
                its error was raised.
        """
        path_like(path, name="path")
        write_checkpoint(Path(path), self.state_facts(), whole(self._state_parts(named=False)), keep=keep)
        self._calls.kept = Path(path)

    @reads
    def save(self, folder: str | Path, *, keep: int = 2) -> int:
        """Save what has changed since the last call: a checkpoint in a folder, from which `gpu_ops.restore` goes on.

        The rows that it keeps are written once, and named by each checkpoint that needs them; so a checkpoint costs
        what has changed, and not what is alive. It is there whole or not at all, wherever the process is killed.

        Args:
            folder: The folder, of this query alone: a path, or a URL of fsspec's. It may be missing.
            keep: How many checkpoints stay there, for going back; older ones are removed, and the files that none of
                the others needs.

        Returns:
            The checkpoint's number in the folder.

        Raises:
            SourceError: The folder has checkpoints that the query was not restored from, another query saves there
                too, or the file system refuses. The last checkpoint stays as it was.
            PlanError: As `checkpoint`.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa, tempfile
            >>> bids = g.events(pa.schema([("at", pa.int64())]).empty_table(), start="at", unit="s")
            >>> counts, folder = bids.tumbling("1min").agg(n=g.count()), tempfile.mkdtemp()
            >>> live = counts.start(device="cpu")
            >>> live.push({"at": [1, 2]})
            >>> live.save(folder)
            1
            >>> again = g.restore(folder, counts, device="cpu")
            >>> again.close()
            >>> again.results()["n"].to_pylist()
            [2]
        """
        path_like(folder, name="folder")
        return self._save(folder, keep)

    def _save(self, folder: str | Path, keep: int, *, again: bool = False) -> int:
        name = at(folder)
        if name not in self._saves:
            self._saves[name] = Saving.begin(name)
        number = self._saves[name].save(self, keep, again=again)
        self._calls.kept = name
        return number

    @reads
    def keep_at(self, path: Path, keep: int, *, again: bool) -> None:
        """Write a checkpoint where `follow` keeps them: to a file, or if it is there to a folder.

        Args:
            path: The file or folder.
            keep: How many are kept.
            again: Whether nothing was taken in since the last one. Then the new one replaces it, and removes no older
                one, however often the process is restarted.
        """
        if path.is_dir():
            self._save(path, keep, again=again)
        else:
            self.checkpoint(path, keep=None if again else keep)

    def saves_to(self, folder: str | Path, saving: Saving) -> None:
        """Go on saving to a folder that it was restored from."""
        self._saves[at(folder)] = saving

    def state_parts(self) -> Parts:
        """Its whole state, for `gpu_ops.engines.live.saving`: tables, part by part.

        Raises:
            PlanError: A query that is attached to this one has not taken in all results: its error was raised.
        """
        return self._state_parts(named=True)

    def _state_parts(self, *, named: bool) -> Parts:
        if any(each.waiting for each in self._attached):
            raise PlanError(
                "A query that is attached to this one has not taken in its last results.",
                remedy="Mend what it refused them for, or close it.",
            )
        tables = {}
        if self._ready:
            tables["results"] = pa.concat_tables(self._ready)
        if self._late_rows:
            tables["late"] = pa.concat_tables(self._late_rows)
        for each in self._inputs:
            if each.counts.rejected:
                tables[f"rejected/{each.prefix}"] = each.source.kept_aside(each.counts)
        return {f"state/{name}": each for name, each in self._in_parts(named=named).items()} | in_parts(tables)

    def state_facts(self) -> dict[str, Any]:
        """The rest of its state, likewise."""
        nodes = self._running.walk()
        return {
            "plan": self.plan_lines(),
            "rows_in": [each.counts.rows for each in self._inputs],
            "ingest": [each.counts.facts() for each in self._inputs],
            "given_before": self._given_before,
            "late": dict(self._late),
            "promised": [list(each.promised) for each in self._inputs],
            "ctis": [each.cti for each in nodes],
            "given": [each.given for each in nodes],
            "closed": self._closed,
            "positions": self.positions,
            "following": self.following.facts(),
            "functions": self._functions,
        }

    def _restore(self, path: Path) -> None:
        with ours(path):
            # It wrote the file itself: damage is looked for, and what is sound is not doubted.
            if path.is_dir():
                saving, state = opened(path, None)
                facts, parts = load_state(saving.manifests.folder, state)
                self.saves_to(path, saving)
            else:
                facts, tables = read_checkpoint(path, TRUSTLESS)
                parts = in_parts(tables)
            self.restore_from(path, facts, parts, "raise", trusted=True)

    def restore_from(
        self,
        path: Path | str,
        facts: Any,
        parts: Parts,
        if_functions_changed: IfFunctionsChanged,
        *,
        trusted: bool,
    ) -> None:
        """Take over the state in a checkpoint of this query, for `gpu_ops.engines.live.restored`.

        Raises:
            SourceError: It is of another query, or damaged.
        """
        self._check(path, facts, if_functions_changed)
        try:
            self._remember(path, facts, parts, trusted=trusted)
        except BaseException as error:
            self._calls.fail(error)
            raise

    def _check(self, path: Path | str, facts: Mapping[str, Any], if_functions_changed: IfFunctionsChanged) -> None:
        """Refuse a checkpoint of another query, and one whose facts are damaged."""
        check_plan(path, facts, self.plan_lines())
        check_facts(path, facts, of_query(facts, len(self._inputs), len(self._running.walk())))
        check_functions(path, facts, self._functions, if_functions_changed)

    def _remember(self, path: Path | str, facts: Mapping[str, Any], parts: Parts, *, trusted: bool) -> None:
        """Take over the state in a checkpoint."""
        self._begin()
        state = {name.removeprefix("state/"): each for name, each in parts.items() if name.startswith("state/")}
        tables = whole({name: each for name, each in parts.items() if not name.startswith("state/")})
        nodes = {f"{number} {each.node.describe()}/": each for number, each in enumerate(self._running.walk())}
        owned = split(path, state, [*nodes, *(f"{each.prefix}/" for each in self._inputs)])
        for number, (prefix, each) in enumerate(nodes.items()):
            each.cti, each.given = facts["ctis"][number], facts["given"][number]
            put_node_back(path, number, each, owned[prefix], trusted=trusted)
        # An older checkpoint counts rows alone.
        ingest = facts.get("ingest") or [Counts(rows, rows).facts() for rows in facts["rows_in"]]
        for known, counted, promised in zip(self._inputs, ingest, facts["promised"], strict=True):
            restore_input(path, known, whole(owned[f"{known.prefix}/"]), self._device)
            aside = f"rejected/{known.prefix}"
            check_rows(path, tables, aside, [known.source.kept_aside(Counts()).schema], "rows that are kept aside")
            known.counts = Counts.restore(counted, tables.get(aside))
            # An older checkpoint also has one CTI for each input: it did not tell whole events from open ones.
            known.promised = tuple(promised) if isinstance(promised, list) else (promised, promised)
        self._late, self._closed = Counter(facts["late"]), facts["closed"]
        self._given_before = dict(facts.get("given_before", {}))
        self.positions, self.following = facts["positions"], Following.restore(facts.get("following"), path)
        check_rows(path, tables, "results", [self._given_schema], "its results")
        check_rows(path, tables, "late", [each.ingress.late_schema for each in self._inputs], "rows that are late")
        self._ready = [tables["results"]] if "results" in tables else []
        self._late_rows = [tables["late"]] if "late" in tables else []
        self._calls.kept = path
        self._settle()


def _named(batch: Any) -> tuple[str | None, Any]:
    """(input name or None, batch) of a batch or an (input name, batch) pair."""
    named = isinstance(batch, tuple) and len(batch) == 2 and isinstance(batch[0], str)
    return (batch[0], batch[1]) if named else (None, batch)
