"""The declarations of window kinds. A kind that leaves out a part is an error when its class is defined.

There are two families. A *data window* takes rows one by one: each row is in it for a stretch ``[enter, leave)``, which
depends on the other rows of its group. A *time window* (`gpu_ops.plan.windows`) is a stretch of time: a row's lifetime
alone decides whether the row is in it. So a data window declares when rows enter and leave, what a group remembers and
how far its rows depend on others; a time window declares its bounds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import MIN_TIME, TICK, format_span, format_time
from gpu_ops.errors import PlanError

if TYPE_CHECKING:
    from gpu_ops.devices import Device

UNKNOWN = 1 << 62
"""A time that is not known yet, but is not before the CTI."""

OUT = -(1 << 62)
"""The enter of a row that is never in the window."""


class Declaration(ABC):  # noqa: B024  (what is abstract, each family says)
    """A class that must define all abstract parts: a class that leaves one out cannot be defined.

    Examples:
        >>> class Half(DataWindowKind):
        ...     enters, leaves, remains = "at its start", "later", "nothing"
        Traceback (most recent call last):
        ...
        gpu_ops.errors.PlanError: The window kind Half does not say: halo, memberships, ties. Declare each of them: ...
    """

    called: ClassVar[str] = "window kind"
    """What an error calls such a class."""

    def __init_subclass__(cls, *, family: bool = False) -> None:
        """Refuse a kind that leaves out a part.

        Args:
            family: Whether the class is a base of several kinds, and not a kind.
        """
        super().__init_subclass__()
        missing = [name for name in dir(cls) if getattr(getattr(cls, name, None), "__isabstractmethod__", False)]
        if missing and not family:
            raise PlanError(
                f"The {cls.called} {cls.__name__} does not say: {', '.join(missing)}.",
                remedy=f"Declare each of them: no part of a {cls.called} has a default that an answer depends on.",
            )


# Which rows a slice of time needs


class Halo:
    """Which rows around a slice of time decide when its rows enter and leave."""

    reads_ends: ClassVar[bool] = False
    """Whether it depends on the ends of rows."""


@dataclass(frozen=True)
class NoHalo(Halo):
    """No others: a slice needs the rows that start in it."""

    def __str__(self) -> str:
        return "a slice is shown the events that start in it"


@dataclass(frozen=True)
class LiveHalo(Halo):
    """The rows that are alive when a row starts: a slice needs all rows that are alive in it."""

    reads_ends = True

    def __str__(self) -> str:
        return "a slice is shown the events that are alive in it"


@dataclass(frozen=True)
class RowHalo(Halo):
    """A number of rows before and after it.

    Attributes:
        count: How many rows.
        every: The window moves at each row whose number is a multiple of this: a slice needs the number of rows before
            it, modulo ``every``.
        starts: Whether it counts distinct starts instead of rows.
    """

    count: int
    every: int = 1
    starts: bool = False

    def __str__(self) -> str:
        return f"a slice is shown {self.count} {'starts' if self.starts else 'events'} before it and after it"


@dataclass(frozen=True)
class GapHalo(Halo):
    """The rows back to a gap in which no row starts: a slice begins after such a gap.

    Attributes:
        gap: The length of the gap, in ticks.
    """

    gap: int

    def __str__(self) -> str:
        return f"a slice begins where no event has started for {format_span(self.gap)}"


@dataclass(frozen=True)
class GridHalo(Halo):
    """The rows of one window of a grid: a slice begins with a window.

    Attributes:
        span: The length of a window.
        align: A point of the grid; None for the group's first start.
        calendar: The windows, if they are a calendar's.
    """

    span: int
    align: int | None
    calendar: GridKind | None = None

    def __str__(self) -> str:
        if self.calendar is not None:
            return f"a slice begins with a window of the calendar: {self.calendar}"
        point = "the first start" if self.align is None else format_time(self.align)
        return f"a slice begins a multiple of {format_span(self.span)} after {point}"


# When rows enter and leave


@dataclass(frozen=True)
class WindowRows:
    """Rows of some groups, by group, then in order: the rows that are in or may still enter, and the new rows.

    Attributes:
        code: int32 number of each row's group, ``0 … groups - 1``, ascending.
        bounds: int64: group g's rows are ``bounds[g] … bounds[g + 1] - 1``.
        start: int64 ticks.
        end: int64 ticks.
        number: int64 number of the row, or of its distinct start, in its group, from 0 on.
        first: int64 first start that each group has ever had.
        noted: int64 for each group the time that the window noted (`Membership.noted`); `UNKNOWN` before the first.
        cti: No later row starts before it.
        enter: int64 ticks at which a row entered in an earlier step; `UNKNOWN` before it does.
        before: int64 for each group the number that its next row would have had before this step.
        frame: The payload; ``device.columns`` reads it.
        schema: Its types.
        memo: int64 for each row the number that the window noted (`Membership.memo`); None without a `RowNote`.
        rows: Whether the caller asks for `Membership.entered` and `Membership.left`.
        continues: Whether rows of earlier steps are among them.
        ticks: The moves of the clock in this step, where a clock drives the window (`gpu_ops.plan.clock_windows`).
        due: int64 for each group, with a clock: as `Membership.due` was before.
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
    continues: bool = True
    ticks: Any = None
    due: Any = None

    def __len__(self) -> int:
        return len(self.start)


