"""What comes in: rows that say that an event is there, starts or ends, or how far time has come."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpu_ops.ingest.zones import Ticks


class ArrivalKind(IntEnum):
    """What a row is (StreamInsight: event kind and, of edges, edge type)."""

    INSERT = 0
    """An event, point or interval: its lifetime is known."""
    START = 1
    """A start edge: the end is not known yet."""
    END = 2
    """An end edge: the event that started at ``start`` with this payload ends at ``end``."""
    CTI = 3
    """A current time increment: from now on nothing starts, and no end edge ends, before ``start``."""


@dataclass(frozen=True)
class Arrivals:
    """Rows in their order of arrival, each of which keeps the rules of lifetimes.

    Attributes:
        start: int64 ticks; of a CTI its time, of an end edge the start of the event that it ends.
        end: int64 ticks, each after its start; None for points, which last one tick. Nothing is read under a start
            edge or a CTI.
        payload: The other columns, a row for each arrival even where there is no column.
        kinds: int8, a `ArrivalKind` for each; None where all are inserts.
        row: The index of the first of them in the source.
        rows: The index of each, where rows between them were left out.

    Examples:
        >>> both = Arrivals(np.array([5, 9]), np.array([6, 0]), pa.table({"v": [1, None]}), np.array([0, 3], np.int8))
        >>> [ArrivalKind(kind).name for kind in both.kinds]
        ['INSERT', 'CTI']
    """

    start: Ticks
    end: Ticks | None
    payload: pa.Table
    kinds: npt.NDArray[np.int8] | None = None
    row: int = 0
    rows: npt.NDArray[np.int64] | None = None

    def source_row(self, at: int) -> int:
        """The index in the source of one of them."""
        return self.row + at if self.rows is None else int(self.rows[at])
