"""Expressions whose integers are checked for overflow; an error names the first row that overflows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import format_time
from gpu_ops.devices import Device
from gpu_ops.errors import IntegerOverflowError
from gpu_ops.operators.cudf_expressions import steps_on
from gpu_ops.operators.events import Events
from gpu_ops.plan.expressions import column_names
from gpu_ops.plan.integers import Guard, Known, Tests, by_type
from gpu_ops.plan.terms import Range

REMEDY = "Cast what it reads to a type that holds the result: g.col(…).cast(g.Float64), or to a decimal."


def extents(events: Events, device: Device) -> Known:
    """The least and the greatest value of each column, computed once on demand."""
    found: dict[str, Range | None] = {}

    def known(name: str) -> Range | None:
        if name not in found:
            found[name] = by_type(name) or Range(*device.columns.extent(events.frame, name))
        return found[name]

    return known


def checked(
    guards: Mapping[int, Guard],
    expressions: Sequence[nw.Expr],
    events: Events,
    device: Device,
    known: Known | None = None,
) -> list[nw.Expr]:
    """Expressions in the form that is safe to evaluate over these events.

    Args:
        guards: The overflow checks of some expressions, by their places.
        expressions: The expressions, in the form for numbers that cannot overflow.
        events: The events.
        device: Where they are.
        known: The ranges of their columns, if the caller has them.

    Raises:
        IntegerOverflowError: A number does not fit.
    """
    if not guards or not len(events):
        return list(expressions)
    known = known or extents(events, device)
    tight = {at: each for at, each in guards.items() if each.may_not_fit(known)}
    if not tight:
        return list(expressions)
    _check(list(tight.values()), events, device, known)
    made: list[nw.Expr] = []
    for at, expression in enumerate(expressions):
        made += tight[at].tolerant if at in tight else [expression]
    return made


def evaluated(expressions: Mapping[str, nw.Expr], events: Events, device: Device) -> Any:
    """A frame with columns of expressions over events, by their names beside ``start`` and ``end``."""

    def step(frame: Any) -> Any:
        return frame.select("start", "end", **expressions)

    return device.columns.evaluate(events.start, events.end, events.frame, steps_on(device, [step]))[2]


def holds(condition: nw.Expr, guards: Mapping[int, Guard], events: Events, device: Device) -> Any:
    """bool: for which events a condition holds; not where it is null.

    Args:
        condition: The condition.
        guards: As in `checked`.
        events: The events.
        device: Where they are.

    Raises:
        IntegerOverflowError: A number in it does not fit.
    """
    (condition,) = checked(guards, [condition], events, device)
    return _is_true(evaluated({"__holds": condition}, events, device), "__holds", device)


def _is_true(frame: Any, name: str, device: Device) -> Any:
    values, valid = device.columns.values(frame, name)
    return values != 0 if valid is None else (values != 0) & valid


def _check(guards: Sequence[Guard], events: Events, device: Device, known: Known) -> None:
    """Refuse events if a number of one of them does not fit."""
    tests = {f"__{at}": each.wrong(known, Tests()) for at, each in enumerate(guards)}
    found = evaluated(tests, events, device)
    for name, each in zip(tests, guards, strict=True):
        wrong = _is_true(found, name, device)
        if bool(wrong.any()):
            raise _refusal(each, events.take(device.kernels.keep(wrong)[:1], device), device)


def _refusal(guard: Guard, event: Events, device: Device) -> IntegerOverflowError:
    """The error of an expression at one event."""
    names = column_names(guard.expression, guard.schema.names)
    schema = pa.schema([guard.schema.field(name) for name in names])
    read = device.columns.to_arrow(device.columns.select(event.frame, names), schema) if names else None
    values = {name: _text(read[name][0]) for name in names} if read else {}
    shown = {"start": format_time(int(event.start[0])), "end": format_time(int(event.ends[0])), **values}
    return IntegerOverflowError(
        problem(guard),
        column=names[0] if len(names) == 1 else None,
        values=", ".join(f"{guard.called(name)}={value}" for name, value in shown.items()),
        remedy=REMEDY,
    )


def _text(value: pa.Scalar) -> str:
    """A value as text; times and durations as counts, since a large count is not a valid date."""
    temporal = pa.types.is_timestamp(value.type) or pa.types.is_duration(value.type)
    return f"{value.value} {value.type.unit}" if temporal and value.is_valid else str(value)


def problem(guard: Guard) -> str:
    """The text of the error of an expression."""
    return f"A whole number of the expression {guard} does not fit its type."
