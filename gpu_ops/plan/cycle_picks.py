"""What the window of a partition keeps: the kinds that StreamCruncher has, in cycles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from gpu_ops.core.turns import CLOCK
from gpu_ops.core.types import storage
from gpu_ops.errors import ColumnError, PlanError, unknown_column

Size = int | str
"""A number, or the column that says it: of a key's windows the row says it that each begins with."""


@dataclass(frozen=True)
class CyclePick:
    """A kind of windows."""

    @property
    def asks(self) -> tuple[Literal["new", "dead"], ...]:
        """What happens to rows in cycles beside those in which rows come: they had to wait, or their time is up."""
        return ("new",)

    @property
    def sizes(self) -> Mapping[str, Size | None]:
        """Its sizes, by what errors call them."""
        return {}

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return tuple(size for size in self.sizes.values() if isinstance(size, str))

    def check(self, schema: pa.Schema) -> None:
        """Refuse rows of which it cannot make windows.

        Raises:
            ColumnError: A column is missing, or of another type.
            PlanError: A size is none.
        """
        for said, size in self.sizes.items():
            if isinstance(size, int) and size < 1:
                raise PlanError(f"{said} is {size}.", remedy="Give 1 or more.")
        for name in self.reads:
            if name not in schema.names:
                raise unknown_column(name, schema.names, what="the stream")
        for said, size in self.sizes.items():
            if isinstance(size, str) and not pa.types.is_integer(storage(schema.field(size).type)):
                raise ColumnError(f"{said} is no column of whole numbers.", column=size, remedy="Cast it first.")


@dataclass(frozen=True)
class LastRows(CyclePick):
    """The last rows: a full window takes one in each cycle, and expels the oldest (``store last N``).

    Attributes:
        n: How many.
        waiting: How many rows may wait for a full window; what is above is dropped, the oldest first. None for any.
    """

    n: Size
    waiting: int | None = None

    @property
    def sizes(self) -> Mapping[str, Size | None]:
        return {"n": self.n}

    def __str__(self) -> str:
        return f"last {self.n}{'' if self.waiting is None else f' waiting {self.waiting}'}"


@dataclass(frozen=True)
class RandomRows(CyclePick):
    """The same of rows that a coin takes (``store random N``).

    Attributes:
        n: How many.
        seed: What the coin depends on beside the row's place among all.
    """

    n: Size
    seed: int = 0

    @property
    def sizes(self) -> Mapping[str, Size | None]:
        return {"n": self.n}

    def __str__(self) -> str:
        return f"random {self.n} seed {self.seed}"


@dataclass(frozen=True)
class LatestRows(CyclePick):
    """At most some rows for one cycle: the next one expels all, whatever it runs for (``store latest N``).

    Attributes:
        n: How many.
    """

    n: Size

    @property
    def sizes(self) -> Mapping[str, Size | None]:
        return {"n": self.n}

    def __str__(self) -> str:
        return f"latest {self.n}"


@dataclass(frozen=True)
class LastMilliseconds(CyclePick):
    """Rows until the clock is a span behind their own time (``store last N seconds``).

    Attributes:
        span: The span, in milliseconds.
        stamp: The column with a row's own time: a time, or whole milliseconds.
        most: How many rows a window holds; None for any number. A cycle takes as many at most, and expels rows of
            earlier cycles for them, the oldest first.
    """

    span: Size
    stamp: str = CLOCK
    most: Size | None = None

    @property
    def sizes(self) -> Mapping[str, Size | None]:
        return {"span": self.span, **({} if self.most is None else {"most": self.most})}

    @property
    def asks(self) -> tuple[Literal["new", "dead"], ...]:
        return ("dead",) if self.most is None else ("new", "dead")

    @property
    def reads(self) -> tuple[str, ...]:
        return (*super().reads, self.stamp)

    def check(self, schema: pa.Schema) -> None:
        super().check(schema)
        dtype = storage(schema.field(self.stamp).type)
        if not (pa.types.is_timestamp(dtype) or pa.types.is_signed_integer(dtype)):
            raise ColumnError(
                f"A row's own time is a time, or whole milliseconds; this is {dtype}.",
                column=self.stamp,
                remedy="Cast it first.",
            )

    def __str__(self) -> str:
        return f"last {self.span} ms of {self.stamp}{'' if self.most is None else f' most {self.most}'}"


@dataclass(frozen=True)
class BestRows(CyclePick):
    """The rows with the highest values, or the lowest (``store highest N using column``); of equal ones the newest.

    Attributes:
        n: How many.
        column: The column of the values. Rows with null and NaN never enter.
        highest: Whether the highest are kept.
        group: The columns of which a row expels those of earlier cycles with equal values (``with update group``).
    """

    n: Size
    column: str
    highest: bool = True
    group: tuple[str, ...] = ()

    @property
    def sizes(self) -> Mapping[str, Size | None]:
        return {"n": self.n}

    @property
    def asks(self) -> tuple[Literal["new", "dead"], ...]:
        return ()

    @property
    def reads(self) -> tuple[str, ...]:
        return (*super().reads, self.column, *self.group)

    def check(self, schema: pa.Schema) -> None:
        super().check(schema)
        dtype = storage(schema.field(self.column).type)
        if pa.types.is_nested(dtype):
            raise ColumnError(f"Values of {dtype} have no order.", column=self.column, remedy="Take another column.")

    def __str__(self) -> str:
        group = f" update {', '.join(self.group)}" if self.group else ""
        return f"{'highest' if self.highest else 'lowest'} {self.n} of {self.column}{group}"
