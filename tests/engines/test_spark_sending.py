"""Workers that cannot run gpu_ops, and errors that come from those that can: what a user reads on the driver."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

import gpu_ops as g
from gpu_ops.core.time import ticks
from gpu_ops.engines import spark as engine
from gpu_ops.engines.spark.checks import unwrapped
from gpu_ops.engines.spark.sending import Sent, check_workers
from gpu_ops.errors import FunctionError, PlanError, SumOverflowError, WorkerError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parents[2]

# What a worker does with what it is sent, and what it says of an error.
WORKERS = """
import pickle, sys, traceback, types
def opened(packed):
    try:
        return pickle.loads(packed)(-3)
    except Exception as error:
        return traceback.format_exception_only(error)[-1].strip()
packed, version = bytes.fromhex(sys.argv[1]), sys.argv[2]
sys.modules["gpu_ops"] = None
print(opened(packed))
sys.modules["gpu_ops"] = types.ModuleType("gpu_ops")
sys.modules["gpu_ops"].__version__ = "0.0.9"
print(opened(packed))
sys.modules["gpu_ops"].__version__ = version
print(opened(packed))
print(opened(bytes.fromhex(sys.argv[3])))
"""


@pytest.mark.services
def test_a_worker_says_what_is_wrong_with_its_gpu_ops() -> None:
    """None, another version, and one that calls itself the same and is another; last, what a good one does."""
    dumps: Callable[[object], bytes] = cloudpickle.dumps
    packed, abs_packed = dumps(Sent(ticks)), dumps(Sent(abs))
    command = [sys.executable, "-c", WORKERS, packed.hex(), g.__version__, abs_packed.hex()]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.splitlines()
    where = f"the Python {sys.executable} of a Spark worker"
    begins = [
        f"gpu_ops.errors.WorkerError: gpu_ops does not load in {where}: import of gpu_ops halted",
        f"gpu_ops.errors.WorkerError: The driver has gpu_ops {g.__version__}, and {where} has 0.0.9.",
        f"gpu_ops.errors.WorkerError: What the driver sent does not fit the gpu_ops of {where}: ModuleNotFoundError: ",
    ]
    assert [line[: len(begin)] for line, begin in zip(said, begins, strict=False)] == begins
    for line in said[:3]:
        for name in ("spark.pyspark.python", f"PYSPARK_PYTHON (the driver's own is {sys.executable})", "--archives"):
            assert name in line
    assert said[3:] == ["3"]


def program(path: Path, *lines: str) -> str:
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)
    return str(path)


def test_on_this_machine_a_python_that_cannot_be_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where an environment is not activated, and python3 is the system's."""
    old = program(tmp_path / "python3", "echo 3.9")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def check(master: str, python: str) -> None:
        check_workers(SimpleNamespace(master=master, pythonExec=python))  # type: ignore[arg-type]

    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for name in (old, "python3"):
        with pytest.raises(WorkerError, match=rf"which is Python 3\.9, and the driver is Python {here}\. Say which"):
            check("local[2]", name)
    with pytest.raises(WorkerError, match=r"are to run \./environment/bin/python, and there is no such program"):
        check("local", "./environment/bin/python")
    check("local[*]", sys.executable)
    check("local[*]", program(tmp_path / "same", f"echo {here}"))
    check("local[*]", program(tmp_path / "mute", "exit 1"))
    check("local-cluster[1,1,1024]", "./environment/bin/python")
    check("spark://host:7077", old)


SAID = {
    "base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10 than that in "
    "driver: 3.12, PySpark cannot run with different minor versions.": "is Python 3.10, and the driver is Python 3.12.",
    'Lost task 0.0 (TID 0): java.io.IOException: Cannot run program "./e/bin/python": error=2, No such file or '
    "directory\n\tat java.base/java.lang": "are to run ./e/bin/python, and there is no such program",
    "    import pyarrow as pa\nModuleNotFoundError: No module named 'pyarrow'\n": "workers: No module named 'pyarrow'.",
}


@pytest.mark.parametrize("text", SAID)
def test_what_spark_says_of_workers_that_could_not_begin(text: str) -> None:
    error = unwrapped(RuntimeError(text))
    assert isinstance(error, WorkerError)
    assert SAID[text] in error.problem
    assert "spark.pyspark.python" in str(error.remedy)


def test_modules_that_a_users_function_lacks_are_not_ours() -> None:
    assert unwrapped(RuntimeError("ModuleNotFoundError: No module named 'my_functions'")) is None


@pytest.fixture
def rides(spark: SparkSession) -> DataFrame:
    most = (1 << 63) - 1
    return spark.createDataFrame(pa.table({"a": [0, 0], "b": [60, 90], "z": ["A", "A"], "v": [most, most]}))


