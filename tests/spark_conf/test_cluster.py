"""A standalone cluster of two workers: answers at awkward places, kills, few file handles, Pythons that lack gpu_ops.

What `tests.support.on_cluster` asks is one application, as each takes seconds to start; what is done to drivers takes
some of their own.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import parquet

from tests.support.cluster import CONF, NO_CLUSTER, ROOT, Cluster, cluster, kill, until, without_gpu_ops
from tests.support.on_cluster import PROBES, busy, check, costly, rides

pytestmark = [pytest.mark.spark, pytest.mark.services]

APART = pytest.mark.xdist_group("drivers of a cluster")
"""Beside what the one application asks, on another worker of the suite, which has a cluster of its own."""

# Workers' Python: has gpu_ops unless a driver says who lacks it, and as many file handles as it says.
PYTHON = """#!/bin/sh
case "$LACKS:$PWD" in both:* | one:*/worker-1/*) ;; *) export PYTHONPATH="$PYTHONPATH:{root}" ;; esac
if [ -n "$HANDLES" ]; then ulimit -n "$HANDLES"; fi
exec "{python}" "$@"
"""

# Tasks wait for a file, if one is named.
QUERIES = """
import os, time
import gpu_ops as g
def query(rides):
    def slow(batches):
        while {awaited!r} and not os.path.exists({awaited!r}):
            time.sleep(0.05)
        return batches
    rides = rides.repartition(4).mapInArrow(slow, rides.schema)
    return g.events(rides, start="pickup", end="dropoff", unit="s").filter(g.col("fee") > 3)
"""

HANDLES = """
import resource
import gpu_ops as g
def query(rides):
    def few(batches):
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (256, 256)
        yield from batches
    events = g.events(rides.mapInArrow(few, rides.schema), start="pickup", end="dropoff", unit="s")
    return events.by("zone").snapshot().agg(n=g.count(), fee=g.sum("fee"))
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    python = folder / "python"
    python.write_text(PYTHON.format(root=ROOT, python=without_gpu_ops(folder)))
    python.chmod(0o755)
    with cluster(folder, "worker-0", "worker-1") as started:
        yield started


def start(
    running: Cluster, folder: Path, log: Path, *arguments: str, settings: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    own = (f"spark.pyspark.python={running.folder / 'python'}", f"spark.pyspark.driver.python={sys.executable}")
    return running.submit(folder, log, *arguments, settings=(*own, *settings), PYTHONPATH=str(ROOT))


def job(
    running: Cluster, folder: Path, name: str, query: str, output: str, settings: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    (folder / f"{name}.py").write_text(query)
    rides_path = folder / "rides.parquet"
    if not rides_path.exists():
        parquet.write_table(rides(), rides_path)
    arguments = (str(CONF / "job.py"), f"{name}.py", "--input", f"rides={rides_path}", "--output", output)
    # Each driver and each executor would compile plans, and answer a few rows by them.
    interpreted = ("spark.sql.codegen.wholeStage=false", "spark.sql.codegen.factoryMode=NO_CODEGEN")
    log = folder / f"{name} log"
    return start(running, folder, log, *arguments, "--if-exists", "replace", settings=(*interpreted, *settings))


def ended(driver: subprocess.Popen[str], log: Path, code: int = 0) -> str:
    """What a driver said, once it has ended."""
    try:
        said, _ = driver.communicate(timeout=500)
    finally:
        kill(driver)
    logged = log.read_text()
    if driver.returncode and (why := NO_CLUSTER.search(logged)):
        pytest.skip(f"a cluster does not start here: {why[0]}")
    assert driver.returncode == code, f"{said}\n{logged}"
    return said if code == 0 else f"{said}\n{logged}"  # spark-submit says on its output what its Python says of errors


@pytest.fixture(scope="module")
def probed(running: Cluster) -> dict[str, str | None]:
    """What went wrong with each probe."""
    folder = running.folder / "probes"
    (folder / "answers").mkdir(parents=True)
    settings = (
        *("spark.speculation=true", "spark.speculation.minTaskRuntime=3s", "spark.speculation.quantile=0.5"),
        "spark.speculation.interval=200ms",
        f"spark.hadoop.fs.viewfs.mounttable.cluster.link./answers={(folder / 'another_file_system').as_uri()}",
    )
    script = str(ROOT / "tests" / "support" / "on_cluster.py")
    said = ended(start(running, folder, folder / "log", script, str(folder), settings=settings), folder / "log")
    found = [json.loads(line) for line in said.splitlines() if line.startswith("[")]
    print(*(f"{name}: {seconds} s" for name, _, seconds in found), sep="\n")
    return {name: failed for name, failed, _ in found}


@pytest.mark.parametrize("name", PROBES)
def test_a_driver_finds_what_it_would_find_locally(probed: dict[str, str | None], name: str) -> None:
    assert probed[name] is None, probed[name]


def test_tasks_that_were_killed_leave_no_files(running: Cluster, probed: dict[str, str | None]) -> None:
    """Workers remove what was sorted in files, once the driver is gone; one that was killed itself does not."""
    assert probed["an_executor_that_dies_in_a_window"] is None
    alive = [running.folder / name for name, process in running.started.items() if process.poll() is None]
    until(lambda: not [file for each in alive for file in each.rglob("gpu_ops-*")] or None, "the workers")


@pytest.fixture
def whole(running: Cluster) -> Cluster:
    """The cluster with all its workers, whatever was done to them."""
    for name, process in list(running.started.items()):
        if process.poll() is not None:
            running.start_worker(name)
    return running


@APART
def test_a_job_with_few_file_handles(whole: Cluster, tmp_path: Path) -> None:
    """It sorts in some hundred files."""
    place = tmp_path / "größe #1 %20"
    settings = (
        *("spark.gpu_ops.worker.memory=1", "spark.executorEnv.HANDLES=256"),
        "spark.sql.execution.arrow.maxRecordsPerBatch=3",
    )
    said = ended(job(whole, tmp_path, "busy", HANDLES, str(place), settings), tmp_path / "busy log")
    assert "bytes of events did not fit in the tasks' memory, and were sorted in files" in said
    assert said.endswith(f"{check(place):,} rows: {place}\n")


MOMENTS = {"began": "*/mark", "writes": "*/.new-*/_temporary/0/_temporary/*/part-*", "swaps": "*/swap.json"}
"""What there is beside the place of an answer at the moments at which a driver is killed."""


