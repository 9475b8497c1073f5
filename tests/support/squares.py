"""A grid of windows that a user declares."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import Any

from gpu_ops.extend import GridKind


@dataclass(frozen=True)
class Squares(GridKind):
    """Windows from the square of one whole number to that of the next, in some unit; before 0 they are mirrored."""

    unit: int

    def begins(self, numbers: Any) -> Any:
        return numbers * abs(numbers) * self.unit

    def finishes(self, numbers: Any) -> Any:
        return self.begins(numbers + 1)

    def around(self, time: int) -> tuple[int, int]:
        root = isqrt(abs(time) // self.unit)
        number = root if time >= 0 else -root
        return number - 2, number + 2