@dataclass
class Membership:
    """When rows are in their window.

    Attributes:
        enter: int64 ticks; `OUT` for a row that never enters, `UNKNOWN` for a row that may still enter. It is ignored
            for a row that entered in an earlier step.
        leave: int64 ticks; `UNKNOWN` if it is not known yet, the end of time if the row never leaves.
        entered: int64 index of the row whose arrival makes it enter, -1 if time alone does; None is allowed if the
            caller does not ask.
        left: Likewise for the row whose arrival makes it leave.
        due: int64 for each group the next time at which a row enters or leaves even if no row arrives; None if there is
            no such time.
        noted: int64 for each group a time that the window needs in the next step; None for most windows.
        memo: int64 for each row a number that the window needs in the next step, as its `RowNote` declares; None if
            these numbers do not change.
        fell: With a clock: int64 for each row the time at which its leave fell due; `UNKNOWN` if a row makes it leave.
        came: With a clock that completes batches: likewise the time at which its enter fell due; it is ignored for a
            row that entered in an earlier step. None for most windows.
        posts: With a clock: (int64 indices of the ticks at which a window posts, be it nothing; int64 times at which
            that fell due); None for most windows.
    """

    enter: Any
    leave: Any
    entered: Any
    left: Any
    due: Any | None = None
    noted: Any | None = None
    memo: Any | None = None
    fell: Any | None = None
    came: Any | None = None
    posts: tuple[Any, Any] | None = None


@dataclass(frozen=True)
class RowNote:
    """A number that a window remembers of each row that it holds.

    Attributes:
        name: The name of its column in a checkpoint.
        new: The number of a new row.
        least: The least possible number; None for no limit.
        most: The greatest possible number; None for no limit.
        after_start: Whether the number is a time after the row's start.
    """

    name: str
    new: int = 0
    least: int | None = None
    most: int | None = None
    after_start: bool = False


@dataclass(frozen=True)
class RememberedTime:
    """What remains of a group that holds no row: its last noted time, for a span.

    Attributes:
        span: The span after the noted time, in ticks.
        since: A time after which it also remains for the span, whatever was noted.
    """

    span: int
    since: int | None = None


@dataclass(frozen=True)
class AsPart:
    """How a kind behaves as one of several windows that are taken together.

    Attributes:
        batches: Whether rows gather, and enter together.
        timer: Whether it keeps a timer that cannot be computed from its rows.
        remains: What remains of a group that holds no row, as in `DataWindowKind`.
    """

    batches: bool = False
    timer: bool = False
    remains: Literal["nothing", "all"] = "nothing"


Enters = Literal["at its start", "later", "with the first"]
Leaves = Literal["at its end", "known", "later", "at once"]
Ties = Literal["alike", "by place", "by payload"]
Remains = Literal["nothing", "all"] | RememberedTime


