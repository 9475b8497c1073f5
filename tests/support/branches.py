"""Random plans with several branches over sources of edges, and the edges that come in."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

import gpu_ops as g

Query = Callable[[g.Stream], g.Stream]
Pair = Callable[[g.Stream, g.Stream], g.Stream]

EDGES = pa.schema(
    [("edge", pa.string()), ("at", pa.int64()), ("until", pa.int64()), ("k", pa.string()), ("v", pa.int64())]
)
"""The columns of a source: ``edge``, the start, the end, and a payload."""


def _tick(ticks: int) -> datetime.timedelta:
    return datetime.timedelta(microseconds=ticks)


ONE: dict[str, Query] = {
    "filter": lambda s: s.filter(g.col("v") > 0),
    "twice": lambda s: s.with_columns(v=g.col("v") * 2),
    "set_duration": lambda s: s.set_duration("5us"),
    "to_point": lambda s: s.to_point(),
    "hop_lifetime": lambda s: s.hop_lifetime("6us", "3us"),
    "shift": lambda s: s.shift("3us"),
    "extend": lambda s: s.extend("4us"),
    "clip_duration": lambda s: s.clip_duration("9us"),
    "repeat": lambda s: s.repeat(g.col("v") % 3),
    "long": lambda s: s.filter(g.col("end") > g.col("start") + _tick(3)),
    "lasted": lambda s: s.with_columns(
        v=g.when(g.col("end") > g.col("start") + _tick(4)).then(1).otherwise(g.col("v"))
    ),
    "last": lambda s: s.by("k").last(2, order="v").rows().by(),
    "stitch": lambda s: s.stitch(on="k"),
    "distinct": lambda s: s.distinct("k").with_columns(v=g.lit(1)),
    "snapshot": lambda s: s.by("k").snapshot().agg(v=g.sum("v")),
    "snapshot of all": lambda s: s.snapshot().agg(v=g.count()).with_columns(k=g.lit("a")),
    "greatest": lambda s: s.by("k").snapshot().agg(v=g.max("v")),
    "median": lambda s: s.snapshot().agg(v=g.median("v"), k=g.min("k")),
    "hopping": lambda s: s.by("k").hopping("6us", "3us").agg(v=g.count()),
    "hopping by start": lambda s: s.by("k").hopping("6us", "3us", membership="start").agg(v=g.max("v")),
    "sliding": lambda s: s.by("k").sliding("7us").agg(v=g.max("v")),
}
"""Verbs of one stream with the columns ``k`` and ``v``."""

TWO: dict[str, Pair] = {
    "inner": lambda s, t: s.join(t, on="k"),
    "left": lambda s, t: s.join(t, on="k", how="left"),
    "full": lambda s, t: s.join(t, on="k", how="full"),
    "anti": lambda s, t: s.join(t, on="k", how="anti"),
    "semi": lambda s, t: s.join(t, on="k", how="semi"),
    "clip": lambda s, t: s.clip_by(t, on="k"),
    "as of": lambda s, t: s.asof_join(t, on="k"),
    "union": lambda s, t: s.union(t),
}
"""Verbs of two."""


def plan(sources: list[g.Stream], chance: random.Random) -> g.Stream:
    """A plan with several branches; nodes are used more than once."""
    made = [_plain(each) for each in sources]
    for _ in range(chance.randrange(1, 6)):
        if chance.random() < 0.5:
            pair = TWO[chance.choice([*TWO, "union", "union", "inner"])]
            made.append(_plain(pair(chance.choice(made), chance.choice(made))))
        else:
            made.append(_plain(ONE[chance.choice([*ONE])](chance.choice(made))))
    # Each branch matters, so what was not used is put together at the end.
    last = made[-1].union(chance.choice(made)) if chance.random() < 0.5 else made[-1]
    return ONE[chance.choice([*ONE, "snapshot", "snapshot"])](last) if chance.random() < 0.5 else last


def _plain(stream: g.Stream) -> g.Stream:
    """The same two columns again, of the same types."""
    return stream.by().select(k=g.col("k"), v=g.col("v").cast(g.Float64).round(0).fill_null(0).cast(g.Int64) % 100)


def edges(chance: random.Random, count: int) -> pa.Table:
    """Start edges, end edges and whole events, somewhat out of order; of some events no end comes."""
    found: list[tuple[int, dict[str, Any]]] = []
    for _ in range(count):
        at, lasts = chance.randrange(0, 40), chance.randrange(1, 15)
        payload = {"k": chance.choice("ab"), "v": chance.randrange(-4, 9)}
        if chance.random() < 0.2:
            found.append((at, {"edge": "interval", "at": at, "until": at + lasts, **payload}))
            continue
        found.append((at, {"edge": "start", "at": at, "until": None, **payload}))
        if chance.random() < 0.85:
            found.append((at + lasts, {"edge": "end", "at": at, "until": at + lasts, **payload}))
    found.sort(key=lambda each: each[0] + chance.randrange(0, 4))
    # An end edge follows its start edge.
    found.sort(key=lambda each: 0)
    return pa.Table.from_pylist([row for _, row in found], schema=EDGES)


def times(table: pa.Table) -> list[int]:
    """Of each row the time that no earlier CTI may be past: an end edge's end, else the start."""
    return [row["until"] if row["edge"] == "end" else row["at"] for row in table.to_pylist()]


def opened(table: pa.Table, name: str, settings: Mapping[str, Any] | None) -> list[g.Stream]:
    """A source of these edges, whose CTIs are said, or are made as the settings of `Stream.advance_time` say.

    Where late events are diverted they are a stream, too.
    """
    stream = g.events(table, start="at", end="until", unit="us", shape="edge", edge="edge", name=name)
    if settings is None:
        return [stream]
    advanced = stream.advance_time(**settings)
    return [advanced, advanced.late()] if settings["late"] == "divert" else [advanced]


class Asked:
    """A random plan over one or two sources of edges, and the rows that come in.

    Attributes:
        tables: The rows of each source.
        settings: Its settings; None where CTIs are said.
    """

    def __init__(self, chance: random.Random) -> None:
        names = ["left", "right"][: chance.randrange(1, 3)]
        self.tables = {name: edges(chance, chance.randrange(0, 12)) for name in names}
        self.settings: dict[str, dict[str, Any] | None] = {}
        for name in names:
            made = {
                "every": 2,
                "delay": f"{chance.randrange(0, 4)}us",
                "late": chance.choice(["drop", "adjust", "divert"]),
            }
            self.settings[name] = made if chance.random() < 0.6 else None
        self.seed = chance.random()

    def query(self, tables: Mapping[str, pa.Table]) -> g.Stream:
        """The plan over some rows."""
        sources = [each for name, table in tables.items() for each in opened(table, name, self.settings[name])]
        return plan(sources, random.Random(self.seed))

    def live(self) -> g.Stream:
        """The plan over no rows."""
        return self.query({name: table.slice(0, 0) for name, table in self.tables.items()})
