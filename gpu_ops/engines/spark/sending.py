"""How functions are sent to Spark's Python workers, and errors for workers that cannot run them.

A worker may have no gpu_ops, another version of it, or another Python. So a function is sent in a shell that needs
nothing but Python: it says what is missing, or unpickles the function.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import SparkContext, TaskContext
from pyspark.serializers import CloudPickleSerializer

from gpu_ops.core.version import VERSION
from gpu_ops.errors import GpuOpsError, WorkerError

_PICKLE: Any = CloudPickleSerializer()


def _python() -> str:
    return ".".join(map(str, sys.version_info[:2]))


def remedy() -> str:
    """What to do if workers cannot run gpu_ops, in a line."""
    return (
        f"Say which Python has gpu_ops, of the driver's version ({_python()}), before the session starts: "
        f"spark.pyspark.python or PYSPARK_PYTHON (the driver's own is {sys.executable}). Or send it: an environment "
        "with --archives, gpu_ops alone with --py-files (docs/spark.md, On a cluster)."
    )


class Sent:
    """A function for Spark's workers. A worker that cannot run it raises a `WorkerError` when it unpickles it.

    Args:
        call: A function of one argument that can be pickled.

    Examples:
        >>> Sent(abs)(-3)
        3
    """

    def __init__(self, call: Callable[[Any], Any]) -> None:
        self._call = call
        self.__name__ = "gpu_ops"  # as Spark's plans show it

    def __call__(self, given: Any) -> Any:
        """Call it here."""
        return self._call(given)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # Before PySpark looks for its own packages, and raises its own errors if there are none.
        return _shell(), (_PICKLE.dumps(self._call), VERSION, remedy())


def _shell() -> Callable[..., Any]:
    """A function that unpickles on any worker: its code is sent, so it may use nothing of this package."""

    def opened(packed: bytes, version: str, todo: str) -> Any:
        import os
        import pickle
        import sys

        where = f"the Python {sys.executable} of a Spark worker"
        try:
            import pyarrow  # noqa: F401  (PySpark asks for it, too)

            import gpu_ops

            found = gpu_ops.__version__
            problem = None if found == version else f"The driver has gpu_ops {version}, and {where} has {found}."
        except ImportError as error:
            problem = f"gpu_ops does not load in {where}: {error}."
        if problem is None:
            try:
                return pickle.loads(packed)  # noqa: S301  (the driver made it)
            except Exception as error:  # noqa: BLE001  (of any kind, as a class may be another one there)
                problem = f"What the driver sent does not fit the gpu_ops of {where}: {type(error).__name__}: {error}."
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # as in `concise`
        kind = type("WorkerError", (RuntimeError,), {"__module__": "gpu_ops.errors"})
        raise kind(f"{problem} {todo}")

    return opened


@contextmanager
def concise() -> Iterator[None]:
    """Send an error of gpu_ops that ends a worker without its traceback: calls within gpu_ops help nobody.

    If an error of the user's function is the cause, its traceback is appended. The driver shows what the worker sends;
    ``SPARK_HIDE_TRACEBACK`` is how a session asks a worker for no traceback. The worker ends with the error.
    """
    try:
        yield
    except GpuOpsError as error:
        if TaskContext.get() is not None:
            if error.__cause__ is not None:
                error.add_note("".join(traceback.format_exception(error.__cause__)).rstrip())
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def check_workers(context: SparkContext) -> None:
    """Refuse the workers' Python before anything runs, if they run on this machine and it is unsuitable.

    Raises:
        WorkerError: It is missing, or of another minor version than this one.
    """
    if not re.match(r"local($|\[)", context.master or ""):
        return
    program = context.pythonExec
    found = shutil.which(program)
    if found is None and os.sep in program:
        raise WorkerError(f"Spark's workers are to run {program}, and there is no such program.", remedy=remedy())
    version = None if found is None or found == sys.executable else _version(found)
    if version not in (None, _python()):
        raise WorkerError(_other_python(f"{program} ({found})", version, _python()), remedy=remedy())


def _other_python(program: str, version: str | None, driver: str) -> str:
    return f"Spark's workers run {program}, which is Python {version}, and the driver is Python {driver}."


@functools.cache
def _version(program: str) -> str | None:
    """The minor version of a Python; None if it cannot be asked."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([program, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603  (Spark's own)
    return done.stdout.strip() if not done.returncode else None


_OTHER_PYTHON = re.compile(r"\[PYTHON_VERSION_MISMATCH\] .*?version: ([\d.]+) than that in driver: ([\d.]+\d)")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)".*?error=2')
_NO_PACKAGE = re.compile(
    r"(?:ModuleNotFoundError|PySparkImportError): (.*?(?:gpu_ops|pyarrow|PyArrow|pandas|Pandas)\b.*)"
)


def worker_error(said: str) -> WorkerError | None:
    """The error for workers that Spark could not start, from what Spark says; None if it says something else.

    Examples:
        >>> print(worker_error('java.io.IOException: Cannot run program "./e/bin/python": error=2, No such …').problem)
        Spark's workers are to run ./e/bin/python, and there is no such program.
    """
    if (found := _OTHER_PYTHON.search(said)) is not None:
        return WorkerError(_other_python("another Python", found[1], found[2]), remedy=remedy())
    if (found := _NO_PROGRAM.search(said)) is not None:
        return WorkerError(f"Spark's workers are to run {found[1]}, and there is no such program.", remedy=remedy())
    if (found := _NO_PACKAGE.search(said)) is not None:
        return WorkerError(f"A package is missing in the Python of Spark's workers: {found[1]}.", remedy=remedy())
    return None
