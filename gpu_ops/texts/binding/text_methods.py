"""Methods of texts, by their names in Java. Places and lengths are of characters, which are Unicode code points."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import narwhals as nw
import pyarrow as pa

from gpu_ops.texts.binding import conditions
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound
from gpu_ops.texts.expressions import FunctionCall
from gpu_ops.texts.placed_error import failure_at, unsupported


@dataclass(frozen=True)
class _Method:
    """A method with constant arguments: their types, how many there are at least, its type, and what computes it."""

    compute: Callable[..., nw.Expr]
    type: pa.DataType
    takes: tuple[pa.DataType, ...] = ()
    least: int | None = None


def _part(value: nw.Expr, start: int, end: int | None = None) -> nw.Expr:
    return value.str.slice(start, None if end is None else end - start)


def _character(value: nw.Expr, at: int) -> nw.Expr:
    """The character at a place; null where a text is not so long."""
    return nw.when(value.str.len_chars() > at).then(value.str.slice(at, 1))


def _place(value: nw.Expr, part: str, start: int = 0) -> nw.Expr:
    """Where a part begins first, -1 where it is not there; the empty text begins everywhere."""
    if not part:
        length = value.str.len_chars()
        return nw.when(length < start).then(length).when(length >= start).then(nw.lit(start)).cast(nw.Int32())
    rest = value.str.slice(start) if start else value
    is_there = rest.str.contains(part, literal=True)
    found = nw.when(is_there).then(rest).str.split(part).list.get(0).str.len_chars() + start
    return nw.when(~is_there).then(nw.lit(-1)).otherwise(found).cast(nw.Int32())


def _last_place(value: nw.Expr, part: str, start: int | None = None) -> nw.Expr:
    """Where a part begins last, at a place or before it; -1 where it does not. The empty text begins everywhere."""
    value = value if start is None else value.str.slice(0, start + len(part))
    length = value.str.len_chars()
    # All up to the end of the last one is greedy, and taken off.
    behind = value.str.replace_all(f"\\A[\\s\\S]*{re.escape(part)}", "").str.len_chars()
    found = nw.when(value.str.contains(part, literal=True)).then(length.cast(nw.Int64) - behind.cast(nw.Int64))
    place = found - len(part) if part else length
    return nw.when(~value.is_null()).then(nw.when(~place.is_null()).then(place).otherwise(nw.lit(-1))).cast(nw.Int32())


_BLANK = "".join(map(chr, range(33)))
"""What Java's `trim` takes off: U+0000 to U+0020."""

_METHODS: Mapping[str, _Method] = {
    "length": _Method(lambda value: value.str.len_chars().cast(nw.Int32()), t.INT),
    "isEmpty": _Method(lambda value: value == "", t.BOOLEAN),
    "toUpperCase": _Method(lambda value: value.str.to_uppercase(), t.TEXT),
    "toLowerCase": _Method(lambda value: value.str.to_lowercase(), t.TEXT),
    "trim": _Method(lambda value: value.str.strip_chars(_BLANK), t.TEXT),
    "toString": _Method(lambda value: value, t.TEXT),
    "contains": _Method(lambda value, part: value.str.contains(part, literal=True), t.BOOLEAN, (t.TEXT,)),
    "startsWith": _Method(lambda value, part: value.str.starts_with(part), t.BOOLEAN, (t.TEXT,)),
    "endsWith": _Method(lambda value, part: value.str.ends_with(part), t.BOOLEAN, (t.TEXT,)),
    "replace": _Method(
        lambda value, part, other: value.str.replace_all(part, other, literal=True), t.TEXT, (t.TEXT, t.TEXT)
    ),
    "substring": _Method(_part, t.TEXT, (t.INT, t.INT), least=1),
    "charAt": _Method(_character, t.TEXT, (t.INT,)),
    "indexOf": _Method(_place, t.INT, (t.TEXT, t.INT), least=1),
    "lastIndexOf": _Method(_last_place, t.INT, (t.TEXT, t.INT), least=1),
}


def _concatenated(of: Bound, other: Bound) -> Bound:
    return Bound(nw.concat_str(of.value, other.value, ignore_nulls=False), t.TEXT)


def _equal_in_small_letters(of: Bound, other: Bound) -> Bound:
    same = (of.value.str.to_lowercase() == other.value.str.to_lowercase()).fill_null(False)
    return Bound(nw.when(~of.value.is_null()).then(same), t.BOOLEAN)


def _matched(of: Bound, pattern: Bound) -> Bound:
    return Bound(conditions.matched("regexp", of, pattern, None), t.BOOLEAN)


_WITH_TEXTS: Mapping[str, Callable[[Bound, Bound], Bound]] = {
    "concat": _concatenated,
    "equalsIgnoreCase": _equal_in_small_letters,
    "matches": _matched,
}
"""Methods with another text, which may be any."""

NAMES = ("concat", *_METHODS, "replaceAll", *(name for name in _WITH_TEXTS if name != "concat"))


def _replaced(node: FunctionCall, of: Bound, given: Sequence[Bound]) -> Bound:
    """`replaceAll`: each part that a regular expression fits, in the place of which another text stands."""
    said = [each.constant.value for each in given if each.constant is not None]
    texts = [each for each in said if isinstance(each, str)]
    if len(given) != 2 or len(texts) != 2:
        raise failure_at(node, "replaceAll(…) takes a regular expression and a text, both constants.")
    pattern, other = texts
    if {"$", "\\"} & {*other}:
        raise unsupported(given[1], "groups and escapes in what replaceAll puts", "Take replace for a plain text.")
    made = conditions.regular(given[0], pattern, whole=False)
    return Bound(of.value.str.replace_all(made, other), t.TEXT)


def text_method(node: FunctionCall, of: Bound, given: Sequence[Bound]) -> Bound:
    """A method of a text.

    Args:
        node: The call.
        of: The text.
        given: Its arguments.

    Raises:
        PlacedError: There are more arguments, or fewer, they are of other types, or are no constants where they have
            to be.
    """
    if node.name == "replaceAll":
        return _replaced(node, of, given)
    if node.name in _WITH_TEXTS:
        takes: tuple[pa.DataType, ...] = (t.TEXT,)
        least = 1
    else:
        method = _METHODS[node.name]
        takes = method.takes
        least = len(takes) if method.least is None else method.least
    if not least <= len(given) <= len(takes):
        wanted = str(least) if least == len(takes) else f"{least} to {len(takes)}"
        raise failure_at(node, f"{node.name}(…) takes {wanted} values, not {len(given)}.")
    for each, dtype in zip(given, takes, strict=False):
        if each.type != dtype:
            raise failure_at(each, f"{node.name}(…) takes a value of type {t.type_name(dtype)}, and {each.typed}.")
    if node.name in _WITH_TEXTS:
        return _WITH_TEXTS[node.name](of, given[0])
    for each in given:
        if each.constant is None:
            raise unsupported(each, f"{node.name!r} with an argument that is no constant")
        if isinstance(each.constant.value, int) and each.constant.value < 0:
            raise failure_at(each, f"{node.name}(…) takes places from 0 on, not {each.constant.value}.")
    return Bound(method.compute(of.value, *(each.constant.value for each in given if each.constant)), method.type)
