"""Changes of lifetimes, and chop."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK, format_time
from gpu_ops.devices import Device
from gpu_ops.errors import TimeError
from gpu_ops.operators.checked import checked, evaluated
from gpu_ops.operators.events import Events, check_times, concat
from gpu_ops.operators.operator import EachPiece, Operator, StepInput
from gpu_ops.operators.sizes import expanded
from gpu_ops.plan.lifetimes import (
    AlterLifetime,
    Chop,
    ClipDuration,
    Extend,
    HopLifetime,
    Lifetime,
    PointAtEnd,
    Quantize,
    SetDuration,
    Shift,
    ToPoint,
)

_LONGEST = 1 << 60
"""Ticks: longer than from the first to the last time."""


class CutLifetimes(EachPiece, nodes=(Chop,)):
    """Lifetimes cut at a grid: no piece starts before its event."""

    def each(self, events: Events) -> Events:
        """All pieces of each event.

        Raises:
            TimeError: One never ends.
        """
        node, device, ends = self._node, self._device, events.ends
        if len(events) and int(ends.max()) == MAX_TIME:
            at = int((ends == MAX_TIME).argmax())
            raise TimeError(
                "chop would cut an event that never ends into endlessly many.",
                row=at,
                values=f"start={format_time(int(events.start[at]))}",
                remedy="Bound it first: .clip_duration(…) or .alter_lifetime(end=…).",
            )
        first, last = device.kernels.grid_ranges(events.start, ends, node.period, node.period, node.align)
        pieces = np.maximum(last - first, 0)
        source, offset = expanded(
            pieces, device, what="chop", remedy="Choose a longer period, or filter or clip_duration first."
        )
        take = device.kernels.take
        piece = node.align + (take(first, source) + offset) * node.period
        start = np.maximum(take(events.start, source), piece)
        end = np.minimum(take(ends, source), piece + node.period)
        return Events(start, end, device.columns.take(events.frame, source))


class LifetimeChange(EachPiece, nodes=(Lifetime,)):
    """A change of lifetime. The CTI is moved as starts are."""

    def __init__(self, node: Lifetime, device: Device) -> None:
        super().__init__(node, device)
        self._promised = MIN_TIME

    def each(self, events: Events) -> Events:
        """The events with their lifetimes changed; some may be gone.

        Raises:
            IntegerOverflowError: A time or a duration that an expression gives does not fit its type.
            TimeError: A new lifetime is null or out of range.
        """
        node, device, given = self._node, self._device, self._node.exact_change.given
        if not given:
            return change_lifetimes(node.exact_change, events, device)
        made = checked(node.guards, [*given.values()], events, device)
        return _altered(dict(zip(given, made, strict=True)), events, device)

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """Each event by itself; the CTI is moved as the start of an event would be.

        Raises:
            TimeError: A new start lies before an earlier output CTI: the change does not keep the order of starts.
        """
        node, (cti,) = self._node, ctis
        events = concat([*given[0].events, *given[0].closed], self._device)
        made = None if events is None else self.each(events)
        moved = node.moved_cti(cti)
        if moved is None:
            if made is not None:
                self._check(made)
            new = node.new_start if node.by_start_alone else None
            moved = MIN_TIME if new is None else self._as_start(new, cti)
        self._promised = max(self._promised, moved)
        return StepInput([] if made is None else [made]), self._promised

    def with_open(self) -> Operator | None:
        """Itself, if it waits for the end of an event, and reads it alone."""
        return self if self._node.change.at_end else None

    def _as_start(self, new: nw.Expr, cti: int) -> int:
        """The new start of an event that starts at the CTI."""
        columns = self._device.columns
        schema = pa.schema([each.with_nullable(True) for each in self._node.input.schema])
        nothing = pa.table([pa.nulls(1, each.type) for each in schema], schema=schema)
        one = Events(columns.array(np.array([cti])), TICK, columns.from_arrow(nothing))
        moved, valid = columns.values(evaluated({"__moved": new}, one, self._device), "__moved")
        return int(moved[0]) if valid is None else self._promised

    def _check(self, made: Events) -> None:
        if len(made) and self._device.kernels.extent(made.start)[0] < self._promised:
            at = int((made.start < self._promised).argmax())
            raise TimeError(
                "alter_lifetime moves a start before the CTI that went the same way: "
                f"{format_time(int(made.start[at]))} is before {format_time(self._promised)}.",
                row=at,
                remedy="Let no later start have an earlier new start, or let CTIs wait: advance_time(delay=…).",
            )


@singledispatch
def change_lifetimes(change: Any, events: Events, device: Device) -> Events:
    """The events with their lifetimes changed as ``change`` says; some may be gone."""
    raise TypeError(f"no rule for {change}")


@change_lifetimes.register
def _(change: SetDuration, events: Events, device: Device) -> Events:
    check_times(events.start, change.duration, device, verb="set_duration")
    return Events(events.start, change.duration, events.frame)


@change_lifetimes.register
def _(change: ToPoint, events: Events, device: Device) -> Events:
    check_times(events.start, TICK, device, verb="to_point", order=events.order)
    return events.points(events.frame)


@change_lifetimes.register
def _(change: Shift, events: Events, device: Device) -> Events:
    start = events.start + change.by
    end = events.end if isinstance(events.end, int) else _unless_open(events.end, events.end + change.by)
    check_times(start, end, device, verb="shift")
    return Events(start, end, events.frame)


@change_lifetimes.register
def _(change: Extend, events: Events, device: Device) -> Events:
    if isinstance(events.end, int):
        duration = events.end + change.by
        if duration <= 0:
            return events.take(device.kernels.keep(events.start != events.start), device)
        check_times(events.start, duration, device, verb="extend")
        return Events(events.start, duration, events.frame)
    end = _unless_open(events.end, events.end + change.by)
    check_times(events.start, end, device, verb="extend")
    return Events(events.start, end, events.frame).where(end > events.start, device)


@change_lifetimes.register
def _(change: ClipDuration, events: Events, device: Device) -> Events:
    if isinstance(events.end, int):
        return Events(events.start, min(events.end, change.limit), events.frame)
    return Events(events.start, np.minimum(events.end, events.start + change.limit), events.frame)


@change_lifetimes.register
def _(change: PointAtEnd, events: Events, device: Device) -> Events:
    made = Events(events.ends, TICK, events.frame, order=events.end_order)
    if len(made) and made.first_and_last(device)[1] == MAX_TIME:
        made = made.where(made.start != MAX_TIME, device)
    check_times(made.start, TICK, device, verb="point_at_end", order=made.order)
    return made


@change_lifetimes.register
def _(change: AlterLifetime, events: Events, device: Device) -> Events:
    return _altered(change.given, events, device)


def _altered(given: dict[str, nw.Expr], events: Events, device: Device) -> Events:
    wanted = {f"__{name}": expression for name, expression in given.items()}
    computed = evaluated(wanted, events, device)
    found: dict[str, Any] = {}
    for name in wanted:
        found[name], valid = device.columns.values(computed, name)
        if valid is not None:
            at = int((~valid).argmax())
            raise TimeError(
                f"alter_lifetime gives a null {name[2:]}.",
                row=at,
                values=f"start={format_time(int(events.start[at]))}, end={format_time(int(events.ends[at]))}",
                remedy="Fill it or filter such events out first.",
            )
    start = found.get("__start", events.start)
    if "__duration" in found:
        # Past all valid times, but within int64.
        end = start + np.clip(found["__duration"], -_LONGEST, _LONGEST)
    else:
        end = found.get("__end", events.ends)
    check_times(start, end, device, verb="alter_lifetime")
    return Events(start, end, events.frame).where(end > start, device)


@change_lifetimes.register
def _(change: HopLifetime, events: Events, device: Device) -> Events:
    first, last = device.kernels.grid_ranges_by_start(events.start, change.size, change.hop, change.align)
    start = change.align + first * change.hop
    if change.hop > change.size:
        moved = Events(start, change.size, events.frame).where(last > first, device)
    else:
        moved = Events(start, change.align + last * change.hop, events.frame)
    check_times(moved.start, moved.end, device, verb="hop_lifetime")
    return moved


@change_lifetimes.register
def _(change: Quantize, events: Events, device: Device) -> Events:
    size, hop, align = change.size, change.hop, change.align
    grid = change.progress or hop
    start = (events.start - align) // grid * grid + align
    ends = events.ends
    # The end lies on the grid of window ends, at least one window after the start (Trill).
    least = np.maximum(ends + hop - 1, events.start + size)
    end = _unless_open(ends, (least - align - size) // hop * hop + align + size)
    check_times(start, end, device, verb="quantize")
    return Events(start, end, events.frame)


def _unless_open(ends: Any, moved: Any) -> Any:
    """``moved``, but an open end stays open, and no finite end becomes one."""
    open_ends = ends == MAX_TIME
    # A finite end that lands on the maximum would read as "never ends": one tick past it, so that it is refused.
    return np.where(open_ends, MAX_TIME, np.where(moved == MAX_TIME, MAX_TIME + 1, moved))
