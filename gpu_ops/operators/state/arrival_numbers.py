"""The numbers of the rows that an operator keeps, among all that ever came to it."""

from __future__ import annotations

from typing import Any

import numpy as np


class ArrivalNumbers:
    """They ascend, as the rows that are kept stay in the order in which they came.

    Attributes:
        came: How many rows ever came.

    Examples:
        >>> numbers = ArrivalNumbers()
        >>> numbers.add(3)
        >>> numbers.keep([0, 2])
        >>> numbers.add(2)
        >>> numbers.every.tolist()
        [0, 2, 3, 4]
    """

    def __init__(self) -> None:
        # Those of the rows that were there when some went last, and how many are kept.
        self._known, self._count = np.zeros(0, np.int64), 0
        self.came = 0

    def add(self, rows: int) -> None:
        """So many rows come."""
        self._count += rows
        self.came += rows

    def keep(self, at: Any) -> None:
        """Of the rows that are kept only those at some places, which ascend, stay."""
        self._known = self.every[at]
        self._count = len(self._known)

    @property
    def every(self) -> Any:
        """int64: the number of each row that is kept."""
        return np.concatenate([self._known, np.arange(self.came - self._count + len(self._known), self.came)])

    def restore(self, numbers: Any, came: int | None) -> None:
        """Rows with these numbers are kept, of so many that ever came; None where nobody knows."""
        self._known, self._count = numbers, len(numbers)
        self.came = max(came or 0, int(numbers[-1]) + 1 if len(numbers) else 0)
