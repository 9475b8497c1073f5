"""The brute force of data windows on turns: one turn at a time, as Esper's documentation tells what happens.

A window is an object that is told of each turn, and says which rows enter and which leave. Rows are numbers of turns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from tests.support.on_turns import Member, Row, Script, Tick, placed


class Window(ABC):
    """A window; rows are in `content` in the order of their coming."""

    def __init__(self) -> None:
        self.found: dict[int, tuple[int, int | None]] = {}
        self.dues: dict[int, int] = {}
        self.posts: list[int] = []
        self.gathered: dict[int, int] = {}

    @abstractmethod
    def arrive(self, at: int, clock: int, row: Row) -> None:
        """A row comes."""

    @abstractmethod
    def tick(self, at: int, clock: int) -> None:
        """The clock has moved."""

    def enters(self, row: int, at: int) -> None:
        assert row not in self.found
        self.found[row] = (at, None)

    def leaves(self, row: int, at: int, due: int | None = None) -> None:
        enter, left = self.found[row]
        assert left is None
        self.found[row] = (enter, at)
        if due is not None:
            self.dues[row] = due


def run(
    windows: Callable[[], Window], script: Script, key: Callable[[Row], object] = lambda row: None, begin: int = 0
) -> dict[object, Window]:
    """The windows of all keys after a script: one of a key is there from its first row on, that of none always."""
    made: dict[object, Window] = {}
    turns = placed(script, begin)
    if key(Row()) is None and key(Row("a")) is None:
        made[None] = windows()
    for at, each in enumerate(turns, 1):
        if isinstance(each.turn, Row):
            made.setdefault(key(each.turn), windows() if key(each.turn) not in made else made[key(each.turn)]).arrive(
                at, each.clock, each.turn
            )
        elif isinstance(each.turn, Tick):
            for window in made.values():
                window.tick(at, each.clock)
    return made


def members(windows: dict[object, Window]) -> list[Member]:
    """When rows are in."""
    return sorted((row, *stay) for window in windows.values() for row, stay in window.found.items())


def dues(windows: dict[object, Window]) -> dict[int, int]:
    """When leaves of rows fell due, of those that left by the clock."""
    return {row: due for window in windows.values() for row, due in window.dues.items()}


class UntilDue(Window):
    """Each row until a time of its own."""

    def __init__(self, due: Callable[[int, Row], int | None]) -> None:
        super().__init__()
        self._due = due
        self._content: dict[int, int] = {}

    def arrive(self, at: int, clock: int, row: Row) -> None:
        due = self._due(clock, row)
        self.enters(at, at)
        if due is not None and due <= clock:
            self.leaves(at, at, due)
        elif due is not None:
            self._content[at] = due

    def tick(self, at: int, clock: int) -> None:
        for row, due in list(self._content.items()):
            if due <= clock:
                self.leaves(row, at, due)
                del self._content[row]


class Accumulated(Window):
    """All rows together, a span after the last one."""

    def __init__(self, after: Callable[[int], int]) -> None:
        super().__init__()
        self._after, self._content, self._due = after, list[int](), 0

    def arrive(self, at: int, clock: int, row: Row) -> None:
        self.enters(at, at)
        self._content.append(at)
        self._due = self._after(clock)

    def tick(self, at: int, clock: int) -> None:
        if self._content and clock >= self._due:
            for row in self._content:
                self.leaves(row, at, self._due)
            self._content = []


class Batches(Window):
    """Rows that gather, a batch that is out, and a timer."""

    def __init__(self, *, runs: bool) -> None:
        super().__init__()
        self._runs = runs
        self.gathers, self.out = list[int](), list[int]()
        self.timer: int | None = None

    def following(self, clock: int) -> int:
        """When the timer is due that is set now."""
        raise NotImplementedError

    def full(self) -> bool:
        return False

    def arrive(self, at: int, clock: int, row: Row) -> None:
        self.gathers.append(at)
        if self.full():
            self._post(at, clock, None)
        elif self.timer is None:
            self.timer = self.following(clock)

    def tick(self, at: int, clock: int) -> None:
        if self.timer is not None and clock >= self.timer:
            self.posts.append(at)
            self._post(at, clock, self.timer)

    def _post(self, at: int, clock: int, due: int | None) -> None:
        for row in self.out:
            self.leaves(row, at, due)
        for row in self.gathers:
            self.gathered[row] = at
            self.enters(row, at)
        goes_on = self.gathers or self.out or self._runs
        self.timer = self.following(clock) if goes_on else None
        self.out, self.gathers = self.gathers, []


class GridBatches(Batches):
    """Batches of the spans of a grid."""

    def __init__(self, span: int, align: int | None, since: int | None, *, runs: bool) -> None:
        super().__init__(runs=runs)
        self._span, self._align = span, align
        if since is not None and runs:
            self.timer = self.following(since)

    def following(self, clock: int) -> int:
        if self._align is None:
            self._align = clock
        end = self._align
        while end > clock:
            end -= self._span
        while end <= clock:
            end += self._span
        return end


class LengthBatches(Batches):
    """Batches of a number of rows or of a span."""

    def __init__(self, span: int, count: int, since: int | None, *, runs: bool) -> None:
        super().__init__(runs=runs)
        self._span, self._count = span, count
        if since is not None:
            self.timer = since + span

    def following(self, clock: int) -> int:
        return clock + self._span

    def full(self) -> bool:
        return len(self.gathers) == self._count


class FirstClock(Window):
    """What comes in time stays."""

    def __init__(self, span: int, since: int | None) -> None:
        super().__init__()
        self._span, self._since = span, since

    def arrive(self, at: int, clock: int, row: Row) -> None:
        self._since = clock if self._since is None else self._since
        if clock < self._since + self._span:
            self.enters(at, at)

    def tick(self, at: int, clock: int) -> None:
        pass


class StampSpan(Window):
    """The oldest go while their stamps are a span or more before the newest's."""

    def __init__(self, span: int) -> None:
        super().__init__()
        self._span, self._content = span, list[tuple[int, int]]()

    def arrive(self, at: int, clock: int, row: Row) -> None:
        assert row.t is not None
        self.enters(at, at)
        self._content.append((at, row.t))
        while self._content[0][1] + self._span <= row.t:
            self.leaves(self._content.pop(0)[0], at)

    def tick(self, at: int, clock: int) -> None:
        pass


