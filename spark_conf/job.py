"""Runs a query file on Spark.

    spark-submit --properties-file spark_conf/FILE spark_conf/job.py QUERY.py --input NAME=PLACE … --output PLACE

``QUERY.py`` defines ``query(**inputs)``; each input is a Spark DataFrame of the files at a path, or of a table
(``table:lake.bids``). It returns a stream, or a dict of streams by name. The answer is written to ``--output`` (of a
dict: to ``--output/NAME``, or ``--output.NAME`` for tables), and read again to say how many rows it has.

If inputs are topics (``'kafka://BROKERS/TOPIC?value=json&columns=at:timestamp,…'``) the query runs live, with
``--checkpoint``: over what the topics have now, or with ``--every`` until it is stopped. The next call goes on there.

What goes wrong is one message, and the exit code 1.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

try:
    from gpu_ops.api.events import ReadBySpark
    from gpu_ops.api.stream import Stream
    from gpu_ops.apps.queries import parse_inputs, query_answers
    from gpu_ops.engines.explain import explain_placed
    from gpu_ops.engines.spark.checks import our_errors, unwrapped
    from gpu_ops.engines.spark.compiling import Compiler
    from gpu_ops.engines.spark.engine import compiled_together, placed, write_answer
    from gpu_ops.engines.spark.streams.log import EpochLog
    from gpu_ops.engines.spark.streams.tables import SparkTable
    from gpu_ops.engines.spark.types import column
    from gpu_ops.errors import GpuOpsError, PlanError, SourceError
    from gpu_ops.topics.addresses import SCHEME, topic_at
except Exception as error:  # noqa: BLE001  (gpu_ops may be missing, or refuse this PySpark by an error of its own)
    missing = isinstance(error, ImportError)
    said = f"gpu_ops does not load in the driver's Python {sys.executable}: {error}." if missing else str(error)
    todo = " Say spark.pyspark.driver.python, or send gpu_ops with --py-files (docs/spark.md)." if missing else ""
    sys.exit(f"error: {said}{todo}")

FORMATS = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".orc": "orc",
    ".parquet": "parquet",
    ".pq": "parquet",
}
OPTIONS: dict[str, dict[str, Any]] = {"csv": {"header": True, "inferSchema": True}}
WRITTEN: dict[str, dict[str, Any]] = {"csv": {"header": True}}
TABLE = "table:"
TABLES = ["delta", "iceberg"]
PLANNER = "com.nvidia.spark.rapids.ExplainPlan"


def main(arguments: Sequence[str] | None = None) -> int:
    asked = parse(arguments)
    session = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    try:
        run(session, asked)
    except (GpuOpsError, PySparkException, Py4JJavaError, OSError) as error:
        print(f"error: {message(error)}", file=sys.stderr)
        return 1
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="job.py", description="Run a gpu_ops query file on Spark.")
    parser.add_argument("query", metavar="QUERY.py", help="a Python file that defines query(**inputs)")
    place = "a path, table:NAME, or kafka://BROKERS/TOPIC?…"
    parser.add_argument("--input", action="append", default=[], metavar="NAME=PLACE", help=f"{place}; once for each")
    parser.add_argument("--input-format", choices=sorted(set(FORMATS.values())), help="where names do not say it")
    parser.add_argument("--output", required=True, metavar="PLACE", help=f"for the answer: {place}")
    formats = [*sorted(set(FORMATS.values())), *TABLES]
    parser.add_argument("--format", choices=formats, default="parquet", help="of the answer")
    parser.add_argument("--partition-by", action="append", default=[], metavar="COLUMN", help="once for each column")
    parser.add_argument("--if-exists", choices=["raise", "replace"], default="raise", help="what is at --output")
    parser.add_argument("--device", choices=["auto", "cpu", "gpu"], default="auto", help="of the Python workers")
    parser.add_argument("--explain-gpu", action="store_true", help="print the RAPIDS planner's report on each answer")
    live = parser.add_argument_group("with topics as inputs")
    live.add_argument("--checkpoint", metavar="PATH", help="the folder that the query saves to, and goes on from")
    live.add_argument(
        "--every", metavar="TIME", help="begin an epoch that often until stopped; else read what is there"
    )
    live.add_argument("--epoch-rows", type=int, metavar="N", help="read at most so many messages in an epoch")
    live.add_argument("--end", action="store_true", help="then end the query: all results are final, and it is over")
    return parser.parse_args(arguments)


def run(session: SparkSession, asked: argparse.Namespace) -> None:
    """Run the query file and write its answers.

    Raises:
        GpuOpsError: The query file or its query is at fault, or a row of the data is.
        PySparkException: Spark cannot read or write what it was told to.
    """
    places = parse_inputs(asked.input)
    topics = [each for each in places.values() if each.startswith(SCHEME)]
    check(asked, live=bool(topics))
    inputs = {name: read(session, place, asked) for name, place in places.items()}
    answers = query_answers(asked.query, inputs)
    several = {"": answers} if isinstance(answers, Stream) else answers
    for name, stream in several.items():
        if not stream._plan.on_spark:
            raise SourceError(
                f"The answer for {beside(asked.output, name)} does not come from Spark.",
                remedy="Query the inputs that query gets.",
            )
    if topics:
        run_live(several, asked)
        return
    # Once: with spark.gpu_ops.statistics a job counts keys for it.
    together = compiled_together({name: stream._plan for name, stream in several.items()}, asked.device)
    with together.kept():
        for name, made in together.made.items():
            answer(session, made, beside(asked.output, name), asked)


def check(asked: argparse.Namespace, *, live: bool) -> None:
    """Refuse options that do not go together, before anything is read."""
    if asked.output.startswith(TABLE) != (asked.format in TABLES):
        raise PlanError(
            f"--output {asked.output} does not go with --format {asked.format}.",
            remedy=f"A table is --output table:NAME --format {' or '.join(TABLES)}; other formats go into folders.",
        )
    own = {"--checkpoint": asked.checkpoint, "--every": asked.every, "--epoch-rows": asked.epoch_rows}
    said = [name for name, value in {**own, "--end": asked.end or None}.items() if value is not None]
    if said and not live:
        raise PlanError(f"{said[0]} is for queries that run live.", remedy="Leave it out, or read a topic: kafka://….")
    if asked.output.startswith(SCHEME) and not live:
        raise PlanError(
            "Into a topic go the results of a query that runs live.", remedy="Read a topic, or write into a folder."
        )
    if live and asked.checkpoint is None:
        raise PlanError("Topics are read by a query that runs live.", remedy="Say --checkpoint PATH, a folder for it.")
    if live and not asked.output.startswith(TABLE):
        other = {
            "--format": asked.format != "parquet",
            "--partition-by": asked.partition_by,
            "--if-exists": asked.if_exists != "raise",
        }
        for name in (each for each, said in other.items() if said):
            raise PlanError(
                f"{name} is not for results of a query that runs live.",
                remedy="They go into a folder of Parquet files, a topic, or a table.",
            )


def beside(place: str, name: str) -> str:
    """Where one of several answers goes; the place itself for one without a name."""
    if not name:
        return place
    return f"{place}.{name}" if place.startswith(TABLE) else f"{place.rstrip('/')}/{name}"


def run_live(several: Mapping[str, Stream], asked: argparse.Namespace) -> None:
    """Run streams over topics, each with its part of the checkpoint, and wait for them."""
    if "" not in several and asked.output.startswith(SCHEME):
        raise PlanError(
            "query returns several streams, and --output is one topic.",
            remedy="Return one stream; or give a folder or a table, beside which each has its own.",
        )
    trigger = {"availableNow": True} if asked.every is None else {"processingTime": asked.every}
    running = []
    try:
        for name, stream in several.items():
            print(stream.explain(), flush=True)
            where: dict[str, Any] = {"into": sink(asked, name), "checkpoint": beside(asked.checkpoint, name)}
            where["device"] = asked.device
            started = stream.start_on_spark(**where, trigger=trigger, name=name or None)
            running.append((name, stream, where, started))
        with our_errors():
            for _, _, _, started in running:
                started.awaitTermination()
    finally:
        for _, _, _, started in running:
            with suppress(PySparkException):
                started.stop()
    for name, stream, where, _ in running:
        if asked.end:
            stream.end_on_spark(**where)
        last = EpochLog(Path(where["checkpoint"])).last()
        said = "nothing to read" if last is None else f"epoch {last} is committed"
        print(f"{said}: {beside(asked.output, name)}", flush=True)


def sink(asked: argparse.Namespace, name: str) -> Any:
    """Where the results of a stream go that runs live."""
    place = beside(asked.output, name)
    if place.startswith(TABLE):
        return SparkTable(place.removeprefix(TABLE), asked.format, asked.partition_by)
    return topic_at(place) if place.startswith(SCHEME) else place


def answer(session: SparkSession, made: Compiler, place: str, asked: argparse.Namespace) -> None:
    print(explain_placed(made.plan, placed(made)))
    if asked.explain_gpu:
        print(planned(session, made.frame(made.plan)))
    replace = asked.if_exists == "replace"
    if place.startswith(TABLE):
        rows = write_table(made.frame(made.plan), place.removeprefix(TABLE), asked, replace=replace)
        print(f"{rows:,} rows: {place}", flush=True)
        return
    options = {name: str(value) for name, value in WRITTEN.get(asked.format, {}).items()}
    done = write_answer(made, place, asked.format, replace=replace, partition_by=asked.partition_by, **options)
    if done.spilled:
        print(f"{done.spilled:,} bytes of events did not fit in the tasks' memory, and were sorted in files")
    print(f"{done.rows:,} rows: {done.path}", flush=True)


def write_table(frame: DataFrame, name: str, asked: argparse.Namespace, *, replace: bool) -> int:
    """Make a table by the format's own writer, in one commit; how many rows it has."""
    writer = frame.writeTo(name).using(asked.format)
    if asked.partition_by:
        writer = writer.partitionedBy(*map(column, asked.partition_by))
    with our_errors():
        if replace:
            writer.createOrReplace()
        else:
            writer.create()
        return frame.sparkSession.table(name).count()


