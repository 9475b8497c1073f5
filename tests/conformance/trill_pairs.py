"""The questions of Trill's own tests that put two streams together, and what all of its notation is read with."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Literal

import narwhals as nw

import gpu_ops as g
from gpu_ops import Stream
from tests.conformance.unsupported import UnsupportedError

N = r"(-?\d+)"
"""A number."""

How = Literal["inner", "left", "right", "full", "semi", "anti"]
Options = list[str]


def split(notation: str, mark: str) -> list[str]:
    """The parts of a text between marks that stand in no parentheses."""
    parts, depth = [""], 0
    for part in re.split(f"({re.escape(mark)}|[()])", notation):
        depth += (part == "(") - (part == ")")
        if part == mark and depth == 0:
            parts.append("")
        else:
            parts[-1] += part
    return [part.strip() for part in parts]


def condition(text: str, column: Callable[[str], nw.Expr]) -> nw.Expr:
    """A comparison of a column with a number, a text or a list of numbers."""
    if match := re.fullmatch(r"([\w.]+) in \((.*)\)", text):
        return column(match[1]).is_in([int(number) for number in match[2].split(",")])
    match = re.fullmatch(rf"([\w.]+) ?(=|!=|<=|>=|<|>) ?(?:{N}|'(\w*)')", text)
    if match is None:
        raise UnsupportedError(f"no word for where({text})")
    compare = {"=": "eq", "!=": "ne", "<=": "le", ">=": "ge", "<": "lt", ">": "gt"}[match[2]]
    value = int(match[3]) if match[3] else match[4]
    return getattr(operator, compare)(column(match[1]), value)  # type: ignore[no-any-return]


class _Keyed:
    """Two streams with columns for their keys, and what else of their pairs has to hold, as the options say it."""

    def __init__(self, left: Stream, right: Stream, options: Options) -> None:
        self.left_names, self.right_names = left.schema.names, right.schema.names
        self.after = {name: f"{name}_right" if name in self.left_names else name for name in self.right_names}
        self.condition: nw.Expr | None = None
        self.filled: dict[str, int | str] = {}
        keys: list[tuple[nw.Expr, nw.Expr]] = []
        mine = None
        for option in options:
            side, _, text = option.partition("=")
            if side == "key":
                keys += zip(_key(left, text), _key(right, text), strict=True)
            elif side == "left key":
                mine = _key(left, text)
            elif side == "right key" and mine is not None:
                keys += zip(mine, _key(right, text), strict=True)
            elif match := re.fullmatch(rf"(?:unmatched -> )?(\w+)=(?:{N}|'(\w*)')", option):
                self.filled[match[1]] = int(match[2]) if match[2] else match[3]
            elif option not in {"no key", "within partition"}:
                keys += self._terms(option)
        names = [f"key {number}" for number in range(len(keys))]
        self.on = names or None
        self.left = left.with_columns(**dict(zip(names, (key for key, _ in keys), strict=True))) if names else left
        self.right = right.with_columns(**dict(zip(names, (key for _, key in keys), strict=True))) if names else right

    def _terms(self, text: str) -> list[tuple[nw.Expr, nw.Expr]]:
        """Equal columns are keys; all other terms are a condition."""
        keys = []
        for term in text.split(" AND "):
            if match := re.fullmatch(r"(?:left\.)?(\w+) ?= ?(?:right\.)?([a-zA-Z_]\w*)", term):
                keys.append((g.col(match[1]), g.col(match[2])))
            else:
                more = condition(term, self._column)
                self.condition = more if self.condition is None else self.condition & more
        return keys

    def _column(self, name: str) -> nw.Expr:
        side, _, column = name.rpartition(".")
        return g.col(self.after[column] if side == "right" else column)


def _key(stream: Stream, text: str) -> list[nw.Expr]:
    if text == "first character":
        return [g.col(stream.schema.names[0]).str.slice(0, 1)]
    if match := re.fullmatch(rf"(\w+) mod {N}", text):
        return [g.col(match[1]) % int(match[2])]
    return [g.col(name) for name in split(text.strip("()"), ",")]


def _join(how: How) -> Callable[..., Stream]:
    def join(left: Stream, right: Stream, options: Options, shown: str = "") -> Stream:
        two = _Keyed(left, right, options)
        both = two.left.join(two.right, on=two.on, how=how, condition=two.condition)
        if how == "anti":
            return both.select(*two.left_names)
        mine, theirs = ([g.col(name) for name in names] for names in (two.left_names, two.after.values()))
        wanted = split(shown.removesuffix(" with nulls").strip("()"), ",")
        if shown == "left":
            return both.select(*mine)
        if shown == "right":
            return both.select(**{name: g.col(after) for name, after in two.after.items()})
        if shown == "'left,right'":
            return both.select(**{two.left_names[0]: g.concat_str([mine[0], theirs[0]], separator=",")})
        if shown and not set(wanted) <= set(both.schema.names):
            return both.select(**dict(zip(wanted, (mine[0], theirs[0]), strict=True)))
        kept = wanted if shown else [*two.left_names, *two.after.values()]
        filled = {name: g.col(name).fill_null(value) for name, value in two.filled.items()}
        return both.select(**{name: filled.get(name, g.col(name)) for name in kept})

    return join


def _clip(left: Stream, right: Stream, options: Options) -> Stream:
    two = _Keyed(left, right, options)
    return two.left.clip_by(two.right, on=two.on).select(*two.left_names)


# (left, right, options, what the result shows)
PAIRS: dict[str, Callable[..., Stream]] = {
    "union": lambda left, right, *_: left.union(right),
    "disjoint_union": lambda left, right, *_: left.union(right),
    "clip": _clip,
    "join": _join("inner"),
    "anti_join": _join("anti"),
    "left_outer_join": _join("left"),
    "full_outer_join": _join("full"),
}
