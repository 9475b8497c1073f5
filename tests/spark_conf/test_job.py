"""The submitted job: query files over real files, one message for what goes wrong, and property files that load."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyarrow import csv, orc, parquet

from gpu_ops.engines.spark import slice_policy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
CONF = ROOT / "spark_conf"

BUSY = """
import gpu_ops as g
def query(rides):
    return g.events(rides, start="pickup", end="dropoff", unit="s").by("zone").snapshot().agg(n=g.count())
"""

TWO = """
import gpu_ops as g
def query(rides, more):
    stream = g.events(rides, start="pickup", end="dropoff", unit="s")
    return {"all": stream, "long": g.events(more, start="pickup", unit="s").filter(g.col("dropoff") > 100)}
"""

RIDES = pa.table({"pickup": [0, 60, 70], "dropoff": [120, 90, 95], "zone": ["A", "A", "B"]})

Job = Callable[..., int]


@pytest.fixture(scope="module")
def job() -> ModuleType:
    described = importlib.util.spec_from_file_location("gpu_ops_job", CONF / "job.py")
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    return module


@pytest.fixture
def run(spark: SparkSession, job: ModuleType, tmp_path: Path) -> Job:
    """The job in the suite's session; paths are relative to the test's folder, which holds the rides."""
    assert spark.version
    parquet.write_table(RIDES, tmp_path / "rides.parquet")

    def call(query: str, *arguments: str) -> int:
        (tmp_path / "query.py").write_text(query)
        named = [re.sub(r"@", f"{tmp_path}/", argument) for argument in arguments]
        code = job.main([str(tmp_path / "query.py"), *named])
        assert isinstance(code, int)
        return code

    return call


def test_an_answer_is_written_explained_and_counted(
    run: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(BUSY, "--input", "rides=@rides.parquet", "--output", "@busy", "--explain-gpu") == 0
    said = capsys.readouterr().out
    assert said.startswith("Window snapshot agg n=count()")
    assert "one repartition by zone, then one mapInArrow" in said
    assert "GPU plan:" in said
    assert said.endswith(f"4 rows: {tmp_path}/busy\n")
    answer = parquet.read_table(tmp_path / "busy").sort_by([("zone", "ascending"), ("start", "ascending")])
    assert answer["n"].to_pylist() == [1, 2, 1, 1]
    assert answer.schema.field("start").type == pa.timestamp("us", "UTC")


def test_what_exists_is_replaced_only_when_asked(run: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--input", "rides=@rides.parquet", "--output", "@busy")
    assert run(BUSY, *arguments) == 0
    assert run(BUSY, *arguments) == 1
    assert re.fullmatch(r"error: .*busy exists\. .*--if-exists replace.*\n", capsys.readouterr().err)
    assert run(BUSY, *arguments, "--if-exists", "replace") == 0
    failing, _ = BROKEN["Spark"]
    assert run(failing, *arguments, "--if-exists", "replace") == 1
    assert parquet.read_table(tmp_path / "busy").num_rows == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["busy", "query.py", "rides.parquet"]


def test_a_place_that_spark_does_not_have(run: Job, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(BUSY, "--input", "rides=@rides.parquet", "--output", "s3://bucket/busy.parquet") == 1
    assert "hadoop-aws" in capsys.readouterr().err


def test_the_job_says_what_it_sorted_in_files(
    run: Job, spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    spark.conf.set("spark.gpu_ops.worker.memory", "1")
    try:
        assert run(BUSY, "--input", "rides=@rides.parquet", "--output", "@größe #1") == 0
    finally:
        spark.conf.unset("spark.gpu_ops.worker.memory")
    said = capsys.readouterr().out
    assert re.search(r"[1-9]\d* bytes of events did not fit in the tasks' memory", said)
    assert said.endswith(f"4 rows: {tmp_path}/größe #1\n")


def test_statistics_are_asked_for_once(run: Job, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan that is shown is the one that runs."""
    asked: list[object] = []

    def few_or_hot(frame: object, *_: object) -> str:
        asked.append(frame)
        return "there are few keys"

    monkeypatch.setattr(slice_policy, "_few_or_hot", few_or_hot)
    spark.conf.set("spark.gpu_ops.statistics", "true")
    try:
        assert run(BUSY, "--input", "rides=@rides.parquet", "--output", "@busy") == 0
    finally:
        spark.conf.unset("spark.gpu_ops.statistics")
    assert len(asked) == 1


def test_several_inputs_of_several_formats_and_several_answers(run: Job, tmp_path: Path) -> None:
    csv.write_csv(RIDES, tmp_path / "rides.csv")
    orc.write_table(RIDES, tmp_path / "more.orc")
    inputs = ("--input", "rides=@rides.csv", "--input", "more=@more.orc")
    assert run(TWO, *inputs, "--output", "@answers/", "--format", "csv") == 0
    found = csv.read_csv(next((tmp_path / "answers" / "long").glob("*.csv")))
    assert found["dropoff"].to_pylist() == [120]
    assert (tmp_path / "answers" / "all" / "_SUCCESS").exists()