@APART
def test_drivers_that_are_killed_and_drivers_that_meet(whole: Cluster, tmp_path: Path) -> None:
    """The JVM and the Python at once; each driver but the first finds what the one before has left."""
    place, aside = tmp_path / "answer.parquet", tmp_path / ".answer.parquet.writing"
    place.mkdir()
    parquet.write_table(busy(rides()).collect(), place / "part-0.parquet")
    sizes = {answered(place), costly(rides()).collect().num_rows}
    for moment, pattern in MOMENTS.items():
        awaited = "" if moment == "swaps" else "nothing"
        driver = job(whole, tmp_path, moment, QUERIES.format(awaited=awaited), str(place))
        log = tmp_path / f"{moment} log"
        wait_for(driver, aside, pattern)
        kill(driver)
        assert driver.returncode == -signal.SIGKILL, log.read_text()
        if place.exists():
            assert answered(place) in sizes
        else:
            assert {answered(each) for each in aside.glob("*/.???-*")} == sizes
    apart = ("spark.cores.max=1",)
    first = job(whole, tmp_path, "first", QUERIES.format(awaited=str(tmp_path / "began")), str(place), apart)
    wait_for(first, aside, MOMENTS["writes"])
    second = job(whole, tmp_path, "second", QUERIES.format(awaited=""), str(place), apart)
    wait_for(second, aside, MOMENTS["began"])
    (tmp_path / "began").touch()
    said = ended(second, tmp_path / "second log")
    assert said.endswith(f"{check(place, costly):,} rows: {place}\n")
    assert "has taken the place" in ended(first, tmp_path / "first log", 1)
    check(place, costly)


def wait_for(driver: subprocess.Popen[str], aside: Path, pattern: str) -> None:
    """Wait until a driver has made a file, as none of those who wrote to the place before."""
    before = made(aside, pattern)
    until(lambda: made(aside, pattern) - before or driver.poll() is not None or None, pattern, 200)


def made(aside: Path, pattern: str) -> set[Path]:
    # Folders may go while they are looked through.
    with contextlib.suppress(FileNotFoundError):
        return set(aside.glob(pattern))
    return set()


def answered(path: Path) -> int:
    return sum(parquet.ParquetFile(each).metadata.num_rows for each in path.glob("*.parquet"))
