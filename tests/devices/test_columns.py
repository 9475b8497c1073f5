"""The contract of columns, on every device that is present."""

from __future__ import annotations

import decimal
import math
from itertools import pairwise
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.devices import Device, choose
from gpu_ops.devices.cpu import columns as cpu_columns
from tests.support.devices import HERE

TABLE = pa.table(
    {
        "i": pa.array([3, None, -1, 3], pa.int32()),
        "u": pa.array([2**64 - 1, 0, None, 1], pa.uint64()),
        "f": [0.0, -0.0, math.nan, None],
        "s": ["x", None, "x", "y"],
        "b": [True, None, False, True],
        "t": pa.array([0, 1, None, 0], pa.timestamp("us", "Europe/Vienna")),
        "d": pa.array(
            [decimal.Decimal("1.50"), None, decimal.Decimal("-99999999999999999999.25"), decimal.Decimal("1.50")],
            pa.decimal128(38, 2),
        ),
        "c": pa.array(["p", "q", None, "p"]).dictionary_encode(),
    }
)


@pytest.fixture
def columns(device: Device) -> Any:
    return device.columns


def test_arrow_comes_back_as_it_went_in(columns: Any) -> None:
    back = columns.to_arrow(columns.from_arrow(TABLE), TABLE.schema)
    assert back.schema == TABLE.schema
    assert back.drop_columns("f").equals(TABLE.drop_columns("f"))
    assert repr(back["f"].to_pylist()) == repr(TABLE["f"].to_pylist())


def test_rows_taken_selected_and_put_together(columns: Any) -> None:
    frame = columns.from_arrow(TABLE)
    picked = columns.take(columns.select(frame, ["s", "i"]), columns.array(np.array([3, 0, 0])))
    schema = pa.schema([TABLE.schema.field("i"), TABLE.schema.field("s")])
    assert columns.rows(picked) == 3
    assert columns.to_arrow(picked, schema).to_pydict() == {"i": [3, 3, 3], "s": ["y", "x", "x"]}
    twice = columns.concat([picked, picked])
    assert columns.rows(twice) == 6
    wide = columns.beside(columns.select(picked, ["i"]), columns.rename(columns.select(picked, ["i"]), "i", "j"))
    assert columns.to_arrow(wide, pa.schema([("i", pa.int32()), ("j", pa.int32())])).column_names == ["i", "j"]


def test_structs_of_columns_and_nulls_of_nested_ones(columns: Any) -> None:
    """Types within nested columns stay where no value tells them."""
    one = pa.table({"a": pa.array([1, None], pa.int64()), "l": pa.array([[], None], pa.list_(pa.string()))})
    expected = pa.table(
        {"s": pa.StructArray.from_arrays([each.combine_chunks() for each in one.columns], names=["a", "l"])}
    )
    for table, wanted in ((one, expected), (one[:0], expected[:0])):
        made = columns.structs(columns.from_arrow(table), "s")
        assert columns.to_arrow(made, wanted.schema).equals(wanted)
        beside = columns.concat([columns.nulls(made, 2), made])
        assert columns.to_arrow(beside, wanted.schema)["s"].to_pylist() == [None, None, *wanted["s"].to_pylist()]
        codes, count, _ = columns.key_codes(columns.concat([columns.nulls(made, 1), made]), ["s"])
        assert len(columns.host(codes)) == len(wanted) + 1 == count


@pytest.mark.parametrize(
    ("name", "numbers", "valid"),
    [
        ("i", [3, 0, -1, 3], [True, False, True, True]),
        ("u", [2**64 - 1, 0, 0, 1], [True, True, False, True]),
        ("b", [1, 0, 0, 1], [True, False, True, True]),
        ("t", [0, 1, 0, 0], [True, True, False, True]),
    ],
)
def test_values_and_which_are_there(columns: Any, name: str, numbers: list[int], valid: list[bool]) -> None:
    found, there = columns.values(columns.from_arrow(TABLE), name)
    assert columns.host(found).tolist() == numbers
    assert columns.host(there).tolist() == valid
    assert columns.host(columns.validity(columns.from_arrow(TABLE), name)).tolist() == valid


