"""Pairs of streams for the tests of what takes two: few values and short times, so that some meet and some do not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from gpu_ops import Stream
from tests.support.reference import NEVER, Event
from tests.support.rows import rows, stream, to_events

Events = list[Event]

LEFT = pa.schema([("k", pa.string()), ("x", pa.float64()), ("v", pa.int64())])
RIGHT = pa.schema([("v", pa.int64()), ("k", pa.string()), ("x", pa.float64()), ("w", pa.string())])
COLUMNS = (LEFT.names, RIGHT.names)

VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "k": st.sampled_from(["a", "a", "b", None]),
    "w": st.sampled_from(["a", "b", "c", None]),
    "x": st.sampled_from([0.0, -0.0, 1.5, math.nan, None]),
    "v": st.none() | st.integers(0, 3),
}

KEYS: list[Mapping[str, str]] = [{}, {"k": "k"}, {"k": "k", "x": "x"}, {"x": "x"}, {"v": "v"}, {"k": "w"}]

BASES = st.sampled_from([0, -(10**15), NEVER - 100])
"""Where times begin: around 1970, long ago, and close to the end of time."""


def events(base: int, payload: pa.Schema, *, most: int = 8) -> st.SearchStrategy[Events]:
    """Points, intervals, events that never end; some twice, and some that go on where another ends."""
    values = st.fixed_dictionaries({name: VALUES[name] for name in payload.names})
    length = st.sampled_from([None, 1, 1, 2, 3, 5, 8])
    row = st.builds(
        lambda start, length, load: Event(base + start, NEVER if length is None else base + start + length, load),
        st.integers(0, 16),
        length,
        values,
    )
    return st.lists(row, max_size=most).flatmap(_with_some_again)


def _with_some_again(drawn: Events) -> st.SearchStrategy[Events]:
    again = st.lists(st.sampled_from(drawn), max_size=2) if drawn else st.just([])
    return again.map(lambda some: [*drawn, *some])


def sides() -> st.SearchStrategy[tuple[Events, Events]]:
    """Left and right events."""
    return BASES.flatmap(lambda base: st.tuples(events(base, LEFT), events(base, RIGHT)))


def streams(left: Events, right: Events) -> tuple[Stream, Stream]:
    """Both as streams."""
    return stream(left, LEFT), stream(right, RIGHT)


def named(key: Mapping[str, str]) -> Any:
    """A key in the shortest of the forms that ``on=`` takes."""
    if all(mine == theirs for mine, theirs in key.items()):
        return next(iter(key)) if len(key) == 1 else list(key) or None
    return dict(key)


def check(asked: Stream, device: str, expected: Events) -> None:
    """The answer has these rows bit by bit, and the columns and types that its plan says."""
    answer = asked.collect(device=device)
    assert answer.schema.names == ["start", "end", *asked.schema.names]
    assert answer.schema.types[2:] == asked.schema.types
    assert rows(to_events(answer)) == rows(expected)
