"""The trees of event patterns over streams on turns (Esper: `from pattern […]`).

An atom waits for one event. What is around atoms says when others start: `FollowedBy` starts the next one when one
turned true, `EveryMatch` starts its own anew, `AllOf` and `AnyOf` wait for all or one, `NoMatch` is true until its own
turns true, `RepeatedMatch` counts, guards end what is below them, `ClockTime` waits for the clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from gpu_ops.plan.clock_windows import ClockSpan
from gpu_ops.plan.crontab_times import CrontabTimes
from gpu_ops.plan.row_programs import Cell, RowProgram

MOST_CHILDREN = 60
"""How many parts `AllOf` may have: which of them are true is a number."""

MARK_OF_ELEMENT = "["
"""What stands between a tag and the number of an element in the name of a slot."""


def slot_of(tag: str, element: int | None = None) -> str:
    """The name of the slot of a tag's row, or of an element of its list of rows.

    Examples:
        >>> slot_of("a"), slot_of("a", 1)
        ('a', 'a[1]')
    """
    return tag if element is None else f"{tag}[{element}]"


@dataclass(frozen=True, eq=False)
class PatternPart:
    """A node of the tree of a pattern."""

    kind: ClassVar[str]
    """How `describe` begins."""

    @property
    def parts(self) -> tuple[PatternPart, ...]:
        """What is below it."""
        return ()

    @property
    def programs(self) -> tuple[RowProgram | None, ...]:
        """What it evaluates."""
        return ()

    def walk(self) -> Iterator[PatternPart]:
        """It and all below it; each before what is below it."""
        yield self
        for each in self.parts:
            yield from each.walk()

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(map(str, self.parts))})"


@dataclass(frozen=True, eq=False)
class EventAtom(PatternPart):
    """One event of a stream.

    Attributes:
        stream: The number of the stream.
        tag: What the event is called; nothing for no name.
        holds: The column of the stream that says which events fulfil what is about them alone; none for all.
        equal: A cell of the event that equals a cell of an earlier tag; None for no such condition.
        rest: What else is to hold.
        level: Of all atoms that an event fulfils, only those of the greatest level are told (Esper: `@consume`).
    """

    kind = "event"
    stream: int
    tag: str = ""
    holds: str = ""
    equal: tuple[Cell, Cell] | None = None
    rest: RowProgram | None = None
    level: int = 0

    @property
    def programs(self) -> tuple[RowProgram | None, ...]:
        return (self.rest,)

    @property
    def has_condition(self) -> bool:
        """Whether it takes only some events: those are told first."""
        return bool(self.holds) or self.equal is not None or self.rest is not None

    def __str__(self) -> str:
        by = "" if self.equal is None else " by key"
        where = " where" if self.rest is not None else ""
        return f"{self.tag or '_'}=#{self.stream}{'+' if self.holds else ''}{by}{where}"


@dataclass(frozen=True, eq=False)
class OverOne(PatternPart):
    """What has one part."""

    part: PatternPart

    @property
    def parts(self) -> tuple[PatternPart, ...]:
        return (self.part,)


@dataclass(frozen=True, eq=False)
class OverSome(PatternPart):
    """What has several parts."""

    several: tuple[PatternPart, ...]

    @property
    def parts(self) -> tuple[PatternPart, ...]:
        return self.several


@dataclass(frozen=True, eq=False)
class EveryMatch(OverOne):
    """Starts its part anew whenever that turned true or false."""

    kind = "every"


@dataclass(frozen=True, eq=False)
class DistinctMatches(OverOne):
    """`EveryMatch` for one match of each key, until the key is forgotten, or the part turned false."""

    kind = "every-distinct"
    keys: tuple[RowProgram, ...] = ()
    forgets: ElapsedTime | None = None

    @property
    def programs(self) -> tuple[RowProgram | None, ...]:
        return self.keys


@dataclass(frozen=True, eq=False)
class FollowedBy(OverSome):
    """One after the other: each part starts with every match of the one before it.

    Attributes:
        limits: For each part but the first, of how many matches of the one before it waits at most; None for all.
    """

    kind = "followed by"
    limits: tuple[RowProgram | None, ...] = ()

    @property
    def programs(self) -> tuple[RowProgram | None, ...]:
        return self.limits


@dataclass(frozen=True, eq=False)
class AllOf(OverSome):
    """True when all parts are, with all combinations of what they found."""

    kind = "and"


@dataclass(frozen=True, eq=False)
class AnyOf(OverSome):
    """True when a part is; when one has ended true, the others end."""

    kind = "or"


@dataclass(frozen=True, eq=False)
class NoMatch(OverOne):
    """True at once, and false when its part turns true."""

    kind = "not"


@dataclass(frozen=True, eq=False)
class RepeatedMatch(PatternPart):
    """True when its part was, often enough, and `until` turned true; without `until` when it was true `high` times.

    Attributes:
        part: What is repeated.
        until: What ends it; None for nothing.
        low: How often at least; None for 0.
        high: How often at most; None for no limit.
    """

    kind = "repeat"
    part: PatternPart
    until: PatternPart | None = None
    low: RowProgram | None = None
    high: RowProgram | None = None

    @property
    def parts(self) -> tuple[PatternPart, ...]:
        return (self.part,) if self.until is None else (self.part, self.until)

    @property
    def programs(self) -> tuple[RowProgram | None, ...]:
        return (self.low, self.high)


# Times


@dataclass(frozen=True)
class ElapsedTime:
    """A span of time from the start on, which may be nothing.

    Attributes:
        months: Those of the calendar.
        ticks: What is added to them.
    """

    months: int = 0
    ticks: int = 0

    def dues(self, clocks: Any) -> Any:
        """int64: when it is over, for starts at some times of the clock (a host array)."""
        if not self.months and self.ticks <= 0:
            return clocks
        return ClockSpan(self.months, self.ticks).after(clocks)

    def __str__(self) -> str:
        return str(ClockSpan(self.months, self.ticks)) if self.months or self.ticks > 0 else "at once"


@dataclass(frozen=True, eq=False)
class ComputedSpan:
    """A span of milliseconds that earlier events say.

    Attributes:
        milliseconds: Its program.
    """

    milliseconds: RowProgram


@dataclass(frozen=True)
class TimesOfDay:
    """The next time that a crontab names."""

    times: CrontabTimes

    def __str__(self) -> str:
        return f"at {self.times}"


CrontabField = Literal["minutes", "hours", "days", "months", "weekdays", "seconds"]


@dataclass(frozen=True, eq=False)
class ComputedTimesOfDay:
    """A crontab, some fields of which earlier events say.

    Attributes:
        times: The other fields.
        fields: The programs of those.
    """

    times: CrontabTimes
    fields: tuple[tuple[CrontabField, RowProgram], ...]

    def after(self, clock: int, values: Sequence[int | None]) -> int:
        """The first named time after a time, for some values of the fields; never, if one of them is null."""
        found = [None if each is None else frozenset({each}) for each in values]
        if None in found:
            return (1 << 63) - 1
        named: dict[str, Any] = {name: value for (name, _), value in zip(self.fields, found, strict=False)}
        return replace(self.times, **named).next_after(clock)


@dataclass(frozen=True)
class ScheduledTimes:
    """Times at one distance from each other (Esper: `timer:schedule`).

    Attributes:
        first: The first one, in ticks; None for a distance behind the start.
        every: The distance in ticks; 0 for one time only.
        count: How many there are; None for no end.
    """

    first: int | None
    every: int
    count: int | None

    def __str__(self) -> str:
        return f"from {self.first} every {self.every} {self.count} times"


Due = ElapsedTime | ComputedSpan | TimesOfDay | ComputedTimesOfDay | ScheduledTimes


@dataclass(frozen=True, eq=False)
class WithinGuard(OverOne):
    """Ends its part when a time is over, or when it was true more often than allowed.

    Attributes:
        over: The time.
        most: How often; None for no limit.
    """

    kind = "within"
    over: ElapsedTime | ComputedSpan = ElapsedTime()
    most: RowProgram | None = None

    @property
    def programs(self) -> tuple[RowProgram | None, ...]:
        return (self.over.milliseconds if isinstance(self.over, ComputedSpan) else None, self.most)


@dataclass(frozen=True, eq=False)
class WhileGuard(OverOne):
    """Ends its part when that turns true and a condition does not hold."""

    kind = "while"
    condition: RowProgram | None = None

    @property
    def programs(self) -> tuple[RowProgram | None, ...]:
        return (self.condition,)


@dataclass(frozen=True, eq=False)
class ClockTime(PatternPart):
    """True when the clock shows a time or a later one."""

    kind = "clock"
    due: Due = ElapsedTime()

    @property
    def programs(self) -> tuple[RowProgram | None, ...]:
        if isinstance(self.due, ComputedSpan):
            return (self.due.milliseconds,)
        return tuple(each for _, each in self.due.fields) if isinstance(self.due, ComputedTimesOfDay) else ()

    def __str__(self) -> str:
        return str(self.due)


def tags_below(part: PatternPart) -> Mapping[str, None]:
    """The tags that a part sets, in order."""
    return dict.fromkeys(each.tag for each in part.walk() if isinstance(each, EventAtom) and each.tag)