def test_values_of_a_column_without_nulls(columns: Any) -> None:
    found, there = columns.values(columns.from_arrow(pa.table({"v": [1, 2]})), "v")
    assert columns.host(found).tolist() == [1, 2]
    assert there is None


def test_decimals_as_words_and_back(columns: Any) -> None:
    frame = columns.from_arrow(TABLE)
    low, high, valid = columns.words(frame, "d")
    made = columns.build_decimal("d", low, high, valid, pa.decimal128(38, 2))
    schema = pa.schema([("d", pa.decimal128(38, 2))])
    assert columns.to_arrow(made, schema)["d"].to_pylist() == TABLE["d"].to_pylist()


@pytest.mark.parametrize(
    ("name", "order"), [("s", ["x", "y"]), ("c", ["p", "q"]), ("d", sorted(set(TABLE["d"].drop_null().to_pylist())))]
)
def test_ranks_order_as_the_values_do(columns: Any, name: str, order: list[object]) -> None:
    codes, valid, distinct = columns.ranks(columns.from_arrow(TABLE), name)
    dtype = TABLE.schema.field(name).type
    plain = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
    assert columns.to_arrow(distinct, pa.schema([(name, plain)]))[name].to_pylist() == order
    expected = [None if value is None else order.index(value) for value in TABLE[name].to_pylist()]
    there = columns.host(valid).tolist()
    assert [code if here else None for code, here in zip(columns.host(codes).tolist(), there, strict=True)] == expected


VALUES = {
    pa.string(): st.text(max_size=3) | st.text("ab", min_size=10, max_size=14),
    pa.binary(): st.binary(max_size=3),
    pa.decimal128(38, 2): st.decimals(-(10**30), 10**30, places=2),
    pa.uint64(): st.integers(0, 3) | st.integers(0, 2**64 - 1),
    pa.timestamp("us", "UTC"): st.integers(0, 3) | st.integers(0, 10**15),
}


@given(dtype=st.sampled_from(list(VALUES)), device=st.sampled_from(HERE), data=st.data())
def test_ranks_order_any_values(dtype: pa.DataType, device: str, data: st.DataObject) -> None:
    columns = choose(device).columns
    values = data.draw(st.lists(st.none() | VALUES[dtype], max_size=20))
    table = pa.table({"v": pa.array(values, dtype)})
    codes, valid, distinct = columns.ranks(columns.from_arrow(table), "v")
    codes, there = columns.host(codes), [value is not None for value in values]
    assert codes.dtype == np.int64
    assert (valid is None and all(there)) or columns.host(valid).tolist() == there
    assert not any(code for code, here in zip(codes.tolist(), there, strict=True) if not here)
    (column,) = columns.to_arrow(distinct, table.schema).columns
    ascending, found = column.to_pylist(), table["v"].to_pylist()
    assert all(one < other for one, other in pairwise(ascending))
    assert [ascending[code] for code, here in zip(codes.tolist(), there, strict=True) if here] == [
        value for value in found if value is not None
    ]