class StampBatches(Window):
    """A batch ends with the first row past its end, which opens the next."""

    def __init__(self, span: int, align: int | None) -> None:
        super().__init__()
        self._span, self._align, self._end = span, align, 0
        self.gathers, self.out = list[int](), list[int]()

    def arrive(self, at: int, clock: int, row: Row) -> None:
        assert row.t is not None
        self._align = row.t if self._align is None else self._align
        if self.gathers and row.t >= self._end:
            for each in self.out:
                self.leaves(each, at)
            for each in self.gathers:
                self.enters(each, at)
                self.gathered[each] = at
            self.out, self.gathers = self.gathers, []
        if not self.gathers:
            self._end = row.t + self._span - (row.t - self._align) % self._span
        self.gathers.append(at)

    def tick(self, at: int, clock: int) -> None:
        pass


def gathering(windows: dict[object, Window], script: Script, key: Callable[[Row], object]) -> list[Member]:
    """When rows of batches gather; those that complete their own batch do not."""
    turns = [(at, turn) for at, turn in enumerate(script, 1) if isinstance(turn, Row)]
    found = [(at, at, windows[key(turn)].gathered.get(at)) for at, turn in turns]
    return sorted(stay for stay in found if stay[1] != stay[2])


# Several windows together

Rows = dict[int, tuple[int, Row]]
"""All rows by their numbers, with the clocks at which they came."""


