"""What a driver asks of a cluster: submitted as a script, which says of each of its probes whether it went well.

What its functions do in workers is sent with them. A probe gets a session, and a folder of its own; the driver was
started in the folder around it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pytest
from pyarrow import parquet

import gpu_ops as g

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batches = Iterable[pa.RecordBatch]
Probe = Callable[["SparkSession", Path], None]

PROBES: dict[str, Probe] = {}
"""In the order in which they run: the last one takes a worker of the cluster with it."""


def probe(function: Probe) -> Probe:
    PROBES[function.__name__] = function
    return function


def rides(count: int = 2000) -> pa.Table:
    starts = [number * 7919 % 10_000 for number in range(count)]
    return pa.table(
        {
            "pickup": starts,
            "dropoff": [start + 1 + number % 97 for number, start in enumerate(starts)],
            "zone": [f"zone {number % 5}" for number in range(count)],
            "fee": [number % 13 for number in range(count)],
        }
    )


def busy(source: Any, **aggregates: Any) -> g.Stream:
    events = g.events(source, start="pickup", end="dropoff", unit="s")
    return events.by("zone").snapshot().agg(n=g.count(), fee=g.sum("fee"), **aggregates)


def costly(source: Any) -> g.Stream:
    return g.events(source, start="pickup", end="dropoff", unit="s").filter(g.col("fee") > 3)


def in_tasks(session: SparkSession, tasks: int, does: Callable[[Batches], Batches] | None = None) -> DataFrame:
    """The rides in tasks, of some hundred rows a batch; in workers something is done with each task's."""
    frame = session.createDataFrame(rides()).repartition(tasks)
    return frame if does is None else frame.mapInArrow(does, frame.schema)


def rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: [str(value) for value in row.values()])


def check(path: Path, asked: Callable[[pa.Table], g.Stream] = busy) -> int:
    """Hold an answer against this process's; how many rows it has."""
    found = pa.concat_tables(parquet.ParquetFile(each).read() for each in sorted(path.glob("*.parquet")))
    here = asked(rides()).collect().cast(found.schema)
    assert rows(found) == rows(here), f"{found.num_rows} rows, and not {here.num_rows}"
    assert not path.with_name(f".{path.name}.writing").exists()
    return int(found.num_rows)


def write(
    stream: g.Stream,
    path: Path,
    given: str | Path | None = None,
    asked: Callable[[pa.Table], g.Stream] = busy,
    if_exists: Literal["raise", "replace"] = "raise",
) -> int:
    """Write and check; how much was sorted in files."""
    report = stream.write(path if given is None else given, if_exists=if_exists)
    assert report.path == path, report
    assert report.rows == check(path, asked), report
    return report.spilled


# In workers


