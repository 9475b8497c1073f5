"""Derived-value views: one row of statistics over what is before them, and the row before as what leaves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tests.support.epl_interpreter.values import Event
from tests.support.epl_interpreter.windows import Listed, Place, View

Numbers = list[float]


class Statistics(View):
    """A row of statistics.

    Attributes:
        inputs: How many parameters are the numbers; the others are columns that are copied from the latest event.
    """

    inputs = 0

    def __init__(self, place: Place, keys: Sequence[Any], *arguments: Any) -> None:
        super().__init__(place)
        self._numbers = arguments[: self.inputs]
        self._copied = arguments[self.inputs :]
        # A key that the view has itself is a copied column (Esper adds keys to views that have no such property).
        self._keys = [each for each in keys if str(each) not in map(str, self._copied)]
        self._points: list[Numbers] = []
        self._copies: dict[str, Any] = {str(each): None for each in (*self._copied, *self._keys)}
        self._row: Event | None = None

    def columns(self) -> dict[str, str]:
        """The names of its columns; their types are not known."""
        return dict.fromkeys((*self._values(), *self._copies), "")

    def update(self, new: Listed, old: Listed) -> None:
        for event in new[:1]:  # a group has its keys from the beginning
            self._copies |= {str(each): self.place.value(each, event) for each in self._keys}
        before = self._row or self._made()
        count = len(self._points)
        for event in new:
            if (point := self._point(event)) is not None:
                self._points.append(point)
            self._copies |= {str(each): self.place.value(each, event) for each in (*self._copied, *self._keys)}
        for event in old:
            if (point := self._point(event)) is not None:
                self._points.remove(point)
        if self._tells(count):
            self._row = self._made()
            self.post([self._row], [before])

    def _tells(self, count: int) -> bool:
        """Whether there is a new row, where there were so many points before."""
        return True

    def _point(self, event: Event) -> Numbers | None:
        values = [self.place.value(each, event) for each in self._numbers]
        return None if None in values else [float(each) for each in values]

    def _made(self) -> Event:
        return Event(self.place.source.type_name, self._values() | self._copies)

    def _values(self) -> dict[str, Any]:
        raise NotImplementedError

    def _column(self, at: int) -> Numbers:
        return [point[at] for point in self._points]

    def content(self) -> list[Event]:
        return [self._made()]


class Size(Statistics):
    def _values(self) -> dict[str, Any]:
        return {"size": len(self._points)}

    def _tells(self, count: int) -> bool:
        return len(self._points) != count


def _mean(numbers: Numbers) -> float:
    return math.fsum(numbers) / len(numbers) if numbers else math.nan


def _variance(numbers: Numbers, less: int) -> float:
    if len(numbers) <= less:
        return math.nan
    mean = _mean(numbers)
    return math.fsum((each - mean) ** 2 for each in numbers) / (len(numbers) - less)


class Univariate(Statistics):
    inputs = 1

    def _values(self) -> dict[str, Any]:
        numbers = self._column(0)
        return {
            "datapoints": len(numbers),
            "total": math.fsum(numbers),
            "stddev": math.sqrt(_variance(numbers, 1)),
            "stddevpa": math.sqrt(_variance(numbers, 0)),
            "variance": _variance(numbers, 1),
            "average": _mean(numbers),
        }


class WeightedAverage(Statistics):
    inputs = 2

    def _values(self) -> dict[str, Any]:
        weight = math.fsum(self._column(1))
        total = math.fsum(x * w for x, w in self._points)
        return {"average": total / weight if weight else math.nan}


def _spread(xs: Numbers, ys: Numbers) -> float:
    mean_x, mean_y = _mean(xs), _mean(ys)
    return math.fsum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))


class Correlation(Statistics):
    inputs = 2

    def _values(self) -> dict[str, Any]:
        xs, ys = self._column(0), self._column(1)
        both = math.sqrt(_spread(xs, xs) * _spread(ys, ys)) if xs else 0.0
        return {"correlation": _spread(xs, ys) / both if both else math.nan}


class Regression(Statistics):
    inputs = 2

    def _values(self) -> dict[str, Any]:
        xs, ys = self._column(0), self._column(1)
        spread = _spread(xs, xs) if xs else 0.0
        slope = _spread(xs, ys) / spread if spread else math.nan
        values: dict[str, Any] = {"slope": slope, "YIntercept": _mean(ys) - slope * _mean(xs)}
        for side, numbers in (("X", xs), ("Y", ys)):
            values |= {
                f"{side}Average": _mean(numbers),
                f"{side}StandardDeviationPop": math.sqrt(_variance(numbers, 0)),
                f"{side}StandardDeviationSample": math.sqrt(_variance(numbers, 1)),
                f"{side}Sum": math.fsum(numbers),
                f"{side}Variance": _variance(numbers, 1),
            }
        values |= {"dataPoints": len(xs), "n": len(xs)}
        values |= {"sumX": math.fsum(xs), "sumXSq": math.fsum(x * x for x in xs)}
        values |= {"sumXY": math.fsum(x * y for x, y in self._points)}
        return values | {"sumY": math.fsum(ys), "sumYSq": math.fsum(y * y for y in ys)}


DERIVED: dict[str, Callable[..., Statistics]] = {
    "size": Size,
    "uni": Univariate,
    "weighted_avg": WeightedAverage,
    "correl": Correlation,
    "linest": Regression,
}
