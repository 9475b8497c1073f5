"""Two live queries at once on a cluster of two workers, whose executors, Python workers and drivers are killed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gpu_ops as g
from tests.support.cluster import NO_CLUSTER, ROOT, kill, spark_home, surroundings, until
from tests.support.epochs import Epoch, same, table
from tests.support.live_cluster import LONG, QUERIES, query, where

pytestmark = [pytest.mark.spark, pytest.mark.services]

MANY = 100_000
"""How many events outlive all others: a worker that restores their state, of more than 1 MiB, maps it."""

VICTIMS = {"executor": 5, "worker": 8, "driver": 2}
"""What is killed, and how often beside the others: a driver takes longest to come back."""


class Run:
    """The input of two queries, and the process of their driver."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.chance = folder, random.Random(seed)
        self.given: list[pa.Table] = []
        self.killed: Counter[str] = Counter()
        self._home = spark_home(folder)
        (folder / "in").mkdir()
        items = [self.chance.choice("abcd") for _ in range(MANY)]
        self._put(table([(0, LONG + number % 50, items[number], -1) for number in range(MANY)]))
        self.driver = self._started()

    def _started(self) -> subprocess.Popen[str]:
        home = str(self._home)
        environment = surroundings(
            SPARK_HOME=home, SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable, PYTHONPATH=str(ROOT)
        )
        command = [sys.executable, "-m", "tests.support.live_cluster", str(self.folder)]
        with (self.folder / "log").open("a") as log:
            return subprocess.Popen(command, env=environment, stderr=log, text=True, start_new_session=True)

    def _put(self, rows: pa.Table) -> None:
        """An epoch's file, which is there whole."""
        number = len(self.given)
        aside, path = self.folder / "aside", self.folder / "in" / f"{number:05}.parquet"
        pq.write_table(rows, aside)
        os.utime(aside, (1_000 + number, 1_000 + number))
        aside.rename(path)
        self.given.append(rows)

    def go_on(self) -> None:
        """Give the queries their next epoch, if they have taken most of what is there."""
        taken = min(self._last(name) for name in QUERIES)
        if len(self.given) - taken < 4:
            first = 40 * len(self.given)
            starts = [first + self.chance.randrange(-30, 40) for _ in range(20)]
            rows: Epoch = [
                (at, at + self.chance.randrange(1, 90), self.chance.choice("abcd"), self.chance.randrange(9))
                for at in starts
            ]
            self._put(table(rows))

    def go_on_for(self, seconds: float) -> None:
        """Give the queries epochs for so long."""
        enough = time.monotonic() + seconds
        while time.monotonic() < enough:
            self.go_on()
            self.end()
            time.sleep(0.05)

    def go_on_to_another_epoch(self) -> None:
        """Give the queries epochs until one of them has committed another one."""
        before, given_up = [self._last(name) for name in QUERIES], time.monotonic() + 600
        while [self._last(name) for name in QUERIES] == before:
            assert time.monotonic() < given_up, f"no epoch after {before} in ten minutes; killed: {self.killed}"
            self.go_on_for(0.05)

    def _last(self, name: str) -> int:
        try:
            last = g.epochs(where(self.folder, name)["into"]).last
        except g.SourceError:
            return -1
        return -1 if last is None else last

    def end(self) -> int | None:
        """The driver's code, if it has ended: where it failed by itself the test has, too."""
        code = self.driver.poll()
        if code not in (None, 0):
            said = (self.folder / "log").read_text()
            if why := NO_CLUSTER.search(said):
                pytest.skip(f"local-cluster does not start here: {why[0]}")
            pytest.fail(f"the driver ended by itself after {self.killed.total()} kills: {said[-3000:]}")
        return code

    def clear(self) -> None:
        """End what is left: a driver's JVM may outlive its Python for a moment."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.driver.pid, signal.SIGKILL)
        self.driver.wait()

    def kill(self) -> None:
        """Kill something that is there."""
        what = self.chance.choices(list(VICTIMS), list(VICTIMS.values()))[0]
        if what == "driver":
            kill(self.driver)
            self.driver = self._started()
            self.killed[what] += 1
            return
        marks = {"executor": "CoarseGrainedExecutorBackend", "worker": "-m tests.support.spark_daemon"}
        below = psutil.Process(self.driver.pid).children(recursive=True)
        found = [each for each in below if marks[what] in _said(each)]
        if found:
            self.chance.choice(found).kill()
            self.killed[what] += 1


def _said(process: psutil.Process) -> str:
    """What a process was started with; nothing if it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.mark.parametrize("kills", [5, pytest.param(200, marks=pytest.mark.deep)])
def test_two_queries_whose_processes_are_killed(tmp_path: Path, kills: int) -> None:
    """Kills come at any moment, from a start to the next epochs; each query gives what it gives of all events."""
    run = Run(tmp_path, seed=kills)
    try:
        given_up = time.monotonic() + 300 + 20 * kills
        while run.killed.total() < kills:
            assert time.monotonic() < given_up, run.killed
            if run.chance.random() < 0.8:
                run.go_on_to_another_epoch()
            run.go_on_for(run.chance.random() * 2)
            run.kill()
        run.go_on_for(3)
        (tmp_path / "last").touch()
        until(run.end, "the end of both queries", seconds=300)
        everything = g.events(pa.concat_tables(run.given), start="at", end="till", unit="s")
        for name in QUERIES:
            same(g.epochs(where(tmp_path, name)["into"]).read(), query(name, everything).collect())
    finally:
        run.clear()
