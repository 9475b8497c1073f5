"""How much tasks sorted in files because their memory did not hold it: counted on the driver by a Spark accumulator.

A task that runs twice counts twice: because it failed, or because Spark ran a copy.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from pyspark import SparkContext
from pyspark.accumulators import Accumulator, AccumulatorParam

from gpu_ops.engines.local.in_order import Spill

Sizes = dict[int, int]
"""Bytes by the number of the answer."""


class _CountsPerAnswer(AccumulatorParam[Sizes]):
    """Sums of sizes."""

    def zero(self, value: Sizes) -> Sizes:
        return {}

    def addInPlace(self, value1: Sizes, value2: Sizes) -> Sizes:  # noqa: N802
        for number, size in value2.items():
            value1[number] = value1.get(number, 0) + size
        return value1


_NUMBERS = itertools.count()
# One for each context, as Spark never forgets an accumulator.
_SUMS: WeakKeyDictionary[SparkContext, Accumulator[Sizes]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Spills:
    """Where the tasks of one answer report what they sort in files.

    Attributes:
        sums: The context's accumulator.
        number: The answer's number.
    """

    sums: Any
    number: int

    @classmethod
    def of(cls, context: SparkContext) -> Spills:
        """For a new answer."""
        if context not in _SUMS:
            _SUMS[context] = context.accumulator({}, _CountsPerAnswer())
        return cls(_SUMS[context], next(_NUMBERS))

    def add(self, spill: Spill) -> None:
        """Report a spill; called in a task."""
        self.sums.add({self.number: spill.size})

    def size(self) -> int:
        """How many bytes of events have been reported so far, as memory would have held them; called on the driver."""
        return int(self.sums.value.get(self.number, 0))
