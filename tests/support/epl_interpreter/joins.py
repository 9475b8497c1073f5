"""Joins: which events of several streams stand together in a row.

One stream after another is joined as SQL does it, with one exception: streams that the condition of an inner join
speaks of are in every row, even if an outer join stands between them and others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gpu_ops.epl import queries as q
from tests.support.epl_interpreter.values import Event, Events
from tests.support.epl_interpreter.windows import among, without

Holds = Callable[[Any, Events], bool]
"""Whether a condition is true of a row."""


class Join:
    """What each stream of a join holds, and the rows that a change of it makes."""

    def __init__(self, query: q.Query, holds: Holds, required: Sequence[int]) -> None:
        self._joins = query.joins
        self._required = required
        self._unidirectional = [stream.unidirectional for stream in query.streams]
        self._holds = holds
        count = len(query.streams)
        self._contents: list[list[Event]] = [[] for _ in range(count)]
        self._new: list[list[Event]] = [[] for _ in range(count)]
        self._old: list[list[Event]] = [[] for _ in range(count)]

    def take(self, stream: int, new: Sequence[Event], old: Sequence[Event]) -> None:
        """A stream has changed. Its rows are made when all streams have."""
        self._new[stream] += new
        self._old[stream] += old

    def change(self) -> tuple[list[Events], list[Events]]:
        """The rows of what has changed.

        What leaves stood beside the others as they were, what enters stands beside them as they are.
        """
        new, old = self._new, self._old
        self._new, self._old = [[] for _ in new], [[] for _ in old]
        left = [] if any(self._unidirectional) else self._with(old)
        for stream, content in enumerate(self._contents):
            if not self._unidirectional[stream]:
                self._contents[stream] = without(content, old[stream]) + [
                    event for event in new[stream] if not among(event, old[stream])
                ]
        if any(self._unidirectional):
            new = [events if alone else [] for events, alone in zip(new, self._unidirectional, strict=True)]
        return self._with(new), left

    def content(self) -> list[Events]:
        """The rows of all that is there; none where only events of one stream make rows."""
        return [] if any(self._unidirectional) else self._all(self._contents)

    def _with(self, changed: Sequence[Sequence[Event]]) -> list[Events]:
        """The rows that some events stand in, each row once."""
        found: list[Events] = []
        for stream, events in enumerate(changed):
            for event in events:
                contents = [[event] if at == stream else content for at, content in enumerate(self._contents)]
                for row in self._all(contents):
                    if row[stream] is event and not any(_is_same(row, other) for other in found):
                        found.append(row)
        return found

    def _all(self, contents: Sequence[Sequence[Event]]) -> list[Events]:
        """The rows of these events of each stream."""
        rows: list[Events] = [(event,) for event in contents[0]]
        for at, join in enumerate(self._joins, start=1):
            made: list[Events] = []
            matched: list[Event] = []
            for row in rows:
                matches = [event for event in contents[at] if join.on is None or self._holds(join.on, (*row, event))]
                made += [(*row, event) for event in matches]
                matched += matches
                if not matches and join.kind in {"left", "full"}:
                    made.append((*row, None))
            if join.kind in {"right", "full"}:
                made += [(*(None for _ in range(at)), event) for event in without(list(contents[at]), matched)]
            rows = made
        return [row for row in rows if all(row[at] is not None for at in self._required)]


def _is_same(row: Events, other: Events) -> bool:
    return all(mine is theirs for mine, theirs in zip(row, other, strict=True))
