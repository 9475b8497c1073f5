"""A timer: a thread that calls a function every so often."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

from gpu_ops.core.time import Duration, ticks
from gpu_ops.errors import PlanError

_PATIENCE = 0.05
"""How many seconds the thread waits for the lock before it looks whether it is to stop."""


class Timer:
    """A thread that calls a function every so often, and ends with the process.

    Args:
        tick: The function.
        lock: Held by whoever else calls it; who stops the timer may hold it too.
        every: The time from one call to the next.
        errors: Where it is noted what the function raises.

    Raises:
        PlanError: The time is shorter than a millisecond.
    """

    def __init__(
        self, tick: Callable[[], Any], lock: threading.RLock, every: Duration, errors: list[tuple[str, Exception]]
    ) -> None:
        self._seconds = ticks(every, name="every") / 1e6
        if self._seconds < 0.001:
            raise PlanError(f"every is {every}.", remedy="Give a millisecond or more.")
        self._tick, self._lock, self._errors = tick, lock, errors
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu_ops timer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop: when this returns, the function is not called any more, but by a call that this one is within."""
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        due = monotonic() + self._seconds
        while not self._stopped.wait(max(due - monotonic(), 0)):
            if not self._lock.acquire(timeout=_PATIENCE):
                continue
            try:
                if not self._stopped.is_set():
                    self._tick()
            except Exception as error:  # noqa: BLE001  (the clock goes on)
                self._errors.append(("timer", error))
            finally:
                self._lock.release()
            due = max(due + self._seconds, monotonic())
