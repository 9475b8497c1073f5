"""What a Python worker of Spark is spared between tasks: PySpark does things around each that take longer than most.

It looks for garbage after each task, in all that is loaded, and forgets before each what Python knows of its archives.
What the driver asks of a data source are such tasks too.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
from zipimport import zipimporter

import py4j  # type: ignore[import-untyped]
import pyspark


def spare_the_next(loaded: str) -> None:
    """Spare the worker's next tasks both. It does nothing in other processes, nor in a worker that has no next task.

    Args:
        loaded: What this task has loaded; the first task that has is the one that sets it aside.
    """
    if os.environ.get("SPARK_REUSE_WORKER"):
        set_aside(loaded)
        forget_archives()


@functools.cache
def set_aside(loaded: str) -> None:
    """Keep the garbage collector from what is loaded. Looking through all of that took 70 ms a task."""
    gc.collect()
    gc.freeze()


def forget_archives() -> None:
    """Forget how Spark's own archives are imported from: before each task PySpark invalidates Python's import caches.

    Python would then read an archive's list of files again for each package that was imported from it. PySpark has a
    dozen packages: that took 100 ms a task, more than most tasks. The user's archives may change, and are read again.
    """
    own = {getattr(each.__loader__, "archive", None) for each in (pyspark, py4j)}
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and (finder.archive in own or finder.archive.endswith(".jar")):
            del sys.path_importer_cache[path]
