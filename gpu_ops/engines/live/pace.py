"""When a follower writes a checkpoint and when it stops: counts, time and signals."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

from gpu_ops.core.time import Duration, positive_ticks
from gpu_ops.errors import PlanError


class Pace:
    """When something is due: after a number of steps, or at the first step after a span of time.

    Args:
        every: Steps, or a time such as ``"10s"``.

    Examples:
        >>> pace = Pace(2)
        >>> pace.step()
        >>> pace.due()
        False
        >>> pace.step()
        >>> pace.due()
        True
    """

    def __init__(self, every: int | Duration) -> None:
        self._steps = self._seconds = None
        if isinstance(every, int):
            if every < 1:
                raise PlanError("A checkpoint is made after one batch or more.", remedy="Give every=1 or more.")
            self._steps = every
        else:
            self._seconds = positive_ticks(every, name="every") / 1_000_000
        self.begin()

    @property
    def counts(self) -> bool:
        """Whether it counts steps, and not time."""
        return self._steps is not None

    def begin(self) -> None:
        """Count from now on."""
        self.waiting = 0
        self._since = time.monotonic()

    def step(self) -> None:
        """Count a step."""
        self.waiting += 1

    def due(self) -> bool:
        """Whether it is due."""
        if self._seconds is not None:
            return self.waiting > 0 and time.monotonic() - self._since >= self._seconds
        return self._steps is not None and self.waiting >= self._steps


@contextmanager
def stopping(signals: Iterable[int]) -> Iterator[Callable[[], int | None]]:
    """Catch signals within the block. A second signal has the effect that it had before the block.

    Args:
        signals: The signals' numbers.

    Yields:
        A function that gives the signal that came, or None.

    Raises:
        PlanError: This is not the main thread, the only one that gets signals.
    """
    caught: list[int] = []
    before: dict[int, signal._HANDLER] = {}
    if signals and threading.current_thread() is not threading.main_thread():
        raise PlanError(
            "Only the main thread gets signals.", remedy="Leave stop_on= out, or follow the store in the main thread."
        )

    def give_back() -> None:
        for each, handler in before.items():
            signal.signal(each, signal.SIG_DFL if handler is None else handler)

    def note(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        give_back()

    try:
        for each in signals:
            before[each] = signal.signal(each, note)
        yield lambda: caught[0] if caught else None
    finally:
        give_back()