def test_an_answer_in_folders_by_a_column(run: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--input", "rides=@rides.parquet", "--output", "@busy", "--partition-by", "zone")
    assert run(BUSY, *arguments) == 0
    assert capsys.readouterr().out.endswith(f"4 rows: {tmp_path}/busy\n")
    assert sorted(each.name for each in (tmp_path / "busy").glob("zone=*")) == ["zone=A", "zone=B"]
    assert parquet.read_table(tmp_path / "busy").num_rows == 4


def test_names_that_do_not_say_what_they_are(run: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rides").write_text("\n".join(json.dumps(row) for row in RIDES.to_pylist()))
    arguments = ("--input", "rides=@rides", "--output", "@busy")
    assert run(BUSY, *arguments) == 1
    assert "Say --input-format" in capsys.readouterr().err
    assert run(BUSY, *arguments, "--input-format", "json") == 0


BROKEN = {
    "a row": (
        BUSY.replace('"dropoff"', '"same"').replace("(rides,", "(rides.selectExpr('*', 'pickup same'),"),
        r"The end is the start.*column 'same'",
    ),
    "a column": (BUSY.replace('by("zone")', 'by("zones")'), r"Did you mean 'zone'\?"),
    "the file": ("query = 1", "defines no function query"),
    "its result": ("def query(rides): return rides", "query returns a DataFrame, not a Stream"),
    "Spark": (
        BUSY.replace("(rides,", "(rides.selectExpr('*', 'int(raise_error(zone)) n'),").replace("count()", "sum('n')"),
        r"error: \[USER_RAISED_EXCEPTION\]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_goes_wrong_is_one_message(run: Job, capsys: pytest.CaptureFixture[str], name: str) -> None:
    query, expected = BROKEN[name]
    assert run(query, "--input", "rides=@rides.parquet", "--output", "@busy") == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert re.search(expected, said[0])


def test_a_path_that_is_not_there(run: Job, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(BUSY, "--input", "rides=@nowhere.parquet", "--output", "@busy") == 1
    assert re.fullmatch(r"error: \[PATH_NOT_FOUND\].*\n", capsys.readouterr().err)


@pytest.mark.services
def test_a_driver_without_gpu_ops() -> None:
    """As where spark-submit takes the system's Python, and not the one of an environment."""
    code = f"import runpy, sys; sys.modules['gpu_ops'] = None; runpy.run_path({str(CONF / 'job.py')!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (said,) = done.stderr.splitlines()
    assert said.startswith(f"error: gpu_ops does not load in the driver's Python {sys.executable}: ")
    assert "spark.pyspark.driver.python" in said


def submitted(
    tmp_path: Path, properties: str, *arguments: str, query: str, inputs: dict[str, pa.Table]
) -> subprocess.CompletedProcess[str]:
    """The job through the real spark-submit."""
    for name, rows in inputs.items():
        parquet.write_table(rows, tmp_path / f"{name}.parquet")
    (tmp_path / "query.py").write_text(query)
    package = importlib.util.find_spec("pyspark")
    assert package is not None
    assert package.origin is not None
    command = [
        str(Path(package.origin).parent / "bin" / "spark-submit"),
        *("--properties-file", str(CONF / properties), "--conf", "spark.driver.host=127.0.0.1"),
        *("--conf", f"spark.local.dir={tmp_path / 'local'}"),
        *arguments,
        *(str(CONF / "job.py"), str(tmp_path / "query.py")),
        *(part for name in inputs for part in ("--input", f"{name}={tmp_path / name}.parquet")),
        *("--output", str(tmp_path / "busy.parquet"), "--explain-gpu"),
    ]
    # What runs for seconds is compiled once.
    java = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    environment = os.environ | java | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    environment.pop("SPARK_HOME", None)
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)


def test_without_the_plugin_the_gpu_plan_is_unknown(spark: SparkSession, job: ModuleType) -> None:
    jvm = SimpleNamespace(com=SimpleNamespace(nvidia=spark.sparkContext._jvm.com.nowhere))  # type: ignore[union-attr]
    said = job.planned(SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm)), None)
    assert said.startswith("GPU plan: unknown, as com.nvidia.spark.rapids.ExplainPlan is not on the class path")


def test_with_the_plugin_the_plan_is_its_own(spark: SparkSession, job: ModuleType) -> None:
    """Its planner reads no plan that is on the GPU already."""

    def refuses(*given: object) -> str:
        raise JavaError("no plan of ours")

    planner = SimpleNamespace(explainPotentialGpuPlan=refuses)
    rapids = SimpleNamespace(rapids=SimpleNamespace(ExplainPlan=planner))
    jvm = SimpleNamespace(com=SimpleNamespace(nvidia=SimpleNamespace(spark=rapids)))
    said = job.planned(SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm)), spark.range(3))
    assert re.match(r"GPU plan:\n.*Range \(0, 3", said, re.DOTALL)


