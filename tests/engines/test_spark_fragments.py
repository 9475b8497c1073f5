"""Which nodes of a plan share a pass through Python workers, and what decides the task of an event."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.core.time import TIME_TYPE
from gpu_ops.engines.local.engine import run_fragment
from gpu_ops.engines.spark.stages import Fragment, fragment, read_columns
from gpu_ops.engines.spark.worker import worker_device
from gpu_ops.operators import events as of_events
from gpu_ops.operators.events import group_spans
from gpu_ops.operators.row_windows import incremental
from gpu_ops.operators.row_windows.slices import slices
from gpu_ops.operators.windows import windows
from gpu_ops.plan.joins import Binary
from gpu_ops.plan.nodes import Feed, Unary
from tests.support.rows import rows
from tests.support.threads import in_blocks, with_threads
from tests.support.ticks import us

BIDS = pa.table({"at": [0, 1, 2], "item": ["a", "b", "a"], "shop": [1, 1, 2], "price": [3, 4, 5]})


def events() -> g.Stream:
    return g.events(BIDS, start="at", unit="s")


def found(stream: g.Stream) -> Fragment:
    node = stream._node
    assert isinstance(node, Unary | Binary)
    return fragment(node)


PER_ITEM: Callable[[g.Stream], g.Stream] = lambda s: s.by("item").sliding("1min").agg(n=g.count(), m=g.max("price"))  # noqa: E731

SHAPES: dict[str, tuple[g.Stream, tuple[str, ...], int]] = {
    # Name: a query, the columns that decide the task, and how many windows and stitches are in the last fragment.
    "one": (PER_ITEM(events()), ("item",), 1),
    "no key": (events().snapshot().agg(n=g.count()), (), 1),
    "the same key": (PER_ITEM(events()).by("item").snapshot().agg(k=g.count()), ("item",), 2),
    "more keys": (PER_ITEM(events()).by("n", "item").snapshot().agg(k=g.count()), ("item",), 2),
    "another key": (PER_ITEM(events()).by("n").snapshot().agg(k=g.count()), ("n",), 1),
    "fewer keys": (
        events().by("item", "shop").snapshot().agg(n=g.count()).by("item").snapshot().agg(k=g.count()),
        ("item",),
        1,
    ),
    "no key above": (PER_ITEM(events()).snapshot().agg(k=g.count()), (), 1),
    "no key below": (events().snapshot().agg(n=g.count()).by("n").snapshot().agg(k=g.count()), (), 2),
    "lifetimes between": (
        PER_ITEM(events()).shift("1s").chop("7s").by("item").snapshot().agg(k=g.count()),
        ("item",),
        2,
    ),
    "a filter between": (
        PER_ITEM(events()).filter(g.col("n") > 1).by("item").snapshot().agg(k=g.count()),
        ("item",),
        2,
    ),
    "a column beside": (
        PER_ITEM(events()).with_columns(x=g.col("n") * 2).by("item").snapshot().agg(k=g.max("x")),
        ("item",),
        2,
    ),
    "the key changed": (
        PER_ITEM(events()).with_columns(item=g.col("item").str.to_uppercase()).by("item").snapshot().agg(k=g.count()),
        ("item",),
        1,
    ),
    "stitch": (events().stitch(), ("item", "shop", "price"), 1),
    "a window over a stitch": (events().stitch().by("shop").snapshot().agg(n=g.count()), ("shop",), 2),
    "a window over a stitch, no key": (events().stitch().snapshot().agg(n=g.count()), (), 1),
    "three": (
        PER_ITEM(events()).by("item").snapshot().agg(n=g.max("n")).by("item").tumbling("1h").agg(k=g.max("n")),
        ("item",),
        3,
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_fragments(name: str) -> None:
    stream, partition, windows = SHAPES[name]
    part = found(stream)
    kinds = [type(node).__name__ for node in part.nodes]
    assert part.partition == partition
    assert sum(kind in {"WindowAggregate", "Stitch"} for kind in kinds) == windows


@pytest.mark.parametrize("name", SHAPES)
def test_a_fragment_travels_and_runs(name: str) -> None:
    part = found(SHAPES[name][0])
    plan = pickle.loads(pickle.dumps(part.plan(part.input.schema)))  # noqa: S301  (what Spark does with it)
    assert plan.schema == part.nodes[-1].schema
    lasts = part.input.duration
    times = pa.table({"start": pa.array([0, 1], TIME_TYPE)} | ({} if lasts else {"end": pa.array([5, 6], TIME_TYPE)}))
    payload = pa.Table.from_arrays([pa.nulls(2, field.type) for field in part.input.schema], schema=part.input.schema)
    for name_, column in zip(payload.column_names, payload.columns, strict=True):
        times = times.append_column(name_, column)
    (feed,) = plan.all(Feed)
    batches = list(run_fragment(plan, {feed: times.to_batches()}, "cpu"))
    assert batches
    assert batches[0].schema.names == ["start", "end", *plan.schema.names]


SHOPS = pa.table({"from": [0, 1], "item": ["a", "b"], "shop": [1, 2], "city": ["x", "y"]})


def shops() -> g.Stream:
    return g.events(SHOPS, start="from", unit="s").set_duration("1h")


TWO: dict[str, tuple[g.Stream, tuple[tuple[str, ...], ...], list[str]]] = {
    # Name: a query, for each input the columns that decide the task, and what is in the last fragment.
    "a join": (events().join(shops(), on={"price": "shop"}), (("price",), ("shop",)), ["Join"]),
    "no key": (events().join(shops()), ((), ()), ["Join"]),
    "a window by the key": (
        events().join(shops(), on="item", how="full").by("item", "city").snapshot().agg(n=g.count()),
        (("item",), ("item",)),
        ["Join", "WindowAggregate"],
    ),
    "a window by less": (
        events().join(shops(), on=["item", "shop"]).by("item").snapshot().agg(n=g.count()),
        (("item",),),
        ["WindowAggregate"],
    ),
    "a stitch": (
        events().asof_join(shops(), on="item").stitch(),
        (("item",), ("item",)),
        ["AsOf", "Stitch"],
    ),
    "a window below": (PER_ITEM(events()).join(shops(), on="item"), (("item",), ("item",)), ["Join"]),
}


@pytest.mark.parametrize("name", TWO)
def test_fragments_of_two_inputs(name: str) -> None:
    stream, partitions, kinds = TWO[name]
    part = found(stream)
    gathered = [type(node).__name__ for node in part.nodes]
    assert part.partitions == partitions
    assert [kind for kind in gathered if kind not in {"KeyBy", "Project"}] == kinds
    plan = pickle.loads(pickle.dumps(part.plan()))  # noqa: S301  (what Spark does with it)
    assert plan.schema == part.nodes[-1].schema
    assert len(plan.all(Feed)) == len(part.inputs)


def test_a_stream_beside_itself_is_one_input_if_its_keys_are() -> None:
    lasting = events().extend("1h")
    assert found(lasting.clip_by(lasting, on="item")).inputs == (lasting._node,)
    assert found(lasting.join(lasting)).inputs == (lasting._node,)
    assert len(found(lasting.join(lasting, on={"shop": "price"})).inputs) == 2
    assert len(found(lasting.join(events().extend("1h"), on="item")).inputs) == 2


def test_only_the_starts_that_clip_are_asked_for() -> None:
    lasting = events().alter_lifetime(duration=us(g.col("price").cast(g.Duration("us"))))
    left, right = found(lasting.clip_by(shops().extend("1us"), on="item")).plan().all(Feed)
    assert (left.length, right.length) == (None, 1)


def test_events_without_a_key_that_give_nothing() -> None:
    left, right = events(), shops()
    assert [found(left.join(right, on="item", how=how)).keeps for how in ("inner", "left", "right", "full")] == [
        (False, False),
        (True, False),
        (False, True),
        (True, True),
    ]
    assert [found(left.join(right, on="item", how=how)).keeps for how in ("semi", "anti")] == [
        (False, False),
        (True, False),
    ]
    assert found(left.join(right)).keeps == (True, True)
    assert found(left.clip_by(right, on="item")).keeps == (True, False)
    assert found(left.asof_join(right, on="item", how="inner")).keeps == (False, False)


def test_columns_that_are_read() -> None:
    both = events().join(shops(), on="item", condition=g.col("price") > 3).with_columns(twice=g.col("shop_right") * 2)
    read = read_columns(both.filter(g.col("twice") > 2).by("city").snapshot().agg(n=g.count("price"))._node)
    names = {type(node).__name__: names for node, names in read.items()}
    assert names["Join"] == ("price", "shop_right", "city")
    assert read[both._node.inputs[0].inputs[0]] == ("item", "price")
    assert read[both._node.inputs[0].inputs[1]] == ("item", "shop", "city")


def test_auto_takes_a_gpu_only_where_the_plugin_has_given_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAPIDS_PYTHON_ENABLED", raising=False)
    assert worker_device("auto") == "cpu"
    assert worker_device("gpu") == "gpu"
    monkeypatch.setenv("RAPIDS_PYTHON_ENABLED", "true")
    assert worker_device("auto") == "auto"
    assert worker_device("cpu") == "cpu"


HOT: dict[str, tuple[Callable[[g.Stream], g.Stream], str]] = {
    "sliding": (lambda s: s.sliding("90us").agg(n=g.count(), m=g.mean("x"), most=g.max("v")), "stretches"),
    "median": (lambda s: s.sliding("40us").agg(m=g.median("x"), kinds=g.count_distinct("v")), "stretches"),
    "last": (lambda s: s.last(9).agg(m=g.mean("x")), "slices"),
    "each": (lambda s: s.last(9).each(m=g.mean("x")), "slices"),
    "session": (lambda s: s.session("4us").agg(n=g.count()), "slices"),
}


@pytest.mark.parametrize("name", HOT)
def test_a_hot_key_within_a_task_is_cut_in_time(name: str) -> None:
    """A worker runs the whole task: half of its events have one key, more than a block has."""
    ask, way = HOT[name]
    chance, count = random.Random(name), 2000
    table = pa.table(
        {
            "at": sorted(chance.randrange(2 * count) for _ in range(count)),
            "k": [chance.choice([0, chance.randrange(30)]) for _ in range(count)],
            "v": [chance.randrange(50) for _ in range(count)],
            "x": [chance.choice([0.1, 1e16, -2.5, None]) for _ in range(count)],
        }
    )
    asked = ask(g.events(table, start="at", unit="us").by("k"))
    plan = found(asked).plan()
    (feed,) = plan.all(Feed)
    batches = table.rename_columns(["start", *table.column_names[1:]]).to_batches(max_chunksize=300)
    spans, cuts = list[tuple[int, int]](), list[object]()

    def spanned(*given: object) -> Iterator[tuple[int, int]]:
        made = list(group_spans(*given))  # type: ignore[arg-type]
        spans.extend(made)
        return iter(made)

    def stretched(*given: Any) -> Iterator[Any]:
        cuts.append("stretches")
        return stretches(*given)

    def sliced(*given: Any) -> Any:
        made = slices(*given)
        cuts.extend([] if made is None else ["slices"])
        return made

    def answer() -> list[Any]:
        return rows(pa.Table.from_batches(run_fragment(plan, {feed: batches}, "cpu")))

    expected = answer()
    stretches, block = windows._stretches, 100
    with (
        in_blocks(block),
        with_threads(2, part=block),
        mock.patch.object(windows, "group_spans", spanned),
        mock.patch.object(of_events, "group_spans", spanned),
        mock.patch.object(windows, "_stretches", stretched),
        mock.patch.object(incremental, "slices", sliced),
    ):
        assert answer() == expected == rows(asked.collect(device="cpu"))
    assert way in cuts
    assert max(high - low for low, high in spans) > count // 3
