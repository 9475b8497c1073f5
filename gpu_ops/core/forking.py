"""Whether this process may run queries: not if it was forked from a process that has.

Polars, Numba and Arrow keep threads that wait for work. After ``os.fork()`` the child has their locks and queues, but
not the threads: its first query would wait forever. So a child is refused if its parent has run a query; a process that
was forked earlier, as Spark's Python workers are, may run queries.
"""

from __future__ import annotations

import os

from gpu_ops.errors import DeviceError


class _Process:
    """The state of this process, which is global as threads are."""

    used = False
    orphaned = False


def use_threads() -> None:
    """Note that the process uses threads, which a fork does not copy.

    Raises:
        DeviceError: The process was forked from one that had.
    """
    if _Process.orphaned:
        raise DeviceError(
            "This process was forked from one that has run a query, and the threads of Polars, Numba and Arrow were "
            "not forked along: a query here would wait for ever.",
            remedy='Start processes afresh: multiprocessing.get_context("spawn"), or fork before the first query.',
        )
    _Process.used = True


def _forked() -> None:
    _Process.orphaned = _Process.orphaned or _Process.used


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
