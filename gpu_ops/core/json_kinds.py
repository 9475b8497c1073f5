"""Kinds of JSON values: what a file from outside may hold, declared, and checked before anything else reads it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpu_ops.core.state_tables import MANY
from gpu_ops.core.time import MAX_TIME, MIN_TIME


@dataclass(frozen=True)
class Whole:
    """A whole number within bounds."""

    least: int = 0
    most: int = MANY

    def __str__(self) -> str:
        return f"a whole number from {self.least} to {self.most}"

    def fits(self, value: Any) -> bool:
        """Whether it is such a number; true and false are none."""
        return isinstance(value, int) and not isinstance(value, bool) and self.least <= value <= self.most


@dataclass(frozen=True)
class Simple:
    """Any value of a Python type, and what an error calls it."""

    type: type
    name: str

    def __str__(self) -> str:
        return self.name

    def fits(self, value: Any) -> bool:
        """Whether it is of the type."""
        return isinstance(value, self.type)


@dataclass(frozen=True)
class Spelled:
    """A text of certain letters, by a regular expression, and what an error calls it."""

    letters: str
    name: str

    def __str__(self) -> str:
        return self.name

    def fits(self, value: Any) -> bool:
        """Whether it is such a text."""
        return isinstance(value, str) and re.fullmatch(self.letters, value) is not None


@dataclass(frozen=True)
class Maybe:
    """A value of another kind, or null."""

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

    def fits(self, value: Any) -> bool:
        """Whether it is a list of that length."""
        return isinstance(value, list) and self.count in (None, len(value))


@dataclass(frozen=True)
class Object:
    """Values by name: required ones, optional ones, and any number of others of one kind."""

    needed: Mapping[str, Kind] = field(default_factory=dict)
    optional: Mapping[str, Kind] = field(default_factory=dict)
    others: Kind | None = None

    def __str__(self) -> str:
        return "an object"

    def fits(self, value: Any) -> bool:
        """Whether it is an object, whatever its names are."""
        return isinstance(value, dict)


Kind = Whole | Simple | Spelled | Maybe | Many | Object

ANY = Simple(object, "anything")
TEXT = Simple(str, "a text")
TRUTH = Simple(bool, "true or false")
TIME = Whole(MIN_TIME, MAX_TIME)
CRC = Whole(0, 2**32 - 1)


def defect(value: Any, kind: Kind) -> str | None:
    """What is wrong with a value, with its place; None if it is valid.

    Examples:
        >>> defect({"late": {"dropped": -5}}, Object({"late": Object(others=Whole())}))
        "'late.dropped' is -5, and should be a whole number from 0 to 4611686018427387903"
    """
    return _wrong(value, kind, "")


def _wrong(value: Any, kind: Kind, at: str) -> str | None:
    """The defect of a value; None if it is valid."""
    if isinstance(kind, Maybe):
        return None if value is None else _wrong(value, kind.of, at)
    if not kind.fits(value):
        named = repr(at.removeprefix(".")) if at else "what there is"
        return f"{named} is {_short(value)}, and should be {kind}"
    parts: Iterable[tuple[str, Any, Kind]] = ()
    if isinstance(kind, Many):
        parts = ((f"[{number}]", each, kind.of) for number, each in enumerate(value))
    elif isinstance(kind, Object):
        known = {**kind.needed, **kind.optional}
        missing = next((name for name in kind.needed if name not in value), None)
        if missing is not None:
            return f"{_at(at, missing)!r} is missing"
        strange = next((name for name in value if name not in known), None)
        if strange is not None and kind.others is None:
            return f"{_at(at, strange)!r} is a name too many"
        parts = ((f".{name}", each, known.get(name, kind.others or ANY)) for name, each in value.items())
    return next((wrong for name, each, of in parts if (wrong := _wrong(each, of, f"{at}{name}")) is not None), None)


def _at(at: str, name: str) -> str:
    return f"{at}.{name}".removeprefix(".")


def _short(value: Any) -> str:
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return "a number of many digits"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
