"""What the tests and the package's doctests share: the one Spark session, and which tests can run here."""

from __future__ import annotations

import gc
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

# A worker of the suite has one core: to hand a few rows to other threads and back costs a fifth of what Polars does.
# Spark's Python workers and the deep tests keep its threads, so that an answer which depends on them is found there.
if os.environ.get("HYPOTHESIS_PROFILE") != "deep":
    os.environ.setdefault("POLARS_MAX_THREADS", "1")

# Before pytest imports its modules one by one: the package declares its kinds of aggregates when it is imported whole.
import gpu_ops  # noqa: F401

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent

# It imports cuDF when it is loaded, and pytest loads every module of the package to look for doctests.
collect_ignore = [] if importlib.util.find_spec("cudf") else ["gpu_ops/devices/cuda/columns.py"]

_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings with which Spark interprets its plans: there are few rows and many plans, and to compile costs more."""

RAPIDS_REQUIRED = os.environ.get("GPU_OPS_REQUIRE_RAPIDS") == "1"
SERVICES_REQUIRED = os.environ.get("GPU_OPS_REQUIRE_SERVICES") == "1"
ON_GPU = os.environ.get("GPU_OPS_SPARK_GPU") == "1"

_PLUGIN = {
    "spark.plugins": "com.nvidia.spark.SQLPlugin",
    # Several sessions share one GPU, each with its own pool.
    "spark.rapids.memory.gpu.pool": "NONE",
    "spark.rapids.memory.gpu.minAllocFraction": "0",
    "spark.rapids.memory.pinnedPool.size": "0",
    "spark.rapids.sql.concurrentGpuTasks": "2",
    "spark.rapids.sql.explain": "NONE",
    "spark.rapids.sql.python.gpu.enabled": "false",
}
"""Settings with which Spark computes on a GPU. Python workers compute on the CPU: their device has tests of its own."""


def _why_no_rapids() -> str | None:
    jar = os.environ.get("RAPIDS_JAR")
    if not jar:
        return "RAPIDS_JAR is not set (`make jar` fetches the plugin's jar and prints its path)"
    return None if Path(jar).is_file() else f"RAPIDS_JAR names no file: {jar}"


def _uses_spark(item: pytest.Item) -> bool:
    if isinstance(item, pytest.DoctestItem):
        return any(re.search(r"\bspark\.", example.source) for example in item.dtest.examples)
    return "spark" in getattr(item, "fixturenames", ())


def pytest_configure(config: pytest.Config) -> None:
    """Compile the kernels before there are workers, in two processes: each worker would compile them for itself."""
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        subprocess.run([sys.executable, "-m", "tests.support.kernels"], cwd=ROOT, check=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None]:
    """What is made while tests are collected stays: to look for garbage in it took a fifth of that time.

    Nor is it looked through again, whenever a test asks for a collection. Tests make many small objects that stay for
    a while: to look through them less often saves a tenth of their time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(100_000, 50, 50)
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs Spark and put it on few workers; leave out what was not asked for.

    A worker's tests share a session. What asks the planner has another one than what runs queries, and what starts a
    Spark of its own has none, so these run side by side: by file, unless a test names its group. What asks the planner
    is one of the services: it needs a jar.
    """
    no_rapids = None if RAPIDS_REQUIRED else _why_no_rapids()
    deep = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
    for item in items:
        if item.get_closest_marker("rapids"):
            item.add_marker("services")
    if not any(name in config.option.markexpr for name in ("services", "rapids")):
        config.hook.pytest_deselected(items=[each for each in items if each.get_closest_marker("services")])
        items[:] = [each for each in items if not each.get_closest_marker("services")]
    for item in items:
        if _uses_spark(item):
            item.add_marker("spark")
            plans = item.get_closest_marker("rapids") is not None
            item.add_marker(pytest.mark.xdist_group("spark plans" if plans else "spark"))
        elif item.get_closest_marker("spark") and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(f"own spark {item.path.name}"))
        if no_rapids and item.get_closest_marker("rapids"):
            item.add_marker(pytest.mark.skip(reason=no_rapids))
        if not deep and item.get_closest_marker("deep"):
            item.add_marker(pytest.mark.skip(reason="long: HYPOTHESIS_PROFILE=deep (`make test-deep`) runs it"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that skips itself has failed where what it needs is required; data beside the repository is no service."""
    report = yield
    data = {"shared_data", "conformance"}.intersection(getattr(item, "fixturenames", ()))
    may_skip = bool(data) or item.get_closest_marker("deep") is not None
    for mark, required in (("rapids", RAPIDS_REQUIRED), ("services", SERVICES_REQUIRED)):
        if required and report.skipped and item.get_closest_marker(mark) and not may_skip:
            report.outcome = "failed"
            report.longrepr = f"GPU_OPS_REQUIRE_{mark.upper()}=1, but this was skipped: {report.longrepr}"
    return report


