from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.core.turns import EMPTY, HELD, MARK, NEW, OLD, ORDER, ROW
from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.plan.per_delivery import PerDelivery, RowKey
from tests.support.devices import HERE
from tests.support.per_delivery_reference import arranged
from tests.support.turns import DELIVERED, Row, delivered, feed

PAYLOAD = pa.schema([*DELIVERED, ("name", pa.string()), ("price", pa.int64()), ("share", pa.float64())])
SOME = feed(PAYLOAD)


def row(place: int, kind: int, order: int, name: str | None = None, price: int | None = None) -> Row:
    return {"place": place, ROW: kind, ORDER: order, "name": name, "price": price}


THREE = [row(0, NEW, 0, "a", 3), row(0, NEW, 1, "b", 1), row(0, NEW, 2, "c", None)]


def names(node: PerDelivery, rows: list[Row]) -> list[tuple[int, int, int, str | None]]:
    return [(each["place"], each[ROW], each[ORDER], each["name"]) for each in delivered(node, {SOME: rows})]


def test_null_is_the_least_value() -> None:
    assert [name for *_, name in names(PerDelivery(SOME, (RowKey("price"),)), THREE)] == ["c", "b", "a"]
    assert [name for *_, name in names(PerDelivery(SOME, (RowKey("price", descending=True),)), THREE)] == [
        "a",
        "b",
        "c",
    ]


def test_each_stream_of_each_delivery_is_limited_by_itself() -> None:
    rows = [
        *THREE,
        row(0, OLD, 0, "x"),
        row(0, MARK, 0),
        *({**each, "place": 4} for each in THREE),
        row(6, EMPTY, 0),
    ]
    assert names(PerDelivery(SOME, limit=1, offset=1), rows) == [
        (0, NEW, 0, "b"),
        (0, MARK, 0, None),
        (4, NEW, 0, "b"),
        (6, EMPTY, 0, None),
    ]


def test_of_equal_rows_the_first_in_order_stays() -> None:
    rows = [row(0, NEW, 0, "a", 2), row(0, NEW, 1, "a", 1), row(0, NEW, 2, None, 5), row(0, NEW, 3, None, 4)]
    node = PerDelivery(SOME, (RowKey("price"),), distinct=("name",))
    assert [each["price"] for each in delivered(node, {SOME: rows})] == [1, 4]


_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "place": st.integers(0, 4).map(lambda turn: 2 * turn),
            ROW: st.sampled_from([NEW, OLD, HELD, MARK, EMPTY]),
            "name": st.sampled_from(["a", "b", None]),
            "price": st.sampled_from([1, 2, 3, None]),
            "share": st.sampled_from([0.5, float("inf"), -1.0, None]),
        }
    ),
    max_size=30,
)
_KEYS = st.lists(st.tuples(st.sampled_from(["name", "price", "share"]), st.booleans()), max_size=3)
_COLUMNS = st.none() | st.lists(st.sampled_from(["name", "price", "share"]), min_size=1, unique=True)


@given(
    _ROWS,
    _KEYS,
    _COLUMNS,
    st.none() | st.integers(0, 3),
    st.integers(0, 2),
    st.booleans(),
    st.randoms(),
    st.sampled_from(HERE),
)
def test_as_one_delivery_after_the_other(
    drawn: list[Row],
    keys: Any,
    distinct: Any,
    limit: Any,
    offset: int,
    leaves_empty: bool,  # noqa: FBT001
    chance: Any,
    device: str,
) -> None:
    rows = [{**each, ORDER: number, "@entered": None, "@left": None} for number, each in enumerate(drawn)]
    expected = arranged(rows, keys, distinct, limit, offset, leaves_empty=leaves_empty)
    chance.shuffle(rows)
    rows.sort(key=lambda each: each["place"])
    node = PerDelivery(SOME, tuple(RowKey(*each) for each in keys), distinct and tuple(distinct), limit, offset)
    node = replace(node, leaves_empty=leaves_empty)
    cuts = sorted({chance.randrange(0, 6) * 2 for _ in range(chance.randrange(3))})
    assert told(delivered(node, {SOME: rows}, cuts, device)) == told(expected)


def told(rows: list[Row]) -> list[Row]:
    """The rows, of empty deliveries their places alone."""
    return [row if row[ROW] != EMPTY else {"place": row["place"]} for row in rows]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ColumnError, match=r"no such column.*'prise'.*Did you mean 'price'"):
        PerDelivery(SOME, (RowKey("prise"),))
    with pytest.raises(PlanError, match=r"cannot have -1 rows.*offset="):
        PerDelivery(SOME, offset=-1)


def test_it_says_what_it_does() -> None:
    node = PerDelivery(SOME, (RowKey("price", descending=True), RowKey("name")), ("name",), 3, 1)
    assert node.describe() == "PerDelivery by price desc, name distinct name limit=3 offset=1"
