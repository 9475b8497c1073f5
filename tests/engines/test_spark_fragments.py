"""Which nodes of a plan share a pass through Python workers, and what decides the task of an event."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.engines.local import run_fragment
from gpu_ops.engines.spark.fragments import Fragment, fragment
from gpu_ops.engines.spark.worker import worker_device
from gpu_ops.plan.nodes import Unary
from gpu_ops.time import TIME_TYPE

BIDS = pa.table({"at": [0, 1, 2], "item": ["a", "b", "a"], "shop": [1, 1, 2], "price": [3, 4, 5]})


def events() -> g.Stream:
    return g.events(BIDS, start="at", unit="s")


def found(stream: g.Stream) -> Fragment:
    node = stream._node
    assert isinstance(node, Unary)
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
    batches = list(run_fragment(plan, iter(times.to_batches()), "cpu"))
    assert batches
    assert batches[0].schema.names == ["start", "end", *plan.schema.names]


def test_auto_takes_a_gpu_only_where_the_plugin_has_given_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAPIDS_PYTHON_ENABLED", raising=False)
    assert worker_device("auto") == "cpu"
    assert worker_device("gpu") == "gpu"
    monkeypatch.setenv("RAPIDS_PYTHON_ENABLED", "true")
    assert worker_device("auto") == "auto"
    assert worker_device("cpu") == "cpu"