@pytest.mark.parametrize(
    "names", [["i"], ["u"], ["f"], ["s"], ["b"], ["t"], ["d"], ["c"], ["s", "b"], ["i", "f", "c", "d"]]
)
def test_key_codes_are_equal_for_equal_keys(columns: Any, names: list[str]) -> None:
    def same(value: object) -> object:
        if isinstance(value, float):
            return "NaN" if math.isnan(value) else value + 0.0
        return value

    table = pa.concat_tables([TABLE, TABLE.slice(1)])
    codes, groups, keys = columns.key_codes(columns.from_arrow(table), names)
    codes = columns.host(codes)
    assert codes.dtype == np.int32
    assert 0 <= codes.min() <= codes.max() < groups
    rows = [tuple(same(row[name]) for name in names) for row in table.select(names).to_pylist()]
    by_code: dict[int, set[object]] = {}
    for code, row in zip(codes.tolist(), rows, strict=True):
        by_code.setdefault(code, set()).add(row)
    assert all(len(found) == 1 for found in by_code.values())
    assert len(by_code) == len(set(rows))
    schema = pa.schema([table.schema.field(name) for name in names])
    shown = columns.to_arrow(columns.take(keys, columns.array(codes.astype(np.int64))), schema).to_pylist()
    assert [tuple(same(row[name]) for name in names) for row in shown] == rows


def test_without_names_there_is_one_group(columns: Any) -> None:
    codes, groups, keys = columns.key_codes(columns.from_arrow(TABLE), [])
    assert (columns.host(codes).tolist(), groups, keys) == ([0, 0, 0, 0], 1, None)


def test_keys_far_apart_cost_no_table_of_their_range(columns: Any) -> None:
    wide = pa.table({"k": [-(2**62), 2**62, 0, 2**62]})
    codes, groups, _ = columns.key_codes(columns.from_arrow(wide), ["k"])
    assert groups == 3
    assert len(set(columns.host(codes).tolist())) == 3


def test_frames_from_arrays(columns: Any) -> None:
    numbers = columns.array(np.array([1, 0, 3]))
    valid = columns.array(np.array([True, False, True]))
    types: dict[str, pa.DataType] = {
        "i8": pa.int8(),
        "i64": pa.int64(),
        "u64": pa.uint64(),
        "f32": pa.float32(),
        "f64": pa.float64(),
        "flag": pa.bool_(),
        "day": pa.date32(),
        "at": pa.timestamp("ms", "UTC"),
        "span": pa.duration("s"),
    }
    made = columns.build({name: (numbers, valid, dtype) for name, dtype in types.items()})
    table = columns.to_arrow(made, pa.schema(list(types.items())))
    for name, dtype in types.items():
        values = [True, None, True] if name == "flag" else [1, None, 3]
        plain = pa.int32() if dtype == pa.date32() else pa.int64()
        expected = pa.array(values, dtype) if name in ("flag", "f32", "f64") else pa.array(values, plain).cast(dtype)
        assert table[name].combine_chunks().equals(expected), name


def test_nulls_and_null_where(columns: Any) -> None:
    frame = columns.from_arrow(TABLE.select(["s", "d"]))
    schema = TABLE.select(["s", "d"]).schema
    hidden = columns.null_where(frame, columns.array(np.array([True, False, False, False])))
    assert columns.to_arrow(hidden, schema)["s"].to_pylist() == ["x", None, None, None]
    assert columns.null_where(frame, None) is frame
    assert columns.to_arrow(columns.nulls(frame, 2), schema).to_pylist() == [{"s": None, "d": None}] * 2


def test_expressions_see_the_lifetime_and_a_duration_stays_one(columns: Any) -> None:
    start = columns.array(np.array([0, 10, 20]))
    frame = columns.from_arrow(pa.table({"v": [1, 2, 3]}))

    def late(each: Any) -> Any:
        return each.filter(nw.col("v") > 1).with_columns(lasts=nw.col("end") - nw.col("start"))

    after, end, made = columns.evaluate(start, 5, frame, [late])
    assert columns.host(after).tolist() == [10, 20]
    assert end == 5
    table = columns.to_arrow(made, pa.schema([("v", pa.int64()), ("lasts", pa.duration("us"))]))
    assert table["lasts"].cast(pa.int64()).to_pylist() == [5, 5]
    after, end, made = columns.evaluate(start, start + 7, frame, [late])
    assert columns.host(end).tolist() == [17, 27]