class JavaError(Py4JJavaError):  # type: ignore[misc]
    """As PySpark raises one that it knows no Python class for; it says what it is given."""

    def __init__(self, said: str) -> None:
        Exception.__init__(self, said)

    def __str__(self) -> str:
        return str(self.args[0])


def test_an_error_of_the_plugin_is_what_began_it(job: ModuleType) -> None:
    said = """An error occurred while calling o1257.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed, org.apache.spark.X: A
\tat org.apache.spark.sql.rapids.shims.GpuRaiseError.doColumnar(misc.scala:123)
Caused by: org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] A SQLSTATE: P0001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.raiseError(QueryExecutionErrors.scala:2948)
\t... 17 more
"""
    assert job.message(JavaError(said)) == "[USER_RAISED_EXCEPTION] A SQLSTATE: P0001"
    assert job.message(JavaError("It has ended.\n\tat a.B")) == "It has ended."


@pytest.mark.rapids
@pytest.mark.services
@pytest.mark.spark
def test_the_file_that_loads_the_plugin_prints_what_the_docs_say(tmp_path: Path) -> None:
    docs = (ROOT / "docs" / "spark.md").read_text()
    (query,) = re.findall(
        r"```python\n(import gpu_ops as g\n\n\ndef query\(contracts, outages\):.*?)```", docs, re.DOTALL
    )
    (shown,) = re.findall(r"```\n(\*Exec <.*?)```", docs, re.DOTALL)
    times = pa.timestamp("us", "UTC")
    contracts = {"begins": pa.array([0, 5], times), "expires": pa.array([90, 60], times), "line": [1, 2]}
    inputs = {
        "contracts": pa.table({**contracts, "worth": [10, 20]}),
        "outages": pa.table({"starts": pa.array([30], times), "ends": pa.array([40], times), "line": [1]}),
    }
    jar = os.environ["RAPIDS_JAR"]
    done = submitted(tmp_path, "explain-only.properties", "--driver-class-path", jar, query=query, inputs=inputs)
    assert done.returncode == 0, done.stderr
    assert "explain only mode" in done.stderr
    printed = re.findall(r"^( *[*!#@](?:Exec|Partitioning) <\w+>)", done.stdout, re.MULTILINE)
    assert printed == shown.splitlines()
    assert "*Exec <MapInArrowExec>" in printed
    assert not re.search(r"^\s*!", done.stdout, re.MULTILINE)
    # The command that writes is not part of a DataFrame's plan: the plugin's log has it.
    assert re.search(r"\*Exec <DataWritingCommandExec>", done.stderr)
    assert parquet.read_table(tmp_path / "busy.parquet").num_rows == 1


def settings(name: str) -> dict[str, str]:
    lines = [line for line in (CONF / name).read_text().splitlines() if line.strip() and not line.startswith("#")]
    return dict(line.split(None, 1) for line in lines)


@pytest.mark.parametrize(
    "name", [path.name for path in CONF.glob("*.properties") if not path.name.startswith("log4j2")]
)
def test_every_property_file_has_what_gpu_ops_asks_for(name: str) -> None:
    found = settings(name)
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert int(found["spark.sql.execution.arrow.maxRecordsPerBatch"]) > 0
    assert found["spark.sql.parquet.outputTimestampType"] == "TIMESTAMP_MICROS"


def test_the_gpus_memory_is_enough_for_both_sides() -> None:
    found = settings("rapids-cluster.properties")
    parts = [float(found[f"spark.rapids.{side}memory.gpu.maxAllocFraction"]) for side in ("", "python.")]
    assert sum(parts) < 1
    assert float(found["spark.task.resource.gpu.amount"]) * int(found["spark.executor.cores"]) == 1


def test_the_docs_and_the_file_for_a_cluster_say_the_same() -> None:
    found = settings("rapids-cluster.properties")
    said = re.findall(r"`(spark[\w.]+)=([\w./]+)`", (ROOT / "docs" / "spark.md").read_text())
    both = {name: value for name, value in said if name in found}
    assert both == {name: found[name] for name in both}
    named = {
        "spark.plugins",
        "spark.rapids.sql.python.gpu.enabled",
        "spark.python.use.daemon",
        "spark.python.daemon.module",
    }
    assert named <= both.keys()


def test_discovery_says_which_gpus_there_are(tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf '0\\n1\\n'\n")
    tool.chmod(0o755)
    script = str(CONF / "get_gpus_resources.sh")
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    said = subprocess.run([script], capture_output=True, text=True, check=True, env={"PATH": path}).stdout
    assert json.loads(said) == {"name": "gpu", "addresses": ["0", "1"]}
    tool.write_text("#!/bin/sh\nexit 0\n")
    done = subprocess.run([script], capture_output=True, text=True, check=False, env={"PATH": path})
    assert done.returncode == 1
    assert "names no GPU" in done.stderr
