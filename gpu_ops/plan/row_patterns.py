"""Row patterns: which rows may follow each other in a match, and the machine of places that a pattern is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import permutations
from typing import Literal, TypeAlias

from gpu_ops.errors import PlanError

MOST_PLACES = 4096
"""How many places a pattern may have once repetitions with bounds and permutations are written out."""

MOST_VARIABLES = 62
"""How many variables: each is a bit of a row's 64."""

Skip = Literal["past last row", "to next row", "to current row", "while open"]
"""Where the match after a match may begin: behind its last row; behind its first row; anywhere; where none goes on."""


@dataclass(frozen=True)
class OneRow:
    """A row for which the condition of its name holds."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class OrderedRows:
    """One part after the other."""

    items: tuple[RowPattern, ...]

    def __str__(self) -> str:
        return " ".join(map(_within, self.items))


@dataclass(frozen=True)
class EitherRows:
    """One of the parts; of two that both lead to a match the first."""

    options: tuple[RowPattern, ...]

    def __str__(self) -> str:
        return f"({' | '.join(map(str, self.options))})"


@dataclass(frozen=True)
class PermutedRows:
    """All parts, in any order; of two orders that both lead to a match the one that is nearer to the written one."""

    items: tuple[RowPattern, ...]

    def __str__(self) -> str:
        return f"permute({', '.join(map(str, self.items))})"


@dataclass(frozen=True)
class RepeatedRows:
    """A part ``low`` to ``high`` times (None: without end), with as many rows as possible, or as few if not greedy."""

    item: RowPattern
    low: int
    high: int | None
    greedy: bool = True

    def __post_init__(self) -> None:
        if self.low < 0 or self.high == 0 or (self.high is not None and self.high < self.low):
            raise PlanError(
                f"A part of a row pattern is repeated {self.low} to {self.high} times.",
                remedy="Give whole numbers from 0 on, the second one at least 1 and at least the first.",
            )

    def __str__(self) -> str:
        sign = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((self.low, self.high))
        if sign is None:
            sign = f"{{{self.low},{'' if self.high is None else self.high}}}"
        return f"{_within(self.item)}{sign}{'' if self.greedy else '?'}"


RowPattern: TypeAlias = OneRow | OrderedRows | EitherRows | PermutedRows | RepeatedRows


def _within(part: RowPattern) -> str:
    text = str(part)
    return f"({text})" if " " in text and not text.startswith(("(", "permute")) else text


def variables_of(pattern: RowPattern) -> tuple[str, ...]:
    """The names of a pattern's variables, in the order in which they stand there, each once."""
    return tuple(dict.fromkeys(_names(pattern)))


def _names(pattern: RowPattern) -> Iterator[str]:
    match pattern:
        case OneRow(name):
            yield name
        case OrderedRows(parts) | EitherRows(parts) | PermutedRows(parts):
            for part in parts:
                yield from _names(part)
        case RepeatedRows(item):
            yield from _names(item)


def several_of(pattern: RowPattern) -> frozenset[str]:
    """The variables that may have several rows of a match: they are repeated, or stand at several places."""
    names = list(_names(pattern))
    return frozenset(name for name in names if names.count(name) > 1) | frozenset(_repeated(pattern))


def _repeated(pattern: RowPattern) -> Iterator[str]:
    match pattern:
        case OrderedRows(parts) | EitherRows(parts) | PermutedRows(parts):
            for part in parts:
                yield from _repeated(part)
        case RepeatedRows(item, _, high):
            yield from _names(item) if high != 1 else _repeated(item)


