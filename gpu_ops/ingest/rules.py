"""The rules for lifetimes, their error texts, and the policies for rows that break them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from gpu_ops.errors import PlanError, shown

Unit = Literal["s", "ms", "us", "ns"]
Round = Literal["floor", "ceil", "half_even"]
NullEnd = Literal["raise", "open"]
OnInvalid = Literal["raise", "drop", "divert"]
Ambiguous = Literal["raise", "earliest", "latest"]
Nonexistent = Literal["raise", "shift_forward", "shift_backward"]
Shape = Literal["edge"]


@dataclass(frozen=True)
class TimeRule:
    """A rule about one of the two times, or about both.

    Attributes:
        name: The name of a breach in reports and diverted rows; a rule about one time gets ``_start`` or ``_end``.
        problem: The problem, with ``{side}`` for "start" or "end".
        remedy: The remedy, besides ``on_invalid=``.
    """

    name: str
    problem: str
    remedy: str


NULL = TimeRule("null", "The {side} is null", "Fill it.")
UNREADABLE = TimeRule(
    "unreadable", "The {side} is no time that can be read", "Write it as ISO 8601, or as an integer with unit=."
)
NO_ZONE = TimeRule(
    "no_zone", "The {side} has no zone, and other rows' times have one", "Pass zone=, the zone of local times."
)
OUTSIDE = TimeRule(
    "outside", "The {side} is outside the years 1 to 9999", "Bound it; an end of 9999-12-31T23:59:59.999999Z is open."
)
TOO_FINE = TimeRule("too_fine", "The {side} is finer than a microsecond", 'Say round="floor", "ceil" or "half_even".')
AMBIGUOUS = TimeRule("ambiguous", "The clock showed the {side} twice", 'Say ambiguous="earliest" or "latest".')
NONEXISTENT = TimeRule(
    "nonexistent", "The clock skipped the {side}", 'Say nonexistent="shift_forward" or "shift_backward".'
)

TIME_RULES = (NULL, UNREADABLE, NO_ZONE, OUTSIDE, TOO_FINE, AMBIGUOUS, NONEXISTENT)
"""The rules about one time. A row counts under the first rule that it breaks; the start comes before the end."""

ZERO_LENGTH = TimeRule(
    "zero_length", "The end is the start, and a lifetime is never empty", "Leave out end= for points, or move the end."
)
NEGATIVE_LENGTH = TimeRule("negative_length", "The end is before the start", "Swap them if they are mixed up.")

LIFETIME_RULES = (NEGATIVE_LENGTH, ZERO_LENGTH)
"""The rules about both times, checked after the others."""

UNKNOWN_KIND = TimeRule("unknown_kind", "The kind is neither insert nor cti", 'Write "insert" or "cti", in any case.')
UNKNOWN_EDGE = TimeRule(
    "unknown_edge", "The edge is neither start nor end nor interval", 'Write "start", "end" or "interval", in any case.'
)


@dataclass(frozen=True, repr=False)
class IngestReport:
    """What a complete read of a source counted.

    Attributes:
        rows: Rows that were read.
        valid: Rows that became events; edges and CTIs count too.
        invalid: The number of rows that broke each rule. Each row is counted once.
        first: The first row that broke each rule: its index in the source and its times.
        late: The number of late rows by fate (`gpu_ops.ingest.ingress.FATES`); empty if nothing checked for late rows.
        sources: The reports of the single sources by name, if a query has several; else empty.

    Examples:
        >>> IngestReport(rows=3, valid=2, invalid={"null_end": 1}, first={"null_end": "row 1: a=0, b=null"})
        IngestReport(rows=3, valid=2, invalid={'null_end': 1}, first={'null_end': 'row 1: a=0, b=null'}, late={})
    """

    rows: int
    valid: int
    invalid: Mapping[str, int]
    first: Mapping[str, str]
    late: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str, IngestReport] = field(default_factory=dict)

    def __repr__(self) -> str:
        shown = ("rows", "valid", "invalid", "first", "late", *(["sources"] if self.sources else []))
        return f"IngestReport({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    @classmethod
    def together(cls, sources: Mapping[str, IngestReport]) -> IngestReport:
        """The total of several sources; the first row for each rule is that of the first source that has one.

        Examples:
            >>> one = IngestReport(2, 1, {"null_end": 1}, {"null_end": "row 1: a=0, b=null"})
            >>> both = IngestReport.together({"orders": IngestReport(5, 5, {}, {}), "offers": one})
            >>> both.rows, both.first, both.sources["offers"].valid
            (7, {'null_end': 'offers, row 1: a=0, b=null'}, 1)
        """
        if len(sources) == 1:
            return next(iter(sources.values()))
        invalid, late = Counter[str](), Counter[str]()
        first: dict[str, str] = {}
        for name, each in sources.items():
            invalid.update(each.invalid)
            late.update(each.late)
            first = {rule: f"{name}, {row}" for rule, row in each.first.items()} | first
        counted = (sum(each.rows for each in sources.values()), sum(each.valid for each in sources.values()))
        return cls(*counted, dict(invalid), first, dict(late), dict(sources))


def check_choice(name: str, value: object, kind: object) -> None:
    """Refuse a value that is not one of a Literal's words.

    Raises:
        PlanError: It is none of them; the error lists them.
    """
    words = get_args(kind)
    if not isinstance(value, str) or value not in words:
        raise PlanError(f"{name}={shown(value)} is no policy.", remedy=f"It is one of {', '.join(map(repr, words))}.")
