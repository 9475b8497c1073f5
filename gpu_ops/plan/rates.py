"""Output rates: when what a statement has gathered is output, and the node that gathers it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import narwhals as nw
import numpy as np

from gpu_ops.core.time import MIN_TIME
from gpu_ops.errors import PlanError
from gpu_ops.ingest.zones import Ticks
from gpu_ops.plan.crontab import Crontab

_DAY = 86_400_000_000


@dataclass(frozen=True)
class Period:
    """A span of calendar months and of ticks, in UTC.

    Examples:
        >>> (Period(months=1).later(np.array([30 * 86_400_000_000])) // 86_400_000_000).tolist()
        [58]
    """

    ticks: int = 0
    months: int = 0

    def __post_init__(self) -> None:
        if self.ticks < 0 or self.months < 0 or not self.ticks + self.months:
            raise PlanError("An output rate needs a time above 0.", remedy="Say for instance: every 1 sec.")

    def later(self, times: Ticks) -> Ticks:
        """Times this much later, in ticks; a day that a month does not have is its last one (Java's calendar)."""
        if self.months:
            month = times.view("datetime64[us]").astype("datetime64[M]")
            day, rest = np.divmod(times - month.astype("datetime64[us]").astype(np.int64), _DAY)
            then = month + self.months
            length = ((then + 1).astype("datetime64[D]") - then.astype("datetime64[D]")).astype(np.int64)
            times = then.astype("datetime64[us]").astype(np.int64) + np.minimum(day, length - 1) * _DAY + rest
        return times + self.ticks


@dataclass(frozen=True)
class EveryRows:
    """As soon as so many rows have entered, or so many have left, since the last time."""

    rows: int

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise PlanError(
                f"An output rate of {self.rows} events is none.", remedy="Say for instance: every 3 events."
            )

    def __str__(self) -> str:
        return f"every {self.rows} rows"


@dataclass(frozen=True)
class EveryPeriod:
    """On a grid that begins when the first rows come, whether there are rows or not."""

    period: Period

    def __str__(self) -> str:
        months = f"{self.period.months} months " if self.period.months else ""
        return f"every {months}{self.period.ticks / 1_000_000:g} s"


@dataclass(frozen=True)
class AtTimes:
    """At the times of a crontab, from the first rows on."""

    crontab: Crontab

    def __str__(self) -> str:
        return f"at {self.crontab}"


COUNTS = ("count_insert", "count_remove", "count_insert_total", "count_remove_total")
"""How many rows entered and left, since the last output and altogether."""

LAST_OUTPUT = "last_output_timestamp"
"""When the last output was, in milliseconds since 1970; before it, when the statement began."""


@dataclass(frozen=True, eq=False)
class When:
    """As soon as a condition holds behind a delivery. It reads `COUNTS`, `LAST_OUTPUT`, and columns of the marks."""

    condition: nw.Expr

    def __str__(self) -> str:
        return f"when {self.condition!r}"


Condition: TypeAlias = EveryRows | EveryPeriod | AtTimes | When


@dataclass(frozen=True)
class Rate:
    """When there is output.

    Attributes:
        every: When; None at once, whenever there are rows.
        after_rows: How many rows must have entered before any output; None for no such condition.
        after: How much time must have passed.
        since: The clock at which the statement began, in ticks.
    """

    every: Condition | None = None
    after_rows: int | None = None
    after: Period | None = None
    since: int = MIN_TIME

    @property
    def posts_empty(self) -> bool:
        """Whether there is an empty delivery where no row is to be shown: a count alone posts none."""
        return self.every is not None and not isinstance(self.every, EveryRows)

    def __str__(self) -> str:
        after = "" if self.after_rows is None else f"after {self.after_rows} rows "
        if self.after is not None:
            after = f"after {str(EveryPeriod(self.after)).removeprefix('every ')} "
        return f"{after}{self.every or 'at once'}"
