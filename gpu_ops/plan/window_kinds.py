"""What a kind of window has to say of itself. A part that a kind leaves out is an error where its class is made.

There are two families. A *data window* takes rows one by one: each has a stretch ``[enter, leave)`` for which it is in,
which depends on the other rows of its group. A *time window* (`gpu_ops.plan.windows`) is a stretch of time:
which rows are in it, their lifetimes alone say. So a data window says when rows come and go, what is remembered of a
group, and how far around its rows it looks; a time window says where its bounds lie.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import MIN_TIME, TICK, format_span, format_time
from gpu_ops.errors import PlanError

if TYPE_CHECKING:
    from gpu_ops.devices import Device

UNKNOWN = 1 << 62
"""A time that is not known yet: it is the CTI's or later."""

OUT = -(1 << 62)
"""The enter of a row that is never in."""


class Declaration(ABC):  # noqa: B024  (what is abstract, each family says)
    """A class that is whole, or is not made at all: whatever is abstract in it has to be said.

    Examples:
        >>> class Half(DataWindowKind):
        ...     enters, leaves, remains = "at its start", "later", "nothing"
        Traceback (most recent call last):
        ...
        gpu_ops.errors.PlanError: The window kind Half does not say: halo, memberships, ties. Declare each of them: ...
    """

    called: ClassVar[str] = "window kind"
    """What such a class is, in errors."""

    def __init_subclass__(cls, *, family: bool = False) -> None:
        """Refuse a kind of which a part is missing.

        Args:
            family: Whether it is no kind yet, but what several kinds have in common.
        """
        super().__init_subclass__()
        missing = [name for name in dir(cls) if getattr(getattr(cls, name, None), "__isabstractmethod__", False)]
        if missing and not family:
            raise PlanError(
                f"The {cls.called} {cls.__name__} does not say: {', '.join(missing)}.",
                remedy=f"Declare each of them: no part of a {cls.called} has a default that an answer depends on.",
            )


# What a slice of time is shown


class Halo:
    """How far the stay of a row depends on rows before it and after it."""

    reads_ends: ClassVar[bool] = False
    """Whether the ends of rows play a part."""


@dataclass(frozen=True)
class NoHalo(Halo):
    """Each row by itself: a slice is shown those that start in it."""

    def __str__(self) -> str:
        return "a slice is shown the events that start in it"


@dataclass(frozen=True)
class LiveHalo(Halo):
    """The rows that are alive when one comes: a slice is shown all that are alive in it."""

    reads_ends = True

    def __str__(self) -> str:
        return "a slice is shown the events that are alive in it"


@dataclass(frozen=True)
class RowHalo(Halo):
    """A number of rows before and after.

    Attributes:
        count: How many.
        every: The window moves at each row whose number is a multiple of this: a slice is told how many rows come
            before it, modulo that.
        starts: Whether distinct starts are counted, and not rows.
    """

    count: int
    every: int = 1
    starts: bool = False

    def __str__(self) -> str:
        return f"a slice is shown {self.count} {'starts' if self.starts else 'events'} before it and after it"


@dataclass(frozen=True)
class GapHalo(Halo):
    """What comes after no row has started for a span: a slice begins there.

    Attributes:
        gap: How long, in ticks.
    """

    gap: int

    def __str__(self) -> str:
        return f"a slice begins where no event has started for {format_span(self.gap)}"


@dataclass(frozen=True)
class GridHalo(Halo):
    """The rows of one stretch of a grid: a slice begins with a stretch.

    Attributes:
        span: How long a stretch is.
        align: A point of the grid; None for the group's first start.
        calendar: The stretches, if they are a calendar's.
    """

    span: int
    align: int | None
    calendar: GridKind | None = None

    def __str__(self) -> str:
        if self.calendar is not None:
            return f"a slice begins with a window of the calendar: {self.calendar}"
        point = "the first start" if self.align is None else format_time(self.align)
        return f"a slice begins so many times {format_span(self.span)} from {point}"


# How rows come and go


