"""A progress bar for long work, in a terminal or a notebook; nothing elsewhere, and nothing for short work."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from gpu_ops.ingest.sources import EventSource

SECONDS_BEFORE_SHOWN = 1.0


class Progress:
    """Counts rows read and results given, and shows them once the work has taken a second.

    Examples:
        >>> with Progress(total=2) as progress:
        ...     progress.read(2)
        ...     progress.gave(1)
    """

    def __init__(self, total: int | None) -> None:
        self._total = total
        self._rows_read = self._rows_given = 0
        self._began = time.monotonic()
        self._bar: Any = None
        self._task: Any = None
        self._wanted = _is_watched()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def read(self, rows: int) -> None:
        """Count rows that were read from sources."""
        self._rows_read += rows
        self._show()

    def gave(self, rows: int) -> None:
        """Count rows of the answer."""
        self._rows_given += rows
        self._show()

    def _show(self) -> None:
        if not self._wanted or (self._bar is None and time.monotonic() - self._began < SECONDS_BEFORE_SHOWN):
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("", total=self._total)
            self._bar.start()
        described = f"{self._rows_read:,} rows read, {self._rows_given:,} results"
        self._bar.update(self._task, completed=self._rows_read, description=described)


def known_rows(sources: Iterable[EventSource]) -> int | None:
    """How many rows some sources have in all; None if one of them does not know."""
    counts = [each.rows for each in sources]
    return None if None in counts else sum(count for count in counts if count is not None)


def _is_watched() -> bool:
    if "ipykernel" in sys.modules:
        return True
    return sys.stderr is not None and sys.stderr.isatty()