STEPS: dict[str, Any] = {
    "a filter": [lambda f: f.filter(nw.col("v") > 2, nw.col("v") < 9)],
    "a filter of null": [lambda f: f.filter(nw.col("n") > 2)],
    "nothing is left": [lambda f: f.filter(nw.col("v") > 99), lambda f: f.with_columns(w=nw.col("v") + 1)],
    "all are left": [lambda f: f.filter(nw.col("v") >= 0), lambda f: f.select("start", "end", nw.col("n"))],
    "constants": [lambda f: f.select("start", "end", nw.lit(1).alias("one")), lambda f: f.with_columns(two=nw.lit(2))],
    "ends behind a filter": [
        lambda f: f.filter(nw.col("end") > nw.col("start") + nw.lit(4).cast(nw.Duration("us"))),
        lambda f: f.filter(nw.col("v") % 2 == 1),
        lambda f: f.with_columns(ended=nw.col("end"), began=nw.col("start")),
        lambda f: f.filter(nw.col("v") != 5),
    ],
    "what is read by no step, and text": [
        lambda f: f.filter(nw.col("v") % 3 < 2),
        lambda f: f.filter(nw.col("s") != "c"),
        lambda f: f.with_columns(w=nw.col("v") * 2 + 1, flag=nw.col("v") < 5),
    ],
    "casts, to the type that a column has or to another": [
        lambda f: f.select(
            "start", "end", nw.col("n").cast(nw.Int64), f=nw.col("f").cast(nw.Float64), g=nw.col("v").cast(nw.Float64)
        ),
        lambda f: f.with_columns(nw.col("n").cast(nw.Int32).alias("few"), h=nw.col("f").cast(nw.Float32)),
    ],
    "constants of one value": [
        lambda f: f.select("start", "end", zero=nw.lit(0.0), below=nw.lit(-0.0), flag=nw.lit(True), none=nw.lit(None)),
    ],
    "few of them": [lambda f: f.filter(nw.col("v") == 5), lambda f: f.select("start", "end", "s", "n", "f")],
    "a part that is read often, beside others": [
        lambda f: f.with_columns(
            w=nw.col("f") * nw.col("f") + nw.col("f"), x=nw.col("v") - 1, y=nw.col("n") + 1, z=-nw.col("v")
        ),
        lambda f: f.filter(nw.col("f") * nw.col("f") > nw.col("f"), nw.col("v") > 1, nw.col("n").is_null()),
    ],
}


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("lasts", [5, None])
@pytest.mark.parametrize("rows", [10, 40_000])
def test_steps_give_at_once_what_one_query_gives(
    monkeypatch: pytest.MonkeyPatch, steps: str, lasts: int | None, rows: int
) -> None:
    start = np.arange(rows)
    end = start + start % 7 + 1 if lasts is None else lasts
    values = {"v": start % 10, "n": [None, 3] * (rows // 2), "s": ["a", "b", None, "c", ""] * (rows // 5)}
    frame = cpu_columns.from_arrow(pa.table({**values, "f": start % 10 / 4}))
    at_once = cpu_columns.evaluate(start, end, frame, STEPS[steps])
    monkeypatch.setattr(cpu_columns, "_MANY", 0)
    planned = cpu_columns.evaluate(start, end, frame, STEPS[steps])
    assert np.array_equal(at_once[0], planned[0])
    assert np.array_equal(at_once[1], planned[1])
    assert at_once[2].polars().equals(planned[2].polars())
    assert at_once[2].polars().schema == planned[2].polars().schema


@pytest.mark.parametrize("lasts", [5, None])
def test_an_answer_is_the_table_of_what_is_evaluated(columns: Any, lasts: int | None) -> None:
    start = columns.array(np.array([0, 10, 20]))
    end = start + 5 if lasts is None else lasts
    frame = columns.from_arrow(TABLE.slice(0, 3).select(["s", "d", "c"]))
    zone = pa.timestamp("us", "Europe/Vienna")
    schema = pa.schema([("start", zone), ("end", zone), TABLE.schema.field("c"), TABLE.schema.field("s")])
    table = columns.answer(start, end, frame, [lambda each: each.filter(nw.col("s") == "x")], schema)
    assert table.schema == schema
    assert table["start"].cast(pa.int64()).to_pylist() == [0, 20]
    assert table["end"].cast(pa.int64()).to_pylist() == [5, 25]
    assert table.select(["c", "s"]).to_pydict() == {"c": ["p", None], "s": ["x", "x"]}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([3, None, -1], pa.int32()), (-1, 3)),
        (pa.array([-(1 << 63), (1 << 63) - 1], pa.int64()), (-(1 << 63), (1 << 63) - 1)),
        (pa.array([0, (1 << 64) - 1], pa.uint64()), (0, (1 << 64) - 1)),
        (pa.array([5, None, 1 << 61], pa.timestamp("us", "UTC")), (5, 1 << 61)),
        (pa.array([None, -7], pa.duration("ms")), (-7, -7)),
        (pa.array([None, None], pa.int64()), (0, 0)),
        (pa.array([], pa.int64()), (0, 0)),
        (pa.chunked_array([[3, 1], [], [9, 2]], pa.int16()), (1, 9)),
        (pa.chunked_array([[3, None], [-9]], pa.int32()), (-9, 3)),
    ],
)
def test_the_least_and_the_greatest_value(columns: Any, values: Any, expected: tuple[int, int]) -> None:
    assert columns.extent(columns.from_arrow(pa.table({"v": values})), "v") == expected


