"""What an event pattern says, and what the pattern of a match_recognize clause says of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from gpu_ops.texts.expressions import Argument, Constant, Expression, Syntax, dotted, listed, ticked


@dataclass(frozen=True)
class Annotation(Syntax):
    """`@name('value')`: settings by name; the name of a single value is `value`. Names as values are expressions."""

    name: str
    settings: tuple[tuple[str, Expression | Annotation | AnnotationList], ...] = ()

    @property
    def value(self) -> object:
        """The constant that is its only setting, if it is one."""
        only = self.settings[0][1] if len(self.settings) == 1 else None
        return only.value if isinstance(only, Constant) else None

    def __str__(self) -> str:
        settings = ",".join(
            str(value) if name == "value" else f"{ticked(name)}={value}" for name, value in self.settings
        )
        return f"@{dotted(self.name)}{f'({settings})' if settings else ''}"


@dataclass(frozen=True)
class AnnotationList(Syntax):
    """`{a,b}` as a setting."""

    items: tuple[Expression | Annotation | AnnotationList, ...]

    def __str__(self) -> str:
        return f"{{{listed(self.items)}}}"


@dataclass(frozen=True)
class EventFilter(Syntax):
    """The events of a type that fulfil all filters."""

    type_name: str
    filters: tuple[Expression, ...] = ()

    def __str__(self) -> str:
        return f"{dotted(self.type_name)}{f'({listed(self.filters)})' if self.filters else ''}"


@dataclass(frozen=True)
class PatternTerm(Syntax):
    """A pattern or a part of one; `level` as in an expression."""

    level: ClassVar[int] = 7


@dataclass(frozen=True)
class PatternEvents(PatternTerm):
    """One event, which expressions call `tag`; annotations are such as `@consume(2)`."""

    events: EventFilter
    tag: str = ""
    annotations: tuple[Annotation, ...] = ()

    def __str__(self) -> str:
        return f"{f'{ticked(self.tag)}=' if self.tag else ''}{self.events}{''.join(map(str, self.annotations))}"


@dataclass(frozen=True)
class PatternObserver(PatternTerm):
    """`timer:interval(10 sec)`."""

    namespace: str
    name: str
    arguments: tuple[Argument, ...]

    def __str__(self) -> str:
        return f"{ticked(self.namespace)}:{ticked(self.name)}({listed(self.arguments)})"


@dataclass(frozen=True)
class PatternGuard(PatternTerm):
    """`pattern where timer:within(10 sec)`."""

    level = 6
    pattern: PatternTerm
    namespace: str
    name: str
    arguments: tuple[Argument, ...]

    def __str__(self) -> str:
        return (
            f"{_within(self.pattern, 6)} where {ticked(self.namespace)}:{ticked(self.name)}({listed(self.arguments)})"
        )


@dataclass(frozen=True)
class PatternWhile(PatternTerm):
    """`pattern while (condition)`."""

    level = 6
    pattern: PatternTerm
    condition: Expression

    def __str__(self) -> str:
        return f"{_within(self.pattern, 6)} while ({self.condition})"


@dataclass(frozen=True)
class PatternEvery(PatternTerm):
    """`every pattern`, or `every-distinct(keys) pattern`, whose last argument may be how long a key is remembered."""

    level = 5
    pattern: PatternTerm
    distinct: tuple[Argument, ...] | None = None

    def __str__(self) -> str:
        word = "every" if self.distinct is None else f"every-distinct({listed(self.distinct)})"
        return f"{word} {_operand(self.pattern)}"


@dataclass(frozen=True)
class PatternNot(PatternTerm):
    """`not pattern`."""

    level = 5
    pattern: PatternTerm

    def __str__(self) -> str:
        return f"not {_operand(self.pattern)}"


@dataclass(frozen=True)
class PatternUntil(PatternTerm):
    """`[low:high] pattern until end`; without an end the pattern ends when it was true that often."""

    level = 4
    pattern: PatternTerm
    until: PatternTerm | None = None
    low: Expression | None = None
    high: Expression | None = None

    def __str__(self) -> str:
        bounds = f"{'' if self.low is None else self.low} : {'' if self.high is None else self.high}"
        bounds = str(self.low) if self.low is not None and self.low == self.high else bounds
        before = "" if self.low is None and self.high is None else f"[{bounds}] "
        return f"{before}{_within(self.pattern, 5)}{'' if self.until is None else f' until {_within(self.until, 5)}'}"


@dataclass(frozen=True)
class PatternLogical(PatternTerm):
    """Patterns joined by `and`, or by `or`."""

    operator: Literal["and", "or"]
    patterns: tuple[PatternTerm, ...]

    @property
    def level(self) -> int:  # type: ignore[override]
        """Of the operator."""
        return 3 if self.operator == "and" else 2

    def __str__(self) -> str:
        return f" {self.operator} ".join(_within(each, self.level + 1) for each in self.patterns)


@dataclass(frozen=True)
class PatternFollowedBy(PatternTerm):
    """`first -> second -> third`; a limit (`-[3]>`) says how many first ones wait at most. One limit for each arrow."""

    level = 1
    patterns: tuple[PatternTerm, ...]
    limits: tuple[Expression | None, ...]

    def __str__(self) -> str:
        first, *more = self.patterns
        arrows = (" -> " if limit is None else f" -[{limit}]> " for limit in self.limits)
        later = (f"{arrow}{_within(each, 2)}" for arrow, each in zip(arrows, more, strict=True))
        return _within(first, 2) + "".join(later)


def _within(pattern: PatternTerm, level: int) -> str:
    return str(pattern) if pattern.level >= level else f"({pattern})"


def _operand(pattern: PatternTerm) -> str:
    """Of `every` and `not`, before which a repetition needs no parentheses unless it has an end."""
    bare = isinstance(pattern, PatternUntil) and pattern.until is None
    return str(pattern) if bare else _within(pattern, 5)


# Rows


@dataclass(frozen=True)
class RowVariable(Syntax):
    """A row that fulfils the definition of its name."""

    level: ClassVar[int] = 4
    name: str

    def __str__(self) -> str:
        return ticked(self.name)


@dataclass(frozen=True)
class RowSequence(Syntax):
    """One after the other."""

    level: ClassVar[int] = 2
    items: tuple[RowPattern, ...]

    def __str__(self) -> str:
        return " ".join(_row(item, 3) for item in self.items)


@dataclass(frozen=True)
class RowChoice(Syntax):
    """One of them."""

    level: ClassVar[int] = 1
    options: tuple[RowPattern, ...]

    def __str__(self) -> str:
        return " | ".join(_row(option, 2) for option in self.options)


@dataclass(frozen=True)
class RowPermutation(Syntax):
    """All of them, in any order."""

    level: ClassVar[int] = 4
    items: tuple[RowPattern, ...]

    def __str__(self) -> str:
        return f"match_recognize_permute({listed(self.items)})"


@dataclass(frozen=True)
class RowRepeat(Syntax):
    """Low to high times (None: without end), as often as possible, or as seldom as possible where it is not greedy."""

    level: ClassVar[int] = 3
    item: RowPattern
    low: int
    high: int | None
    greedy: bool = True

    def __str__(self) -> str:
        sign = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((self.low, self.high))
        if sign is not None:
            return f"{_row(self.item, 4)}{sign}{'' if self.greedy else '?'}"
        high = "" if self.high is None else self.high
        return f"{_row(self.item, 4)}{{{self.low if self.low == self.high else f'{self.low},{high}'}}}"


RowPattern: TypeAlias = RowVariable | RowSequence | RowChoice | RowPermutation | RowRepeat


def _row(item: RowPattern, level: int) -> str:
    return str(item) if item.level >= level else f"({item})"
