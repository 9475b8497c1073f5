"""Casts of texts to times by a format: of Java's `SimpleDateFormat`, or ISO 8601."""

from __future__ import annotations

import re
from collections.abc import Mapping

import narwhals as nw

from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound
from gpu_ops.texts.expressions import Cast, Constant, NamedArgument
from gpu_ops.texts.placed_error import HasPlace, failure_at, unsupported

_TYPES = frozenset({"long", "java.lang.long", "date", "java.util.date", "calendar", "java.util.calendar"})
"""The types of a cast with a format, in small letters: all of them are milliseconds since 1970, longs, here."""

_FIELDS: Mapping[str, str] = {
    "yyyy": "%Y",
    "yy": "%y",
    **dict.fromkeys(("MM", "M"), "%m"),
    "MMM": "%b",
    **dict.fromkeys(("dd", "d"), "%d"),
    **dict.fromkeys(("HH", "H"), "%H"),
    **dict.fromkeys(("hh", "h"), "%I"),
    "a": "%p",
    **dict.fromkeys(("mm", "m"), "%M"),
    **dict.fromkeys(("ss", "s"), "%S"),
    "SSS": "%3f",
    "XXX": "%:z",
    "Z": "%z",
}
"""Java's fields as those of `strptime`."""

_MISSING = (({"%Y", "%y"}, "1970", "%Y"), ({"%m", "%b"}, "01", "%m"), ({"%d"}, "01", "%d"))
_MINUTES = (({"%H", "%I"}, "00", "%H"), ({"%M"}, "00", "%M"))
"""What a time is where a format does not say it: fields one of which says it, a text, and its field."""

_PART = re.compile(r"([A-Za-z])\1*|'(?:[^']|'')*'|[^A-Za-z']+")


def time_of_text(node: Cast, value: Bound) -> Bound:
    """A text as a time, by the format that the cast says.

    Fields that a format does not say are those of 1970-01-01T00:00:00, in UTC. A text that is no such time is an error.

    Raises:
        PlacedError: The value is no text, the type is no time, or the format is no constant or has other fields than
            these.
    """
    for each in node.options:
        if each.name.lower() != "dateformat":
            raise unsupported(each, f"option {each.name!r} of a cast")
    option, name = node.options[0], str(node.type).replace("`", "")
    if name.lower() not in _TYPES:
        raise unsupported(node.type, f"cast to {name!r} by a format", "Cast to long or date: both are milliseconds.")
    if value.type not in {t.TEXT, t.NULL}:
        raise failure_at(value, f"A cast by a format takes a text, and {value.typed}.", "Leave out dateformat:.")
    written = _constant(option)
    text, directives = _iso(value.value) if written.lower() == "iso" else _by_format(option, written, value.value)
    if value.type == t.NULL:
        return Bound(nw.lit(None, nw.Int64()), t.LONG)
    return Bound(text.str.to_datetime(directives).dt.timestamp("ms"), t.LONG)


def _constant(option: NamedArgument) -> str:
    match option.values:
        case (Constant(str(written)),):
            return written
    raise unsupported(option, "dateformat that is no constant text", "Write: dateformat: 'yyyy-MM-dd HH:mm:ss'.")


def _by_format(option: NamedArgument, written: str, text: nw.Expr) -> tuple[nw.Expr, str]:
    directives, said = "", set()
    for part, is_literal in parts_of(option, written):
        if not is_literal and part not in _FIELDS:
            raise unsupported(option, f"field {part!r} of a dateformat", f"It has {' '.join(_FIELDS)}.")
        said |= set() if is_literal else {_FIELDS[part]}
        directives += part if is_literal else _FIELDS[part]
    timed = said & {"%H", "%I", "%M", "%S", "%3f"}
    for fields, given, directive in (*_MISSING, *(_MINUTES if timed else ())):
        if not said & fields:
            text = nw.concat_str(text, nw.lit(f" {given}"), ignore_nulls=False)
            directives += f" {directive}"
    return text, directives


def parts_of(place: HasPlace, written: str) -> list[tuple[str, bool]]:
    """The parts of a format, and whether each is a literal, in which a percent sign is twice; others are fields.

    Raises:
        PlacedError: It is no format of times.
    """
    found, end = [], 0
    for each in _PART.finditer(written):
        if each.start() != end:
            break
        end, part = each.end(), each.group()
        literal = "'" if part == "''" else part[1:-1].replace("''", "'") if part[0] == "'" else part
        found.append((part, False) if part[0].isalpha() else (literal.replace("%", "%%"), True))
    if end != len(written) or all(is_literal for _, is_literal in found):
        raise failure_at(place, f"{written!r} is no format of times.", "Write 'yyyy-MM-dd HH:mm:ss', for instance.")
    return found


def _iso(text: nw.Expr) -> tuple[nw.Expr, str]:
    """`2010-03-01T09:30:00`, with a fraction and a zone (`Z`, `+01:00`) where the text says them, or a date alone."""
    behind = text.str.slice(len("2010-03-01T09:30:00"))
    zoned = behind.str.ends_with("Z")
    for sign in "+-":
        zoned |= behind.str.contains(sign, literal=True)
    midnight = nw.concat_str(text, nw.lit("T00:00:00Z"), ignore_nulls=False)
    here = nw.concat_str(text, nw.lit("Z"), ignore_nulls=False)
    is_date = text.str.len_chars() == len("2010-03-01")
    whole = nw.when(zoned).then(text).otherwise(nw.when(is_date).then(midnight).otherwise(here))
    return whole, "%Y-%m-%dT%H:%M:%S%.f%#z"
