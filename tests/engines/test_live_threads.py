"""Running queries and several threads, and processes that were forked."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import gpu_ops as g
from tests.support.rows import rows
from tests.support.ticks import at_us

pytestmark = pytest.mark.slow

BIDS = pa.schema([("at", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])


def test_four_threads_that_push_lose_no_row() -> None:
    each, size, threads = 75, 1000, 4
    query = g.events(BIDS.empty_table(), start="at", unit="us").by("k").tumbling("1000us", align=at_us(0))
    live = query.agg(n=g.count(), v=g.sum("v")).start(device="cpu")
    errors = list[BaseException]()

    def push(thread: int) -> None:
        try:
            for number in range(each):
                first = (number * threads + thread) * size
                live.push({"at": range(first, first + size), "k": [thread] * size, "v": range(size)})
                assert live.status().failed is None
        except BaseException as error:  # noqa: BLE001  (a thread's own errors are nobody's)
            errors.append(error)

    running = [threading.Thread(target=push, args=(thread,)) for thread in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    live.close()
    assert errors == []
    results = live.results()
    assert live.status().events_in == threads * each * size == 300_000
    assert sum(results["n"].to_pylist()) == 300_000
    assert sum(results["v"].to_pylist()) == threads * each * sum(range(size))


def test_threads_that_advance_and_read_see_whole_steps() -> None:
    query = g.events(BIDS.empty_table(), start="at", unit="us").tumbling("10us", align=at_us(0)).agg(n=g.count())
    live, found, done = query.start(device="cpu"), list[pa.Table](), threading.Event()

    def read() -> None:
        while not done.is_set():
            found.append(live.results())
            live.state()

    reader = threading.Thread(target=read)
    reader.start()
    for first in range(0, 2000, 10):
        live.push({"at": range(first, first + 10), "k": [1] * 10, "v": [1] * 10})
        live.advance(at_us(first + 10))
    done.set()
    reader.join()
    live.close()
    found.append(live.results())
    assert pa.concat_tables(found)["n"].to_pylist() == [10] * 200


def test_a_stream_is_collected_from_several_threads() -> None:
    bids = {"at": range(20_000), "k": [at % 7 for at in range(20_000)], "v": range(20_000)}
    stream = g.events(pa.table(bids, schema=BIDS), start="at", unit="us")
    query = (
        stream.by("k").hopping("500us", "100us").agg(n=g.count(), v=g.sum("v"), most=g.max("v"), middle=g.median("v"))
    )
    expected, found = rows(query.collect(device="cpu")), dict[int, object]()

    def collect(thread: int) -> None:
        found[thread] = rows(query.collect(device="cpu"))

    threads = [threading.Thread(target=collect, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[thread] == expected for thread in range(4)] == [True] * 4


FORKS = """
import os, sys
import pyarrow as pa
import gpu_ops as g

bids = pa.table({"at": range(20_000), "k": [at % 7 for at in range(20_000)]})
empty = g.events(bids.slice(0, 0), start="at", unit="us")
wanted = lambda: g.events(bids, start="at", unit="us").filter(g.col("k") > 1, g.col("k") < 6).by("k").tumbling("9us")
live = None
if sys.argv[1] == "collected":
    wanted().agg(n=g.count()).collect(device="cpu")
elif sys.argv[1] == "pushed":
    live = empty.tumbling("9us").agg(n=g.count()).start(device="cpu")
    live.push(bids.slice(0, 10))
child = os.fork()
if child == 0:
    for call in (lambda: wanted().agg(n=g.count()).collect(device="cpu"), lambda: live and live.push(bids.slice(10))):
        try:
            call()
            print("fine", flush=True)
        except g.DeviceError as error:
            print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.services
@pytest.mark.parametrize("before", ["nothing", "collected", "pushed"])
def test_a_process_that_was_forked_after_a_query_is_refused(before: str) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS, before],
        capture_output=True,
        check=True,
        cwd=root,
        text=True,
        timeout=60,
    )
    said = done.stdout.splitlines()
    if before == "nothing":
        assert said == ["fine", "fine"]
        return
    assert "spawn" in said[0]
    assert ("spawn" in said[1]) == (before == "pushed")
