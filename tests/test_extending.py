"""Kinds of aggregates that are declared here alone (docs/extending.md) work wherever those of the package do."""

from __future__ import annotations

import math
import pickle
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops import extend
from gpu_ops.engines.live.fingerprints import functions_held
from gpu_ops.errors import ColumnError, FunctionError, PlanError, SourceError
from gpu_ops.operators.aggregates.holistic import members
from tests.support.cuts import in_any_cut, in_some_order
from tests.support.devices import HERE
from tests.support.examples import examples
from tests.support.live_plans import events, source, table
from tests.support.on_spark import SIDES, SLICES, agree, setting
from tests.support.reference import Event
from tests.support.rows import rows, stream, to_events
from tests.support.ticks import at_us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# One of each way of being incremental: sums, an order, an extreme, the events


def _root_mean_square(block: extend.Block, aggregate: g.Aggregate) -> Any:
    values = extend.taken(block, aggregate)
    count = values.count()
    squares = values.total("squares", values.floats(0) ** 2)
    return extend.as_float(np.sqrt(squares / np.maximum(count, 1)), count > 0)


ROOT_MEAN_SQUARE = extend.AggregateKind(
    name="root_of_mean_square",
    types=extend.float_of_numbers,
    columns=extend.number_columns,
    result=_root_mean_square,
    incremental=extend.Sums(),
)


def _two_greatest(block: extend.Block, aggregate: g.Aggregate) -> Any:
    values = extend.ordered(block, aggregate)
    count = values.count()
    greatest, second = (each.astype(np.float64) for each in values.kth(count - 1, count - 2))
    return extend.as_float(np.where(count > 1, greatest + second, greatest), count > 0)


def two_greatest_by(name: str, incremental: extend.Incremental) -> extend.AggregateKind:
    return extend.AggregateKind(
        name=name,
        types=extend.float_of_numbers,
        columns=extend.ordered_columns,
        result=_two_greatest,
        incremental=incremental,
    )


TWO_GREATEST = two_greatest_by("two_greatest", extend.SortedValues())
TWO_GREATEST_OF_EVENTS = two_greatest_by("two_greatest_of_events", extend.AllEvents())


def kind_of_extreme(name: str, *, least: bool) -> extend.AggregateKind:
    return extend.AggregateKind(
        name=name,
        types=extend.ordered_type,
        columns=extend.extreme_columns,
        result=extend.extreme,
        incremental=extend.Extreme(least=least),
    )


LOW, HIGH = kind_of_extreme("low", least=True), kind_of_extreme("high", least=False)


def asked() -> dict[str, extend.Aggregate]:
    return {
        "rms": extend.aggregate(ROOT_MEAN_SQUARE, "v", where=g.col("x") > 0),
        "two": extend.aggregate(TWO_GREATEST, "v"),
        "again": extend.aggregate(TWO_GREATEST_OF_EVENTS, "v"),
        "once": extend.aggregate(TWO_GREATEST, "v", distinct=True),
        "low": extend.aggregate(LOW, "v"),
        "high": extend.aggregate(HIGH, "t"),
    }


def defined(name: str, values: list[Any]) -> Any:
    if not values:
        return None
    if name == "rms":
        return math.sqrt(float(sum(each * each for each in values)) / len(values))
    if name in {"low", "high"}:
        return (min if name == "low" else max)(values)
    return float(sum(sorted(set(values) if name == "once" else values)[-2:]))


PARTS: dict[str, Any] = {
    "name": "left_out",
    "types": extend.float_of_numbers,
    "columns": extend.number_columns,
    "result": _root_mean_square,
    "incremental": extend.Sums(),
}


def _power(block: extend.Block, aggregate: g.Aggregate) -> Any:
    values = extend.taken(block, aggregate)
    many = values.count_if("many", values.floats(0) > aggregate.options["over"])
    return extend.as_float(values.total("all", values.floats(0) ** aggregate.options["power"]) + many, many >= 0)


