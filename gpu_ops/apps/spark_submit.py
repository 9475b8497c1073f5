"""Submitting jobs to the Spark of the pyspark package, for the demos."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from gpu_ops.apps.broker import SHORT_LIVED
from gpu_ops.errors import GpuOpsError

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class SparkJob:
    """A job that was submitted.

    Attributes:
        process: ``spark-submit``, which leads a process group: the driver and its JVM are in it.
        printed: The file with its output.
        begin: Where its output begins there.
    """

    process: subprocess.Popen[bytes]
    printed: Path
    begin: int

    def wait(self) -> None:
        """Wait until it ends; if that is interrupted, it is killed.

        Raises:
            GpuOpsError: It failed; the message ends with what it printed last.
        """
        try:
            code = self.process.wait()
        except BaseException:
            self.kill()
            raise
        if code:
            with self.printed.open("rb") as said:
                said.seek(self.begin)
                last = b"".join(said.readlines()[-20:]).decode(errors="replace")
            raise GpuOpsError(f"spark-submit failed with exit code {code}.\n{last}", remedy=f"See {self.printed}.")

    def kill(self) -> None:
        """End it at once (SIGKILL): its driver, and the driver's JVM."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class SparkSubmit:
    """The ``spark-submit`` of the pyspark package.

    Args:
        scratch: A temporary folder for SPARK_HOME: local-cluster's workers leave files there, which should not end up
            in the installed package.
        printed: The file for Spark's output.

    Raises:
        GpuOpsError: pyspark is not installed.
    """

    def __init__(self, scratch: Path, printed: Path) -> None:
        package = importlib.util.find_spec("pyspark")
        if package is None or package.origin is None:
            raise GpuOpsError("The demo needs pyspark, which is not installed.", remedy="pip install 'gpu_ops[spark]'")
        self._home = scratch / "spark"
        self._home.mkdir()
        for entry in Path(package.origin).parent.iterdir():
            (self._home / entry.name).symlink_to(entry)
        self._printed = printed
        self._environment = {
            **os.environ,
            "SPARK_HOME": str(self._home),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            # All processes run on this machine, and its name may not resolve.
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_HOSTNAME": "localhost",
            "SPARK_SUBMIT_OPTS": f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {SHORT_LIVED}".strip(),
        }

    def start(self, *arguments: str | Path) -> SparkJob:
        """Submit a job."""
        command = [str(self._home / "bin" / "spark-submit"), "--conf", "spark.ui.enabled=false", *map(str, arguments)]
        # In the repository's root: paths in the property files are relative to it.
        with self._printed.open("ab") as printed:
            printed.write(f"$ {' '.join(command)}\n".encode())
            printed.flush()
            process = subprocess.Popen(  # noqa: S603  (our own arguments)
                command, cwd=ROOT, env=self._environment, stdout=printed, stderr=printed, start_new_session=True
            )
            return SparkJob(process, self._printed, printed.tell())

    def submit(self, *arguments: str | Path) -> None:
        """Submit a job and wait for it.

        Raises:
            GpuOpsError: As `SparkJob.wait`.
        """
        self.start(*arguments).wait()
