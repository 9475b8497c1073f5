"""What stands in ``checkpoint.json``, as a declaration that is held to before anything else looks at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_ops.core.state_tables import MANY, OLDER
from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.errors import SourceError

FACTS = "checkpoint.json"


@dataclass(frozen=True)
class Whole:
    """A whole number within bounds."""

    least: int = 0
    most: int = MANY

    def __str__(self) -> str:
        return f"a whole number from {self.least} to {self.most}"


@dataclass(frozen=True)
class Text:
    """A text."""

    def __str__(self) -> str:
        return "a text"


@dataclass(frozen=True)
class Truth:
    """True or false."""

    def __str__(self) -> str:
        return "true or false"


@dataclass(frozen=True)
class Maybe:
    """Another kind of value, or null."""

    of: Kind

    def __str__(self) -> str:
        return f"{self.of}, or null"


@dataclass(frozen=True)
class Many:
    """A list of values of one kind; ``count`` of them, unless it is None."""

    of: Kind
    count: int | None = None

    def __str__(self) -> str:
        return "a list" if self.count is None else f"a list of {self.count}"


@dataclass(frozen=True)
class Named:
    """Values of one kind under any names; what is under some names is of another."""

    of: Kind
    besides: Mapping[str, Kind] = field(default_factory=dict)

    def __str__(self) -> str:
        return "an object"


@dataclass(frozen=True)
class Record:
    """Values under these names; some of them may be missing."""

    fields: Mapping[str, Kind]
    optional: Mapping[str, Kind] = field(default_factory=dict)
    more: bool = False
    """Whether there may be others, too."""

    def __str__(self) -> str:
        return "an object"


Kind = Whole | Text | Truth | Maybe | Many | Named | Record

_TIME = Whole(MIN_TIME, MAX_TIME)

_MARK = Record({"store": Maybe(Text()), "sequence": Whole(), "rows": Maybe(Whole()), "crc": Maybe(Whole(0, 2**32 - 1))})

HEAD = Record({"format": Whole(), "tables": Named(Text())}, {"version": Text()}, more=True)
"""What says how the rest is to be read."""

PLAN = Record({"plan": Many(Text())}, more=True)
"""What says of which query it is."""


def of_query(facts: Mapping[str, Any], inputs: int, nodes: int) -> Record:
    """All that a checkpoint of a query says.

    Args:
        facts: What it says; one of format 1 says less.
        inputs: How many inputs the query has.
        nodes: How many nodes run.
    """
    counted = Record(
        {"rows": Whole(), "valid": Whole(), "invalid": Named(Whole()), "first": Named(Text())},
    )
    following = Record({"follower": Maybe(Text()), "stores": Named(_MARK), "gone": Named(Many(Many(Whole(), 2)))})
    promised: Kind = Many(Many(_TIME, 2), inputs)
    if isinstance(facts.get("promised"), list) and all(isinstance(each, int) for each in facts["promised"]):
        # An older one has one promise of each input.
        promised = Many(_TIME, inputs)
    needed: dict[str, Kind] = {
        "rows_in": Many(Whole(), inputs),
        "promised": promised,
        "late": Named(Whole()),
        "ctis": Many(_TIME, nodes),
        "given": Many(Whole(), nodes),
        "closed": Truth(),
        "positions": Named(Whole(), {"cti": _TIME}),
    }
    newer: dict[str, Kind] = {"functions": Named(Text()), "version": Text(), "python": Text(), "following": following}
    optional: dict[str, Kind] = {"ingest": Many(counted, inputs)}
    if facts.get("format") == 1:
        return Record(needed, optional | newer, more=True)
    return Record(needed | newer | optional, more=True)


def check_facts(path: Path, facts: Any, kind: Kind) -> None:
    """Hold what a checkpoint says to what it should.

    Raises:
        SourceError: Something is missing, of another type, or out of range; it names where.

    Examples:
        >>> check_facts(Path("c"), {"late": {"dropped": -5}}, Record({"late": Named(Whole())}))
        Traceback (most recent call last):
        gpu_ops.errors.SourceError: The checkpoint c is damaged: in checkpoint.json 'late.dropped' is -5, and should be
        a whole number from 0 to 4611686018427387903. Restore an older one: ...
    """
    wrong = _wrong(facts, kind, "")
    if wrong is not None:
        raise SourceError(f"The checkpoint {path} is damaged: in {FACTS} {wrong}.", remedy=OLDER)


def _wrong(value: Any, kind: Kind, at: str) -> str | None:
    """What is wrong with a value; None if nothing is."""
    if isinstance(kind, Maybe):
        return None if value is None else _wrong(value, kind.of, at)
    within: list[tuple[str, Any, Kind]] = []
    if isinstance(kind, Whole):
        right = isinstance(value, int) and not isinstance(value, bool) and kind.least <= value <= kind.most
    elif isinstance(kind, Text | Truth):
        right = isinstance(value, str if isinstance(kind, Text) else bool)
    elif isinstance(kind, Many):
        right = isinstance(value, list) and kind.count in (None, len(value))
        within = [(f"[{number}]", each, kind.of) for number, each in enumerate(value if right else ())]
    else:
        right = isinstance(value, dict)
        if right and isinstance(kind, Record):
            missing = next((name for name in kind.fields if name not in value), None)
            if missing is not None:
                return f"{_at(at, missing)!r} is missing"
            known = {**kind.fields, **kind.optional}
            strange = next((name for name in value if name not in known), None)
            if strange is not None and not kind.more:
                return f"{_at(at, strange)!r} is a name too many"
            within = [(f".{name}", value[name], of) for name, of in known.items() if name in value]
        elif right and isinstance(kind, Named):
            within = [(f".{name}", each, kind.besides.get(name, kind.of)) for name, each in value.items()]
    if not right:
        named = repr(at.removeprefix(".")) if at else "what there is"
        return f"{named} is {_short(value)}, and should be {kind}"
    return next((wrong for name, each, of in within if (wrong := _wrong(each, of, f"{at}{name}")) is not None), None)


def _at(at: str, name: str) -> str:
    return f"{at}.{name}".removeprefix(".")


def _short(value: Any) -> str:
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return "a number of many digits"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
