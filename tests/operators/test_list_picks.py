"""What methods of lists find: the same as in lists of Python, row by row, on each device."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.core.time import TICK
from gpu_ops.devices import choose
from gpu_ops.errors import ColumnError
from gpu_ops.operators.events import Events
from gpu_ops.operators.list_picks import ListPickOperator
from gpu_ops.plan.list_picks import ListPick
from gpu_ops.plan.nodes import Feed
from tests.support.examples import by_default

LISTS = pa.list_(pa.struct([("k", pa.int32()), ("n", pa.int32())]))
KEY = st.integers(0, 5)

_BESIDE = {
    "ceiling": lambda key, asked: key >= asked,
    "higher": lambda key, asked: key > asked,
    "floor": lambda key, asked: key <= asked,
    "lower": lambda key, asked: key < asked,
    "equal": lambda key, asked: key == asked,
}


def _groups(row: Any, node: ListPick, given: list[Any]) -> list[list[Any]]:
    """The elements of each key that is found, in order."""
    sign = -1 if node.descending else 1
    groups = [list(each) for _, each in groupby(row, lambda one: one["k"])]
    if node.place == "between":
        low, with_low, high, with_high = given
        low, high = sorted([sign * low, sign * high]) if sign * low <= sign * high else (sign * low, sign * high)

        def inside(key: int) -> bool:
            return bool((key >= low if with_low else key > low) and (key <= high if with_high else key < high))

        return [each for each in groups if inside(sign * each[0]["k"])]
    if node.place in _BESIDE:
        groups = [each for each in groups if _BESIDE[node.place](sign * each[0]["k"], sign * given[0])]
    if node.found in {"count", "keys"}:
        return groups
    return groups[-1:] if node.place in {"last", "floor", "lower"} else groups[:1]


def _expected(row: Any, node: ListPick, given: list[Any]) -> Any:
    row = row or []
    if node.place in {"at", "from end"}:
        some = row if node.place == "at" else row[::-1]
        return some[given[0]] if given[0] is not None and 0 <= given[0] < len(some) else None
    groups = [] if None in given else _groups(row, node, given)
    every = [each for group in groups for each in group]
    match node.found:
        case "count":
            return len(every)
        case "keys":
            return len(groups)
        case "there":
            return bool(every)
        case "elements":
            return every if every or node.place == "between" else None
        case "key":
            return every[0]["k"] if every else None
    return every[0] if every else None


@st.composite
def cases(draw: st.DrawFn) -> tuple[pa.Table, ListPick]:
    descending = draw(st.booleans())
    keys = draw(st.lists(st.none() | st.lists(KEY, max_size=6), min_size=1, max_size=5))
    lists = [
        each if each is None else [{"k": k, "n": n} for n, k in enumerate(sorted(each, reverse=descending))]
        for each in keys
    ]
    place = draw(st.sampled_from([*_BESIDE, "first", "last", "between", "at", "from end"]))
    found = "element"
    if place == "between":
        found = "elements"
    elif place == "equal":
        found = draw(st.sampled_from(["element", "elements", "there"]))
    elif place in {*_BESIDE, "last"}:
        found = draw(st.sampled_from(["element", "elements", "key"]))
    elif place == "first":
        found = draw(st.sampled_from(["element", "elements", "key", "count", "keys"]))
    columns: dict[str, pa.Array] = {"of": pa.array(lists, LISTS)}
    size = len(lists)
    if place in {*_BESIDE, "at", "from end"}:
        columns["a"] = pa.array(draw(st.lists(st.none() | KEY, min_size=size, max_size=size)), pa.int32())
    if place == "between":
        for name, values, dtype in (("a", KEY, pa.int32()), ("b", st.booleans(), pa.bool_())):
            for end in "01":
                columns[name + end] = pa.array(draw(st.lists(values, min_size=size, max_size=size)), dtype)
    table = pa.table(columns)
    arguments = [name for name in ("a", "a0", "b0", "a1", "b1") if name in columns]
    feed = Feed(table.schema, (), TICK)
    keyed = () if place in {"at", "from end"} else ("k",)
    return table, ListPick(feed, "of", place, found, keyed, descending, tuple(arguments), "found")  # type: ignore[arg-type]


@by_default(50)
@given(cases(), st.sampled_from(["cpu", "array"]))
def test_picks(case: tuple[pa.Table, ListPick], name: str) -> None:
    table, node = case
    device = choose(name)
    events = Events(device.columns.array(np.arange(len(table))), TICK, device.columns.from_arrow(table))
    made = device.columns.to_arrow(ListPickOperator(node, device).each(events).frame, node.schema)
    rows = zip(*(made[name].to_pylist() for name in ("of", *node.arguments)), strict=True)
    assert made["found"].to_pylist() == [_expected(row, node, list(given)) for row, *given in rows]


def test_what_is_no_list_has_no_elements() -> None:
    feed = Feed(pa.schema([("v", pa.int64())]), (), TICK)
    with pytest.raises(ColumnError, match="no elements of int64"):
        ListPick(feed, "v", "first", "element", (), False, (), "found")
