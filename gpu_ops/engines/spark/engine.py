"""The answer of a stream over a Spark DataFrame: as a DataFrame, Arrow batches or files; and what runs where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from gpu_ops.core.own_errors import own_errors
from gpu_ops.core.time import TIME_TYPE
from gpu_ops.devices import check_name
from gpu_ops.engines.spark.answers import write_files
from gpu_ops.engines.spark.checks import our_errors
from gpu_ops.engines.spark.compiling import Compiler
from gpu_ops.engines.spark.planned import summary as spark_summary
from gpu_ops.engines.spark.sending import Sent
from gpu_ops.engines.spark.session import check_ends, check_sessions, has_plugin
from gpu_ops.engines.spark.together import Together, together
from gpu_ops.errors import ColumnError, PlanError, SourceError
from gpu_ops.microbatches.files import WriteReport, check_writing
from gpu_ops.plan.nodes import Node, SparkSource


def collect(node: Node, device: str) -> DataFrame:
    """The answer as a DataFrame; nothing has run yet.

    Args:
        node: A plan over a Spark source.
        device: What Python workers compute on: as in `Stream.collect`, and ``"auto"`` takes a GPU only where the RAPIDS
            plugin gives its workers a share of one.
    """
    return compiled(node, device).frame(node)


def compiled(node: Node, device: str) -> Compiler:
    """The answer's DataFrame, and how it is made: `placed` describes it, `write_answer` runs it.

    Args:
        node: As in `collect`.
        device: As in `collect`.
    """
    _check([node], device)
    compiler = Compiler(node, device)
    compiler.frame(node)
    return compiler


def compiled_together(plans: Mapping[str, Node], device: str) -> Together:
    """Several answers, as `compiled` makes each, of which equal parts run once; nothing has run yet.

    Args:
        plans: The plans by name, over DataFrames of one session.
        device: As in `collect`.
    """
    _check(plans.values(), device)
    return together(plans, device)


def _check(nodes: Iterable[Node], device: str) -> None:
    check_name(device)  # the workers choose: the driver may have no GPU
    frames = [each.frame for node in nodes for each in node.all(SparkSource)]
    check_ends(frames)
    check_sessions(frames)


def output_schema(node: Node) -> pa.Schema:
    """The columns of an answer as Arrow: the lifetime, in UTC as in Spark, then the payload."""
    return pa.schema([("start", TIME_TYPE), ("end", TIME_TYPE), *node.schema])


def reader(node: Node, device: str) -> pa.RecordBatchReader:
    """The answer as Arrow record batches; the driver holds one partition at a time."""
    frame = collect(node, device)
    schema = output_schema(node)

    def batches() -> Iterator[pa.RecordBatch]:
        with our_errors():
            for row in frame.mapInArrow(Sent(_packed), "ipc binary").toLocalIterator():
                for batch in pa.ipc.open_stream(row["ipc"]):
                    yield pa.RecordBatch.from_arrays(
                        [array.cast(field.type) for array, field in zip(batch.columns, schema, strict=True)],
                        schema=schema,
                    )

    return pa.RecordBatchReader.from_batches(schema, batches())


def head(node: Node, device: str, rows: int) -> pa.Table:
    """At most so many rows of the answer: Spark computes partitions until it has them."""
    schema = output_schema(node)
    with our_errors():
        return collect(node, device).limit(rows).toArrow().cast(schema)


def _packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"ipc": pa.array([sink.getvalue().to_pybytes()], pa.binary())})


def write(
    node: Node, device: str, path: str | Path, if_exists: Literal["raise", "replace"], row_group_rows: int
) -> WriteReport:
    """Write the answer as a folder of Parquet files, whole or not at all: see `gpu_ops.engines.spark.answers`.

    Raises:
        SourceError: The ending is not ``.parquet``; or as `write_files`.
        PlanError: A row group without rows, or a policy that does not exist.
    """
    (report,) = _write_each({path: node}, device, if_exists, row_group_rows)
    return report


def write_answer(
    made: Compiler,
    path: str | Path,
    form: str,
    *,
    replace: bool,
    partition_by: Sequence[str] = (),
    **options: str,
) -> WriteReport:
    """Write what `compiled` gave as a folder of files of any format. The arguments are those of `write_files`."""
    frame, spills = made.frame(made.plan), made.spills
    return write_files(frame, path, form, replace=replace, spills=spills, partition_by=partition_by, **options)


class StreamLike(Protocol):
    """A stream, as this room knows it: it has a plan."""

    @property
    def _node(self) -> Node: ...


@own_errors
def write_all(
    answers: Mapping[str | Path, StreamLike],
    *,
    device: str = "auto",
    if_exists: Literal["raise", "replace"] = "raise",
    row_group_rows: int = 1 << 20,
) -> list[WriteReport]:
    """Write several streams over Spark DataFrames, each as `Stream.write` does: what they have in common runs once.

    Windows of several streams by the same key, over the events of one `gpu_ops.events`, read these events once and move
    them once.

    Args:
        answers: The streams, by the folder that each is written to.
        device: As in `Stream.collect`.
        if_exists: As in `Stream.write`, for each of them.
        row_group_rows: As in `Stream.write`.

    Returns:
        For each stream what was written, in their order. If one fails, those before it are written.

    Raises:
        SourceError: As `Stream.write`; or a stream has no Spark source.

    Examples:
        >>> import tempfile
        >>> import gpu_ops as g
        >>> frame = spark.createDataFrame([(0, "A"), (60, "B")], "pickup long, zone string")
        >>> keyed = g.events(frame, start="pickup", unit="s").by("zone")
        >>> busy, quiet = (each.agg(n=g.count()) for each in (keyed.tumbling("1h"), keyed.session("5min")))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     done = write_all({f"{folder}/busy.parquet": busy, f"{folder}/quiet.parquet": quiet})
        >>> [each.rows for each in done]
        [2, 2]
    """
    plans = {path: stream._node for path, stream in answers.items()}  # noqa: SLF001
    for path, plan in plans.items():
        if not plan.on_spark:
            raise SourceError(f"The answer for {path} does not come from Spark.", remedy="Write it by its own .write.")
    return _write_each(plans, device, if_exists, row_group_rows)


def _write_each(
    plans: Mapping[str | Path, Node], device: str, if_exists: Literal["raise", "replace"], row_group_rows: int
) -> list[WriteReport]:
    check_writing(if_exists, row_group_rows)
    for path in plans:
        if not str(path).rstrip("/").lower().endswith(".parquet"):
            raise SourceError(
                f"Spark writes Parquet, and {path} does not end in .parquet.",
                remedy="End the folder's name in .parquet.",
            )
    options = {"parquet.block.row.count.limit": str(row_group_rows)}
    found = compiled_together({str(path): plan for path, plan in plans.items()}, device)
    with found.kept():
        return [
            write_answer(found.made[str(path)], path, "parquet", replace=if_exists == "replace", **options)
            for path in plans
        ]


@own_errors
def invalid_rows(stream: StreamLike) -> DataFrame:
    """The rows of a stream's Spark source that are not events, with the first rule that each broke (``rule``).

    They are found from the source, whatever its ``on_invalid`` does with them. Nothing runs until the DataFrame does.

    Args:
        stream: A stream over a Spark DataFrame.

    Raises:
        PlanError: The stream has no Spark source, or several sources.
        ColumnError: The source has a column ``rule`` of its own.

    Examples:
        >>> import gpu_ops as g
        >>> rides = spark.createDataFrame([(0, 60, "A"), (60, 60, "B")], "pickup long, dropoff long, zone string")
        >>> stream = g.events(rides, start="pickup", end="dropoff", unit="s", on_invalid="divert")
        >>> invalid_rows(stream).collect()
        [Row(pickup=60, dropoff=60, zone='B', rule='zero_length')]
    """
    found = stream._node.all(SparkSource)  # noqa: SLF001
    if not found:
        raise PlanError("The stream has no Spark source.", remedy="Use .rejected() with on_invalid='divert'.")
    if len(found) > 1:
        raise PlanError("The stream has several sources.", remedy="Ask each of the streams that it is made of.")
    (node,) = found
    if node.refused is None:
        raise ColumnError("Refused rows get a column of this name.", column="rule", remedy="Rename it in the source.")
    frame: DataFrame = node.refused()
    return frame


@dataclass(frozen=True)
class Placement:
    """What `explain` says of a plan on Spark.

    Attributes:
        notes: For a node, which Spark operation runs it, and why the RAPIDS plugin does not plan that.
        summary: Lines about the whole plan.
    """

    notes: Callable[[Node], list[str]]
    summary: list[str]


def placement(node: Node, device: str) -> Placement:
    """Where each node of a plan over a Spark source runs. Nothing runs for it, but what the session has keys looked at.

    That is ``spark.gpu_ops.statistics`` and ``spark.gpu_ops.slices=hot``.
    """
    if any(each.endless for each in node.all(SparkSource)):
        from gpu_ops.engines.spark.streams.stream_plan import notes

        return Placement(*notes(node))
    return placed(compiled(node, device))


def placed(made: Compiler) -> Placement:
    """Where each node of what `compiled` gave runs."""
    frame, device = made.frame(made.plan), made.device
    session = frame.sparkSession
    summary = [
        f"engine Spark {session.version}: events move between tasks {made.shuffles} times",
        f"device {device}: chosen in each Python worker"
        + ("; a GPU where the RAPIDS plugin gives workers a share of one, else cpu" if device == "auto" else ""),
        "RAPIDS plugin: "
        + ("on" if has_plugin(session) else "not in this session, so Spark's own nodes run on the CPU"),
        *spark_summary(frame, made),
    ]
    return Placement(lambda each: made.notes.get(each, []), summary)
