"""What tasks sorted in files, as their memory did not hold it: counted on the driver by an accumulator of Spark's.

A task that fails and runs again is counted again, as are those that Spark runs twice.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from pyspark import SparkContext
from pyspark.accumulators import Accumulator, AccumulatorParam

from gpu_ops.engines.local.in_order import Spill

Counts = tuple[int, int, int]
"""Tasks, files, bytes."""


@dataclass(frozen=True)
class Spilled:
    """What the tasks of one answer sorted in files.

    Attributes:
        tasks: How many tasks did.
        files: In how many files.
        size: How many bytes of events, as memory would have held them.
    """

    tasks: int = 0
    files: int = 0
    size: int = 0

    def __str__(self) -> str:
        return f"{self.tasks:,} tasks sorted {self.size:,} bytes of events in {self.files:,} files"


class _Sums(AccumulatorParam[dict[int, Counts]]):
    """Counts by the number of the answer."""

    def zero(self, value: dict[int, Counts]) -> dict[int, Counts]:
        return {}

    def addInPlace(self, value1: dict[int, Counts], value2: dict[int, Counts]) -> dict[int, Counts]:  # noqa: N802
        for number, counts in value2.items():
            before = value1.get(number, (0, 0, 0))
            value1[number] = (before[0] + counts[0], before[1] + counts[1], before[2] + counts[2])
        return value1


_NUMBERS = itertools.count()
# One for each context, as Spark never forgets an accumulator.
_SUMS: WeakKeyDictionary[SparkContext, Accumulator[dict[int, Counts]]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Spills:
    """Where the tasks of one answer say what they sorted in files.

    Attributes:
        sums: The context's accumulator.
        number: The answer's.
    """

    sums: Any
    number: int

    @classmethod
    def of(cls, context: SparkContext) -> Spills:
        """For a new answer."""
        if context not in _SUMS:
            _SUMS[context] = context.accumulator({}, _Sums())
        return cls(_SUMS[context], next(_NUMBERS))

    def add(self, spill: Spill) -> None:
        """Called in a task."""
        self.sums.add({self.number: (1, spill.files, spill.size)})

    def total(self) -> Spilled:
        """What has been said so far; asked on the driver."""
        return Spilled(*self.sums.value.get(self.number, ()))
