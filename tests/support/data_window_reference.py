"""The brute force of data windows: per group, over a Python list of its rows, from when to when each is in.

A window is a function of the rows of one group, in their order, that gives for each its stay ``(enter, leave)`` as
moments, or None. A moment is ``(time, row)``: with which row of the group it comes, by its number; -1 where time makes
it. Moments are in order as tuples: what time does at a time it does before the rows of that time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.support.reference import FIRST_TIME, NEVER, Aggregates, Event, Events, _group, aggregate, groups, order

Moment = tuple[int, int]
Stay = tuple[Moment, Moment | None] | None
Window = Callable[[list[Event]], list[Stay]]


def in_order(members: Events, columns: Sequence[str] = ()) -> list[Event]:
    """Rows by start, then by some columns, then by all others, null first."""

    def place(event: Event) -> tuple[object, ...]:
        names = dict.fromkeys((*columns, *event.payload))
        values = [event.payload[name] for name in names]
        return (event.start, *((value is not None, (False, 0) if value is None else order(value)) for value in values))

    return sorted(members, key=place)


def last(n: int, every: int = 1, *, partial: bool = True) -> Window:
    def stays(rows: list[Event]) -> list[Stay]:
        content: set[int] = set()
        enter: dict[int, Moment] = {}
        leave: dict[int, Moment] = {}
        for at, row in enumerate(rows):
            if (at + 1) % every:
                continue
            wanted = set(range(max(0, at + 1 - n), at + 1)) if partial or at + 1 >= n else set()
            for each in wanted - content:
                enter[each] = (row.start, at)
            for each in content - wanted:
                leave[each] = (row.start, at)
            content = wanted
        return [(enter[at], leave.get(at)) if at in enter else None for at in range(len(rows))]

    return stays


def last_starts(n: int) -> Window:
    def stays(rows: list[Event]) -> list[Stay]:
        starts = sorted({row.start for row in rows})
        begins = {start: [row.start for row in rows].index(start) for start in starts}
        found: list[Stay] = []
        for row in rows:
            number = starts.index(row.start)
            enter, leave = max(number, n - 1), number + n
            if enter >= len(starts):
                found.append(None)
                continue
            gone = (starts[leave], begins[starts[leave]]) if leave < len(starts) else None
            found.append(((starts[enter], begins[starts[enter]]), gone))
        return found

    return stays


def first(n: int) -> Window:
    return lambda rows: [((row.start, at), None) if at < n else None for at, row in enumerate(rows)]


def first_span(span: int, since: int | None = None) -> Window:
    def stays(rows: list[Event]) -> list[Stay]:
        begin = rows[0].start if since is None else since
        return [((r.start, at), None) if begin <= r.start < begin + span else None for at, r in enumerate(rows)]

    return stays


def session(
    gap: int, cap: int | None = None, grid_cap: int | None = None, align: int = FIRST_TIME, *, running: bool = False
) -> Window:
    def limit(opened: int, *, cut: bool) -> int:
        limits = [NEVER] if cap is None else [opened + cap]
        if grid_cap is not None:
            past = (opened - align) % grid_cap
            limits.append(opened - past + (grid_cap if cut or past == 0 else 2 * grid_cap))
        return min(limits)

    def stays(rows: list[Event]) -> list[Stay]:
        sessions: list[list[int]] = []
        ends: list[int] = []
        until = 0
        for at, row in enumerate(rows):
            fresh = not sessions or row.start >= rows[at - 1].start + gap
            if fresh or row.start >= until:
                until = limit(row.start, cut=not fresh)
                sessions.append([])
                ends.append(0)
            sessions[-1].append(at)
            ends[-1] = min(row.start + gap, until)
        found: list[Stay] = []
        for members, end in zip(sessions, ends, strict=True):
            for at in members:
                enter = (rows[at].start, at) if running else (rows[members[0]].start, -1)
                found.append((enter, (end, -1)))
        return found

    return stays


def time_batches(span: int, align: int | None = None) -> Window:
    def stays(rows: list[Event]) -> list[Stay]:
        begin = rows[0].start if align is None else align
        ends = [begin + ((row.start - begin) // span + 1) * span for row in rows]
        return [((end, -1), (end + span, -1)) for end in ends]

    return stays


def time_length_batches(span: int, n: int, since: int | None = None, *, runs: bool = False) -> Window:
    def stays(rows: list[Event]) -> list[Stay]:
        enter: dict[int, Moment] = {}
        leave: dict[int, Moment] = {}
        current: list[int] = []
        previous: list[int] = []
        # The clock that was set at first runs out twice with nothing, as if a batch were complete then.
        deadline = None if since is None else since + span
        again = since is not None

        def close(moment: Moment) -> None:
            nonlocal current, previous, deadline, again
            enter.update(dict.fromkeys(current, moment))
            leave.update(dict.fromkeys(previous, moment))
            deadline = moment[0] + span if current or previous or again or runs else None
            current, previous, again = [], current, False

        for at, row in enumerate(rows):
            while deadline is not None and row.start >= deadline:
                close((deadline, -1))
            deadline = row.start + span if deadline is None else deadline
            current.append(at)
            if len(current) == n:
                close((row.start, at))
        while deadline is not None and (current or previous):
            close((deadline, -1))
        return [(enter[at], leave[at]) for at in range(len(rows))]

    return stays


def unique(*columns: str) -> Window:
    def stays(rows: list[Event]) -> list[Stay]:
        found: list[Stay] = []
        for at, row in enumerate(rows):
            value = _group(row.payload, columns)
            after = [(rows[i].start, i) for i in range(at + 1, len(rows)) if _group(rows[i].payload, columns) == value]
            found.append(((row.start, at), after[0] if after else None))
        return found

    return stays


def first_unique(*columns: str) -> Window:
    def stays(rows: list[Event]) -> list[Stay]:
        values = [_group(row.payload, columns) for row in rows]
        return [((r.start, at), None) if values.index(values[at]) == at else None for at, r in enumerate(rows)]

    return stays


def best(n: int, by: str, *, highest: bool, unique: Sequence[str] = ()) -> Window:
    def stays(rows: list[Event]) -> list[Stay]:
        content: list[int] = []
        leave: dict[int, Moment] = {}
        never: set[int] = set()
        for at, row in enumerate(rows):
            if row.payload[by] is None:
                never.add(at)
                continue
            for held in list(content):
                if unique and _group(rows[held].payload, unique) == _group(row.payload, unique):
                    content.remove(held)
                    leave[held] = (row.start, at)
            content.append(at)
            if len(content) > n:
                values = [order(rows[held].payload[by]) for held in content]
                worst = content.pop(values.index(min(values) if highest else max(values)))
                leave[worst] = (row.start, at)
                if worst == at:
                    never.add(at)
        return [None if at in never else ((row.start, at), leave.get(at)) for at, row in enumerate(rows)]

    return stays


def alive(rows: list[Event]) -> list[Stay]:
    return [((row.start, at), None if row.end == NEVER else (row.end, -1)) for at, row in enumerate(rows)]


# What is asked of a window


def _stays(events: Events, window: Window, key: Sequence[str], columns: Sequence[str]) -> list[tuple[Event, Stay]]:
    found: list[tuple[Event, Stay]] = []
    for _, members in groups(events, key):
        rows = in_order(members, columns)
        found.extend(zip(rows, window(rows), strict=True))
    return found


def rows(events: Events, window: Window, key: Sequence[str] = (), columns: Sequence[str] = ()) -> list[Event]:
    """The events, while they are in."""
    made = []
    for event, stay in _stays(events, window, key, columns):
        if stay is not None:
            enter, leave = stay[0][0], NEVER if stay[1] is None else stay[1][0]
            if enter < leave:
                made.append(Event(enter, leave, event.payload))
    return made


def changes(events: Events, window: Window, key: Sequence[str] = (), columns: Sequence[str] = ()) -> list[Event]:
    """A point for each event that enters or leaves."""
    made = []
    for event, stay in _stays(events, window, key, columns):
        if stay is not None:
            for moment, status in zip(stay, ("new", "dead"), strict=True):
                if moment is not None:
                    made.append(Event(moment[0], moment[0] + 1, {**event.payload, "status": status}))
    return made


def each(
    events: Events, window: Window, aggregates: Aggregates, key: Sequence[str] = (), columns: Sequence[str] = ()
) -> list[Event]:
    """For each event that enters what is in right after that."""
    made = []
    for _, members in groups(events, key):
        ordered = in_order(members, columns)
        stays = window(ordered)
        for event, stay in zip(ordered, stays, strict=True):
            if stay is None:
                continue
            now = stay[0]
            content = [
                other
                for other, its in zip(ordered, stays, strict=True)
                if its is not None and its[0] <= now and (its[1] is None or its[1] > now)
            ]
            values = {name: aggregate(spec, content) for name, spec in aggregates.items()}
            made.append(Event(now[0], now[0] + 1, {**event.payload, **values}))
    return made
