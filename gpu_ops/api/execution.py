"""The verbs that touch data: what a stream answers, and what its sources held. `gpu_ops.Stream` has them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from gpu_ops.api.base import DataWindowed, Stream, Verbs, Windowed
from gpu_ops.core.arguments import flag, whole
from gpu_ops.core.own_errors import of_methods
from gpu_ops.errors import NotCollectedError, PlanError, is_one_of
from gpu_ops.microbatches.stores import Store
from gpu_ops.plan.nodes import Node, Source, SparkSource, make_room, merged

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from gpu_ops.engines.live.fingerprints import IfFunctionsChanged
    from gpu_ops.engines.live.running_query import RunningQuery
    from gpu_ops.engines.local.shapes import Shape
    from gpu_ops.engines.spark.streams.past import EpochState
    from gpu_ops.engines.spark.streams.tables import SparkTable
    from gpu_ops.ingest import IngestReport
    from gpu_ops.ingest.sources import EventSource
    from gpu_ops.microbatches.files import WriteReport
    from gpu_ops.topics.topic import Topic


class _SchemaCapsule:
    """A capsule of a schema, as an object that pyarrow reads one from."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __arrow_c_schema__(self) -> object:
        return self._capsule


def _not_collected(problem: str, remedy: str) -> NotCollectedError:
    return NotCollectedError(f"{problem}: it is a plan, and nothing has run yet.", remedy=remedy)


