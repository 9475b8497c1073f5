"""Trill's patterns, which its cases write as ``detect(A* (+1 each) B (when r=1), no overlapping instances)``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import reduce
from operator import add, or_
from typing import Any

import narwhals as nw
import pyarrow as pa

import gpu_ops as g
from gpu_ops import Stream
from tests.conformance.unsupported import UnsupportedError
from tests.conformance.vectors import NUMBER
from tests.support.reference import NEVER
from tests.support.ticks import at_us, us

_TOGETHER = "together"
_TOKEN = re.compile(
    r"\s*(?:(?P<bracket>\[[^]]*\])|\((?P<note>(?:while|when|[+-]\d)[^)]*)\)|(?P<open>\()|(?P<close>\))|(?P<either>\|)"
    r"|(?P<sign>[*+?]|\{\d+(?:,\d*)?\})|(?P<letter>[A-Z0-9.](?!\w)))"
)
_SIMULTANEOUS = re.compile(
    r"(?P<all>no element is|contains no|all elements are|some element is|contains|single element is)\s+(\w+)"
)
_CHANGE = re.compile(r"([+-])\s*(\d+)(?: each)?")
_LIMIT = re.compile(r"(?:while|when) r\s*(<=|>=|!=|=|<|>)\s*(\d+)")
_COMPARED: Mapping[str, Callable[[nw.Expr, int], nw.Expr]] = {
    "<": lambda r, n: r < n,
    ">": lambda r, n: r > n,
    "<=": lambda r, n: r <= n,
    ">=": lambda r, n: r >= n,
    "=": lambda r, n: r == n,
    "!=": lambda r, n: r != n,
}


@dataclass(frozen=True)
class Detected:
    """What a case says of a pattern.

    Attributes:
        pattern: Its steps.
        overlaps: Whether an instance may start while another one runs.
        longest: Its longest duration; None for any.
        register: What its register is; empty for the number that steps count.
        letters: What letters mean.
    """

    pattern: str
    overlaps: bool
    longest: int | None
    register: str
    letters: Mapping[str, int]

    @classmethod
    def of(cls, text: str, register: str, longest: int | None) -> Detected:
        """A pattern as it is written within ``detect(…)``, and what is said of its register there or behind."""
        text, _, own = text.partition("; register = ")
        overlaps, whole = True, []
        for part in (text, own or register):
            kept = re.sub(r",? no overlapping instances", "", part)
            overlaps &= kept == part
            if limit := re.search(r",? max_duration=(\d+)", kept):
                longest, kept = int(limit[1]), kept.replace(limit[0], "")
            whole.append(kept.strip())
        text, register = whole
        text = re.sub(r"^list elements:.*?: (?=\[)", "", text)
        text = re.sub(r"single element (\w+)", r"[single element is \1]", text)
        text = re.sub(r",? then|per-timestamp", "", text)
        text, _, meant = text.partition(" with ")
        letters = {name: int(value) for name, value in re.findall(r"([A-Z])=(-?\d+)", meant)}
        return cls(re.sub(r": [a-z][^:()\[\]]*$", "", text), overlaps, longest, register, letters)


def detected(stream: Stream, asked: Detected, *, simultaneous: bool, key: tuple[str, ...] = ()) -> Stream:
    """The matches, from the last event's start on, until the longest duration after the first one's is over.

    Args:
        stream: The events.
        asked: What is asked.
        simultaneous: Whether events of one time are one step; else they come in their order.
        key: By what they are grouped.

    Raises:
        UnsupportedError: The case says more than is known here.
    """
    column = next(name for name in stream.schema.names if name not in {*key, NUMBER})
    steps = _Steps(asked, column, stream.schema.field(column).type)
    term = steps.pattern()
    if simultaneous:
        parts = {name: g.count(where=condition) for name, condition in steps.counted.items()}
        stream = stream.to_point().by(*key).snapshot().agg(**{column: g.min(column), _TOGETHER: g.count()}, **parts)
    else:
        stream = stream.with_columns(**{_TOGETHER: g.lit(1)})
    arrivals = g.arrivals(stream, order=NUMBER if not simultaneous else (key[0] if key else None)).by(*key)
    found: g.ArrivalStream = arrivals.match(
        term,
        {"v": steps.measure(term)},
        registers={"r": 0},
        every=True,
        skip="to current row" if asked.overlaps else "while open",
        within=None if asked.longest is None else us(asked.longest),
    )
    tick = timedelta(microseconds=1)
    ends = g.lit(at_us(NEVER)) if asked.longest is None else g.col("start") + g.lit(us(asked.longest))
    return found.events().alter_lifetime(start=g.col("end") - g.lit(tick), end=ends)


@dataclass
class _Steps:
    """The steps of a pattern, while they are read."""

    asked: Detected
    column: str
    type: pa.DataType
    rows: list[g.PatternRow] = field(default_factory=list)
    counted: dict[str, nw.Expr] = field(default_factory=dict)

    def pattern(self) -> Any:
        """The whole pattern.

        Raises:
            UnsupportedError: It has something else in it.
        """
        tokens, at, text = [], 0, self.asked.pattern.strip()
        while at < len(text):
            token = _TOKEN.match(text, at)
            if token is None:
                raise UnsupportedError(f"no word for {text[at:]} in a pattern")
            tokens.append(token)
            at = token.end()
        left = iter([*tokens, None])
        self._ahead = next(left)
        self._left: Iterator[Any] = left
        whole = self._either()
        if self._ahead is not None:
            raise UnsupportedError(f"no word for {self._ahead[0]} in a pattern")
        return whole

    def _next(self) -> Any:
        token, self._ahead = self._ahead, next(self._left)
        return token

    def _is(self, *kinds: str) -> bool:
        return self._ahead is not None and self._ahead.lastgroup in kinds

    def _either(self) -> Any:
        options = [self._sequence()]
        while self._is("either"):
            self._next()
            options.append(self._sequence())
        return reduce(or_, options)

    def _sequence(self) -> Any:
        parts = [self._part()]
        while self._is("letter", "bracket", "open", "all"):
            parts.append(self._part())
        return reduce(add, parts)

    def _part(self) -> Any:
        token = self._next()
        kind = None if token is None else token.lastgroup
        if kind == "open":
            made = self._either()
            if not self._is("close"):
                raise UnsupportedError("no word for an open parenthesis in a pattern")
            self._next()
            return self._repeated(made, self._sign())
        if kind not in {"letter", "bracket"}:
            raise UnsupportedError("no word for a pattern without steps")
        sign = self._sign()
        note = self._next()["note"] if self._is("note") else ""
        holds = self._single(token["letter"]) if kind == "letter" else self._bracketed(token["bracket"])
        return self._repeated(self._row(holds, note), sign or self._sign())

    def _sign(self) -> str:
        return str(self._next()["sign"]) if self._is("sign") else ""

    @staticmethod
    def _repeated(part: Any, sign: str) -> Any:
        if not sign:
            return part
        known = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(sign)
        if known is None:
            low, comma, high = sign[1:-1].partition(",")
            known = int(low), int(high) if high else None if comma else int(low)
        return part.repeat(*known)

    def _value(self, said: str) -> nw.Expr:
        value = self.asked.letters.get(said, said)
        return g.col(self.column) == (value if pa.types.is_string(self.type) else int(value))

    def _single(self, letter: str) -> nw.Expr | None:
        """One event, and no other one at its time."""
        alone = g.col(_TOGETHER) == 1
        return alone if letter == "." else self._value(letter) & alone

    def _bracketed(self, text: str) -> nw.Expr:
        """A condition on all events of a time."""
        said = _SIMULTANEOUS.fullmatch(text[1:-1].strip())
        if said is None:
            raise UnsupportedError(f"no word for {text} in a pattern")
        if said["all"] == "single element is":
            return self._single(said[2])  # type: ignore[return-value]
        name = f"of {said[2]}"
        self.counted[name] = self._value(said[2])
        count = g.col(name)
        if said["all"] in {"no element is", "contains no"}:
            return count == 0
        return count == g.col(_TOGETHER) if said["all"] == "all elements are" else count > 0

    def _row(self, holds: nw.Expr | None, note: str) -> g.PatternRow:
        """A row, with what is said of the register."""
        register = g.register("r")
        sets = {"r": register * 10 + g.col(self.column)} if self.asked.register == "digits" else {}
        for part in filter(None, re.split(r",\s*", note)):
            if limit := _LIMIT.fullmatch(part):
                condition = _COMPARED[limit[1]](register, int(limit[2]))
                holds = condition if holds is None else holds & condition
            elif change := _CHANGE.fullmatch(part):
                sets = {"r": register + int(change[1] + change[2])}
            else:
                raise UnsupportedError(f"no word for ({note}) in a pattern")
        self.rows.append(g.row(f"step{len(self.rows)}", holds, sets=sets))
        return self.rows[-1]

    def measure(self, term: Any) -> Any:
        """The register of a match, as the case has it."""
        if self.asked.register.strip("()").startswith("matched letters"):
            joined = g.window_function(
                lambda rows: "".join(rows[self.column].to_pylist()), returns=pa.string(), of=[self.column]
            )
            return term.agg(joined)
        if self.asked.register not in {"", "digits"}:
            raise UnsupportedError(f"no word for the register {self.asked.register}")
        return g.register("r")