def _ask_once(jvm: Any) -> None:
    """Tell PySpark the JVM's classes once: it asks again for each column, and the JVM looks through 300 jars."""
    for name in ("functions", "PythonUtils", "PythonSQLUtils"):
        setattr(jvm, name, getattr(jvm, name))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The suite's one Spark session, on this machine, with the RAPIDS planner on its class path if RAPIDS_JAR names it.

    Adaptive execution, broadcasts and the plugin's CPU bridge are off, so that the planner is shown the plan that was
    written and its answer is about nothing else. Plans are interpreted, but for the planner's tests
    and those that take `compiled_plans`.
    """
    from pyspark.sql import SparkSession

    scratch = tmp_path_factory.mktemp("spark")
    settings = {
        # Compiling a second time what runs for seconds took a quarter of the suite's time in the JVM.
        # What a test makes is garbage after it: the more room, the seldomer it is collected. The whole heap is there
        # from the start: one that grows is looked through whole each time that it does, as its classes are.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms1536m -Xmn600m"
        " -XX:MetaspaceSize=400m",
        "spark.driver.memory": "1536m",
        "spark.driver.host": "127.0.0.1",
        "spark.eventLog.enabled": "false",
        "spark.local.dir": str(scratch / "local"),
        # Or each call that makes a column asks the JVM again and again, so that errors may say which line made it: a
        # third of what it takes to build a query.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # A worker imports the package in two seconds, and there may be twenty.
        "spark.python.daemon.module": "tests.support.spark_daemon",
        "spark.rapids.sql.expression.cpuBridge.enabled": "false",
        **_INTERPRETED,
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.dataFrameQueryContext.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    from gpu_ops.apps.broker import CONNECTOR

    classes = [f"{each}/*" for each in CONNECTOR]
    if _why_no_rapids() is None:
        classes.insert(0, os.environ["RAPIDS_JAR"])
    elif RAPIDS_REQUIRED or ON_GPU:
        pytest.fail(f"GPU_OPS_{'SPARK_GPU' if ON_GPU else 'REQUIRE_RAPIDS'}=1, but {_why_no_rapids()}")

    if ON_GPU:
        settings |= _PLUGIN

    if classes:
        settings["spark.driver.extraClassPath"] = ":".join(classes)

    with pytest.MonkeyPatch.context() as environment:
        # Python workers run this interpreter, and find the functions that tests give them.
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        environment.delenv("POLARS_MAX_THREADS", raising=False)
        builder = SparkSession.builder.master("local[2]").appName("gpu_ops tests")
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        _ask_once(session.sparkContext._jvm)  # noqa: SLF001  (the JVM is reached in no other way)
        yield session
        session.stop()


@pytest.fixture(autouse=True)
def _no_defects(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that sees a `DefectError` fails, unless it is about one: ``pytest.raises(GpuOpsError)`` would take it."""
    from gpu_ops.core.own_errors import defects

    before = defects.copy()
    yield
    if request.node.get_closest_marker("defects") is None:
        unexpected = ", ".join(defects - before)
        if unexpected:
            pytest.fail(f"another library's error was not expected by {unexpected}")


@pytest.fixture(autouse=True)
def _spark_for_doctests(request: pytest.FixtureRequest, doctest_namespace: dict[str, object]) -> None:
    """A doctest that says ``spark.`` finds the session under that name, as PySpark's own do."""
    if isinstance(request.node, pytest.DoctestItem) and request.node.get_closest_marker("spark"):
        doctest_namespace["spark"] = request.getfixturevalue("spark")


@pytest.fixture(scope="module")
def few_tasks(spark: SparkSession) -> Iterator[None]:
    """A shuffle has two tasks, not four: where there are many jobs, tasks are what they cost."""
    name = "spark.sql.shuffle.partitions"
    before = str(spark.conf.get(name))
    spark.conf.set(name, "2")
    yield
    spark.conf.set(name, str(before))


@pytest.fixture
def compiled_plans(spark: SparkSession) -> Iterator[None]:
    """Spark compiles its plans, as a user's session does."""
    for name, value in zip(_INTERPRETED, ("true", "FALLBACK"), strict=True):
        spark.conf.set(name, value)
    yield
    for name, value in _INTERPRETED.items():
        spark.conf.set(name, value)


@pytest.fixture(autouse=True)
def _compiled_for_the_planner(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("rapids") and "spark" in request.fixturenames:
        request.getfixturevalue("compiled_plans")