@dataclass(frozen=True)
class WindowRows:
    """Rows of some groups, in order of group, then of their coming: those that are in or may be yet, and new ones.

    Attributes:
        code: int32 number of each row's group, ``0 … groups - 1``, ascending.
        bounds: int64: group g's rows are ``bounds[g] … bounds[g + 1] - 1``.
        start: int64 ticks.
        end: int64 ticks.
        number: int64 number of the row in its group, or of its distinct start, as the window counts; from 0 on.
        first: int64 first start of each group ever.
        noted: int64 what the window noted of each group (`Membership.noted`); `UNKNOWN` before it did.
        cti: No row that comes later starts before it.
        enter: int64 ticks at which a row entered in an earlier step; `UNKNOWN` before it does.
        before: int64 for each group the number that its next row had before this step.
        frame: The payload; ``device.columns`` reads it.
        schema: Its types.
        memo: int64 for each row what the window noted of it (`Membership.memo`); None of a kind without a `RowNote`.
        rows: Whether it is asked with which rows each enters and leaves.
    """

    code: Any
    bounds: Any
    start: Any
    end: Any
    number: Any
    first: Any
    noted: Any
    cti: int
    enter: Any
    before: Any
    frame: Any
    schema: pa.Schema
    memo: Any | None = None
    rows: bool = True

    def __len__(self) -> int:
        return len(self.start)


@dataclass
class Membership:
    """When rows are in their window.

    Attributes:
        enter: int64 ticks; `OUT` for a row that is never in, `UNKNOWN` if it may enter yet. Of a row that has entered
            in an earlier step it is not looked at.
        leave: int64 ticks; `UNKNOWN` if it is not known yet, the end of time if never.
        entered: int64 index of the row with which it enters, -1 where time alone makes it; it may be None where nobody
            asks, and so may ``left``.
        left: Likewise of the row with which it leaves.
        due: int64 for each group the time at which something happens even if no row comes; None if nothing does.
        noted: int64 for each group a time that the window has to know in the next step; None of most windows.
        memo: int64 for each row what the window has to know of it in the next step, as its `RowNote` declares; None
            where that stays as it is.
    """

    enter: Any
    leave: Any
    entered: Any
    left: Any
    due: Any | None = None
    noted: Any | None = None
    memo: Any | None = None


@dataclass(frozen=True)
class RowNote:
    """A number that a window remembers of each row that it holds.

    Attributes:
        name: The name of its column in a checkpoint.
        new: What it is of a row that has just come.
        least: What none is below; None for any.
        most: What none is above; None for any.
        after_start: Whether it is a time after the row's start.
    """

    name: str
    new: int = 0
    least: int | None = None
    most: int | None = None
    after_start: bool = False


@dataclass(frozen=True)
class Clock:
    """What remains of a group that holds no row: the time that was noted of it last, for so long.

    Attributes:
        span: How long, in ticks.
        since: It lasts as long after this time, whatever was noted.
    """

    span: int
    since: int | None = None


@dataclass(frozen=True)
class AsPart:
    """What a kind does where it is one of several windows that are taken together.

    Attributes:
        batches: Whether rows gather, and are in together.
        timer: Whether it keeps a timer that no row tells.
        remains: What remains of a group that holds no row, as in `DataWindowKind`.
    """

    batches: bool = False
    timer: bool = False
    remains: Literal["nothing", "all"] = "nothing"


Enters = Literal["at its start", "later", "with the first"]
Leaves = Literal["at its end", "known", "later", "at once"]
Ties = Literal["alike", "by place", "by payload"]
Remains = Literal["nothing", "all"] | Clock


