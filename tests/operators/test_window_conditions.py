"""Windows by a condition, beside a reference that keeps a list and looks at all of it as each event comes."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest import mock

import narwhals as nw
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.operators.row_windows import conditions
from tests.support.cuts import in_any_cut, in_some_order
from tests.support.examples import examples
from tests.support.reference import Event
from tests.support.rows import rows, stream, to_table

PAYLOAD = pa.schema([("k", pa.string()), ("v", pa.int64()), ("x", pa.float64())])
Window = list[Event]


def _sum(window: Window, name: str) -> Any:
    values = [event.payload[name] for event in window if event.payload[name] is not None]
    return sum(values) if values else None


CONDITIONS: dict[str, tuple[nw.Expr, Callable[[Window], bool]]] = {
    "count": (g.window.count <= 3, lambda w: len(w) <= 3),
    "nothing stays": (g.window.count < 1, lambda w: not w),
    "sum": (g.window.sum("v") < 10, lambda w: (total := _sum(w, "v")) is not None and total < 10),
    "exact sum": (g.window.sum("x") == 0.1, lambda w: _sum(w, "x") == 0.1),
    "of one kind": (
        g.window.oldest("v") == g.window.newest("v"),
        lambda w: w[0].payload["v"] is not None and w[0].payload["v"] == w[-1].payload["v"],
    ),
    "of some time": (
        g.window.newest_start - g.window.oldest_start < timedelta(microseconds=7),
        lambda w: w[-1].start - w[0].start < 7,
    ),
}

events = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.sampled_from(["a", "b", None]),
        st.sampled_from([None, 0, 1, 2, 5, 12]),
        st.sampled_from([None, 0.1, -0.1, 1e300]),
    ),
    max_size=30,
    unique_by=lambda event: event[0],
).map(lambda found: [Event(at, at + 1, {"k": k, "v": v, "x": x}) for at, k, v, x in sorted(found, key=lambda e: e[0])])


def change(at: Event, event: Event, status: str) -> Event:
    return Event(at.start, at.start + 1, {**event.payload, "status": status})


def keep_while(found: Window, holds: Callable[[Window], bool]) -> Window:
    inside, made = list[Event](), list[Event]()
    for event in found:
        inside.append(event)
        made.append(change(event, event, "new"))
        while inside and not holds(inside):
            made.append(change(event, inside.pop(0), "dead"))
    return made


def batches_until(found: Window, holds: Callable[[Window], bool], *, include_trigger: bool) -> Window:
    gathered, out, made = list[Event](), list[Event](), list[Event]()
    for event in found:
        gathered.append(event)
        batch = gathered if include_trigger else gathered[:-1]
        if holds(gathered) and batch:
            made += [change(event, each, "dead") for each in out]
            made += [change(event, each, "new") for each in batch]
            out, gathered = batch, [] if include_trigger else [event]
    return made


def asked(name: str, how: str, source: g.Stream) -> g.Stream:
    condition, _ = CONDITIONS[name]
    by = source.by("k")
    windows = by.keep_while(condition) if how == "while" else by.batches_until(condition, include_trigger=how == "with")
    return windows.changes()


def expected(name: str, how: str, found: Window) -> Window:
    _, holds = CONDITIONS[name]
    made = []
    for k in ("a", "b", None):
        group = [event for event in found if event.payload["k"] == k]
        if how == "while":
            made += keep_while(group, holds)
        else:
            made += batches_until(group, holds, include_trigger=how == "with")
    return made


@pytest.mark.parametrize("how", ["while", "with", "without"])
@examples(dear=True)
@given(found=events, name=st.sampled_from(list(CONDITIONS)), chance=st.randoms(use_true_random=False))
def test_conditions(device_name: str, how: str, found: Window, name: str, chance: random.Random) -> None:
    answer = rows(expected(name, how, found))
    assert rows(asked(name, how, stream(found, PAYLOAD)).collect(device=device_name)) == answer
    most = chance.randint(2, 12)  # and the ways that are meant for many rows
    with mock.patch.multiple(conditions, _MOST_ROWS=most, _MOST_GROUPS=2, _FEWEST_ROWS=0, _STRIDE=2):
        assert rows(asked(name, how, stream(found, PAYLOAD)).collect(device=device_name)) == answer
    arriving = in_some_order(to_table(found, PAYLOAD), chance)
    assert rows(in_any_cut(asked(name, how, stream([], PAYLOAD)), arriving, device_name, chance)) == answer


def test_windows_wider_than_a_block(device_name: str) -> None:
    found = [Event(at, at + 1, {"k": "a", "v": 1, "x": None}) for at in range(500)]
    kept = stream(found, PAYLOAD).keep_while(g.window.sum("v") <= 150).agg(n=g.count()).collect(device=device_name)
    assert sorted(kept["n"].to_pylist()) == [*range(1, 150), *[150] * 351]
    batches = stream(found, PAYLOAD).batches_until(g.window.count == 150).agg(n=g.count()).collect(device=device_name)
    assert batches["n"].to_pylist() == [150] * 3


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        (g.window.newest("w") == 1, "'w'"),
        (g.col("v") == 1, "of which event"),
        (g.window.sum("k") == 1, "no sum of string"),
        (g.window.count + 1, "condition"),
        (g.lit(value=True), "nothing of a window"),
    ],
)
def test_what_is_no_condition_on_a_window_is_refused(condition: nw.Expr, says: str) -> None:
    with pytest.raises((PlanError, ColumnError), match=f"(?i){says}"):
        stream([], PAYLOAD).keep_while(condition)
