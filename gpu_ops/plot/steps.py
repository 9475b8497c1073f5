"""Values over time as steps: each value is a level from its start to its end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl
import pyarrow as pa

from gpu_ops.core.time import MAX_TIME, MIN_TIME, TIME_TYPE
from gpu_ops.errors import PlanError
from gpu_ops.plot.pictures import COLORS, GREY, check_columns, natural, show_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

MOST_SERIES = 8
"""More series than this are hard to tell apart: the smallest are drawn in grey, and stacked as one."""

_PIXELS = 1500


def draw_steps(
    table: pa.Table, axes: Axes, values: list[str], groups: list[str], shape: Literal["lines", "stacked"]
) -> None:
    """Each value as a level from its start to its end, a series for each group; see `gpu_ops.plot.timeline`."""
    series = _series(table, values, groups)
    drawn = sorted(series, key=_Series.area, reverse=True)[:MOST_SERIES]
    draw = _draw_stacked if shape == "stacked" else _draw_lines
    draw(axes, [each for each in series if each in drawn], [each for each in series if each not in drawn])
    _label_axes(axes, table.schema, values, series)
    if len(series) > 1:
        # Beside the picture; the names of areas are in the order of their layers.
        axes.legend(
            loc="upper left",
            bbox_to_anchor=(1, 1),
            alignment="left",
            frameon=False,
            title=" ".join(groups) or None,
            reverse=shape == "stacked",
        )


@dataclass(frozen=True, eq=False)
class _Series:
    """Levels in the order of their times, which are ticks; no two overlap."""

    name: str
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    level: NDArray[np.float64]

    def area(self) -> float:
        return float(np.abs(self.level) @ (self.end - self.start))

    def at(self, times: NDArray[np.int64], *, absent: float) -> NDArray[np.float64]:
        """The level at each time, ``absent`` where there is none."""
        place = np.searchsorted(self.start, times, side="right") - 1
        alive = (place >= 0) & (times < self.end[place])
        return np.where(alive, self.level[place], absent)


def _series(table: pa.Table, values: list[str], groups: list[str]) -> list[_Series]:
    check_columns(table, [*values, *groups])
    for name in values:
        dtype = table.schema.field(name).type
        if not (pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype)):
            raise PlanError(f"timeline draws numbers, but {name!r} is {dtype}.", remedy="Count it, or convert it.")
    times = [table[name].cast(TIME_TYPE).cast(pa.int64()).to_numpy() for name in ("start", "end")]
    levels = table.select(values).rename_columns([f"level {name}" for name in values])
    frame = pl.DataFrame(levels).select(pl.all().cast(pl.Float64)).with_columns(_start=times[0], _end=times[1])
    frame = frame.hstack(pl.DataFrame(table.select(groups))).sort("_start")
    parts = frame.partition_by(groups, as_dict=True) if groups else {(): frame}

    hop = _hop(frame["_start"].to_numpy(), parts.values())
    # Events that never end are drawn a little beyond all others.
    known = np.concatenate([times[0], times[1][times[1] < MAX_TIME]])
    last = known.max() + max(int(np.ptp(known)) // 20, 1) if known.size else MAX_TIME
    series = []
    for key in sorted(parts, key=natural):
        for name in values:
            part = parts[key].select("_start", "_end", f"level {name}").filter(pl.col(f"level {name}").is_finite())
            start, end, level = (column.to_numpy() for column in part)
            end = np.minimum(end, last)
            start = np.maximum(start, end - hop)
            if (start[1:] < end[:-1]).any():
                raise PlanError(
                    f"{name!r} has several values at a time.",
                    remedy="Name in by= the columns that tell them apart, or aggregate them.",
                )
            if start.size:
                text = " ".join([*map(str, key), *([name] if len(values) > 1 or not key else [])])
                series.append(_Series(text, start, end, level))
    if not series:
        raise PlanError("There is nothing to draw: the result has no finite value.", remedy="See what a filter left.")
    return series


def _hop(starts: NDArray[np.int64], parts: Iterable[pl.DataFrame]) -> int:
    """The span from one window to the next if windows overlap; else more than any lifetime."""
    overlap = any((part["_start"].to_numpy()[1:] < part["_end"].to_numpy()[:-1]).any() for part in parts)
    steps = np.diff(np.unique(starts))
    return int(steps.min()) if overlap and steps.size else MAX_TIME - MIN_TIME


def _draw_lines(axes: Axes, series: list[_Series], others: list[_Series]) -> None:
    for each in others:
        times, (level,) = _pixels(*_levels([[each]], absent=np.nan))
        label = _others(others) if each is others[0] else None
        axes.step(times, level, where="post", color=GREY, linewidth=0.8, label=label)
    for each, color in zip(series, COLORS, strict=False):
        times, (level,) = _pixels(*_levels([[each]], absent=np.nan))
        axes.step(times, level, where="post", color=color, linewidth=1.5, label=each.name)


def _draw_stacked(axes: Axes, series: list[_Series], others: list[_Series]) -> None:
    if any((each.level < 0).any() for each in (*series, *others)):
        raise PlanError("Negative values cannot be stacked.", remedy='Use shape="lines".')
    layers = [(each.name, color, [each]) for each, color in zip(series, COLORS, strict=False)]
    if others:
        layers.append((_others(others), GREY, others))
    times, levels = _pixels(*_levels([members for _, _, members in layers], absent=0.0))
    roofs = np.cumsum(levels, axis=0)
    for (name, color, _), floor, roof in zip(layers, [0, *roofs], roofs, strict=False):
        axes.fill_between(times, floor, roof, step="post", color=color, linewidth=0, label=name)
    axes.set_ylim(bottom=0)


def _others(others: list[_Series]) -> str:
    return others[0].name if len(others) == 1 else f"{len(others)} others"


def _levels(layers: list[list[_Series]], *, absent: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """All times at which a level changes, and each layer's sum from each of them to the next."""
    times = np.unique(np.concatenate([bound for layer in layers for each in layer for bound in (each.start, each.end)]))
    return times, np.stack([np.sum([each.at(times, absent=absent) for each in layer], axis=0) for layer in layers])


def _pixels(
    times: NDArray[np.int64], levels: NDArray[np.float64]
) -> tuple[NDArray[np.datetime64], NDArray[np.float64]]:
    """As many steps as a picture can show: for each pixel, the step with the largest total and the last step."""
    if times.size > 2 * _PIXELS:
        pixel = (times - times[0]) // (int(np.ptp(times)) // _PIXELS + 1)
        first = np.flatnonzero(np.diff(pixel, prepend=-1))
        last = np.append(first[1:], times.size) - 1
        total = np.nan_to_num(levels.sum(axis=0), nan=-np.inf)
        largest = np.lexsort((total, pixel))[last]
        times = np.stack([times[first], times[last]], axis=1).ravel()
        levels = levels[:, np.stack([largest, last], axis=1).ravel()]
    return times.view("datetime64[us]"), levels


def _label_axes(axes: Axes, schema: pa.Schema, values: list[str], series: list[_Series]) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    show_time(axes, schema)
    axes.margins(x=0)
    if all(pa.types.is_integer(schema.field(name).type) for name in values):
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if max(np.abs(each.level).max() for each in series) >= 10_000:
        axes.yaxis.set_major_formatter(EngFormatter(sep=" "))
    axes.set_ylabel(", ".join(values))
    axes.grid(alpha=0.25)