class DataWindowKind(Declaration, family=True):
    """A kind of data window: a frozen dataclass of its parameters that says all of this.

    Its state is the rows that it holds; `memberships` is a function of them, of the new rows and of a CTI. The same
    function serves a batch, whose CTI is the end of time, and each step of a running query: the answer must not depend
    on how many steps the rows came in.
    """

    @property
    @abstractmethod
    def enters(self) -> Enters:
        """When rows enter.

        ``"at its start"`` each; ``"later"``, with a later row or at a time; or ``"with the first"``: one that comes
        later may enter before others that are in, so no enter is final before the leave.
        """

    @property
    @abstractmethod
    def leaves(self) -> Leaves:
        """When rows leave.

        ``"at its end"`` each, its own; or at a time that is ``"known"`` as soon as the row comes; or is known
        ``"later"``; or ``"at once"``: later, and it may be with the row's own coming.
        """

    @property
    @abstractmethod
    def ties(self) -> Ties:
        """What tells rows of one start apart.

        Nothing, they are ``"alike"``; ``"by place"``: which comes first, whatever is in them; or ``"by payload"``.
        """

    @property
    @abstractmethod
    def remains(self) -> Remains:
        """What plays a part of a group that holds no row; one of which nothing does is forgotten.

        ``"nothing"``; ``"all"`` that has been, as where rows are counted from the first on; or a `Clock`.
        """

    @property
    @abstractmethod
    def halo(self) -> Halo | str:
        """What a slice of time is shown: how far a row's stay depends on others; or why no bound is known, in words."""

    @abstractmethod
    def memberships(self, held: WindowRows, device: Device) -> Membership:
        """When each row is in its window, as far as it is known.

        Args:
            held: The rows. Their arrays are the device's: NumPy's, or such as answer to ``like=``.
            device: Its ``kernels`` and ``columns`` work on them.
        """

    counts: ClassVar[Literal["rows", "starts"]] = "rows"
    """What `WindowRows.number` counts."""

    on_host: ClassVar[bool] = False
    """Whether rows are taken one by one, on the host, as `explain` says then."""

    @property
    def note(self) -> RowNote | None:
        """What it remembers of each row."""
        return None

    @property
    def reads(self) -> tuple[str, ...]:
        """The payload columns that it reads."""
        return ()

    def computed(self, fields: Callable[[], pa.Schema]) -> tuple[tuple[nw.Expr, pa.Schema], ...]:
        """Its expressions, each with the columns that it is over: ``fields()`` are those of conditions on windows."""
        return ()

    def duration(self, given: int | None) -> int | None:
        """How long each row is in, if that is one span; ``given`` is the span of the rows' own lifetimes."""
        return given if self.leaves == "at its end" else None

    def changed(self, before: Any, after: Any, due: Any, cti: int) -> Any | None:
        """Of which held rows something may change, so that a step need not look at all of its groups.

        Args:
            before: int64 for each group the number that its next row had before the step.
            after: The same after it.
            due: int64 for each group when something happens even if no row comes.
            cti: The step's.

        Returns:
            int64 for each group: rows of lower numbers; None for all.
        """
        return None

    @property
    def as_part(self) -> AsPart | None:
        """What it does where it is taken together with others; None of a kind that cannot be."""
        return None

    def renamed(self, names: Mapping[str, str]) -> Self:
        """The same over columns with other names."""
        return self

    # What follows from these

    def time_rule(self, output: str) -> str:
        """How a CTI passes it, in words.

        A CTI leaves as it came, but that nothing that starts before it may be given later: an enter of which the leave
        is not known is given with it, and so holds the CTI; of the other outputs only one that is not final holds it.
        """
        if output == "alive":
            return "CTI T leaves as T, or as the enter of the oldest event that may yet leave after T"
        if self.holds_enters and output != "remove":
            return "CTI T leaves as T, or as the beginning of the oldest session that is open at T"
        return "CTI T leaves as T"

    @property
    def holds_enters(self) -> bool:
        """Whether no enter is final before the leave: a row that comes later may enter before others."""
        return self.enters == "with the first"

    @property
    def is_lifetime(self) -> bool:
        """Whether each row is in for as long as it lives."""
        return self.enters == "at its start" and self.leaves == "at its end"


Assigner = Callable[[Any, WindowRows, "Device"], Membership]

ASSIGNERS: dict[type, Assigner] = {}
"""How rows enter and leave the kinds of this package, which `gpu_ops.operators` says: no plan looks at arrays."""

CHANGED: dict[type, Callable[[Any, Any, Any, Any, int], Any | None]] = {}
"""Likewise what a step may change, of the kinds that say so."""


class Assigned(DataWindowKind, family=True):
    """A kind of this package: what it does with arrays is in the room of the operators."""

    _kinds: ClassVar[list[type]] = []

    def __init_subclass__(cls, *, family: bool = False) -> None:
        super().__init_subclass__(family=family)
        if not family:
            cls._kinds.append(cls)

    def memberships(self, held: WindowRows, device: Device) -> Membership:
        return ASSIGNERS[type(self)](self, held, device)

    def changed(self, before: Any, after: Any, due: Any, cti: int) -> Any | None:
        own = CHANGED.get(type(self))
        return None if own is None else own(self, before, after, due, cti)

    @classmethod
    def check(cls) -> None:
        """Refuse a kind for which no operator says how its rows enter and leave."""
        missing = [each.__name__ for each in cls._kinds if each not in ASSIGNERS]
        if missing:
            raise PlanError(f"No operator says how rows enter and leave: {', '.join(missing)}.", remedy="Register one.")


# Time windows


WindowOutput = Literal["window", "point", "hop"]
MembershipRule = Literal["overlap", "start"]


class TimeWindowKind(Declaration, family=True):
    """A kind of window over stretches of time: a frozen dataclass of its parameters that says all of this.

    Either its windows lie between the ends of lifetimes (`gpu_ops.plan.windows.Snapshot`, and no other), or they are a
    `GridKind`. Each row is in what its own lifetime says, so no row waits for another, only
    the rows that are alive remain of a group, and a slice of time is shown what is alive in its windows.
    """

    @property
    @abstractmethod
    def grid(self) -> GridKind | None:
        """Itself, if its windows are there whatever the rows are; None of snapshots."""

    @property
    @abstractmethod
    def time_rule(self) -> str:
        """How a CTI passes it, in words."""

    @property
    @abstractmethod
    def duration(self) -> int | None:
        """How long each result lasts, if that is one span, in ticks."""


