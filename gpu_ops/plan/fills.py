"""Results for windows without events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import pyarrow as pa

from gpu_ops.core.time import format_time
from gpu_ops.errors import PlanError, shown, unknown_column
from gpu_ops.plan.nodes import Node, Unary
from gpu_ops.plan.window_kinds import GridKind
from gpu_ops.plan.windows import WindowAggregate

FillValue = Literal["null", "zero", "last"]


@dataclass(frozen=True, eq=False)
class Fill(Unary):
    """Results for the windows of a grid that hold no event, for each group by itself.

    Attributes:
        window: The grid.
        group: The columns that distinguish groups.
        values: The value of each result in such a row: null, zero, or the result of the group's last window.
        span: The span to fill, in ticks; None for each group from its first window to its last.
    """

    window: GridKind
    group: tuple[str, ...]
    values: Mapping[str, FillValue]
    span: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        """Refuse values that a column cannot hold."""
        for name, value in self.values.items():
            dtype = self.schema.field(name).type if name in self.schema.names else None
            if value == "zero" and dtype is not None and not _has_zero(dtype):
                raise PlanError(
                    f"There is no zero of {dtype} to fill {name!r} with.",
                    remedy=f'Say what each takes: fill={{"{name}": "null"}}, or "last".',
                )

    stateless = False

    gathers = True

    @property
    def together(self) -> tuple[str, ...]:
        return self.group

    @property
    def time_rule(self) -> str:
        if self.span is None:
            return "CTI T leaves as T, or as the start of the first window that may still be empty for some group"
        return "CTI T leaves as T, or as the start of the span while it is being filled"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        return [tuple(dict.fromkeys((*self.group, *wanted)))]

    def describe(self) -> str:
        kinds = set(self.values.values())
        said = kinds.pop() if len(kinds) == 1 else ", ".join(f"{name}={value}" for name, value in self.values.items())
        over = "" if self.span is None else f" from {format_time(self.span[0])} to {format_time(self.span[1])}"
        return f"Fill {said}{over}"


def fill_values(fill: Any) -> FillValue | Mapping[str, FillValue]:
    """Checks the argument ``fill=``, whatever the windows' results are.

    Raises:
        PlanError: It is no known word, or no text.
    """
    words = fill.values() if isinstance(fill, Mapping) else [fill]
    for each in words:
        if not isinstance(each, str) or each not in get_args(FillValue):
            zero = isinstance(each, int | float) and not isinstance(each, bool) and each == 0
            raise PlanError(
                f"fill={shown(each)} is no way to fill a window without events.",
                remedy='Write fill="zero".'
                if zero
                else 'It is "null", "zero" or "last"; or one of these by name: '
                'fill={"n": "zero"}. Another value: fill="null", then .with_columns(n=g.col("n").fill_null(7)).',
            )
    return fill  # type: ignore[no-any-return]


def _has_zero(dtype: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(dtype)
        or pa.types.is_floating(dtype)
        or pa.types.is_decimal(dtype)
        or pa.types.is_duration(dtype)
    )


def filled(
    results: Node,
    windows: WindowAggregate,
    fill: FillValue | Mapping[str, FillValue],
    span: tuple[int, int] | None = None,
) -> Fill:
    """Results of windows, with rows for windows without events.

    Args:
        results: The results of windows with events.
        windows: The windows, which form a grid.
        fill: One word for all results, or a word for each (``"null"`` for the others).
        span: The span to fill, in ticks.

    Raises:
        PlanError: The windows form no grid, or a column's type has no zero.
    """
    grid = windows.window.grid
    if grid is None:
        raise PlanError("Only windows of a grid can be filled.", remedy="Fill hopping, tumbling or calendar windows.")
    names = [name for name in results.schema.names if name not in windows.group]
    given = dict(fill) if isinstance(fill, Mapping) else dict.fromkeys(names, fill)
    for name in given:
        if name not in names:
            raise unknown_column(name, names, what="window's result")
    values = {name: given.get(name, "null") for name in names}
    return Fill(results, grid, windows.group, values, span)