@pytest.mark.parametrize("live", [False, True], ids=["batch", "live"])
def test_what_kinds_call_by_one_name_is_each_ones_own(
    live: bool,  # noqa: FBT001
    device_name: str,
    tmp_path: Path,
) -> None:
    one, other = (extend.AggregateKind(**PARTS | {"name": name, "result": _power}) for name in ("power", "strength"))
    said = [(one, 1, 0), (one, 2, 0), (one, 1, 2), (other, 3, 3)]
    aggregates = {
        f"r{at}": extend.aggregate(kind, "v", options={"power": power, "over": over})
        for at, (kind, power, over) in enumerate(said)
    }
    arrived = table([(1, 9, "a", 2, None, None), (2, 9, "a", 3, None, None)])
    query = source(arrived).sliding("100us").agg(**aggregates, p=g.product("v"))
    for seed in range(8 if live else 1):
        cut = [in_any_cut(query, arrived, device_name, random.Random(seed), tmp_path)] if live else []
        (found,) = cut or [query.collect(device=device_name)]
        last = found.sort_by("start").to_pylist()[-2]
        assert [last[f"r{at}"] for at in range(4)] == [2 + 3 + 2, 4 + 9 + 2, 2 + 3 + 1, 8 + 27]


@pytest.mark.parametrize("dtype", [pa.int16(), pa.int64(), pa.float64(), pa.decimal128(30, 2)], ids=str)
def test_a_batch_gives_what_it_is_by_definition(dtype: pa.DataType, device_name: str) -> None:
    schema = pa.schema([("v", dtype), ("x", pa.int64()), ("t", pa.string())])
    held = [(0, 9, 5, 1, "b"), (1, 4, -7, 1, None), (2, 6, None, 1, "a"), (3, 8, 5, None, "c"), (12, 15, None, 1, None)]
    made = [Event(s, e, {"v": v, "x": x, "t": t}) for s, e, v, x, t in held]
    cast = pa.array([event.payload["v"] for event in made]).cast(dtype).to_pylist()
    made = [Event(each.start, each.end, {**each.payload, "v": v}) for each, v in zip(made, cast, strict=True)]
    found = to_events(stream(made, schema).snapshot().agg(**asked()).collect(device=device_name))
    assert len(found) == 8
    for result in found:
        inside = [each.payload for each in made if each.start <= result.start < each.end]
        for name, value in result.payload.items():
            column = "t" if name == "high" else "v"
            taken = [each for each in inside if each[column] is not None and (name != "rms" or each["x"])]
            assert value == defined(name, [each[column] for each in taken]), (name, result)


SHAPES: Mapping[str, Callable[[g.Stream], g.Windowed]] = {
    "snapshot": lambda s: s.by("k").snapshot(),
    "sliding": lambda s: s.sliding("12us"),
    "hopping": lambda s: s.clip_duration("30us").by("k").hopping("10us", "4us"),
    "last": lambda s: s.by("k").last(3),
}