def stopped(action: Callable[[], Any]) -> list[str]:
    """The lines that a user reads who runs an action of a DataFrame."""
    from pyspark.errors import PythonException

    with pytest.raises(PythonException) as caught:
        action()
    return str(caught.value).strip().splitlines()


def test_an_action_says_our_error_and_no_calls(rides: DataFrame) -> None:
    total = g.events(rides, start="a", end="b", unit="s").by("z").snapshot().agg(n=g.sum("v"))
    _, *said = stopped(total.collect().count)
    assert [line.partition(".")[0] for line in said] == ["gpu_ops"]
    error = unwrapped(RuntimeError(said[0]))
    assert isinstance(error, SumOverflowError)
    assert error.column == "n"


def test_an_error_of_a_users_function_comes_with_its_calls(rides: DataFrame) -> None:
    def broken(rows: pa.Table) -> int:
        raise ValueError(f"{rows.num_rows} are too many")

    asked = g.window_function(broken, returns=pa.int64(), of="v")
    frame = g.events(rides, start="a", end="b", unit="s").by("z").snapshot().agg(n=asked).collect()
    _, *said = stopped(frame.count)
    assert said[0].startswith("gpu_ops.errors.FunctionError: ")
    assert "ValueError: " in said[-1]
    assert any(line.strip().endswith("in broken") for line in said)
    assert isinstance(unwrapped(RuntimeError("\n".join(said))), FunctionError)


@pytest.fixture
def without_gpu_ops(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """Workers whose Python has all but gpu_ops."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['gpu_ops'] = None\n")
    python = program(tmp_path / "python", f'PYTHONPATH="{tmp_path}:$PYTHONPATH" exec "{sys.executable}" "$@"')
    context: Any = spark.sparkContext
    before, context.pythonExec = context.pythonExec, python
    yield python
    context.pythonExec = before


def test_a_worker_without_gpu_ops(rides: DataFrame, without_gpu_ops: str, tmp_path: Path) -> None:
    assert without_gpu_ops
    busy = g.events(rides, start="a", end="b", unit="s").by("z").snapshot().agg(n=g.count())
    _, *said = stopped(busy.collect().count)
    assert len(said) == 1
    assert said[0].startswith("gpu_ops.errors.WorkerError: gpu_ops does not load in the Python ")
    with pytest.raises(WorkerError, match=r"does not load in .*spark\.pyspark\.python"):
        busy.write(tmp_path / "busy.parquet")


OLDER = """
import sys, pyspark
import pyspark.sql.pandas.functions as functions
def asked():
    import gpu_ops as g
    try:
        g.events(type("DataFrame", (), {"__module__": "pyspark.sql.dataframe"})(), start="at")
    except g.GpuOpsError as error:
        print(f"{type(error).__name__}: {error}")
pyspark.__version__ = "4.0.1"
del functions.arrow_udf
asked()
pyspark.__version__ = "3.5.6"
sys.modules["pyspark.sql.datasource"] = None
asked()
for name in [name for name in sys.modules if name.startswith("gpu_ops.engines.spark")]:
    del sys.modules[name]
sys.modules["pyspark"] = None
asked()
"""


@pytest.mark.services
def test_older_pyspark_is_refused_by_name() -> None:
    done = subprocess.run([sys.executable, "-c", OLDER], capture_output=True, text=True, check=False, cwd=ROOT)
    said = done.stdout.splitlines()
    assert len(said) == 3, done.stderr
    for line, found in zip(said, ("4.0.1", "3.5.6", "not there"), strict=True):
        assert line.startswith(
            f"SourceError: gpu_ops runs on PySpark {engine.VERSIONS}, and this one is {found}. Install"
        )


def test_the_versions_are_those_that_are_installed() -> None:
    (wanted,) = (
        each
        for each in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["spark"]
        if each.startswith("pyspark")
    )
    low, high = engine.VERSIONS.split(" to ")
    series, _, last = high.rpartition(".")
    assert wanted == f"pyspark>={low},<{series}.{int(last) + 1}"
    assert f"Spark {engine.VERSIONS}" in (ROOT / "docs" / "spark.md").read_text()


OTHERS = {
    "pyspark.pandas.frame.DataFrame": r"\.to_spark\(\)",
    "pyspark.pandas.series.Series": r"\.to_frame\(\)\.to_spark\(\)",
    "pyspark.core.rdd.RDD": r"\.toDF\(\)",
    "pyspark.sql.readwriter.DataFrameReader": r"\.load\(path\)",
    "pyspark.sql.group.GroupedData": "Give a pyspark.sql.DataFrame",
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_dataframe_is_refused_with_the_way_to_one(name: str) -> None:
    """A stand-in, as pandas-on-Spark does not load beside each pandas."""
    module, _, kind = name.rpartition(".")
    with pytest.raises(PlanError, match=f"{name} is no DataFrame of Spark SQL.*{OTHERS[name]}"):
        g.events(type(kind, (), {"__module__": module})(), start="at")
