"""Row patterns, literally: all words that a pattern has, and of every partition all rows that spell one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

from gpu_ops.plan.row_patterns import (
    EitherRows,
    OneRow,
    OrderedRows,
    PermutedRows,
    RepeatedRows,
    RowPattern,
    Skip,
)

MOST_WORDS = 5_000
"""More words of a pattern are not written out: their number grows with the power of their length."""

Path = tuple[int, ...]
"""The places of a match's rows, by their numbers in the pattern as it is written out."""


@dataclass(frozen=True)
class PlacedRow:
    """A row: the place at which it comes, what the clock showed, its values, and where it leaves."""

    place: int
    clock: int
    values: Any
    leave: float = float("inf")


@dataclass(frozen=True)
class Match:
    """A match: where it is delivered, and its rows with their variables."""

    place: int
    rows: tuple[PlacedRow, ...]
    labels: tuple[str, ...]


Holds = Callable[[str, PlacedRow, Sequence[PlacedRow], Sequence[tuple[str, PlacedRow]]], bool]
"""Whether a row may be a variable: the variable, the row, the partition's rows before it, and the match so far."""


class TooManyWordsError(Exception):
    """A pattern has more than `MOST_WORDS` words of a length: the reference knows fewer rows."""


class Words:
    """The words of a pattern: sequences of places. Of those that are longer than a number of rows, only the beginning.

    Raises `TooManyWordsError`.

    Attributes:
        variables: The variable of each place.
        signs: 1 for greedy places, -1 for reluctant ones, 0 for others.
        all: The words.
    """

    def __init__(self, pattern: RowPattern, longest: int) -> None:
        self.variables: list[str] = []
        self.signs: list[int] = []
        self._longest = longest
        self.all = {word for word in self._words(pattern, 0) if word}

    def _words(self, pattern: RowPattern, sign: int) -> set[Path]:
        match pattern:
            case OneRow(name):
                self.variables.append(name)
                self.signs.append(sign)
                return {(len(self.variables) - 1,)}
            case OrderedRows(items):
                return self._after(self._words(item, sign) for item in items)
            case EitherRows(options):
                return {word for option in options for word in self._words(option, sign)}
            case PermutedRows(items):
                orders = [self._after(self._words(item, sign) for item in order) for order in permutations(items)]
                return {word for order in orders for word in order}
            case RepeatedRows(item, low, high, greedy):
                own = 1 if greedy else -1
                fixed = [self._words(item, sign) for _ in range(low if high is not None else max(low - 1, 0))]
                if high is None:
                    once = self._words(item, own)
                    loop = {()} if low == 0 else set(once)
                    while (more := loop | self._after([loop, once])) != loop:
                        loop = more
                    return self._after([*fixed, loop])
                copies = [self._words(item, own) - {()} for _ in range(high - low)]
                upto: set[Path] = {()}
                for copy in reversed(copies):
                    upto = {()} | self._after([copy, upto])
                return self._after([*fixed, upto])

    def _after(self, parts: Any) -> set[Path]:
        whole: set[Path] = {()}
        for part in parts:
            made = set[Path]()
            for one, other in product(whole, part):
                made.add((one + other)[: self._longest])
                if len(made) > MOST_WORDS:
                    raise TooManyWordsError
            whole = made
        return whole

    def rank(self, path: Path) -> tuple[int, ...]:
        """What is compared: how many rows each greedy place has, and how few each reluctant one."""
        return tuple(sign * path.count(place) for place, sign in enumerate(self.signs) if sign)


@dataclass(frozen=True)
class Rules:
    """What a pattern matches, and what becomes of matches.

    Attributes:
        pattern: The pattern.
        holds: The conditions.
        skip: As in `gpu_ops.plan.row_matches.RowMatches`, as are the others.
    """

    pattern: RowPattern
    holds: Holds
    skip: Skip = "past last row"
    every: bool = False
    interval: int | None = None
    or_terminated: bool = False