@of_methods
class Answering(Verbs[Stream, Windowed, DataWindowed]):
    """Verbs of a stream that touch data."""

    def collect(self, *, device: str = "auto", shape: Shape = "interval", exact: bool = False) -> Any:
        """The answer, in the kind of frame that the data came in; an Arrow table when in doubt.

        Args:
            device: ``"cpu"``, ``"gpu"`` (or an error that says why not), or ``"auto"``: a GPU if one works.
                ``"array"`` runs the GPU's kernels on NumPy, which is slow and for tests.
            shape: How events are shown (StreamInsight's shapes): ``"interval"``; ``"point"``, without ``end``, of
                events that last one tick; ``"edge"``, with a column ``edge``: a row ``"start"`` for each event, and a
                row ``"end"`` for each that ends; ``"coalesced"``, where the two are one row ``"interval"``.
            exact: Whether a query is refused whose expressions may give other results on another engine or device:
                `explain` marks them as the backend's own, and docs/expressions.md says which they are.

        Returns:
            Columns ``start`` and ``end`` (``timestamp[us]`` in the zone that came in), then the payload. The order of
            rows is no part of the answer. For a PySpark source it is a DataFrame, and nothing has run yet.

        Raises:
            TimeError: A row has no valid lifetime (``on_invalid="raise"``), or a time would leave the years 1 to 9999.
            SumOverflowError: An integer or decimal sum does not fit its type.
            IntegerOverflowError: A whole number of an expression does not fit its type.
            DeviceError: The device cannot be had.
            PlanError: ``exact=True``, and an expression is the backend's own.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> g.events(pa.table({"at": [0], "v": [1]}), start="at", unit="s").collect().column_names
            ['start', 'end', 'v']
        """
        self._check(exact)
        if is_one_of(shape, ["interval"]):
            return self._engine().collect(self._plan, device)
        if self._on_spark:
            raise PlanError(
                "Answers on Spark are intervals.", remedy="Show them otherwise by DataFrame operations behind it."
            )
        from gpu_ops.engines.local import engine as local

        return local.collect(self._plan, device, shape)

    def to_reader(self, *, device: str = "auto") -> pa.RecordBatchReader:
        """The answer as a reader of Arrow record batches, computed as it is read.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> g.events(pa.table({"at": [0], "v": [1]}), start="at", unit="s").to_reader().read_all().num_rows
            1
        """
        return self._engine().reader(self._plan, device)

    def head(self, rows: int = 5, *, device: str = "auto") -> pa.Table:
        """Some rows of the answer as an Arrow table, whatever the data came in: any, as rows have no order.

        Args:
            rows: How many at most.
            device: As in `collect`.

        Raises:
            PlanError: ``rows`` is no number of rows; or as `collect`.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> g.events(pa.table({"at": [0, 1], "v": [1, 2]}), start="at", unit="s").head(1).num_rows
            1
        """
        whole(rows, name="rows")
        if self._on_spark:
            found: pa.Table = self._engine().head(self._plan, device, rows)
            return found
        reader, read, count = self.to_reader(device=device), list[pa.RecordBatch](), 0
        while count < rows and (batch := next(reader, None)) is not None:
            read.append(batch)
            count += batch.num_rows
        return pa.Table.from_batches(read, reader.schema).slice(0, rows)

    def show(self, rows: int = 20, *, device: str = "auto") -> None:
        """Print some rows of the answer: those of `head`, with its arguments.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> g.events(pa.table({"at": [0], "v": [7]}), start="at", unit="s").select("v").show()
            shape: (1, 3)
            ...
        """
        import polars as pl

        with pl.Config(tbl_rows=rows, tbl_cols=-1):
            sys.stdout.write(f"{pl.from_arrow(self.head(rows, device=device))}\n")

    def to_spark(self, *, device: str = "auto") -> Any:
        """The answer as a PySpark DataFrame, of a stream over PySpark DataFrames: what `collect` gives there.

        Raises:
            PlanError: The data is not on Spark.

        Examples:
            >>> import gpu_ops as g
            >>> bids = g.events(spark.createDataFrame([(0, 7)], "at long, price long"), start="at", unit="s")
            >>> bids.to_spark().columns
            ['start', 'end', 'price']
        """
        if not self._on_spark:
            raise PlanError(
                "The data of this stream is not on Spark.",
                remedy="Hand its answer to a session: spark.createDataFrame(pa.table(stream)).",
            )
        return self.collect(device=device)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Arrow's PyCapsule protocol: any library that speaks it takes a stream where it takes a frame.

        The query runs anew for each reader. ``requested_schema`` says other types for the same columns in the same
        order: each batch is cast, and a value that does not fit is an error when its batch is read.

        Raises:
            PlanError: Other columns are requested, or types that the answer's cannot be cast to.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> bids = g.events(pa.table({"at": [0], "v": [1]}), start="at", unit="s")
            >>> pa.table(bids).column_names
            ['start', 'end', 'v']
        """
        reader = self.to_reader()
        if requested_schema is None:
            return reader.__arrow_c_stream__()
        asked = pa.schema(_SchemaCapsule(requested_schema))
        has, wanted = (", ".join(schema.names) for schema in (reader.schema, asked))
        if has != wanted:
            raise PlanError(
                f"The answer has the columns {has}, and {wanted} are requested.",
                remedy="Request other types alone; choose and name columns by .select(…).",
            )
        try:
            return reader.cast(asked).__arrow_c_stream__()
        except (pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise PlanError(
                f"The answer cannot be given in the requested types: {error}.",
                remedy="Request types that Arrow casts it to, or none.",
            ) from error

    def __arrow_c_schema__(self) -> object:
        """The schema of the answer, for readers that look at it first: ``start``, ``end``, then the payload."""
        return self._engine().output_schema(self._node).__arrow_c_schema__()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The answer's record batches, as of `to_reader`."""
        return iter(self.to_reader())

    # What only an answer has. A plan that looked empty, or had a length, would be taken for its rows.

    def __len__(self) -> int:
        raise _not_collected("A stream has no length", "Collect it: .collect(), or .to_reader() for batches.")

    def __bool__(self) -> bool:
        raise _not_collected("A stream is neither true nor false", "Ask `is None`, or collect it: .collect().")

    def __getitem__(self, name: object) -> Any:
        say = (
            f"Write .select({name!r}), or .collect()[{name!r}]." if isinstance(name, str) else "Collect it: .collect()."
        )
        raise _not_collected("A stream has neither columns nor rows at hand", say)

    def __contains__(self, name: object) -> bool:
        raise _not_collected("A stream holds no names and no rows", "Ask its schema: name in stream.schema.names.")

    def __array__(self, dtype: object = None, copy: object = None) -> Any:
        raise _not_collected(
            "A stream is no array, and pandas' constructor would make one of it",
            "Collect it: .collect(); of whatever source, pyarrow.table(stream).to_pandas() is a pandas frame.",
        )

    def start(
        self,
        *,
        device: str = "auto",
        on_results: Callable[[pa.Table], None] | None = None,
        shape: Shape = "interval",
        max_waiting: int | None = None,
        exact: bool = False,
    ) -> RunningQuery:
        """Run the query live: push events and CTIs in, and take results out when they are final.

        The source of the stream says what events look like; what it holds is not pushed (`RunningQuery.run` does that).
        A source that is a running query pushes what it gives from now on, and its CTIs.

        Args:
            device: As in `collect`.
            on_results: Called with each table of results as soon as it is there.
            shape: As in `collect`.
            max_waiting: How many rows may wait for an input that says nothing: what is more is refused by
                `WaitingError`. None for any number.
            exact: As in `collect`.

        Raises:
            PlanError: The data is a Spark DataFrame, or an argument makes no sense; or as `collect`.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> tasks = g.events(pa.table({"at": [0], "until": [9]}), start="at", end="until", unit="s")
            >>> with tasks.snapshot().agg(n=g.count()).start() as live:
            ...     live.push({"at": [0, 2], "until": [5, 4]})
            >>> live.results()["n"].to_pylist()
            [1, 2, 1]
        """
        from gpu_ops.engines.live.running_query import RunningQuery

        if self._on_spark:
            raise PlanError(
                "A Spark DataFrame has its rows in Spark, and a running query is pushed them here.",
                remedy="Start the query over local data: g.events(schema.empty_table(), …). A streaming DataFrame "
                "(spark.readStream) runs live in Spark: .start_on_spark(into=…, checkpoint=…).",
            )
        self._check(exact)
        make_room(self._plan)
        made = RunningQuery(self._plan, device, on_results, shape, max_waiting)
        made.attach_inputs()
        return made

    def start_on_spark(
        self,
        *,
        into: str | Path | Store | Topic | SparkTable | Callable[[pa.Table, int], object],
        checkpoint: str | Path,
        trigger: Mapping[str, Any] | None = None,
        partitions: int | None = None,
        shards: int | None = None,
        late_into: str | Path | Store | Topic | SparkTable | Callable[[pa.Table, int], object] | None = None,
        keep: int = 2,
        device: str = "auto",
        name: str | None = None,
        if_functions_changed: IfFunctionsChanged = "raise",
        exact: bool = False,
    ) -> StreamingQuery:
        """Run the query live in Spark, over streaming DataFrames (``spark.readStream``), exactly once.

        Spark hands over the rows in epochs. The answer does not depend on how it cuts them, but for late rows: CTIs are
        made between epochs, of the latest start in earlier ones (`advance_time`), and a row is late by the CTI of its
        epoch. Results are final. After a kill at any point, the same call goes on where the last committed epoch ended.

        Args:
            into: Where results go: a folder of Parquet files, which `gpu_ops.epochs` reads (exactly once); a
                `gpu_ops.store`, of which each epoch is a batch (exactly once); a topic of Kafka, `gpu_ops.kafka`, in
                which each epoch is a transaction (exactly once; or at least once, as the topic says); a
                `gpu_ops.engines.spark.SparkTable`, of Delta or Iceberg, of which each epoch is a commit (exactly once);
                or a function of a table and the epoch's number, called on the driver with each committed epoch, in
                order, at least once.
            checkpoint: A folder that the driver and all workers see, for Spark's log, the epochs' manifests and states.
            trigger: When Spark begins an epoch: the arguments of ``DataStreamWriter.trigger``, for instance
                ``{"availableNow": True}`` or ``{"processingTime": "10 seconds"}``. By default as soon as it can.
            partitions: Into how many partitions events go by their keys, which are tasks of an epoch. By default as
                many as the query began with, and then ``spark.sql.shuffle.partitions``. A query without a key has one
                (`explain` says so).
            shards: How many shards the state has, for the query's whole life: a start may have so many partitions, and
                any number below. By default as many as the partitions that the query begins with. Each shard costs
                some milliseconds of an epoch.
            late_into: Where late rows go, with what was done with each, as `RunningQuery.late` shows them; rows that
                ``late="drop"`` drops are counted alone.
            keep: How many epochs' states are kept.
            device: As in `collect`; the workers choose.
            name: Spark's name for the query.
            if_functions_changed: As in `gpu_ops.restore`.
            exact: As in `collect`.

        Returns:
            Spark's own StreamingQuery: it stops, waits and reports as any other. When it has stopped,
            `end_on_spark` ends the input.

        Raises:
            PlanError: A source is no streaming DataFrame, the query does not run in epochs, or an argument makes no
                sense; or as `collect`.
            SourceError: The checkpoint is that of another query, of another number of shards or of other sinks, the
                query has changed, or it has ended; a sink holds results of another query.
        """
        self._check_stream(exact)
        from gpu_ops.engines.spark.streams import query

        query.check_started(trigger, name)
        asked = (device, into, checkpoint, late_into, partitions, keep, if_functions_changed, shards)
        return query.start(query.open_epochs(self._plan, *asked), trigger, name)

    def end_on_spark(
        self,
        *,
        into: str | Path | Store | Topic | SparkTable | Callable[[pa.Table, int], object],
        checkpoint: str | Path,
        late_into: str | Path | Store | Topic | SparkTable | Callable[[pa.Table, int], object] | None = None,
        keep: int = 2,
        device: str = "auto",
        if_functions_changed: IfFunctionsChanged = "raise",
    ) -> None:
        """End a query of `start_on_spark` that has stopped: a last epoch, in which its inputs end.

        All remaining results become final, unless ``advance_time(final=False)``. The query cannot go on after it.
        The arguments are those of `start_on_spark`. There are as many partitions as the query began with.

        Raises:
            PlanError: As `start_on_spark`.
            SourceError: As `start_on_spark`; or an epoch is begun and not committed: start the query once more first.
        """
        self._check_stream(exact=False)
        from gpu_ops.engines.spark.streams import query

        asked = (device, into, checkpoint, late_into, None, keep, if_functions_changed)
        query.end(query.open_epochs(self._plan, *asked))

    def go_back_on_spark(
        self,
        epoch: int,
        *,
        into: str | Path,
        checkpoint: str | Path,
        late_into: str | Path | None = None,
        keep: int = 2,
        device: str = "auto",
        if_functions_changed: IfFunctionsChanged = "raise",
    ) -> None:
        """Undo all epochs of a query of `start_on_spark` after one; the query has stopped.

        Its state, its results and Spark's place in the inputs are then those after that epoch. `start_on_spark` goes on
        from there, and reads the inputs that came later once more; so does a query that had ended. A process that is
        killed in the middle of this leaves the rest to the next call of any of the three.

        Args:
            epoch: One of the epochs that ``keep`` of `start_on_spark` has kept.
            into: As in `start_on_spark`: a folder.
            checkpoint: As in `start_on_spark`.
            late_into: As in `start_on_spark`: a folder.
            keep: As in `start_on_spark`.
            device: As in `start_on_spark`.
            if_functions_changed: As in `start_on_spark`.

        Raises:
            PlanError: As `start_on_spark`; or results went into a function, or into a store, which others may have
                followed: these are not taken back.
            SourceError: As `start_on_spark`; or the epoch is not kept, or another process goes back.
        """
        self._check_stream(exact=False)
        from gpu_ops.engines.spark.streams import query

        asked = (device, into, checkpoint, late_into, None, keep, if_functions_changed)
        query.go_back(query.open_epochs(self._plan, *asked), epoch)

    def state_on_spark(self, *, checkpoint: str | Path, epoch: int | None = None) -> EpochState:
        """What a query of `start_on_spark` knew after an epoch: its state as tables, its CTIs, how much was alive.

        The driver reads it from the checkpoint, while the query runs or after it. The results as of an epoch are in
        the sink: ``gpu_ops.epochs(path).read(epoch=5)`` of a folder, ``gpu_ops.store(path).read(until=6)`` of a store,
        whose first batch has number 1.

        Args:
            checkpoint: As in `start_on_spark`.
            epoch: One of the epochs that ``keep`` of `start_on_spark` has kept; the last one by default.

        Raises:
            PlanError: As `start_on_spark`.
            SourceError: The folder is no checkpoint, or that of another query; the epoch is not kept (the error names
                those that are); or a file is damaged.
        """
        self._check_stream(exact=False)
        from gpu_ops.engines.spark.streams import past

        return past.state_after(self._plan, checkpoint, epoch)

    def write(
        self,
        path: str | Path | Store,
        *,
        device: str = "auto",
        if_exists: Literal["raise", "replace"] = "raise",
        row_group_rows: int = 1 << 20,
        exact: bool = False,
    ) -> WriteReport:
        """The answer in a Parquet or Arrow IPC file (by the name's ending), whole or not at all.

        Args:
            path: Where to; ``.parquet``, ``.arrow``, ``.ipc`` or ``.feather``. Or a `gpu_ops.store`: the answer
                is appended to it, and closes it, by a CTI at infinity. On Spark a folder of Parquet files: text is a
                path or URL as Spark's own readers take it, and a `Path` is on the driver's machine.
            device: As in `collect`.
            if_exists: Whether an existing file (or folder, on Spark) is replaced or an error. The old answer stays
                until the new one is complete; docs/spark.md says how.
            row_group_rows: Rows per row group.
            exact: As in `collect`.

        Raises:
            SourceError: The ending is unknown, the folder is missing, or the file exists. On Spark: the session has no
                file system for the URL, another write to the place is at work, or what was written is not found there.
            PlanError: As `collect`.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa, pathlib, tempfile
            >>> path = pathlib.Path(tempfile.mkdtemp()) / "answer.parquet"
            >>> g.events(pa.table({"at": [0], "v": [1]}), start="at", unit="s").write(path).rows
            1
        """
        self._check(exact)
        if isinstance(path, Store):
            return path.write(self.to_reader(device=device))
        written: WriteReport = self._engine().write(self._plan, device, path, if_exists, row_group_rows)
        return written

    def explain(self, *, device: str = "auto") -> str:
        """The plan as a tree: per node its engine, device, key, columns, time rule, and why it runs where it runs.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0], "v": [1]}), start="at", unit="s")
            >>> print(s.tumbling("1min").agg(n=g.count()).explain(device="cpu").splitlines()[0])
            Window tumbling size=1min agg n=count()
        """
        from gpu_ops.engines.explain import explain

        return explain(self._plan, device)

    def report(self) -> IngestReport:
        """What the last read of the source counted: rows, valid rows, refused rows by rule, late rows by fate.

        It totals all sources of the query; ``report().sources`` breaks it down by name (``g.events(…, name=…)``). A
        source without a name is ``"input"``; sources that share a name are numbered, as in ``"input 1"``, in the order
        in which `explain` shows them.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> late = pa.table({"at": [5, None]})
            >>> orders = g.events(late, start="at", unit="s", on_invalid="divert", name="orders")
            >>> both = orders.union(g.events(pa.table({"at": [3]}), start="at", unit="s", name="offers"))
            >>> both.collect().num_rows
            2
            >>> both.report().valid, {name: each.valid for name, each in both.report().sources.items()}
            (2, {'orders': 1, 'offers': 1})
            >>> both.rejected()["orders"]["rule"].to_pylist()
            ['null_start']
        """
        from gpu_ops.ingest import IngestReport

        return IngestReport.together({name: source.report() for name, source in self._sources().items()})

    def rejected(self) -> Any:
        """The rows that the last read kept aside (``on_invalid="divert"``), with the rule that each one broke.

        Returns:
            A table; of several sources, whose columns differ, a dict of tables by name, as in `report`.
        """
        tables = {name: source.rejected() for name, source in self._sources().items()}
        return tables if len(tables) > 1 else next(iter(tables.values()))

    def _sources(self) -> dict[str, EventSource]:
        """The sources by their names, in the order in which the plan reads them."""
        nodes = self._node.all(Source)
        if not nodes:
            raise PlanError(
                "Rows of a Spark DataFrame are judged on the cluster, by Spark's own expressions, which count nothing.",
                remedy='gpu_ops.engines.spark.invalid_rows(stream).groupBy("rule").count() counts what is refused, by '
                "a job of its own, which reads the source's time columns once more.",
            )
        names = [node.name or "input" for node in nodes]
        found: dict[str, EventSource] = {}
        for at, (name, node) in enumerate(zip(names, nodes, strict=True)):
            number = names[: at + 1].count(name)
            own = name if names.count(name) == 1 else f"{name} {number}"
            # One may be called "input 2" by its user.
            while own in found or (own != name and own in names):
                number += 1
                own = f"{name} {number}"
            found[own] = node.source
        return found

    def _check_stream(self, exact: bool) -> None:  # noqa: FBT001  (as the user gave it)
        if not any(each.endless for each in self._node.all(SparkSource)):
            raise PlanError(
                "The query reads no streaming DataFrame of Spark.",
                remedy="Read one: g.events(spark.readStream.schema(…).parquet(path), start=…). Over local data it runs "
                "live by .start().",
            )
        self._check(exact)
        make_room(self._plan)

    def _check(self, exact: bool) -> None:  # noqa: FBT001  (as the user gave it)
        if flag(exact, name="exact"):
            from gpu_ops.plan.sameness import check_same

            check_same(self._plan)

    @cached_property
    def _plan(self) -> Node:
        """What engines are handed: what was written twice is there once."""
        return merged(self._node)

    @property
    def _on_spark(self) -> bool:
        return self._node.on_spark

    def _engine(self) -> Any:
        make_room(self._plan)
        if self._on_spark:
            from gpu_ops.engines import spark

            return spark
        from gpu_ops.engines.local import engine as local

        return local
