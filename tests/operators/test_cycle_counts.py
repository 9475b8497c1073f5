"""Counts of windows of time, where one row comes as another leaves: row by row, in the order of windows.

A window of three milliseconds, `a` and `b` by key::

    ms      0   1   2   3   4
    comes   a   b   b   b   a
    leaves              a   b
    a       1           0   1
    b           1   2   3   2
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from tests.support.claims import true_claims
from tests.support.examples import by_default
from tests.support.pieces import in_pieces, sizes

MS = 1000


def counted(keys: Sequence[str | None], span: int, *, pinned: bool, shows: Sequence[str]) -> list[dict[str, Any]]:
    """The rows that are issued, by brute force: at each millisecond a row of a key comes, or none."""
    windows: dict[str, dict[str, Any]] = {}
    issued, begun = [], 0
    for now in range(len(keys) + span):
        left = keys[now - span] if now >= span else None
        came = keys[now] if now < len(keys) else None
        if left is not None:
            windows[left]["n"] -= 1
        if came is not None:
            if came not in windows:
                windows[came], begun = {"number": begun, "n": 0, "total": 0, "shown": None}, begun + 1
            windows[came]["n"] += 1
            windows[came]["total"] += 1
        concerned = {key for key in (left, came) if key is not None}
        for key in sorted(concerned, key=lambda key: int(windows[key]["number"])):
            values = {name: windows[key][name] for name in shows}
            if not windows[key]["n"] and not pinned:
                del windows[key]
            elif values != windows[key]["shown"]:
                windows[key]["shown"] = values
                issued.append({"ms": now, "k": key, **values})
    return issued


@pytest.mark.parametrize("device", ["cpu", "array"])
@by_default(60)
@given(
    keys=st.lists(st.sampled_from(["a", "b", "c", "c", None]), max_size=30),
    span=st.integers(1, 5),
    empty=st.sampled_from(["dropped", "pinned"]),
    shows=st.sampled_from([("n",), ("total",), ("n", "total")]),
    size=sizes,
)
def test_counts_are_those_of_each_row_by_itself(
    device: str, keys: list[str | None], span: int, empty: str, shows: tuple[str, ...], size: int
) -> None:
    told = [(now, key) for now, key in enumerate(keys) if key is not None]
    at = pa.array([now * MS for now, _ in told], pa.timestamp("us", "UTC"))
    rows = pa.table({"at": at, "k": pa.array([key for _, key in told], pa.string())})
    windows = g.cycles(g.events(rows, start="at")).partition("k").last_span(f"{span}ms")
    entrance, pinned = tuple(name for name in shows if name == "total"), empty == "pinned"
    made = windows.agg(pinned=pinned, entrance=entrance, **{name: g.count() for name in shows}).new()
    with in_pieces(size), true_claims():
        answer = made.collect(device=device)
    found = answer.drop_columns(["start", "end", "cycle"]).to_pylist()
    times = answer["start"].cast(pa.int64()).to_pylist()
    expected = counted(keys, span, pinned=pinned, shows=shows)
    assert [{"ms": time // MS, **row} for time, row in zip(times, found, strict=True)] == expected