def once(path: str) -> bool:
    """Whether nobody has asked before."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def kill_executor(*, and_worker: bool = False) -> None:
    """End the JVM that this Python works for, and perhaps first the daemon that would start another."""
    import psutil

    _, executor, worker, *_ = psutil.Process().parents()
    for each in (worker, executor) if and_worker else (executor,):
        each.send_signal(signal.SIGKILL)
    time.sleep(60)


def attempt() -> tuple[int, int]:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context.partitionId(), context.attemptNumber()


# Probes


@probe
def places(session: SparkSession, folder: Path) -> None:
    stream = busy(in_tasks(session, 4))
    write(stream, folder / "two words, größe.parquet", f"{folder}/two words, größe.parquet")
    write(stream, folder / "größe #1 100%20.parquet", folder / "größe #1 100%20.parquet")
    write(stream, folder / "größe #2 100%20.parquet", f"file://{folder}/größe #2 100%20.parquet")
    write(stream, folder / "relative text.parquet", f"{folder.name}/relative text.parquet")
    write(stream, folder / "relative path.parquet", Path(folder.name) / "relative path.parquet")


@probe
def disks_of_their_own(session: SparkSession, folder: Path) -> None:
    """The driver has the disk of one of the workers, as where it runs on one of their machines."""
    disk = Path("disk")
    disk.symlink_to(folder)
    here = str(folder)

    def link(batches: Batches) -> Batches:
        time.sleep(1)
        if not os.path.lexists("disk"):
            Path("disk").symlink_to(here) if "/worker-0/" in str(Path.cwd()) else Path("disk").mkdir()
        return batches

    assert in_tasks(session, 4, link).count()
    answer, said = folder / "answer.parquet", ""
    for _ in range(5):
        try:
            # Wherever a JVM is.
            costly(in_tasks(session, 4)).write("/proc/self/cwd/disk/answer.parquet")
        except g.SourceError as error:
            said = str(error)
            break
        # On a busy machine copies of slow tasks may all run where the driver's disk is: then nothing is missing.
        shutil.rmtree(answer)
    assert re.search(r"[\d,]+ rows of an answer .* finds [\d,]+ of them\. Give a path that .* alike", said), said
    assert list(folder.iterdir()) == []
    disk.unlink()


@probe
def another_file_system(session: SparkSession, folder: Path) -> None:
    """A scheme and an authority, behind which is this one."""
    stream = busy(in_tasks(session, 4))
    url = "viewfs://cluster/answers/größe 100%20.parquet"
    for _ in range(2):
        report = stream.write(url, if_exists="replace")
        assert (report.path, report.rows) == (url, check(folder / "größe 100%20.parquet"))
    assert session.read.parquet(url).count() == report.rows


@probe
def a_worker_that_fails(session: SparkSession, folder: Path) -> None:
    """One task fails for good while another has yet to write its first row, which it does when all has been removed."""
    place = folder / "answer.parquet"
    write(busy(in_tasks(session, 2)), place)
    aside = str(folder / ".answer.parquet.writing")

    def fails(batches: Batches) -> Batches:
        task, _ = attempt()
        if task == 0:
            raise ValueError("this task fails")
        # A task that is not the first one opens its file when it has a row.
        given_up = time.monotonic() + 20
        while Path(aside).exists() and time.monotonic() < given_up:
            time.sleep(0.02)
        yield from batches

    # Spark's own error, as the function is no part of gpu_ops.
    with pytest.raises(Exception, match="this task fails"):
        costly(in_tasks(session, 2, fails)).write(place, if_exists="replace")
    time.sleep(2)
    assert [each.name for each in folder.iterdir()] == ["answer.parquet"]
    check(place)


@probe
def an_executor_that_dies_in_mid_write(session: SparkSession, folder: Path) -> None:
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    flag = str(folder / "killed")

    def dies(batches: Batches) -> Batches:
        for number, batch in enumerate(batches):
            if number == 3 and once(flag):
                kill_executor()
            yield batch

    write(costly(in_tasks(session, 4, dies)), folder / "answer.parquet", asked=costly)
    assert Path(flag).exists()


@probe
def an_executor_that_dies_in_a_window(session: SparkSession, folder: Path) -> None:
    """What it had shuffled goes with it. It has sorted in files, which go too, and is counted twice or more."""
    flag = str(folder / "killed")

    def most(table: pa.Table) -> int:
        if table.num_rows > 3 and not Path(flag).exists() and once(flag):
            kill_executor()
        return int(max(table["fee"].to_pylist()))

    def asked(source: Any) -> g.Stream:
        here = isinstance(source, pa.Table)
        function = (lambda table: max(table["fee"].to_pylist())) if here else most
        return busy(source, most=g.window_function(function, returns=pa.int64(), of="fee"))

    session.conf.set("spark.gpu_ops.worker.memory", "2k")
    spilled = write(asked(in_tasks(session, 4)), folder / "answer.parquet", asked=asked)
    assert Path(flag).exists()
    whole = write(asked(in_tasks(session, 4)), folder / "again.parquet", asked=asked)
    assert spilled >= whole > 0


@probe
def speculation(session: SparkSession, folder: Path) -> None:
    """A task that takes long in mid-write is run a second time, which is done first."""

    def slow(batches: Batches) -> Batches:
        task, tried = attempt()
        once(str(folder / f"{task} {tried}"))
        for number, batch in enumerate(batches):
            if number == 2 and task == 1 and tried == 0:
                time.sleep(20)
            yield batch

    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    write(costly(in_tasks(session, 4, slow)), folder / "answer.parquet", asked=costly)
    assert (folder / "1 1").exists(), "no task was run twice"


@probe
def stores(session: SparkSession, folder: Path) -> None:
    from gpu_ops.engines.spark import register

    register(session)
    flag = str(folder / "killed")
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")

    def dies(batches: Batches) -> Batches:
        for number, batch in enumerate(batches):
            if number == 3 and once(flag):
                kill_executor()
            yield batch

    for given in (f"{folder}/a störe", f"{folder.name}/relative"):
        path = folder / given.rpartition("/")[2]
        answer = costly(in_tasks(session, 4, dies)).collect()
        answer.write.format("gpu_ops").mode("append").option("cti", "2000-01-01T00:00Z").save(given)
        assert Path(flag).exists()
        store = g.store(path)
        verified = store.verify()
        assert (verified.sound, verified.leftovers, verified.foreign) == (True, (), ()), verified
        assert rows(store.read()) == rows(costly(rides()).collect().cast(store.schema))
        asked = [
            g.events(source, start="start", end="end").by("zone").tumbling("1h").agg(n=g.count())
            for source in (session.read.format("gpu_ops").load(given), store.read())
        ]
        assert rows(asked[0].collect().toArrow()) == rows(asked[1].collect())


@probe
def reports(session: SparkSession, folder: Path) -> None:
    """What local streams say of refused rows, of sources and of plans."""
    from gpu_ops.engines.spark import invalid_rows

    wrong = pa.concat_tables(
        [rides(50), pa.table({"pickup": [5, 7], "dropoff": [5, 6], "zone": ["a", "b"], "fee": [1, 2]})]
    )
    here, there = (
        g.events(source, start="pickup", end="dropoff", unit="s", on_invalid="divert", name="rides")
        for source in (wrong, session.createDataFrame(wrong).repartition(3))
    )
    assert rows(there.collect().toArrow()) == rows(here.collect())
    refused = {row["rule"]: row["count"] for row in invalid_rows(there).groupBy("rule").count().collect()}
    assert refused == {rule: count for rule, count in here.report().invalid.items() if count}
    with pytest.raises(g.PlanError, match=r"invalid_rows\(stream\)"):
        there.report()
    said = [each.by("zone").snapshot().agg(n=g.count()).explain().splitlines() for each in (here, there)]
    assert said[0][0] == said[1][0]
    assert any("one repartition by zone, then one mapInArrow" in line for line in said[1])


@probe
def a_python_without_gpu_ops(session: SparkSession, folder: Path) -> None:
    """The program that workers run decides by this whether there is one, and where."""
    environment = session.sparkContext.environment
    stream = busy(in_tasks(session, 4))
    for lacking in ("both", "one"):
        environment["LACKS"] = lacking
        began = time.monotonic()
        try:
            stream = busy(in_tasks(session, 4))
            report = stream.write(folder / "answer.parquet", if_exists="replace")
        except g.WorkerError as error:
            said = str(error)
            assert len(said.splitlines()) == 1
            assert "gpu_ops does not load in the Python " in said
            assert "spark.pyspark.python" in said
            assert "--py-files" in said
            assert list(folder.iterdir()) == []
        else:
            assert lacking == "one", "no worker has gpu_ops"
            assert report.rows == check(folder / "answer.parquet")
        assert time.monotonic() - began < 60
        del environment["LACKS"]


@probe
def a_worker_daemon_that_dies_with_its_executor(session: SparkSession, folder: Path) -> None:
    """No other executor comes for it: the one that is left does all."""
    flag = str(folder / "killed")

    def dies(batches: Batches) -> Batches:
        for number, batch in enumerate(batches):
            if number == 1 and once(flag):
                kill_executor(and_worker=True)
            yield batch

    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    write(busy(in_tasks(session, 4, dies)), folder / "answer.parquet")
    assert Path(flag).exists()


def main(arguments: Sequence[str]) -> None:
    from pyspark.sql import SparkSession

    folder = Path(arguments[0])
    session = SparkSession.builder.getOrCreate()
    for name in arguments[1:] or PROBES:
        began = time.monotonic()
        (folder / name).mkdir()
        failed = None
        try:
            PROBES[name](session.newSession(), folder / name)
        except Exception:  # noqa: BLE001  (it is the test that fails)
            failed = traceback.format_exc()
        print(json.dumps([name, failed, round(time.monotonic() - began, 1)]), flush=True)
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
