"""Runs a query file on Spark.

    spark-submit --properties-file spark_conf/FILE spark_conf/job.py QUERY.py --input NAME=PATH … --output PATH

``QUERY.py`` defines ``query(**inputs)``; each input is a Spark DataFrame of the files at its path. It returns a stream,
or a dict of streams by name. The answer is written to ``--output`` (of a dict: to ``--output/NAME``), and read again to
say how many rows it has. What goes wrong is one message, and the exit code 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

try:
    from gpu_ops.api.stream import Stream
    from gpu_ops.apps.queries import parse_inputs, query_answers
    from gpu_ops.engines.explain import explain_placed
    from gpu_ops.engines.spark.checks import unwrapped
    from gpu_ops.engines.spark.compiling import Compiler
    from gpu_ops.engines.spark.engine import compiled_together, placed, write_answer
    from gpu_ops.errors import GpuOpsError, SourceError
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
PLANNER = "com.nvidia.spark.rapids.ExplainPlan"


def main(arguments: Sequence[str] | None = None) -> int:
    asked = parse(arguments)
    session = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    try:
        run(session, asked)
    except (GpuOpsError, PySparkException, OSError) as error:
        print(f"error: {message(error)}", file=sys.stderr)
        return 1
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="job.py", description="Run a gpu_ops query file on Spark.")
    parser.add_argument("query", metavar="QUERY.py", help="a Python file that defines query(**inputs)")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=PATH", help="once for each input")
    parser.add_argument("--input-format", choices=sorted(set(FORMATS.values())), help="where names do not say it")
    parser.add_argument("--output", required=True, metavar="PATH", help="the folder for the answer")
    parser.add_argument("--format", choices=sorted(set(FORMATS.values())), default="parquet", help="of the answer")
    parser.add_argument("--if-exists", choices=["raise", "replace"], default="raise", help="what is at --output")
    parser.add_argument("--device", choices=["auto", "cpu", "gpu"], default="auto", help="of the Python workers")
    parser.add_argument("--explain-gpu", action="store_true", help="print the RAPIDS planner's report on each answer")
    return parser.parse_args(arguments)


def run(session: SparkSession, asked: argparse.Namespace) -> None:
    """Run the query file and write its answers.

    Raises:
        GpuOpsError: The query file or its query is at fault, or a row of the data is.
        PySparkException: Spark cannot read or write what it was told to.
    """
    paths = parse_inputs(asked.input)
    inputs = {name: read(session, path, asked.input_format) for name, path in paths.items()}
    answers = query_answers(asked.query, inputs)
    several = {"": answers} if isinstance(answers, Stream) else answers
    paths = {name: f"{asked.output.rstrip('/')}/{name}" if name else asked.output for name in several}
    for name, stream in several.items():
        if not stream._plan.on_spark:
            raise SourceError(
                f"The answer for {paths[name]} does not come from Spark.", remedy="Query the inputs that query gets."
            )
    # Once: with spark.gpu_ops.statistics a job counts keys for it.
    together = compiled_together({name: stream._plan for name, stream in several.items()}, asked.device)
    with together.kept():
        for name, made in together.made.items():
            answer(session, made, paths[name], asked)


def answer(session: SparkSession, made: Compiler, path: str, asked: argparse.Namespace) -> None:
    print(explain_placed(made.plan, placed(made)))
    if asked.explain_gpu:
        print(planned(session, made.frame(made.plan)))
    options = {name: str(value) for name, value in WRITTEN.get(asked.format, {}).items()}
    replace = asked.if_exists == "replace"
    done = write_answer(made, path, asked.format, replace=replace, **options)
    if done.spilled:
        print(f"{done.spilled:,} bytes of events did not fit in the tasks' memory, and were sorted in files")
    print(f"{done.rows:,} rows: {done.path}", flush=True)


def read(session: SparkSession, path: str, form: str | None) -> DataFrame:
    found = form or FORMATS.get(PurePosixPath(path.rstrip("/")).suffix.lower())
    if found is None:
        raise SourceError(
            f"The name of {path} does not say what it is.",
            remedy=f"Say --input-format, or end it in {', '.join(FORMATS)}.",
        )
    return session.read.format(found).options(**OPTIONS.get(found, {})).load(path)


def planned(session: SparkSession, frame: DataFrame) -> str:
    """What the RAPIDS plugin's planner says of a DataFrame: ``*`` where it would run on a GPU, ``!`` where not."""
    jvm: Any = session.sparkContext._jvm
    planner = jvm.com.nvidia.spark.rapids.ExplainPlan
    if type(planner).__name__ == "JavaPackage":
        return f"GPU plan: unknown, as {PLANNER} is not on the class path (spark.driver.extraClassPath)"
    return f"GPU plan:\n{planner.explainPotentialGpuPlan(frame._jdf, 'ALL')}"


def message(error: Exception) -> str:
    ours = unwrapped(error)
    if ours is not None:
        return str(ours)
    return str(error).strip().splitlines()[0] if isinstance(error, PySparkException) else str(error)


if __name__ == "__main__":
    code = main()
    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()  # left to the JVM's end, a cluster starts executors anew while they are told to go
    sys.exit(code)