_WITHIN = st.none() | st.sampled_from([0.0, -0.0, math.nan, 1.5])
NESTED: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.list_(pa.int64()): st.lists(st.none() | st.integers(0, 2), max_size=2),
    pa.list_(pa.float64()): st.lists(_WITHIN, max_size=2),
    pa.list_(pa.list_(pa.string())): st.lists(st.none() | st.lists(st.sampled_from(["", "a"]), max_size=2), max_size=2),
    pa.struct([("x", pa.float64()), ("y", pa.string())]): st.fixed_dictionaries(
        {"x": _WITHIN, "y": st.none() | st.just("a")}
    ),
    pa.list_(pa.struct([("x", pa.float64())])): st.lists(st.none() | st.fixed_dictionaries({"x": _WITHIN}), max_size=2),
    pa.struct([("x", pa.list_(pa.float32()))]): st.fixed_dictionaries({"x": st.none() | st.lists(_WITHIN, max_size=2)}),
}


@given(dtype=st.sampled_from(list(NESTED)), device=st.sampled_from(HERE), data=st.data())
def test_lists_and_structs_are_keys_like_others(dtype: pa.DataType, device: str, data: st.DataObject) -> None:
    columns = choose(device).columns
    values = data.draw(st.lists(st.none() | NESTED[dtype], max_size=8))
    table = pa.table({"k": pa.array(values, dtype), "i": pa.array([at // 4 for at in range(len(values))], pa.int8())})
    codes, groups, keys = columns.key_codes(columns.from_arrow(table), ["k", "i"])
    codes = columns.host(codes).tolist()
    # Equal as they are written, but for the sign of zero.
    values = table["k"].to_pylist()
    rows = [repr((value, at // 4)).replace("-0.0", "0.0") for at, value in enumerate(values)]
    assert [[one == other for one in codes] for other in codes] == [[one == other for one in rows] for other in rows]
    assert all(0 <= code < groups for code in codes)
    shown = columns.take(keys, columns.array(np.array(codes, np.int64)))
    found = columns.to_arrow(shown, table.schema)
    assert [repr((row["k"], row["i"])) for row in found.to_pylist()] == rows
    tuples = columns.tuples(columns.from_arrow(table))
    assert [[one == other for one in tuples] for other in tuples] == [[one == other for one in rows] for other in rows]
    assert len(set(tuples)) == len(set(rows))