class DataWindowKind(Declaration, family=True):
    """A kind of data window: a frozen dataclass of its parameters that defines the members below.

    Its state is the rows that it holds; `memberships` is a function of them, of the new rows and of a CTI. The same
    function serves a batch, whose CTI is the end of time, and each step of a running query: the answer must not depend
    on how many steps the rows came in.
    """

    @property
    @abstractmethod
    def enters(self) -> Enters:
        """When rows enter.

        ``"at its start"``: each row at its own start; ``"later"``: with a later row, or at a time; or ``"with the
        first"``: a later row may enter before rows that are already in, so no enter is final before the leave.
        """

    @property
    @abstractmethod
    def leaves(self) -> Leaves:
        """When rows leave.

        ``"at its end"``: each row at its own end; ``"known"``: at a time known when the row arrives; ``"later"``: at a
        time known later; or ``"at once"``: at a time known later, or with the row's own arrival.
        """

    @property
    @abstractmethod
    def ties(self) -> Ties:
        """How rows of one start differ.

        ``"alike"``: not at all; ``"by place"``: only their order matters; or ``"by payload"``: their values matter.
        """

    @property
    @abstractmethod
    def remains(self) -> Remains:
        """What a group that holds no row still remembers; a group that remembers nothing is forgotten.

        ``"nothing"``; ``"all"``, for instance the number of rows so far; or a `RememberedTime`.
        """

    @property
    @abstractmethod
    def halo(self) -> Halo | str:
        """Which rows a slice of time needs besides its own; or, in words, why there is no bound."""

    @abstractmethod
    def memberships(self, held: WindowRows, device: Device) -> Membership:
        """When each row enters and leaves, as far as that is known.

        Args:
            held: The rows, in arrays of the device: NumPy's, or arrays that NumPy's functions take by ``like=``.
            device: Its ``kernels`` and ``columns`` work on them.
        """

    counts: ClassVar[Literal["rows", "starts"]] = "rows"
    """What `WindowRows.number` counts."""

    on_host: ClassVar[bool] = False
    """Whether rows are taken one by one on the host; `explain` says so."""

    leaves_together: ClassVar[bool] = False
    """Whether all rows of a group that are in leave at one time, and `memberships` needs only one of the first of them
    and `WindowRows.noted` to tell when. A step then reads the others once that time is known, and not before."""

    stays_in_halo: ClassVar[bool] = False
    """Whether no row stays longer than `halo` reaches: it is out behind so many rows, the gap, or its window.

    On Spark aggregates over slices of time then need no pass of their own.
    """

    @property
    def row_by_row(self) -> bool:
        """Whether no row's enter and leave depend on other rows."""
        return self.is_lifetime

    @property
    def sees(self) -> int | None:
        """How far, in ticks, the clock must move past an arrival to make a row of its group enter or leave.

        None for one that is not by a clock, or that may need any move of it.
        """
        return None

    @property
    def note(self) -> RowNote | None:
        """The number that it remembers of each row."""
        return None

    @property
    def reads(self) -> tuple[str, ...]:
        """The payload columns that it reads."""
        return ()

    @property
    def groups(self) -> tuple[str, ...]:
        """Those of them whose values it tells apart, and no more."""
        return ()

    def computed(self, fields: Callable[[], pa.Schema]) -> tuple[tuple[nw.Expr, pa.Schema], ...]:
        """Its expressions, each with the columns that it reads; ``fields()`` gives those of conditions on windows."""
        return ()

    def duration(self, given: int | None) -> int | None:
        """How long each row is in, if that is the same for all; ``given`` is the length of the rows' own lifetimes."""
        return given if self.leaves == "at its end" else None

    def changed(self, before: Any, after: Any, due: Any, cti: int) -> Any | None:
        """Which held rows may change in a step, so that the step can skip the others.

        A step that skips rows of a kind with `leaves_together` is still shown the first one of each group.

        Args:
            before: int64 for each group the number that its next row would have had before the step.
            after: The same after the step.
            due: int64 for each group, as in `Membership`.
            cti: The step's CTI.

        Returns:
            int64 for each group: rows with lower numbers may change; None if all may.
        """
        return None

    @property
    def as_part(self) -> AsPart | None:
        """How it behaves together with other windows; None if it cannot be taken together with others."""
        return None

    def renamed(self, names: Mapping[str, str]) -> Self:
        """The same window over renamed columns."""
        return self

    # What follows from these

    def time_rule(self, output: str) -> str:
        """How a CTI passes it, in words.

        The output CTI is the input's, unless a result may still follow that starts before it. Rows given for as long as
        they are in wait for their leave, so the oldest enter without a leave holds the CTI back; other outputs are held
        back only by an enter that is not final.
        """
        if output == "alive":
            return "CTI T leaves as T, or as the enter of the oldest event that may yet leave after T"
        if self.holds_enters and output != "remove":
            return "CTI T leaves as T, or as the beginning of the oldest session that is open at T"
        return "CTI T leaves as T"

    @property
    def holds_enters(self) -> bool:
        """Whether no enter is final before the leave: a later row may enter before rows that are in."""
        return self.enters == "with the first"

    @property
    def is_all(self) -> bool:
        """Whether every row is in from its start on, forever."""
        return False

    @property
    def is_lifetime(self) -> bool:
        """Whether each row is in for as long as it lives."""
        return self.enters == "at its start" and self.leaves == "at its end"