class Part:
    """A window as one of several: it sees what is in, which the others change too.

    Args:
        rows: All rows by their numbers, with the clocks at which they came.
        drops: What goes as a row comes.
        due: When a row goes by itself.
        gap: For how long all stay when no row comes.
        first: Whether it refuses rows since others came before.
    """

    def __init__(
        self,
        rows: Rows,
        drops: Callable[[Rows, list[int]], list[int]] = lambda rows, content: [],
        due: Callable[[int, Row], int] | None = None,
        gap: int | None = None,
        *,
        first: bool = False,
    ) -> None:
        self.rows, self.drops, self.ends, self.gap, self.first = rows, drops, due, gap, first
        self.timer = 0

    def comes(self, content: list[int]) -> list[int]:
        """What goes as the last row of the content comes."""
        clock, row = self.rows[content[-1]]
        if self.gap is not None:
            self.timer = clock + self.gap
        if self.ends is not None and self.ends(clock, row) <= clock:
            return content[-1:]
        return self.drops(self.rows, content)

    def due(self, content: list[int]) -> int | None:
        """When some of the content goes by itself."""
        if self.gap is not None:
            return self.timer if content else None
        if self.ends is None or not content:
            return None
        return min(self.ends(*self.rows[each]) for each in content)

    def falls(self, content: list[int], clock: int) -> list[int]:
        """What goes of the content at a tick."""
        if self.gap is not None:
            return list(content)
        assert self.ends is not None
        return [each for each in content if self.ends(*self.rows[each]) <= clock]


class Both(Window):
    """What is in all of several windows; one of them may make batches of it."""

    def __init__(self, parts: list[Callable[[Rows], Part]], batches: Batches | None) -> None:
        super().__init__()
        self._rows: Rows = {}
        self._parts = [make(self._rows) for make in parts]
        self._batches, self._content = batches, list[int]()
        if batches is not None:
            batches.found, batches.dues, batches.gathered = self.found, self.dues, self.gathered
            self._content, self.posts = batches.gathers, batches.posts

    def arrive(self, at: int, clock: int, row: Row) -> None:
        self._rows[at] = clock, row
        gone, refused = set[int](), False
        for part in self._parts:
            drops = part.comes([*self._content, at])
            refused = refused or (part.first and at in drops)
            gone |= set(drops)
        self._go(gone - {at}, at, None)
        if at in gone:
            self.gathered[at] = at
            if self._batches is None and not refused:
                self.enters(at, at)
                self.leaves(at, at)
            return
        if self._batches is None:
            self._content.append(at)
            self.enters(at, at)
        else:
            self._batches.arrive(at, clock, row)
            self._content = self._batches.gathers

    def tick(self, at: int, clock: int) -> None:
        timers = [(part.due(self._content), number) for number, part in enumerate(self._parts)]
        fallen = [(due, number) for due, number in timers if due is not None and due <= clock]
        batches = self._batches
        if batches is not None and batches.timer is not None and batches.timer <= clock:
            fallen.append((batches.timer, len(self._parts)))
        for due, number in sorted(fallen):
            if number == len(self._parts):
                assert batches is not None
                batches.tick(at, clock)
                self._content = batches.gathers
            else:
                self._go(self._parts[number].falls(self._content, clock), at, due)

    def _go(self, gone: Iterable[int], at: int, due: int | None) -> None:
        for row in sorted(gone):
            self._content.remove(row)
            if self._batches is None:
                self.leaves(row, at, due)
            else:
                self.gathered[row] = at


class Either(Window):
    """What is in any of several windows, each of which is what it is alone."""

    def __init__(self, parts: list[Callable[[Rows], Part]]) -> None:
        super().__init__()
        self._rows: Rows = {}
        self._parts = [(make(self._rows), list[int]()) for make in parts]

    def arrive(self, at: int, clock: int, row: Row) -> None:
        self._rows[at] = clock, row
        gone, refused = set[int](), []
        for part, content in self._parts:
            content.append(at)
            drops = part.comes(content)
            refused.append((at in drops, part.first))
            content[:] = [each for each in content if each not in drops]
            gone |= set(drops)
        if any(at in content for _, content in self._parts):
            self.enters(at, at)
        elif not all(first for _, first in refused):
            self.enters(at, at)
            self.leaves(at, at)
        self._go(gone - {at}, at, None)

    def tick(self, at: int, clock: int) -> None:
        timers = [(part.due(content), number) for number, (part, content) in enumerate(self._parts)]
        for due, number in sorted((due, number) for due, number in timers if due is not None and due <= clock):
            part, content = self._parts[number]
            drops = part.falls(content, clock)
            content[:] = [each for each in content if each not in drops]
            self._go(drops, at, due)

    def _go(self, gone: Iterable[int], at: int, due: int | None) -> None:
        for row in gone:
            if not any(row in content for _, content in self._parts):
                self.leaves(row, at, due)
