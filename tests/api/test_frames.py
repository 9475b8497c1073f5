"""A frame in, a frame out: what each column of an answer is follows from the query and the source's types alone.

The property: a frame without rows, and the same with any rows and nulls, have answers of the same dtypes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from tests.support.examples import examples

pd: Any = importlib.import_module("pandas")

Query = Callable[[g.Stream], g.Stream]

PANDAS: dict[str, tuple[Any, list[Any]]] = {
    "i": ("int64", [1, 2, 3]),
    "i8": ("int8", [1, 2, 3]),
    "flag": ("bool", [True, False, True]),
    "f": ("float64", [1.5, 2.0, None]),
    "text": ("str", ["a", "b", None]),
    "Int": ("Int64", [1, 2, None]),
    "Float": ("Float64", [1.5, 2.0, None]),
    "Flag": ("boolean", [True, False, None]),
    "Text": ("string", ["a", "b", None]),
    "arrow": (pd.ArrowDtype(pa.int32()), [1, 2, None]),
    "arrow_text": (pd.ArrowDtype(pa.string()), ["a", "b", None]),
    "arrow_category": (pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string())), ["a", "b", None]),
    "category": (pd.CategoricalDtype(["unused", "q", "p"]), ["p", "q", None]),
    "number_category": (pd.CategoricalDtype([9, 5, 3]), [3, 5, None]),
    "time": ("datetime64[ns]", [0, 1, None]),
    "zoned": (pd.DatetimeTZDtype("ms", "Europe/Vienna"), [0, 1, None]),
    "span": ("timedelta64[s]", [0, 1, None]),
}
POLARS: dict[str, tuple[Any, list[Any]]] = {
    "i": (pl.Int64(), [1, 2, 3]),
    "f": (pl.Float32(), [1.5, 2.0, None]),
    "category": (pl.Categorical(), ["q", "p", None]),
    "choice": (pl.Enum(["unused", "q", "p"]), ["q", "p", None]),
    "money": (pl.Decimal(12, 2), [Decimal("1.50"), Decimal(2), None]),
    "pair": (pl.Array(pl.Int8(), 2), [[1, 2], [3, 4], None]),
    "choices": (pl.List(pl.Enum(["unused", "q", "p"])), [["q"], [], None]),
    "time": (pl.Datetime("ns", "Europe/Vienna"), [0, 1, None]),
    "clock": (pl.Time(), [0, 1, None]),
}
NESTED = {"pair", "choices"}


def of_pandas(rows: list[tuple[int, ...]]) -> Any:
    columns = {
        name: pd.Series([values[row[at]] for row in rows], dtype=dtype)
        for at, (name, (dtype, values)) in enumerate(PANDAS.items())
    }
    return pd.DataFrame({"at": np.arange(len(rows)), **columns})


def of_polars(rows: list[tuple[int, ...]]) -> pl.DataFrame:
    columns = {
        name: pl.Series([values[row[at % 9]] for row in rows], dtype=dtype, strict=False)
        for at, (name, (dtype, values)) in enumerate(POLARS.items())
    }
    return pl.DataFrame({"at": range(len(rows)), **columns}, schema_overrides={"at": pl.Int64})


def each(aggregate: Callable[..., g.Aggregate], *, but: frozenset[str] = frozenset(NESTED), **how: Any) -> Query:
    def query(s: g.Stream) -> g.Stream:
        return s.tumbling("2s").agg(**{name: aggregate(name, **how) for name in s.schema.names if name not in but})

    return query


QUERIES: dict[str, Query] = {
    "as it is": lambda s: s,
    "filter": lambda s: s.filter(g.col("i") > 2),
    "rename": lambda s: s.select(**{f"{name}_": g.col(name) for name in s.schema.names}),
    "rows": lambda s: s.last(2).rows(),
    "top": lambda s: s.tumbling("2s").top(1, by="i"),
    "full join": lambda s: s.join(s.shift("3s"), on="i", how="full"),
    "left join": lambda s: s.join(s.shift("1s"), on="i", how="left"),
    "as-of join": lambda s: s.asof_join(s.select("i", c="category"), on="i"),
    "join by category": lambda s: s.select("i", "category").join(s.select("category"), on="category", how="right"),
    "union": lambda s: s.union(s.shift("1s")),
    "group": lambda s: s.by(*(name for name in s.schema.names if name not in NESTED)).tumbling("2s").agg(n=g.count()),
    "stitch": lambda s: s.select("i", "category").stitch(on="i"),
    "min": each(g.min),
    "last": each(g.last, where=g.col("i") > 2),
    "mode": each(g.mode),
    "nth": each(g.nth, n=1, but=frozenset()),
    "collect_list": each(g.collect_list, but=frozenset()),
    "sums": lambda s: s.tumbling("2s").agg(
        n=g.count(), total=g.sum("i"), mean=g.mean("f"), half=g.sum("i") / g.count()
    ),
    "expressions": lambda s: s.with_columns(i=g.col("i") * 2, more=g.col("i") > 1, half=g.col("f") / 2),
    "empty windows": lambda s: s.tumbling("1s", fill={"n": "zero"}).agg(n=g.count(), total=g.sum("i")),
}
of_rows = st.lists(st.tuples(*[st.integers(0, 2)] * len(PANDAS)), max_size=4)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
@given(rows=of_rows)
@examples(2)
def test_dtypes_of_pandas_depend_on_the_query_alone(name: str, rows: list[tuple[int, ...]]) -> None:
    empty, found = (QUERIES[name](g.events(of_pandas(each), start="at", unit="s")) for each in ([], rows))
    pd.testing.assert_series_equal(found.collect(device="cpu").dtypes, empty.collect(device="cpu").dtypes)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
@given(rows=of_rows)
@examples(2)
def test_dtypes_of_polars_depend_on_the_query_alone(name: str, rows: list[tuple[int, ...]]) -> None:
    empty, found = (QUERIES[name](g.events(of_polars(each), start="at", unit="s")) for each in ([], rows))
    assert found.collect(device="cpu").schema == empty.collect(device="cpu").schema


@given(rows=of_rows)
@examples(8)
def test_what_stays_itself_is_what_it_was_in_pandas(rows: list[tuple[int, ...]]) -> None:
    frame = of_pandas(rows)
    answer = g.events(frame, start="at", unit="s").collect(device="cpu")
    pd.testing.assert_frame_equal(answer.drop(columns=["start", "end"]), frame.drop(columns="at"))


@given(rows=of_rows)
@examples(8)
def test_what_stays_itself_is_what_it_was_in_polars(rows: list[tuple[int, ...]]) -> None:
    frame = of_polars(rows)
    answer = g.events(frame, start="at", unit="s").collect(device="cpu").drop("start", "end")
    assert answer.equals(frame.drop("at"))
    assert answer.schema == frame.drop("at").schema


def dtypes(query: Query) -> dict[str, str]:
    answer = query(g.events(of_pandas([(0,) * len(PANDAS)]), start="at", unit="s")).collect(device="cpu")
    return {str(name): str(dtype) for name, dtype in answer.dtypes.items()}


def test_integers_and_booleans_are_nullable_where_a_null_can_come_by() -> None:
    made = dtypes(lambda s: s.select("i", "flag", more=g.col("i") + 1, on=~g.col("flag"), share=g.col("f") / 2))
    assert made | {"start": "", "end": ""} == {
        "start": "",
        "end": "",
        "i": "int64",
        "flag": "bool",
        "more": "Int64",
        "on": "boolean",
        "share": "float64",
    }
    joined = dtypes(lambda s: s.select("i", "i8").join(s.select(i="i", other="i8"), on="i", how="left"))
    assert (joined["i"], joined["i8"], joined["other"]) == ("int64", "int8", "Int8")
    chosen = dtypes(lambda s: s.by("i8").tumbling("1s").agg(n=g.count(), least=g.min("i"), mean=g.mean("i")))
    assert list(chosen.values())[2:] == ["int8", "Int64", "Int64", "float64"]


def test_what_is_computed_is_of_the_family_of_what_it_is_computed_from() -> None:
    made = dtypes(
        lambda s: s.select(
            nullable=g.col("Float") / g.col("i"),
            arrow=g.col("Int") + g.col("arrow"),
            condition=g.col("arrow") > 1,
            text=g.col("Text").str.to_uppercase(),
            neither=g.col("i") / 2,
        )
    )
    assert list(made.values())[2:] == ["Float64", "int64[pyarrow]", "bool[pyarrow]", "string", "float64"]
    chosen = dtypes(lambda s: s.snapshot().agg(a=g.mean("Int"), b=g.collect_list("arrow"), c=g.max("category")))
    assert list(chosen.values())[2:] == ["Float64", "list<item: int32>[pyarrow]", "str"]


def test_an_object_column_is_what_pandas_makes_of_its_values() -> None:
    frame = pd.DataFrame(
        {"at": [0, 1], "text": pd.Series(["a", None], dtype=object), "n": pd.Series([1, 2], dtype=object)}
    )
    answer = g.events(frame, start="at", unit="s").collect()
    assert [str(dtype) for dtype in answer.dtypes][2:] == ["str", "Int64"]


def test_polars_objects_are_refused_by_name() -> None:
    frame = pl.DataFrame({"at": [0], "thing": pl.Series([object()], dtype=pl.Object)})
    with pytest.raises(g.SourceError, match="thing"):
        g.events(frame, start="at", unit="s").collect()
