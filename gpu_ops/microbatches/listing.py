"""A store's log as its folder's listing tells it, which is looked at again until it is one."""

from __future__ import annotations

import time

from gpu_ops.microbatches.folders import Folder, reading
from gpu_ops.microbatches.names import Log, UnsettledError, read_log

_LISTINGS = 20
"""How often a folder is listed until two listings that are no log agree that it is none."""


def listed(folder: Folder) -> Log:
    """What a folder's listing tells; no file is opened.

    A listing is not taken at one instant: what is no log is looked at again until it is one, or stays none.

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
