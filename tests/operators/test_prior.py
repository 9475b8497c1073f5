"""The row that came before, beside a reference that looks it up in a sorted list."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.errors import ColumnError, PlanError
from tests.support.cuts import in_any_cut, in_some_order
from tests.support.examples import examples
from tests.support.reference import Event
from tests.support.rows import check, rows, stream, to_table
from tests.support.ticks import at_us
from tests.support.timeline import timeline

PAYLOAD = pa.schema([("k", pa.string()), ("v", pa.int64()), ("s", pa.string())])

events = st.lists(
    st.builds(
        lambda at, lasts, k, v, s: Event(at, at + lasts, {"k": k, "v": v, "s": s}),
        st.integers(0, 12),
        st.integers(1, 9),
        st.sampled_from(["a", None]),
        st.sampled_from([None, 1, 2]),
        st.sampled_from([None, "p", "q"]),
    ),
    max_size=15,
)


def place(event: Event) -> tuple[Any, ...]:
    """By start, then by s downwards said as ``order=``, then by the payload's columns, null first, then by end."""
    payload = event.payload
    return (
        event.start,
        *((payload[name] is not None, payload[name] or 0) for name in ("v",)),
        str(payload["s"] or ""),
        event.end,
    )


def with_prior(found: list[Event], n: int) -> list[Event]:
    made = []
    for k in ("a", None):
        group = sorted((event for event in found if event.payload["k"] == k), key=place)
        for at, event in enumerate(group):
            before = group[at - n].payload if at >= n else {"v": None, "s": None}
            made.append(Event(event.start, event.end, {**event.payload, "w": before["v"], "t": before["s"]}))
    return made


@examples(dear=True)
@given(found=events, n=st.integers(1, 3), chance=st.randoms(use_true_random=False))
def test_prior(device_name: str, found: list[Event], n: int, chance: random.Random) -> None:
    def ask(s: g.Stream) -> g.Stream:
        return s.by("k").with_prior(n, w="v", t="s")

    expected = rows(with_prior(found, n))
    assert rows(ask(stream(found, PAYLOAD)).collect(device=device_name)) == expected
    arriving = in_some_order(to_table(found, PAYLOAD), chance)
    assert rows(in_any_cut(ask(stream([], PAYLOAD)), arriving, device_name, chance)) == expected


def test_a_checkpoint_remembers_the_rows_before(tmp_path: Path) -> None:
    def ask(s: g.Stream) -> g.Stream:
        return s.with_prior(2, w="v")

    found = [Event(at, at + 1, {"k": "a", "v": at, "s": None}) for at in range(6)]
    live = ask(stream([], PAYLOAD)).start()
    live.push(to_table(found[:3], PAYLOAD))
    live.advance(at_us(3))
    before = rows(live.results())
    live.checkpoint(tmp_path / "checkpoint")
    again = g.restore(tmp_path / "checkpoint", ask(stream([], PAYLOAD)))
    again.push(to_table(found[3:], PAYLOAD))
    again.close()
    assert sorted(before + rows(again.results())) == rows(ask(stream(found, PAYLOAD)).collect())


def test_lifetimes_stay(device_name: str) -> None:
    rides = timeline("""
        1: [====)
        2:   [=)
        3:     [=====)
    """)
    before = [
        Event(*event[:2], {"name": event.payload["name"], "before": name})
        for event, name in zip(sorted(rides, key=lambda each: each.start), (None, 1, 2), strict=True)
    ]
    check(stream(rides).with_prior(before="name"), device_name, before)


def test_what_was_asked_for_twice_and_what_is_not_there_is_refused() -> None:
    s = stream([], PAYLOAD)
    with pytest.raises(PlanError, match="names no column"):
        s.with_prior()
    with pytest.raises(PlanError, match="at least 1"):
        s.with_prior(0, w="v")
    with pytest.raises(ColumnError, match="no such column"):
        s.with_prior(w="x")
    with pytest.raises(ColumnError, match="already"):
        s.with_prior(v="s")
