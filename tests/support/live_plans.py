"""Plans of any verbs, events for them, and what a running query has given: what the tests of running queries share."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from tests.support.ticks import at_us

UTC = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [("start", UTC), ("end", UTC), ("k", pa.string()), ("v", pa.int64()), ("x", pa.float64()), ("t", pa.string())]
)

Query = Callable[[g.Stream], g.Stream]


def table(events: list[tuple[Any, ...]]) -> pa.Table:
    columns: list[Any] = list(zip(*events, strict=True)) if events else [()] * len(SCHEMA)
    arrays = [
        pa.array(values, pa.int64()).cast(UTC) if field.type == UTC else pa.array(values, field.type)
        for values, field in zip(columns, SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def source(events: pa.Table) -> g.Stream:
    return g.events(events, start="start", end="end")


# Any plan: a few verbs in a row. The last column in each name tells what the next verb can use.

VERBS: dict[str, Query] = {
    "filter": lambda s: s.filter(g.col("v") > -5),
    "with_columns": lambda s: s.with_columns(v=g.col("v") * 2),
    "set_duration": lambda s: s.set_duration("7us"),
    "shift": lambda s: s.shift("5us"),
    "extend": lambda s: s.extend("4us"),
    "shrink": lambda s: s.extend("-3us"),
    "clip_duration": lambda s: s.clip_duration("6us"),
    "to_point": lambda s: s.to_point(),
    "point_at_end": lambda s: s.point_at_end(),
    "hop_lifetime": lambda s: s.hop_lifetime("9us", "4us"),
    "quantize": lambda s: s.quantize("8us", "4us"),
    "alter_lifetime": lambda s: s.alter_lifetime(
        start=g.col("start") + datetime.timedelta(microseconds=3), duration=g.lit(datetime.timedelta(microseconds=4))
    ),
    "alter_lifetime by payload": lambda s: s.alter_lifetime(
        start=g.when(g.col("v") > 0)
        .then(g.col("start"))
        .otherwise(g.col("start") - datetime.timedelta(microseconds=9)),
    ),
    "chop": lambda s: s.clip_duration("40us").chop("5us", align=at_us(2)),
    "last": lambda s: s.by("k").last(2, every=2).rows(),
    "session": lambda s: s.by("k").session("9us", cap="20us").rows(),
    "changes": lambda s: s.by("k").highest(2, "v").changes().select("k", "v", "x", "t"),
    "each": lambda s: (
        s.by("k").last(2, order="v").each(in_it=g.count(), y=g.sum("x")).select("k", "v", "t", x=g.col("y"))
    ),
    "stitch": lambda s: s.select("k", "v").stitch().with_columns(x=g.col("v") / 4, t=g.col("k")),
    "stitch by some": lambda s: s.stitch(on="k"),
    "repeat": lambda s: s.repeat(g.col("v") % 3),
}


def _again(s: g.Stream) -> g.Stream:
    return s if "k" in s.schema.names else s.with_columns(k=g.lit("all"))


WINDOWS: dict[str, Query] = {
    "snapshot": lambda s: s.by("k").snapshot().agg(v=g.sum("v"), x=g.mean("x"), t=g.max("t"), n=g.count("v")),
    "snapshot of all": lambda s: s.snapshot().agg(v=g.count(), x=g.sum("x"), t=g.min("t"), d=g.variance("x")),
    "sliding": lambda s: (
        s.by("k", "v").sliding("12us").agg(n=g.count(), x=g.max("x"), t=g.count("t", where=g.col("x") > 0))
    ),
    "hopping": lambda s: (
        s.clip_duration("30us").by("k").hopping("10us", "4us").agg(v=g.max("v"), x=g.sum("x"), t=g.min("t"))
    ),
    "gaps": lambda s: (
        s.clip_duration("30us")
        .by("t")
        .hopping("4us", "10us", align=at_us(3))
        .agg(v=g.count(), x=g.min("x"), k=g.max("k"))
    ),
    "tumbling": lambda s: s.tumbling("6us", until=at_us(200)).agg(
        v=g.sum("v"), x=g.standard_deviation("x"), t=g.max("k")
    ),
    "filled": lambda s: (
        s.by("k")
        .tumbling("6us", until=at_us(200), fill={"v": "zero", "x": "last"})
        .agg(v=g.count("v"), x=g.sum("x"), t=g.max("t"))
    ),
    "filled by the calendar": lambda s: s.tumbling("1d", zone="UTC", until=at_us(200), fill="last").agg(v=g.count()),
    "whole": lambda s: s.by("k").snapshot().agg(v=g.count_distinct("v"), x=g.median("x"), t=g.mode("t"), n=g.sum("v")),
    "whole hopping": lambda s: (
        s.clip_duration("30us")
        .hopping("10us", "4us")
        .agg(v=g.quantile("v", 0.3, interpolation="lower"), x=g.sum("x", distinct=True), t=g.nth("t", -1))
    ),
    "by start": lambda s: s.hopping("12us", "4us", membership="start", output="hop").agg(
        v=g.count(), x=g.sum("x"), t=g.max("t")
    ),
}


def plan_of(names: list[str]) -> Query:
    def query(s: g.Stream) -> g.Stream:
        for name in names:
            verb = (VERBS | WINDOWS)[name]
            s = verb(_again(s))
            columns = {"v": g.lit(1), "x": g.lit(0.5), "t": g.lit("t")}
            missing = {each: value for each, value in columns.items() if each not in s.schema.names}
            s = s.with_columns(**missing) if missing else s
        return s

    return query


plans = st.lists(st.sampled_from([*VERBS, *WINDOWS, *WINDOWS]), min_size=1, max_size=3)

values = st.none() | st.integers(-9, 9)

floats = st.none() | st.sampled_from([0.1, -2.5, 1e300, -1e300, float("nan"), float("inf"), 1e-300, -0.0])

events = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.integers(1, 25) | st.just(MAX_TIME),
        st.sampled_from(["a", "b", None]),
        values,
        floats,
        st.sampled_from(["p", "q", None]),
    ).map(lambda event: (event[0], min(event[0] + event[1], MAX_TIME), *event[2:])),
    max_size=25,
)


def told(results: pa.Table) -> list[tuple[Any, ...]]:
    columns = [
        results[name].cast(UTC).cast(pa.int64()) if name in {"start", "end"} else results[name]
        for name in results.column_names
    ]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


EDGES = pa.schema([("kind", pa.string()), ("at", pa.int64()), ("until", pa.int64()), ("who", pa.string())])


def sessions() -> g.Stream:
    return g.events(EDGES.empty_table(), start="at", end="until", unit="us", shape="edge", edge="kind")


def edge(kind: str, at: int, until: int | None, who: str) -> dict[str, Any]:
    return {"kind": kind, "at": at, "until": until, "who": who}


Pair = Any

SMALLER = g.col("v") <= g.col("v_right")

PAIRS: dict[str, Pair] = {
    "inner": lambda s, t: s.join(t, on="k"),
    "cross": lambda s, t: s.join(t),
    "inner where": lambda s, t: s.join(t, on="k", condition=SMALLER),
    "left": lambda s, t: s.join(t, on="k", how="left"),
    "left where": lambda s, t: s.join(t, how="left", condition=SMALLER),
    "right": lambda s, t: s.join(t, on="k", how="right"),
    "full": lambda s, t: s.join(t, on="k", how="full"),
    "full where": lambda s, t: s.join(t, on="k", how="full", condition=SMALLER),
    "anti": lambda s, t: s.join(t, on="k", how="anti"),
    "anti where": lambda s, t: s.join(t, how="anti", condition=SMALLER),
    "semi": lambda s, t: s.join(t, on="k", how="semi"),
    "semi where": lambda s, t: s.join(t, on="k", how="semi", condition=SMALLER),
    "clip": lambda s, t: s.clip_by(t, on="k"),
    "clip by any": lambda s, t: s.clip_by(t),
    "as of": lambda s, t: s.asof_join(t, on="k"),
    "as of near": lambda s, t: s.asof_join(t, on="k", tolerance="5us", how="inner"),
    "as of next": lambda s, t: s.asof_join(t, on="k", direction="forward"),
    "as of nearest": lambda s, t: s.asof_join(t, on="k", direction="nearest"),
    "as of nearest near": lambda s, t: s.asof_join(t, tolerance="5us", how="inner", direction="nearest"),
    "union": lambda s, t: s.union(t),
    "distinct": lambda s, t: s.union(t).distinct("k"),
    "itself": lambda s, t: s.join(s, on="k", how="left").union(s.join(t, on="k")),
}
