"""A store's log, read from listings of its folder until one is consistent."""

from __future__ import annotations

import time

from gpu_ops.microbatches.folders import Folder, reading
from gpu_ops.microbatches.names import Log, UnsettledError, read_log

_LISTINGS = 20
"""The most listings of a folder to wait for a consistent one."""


def listed(folder: Folder) -> Log:
    """The log, from the names of the files; no file is opened.

    A listing is not atomic. An inconsistent one is repeated until a listing is consistent or two are equal.

    Raises:
        SourceError: A file is lost, or two files claim one batch.
    """
    before: set[str] | None = None
    for _ in range(_LISTINGS):
        names = _names(folder)
        try:
            return read_log(names)
        except UnsettledError:
            if names == before:
                raise
        before = names
        time.sleep(0.01)
    return read_log(_names(folder))


def _names(folder: Folder) -> set[str]:
    with reading(folder):
        return folder.names()
