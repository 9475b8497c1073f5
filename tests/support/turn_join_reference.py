"""The brute force of joins on turns: one moment after another, each from the contents of all windows.

A row of a window is an object; a joined row is a tuple of them, one for each stream, None where an outer join has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from gpu_ops.plan.turn_joins import TurnJoinKind


@dataclass(frozen=True, eq=False)
class Member:
    """A row of a window: from one turn to another, None where it stays; in for no time where they are the same."""

    number: int
    k: str | None
    v: int
    enter: int
    leave: int | None


Joined = tuple[Member | None, ...]
On = Callable[[Joined, Member], bool]
"""Whether a row of a further stream matches a row of the streams before."""

Further = tuple[TurnJoinKind, On]
Side = Literal["new", "old", "held"]


def rows_of(contents: Sequence[Sequence[Member]], further: Sequence[Further]) -> list[Joined]:
    """The rows of some contents: one stream after another, as SQL joins them."""
    rows: list[Joined] = [(each,) for each in contents[0]]
    for at, (kind, on) in enumerate(further, start=1):
        made: list[Joined] = []
        matched: set[int] = set()
        for row in rows:
            found = [each for each in contents[at] if on(row, each)]
            matched.update(map(id, found))
            made += [(*row, each) for each in found]
            if not found and kind in {"left", "full"}:
                made.append((*row, None))
        if kind in {"right", "full"}:
            made += [((None,) * at + (each,)) for each in contents[at] if id(each) not in matched]
        rows = made
    return rows


def standing(
    moving: Sequence[Sequence[Member]], contents: Sequence[Sequence[Member]], further: Sequence[Further]
) -> list[Joined]:
    """The rows in which some rows stand, beside contents, each once."""
    found: dict[tuple[int, ...], Joined] = {}
    for stream, members in enumerate(moving):
        for member in members:
            beside = [[member] if at == stream else content for at, content in enumerate(contents)]
            for row in rows_of(beside, further):
                if row[stream] is member:
                    found[tuple(map(id, row))] = row
    return list(found.values())


def run(
    streams: Sequence[Sequence[Member]],
    further: Sequence[Further],
    turns: int,
    unidirectional: Sequence[int] = (),
) -> dict[tuple[int, Side], list[Joined]]:
    """The rows that are new and old at each turn, and those that are there after it."""
    found: dict[tuple[int, Side], list[Joined]] = {}
    contents: list[list[Member]] = [[] for _ in streams]
    for turn in range(1, turns + 1):
        new = [[each for each in stream if each.enter == turn] for stream in streams]
        old = [[each for each in stream if each.leave == turn] for stream in streams]
        if not unidirectional:
            found[turn, "old"] = standing(old, contents, further)
        for at, content in enumerate(contents):
            stays = [] if at in unidirectional else [each for each in new[at] if each.leave != turn]
            contents[at] = [each for each in content if each.leave != turn] + stays
        if unidirectional:
            new = [each if at in unidirectional else [] for at, each in enumerate(new)]
        found[turn, "new"] = standing(new, contents, further)
        if not unidirectional:
            found[turn, "held"] = rows_of(contents, further)
    return found
