"""Payloads of held rows (buffered rows, and start edges without their end edge), by the number of their arrival."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from gpu_ops.core.polars_frames import to_frame
from gpu_ops.core.sorted_runs import Run, SortedRuns
from gpu_ops.devices.cpu import frames

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _NumberedRows:
    """Rows by ascending number."""

    numbers: Numbers
    frame: pl.DataFrame

    def __len__(self) -> int:
        return len(self.numbers)


class HeldRows(SortedRuns[_NumberedRows]):
    """Rows under their numbers, in runs. Adding, finding and dropping cost what is added, found and dropped, amortised.

    Examples:
        >>> held = HeldRows(pa.schema([("v", pa.int64())]))
        >>> held.hold(np.array([3, 5, 8]), to_frame(pa.table({"v": [30, 50, 80]})))
        >>> held.forget(np.array([5]))
        >>> held.find(np.array([8, 3]))["v"].to_list()
        [80, 30]
        >>> len(held)
        2
    """

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__()
        self._none = to_frame(pa.Table.from_batches([], schema))

    def hold(self, numbers: Numbers, frame: pl.DataFrame) -> None:
        """Add rows; their numbers ascend, and all are above the known ones."""
        self.add(_NumberedRows(numbers, frame))

    def find(self, numbers: Numbers, newer: tuple[int, pl.DataFrame] | None = None) -> pl.DataFrame:
        """The rows with these numbers, in this order.

        Args:
            numbers: Numbers of held rows, or of newer ones.
            newer: Rows that are not held yet, with consecutive numbers, and the number of the first.
        """
        if not len(numbers):
            return self._none
        # Sorted numbers read each run once, from old rows to young ones.
        order = np.argsort(numbers)
        ordered = numbers[order]
        held = len(ordered) if newer is None else int(np.searchsorted(ordered, newer[0]))
        parts = [(run.rows.frame, at) for run, at in self._by_run(ordered[:held])]
        if newer is not None and held < len(ordered):
            parts.append((newer[1], ordered[held:] - newer[0]))
        back = np.empty(len(numbers), np.int64)
        back[order] = np.arange(len(numbers))
        if len(parts) == 1:
            frame, at = parts[0]
            return frames.rows_at(frame, at[back])
        return frames.rows_at(pl.concat([frames.rows_at(*part) for part in parts]), back)

    def forget(self, numbers: Numbers) -> None:
        """Forget the rows with these numbers."""
        for run, at in self._by_run(np.sort(numbers)):
            self.drop(run, at)
        self.runs = self._tidied()

    def _by_run(self, ordered: Numbers) -> list[tuple[Run[_NumberedRows], npt.NDArray[np.intp]]]:
        """The runs that hold these ascending numbers, and the places there."""
        firsts = np.array([run.rows.numbers[0] for run in self.runs], np.int64)
        bounds = [*np.searchsorted(ordered, firsts).tolist(), len(ordered)]
        return [
            (run, np.searchsorted(run.rows.numbers, ordered[low:high]))
            for run, (low, high) in zip(self.runs, pairwise(bounds), strict=True)
            if low < high
        ]

    def _rest(self, run: Run[_NumberedRows]) -> _NumberedRows:
        if run.gone is None:
            return run.rows
        kept = np.flatnonzero(~run.gone)
        return _NumberedRows(run.rows.numbers[kept], frames.rows_at(run.rows.frame, kept))

    def _merged(self, pieces: Sequence[_NumberedRows]) -> _NumberedRows:
        frame = pl.concat([each.frame for each in pieces], rechunk=True)
        return _NumberedRows(np.concatenate([each.numbers for each in pieces]), frame)
