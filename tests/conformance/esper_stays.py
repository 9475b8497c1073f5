"""When events are in their windows, as far as a script tells, and what is in any or in all of several windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa

import gpu_ops as g
from gpu_ops import Stream
from tests.conformance.epl import Call, Expression
from tests.conformance.esper_script import Arrival, Moment, instants

Ask = Callable[[Stream], pa.Table]
"""How a query is run."""


@dataclass(frozen=True)
class Stay:
    """When an event is in its window.

    Attributes:
        arrival: The event.
        enter: When it is posted; None if its batch is never complete.
        leave: When it leaves; None for never.
        place: Where it stands in the window: the arrival, or the order that the window keeps.
        group: The window that it is in, where there is one for each key.
    """

    arrival: Arrival
    enter: Moment | None
    leave: Moment | None
    place: tuple[Any, ...]
    group: tuple[Any, ...]


@dataclass(frozen=True)
class Content:
    """What a window holds, and when.

    Attributes:
        stays: The events that were let in, as they came.
        windowed: Whether there is a window at all: without one nothing leaves, and nothing is held.
        in_batches: Whether events wait until their batch is complete.
        is_ordered: Whether it keeps an order of its own.
        is_hashed: Whether Esper keeps it in a hash map, so that an iterator has no order.
        posts: When a delivery is made even if it is empty.
    """

    stays: Sequence[Stay]
    windowed: bool = True
    in_batches: bool = False
    is_ordered: bool = False
    is_hashed: bool = False
    posts: frozenset[Moment] = frozenset()


@dataclass(frozen=True)
class EventScope:
    """An event by itself, and the engine's clock when it comes."""

    event: Mapping[str, Any]
    now: int | None = None

    def known(self, expression: Expression) -> tuple[Any] | None:
        """The clock alone."""
        return (self.now,) if self.now is not None and expression == Call("current_timestamp") else None


def combined(contents: Sequence[Content], arrivals: Sequence[Arrival], ask: Ask, retain: str) -> Content:
    """What is in any or in all of several windows, each of which is what it is without the others."""
    stays = [{stay.arrival.row: stay for stay in each.stays} for each in contents]
    let_in = [set(each) for each in stays]
    rows = set.union(*let_in) if retain == "union" else set.intersection(*let_in)
    stretches = [(stay.enter, stay.leave) for each in stays for stay in each.values()]
    moments = sorted({moment for stretch in stretches for moment in stretch if moment is not None})
    numbers: dict[Moment | None, int] = {moment: at for at, moment in enumerate(moments)}
    streams = []
    for at, each in enumerate(stays):
        held = [stay for row, stay in each.items() if row in rows and stay.enter != stay.leave]
        columns = {
            "start": instants([numbers[stay.enter] for stay in held]),
            "end": instants([numbers.get(stay.leave) for stay in held]),
            "row": pa.array([stay.arrival.row for stay in held], pa.int64()),
        }
        events = g.events(pa.table(columns), start="start", end="end", null_end="open", name=f"window {at}")
        streams.append(events)
    either = reduce(lambda left, right: left.union(right), streams).distinct("row")
    both = reduce(lambda left, right: left.join(right, on="row"), streams)
    found = ask(either if retain == "union" else both)
    ends = found["end"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    leaves = dict(zip(found["row"].to_pylist(), ends, strict=True))
    made = []
    for arrival in arrivals:
        if arrival.row in rows:
            group = next(each[arrival.row].group for each in stays if arrival.row in each)
            end = leaves.get(arrival.row, numbers[arrival.at])
            made.append(Stay(arrival, arrival.at, moments[end] if end < len(moments) else None, (arrival.row,), group))
    return Content(made, is_hashed=True)