def read(session: SparkSession, place: str, asked: argparse.Namespace) -> DataFrame | ReadBySpark:
    """A table or files as a DataFrame; a topic as what a query file makes events of."""
    if place.startswith(TABLE):
        return session.table(place.removeprefix(TABLE))
    if place.startswith(SCHEME):
        reader = session.readStream
        rows = asked.epoch_rows
        return ReadBySpark(topic_at(place), reader if rows is None else reader.option("maxOffsetsPerTrigger", rows))
    found = asked.input_format or FORMATS.get(PurePosixPath(place.rstrip("/")).suffix.lower())
    if found is None:
        raise SourceError(
            f"The name of {place} does not say what it is.",
            remedy=f"Say --input-format, or end it in {', '.join(FORMATS)}.",
        )
    return session.read.format(found).options(**OPTIONS.get(found, {})).load(place)


def planned(session: SparkSession, frame: DataFrame) -> str:
    """What the RAPIDS plugin's planner says of a DataFrame: ``*`` where it would run on a GPU, ``!`` where not."""
    jvm: Any = session.sparkContext._jvm
    planner = jvm.com.nvidia.spark.rapids.ExplainPlan
    if type(planner).__name__ == "JavaPackage":
        return f"GPU plan: unknown, as {PLANNER} is not on the class path (spark.driver.extraClassPath)"
    try:
        found = planner.explainPotentialGpuPlan(frame._jdf, "ALL")
    except Py4JJavaError:  # the plugin is on: it has planned this already, and reads no plan of its own
        found = frame._jdf.queryExecution().executedPlan().toString()
    return f"GPU plan:\n{found}"


def message(error: Exception) -> str:
    ours = unwrapped(error)
    if ours is not None:
        return str(ours)
    if isinstance(error, Py4JJavaError):  # as of the RAPIDS plugin's nodes, which raise what PySpark does not know
        causes: list[str] = re.findall(r"^\s*(?:Caused by: |: )?(?:[a-z]\w*\.)+[\w$]+: (.+)", str(error), re.MULTILINE)
        return causes[-1] if causes else str(error).strip().splitlines()[0]
    return str(error).strip().splitlines()[0] if isinstance(error, PySparkException) else str(error)


if __name__ == "__main__":
    code = main()
    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()  # left to the JVM's end, a cluster starts executors anew while they are told to go
    sys.exit(code)
