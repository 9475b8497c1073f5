"""What comes in: inserts, start edges, end edges and CTIs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpu_ops.ingest.zones import Ticks


class ArrivalKind(IntEnum):
    """The kind of a row (StreamInsight: event kind, and edge type)."""

    INSERT = 0
    """A whole event, point or interval."""
    START = 1
    """A start edge: the event has begun, its end is not known yet."""
    END = 2
    """An end edge: the event with this ``start`` and payload ends at ``end``."""
    CTI = 3
    """A current time increment: no later row starts before ``start``, and no later end edge ends before it."""


class Extent(NamedTuple):
    """Where lifetimes are: the least start, the greatest start and the greatest end."""

    first: int
    last: int
    end: int


@dataclass(frozen=True)
class Arrivals:
    """Valid rows in their order of arrival.

    Attributes:
        start: int64 ticks; the time of a CTI, the original start of an end edge.
        end: int64 ticks, each after its start; None for points, which last one tick. The end of a start edge or a CTI
            is not read.
        payload: The other columns; the number of rows is right even without columns.
        kinds: int8, a `ArrivalKind` for each row; None if all are inserts.
        row: The index of the first row in the source.
        rows: The index of each row, if rows between them were dropped.
        extent: Where the lifetimes are, if the pass that checked them told.
        point_ends: The ends of points, if they were asked for and are made already.

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
    extent: Extent | None = None
    point_ends: Ticks | None = None

    def source_row(self, at: int) -> int:
        """The index of a row in the source."""
        return self.row + at if self.rows is None else int(self.rows[at])
