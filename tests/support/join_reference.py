"""The brute force of what takes two streams, and of ``distinct``, which puts lifetimes together as they do.

As literal as `tests.support.reference`: each event is held against every other, and what of a lifetime others cover is
found by cutting it at each of their ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

from tests.support.reference import Event, Events, Payload, groups, identity, order

How = Literal["inner", "left", "right", "full", "semi", "anti"]
On = Mapping[str, str]
"""Left names and the right ones that are to be equal; none: every pair is a match."""
Condition = Callable[[Payload], bool | None]
"""Over the payload of a pair, under its names in the result."""
Columns = tuple[Sequence[str], Sequence[str]]
"""The payload columns of the left and of the right; a side without events has them too."""


def result_names(columns: Columns, on: On, suffix: str = "_right") -> dict[str, str]:
    """What the right's columns are called in the result: all but its keys, with the suffix where the left has them."""
    left, right = columns
    return {name: f"{name}{suffix}" if name in left else name for name in right if name not in on.values()}


def same_key(left: Event, right: Event, on: On) -> bool:
    """Null is equal to nothing, all NaNs are one key, and -0.0 is 0.0."""
    pairs = [(left.payload[mine], right.payload[theirs]) for mine, theirs in on.items()]
    return all(mine is not None and identity(mine) == identity(theirs) for mine, theirs in pairs)


def pieces(event: Event, others: Events, *, covered: bool) -> list[tuple[int, int]]:
    """The longest stretches of a lifetime during all of which any of the others is alive, or none is."""
    ends = {time for other in others for time in (other.start, other.end) if event.start < time < event.end}
    found: list[tuple[int, int]] = []
    for start, end in pairwise(sorted({event.start, event.end, *ends})):
        if any(other.start <= start and end <= other.end for other in others) is covered:
            if found and found[-1][1] == start:
                start = found.pop()[0]  # noqa: PLW2901  (the stretch began earlier)
            found.append((start, end))
    return found


def join(
    left: Events,
    right: Events,
    on: On,
    how: How = "inner",
    *,
    columns: Columns,
    condition: Condition | None = None,
    suffix: str = "_right",
) -> list[Event]:
    """Pairs while both are alive, and what of each side no match covers, or does."""
    names = result_names(columns, on, suffix)

    def pair(mine: Event, theirs: Event) -> Payload:
        return {**mine.payload, **{new: theirs.payload[old] for old, new in names.items()}}

    def match(mine: Event, theirs: Event) -> bool:
        overlap = mine.start < theirs.end and theirs.start < mine.end
        return overlap and same_key(mine, theirs, on) and (condition is None or condition(pair(mine, theirs)) is True)

    def left_pieces(*, covered: bool) -> list[tuple[int, int, Payload]]:
        return [
            (start, end, mine.payload)
            for mine in left
            for start, end in pieces(mine, [theirs for theirs in right if match(mine, theirs)], covered=covered)
        ]

    if how in {"semi", "anti"}:
        return [Event(*piece) for piece in left_pieces(covered=how == "semi")]
    result = [
        Event(max(mine.start, theirs.start), min(mine.end, theirs.end), pair(mine, theirs))
        for mine in left
        for theirs in right
        if match(mine, theirs)
    ]
    if how in {"left", "full"}:
        nothing = dict.fromkeys(names.values())
        result += [Event(start, end, {**payload, **nothing}) for start, end, payload in left_pieces(covered=False)]
    if how in {"right", "full"}:
        for theirs in right:
            alone = {name: theirs.payload[on[name]] if name in on else None for name in columns[0]}
            alone |= {new: theirs.payload[old] for old, new in names.items()}
            matches = [mine for mine in left if match(mine, theirs)]
            result += [Event(start, end, alone) for start, end in pieces(theirs, matches, covered=False)]
    return result


def union(*streams: Events) -> list[Event]:
    """All events of all."""
    return [event for events in streams for event in events]


def clip_by(left: Events, right: Events, on: On) -> list[Event]:
    """Each left event until the first right one of its key that starts after it."""
    result = []
    for event in left:
        starts = [other.start for other in right if same_key(event, other, on) and other.start > event.start]
        result.append(Event(event.start, min([event.end, *starts]), event.payload))
    return result


def asof_join(
    left: Events,
    right: Events,
    on: On,
    how: Literal["left", "inner"] = "left",
    *,
    columns: Columns,
    tolerance: int | None = None,
    suffix: str = "_right",
    direction: str = "backward",
) -> list[Event]:
    """Each left event, whole, with the right one that starts nearest to it, before or after it as a direction says.

    Of those that start together it is the one that ends last, then the one with the greatest payload, column by column.
    """
    names = result_names(columns, on, suffix)
    result = []
    for event in left:
        near = [
            other
            for other in right
            if same_key(event, other, on)
            and (direction != "backward" or other.start <= event.start)
            and (direction != "forward" or other.start >= event.start)
            and (tolerance is None or abs(event.start - other.start) <= tolerance)
        ]
        start = min((other.start for other in near), key=lambda at: (abs(event.start - at), at), default=None)
        most = (other for other in near if other.start == start)
        best = max(most, key=lambda other: (other.end, _ranked(other.payload, columns[1])), default=None)
        if best is not None or how == "left":
            found = {new: None if best is None else best.payload[old] for old, new in names.items()}
            result.append(Event(event.start, event.end, {**event.payload, **found}))
    return result


def _ranked(payload: Payload, columns: Sequence[str]) -> list[tuple[bool, Any]]:
    """Null is least."""
    return [(payload[name] is not None, payload[name] is not None and order(payload[name])) for name in columns]


def distinct(events: Events, columns: Sequence[str]) -> list[Event]:
    """Each combination of the columns once, while any event of it is alive. Which values are equal is as for keys."""
    result = []
    for values, members in groups(events, columns):
        ever = Event(min(event.start for event in members), max(event.end for event in members), values)
        result += [Event(start, end, values) for start, end in pieces(ever, members, covered=True)]
    return result
