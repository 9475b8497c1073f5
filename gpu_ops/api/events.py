"""Where streams come from: any table-like thing; and running queries that go on, from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from gpu_ops.api.stream import Stream
from gpu_ops.core.arguments import path_like
from gpu_ops.core.own_errors import own_errors
from gpu_ops.errors import PlanError, shown
from gpu_ops.ingest.raw import OpensItself
from gpu_ops.microbatches.stores import Store
from gpu_ops.plan.arguments import names
from gpu_ops.plan.nodes import Node, Source
from gpu_ops.topics.topic import Topic

if TYPE_CHECKING:
    from gpu_ops.engines.live.fingerprints import IfFunctionsChanged
    from gpu_ops.engines.live.running_query import RunningQuery
    from gpu_ops.engines.local.shapes import Shape
    from gpu_ops.ingest import CsvOptions


@dataclass(frozen=True, slots=True)
class ReadBySpark:
    """A topic or a store with the session that reads it: as the source of `events` it is what ``spark=`` says.

    Attributes:
        source: The topic or the store.
        spark: The session, or its ``readStream``.
    """

    source: Topic | Store
    spark: Any


@own_errors
def events(
    source: Any,
    *,
    start: str | None = None,
    end: str | None = None,
    key: str | Sequence[str] | None = None,
    unit: Literal["s", "ms", "us", "ns"] | None = None,
    zone: str | None = None,
    round: Literal["floor", "ceil", "half_even"] | None = None,  # noqa: A002  (the word that users look for)
    null_end: Literal["raise", "open"] = "raise",
    on_invalid: Literal["raise", "drop", "divert"] = "raise",
    ambiguous: Literal["raise", "earliest", "latest"] = "raise",
    nonexistent: Literal["raise", "shift_forward", "shift_backward"] = "raise",
    format: Literal["parquet", "arrow", "csv"] | None = None,  # noqa: A002
    csv: CsvOptions | None = None,
    kind: str | None = None,
    shape: Literal["edge"] | None = None,
    edge: str | None = None,
    name: str | None = None,
    trust: bool = False,
    max_bytes: int | None = None,
    spark: Any = None,
) -> Stream:
    """A stream of events from any table-like thing: each row is an event with a lifetime and a payload.

    Args:
        source: A pyarrow Table, RecordBatch, RecordBatchReader or Dataset, a pandas, Polars, DuckDB or cuDF frame,
            a PySpark DataFrame, anything with ``__arrow_c_stream__``, or a path: a Parquet, Arrow IPC or CSV file,
            a folder of them, or a glob. Or a `gpu_ops.store`, as far as it goes now; or a running query, whose results
            from now on are the events of the query that is started over them (StreamInsight: dynamic query
            composition). The lifetimes of these two are their own.
        start: The column with each event's start; only a store and a running query need none.
        end: The column with each event's end, exclusive. Without it events are points, one tick (1 µs) long.
        key: Columns to group by, as with `Stream.by`.
        unit: The unit of integer times, counted since 1970-01-01T00:00Z.
        zone: The time zone of naive timestamps, for instance ``"Europe/Vienna"``.
        round: How times finer than 1 µs are rounded; they are refused unless this says so.
        null_end: ``"open"`` lets a null end mean that the event never ends.
        on_invalid: What happens to rows without a valid lifetime: an error, or they are dropped, or kept aside for
            `Stream.rejected`. They are counted in `Stream.report` in each case.
        ambiguous: Which of the two instants a local time means that a clock change makes occur twice.
        nonexistent: What a local time becomes that a clock change skips.
        format: The format of files whose names do not tell it.
        csv: How CSV files are written: delimiter, quotes, what reads as null.
        kind: The column that says whether a row is an event (``"insert"``) or a CTI (``"cti"``), in any case. A CTI is
            a promise that from there on no event starts, and no end edge ends, before its time. It has that time in
            the start's column; its other columns are not looked at.
        shape: ``"edge"`` where an event comes in two rows (StreamInsight: edge events): a start edge, whose end is not
            looked at, and an end edge with the same start and payload, and the end.
        edge: The column that says which of them a row is: ``"start"`` or ``"end"``, in any case; or ``"interval"``,
            an event whose end is known already, as Trill mixes them. Of start edges that are the same the first
            is ended first; one that no end edge ends never ends.
        name: What a running query, `Stream.report` and `Stream.rejected` call it, where there are several inputs.
        trust: Whether values in files, readers and datasets are taken as they are. They are validated whole before
            anything computes on them; one gives that up for a little time, and a file that is damaged inside, or made
            to do harm, may then end the process or give wrong answers.
        max_bytes: How many bytes a file may unpack to, in all and at a time; what is more is an error. Without it, a
            piece of a file (a record batch, a row group) may come to half of this machine's memory, and the file in
            all to that or to 64 times its own size.
        spark: The Spark session that reads a topic (`gpu_ops.kafka`) or a store, as a stream for
            `Stream.start_on_spark`; or its ``readStream``, with options of Spark's connector or of the store's format.

    Returns:
        A stream whose payload is all other columns.

    Raises:
        ColumnError: A column is not there, or one of the payload is called ``start`` or ``end``.
        TimeError: The time columns cannot be times. Errors in single rows are raised when the rows are read.
        SourceError: The source cannot be read.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> rides = pa.table({"pickup": [0, 60], "dropoff": [120, 90], "zone": ["A", "B"]})
        >>> alive = g.events(rides, start="pickup", end="dropoff", unit="s").snapshot().agg(n=g.count())
        >>> alive.collect()["n"].to_pylist()
        [1, 2, 1]
        >>> door = {"at": [0, 5, 0], "till": [None, None, 9], "edge": ["start", "start", "end"], "who": ["A", "B", "A"]}
        >>> inside = g.events(pa.table(door), start="at", end="till", unit="s", shape="edge", edge="edge")
        >>> inside.snapshot().agg(n=g.count()).collect()["n"].to_pylist()
        [1, 2, 1]
    """
    if issubclass(type(source), OpensItself):  # its lifetimes are its own
        held = source.as_source().schema.names
        start, end = (said or (name if name in held else None) for said, name in ((start, "start"), (end, "end")))
    for argument, said in (("start", start), ("end", end), ("kind", kind), ("edge", edge), ("name", name)):
        if said is not None and not isinstance(said, str):
            raise PlanError(f"{argument} is {shown(said)}, and no name.", remedy=f'Write {argument}="{argument}".')
    grouped = names(key, where="key")
    if start is None:
        raise PlanError("A source needs the column of its events' starts.", remedy='Say start="ts", for instance.')
    options: dict[str, Any] = {
        "start": start,
        "end": end,
        "unit": unit,
        "zone": zone,
        "round": round,
        "null_end": null_end,
        "on_invalid": on_invalid,
        "ambiguous": ambiguous,
        "nonexistent": nonexistent,
    }
    if isinstance(source, ReadBySpark):
        source, spark = source.source, source.spark
    arrivals: dict[str, Any] = {"kind": kind, "shape": shape, "edge": edge}
    node: Node
    if spark is not None or type(source).__module__.startswith("pyspark."):
        given = [name for name, value in arrivals.items() if value is not None and name != "kind"]
        if given:
            raise PlanError(
                f"{given[0]}= is about rows in their order of arrival, and a Spark DataFrame has none.",
                remedy="Give whole events: a row with its start and its end for each.",
            )
        from gpu_ops.engines.spark import open_spark, open_store, open_topic

        options |= {"kind": kind, "name": name}
        if spark is None:
            node = open_spark(source, **options)
        elif isinstance(source, Topic):
            node = open_topic(source, spark, **options)
        elif isinstance(source, Store):
            node = open_store(source, spark, **options)
        else:
            raise PlanError(
                f"spark= is for a topic of Kafka and for a store, and the source is {shown(source)}.",
                remedy="Leave it out: a DataFrame has its session, and other sources are read here.",
            )
    else:
        from gpu_ops.ingest import open_source

        node = Source(
            open_source(source, **options, **arrivals, format=format, csv=csv, trust=trust, max_bytes=max_bytes), name
        )
    stream = Stream(node)
    return stream if key is None else stream.by(*grouped)


@own_errors
def restore(
    path: str | Path,
    stream: Stream,
    *,
    device: str = "auto",
    on_results: Callable[[pa.Table], None] | None = None,
    shape: Shape = "interval",
    max_waiting: int | None = None,
    number: int | None = None,
    if_functions_changed: IfFunctionsChanged = "raise",
    trust: bool = False,
    max_bytes: int | None = None,
) -> RunningQuery:
    """A running query as a checkpoint found it: it goes on with the first event that it had not taken in.

    Args:
        path: What `RunningQuery.checkpoint` wrote, or the folder that `RunningQuery.save` saved to.
        stream: The query, as it was when it was started; expressions are not in a checkpoint.
        device: As in `Stream.start`; it may be another one than before.
        on_results: Likewise.
        shape: Likewise.
        max_waiting: Likewise.
        number: Which of a folder's checkpoints, by the number that `RunningQuery.save` gave; None for the newest.
        if_functions_changed: What happens if a function of yours in the query does something else than the one that the
            checkpoint was made with: an error, or ``"accept"``. A hash of its code tells (`docs/live.md`).
        trust: As in `events`: whether the tables in the checkpoint are taken as they are.
        max_bytes: Likewise: how many bytes they may unpack to.

    Raises:
        SourceError: There is no checkpoint, it is damaged, or it is of another plan; then the difference is shown. Or a
            function of yours has changed.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa, pathlib, tempfile
        >>> events = g.events(pa.schema([("at", pa.int64())]).empty_table(), start="at", unit="s")
        >>> counts = events.tumbling("1min").agg(n=g.count())
        >>> live = counts.start(device="cpu")
        >>> live.push({"at": [1, 2]})
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "counts.checkpoint"
        >>> live.checkpoint(path)
        >>> again = g.restore(path, counts, device="cpu")
        >>> again.push({"at": [3]})
        >>> again.close()
        >>> again.results()["n"].to_pylist()
        [3]
    """
    from gpu_ops.core.bounds import Bounds
    from gpu_ops.engines.live.restored import Start, restored

    if not isinstance(stream, Stream):
        raise PlanError(f"restore takes a stream, not {shown(stream)}.", remedy="Write it as it was started.")
    path_like(path, name="path")
    node = stream._node  # noqa: SLF001
    bounds = Bounds(trust, max_bytes)
    start = Start(node, device, on_results, shape, max_waiting, if_functions_changed)
    made = restored(path, start, bounds, number)
    made.attach_inputs()
    return made