@pytest.mark.slow
@pytest.mark.parametrize("apart", [["rms"], ["two"], ["low", "high"], ["rms", "two", "high"], [*asked()]], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
@examples(4, kinds=True)
@given(events, st.sampled_from(HERE), st.randoms(use_true_random=False))
def test_live_is_batch_in_any_cut(
    shape: str, apart: list[str], tmp_path_factory: Any, events: list[Any], device: str, chance: random.Random
) -> None:
    arrived = in_some_order(table(events), chance)
    query = SHAPES[shape](source(arrived)).agg(**{name: asked()[name] for name in apart})
    found = in_any_cut(query, arrived, device, chance, tmp_path_factory.mktemp("any"))
    assert rows(found) == rows(query.collect(device=device))


def test_a_running_window_keeps_no_more_than_a_kind_asks_for() -> None:
    kept = {}
    for name, aggregate in asked().items():
        live = source(table([])).sliding("10us").agg(r=aggregate).start()
        live.push(table([(1, 20, "a", 5, 1.0, "b")]))
        live.advance(at_us(3))
        tables = (each for each in live.state() if " Window snapshot " in each)
        kept[name] = {each.rpartition(")/")[2].partition("/")[0] for each in tables}
    assert "alive" in kept["again"] & kept["once"]
    assert "ordered" in kept["two"] and "alive" not in kept["two"]  # noqa: PT018  (they are said of one state)
    assert "extreme" in kept["low"] & kept["high"]
    assert not kept["rms"] & {"alive", "ordered", "extreme"}


# On Spark: by reference from a module that workers can import, by value from a script or a notebook


NOTEBOOK = """
def _sum_of_squares(block, aggregate):
    values = extend.taken(block, aggregate)
    return extend.as_float(values.total("squares", values.floats(0) ** 2), values.count() > 0)

KIND = extend.AggregateKind(
    name="sum_of_squares",
    types=extend.float_of_numbers,
    columns=extend.number_columns,
    result=_sum_of_squares,
    incremental=extend.Sums(),
)
"""


def from_notebook(text: str = NOTEBOOK) -> extend.AggregateKind:
    """A kind that no module has, which another process could import."""
    cell: dict[str, Any] = {"__name__": "__main__", "extend": extend}
    exec(text, cell)  # noqa: S102
    made: extend.AggregateKind = cell["KIND"]
    return made


@pytest.mark.usefixtures("few_tasks")
def test_spark_gives_what_the_local_engine_gives(spark: SparkSession) -> None:
    def over(windows: Any) -> g.Stream:
        made: g.Stream = windows.agg(
            rms=extend.aggregate(ROOT_MEAN_SQUARE, "x"),
            two=extend.aggregate(TWO_GREATEST, "v"),
            low=extend.aggregate(LOW, "x"),
            again=extend.aggregate(TWO_GREATEST_OF_EVENTS, "v"),
            squares=extend.aggregate(from_notebook(), "v"),
        )
        return made

    queries: dict[str, Any] = {
        "of keys": lambda s, _: over(s.by("k").snapshot()),
        "of all": lambda s, _: over(s.snapshot()),
        "hopping": lambda s, _: over(s.hopping("20us", "7us", until=at_us(50))),
    }
    with setting(spark, SLICES, "4"):
        found = agree(spark, SIDES, queries)
    assert all(each.num_rows for each in found.values())


# What a declaration must say


@pytest.mark.parametrize("part", ["types", "columns", "result", "incremental"])
def test_a_part_that_is_left_out_or_is_none_is_refused_by_name(part: str) -> None:
    with pytest.raises(PlanError, match=f"left_out lacks {part}=, "):
        extend.AggregateKind(**{name: each for name, each in PARTS.items() if name != part})
    with pytest.raises(PlanError, match=f"{part}= of the kind of aggregate left_out is None"):
        extend.AggregateKind(**PARTS | {part: None})


def test_a_name_is_one_kinds() -> None:
    with pytest.raises(PlanError, match="has the name None"):
        extend.AggregateKind(**{name: each for name, each in PARTS.items() if name != "name"})
    for name in ("sum", "greatest"):
        with pytest.raises(PlanError, match=f"There is a kind of aggregate {name} already"):
            extend.AggregateKind(**PARTS | {"name": name})
    with pytest.raises(PlanError, match=r"already: its results are those of .*_root_mean_square"):
        two_greatest_by("root_of_mean_square", extend.SortedValues())
    # A cell that runs again declares its kind again.
    assert from_notebook() is not from_notebook(NOTEBOOK.replace("Sums()", "AllEvents()"))


def test_a_kind_says_what_it_does_not_take() -> None:
    texts = stream([Event(0, 1, {"v": "a"})], pa.schema([("v", pa.string())])).snapshot()
    with pytest.raises(ColumnError, match="root_of_mean_square does not take string") as refused:
        texts.agg(r=extend.aggregate(ROOT_MEAN_SQUARE, "v"))
    assert refused.value.column == "v"
    with pytest.raises(PlanError, match=r"two_greatest\(distinct=True\) needs the values"):
        extend.aggregate(TWO_GREATEST, distinct=True)


def test_a_form_that_there_is_not_is_refused() -> None:
    kind = extend.AggregateKind(**PARTS | {"name": "formless", "columns": lambda aggregate, schema: [("v", "picture")]})
    with pytest.raises(PlanError, match="The kind of aggregate formless reads v in the form 'picture'"):
        stream([Event(0, 1, {"v": 1})], pa.schema([("v", pa.int64())])).snapshot().agg(
            r=extend.aggregate(kind, "v")
        ).collect()


def _of_members(block: extend.Block, aggregate: g.Aggregate) -> Any:
    return extend.as_float(members(block, aggregate, []).counts, np.ones_like(block.slots))


@pytest.mark.parametrize(
    ("result", "way", "error"),
    [
        (_two_greatest, extend.Sums(), "ask for values by their order, and its running window keeps none"),
        (extend.extreme, extend.SortedValues(), "are an extreme, and it does not say of what"),
        (_of_members, extend.Sums(), "ask for the events of windows, and its running window does not keep them"),
    ],
    ids=["order", "extreme", "events"],
)
def test_results_that_ask_for_what_is_not_kept_are_refused(result: Any, way: extend.Incremental, error: str) -> None:
    kind = extend.AggregateKind(**PARTS | {"name": result.__name__, "result": result, "incremental": way})
    live = source(table([])).sliding("10us").agg(r=extend.aggregate(kind, "v")).start()
    live.push(table([(1, 2, "a", 5, 1.0, "b")]))
    with pytest.raises(PlanError, match=f"Results of {result.__name__} {error}"):
        live.advance(at_us(3))


# What goes with a plan


def test_a_kind_goes_along_with_a_plan() -> None:
    for made in (g.sum("v"), g.first("v")):
        assert pickle.loads(pickle.dumps(made)).kind is made.kind  # noqa: S301
    again = pickle.loads(pickle.dumps(extend.aggregate(TWO_GREATEST, "v")))  # noqa: S301
    assert again.kind.result is _two_greatest
    assert again.kind.incremental == extend.SortedValues()


def test_a_checkpoint_remembers_how_a_kind_is_computed(tmp_path: Path) -> None:
    def query(text: str) -> g.Stream:
        return source(table([])).sliding("10us").agg(r=extend.aggregate(from_notebook(text), "v"), n=g.sum("v"))

    assert [*functions_held(query(NOTEBOOK)._node)] == ["2 WindowAggregate aggregates.0.kind.result"]
    live = query(NOTEBOOK).start()
    live.push(table([(1, 2, "a", 5, 1.0, "b")]))
    live.checkpoint(tmp_path / "c")
    assert g.restore(tmp_path / "c", query(f"# moved\n{NOTEBOOK}")).status().events_in == 1
    with pytest.raises(SourceError, match=r"made with other functions: .*kind\.result changed"):
        g.restore(tmp_path / "c", query(NOTEBOOK.replace("** 2", "** 4")))


@pytest.mark.parametrize("size", [99, 0, None])
def test_results_that_do_not_fit_the_windows_are_refused_by_name(device_name: str, size: int | None) -> None:
    def result(block: extend.Block, aggregate: g.Aggregate) -> Any:
        valid = extend.taken(block, aggregate).count() > 0
        return None if size is None else extend.as_float(np.zeros(size), valid)

    misfit = extend.AggregateKind(**PARTS | {"name": f"misfit_{device_name}_{size}", "result": result})
    windows = stream([Event(0, 1, {"v": 1}), Event(3, 4, {"v": 2})], pa.schema([("v", pa.int64())])).snapshot()
    asked = windows.agg(r=extend.aggregate(misfit, "v"))
    with pytest.raises(FunctionError, match=r"The results of misfit_.* do not fit .* for 2 windows\.") as refused:
        asked.collect(device=device_name)
    assert refused.value.column == "r"


def test_what_is_no_kind_is_refused() -> None:
    with pytest.raises(PlanError, match=r"takes a kind of aggregate, not NoneType.*extend\.AggregateKind"):
        extend.aggregate(None, "v")  # type: ignore[arg-type]
