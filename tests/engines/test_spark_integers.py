"""Whole numbers of expressions on Spark: exact or our error, whether the session is ANSI or not, and still planned."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from pyarrow import parquet

import gpu_ops as g
from gpu_ops.engines.spark.checks import our_errors
from tests.support.examples import examples
from tests.support.integer_trees import Condition, Whole, conditions, expected, tables, wholes
from tests.support.on_spark import answer, same, to_spark
from tests.support.planner import planned, report
from tests.support.ticks import us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = pa.timestamp("us", "UTC")
LEAST, MOST = -(1 << 63), (1 << 63) - 1
EVENTS = pa.table(
    {
        "s": pa.array([0, 1, 2], UTC),
        "e": pa.array([5, 6, 7], UTC),
        "k": ["a", "b", "a"],
        "v": pa.array([1 << 62, 5, None], pa.int64()),
        "w": pa.array([3, MOST, 1], pa.int64()),
        "least": pa.array([LEAST, 4, 5], pa.int64()),
        "small": pa.array([1000, 2, 3], pa.int64()),
        "byte": pa.array([100, -128, 3], pa.int8()),
        "x": pa.array([1.5, 1e30, float("nan")]),
        "span": pa.array([1 << 62, 5, 5], pa.duration("us")),
    }
)
c = g.col

DO_NOT_FIT = {
    "doubled": lambda s: s.select(q=c("v") * 2),
    "of two columns": lambda s: s.select(q=c("v") * c("w")),
    "added": lambda s: s.select(q=c("v") + c("w")),
    "narrow": lambda s: s.select(q=c("byte") * 2),
    "two narrow ones": lambda s: s.select(q=c("byte") + c("byte")),
    "negated": lambda s: s.select(q=-c("least")),
    "absolute": lambda s: s.select(q=c("least").abs()),
    "squared": lambda s: s.select(q=c("w") ** 2),
    "quotient": lambda s: s.select(q=c("least") // -1),
    "cast": lambda s: s.select(q=c("small").cast(g.Int8)),
    "cast of a float": lambda s: s.select(q=c("x").cast(g.Int64)),
    "nested": lambda s: s.select(q=(c("v") * 2) * 3 + 1),
    "sum of columns": lambda s: s.select(q=g.sum_horizontal("v", "w")),
    "filter": lambda s: s.filter(c("v") * 2 > 0),
    "filter behind": lambda s: s.with_columns(q=c("v") * 2).filter(c("v") < 100),
    "nobody reads it": lambda s: s.with_columns(q=c("v") * 2).select("k"),
    "aggregate": lambda s: s.by("k").snapshot().agg(m=g.max(c("v") * 2)),
    "of aggregates": lambda s: s.by("k").snapshot().agg(m=g.max("v") * g.max("v")),
    "condition of a join": lambda s: s.join(s, on="k", condition=c("v") * c("w_right") * 2 > 0),
    "condition of a join by sql": lambda s: s.join(s, on="k", condition=c("v") * c("w_right") > 0, strategy="sql"),
    "lifetime": lambda s: s.alter_lifetime(start=c("start"), duration=us(c("span") * 2)),
}
FIT = {
    "sums": lambda s: s.select(q=c("v") + c("small"), r=c("small") * c("byte"), t=c("byte") + 20),
    "in a branch": lambda s: s.select(q=g.when(c("v") < 100).then(c("v") * 2).otherwise(c("v"))),
    "cast in a branch": lambda s: s.select(q=g.when(c("small") < 100).then(c("small").cast(g.Int8)).otherwise(0)),
    "and": lambda s: s.select(q=(c("v") < 100) & (c("v") * 2 > 5), r=(c("v") >= 100) | (c("v") * 2 > 5)),
    "filter before": lambda s: s.filter(c("v") < 100).select(q=c("v") * 2),
    "filters": lambda s: s.filter(c("v") < 100, c("v") * 2 > 5),
    "filled": lambda s: s.select(q=c("w").fill_null(c("v") * 2), r=c("v").fill_null(7) // c("small")),
    "where": lambda s: s.by("k").snapshot().agg(m=g.max(c("v") * 2, where=c("v") < 100)),
    "power": lambda s: s.select(q=c("small") ** 3, r=c("byte") % -7),
    "truncated": lambda s: s.filter(c("x") < 1e6).select(q=c("x").cast(g.Int64), r=(-c("x")).cast(g.Int8)),
    "lasted": lambda s: s.select(q=(c("end") - c("start")).dt.total_microseconds()),
}


@pytest.fixture
def session(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[SparkSession]:
    """The session, ANSI or not, as the parameter says."""
    before = str(spark.conf.get("spark.sql.ansi.enabled"))
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield spark
    spark.conf.set("spark.sql.ansi.enabled", before)


def cases(names: Iterable[str], ansi: str, both: Collection[str]) -> list[Any]:
    """Each case where Spark by itself would do another thing, and some where it would not."""
    other = "true" if ansi == "false" else "false"
    return [pytest.param(way, name) for name in names for way in (ansi, *([other] if name in both else []))]


@pytest.mark.parametrize(
    ("session", "name"),
    cases(DO_NOT_FIT, "false", {"doubled", "of two columns", "cast", "nested"}),
    indirect=["session"],
)
def test_a_number_that_does_not_fit_is_an_error(session: SparkSession, name: str) -> None:
    query: Any = DO_NOT_FIT[name]
    with pytest.raises(g.IntegerOverflowError):
        query(g.events(EVENTS, start="s", end="e")).collect(device="cpu")
    frame = to_spark(session, EVENTS)
    with pytest.raises(g.IntegerOverflowError) as caught:
        answer(query(g.events(frame, start="s", end="e")))
    assert "cast" in str(caught.value.remedy).lower()


@pytest.mark.parametrize(
    ("session", "name"), cases(FIT, "true", {"sums", "in a branch", "truncated"}), indirect=["session"]
)
def test_rows_that_do_not_count_are_no_error(session: SparkSession, name: str) -> None:
    same(session, EVENTS, FIT[name])


@pytest.mark.parametrize("session", ["true", "false"], indirect=True)
def test_the_error_names_the_expression_the_column_and_the_values(session: SparkSession) -> None:
    stream = g.events(to_spark(session, EVENTS), start="s", end="e").select(q=c("v") * 2)
    with pytest.raises(g.IntegerOverflowError) as caught, our_errors():
        stream.collect().collect()
    assert caught.value.column == "v"
    assert "v * 2" in caught.value.problem
    assert caught.value.values is not None
    assert caught.value.values.endswith("v=4611686018427387904")


@examples(6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tables(("i8", "i32", "i64")),
    st.lists(st.tuples(wholes(("i8", "i32", "i64")), conditions(("i8", "i32", "i64"))), min_size=1, max_size=3),
)
def test_they_are_pythons_integers_or_errors(
    spark: SparkSession, table: pa.Table, trees: list[tuple[Whole, Condition]]
) -> None:
    frame = to_spark(spark, table)
    for value, keep in trees:
        stream = g.events(frame, start="at", unit="s").filter(keep.expression).select(q=value.expression)
        try:
            found = sorted(answer(stream)["q"].to_pylist(), key=repr)
        except g.IntegerOverflowError:
            found = None
        wanted = expected(table, value, keep)
        assert found == (None if wanted is None else sorted(wanted, key=repr))


@pytest.mark.rapids
@pytest.mark.parametrize(
    "expression",
    [c("v") * 2, c("v") * c("w") + 1, c("v") - c("w"), c("small").cast(g.Int32), c("byte") + c("byte"), -c("v")],
    ids=repr,
)
def test_what_is_checked_is_planned_for_the_gpu(spark: SparkSession, tmp_path: Any, expression: Any) -> None:
    parquet.write_table(EVENTS.drop_columns(["span"]), tmp_path / "events.parquet")
    stream = g.events(spark.read.parquet(str(tmp_path)), start="s", end="e")
    frame = stream.select(q=expression).collect()
    planned(frame, "FilterExec")
    assert "RaiseError" in {line.name for line in report(frame)}
    assert "mapInArrow" not in stream.select(q=expression).explain()