@dataclass(frozen=True)
class RowMachine:
    """A pattern as places: a match is a way from a first place to a last one, a row at each place of the way.

    Of two ways with the same first row, the one is better that has more rows at the first greedy place where they
    differ, or fewer rows at a reluctant one, the places in the order in which they stand in the pattern.

    Attributes:
        variable: The number of each place's variable.
        first: The places of first rows.
        following: For each place those that may come next.
        last: Whether a match may end at each place.
        sign: 1 for a greedy place, -1 for a reluctant one, 0 for one whose number of rows is fixed.
    """

    variable: tuple[int, ...]
    first: tuple[int, ...]
    following: tuple[tuple[int, ...], ...]
    last: tuple[bool, ...]
    sign: tuple[int, ...]

    @staticmethod
    def of(pattern: RowPattern) -> RowMachine:
        """The machine of a pattern.

        Raises:
            PlanError: It has too many variables or places.

        Examples:
            >>> a, b = OneRow("A"), OneRow("B")
            >>> machine = RowMachine.of(OrderedRows((a, RepeatedRows(b, 1, None))))
            >>> machine.first, machine.following, machine.last
            ((0,), ((1,), (1,)), (False, True))
        """
        names = variables_of(pattern)
        if len(names) > MOST_VARIABLES:
            raise PlanError(
                f"The row pattern has {len(names)} variables.", remedy=f"Use at most {MOST_VARIABLES} of them."
            )
        made = _PatternPlaces({name: at for at, name in enumerate(names)})
        whole = made.part(pattern, 0)
        ends = set(whole.last)
        return RowMachine(
            tuple(made.variable),
            whole.first,
            tuple(tuple(dict.fromkeys(each)) for each in made.following),
            tuple(at in ends for at in range(len(made.variable))),
            tuple(made.sign),
        )

    @cached_property
    def counted(self) -> tuple[int, ...]:
        """For each place the number of its count among those that are compared; -1 if it has none."""
        numbers = iter(range(len(self.sign)))
        return tuple(next(numbers) if sign else -1 for sign in self.sign)


@dataclass(frozen=True)
class _Part:
    """A part of a pattern: whether it may have no row, the places where it may begin, and those where it may end."""

    empty: bool
    first: tuple[int, ...]
    last: tuple[int, ...]


@dataclass
class _PatternPlaces:
    """The places that were made so far; `numbers` are those of the variables."""

    numbers: dict[str, int]
    variable: list[int] = field(default_factory=list)
    following: list[list[int]] = field(default_factory=list)
    sign: list[int] = field(default_factory=list)

    def part(self, pattern: RowPattern, sign: int) -> _Part:
        """The places of a part; ``sign`` is that of the innermost repetition that it stands in."""
        match pattern:
            case OneRow(name):
                return self._place(name, sign)
            case OrderedRows(items):
                return self._sequence([_made(self, item, sign) for item in items])
            case EitherRows(options):
                return _any_of([self.part(option, sign) for option in options])
            case PermutedRows(items):
                orders = ([_made(self, item, sign) for item in order] for order in permutations(items))
                return _any_of([self._sequence(order) for order in orders])
            case RepeatedRows(item, low, high, greedy):
                return self._repeat(item, low, high, 1 if greedy else -1, sign)

    def _place(self, name: str, sign: int) -> _Part:
        at = len(self.variable)
        if at == MOST_PLACES:
            raise PlanError(
                f"The row pattern has more than {MOST_PLACES} places, with repetitions and permutations written out.",
                remedy="Make the bounds of its repetitions smaller, or permute fewer parts.",
            )
        self.variable.append(self.numbers[name])
        self.following.append([])
        self.sign.append(sign)
        return _Part(False, (at,), (at,))

    def _sequence(self, items: Sequence[Callable[[], _Part]]) -> _Part:
        whole = _Part(True, (), ())
        for make in items:
            part = make()
            for at in whole.last:
                self.following[at].extend(part.first)
            whole = _Part(
                whole.empty and part.empty,
                whole.first + part.first if whole.empty else whole.first,
                whole.last + part.last if part.empty else part.last,
            )
        return whole

    def _repeat(self, item: RowPattern, low: int, high: int | None, own: int, sign: int) -> _Part:
        """Fixed repetitions as often as they must be there, then those that may be, each within the one before."""
        fixed = [_made(self, item, sign)] * (low if high is not None else max(low - 1, 0))
        if high is None:
            return self._sequence([*fixed, lambda: self._loop(item, own, empty=not low)])
        return self._sequence([*fixed, lambda: self._optional(item, own, high - low)])

    def _loop(self, item: RowPattern, own: int, *, empty: bool) -> _Part:
        part = self.part(item, own)
        for at in part.last:
            self.following[at].extend(part.first)
        return _Part(part.empty or empty, part.first, part.last)

    def _optional(self, item: RowPattern, own: int, times: int) -> _Part:
        first: tuple[int, ...] = ()
        last: tuple[int, ...] = ()
        before: tuple[int, ...] = ()
        for time in range(times):
            part = self.part(item, own)
            for at in before:
                self.following[at].extend(part.first)
            first, before = first if time else part.first, part.last
            last += part.last
        return _Part(True, first, last)


def _made(places: _PatternPlaces, item: RowPattern, sign: int) -> Callable[[], _Part]:
    return lambda: places.part(item, sign)


def _any_of(parts: Sequence[_Part]) -> _Part:
    return _Part(
        any(part.empty for part in parts),
        tuple(at for part in parts for at in part.first),
        tuple(at for part in parts for at in part.last),
    )
