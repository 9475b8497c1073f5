"""The table of expressions: the page shows it, `explain` marks and exact=True refuses by it, and what it says is so."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals as nw
import polars as pl
import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.core.polars_frames import to_frame
from gpu_ops.plan.meanings import TABLE, UNKNOWN, Meaning, meaning
from gpu_ops.plan.sameness import own_parts
from gpu_ops.plan.terms import as_it_is, terms
from tests.support.on_spark import answer, to_spark
from tests.support.sameness import DIFFER, EDGES, OWN, SAME, c

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "expressions.md"
ROWS = {row.shown: row for row in (*TABLE, UNKNOWN)}
SCHEMA = g.events(EDGES, start="s", end="e")._node.schema


def events() -> g.Stream:
    return g.events(EDGES, start="s", end="e")


def looked_up(expression: Any) -> list[Meaning]:
    """The rows that the parts of an expression are of."""
    lifetime = pl.DataFrame(schema={"start": pl.Datetime("us", "UTC"), "end": pl.Datetime("us", "UTC")})
    frame = nw.from_native(to_frame(EDGES.drop_columns(["s", "e"]).slice(0, 0)).hstack(lifetime))
    return [meaning(term) for value in terms(expression, frame, as_it_is).values() for term in value.walk()]


def bits(column: pa.ChunkedArray) -> list[str]:
    """Values told apart by their bits; all NaNs are one."""
    if pa.types.is_temporal(column.type) and not pa.types.is_date(column.type):
        column = column.cast(pa.int64())
    shown = []
    for value in column.to_pylist():
        exact = "nan" if isinstance(value, float) and math.isnan(value) else value
        shown.append(exact.hex() if isinstance(exact, float) else repr(exact))
    return shown


def line(row: Meaning) -> str:
    """The row as the page has it."""
    more = f" Instead: {row.remedy}." if row.remedy else ""
    cells = row.shown.replace("|", "\\|"), "same" if row.same else "the backend's own", f"{row.why}.{more}"
    return "| " + " | ".join(cells) + " |"


def test_the_page_shows_the_table() -> None:
    lines = [line(row) for row in (*TABLE, UNKNOWN)]
    shown = PAGE.read_text(encoding="utf-8").splitlines()
    begins = shown.index("| expression | everywhere | what it means, or how it differs |")
    assert shown[begins + 2 :] == lines


def test_each_row_has_examples() -> None:
    assert set(SAME) == {row.shown for row in TABLE if row.same}
    assert set(OWN) == {row.shown for row in (*TABLE, UNKNOWN) if not row.same}
    assert set(DIFFER) <= set(OWN)


@pytest.mark.parametrize("name", SAME)
def test_what_is_the_same_is_neither_marked_nor_refused(name: str) -> None:
    for expression in SAME[name]:
        rows = looked_up(expression)
        assert all(row.same for row in rows), expression
        assert "sum" in name or ROWS[name] in rows, expression
        stream = events().select("i", q=expression)
        assert "the backend's own" not in stream.explain()
        stream.start(exact=True).close()


@pytest.mark.parametrize("name", OWN)
def test_what_is_the_backends_own_is_marked_and_refused(name: str, tmp_path: Path) -> None:
    for expression in OWN[name]:
        assert ROWS[name] in looked_up(expression), expression
        stream = events().select("i", q=expression)
        assert "is the backend's own" in stream.explain()
        ways: list[Callable[[], Any]] = [
            partial(stream.collect, exact=True),
            partial(stream.start, exact=True),
            partial(stream.write, tmp_path / "answer.parquet", exact=True),
        ]
        for refused in ways:
            with pytest.raises(g.PlanError, match="exact=True, but") as caught:
                refused()
            assert caught.value.remedy is not None
            assert "docs/expressions.md" in caught.value.remedy
    assert not list(tmp_path.iterdir())


def test_every_place_of_an_expression_is_looked_at() -> None:
    own = c("x").exp()
    plans = [
        events().filter(own > 0),
        events().select(q=own),
        events().with_columns(q=own),
        events().snapshot().agg(n=g.sum(own)),
        events().snapshot().agg(n=g.count(where=own > 0)),
        events().snapshot().agg(n=g.sum(own) / g.count()),
        events().join(events(), on="i", condition=own > 0),
        events().alter_lifetime(end=c("end").dt.offset_by("1mo")),
        events().keep_while(g.window.newest("x").exp() < 1).agg(n=g.count()),
        events().last(3).each(n=g.max(own)),
        events().highest(2, own).agg(n=g.count()),
    ]
    for stream in plans:
        assert "is the backend's own" in stream.explain()
        with pytest.raises(g.PlanError, match="backend's own"):
            stream.collect(exact=True)
    assert events().snapshot().agg(n=g.sum("x") / g.count()).collect(exact=True).num_rows


def test_what_cannot_be_looked_into_is_the_backends_own() -> None:
    (own,) = own_parts(c("nowhere") + 1, SCHEMA)
    assert own.row is UNKNOWN


@pytest.mark.parametrize("name", SAME)
def test_every_device_gives_the_same(name: str, device_name: str) -> None:
    for expression in SAME[name]:
        stream = events().select("i", q=expression)
        one = stream.collect(device="cpu")
        try:
            other = stream.collect(device=device_name)
        except g.DeviceError:
            assert device_name == "gpu"  # what would mean something else is refused before anything runs
            continue
        assert one.schema == other.schema
        assert bits(one["q"]) == bits(other["q"]), expression


def columns_of(spark: SparkSession, examples: dict[str, list[Any]]) -> list[dict[str, list[str]]]:
    """What expressions give here and on Spark, each in a node of its own, by the bits."""
    named = {f"{name} {at}": each for name, given in examples.items() for at, each in enumerate(given)}
    answers = []
    for source in (EDGES, to_spark(spark, EDGES)):
        stream = g.events(source, start="s", end="e").select(
            "i", "j", *(n for n in EDGES.column_names if n not in "seij")
        )
        for at, expression in enumerate(named.values()):
            stream = stream.with_columns(**{f"q{at}": expression})
        stream = stream.select(*(f"q{at}" for at in range(len(named))))
        table = stream.collect(device="cpu") if source is EDGES else answer(stream)
        table = table.sort_by("start")
        answers.append({name: bits(table[f"q{at}"]) for at, name in enumerate(named)})
    return answers


PARTS = [list(SAME)[at::8] for at in range(8)]


@pytest.mark.usefixtures("compiled_plans")
@pytest.mark.parametrize("names", PARTS, ids=range(len(PARTS)))
def test_what_says_same_is_the_same_on_polars_and_on_spark(spark: SparkSession, names: list[str]) -> None:
    here, there = columns_of(spark, {name: SAME[name] for name in names})
    assert here == there


@pytest.mark.usefixtures("compiled_plans")
def test_what_differs_on_polars_and_on_spark(spark: SparkSession) -> None:
    here, there = columns_of(spark, {name: OWN[name] for name in DIFFER})
    for name in DIFFER:
        assert any(here[each] != there[each] for each in here if each.startswith(name)), name