class GridKind(TimeWindowKind, family=True):
    """Windows that are there whatever the rows are, numbered in the order in which they begin.

    Neither begins nor ends go back from a window to the next. A row is in each window that it overlaps.
    """

    membership: MembershipRule = "overlap"
    output: WindowOutput = "window"
    until: int | None = None

    @abstractmethod
    def begins(self, numbers: Any) -> Any:
        """When windows begin: int64 ticks for int64 numbers, NumPy arrays on any device."""

    @abstractmethod
    def finishes(self, numbers: Any) -> Any:
        """When they end, exclusive."""

    @abstractmethod
    def around(self, time: int) -> tuple[int, int]:
        """(least, most): windows of lower numbers have ended by a time, and those of higher ones begin after it."""

    @property
    def duration(self) -> int | None:
        return None

    @property
    def grid(self) -> GridKind:
        return self

    time_rule = "CTI T leaves as the start of the oldest window that is not final at T"

    @property
    def regular(self) -> Hopping | None:
        """Itself, if arithmetic finds its windows, as kernels do; of others they are listed, as the calendar's are."""
        return None

    def giving(self, output: WindowOutput) -> Self:
        """The same windows with another lifetime of results."""
        return self if output == self.output else replace(self, output=output)  # type: ignore[type-var]


@dataclass(frozen=True)
class Hopping(GridKind):
    """Windows on a grid; tumbling windows are those whose hop is their size.

    With ``membership="overlap"`` (StreamInsight) window k is ``[align + k * hop, + size)`` and holds every event that
    overlaps it. With ``membership="start"`` (Trill's repetitive hopping window) the grid point ``T = align + k * hop``
    holds every event that starts in ``(T - size, T]``.

    ``output`` gives the result's lifetime: ``"window"`` the window itself, ``"point"`` one tick at its end,
    ``"hop"`` the hop that begins at the grid point T (for ``membership="start"``).
    ``until`` clips every lifetime, which bounds the windows of events that never end.
    """

    size: int
    hop: int
    align: int = MIN_TIME
    membership: MembershipRule = "overlap"
    output: WindowOutput = "window"
    until: int | None = None

    def __str__(self) -> str:
        kind = "tumbling" if self.hop == self.size else "hopping"
        every = "" if self.hop == self.size else f" every={format_span(self.hop)}"
        align = "" if self.align == MIN_TIME else f" align={format_time(self.align)}"
        until = "" if self.until is None else f" until={format_time(self.until)}"
        rest = ("" if self.membership == "overlap" else " membership=start") + (
            "" if self.output == "window" else f" output={self.output}"
        )
        return f"{kind} size={format_span(self.size)}{every}{align}{until}{rest}"

    @property
    def lifetime(self) -> tuple[int, int]:
        """A result's start and end, in ticks after its grid point ``align + k * hop``."""
        ends = self.size if self.membership == "overlap" else 0
        if self.output == "point":
            return ends, ends + TICK
        if self.output == "hop":
            return 0, self.hop
        return ends - self.size, ends

    @property
    def duration(self) -> int:
        start, end = self.lifetime
        return end - start

    @property
    def regular(self) -> Hopping:
        return self

    @property
    def _first(self) -> int:
        """Where window 0 begins."""
        return self.align if self.membership == "overlap" else self.align - self.size + TICK

    def begins(self, numbers: Any) -> Any:
        return numbers * self.hop + self._first

    def finishes(self, numbers: Any) -> Any:
        return self.begins(numbers) + self.size

    def around(self, time: int) -> tuple[int, int]:
        past = time - self._first
        return (past - self.size) // self.hop, past // self.hop + 1


class Listing(NamedTuple):
    """What `gpu_ops.operators` says of a grid of this package that arithmetic does not find: as in `GridKind`."""

    begins: Callable[[Any, Any], Any]
    finishes: Callable[[Any, Any], Any]
    around: Callable[[Any, int], tuple[int, int]]


LISTINGS: dict[type, Listing] = {}


class AssignedGrid(GridKind, family=True):
    """A grid of this package: what it does with arrays is in the room of the operators."""

    def begins(self, numbers: Any) -> Any:
        return LISTINGS[type(self)].begins(self, numbers)

    def finishes(self, numbers: Any) -> Any:
        return LISTINGS[type(self)].finishes(self, numbers)

    def around(self, time: int) -> tuple[int, int]:
        return LISTINGS[type(self)].around(self, time)
