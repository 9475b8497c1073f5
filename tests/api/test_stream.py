"""The verbs refuse what cannot mean anything when they are called, and say what to do instead."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pyarrow as pa
import pytest

import gpu_ops as g
from tests.support.ticks import us

TABLE = pa.table(
    {
        "at": pa.array([0, 1, 5], pa.timestamp("s", "UTC")),
        "until": pa.array([4, 2, 9], pa.timestamp("s", "UTC")),
        "item": ["a", "b", "a"],
        "price": [3, 9, 4],
        "tags": [["x"], [], ["y"]],
    }
)


@pytest.fixture
def bids() -> g.Stream:
    return g.events(TABLE, start="at", end="until")


REFUSED: dict[str, tuple[Callable[[g.Stream], object], str]] = {
    "filter without condition": (lambda s: s.filter(), "at least one condition"),
    "filter by a number": (lambda s: s.filter(g.col("price")), "takes a condition"),
    "filter by a thing": (lambda s: s.filter(3), "expressions and column names"),  # type: ignore[arg-type]
    "unknown column": (lambda s: s.filter(g.col("prise") > 1), "Did you mean 'price'"),
    "unknown key": (lambda s: s.by("items"), "Did you mean 'item'"),
    "expression as key": (lambda s: s.by(g.col("item")), "takes column names"),  # type: ignore[arg-type]
    "nested key": (lambda s: s.by("tags"), "no key"),
    "lifetime as key": (lambda s: s.by("start"), "no key"),
    "select nothing": (lambda s: s.select(), "at least one column"),
    "select loses the key": (lambda s: s.by("item").select("price"), "grouped by"),
    "select the lifetime": (lambda s: s.select("start"), "own name"),
    "change the lifetime": (lambda s: s.with_columns(end=g.col("start")), "cannot change the lifetime"),
    "zero duration": (lambda s: s.set_duration(0), "longer than zero"),
    "negative size": (lambda s: s.tumbling("-1s"), "longer than zero"),
    "hop of zero": (lambda s: s.hopping("1min", 0), "longer than zero"),
    "unknown membership": (lambda s: s.tumbling("1us", membership="end"), "membership"),  # type: ignore[arg-type]
    "unknown output": (lambda s: s.tumbling("1us", output="start"), "output"),  # type: ignore[arg-type]
    "aligned without zone": (lambda s: s.tumbling("1us", align="2026-01-01T00:00:00"), "no zone"),
    "progress that does not fit": (lambda s: s.quantize("10s", progress="3s"), "does not divide"),
    "nothing to alter": (lambda s: s.alter_lifetime(), "takes a start"),
    "duration and end": (
        lambda s: s.alter_lifetime(duration=us(g.col("end") - g.col("start")), end=g.col("end")),
        "not both",
    ),
    "end of the wrong type": (lambda s: s.alter_lifetime(end=g.col("price")), "takes a timestamp"),
    "agg without aggregates": (lambda s: s.snapshot().agg(), "at least one aggregate"),
    "agg of an expression": (lambda s: s.snapshot().agg(n=g.col("price").sum()), "takes an aggregate of gpu_ops"),
    "sum of strings": (lambda s: s.snapshot().agg(n=g.sum("item")), "sum does not take string"),
    "mean of lists": (lambda s: s.snapshot().agg(n=g.mean("tags")), "mean does not take"),
    "max of lists": (lambda s: s.snapshot().agg(n=g.max("tags")), "max does not take"),
    "filter of an aggregate that is no condition": (
        lambda s: s.snapshot().agg(n=g.count(where="price")),
        "takes a condition",
    ),
    "aggregate called as a key": (lambda s: s.by("item").snapshot().agg(item=g.count()), "two columns of one name"),
    "aggregate called start": (lambda s: s.snapshot().agg(start=g.count()), "two columns of one name"),
    "unknown column in an aggregate": (lambda s: s.snapshot().agg(n=g.sum("prices")), "Did you mean 'price'"),
    "unknown device": (lambda s: s.collect(device="tpu"), "no device 'tpu'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(bids: g.Stream, case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(g.PlanError, match=message):
        call(bids)


def test_a_column_called_like_the_lifetime_is_refused() -> None:
    with pytest.raises(g.ColumnError, match="start"):
        g.events(TABLE.append_column("start", pa.array([1, 2, 3])), start="at")


def test_errors_keep_their_parts_when_they_travel() -> None:
    error = g.ColumnError("Wrong.", column="price", row=3, values="price=1", remedy="Mend it.")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  (our own bytes)
    assert (str(again), again.column, again.row, type(again)) == (str(error), "price", 3, g.ColumnError)


def test_every_verb_gives_a_new_stream(bids: g.Stream) -> None:
    before = bids.schema
    bids.filter(g.col("price") > 3).by("item").set_duration("1min").snapshot().agg(n=g.count())
    assert bids.schema == before
    assert bids.key == ()
    assert bids.by("item").filter(g.col("price") > 3).key == ("item",)
    assert bids.by("item").by().key == ()
    assert bids.by("item").snapshot().agg(n=g.count()).key == ()


def test_a_stream_is_shown_by_its_schema(bids: g.Stream) -> None:
    assert repr(bids.by("item").select("item", "price")) == "<Stream by item [item: string, price: int64]>"
    assert repr(bids.tumbling("1min")) == "<Windowed tumbling size=1min>"


def test_a_result_is_a_stream_and_windows_nest(bids: g.Stream) -> None:
    per_item = bids.by("item").snapshot().agg(n=g.count())
    busiest = per_item.tumbling("1min").agg(most=g.max("n"))
    assert busiest.collect()["most"].to_pylist() == [1]


def test_other_libraries_take_a_stream_as_a_frame(bids: g.Stream) -> None:
    assert pa.table(bids.select("price"))["price"].to_pylist() == [3, 9, 4]
    assert sum(batch.num_rows for batch in bids) == 3


def opened(name: str | None, *starts: int | None) -> g.Stream:
    table = pa.table({"at": [*starts], name or "v": [1] * len(starts)})
    return g.events(table, start="at", unit="s", on_invalid="divert", name=name)


def test_each_source_is_reported_by_its_name() -> None:
    left, right = opened("orders", 1, None, 2), opened("offers", None, 3, None)
    both = left.set_duration("1min").join(right, on=None).join(left, on=None)
    both.collect()
    report = both.report()
    assert (report.rows, report.valid, report.invalid) == (6, 3, {"null_start": 3})
    assert report.first == {"null_start": "orders, row 1: at=null"}
    assert {name: each.rows for name, each in report.sources.items()} == {"orders": 3, "offers": 3}
    assert report.sources["offers"].first == {"null_start": "row 0: at=null"}
    assert "sources={'orders': IngestReport(rows=3, valid=2," in repr(report)
    assert {name: kept["row"].to_pylist() for name, kept in both.rejected().items()} == {
        "orders": [1],
        "offers": [0, 2],
    }
    assert both.rejected()["offers"].schema.names == ["at", "offers", "rule", "row"]


def test_a_query_with_one_source_reports_it_alone() -> None:
    once = opened("orders", 1, None)
    twice = once.union(once.shift("1s"))
    assert twice.collect().num_rows == 2
    assert twice.report() == once.report()
    assert twice.report().sources == {}
    assert twice.rejected()["row"].to_pylist() == [1]


def test_sources_that_share_a_name_are_numbered() -> None:
    several = opened(None, 1).union(
        opened("input 2", 2).select(v="input 2"), opened(None, 3, 4), opened("late", 5).select(v="late")
    )
    several.collect()
    counted = {name: each.rows for name, each in several.report().sources.items()}
    assert counted == {"input 1": 1, "input 2": 1, "input 3": 2, "late": 1}


def test_some_rows_of_an_answer(bids: g.Stream, capsys: pytest.CaptureFixture[str]) -> None:
    answer = bids.by("item").snapshot().agg(n=g.count())
    whole = answer.collect()
    assert answer.head(2).equals(whole.slice(0, 2))
    assert answer.head(100).equals(whole)
    answer.show(2)
    assert "shape: (2, 4)" in capsys.readouterr().out
    with pytest.raises(g.PlanError, match="rows"):
        answer.head(0)
    with pytest.raises(g.PlanError, match="not on Spark"):
        answer.to_spark()