Assigner = Callable[[Any, WindowRows, "Device"], Membership]

ASSIGNERS: dict[type, Assigner] = {}
"""How rows enter and leave the kinds of this package; `gpu_ops.operators` fills it, since plans do not touch arrays."""

CHANGED: dict[type, Callable[[Any, Any, Any, Any, int], Any | None]] = {}
"""Likewise `DataWindowKind.changed`, for the kinds that define it."""


class Assigned(DataWindowKind, family=True):
    """A kind of this package: `gpu_ops.operators` computes when its rows enter and leave."""

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
        """Refuse a kind for which no operator computes when rows enter and leave."""
        missing = [each.__name__ for each in cls._kinds if each not in ASSIGNERS]
        if missing:
            raise PlanError(
                f"No operator computes when rows enter and leave: {', '.join(missing)}.", remedy="Register one."
            )


# Time windows


WindowOutput = Literal["window", "point", "hop"]
MembershipRule = Literal["overlap", "start"]


class TimeWindowKind(Declaration, family=True):
    """A kind of window over stretches of time: a frozen dataclass of its parameters that defines the members below.

    It is either `gpu_ops.plan.windows.Snapshot`, with windows between the end points of lifetimes, or a `GridKind`. A
    row's own lifetime decides which windows it is in. So no row waits for another, a group remembers only the rows that
    are alive, and a slice of time needs the rows that are alive in its windows.
    """

    @property
    @abstractmethod
    def grid(self) -> GridKind | None:
        """Itself, if its windows do not depend on rows; None for snapshots."""

    @property
    @abstractmethod
    def time_rule(self) -> str:
        """How a CTI passes it, in words."""

    @property
    @abstractmethod
    def duration(self) -> int | None:
        """The length of each result in ticks, if it is the same for all."""


class GridKind(TimeWindowKind, family=True):
    """Windows that do not depend on rows, numbered in the order of their begins.

    Neither begins nor ends decrease from one window to the next. A row is in each window that it overlaps.
    """

    membership: MembershipRule = "overlap"
    output: WindowOutput = "window"
    until: int | None = None

    @abstractmethod
    def begins(self, numbers: Any) -> Any:
        """The begins of windows: int64 ticks for int64 numbers, NumPy arrays on any device."""

    @abstractmethod
    def finishes(self, numbers: Any) -> Any:
        """The ends of windows, exclusive."""

    @abstractmethod
    def around(self, time: int) -> tuple[int, int]:
        """(least, most): windows with lower numbers have ended by a time; those with higher ones begin after it."""

    @property
    def duration(self) -> int | None:
        return None

    @property
    def grid(self) -> GridKind:
        return self

    time_rule = "CTI T leaves as the start of the oldest window that is not final at T"

    @property
    def regular(self) -> Hopping | None:
        """Itself, if kernels compute its windows by arithmetic; None if the windows are listed, as a calendar's are."""
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
