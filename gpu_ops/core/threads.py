"""The threads of this process: how many work at a time, and the one pool in which they do.

A thread that asks for parallel work takes part in it: while it waits, it runs what no other thread has begun. So the
work ends even if no other thread is free, and a pool for n threads has n - 1 of its own. Work that asks for parallel
work again runs that serially. After a fork the child makes a pool of its own, as it has no threads of its parent.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar

from gpu_ops.core.arguments import whole

T = TypeVar("T")
R = TypeVar("R")

VARIABLE = "GPU_OPS_THREADS"
"""The environment variable that says how many threads work at a time."""

MOST = 1024

PART = 1 << 16
"""The least rows of a part: fewer take less time than it takes to hand them to another thread."""

_USUAL = 16
"""The most threads by default: each holds the temporary arrays of a block, some 20 MiB."""

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


class _Workers:
    """How many threads there are, and the pool: global, as threads are."""

    asked: int | None = None
    usual: int | None = None
    lock = threading.Lock()
    pool: ThreadPoolExecutor | None = None
    size = 0


class _Thread(threading.local):
    """The state of a thread."""

    works = False


_thread = _Thread()


def set_threads(count: int | None) -> None:
    """Say how many threads of this process work for gpu_ops at a time. The results are the same with any number.

    Without this call the environment variable ``GPU_OPS_THREADS`` says it. Without both there are as many threads as
    cores that the process may use, at most 16; in a worker of Spark as many as its task has (``spark.task.cpus``).
    Polars and Arrow have threads of their own (``POLARS_MAX_THREADS``, ``pyarrow.set_cpu_count``).

    Args:
        count: From 1 to 1,024; None for the default.

    Raises:
        PlanError: It is no such number.

    Examples:
        >>> import gpu_ops as g
        >>> g.set_threads(1)  # as other processes use the other cores
        >>> g.set_threads(None)
    """
    _Workers.asked = None if count is None else whole(count, name="The number of threads", most=MOST)


def usual_threads(count: int) -> None:
    """Say how many threads work if the user does not say it."""
    _Workers.usual = count


def threads() -> int:
    """How many threads work at a time; 1 within work that runs in parallel already.

    Raises:
        PlanError: The environment says a number that cannot be.
    """
    if _thread.works:
        return 1
    if _Workers.asked is not None:
        return _Workers.asked
    said = os.environ.get(VARIABLE)
    if said:
        return whole(int(said) if said.isdecimal() and len(said) < 9 else said, name=VARIABLE, most=MOST)
    return cores() if _Workers.usual is None else _Workers.usual


@cache
def cores() -> int:
    """How many cores this process may use, by its affinity and by its container's quota; 16 if there are more."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # there is no container, or it has no quota ("max 100000")
        quota, period = (int(each) for each in _QUOTA.read_text().split())
        found = min(found, -(-quota // period))
    return min(max(1, found), _USUAL)


def parts(size: int, least: int = 1) -> list[tuple[int, int]]:
    """(low, upto) of nearly equal parts of some rows, one for each thread: of `PART` rows and ``least`` or more."""
    least = max(least, PART)
    count = 1 if size < 2 * least else min(threads(), size // least)
    return [(size * at // count, size * (at + 1) // count) for at in range(count)]


def in_parallel(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The function's result for each item, in their order."""
    return [function(items[0])] if len(items) == 1 else list(ordered_map(threads(), function, items))


def ordered_map(count: int, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """``map`` on a number of threads, at most twice as many items ahead; kernels release the interpreter's lock.

    The items are read by the caller's thread, which works along. The first item in order whose call fails ends the map
    with that error, as ``map`` does; what has not begun by then, or when the caller is interrupted, is left out.
    """
    if count == 1:
        yield from map(function, items)
        return
    waiting: deque[_Call[T, R]] = deque()
    alone = True
    try:
        for item in items:
            if waiting:
                # Not before another one comes: a single item stays with the caller, and its own work may be parallel.
                alone = False
                waiting[-1].hand_over(count)
            waiting.append(_Call(function, item))
            if len(waiting) >= 2 * count:
                yield _next(waiting)
        if alone and waiting:
            yield waiting.pop().direct()
        while waiting:
            yield _next(waiting)
    finally:
        for each in waiting:
            each.future.cancel()


class _Call(Generic[T, R]):
    """A call that waits until a thread of the pool begins it, or the caller's own."""

    def __init__(self, function: Callable[[T], R], item: T) -> None:
        self._function, self._item = function, item
        self.future: Future[R] = Future()
        self.is_handed_over = False

    def hand_over(self, count: int) -> None:
        """Put it into the pool's queue."""
        if not self.future.done():
            self.future, self.is_handed_over = _submitted(count, self._function, self._item), True

    def direct(self) -> R:
        """Its result, if nothing else runs."""
        return self._function(self._item)

    def run_here(self) -> bool:
        """Run it in this thread, unless another one has begun."""
        if not self.future.cancel():
            return False
        self.future = Future()
        try:
            self.future.set_result(_worked(self._function, self._item))
        except Exception as error:  # noqa: BLE001  (it is raised when it is this call's turn)
            self.future.set_exception(error)
        return True


def _next(waiting: deque[_Call[T, R]]) -> R:
    """The result of the first call. Until it is there this thread runs others too, first what no other one was given.

    If it took the first one, it would often take it from a thread that is about to begin, and that one would idle.
    """
    while not waiting[0].future.done():
        if not any(each.run_here() for each in sorted(waiting, key=lambda each: each.is_handed_over)):
            break
    return waiting.popleft().future.result()


def _submitted(count: int, function: Callable[[T], R], item: T) -> Future[R]:
    with _Workers.lock:
        if _Workers.pool is None or _Workers.size != count:
            if _Workers.pool is not None:
                _Workers.pool.shutdown(wait=False)
            _Workers.pool, _Workers.size = ThreadPoolExecutor(count - 1, "gpu_ops"), count
        try:
            return _Workers.pool.submit(_worked, function, item)
        except RuntimeError:  # no thread can be started, or the interpreter ends: the caller runs it
            return Future()


def _worked(function: Callable[[T], R], item: T) -> R:
    before, _thread.works = _thread.works, True
    try:
        return function(item)
    finally:
        _thread.works = before


def _forked() -> None:
    _Workers.lock, _Workers.pool, _Workers.size = threading.Lock(), None, 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