class Partition:
    """The matches of a partition, a delivery after the other."""

    def __init__(self, rules: Rules, rows: Sequence[PlacedRow], ticks: Sequence[tuple[int, int]]) -> None:
        self._rules, self._rows, self._ticks = rules, rows, ticks
        self._words = Words(rules.pattern, len(rows) + 1)
        self._prefixes = {word[:size] for word in self._words.all for size in range(len(word) + 1)}
        self._bound = -1
        self._shut = self._open_rows() if rules.skip == "while open" else frozenset[int]()
        self._given = set[tuple[int, Path]]()

    def matches(self) -> Iterator[Match]:
        """All matches, in the order in which they are delivered."""
        places = sorted({row.place for row in self._rows} | {place for place, _ in self._ticks})
        for now in places:
            held = self._rules.interval is not None
            due = [clock for place, clock in self._ticks if place == now]
            if held and due:
                yield from self._delivered(now, self._due(now, due[0]), skips=True)
            here = [at for at, row in enumerate(self._rows) if row.place == now]
            if here and not held:
                yield from self._delivered(now, self._ending(now, here), skips=True)
            elif here and self._rules.or_terminated:
                yield from self._delivered(now, list(self._over(now, here)), skips=False)

    # Ways

    def _ways(self, begin: int, end: int, now: int) -> Iterator[Path]:
        """The prefixes of words that the rows from one to another spell."""
        rows = self._rows[begin : end + 1]
        if any(row.leave <= now and row.place < now for row in rows):
            return
        for path in self._prefixes:
            if len(path) != len(rows):
                continue
            so_far: list[tuple[str, PlacedRow]] = []
            for at, (place, row) in enumerate(zip(path, rows, strict=True), begin):
                name = self._words.variables[place]
                if not self._rules.holds(name, row, self._rows[:at], so_far):
                    break
                so_far.append((name, row))
            else:
                yield path

    def _open_rows(self) -> frozenset[int]:
        """The rows with which a way goes on that began before, and may go on."""
        shut: set[int] = set()
        for row, each in enumerate(self._rows):
            for begin in range(row):
                waits = self._rules.interval is None or self._in_time(begin, row)
                ways = self._ways(begin, row, each.place) if begin not in shut and waits else ()
                if any(len(path) > len(way) and path[: len(way)] == way for way in ways for path in self._prefixes):
                    shut.add(row)
        return frozenset(shut)

    def _begins(self, end: int) -> list[int]:
        return [row for row in range(self._bound + 1, end + 1) if row not in self._shut]

    def _ending(self, now: int, here: Sequence[int]) -> list[tuple[int, Path]]:
        """Matches that end at some rows."""
        return [
            (begin, path)
            for end in here
            for begin in self._begins(end)
            for path in self._ways(begin, end, now)
            if path in self._words.all
        ]

    def _tick_of(self, begin: int) -> int | None:
        """The place of the tick at which a match that begins at a row is delivered."""
        row, span = self._rows[begin], self._rules.interval or 0
        return next((at for at, clock in self._ticks if at > row.place and clock >= row.clock + span), None)

    def _in_time(self, begin: int, end: int) -> bool:
        tick = self._tick_of(begin)
        return tick is None or self._rows[end].place < tick

    def _due(self, now: int, clock: int) -> list[tuple[int, Path]]:
        """Matches whose first row is old enough since this tick."""
        del clock
        begins = [begin for begin in self._begins(len(self._rows) - 1) if self._tick_of(begin) == now]
        return self._waiting(now, begins, len(self._rows))

    def _waiting(self, now: int, begins: Sequence[int], before: int) -> list[tuple[int, Path]]:
        """Matches that were not delivered yet."""
        return [
            (begin, path)
            for begin in begins
            for end in range(begin, before)
            if self._in_time(begin, end)
            for path in self._ways(begin, end, now)
            if path in self._words.all and (begin, path) not in self._given
        ]

    def _over(self, now: int, here: Sequence[int]) -> Iterator[tuple[int, Path]]:
        """Matches that are made of the first rows of a way that does not go on."""
        (row,) = here
        found = dict[tuple[int, Path], None]()
        for begin in self._begins(row):
            if not self._in_time(begin, row):
                continue
            waiting = [] if begin == row else self._waiting(now, [begin], row)
            over = set[Path]()
            now_here = set(self._ways(begin, row, now))
            for way in self._ways(begin, row - 1, now) if begin < row else ():
                options = {path for path in self._prefixes if path[:-1] == way and len(path) == len(way) + 1}
                if options - now_here:
                    over.add(way)
            for way in now_here & self._words.all:
                if not any(path[:-1] == way for path in self._prefixes if path):
                    found[begin, way] = None
                    over.add(way)
            for _, path in waiting:
                if any(way[: len(path)] == path for way in over):
                    found[begin, path] = None
        yield from found

    # Deliveries

    def _delivered(self, now: int, found: Sequence[tuple[int, Path]], *, skips: bool) -> Iterator[Match]:
        """Those that are left of matches that would be delivered together."""
        upto = -1
        self._given |= {*found}
        for begin in sorted({begin for begin, _ in found}):
            mine = [path for first, path in found if first == begin]
            if self._rules.skip == "past last row" and begin <= upto:
                continue
            if not self._rules.every:
                mine = [max(mine, key=lambda path: (self._words.rank(path), len(path), [-place for place in path]))]
            for path in mine:
                rows = tuple(self._rows[begin : begin + len(path)])
                upto = max(upto, begin + len(path) - 1 if self._rules.skip == "past last row" else begin)
                yield Match(now, rows, tuple(self._words.variables[place] for place in path))
        if skips and self._rules.skip not in {"to current row", "while open"}:
            self._bound = max(self._bound, upto)
