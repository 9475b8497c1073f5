"""A standalone cluster of Spark on this machine: a master and its workers, each with folders of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
CONF = ROOT / "spark_conf"

JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What makes a JVM start sooner and stay small."""

NO_CLUSTER = re.compile("BindException|Master removed our application|has not accepted any resources")
"""What Spark says where its processes cannot reach each other or get no memory."""


def surroundings(**more: str) -> dict[str, str]:
    """The environment without what tells a Python where to look."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))} | more


def spark_home(folder: Path) -> Path:
    """PySpark's Spark, with a folder of its own for what executors work in."""
    import pyspark

    home = folder / "spark"
    home.mkdir()
    for name in ("bin", "data", "jars", "python"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    return home


def without_gpu_ops(folder: Path) -> Path:
    """An interpreter with all that gpu_ops depends on; a test is skipped where it has gpu_ops as well.

    A folder that a .pth file names is searched for modules and not for .pth files, by one of which gpu_ops is here.
    """
    made = folder / "dependencies"
    venv.create(made, symlinks=True)
    named = {"base": str(made), "platbase": str(made)}
    (Path(sysconfig.get_path("purelib", "venv", named)) / "here.pth").write_text(sysconfig.get_path("purelib"))
    python = made / "bin" / "python"
    command = [str(python), "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('gpu_ops') is not None)"]
    if subprocess.run(command, check=False, cwd=folder, env=surroundings()).returncode:
        pytest.skip("gpu_ops is among its dependencies: it is not installed as `make` does it")
    return python


@dataclass
class Cluster:
    """A master and its workers; `cluster` starts and ends one.

    Attributes:
        folder: Holds all that they write: of a worker ``NAME/work``, ``NAME/local``, ``NAME/tmp`` and ``NAME/log``.
        home: Where Spark is.
        url: What a driver calls the master.
        started: The processes, by name.
        drivers: Leaders of process groups, which end with the cluster.
    """

    folder: Path
    home: Path
    url: str = ""
    started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    drivers: list[subprocess.Popen[str]] = field(default_factory=list)

    def start_worker(self, name: str, **environment: str) -> None:
        """One more worker, of one core, on a host of its own: Spark runs no task for the second time on the same."""
        (self.folder / name / "tmp").mkdir(parents=True, exist_ok=True)
        local = {"SPARK_LOCAL_DIRS": str(self.folder / name / "local"), "TMPDIR": str(self.folder / name / "tmp")}
        options = ("--cores", "1", "--memory", "700M", "--work-dir", str(self.folder / name / "work"))
        host = f"127.0.0.{2 + int(name.rpartition('-')[2])}"
        self._start(name, host, "org.apache.spark.deploy.worker.Worker", *options, self.url, **local, **environment)
        self._said(name, "Successfully registered with master")

    def submit(
        self, folder: Path, log: Path, *arguments: str, settings: Sequence[str] = (), **environment: str
    ) -> subprocess.Popen[str]:
        """A driver that works in a folder, started by spark-submit; what it does not print goes to a log."""
        cluster = (
            *(f"spark.master={self.url}", "spark.driver.host=127.0.0.1", "spark.driver.memory=512m"),
            *("spark.executor.memory=512m", "spark.executor.cores=1", f"spark.executor.extraJavaOptions={JAVA}"),
            f"spark.driver.extraJavaOptions={JAVA} -Dlog4j2.configurationFile={(CONF / 'log4j2.properties').as_uri()}",
            *("spark.sql.shuffle.partitions=2", f"spark.local.dir={self.folder / 'local'}"),
        )
        shared = {"SPARK_HOME": str(self.home), "SPARK_LOCAL_IP": "127.0.0.1", "LC_ALL": "C.UTF-8"}
        with log.open("w") as written:
            driver = subprocess.Popen(
                [
                    *(str(self.home / "bin" / "spark-submit"), "--properties-file", str(CONF / "local-cpu.properties")),
                    *(part for setting in (*cluster, *settings) for part in ("--conf", setting)),
                    *arguments,
                ],
                stdout=subprocess.PIPE,
                stderr=written,
                text=True,
                cwd=folder,
                env=surroundings(**shared) | environment,
                start_new_session=True,
            )
        self.drivers.append(driver)
        return driver

    def _start(self, name: str, host: str, kind: str, *arguments: str, **environment: str) -> None:
        daemon = {"SPARK_DAEMON_JAVA_OPTS": JAVA, "SPARK_DAEMON_MEMORY": "192m", "SPARK_LOCAL_IP": host}
        shared = {"SPARK_HOME": str(self.home), "LC_ALL": "C.UTF-8"}
        (self.folder / name).mkdir(exist_ok=True)
        command = [str(self.home / "bin" / "spark-class"), kind, "--host", host, "--port", "0"]
        with (self.folder / name / "log").open("wb") as log:
            self.started[name] = subprocess.Popen(
                [*command, "--webui-port", "0", *arguments],
                stdout=log,
                stderr=log,
                cwd=self.folder / name,
                env=surroundings(**daemon, **shared) | environment,
            )

    def _said(self, name: str, pattern: str) -> re.Match[str]:
        """Wait until a process has said something."""
        log = self.folder / name / "log"

        def found() -> re.Match[str] | None:
            text = log.read_text()
            if self.started[name].poll() is not None and (why := NO_CLUSTER.search(text)):
                pytest.skip(f"a cluster does not start here: {name} says {why[0]}")
            assert self.started[name].poll() is None, text
            return re.search(pattern, text)

        return until(found, f"{name} to say {pattern}")

    def end(self) -> None:
        """End all processes, and those that they have started."""
        for driver in self.drivers:
            kill(driver)
        found = []
        for each in self.started.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(each.pid)
                found += [*process.children(recursive=True), process]
        for one in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        for each in self.started.values():
            each.wait()
        psutil.wait_procs(found, timeout=10)


def kill(driver: subprocess.Popen[str]) -> None:
    """End a driver's JVM and its Python at once."""
    if driver.poll() is None:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()


def until(found: Callable[[], T | None], what: str, seconds: float = 120) -> T:
    """What a function finds, once it finds something."""
    given_up = time.monotonic() + seconds
    while (it := found()) is None:
        assert time.monotonic() < given_up, f"waited for {what}, and for {seconds} s"
        time.sleep(0.02)
    return it


@contextlib.contextmanager
def cluster(folder: Path, *workers: str) -> Iterator[Cluster]:
    """A cluster with a worker of each name, which ends in its number."""
    if sys.platform != "linux":
        pytest.skip("workers have hosts of their own, 127.0.0.2 and so on, which only Linux has by itself")
    made = Cluster(folder, spark_home(folder))
    try:
        made._start("master", "127.0.0.1", "org.apache.spark.deploy.master.Master")
        made.url = made._said("master", r"Starting Spark master at (spark://\S+)")[1]
        for name in workers:
            made.start_worker(name)
        yield made
    finally:
        made.end()
