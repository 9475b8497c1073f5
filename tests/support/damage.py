"""Checkpoints of small running queries, damaged value by value, and what becomes of each in a process of its own.

``python -m tests.support.damage SEED COUNT FIRST NAME…`` tells of damages of some queries: one line of JSON before
each, and one behind it. So the parent sees in which one the process died.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import pyarrow as pa

import gpu_ops as g
from gpu_ops.engines.live.checkpoints import read_checkpoint
from gpu_ops.engines.live.running_query import RunningQuery
from gpu_ops.errors import GpuOpsError, SourceError
from tests.support.ticks import at_us

_DAY = 86_400
_UNTIL = "1970-03-01T00:00:00Z"
_ROOT = Path(__file__).parents[2]

WRONG = "wrong: "
"""With what the outcome begins of a damage that a user would suffer from."""

_KINDS = ("a", "b", "c", None)


def events(seed: int, first: int, days: int, count: int) -> pa.Table:
    """Events that start within some days."""
    chance = random.Random(seed)
    starts = sorted(chance.randrange(first * _DAY, (first + days) * _DAY) for _ in range(count))
    numbers = [chance.choice([None, *range(-9, 30)]) for _ in starts]
    return pa.table(
        {
            "at": pa.array(starts, pa.int64()),
            "until": pa.array([at + chance.choice([_DAY // 2, 2 * _DAY, 30 * _DAY]) for at in starts], pa.int64()),
            "k": pa.array([chance.choice(_KINDS) for _ in starts], pa.string()),
            "v": pa.array(numbers, pa.int64()),
            "x": pa.array([None if each is None else each / 3 for each in numbers], pa.float64()),
            "d": pa.array([None if each is None else each for each in numbers], pa.decimal128(20, 2)),
            "t": pa.array([None if each is None else str(each) for each in numbers], pa.string()),
        }
    )


def source(name: str = "input", **options: Any) -> g.Stream:
    """A stream of such events that are pushed."""
    return g.events(events(0, 0, 1, 0), start="at", end="until", unit="s", name=name, **options)


def _two(join: Callable[[g.Stream, g.Stream], g.Stream]) -> g.Stream:
    other = source("other").select("k", w=g.col("v"))
    return join(source(), other)


def _together(stream: g.Stream) -> g.DataWindowed:
    return stream.last(3).intersect(stream.last_span("2d"))


def _twice(stream: g.Stream) -> g.Stream:
    return stream.union(stream.shift("1d"))


def _adjusted(stream: g.Stream) -> g.Stream:
    return stream.advance_time(late="adjust", reorder="6h")


def _edges() -> g.Stream:
    return g.events(
        _as_edges(events(0, 0, 1, 0)), start="at", end="until", unit="s", name="edges", shape="edge", edge="edge"
    )


def _as_edges(table: pa.Table) -> pa.Table:
    """A start edge for each event, and an end edge for each that ends within two days, in order of time."""
    rows = table.to_pylist()
    edges = [(row["at"], {**row, "edge": "start"}) for row in rows]
    edges += [(row["until"], {**row, "edge": "end"}) for row in rows if row["until"] - row["at"] < 3 * _DAY]
    made = pa.schema([*table.schema, pa.field("edge", pa.string())])
    return pa.Table.from_pylist([row for _, row in sorted(edges, key=lambda each: each[0])], schema=made)


_PLAIN = {"n": g.count(), "sum": g.sum("v"), "mean": g.mean("x"), "total": g.sum("d"), "spread": g.variance("x")}
_CHOSEN = {"most": g.max("v"), "least": g.min("t"), "at": g.arg_max("t", "v"), "first": g.first("x")}

QUERIES: Mapping[str, Callable[[], g.Stream]] = {
    "sums": lambda: source().by("k").snapshot().agg(**_PLAIN, some=g.sum("v", where=g.col("v") > 3)),
    "sums on a grid": lambda: source().by("k").hopping("3d", "1d").agg(**_PLAIN),
    "extremes": lambda: source().by("k").snapshot().agg(**_CHOSEN),
    "extremes on a grid": lambda: source().tumbling("1d").agg(**_CHOSEN),
    "orders": lambda: source().by("k").snapshot().agg(middle=g.median("v"), late=g.quantile("x", 0.9)),
    "values": lambda: (
        source().by("k").snapshot().agg(n=g.count_distinct("t"), sum=g.count_distinct("v", where=g.col("x") > 0))
    ),
    "moments": lambda: source().by("k").snapshot().agg(p=g.product("v"), h=g.harmonic_mean("x"), s=g.skewness("x")),
    "kept whole": lambda: source().by("k").snapshot().agg(mode=g.mode("v"), all=g.collect_list("t")),
    "kept whole on a grid": lambda: source().by("k").tumbling("1d").agg(top=g.top("v", 2), some=g.collect_set("k")),
    "calendar": lambda: source().by("k").tumbling("1d", zone="Europe/Vienna").agg(n=g.count(), most=g.max("v")),
    "filled": lambda: source().by("k").tumbling("1d", fill="last").agg(n=g.count(), t=g.max("t")),
    "inner join": lambda: _two(lambda one, two: one.join(two, on="k")),
    "outer join": lambda: _two(lambda one, two: one.join(two, on="k", how="full")),
    "anti join": lambda: _two(lambda one, two: one.join(two, on="k", how="anti")),
    "semi join": lambda: _two(lambda one, two: one.join(two, how="semi")),
    "clipped": lambda: _two(lambda one, two: one.clip_by(two, on="k")),
    "as of": lambda: _two(lambda one, two: one.asof_join(two, on="k", tolerance="2d")),
    "nearest": lambda: _two(lambda one, two: one.asof_join(two, on="k", tolerance="2d", direction="nearest")),
    "arrivals": lambda: (
        g.arrivals(source())
        .last_span("2d")
        .deliveries("k", s=g.sum("v"), by="k", shown="both")
        .output("last", every="1d")
    ),
    "walked": lambda: g.arrivals(source()).last_span("2d").deliveries("k", s=g.sum("v"), by="k"),
    "open starts": lambda: g.pattern(
        g.every("a", (each := g.arrivals(source())), g.col("v") > 5)
        >> g.one("b", each, g.col("v") < g.col("a.v"), on="k").within("3d")
    ).deliveries("a.k", "a.v", "b.t"),
    "none in time": lambda: g.pattern(
        g.every("a", (each := g.arrivals(source())), g.col("v") > 5) >> g.none("", each, on="k").within("1d")
    ).deliveries("a.k", "a.x"),
    "pattern": lambda: g.pattern(
        g.every(
            g.one("a", (each := g.arrivals(source())), g.col("v") > 20)
            >> (g.one("b", each, on="k").times(2) & g.one("c", each, g.col("x") < 3)).within("9d")
        )
    ).deliveries("a.k", "b", "c.t"),
    "in instances": lambda: (
        (each := g.arrivals(source())).within(each.until(after="4d", one_per="k"), on="k").at_ends(total=g.sum("v"))
    ),
    "in cycles": lambda: (
        g.cycles(source())
        .partition("k")
        .last_span("2d", most=2)
        .agg(s=g.sum("v"), n=g.count(), pinned=True, difference="n")
        .became("new")
        .partition()
        .highest(3, "s", update="k")
        .not_dead()
    ),
    "totals in cycles": lambda: (
        g.cycles(source())
        .partition("k")
        .last_span("2d")
        .agg(s=g.sum("v"), n=g.count(), entrance="n")
        .became("new")
        .partition("k")
        .last(3)
        .agg(most=g.sum("s"), pinned=True)
        .not_dead()
    ),
    "weighed": lambda: g.cycles(source(), weights=0.4).partition("k").latest(2).any_status(),
    "at fixed times": lambda: g.cycles(source(), every="1d").partition("k").last(3, waiting=1).new(),
    "alerts": lambda: g.alert(
        {
            "few": (coming := g.cycles(source())).where(g.col("v") < 9).partition().last_span("2d"),
            "many": coming.where(g.col("v") >= 9).partition().last(4),
        },
        on="k",
        when=[g.present("few", "many"), g.present("many", absent="few")],
        columns={"v": ("few", "v"), "t": ("many", "t")},
    ),
    "stitched": lambda: source().select("k", "v").stitch(),
    "last": lambda: source().by("k").last(3).agg(n=g.count(), most=g.max("v")),
    "batches": lambda: source().by("k").batches(3).changes(),
    "count window": lambda: source().by("k").count_window(2).agg(n=g.count()),
    "sessions": lambda: source().by("k").session("12h", cap="2d").agg(n=g.count(), sum=g.sum("v")),
    "first": lambda: source().by("k").first(3).each(n=g.count(), most=g.max("t")),
    "time batches": lambda: source().by("k").time_batches("1d").agg(n=g.count()),
    "time-length batches": lambda: source().by("k").time_length_batches("1d", 3, idle="run").insert_stream(),
    "highest": lambda: source().by("k").highest(3, "v", unique="t").agg(n=g.count()),
    "sample": lambda: source().sample(3, seed=7).rows(),
    "kept while": lambda: source().by("k").keep_while(g.window.sum("v") < 40).rows(),
    "batches until": lambda: source().by("k").batches_until(g.window.count > 2).rows(),
    "together": lambda: _together(source().by("k")).agg(n=g.count()),
    "each of the last": lambda: source().by("k").last(3).each(n=g.count(), sum=g.sum("v"), most=g.max("t")),
    "each alive": lambda: source().by("k").last_span("2d").each(n=g.count(), sum=g.sum("v"), most=g.max("v")),
    "prior": lambda: source().by("k").with_prior(2, before="v"),
    "reordered": lambda: source().advance_time(reorder="12h", late="divert").by("k").snapshot().agg(n=g.count()),
    "edges": lambda: _edges().by("k").snapshot().agg(n=g.count(), sum=g.sum("v")),
    "edges on a grid": lambda: (
        _edges().advance_time(late="adjust", reorder="6h").tumbling("1d", until=at_us(_UNTIL)).agg(n=g.count())
    ),
    "edges, whole and open": lambda: _twice(_edges()).by("k").tumbling("1d", until=at_us(_UNTIL)).agg(n=g.count()),
}


@dataclass
class Damaged:
    """A checkpoint with one thing in it that is not as it was.

    Attributes:
        what: Which table and column, and what was done to it.
        column: The column, if it is one that the error has to name.
        facts: Its facts.
        tables: Its tables.
    """

    what: str
    column: str | None
    facts: Mapping[str, Any]
    tables: Mapping[str, pa.Table]


def at_rest(query: g.Stream) -> RunningQuery:
    """A query that has taken some events in, and that some results were taken of."""
    live = query.start(device="cpu")
    for number, name in enumerate(live.input_ctis()):
        live.push(shaped(events(number, 0, 6, 40), name), input=name)
        live.advance(at_us(5 * _DAY * 1_000_000), input=name)
    live.results()
    return live


def go_on(live: RunningQuery) -> None:
    """What comes later, up to the end."""
    for number, name in enumerate(live.input_ctis()):
        live.push(shaped(events(number + 5, 6, 2, 20), name), input=name)
        live.advance(at_us(7 * _DAY * 1_000_000), input=name)
    live.results()
    live.late()
    live.state()
    live.close()
    live.results()


def shaped(table: pa.Table, name: str) -> pa.Table:
    """Events as an input of a query takes them."""
    return _as_edges(table) if name == "edges" else table


def damages(facts: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> Iterator[Damaged]:
    """All the checkpoints with one thing damaged."""
    for name, table in tables.items():
        for what, column, made in _of_table(table):
            yield Damaged(f"{name}: {what}", column, facts, {**tables, name: made})
        yield Damaged(f"{name}: missing", None, facts, {each: tables[each] for each in tables if each != name})


def _of_table(table: pa.Table) -> Iterator[tuple[str, str | None, pa.Table]]:
    rows = table.num_rows
    if rows:
        yield "no rows", None, table.slice(0, 0)
    yield "a column too many", "strange", table.append_column("strange", pa.nulls(rows, pa.int64()))
    if rows:
        yield "one row fewer", None, table.slice(0, rows - 1)
        yield "rows doubled", None, pa.concat_tables([table, table])
    if rows > 1:
        order = [rows - 1, *range(1, rows - 1), 0]
        yield "two rows swapped", None, table.take(pa.array(order, pa.int64()))
    for at, field in enumerate(table.schema):
        column = table[field.name].combine_chunks()

        def changed(to: pa.Array, at: int = at, name: str = field.name) -> pa.Table:
            return table.set_column(at, pa.field(name, to.type), to)

        yield f"no column {field.name}", None, table.drop_columns([field.name])
        yield f"{field.name} of another type", field.name, changed(pa.array([b"?"] * rows, pa.binary()))
        if not rows:
            continue
        for number in (0, rows - 1)[: min(rows, 2)]:
            for value in (None, -5, 10**6, 2**40, 2**62, -(2**63)):
                made = _with(column, number, value)
                if made is not None:
                    yield f"{field.name}[{number}] = {value}", None, changed(made)
        if rows > 1:
            yield f"{field.name} exchanged", None, changed(column.take(pa.array([rows - 1, *range(1, rows - 1), 0])))


def _with(column: pa.Array, row: int, value: int | None) -> pa.Array | None:
    """A column with another value; None if its type has no such value."""
    kind = column.type
    if value is None:
        one = pa.nulls(1, kind)
    elif pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
        most = 2 ** (kind.bit_width - 1) - 1
        one = pa.array([max(-most, min(value, most))], f"int{kind.bit_width}").view(kind)
    else:
        return None
    return pa.concat_arrays([column.slice(0, row), one, column.slice(row + 1)])


def checkpoint_of(query: g.Stream) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """What the checkpoint of a query at rest holds."""
    with TemporaryDirectory() as folder:
        at_rest(query).checkpoint(Path(folder) / "c")
        return read_checkpoint(Path(folder) / "c")


def outcome(query: g.Stream, damaged: Damaged) -> str:
    """What becomes of a damaged checkpoint: "refused", "late", "answered", or what is wrong with that."""
    with mock.patch("gpu_ops.engines.live.restored.read_checkpoint", return_value=(damaged.facts, damaged.tables)):
        try:
            live = g.restore("c", query, device="cpu")
        except SourceError as error:
            if "cannot be restored" in str(error):
                return f"{WRONG}only the net has caught {error}"
            if damaged.column not in (None, error.column):
                return f"{WRONG}the column is not named: {error}"
            return f"refused: {error}"
        except GpuOpsError as error:
            return f"{WRONG}{type(error).__name__}: {error}"
    if damaged.column is not None:
        return f"{WRONG}it was taken"
    try:
        go_on(live)
    except GpuOpsError as error:
        return f"late: {error}"
    except BaseException as error:  # noqa: BLE001  (a panic of Polars is no Exception)
        return f"{WRONG}later {type(error).__name__}: {error}"
    return "answered"


def chosen(seed: int, count: int, names: Sequence[str]) -> Iterator[tuple[str, g.Stream, Damaged]]:
    """Damages of some queries.

    Args:
        seed: Which of each query's are taken.
        count: How many; 0 for all.
        names: The queries.
    """
    for name in names:
        query = QUERIES[name]()
        every = list(damages(*checkpoint_of(query)))
        some = random.Random(seed).sample(every, min(count, len(every))) if count else every
        yield from ((name, query, each) for each in some)


def main(seed: int, count: int, first: int, names: Sequence[str]) -> None:
    """Tell of damages, before each and behind it; the first ones are left out."""
    for number, (name, query, each) in enumerate(chosen(seed, count, names)):
        if number >= first:
            print(json.dumps([number, f"{name}: {each.what}"]), flush=True)
            print(json.dumps([number, outcome(query, each)]), flush=True)


def outcomes(seed: int, count: int, names: Sequence[str], seconds: float) -> list[tuple[str, str]]:
    """(damage, what becomes of it), found out in processes that go on after one that died.

    Args:
        seed: As in `chosen`.
        count: Likewise.
        names: Likewise.
        seconds: So long a process may take.
    """
    found: list[tuple[str, str]] = []
    first = 0
    while True:
        command = [sys.executable, "-m", "tests.support.damage", *map(str, (seed, count, first)), *names]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False, cwd=_ROOT)
            said, why = ended.stdout, f"{WRONG}the process ended with {ended.returncode}: {ended.stderr[-500:]}"
            died = ended.returncode != 0
        except subprocess.TimeoutExpired as error:
            said, why, died = (error.stdout or b"").decode(), f"{WRONG}it went on for ever", True
        lines = [json.loads(line) for line in said.splitlines() if line.endswith("]")]
        found += [(what, text) for (_, what), (_, text) in zip(lines[::2], lines[1::2], strict=False)]
        if not died:
            return found
        if len(lines) % 2 == 0:  # none was begun: there is no use in another try
            return [*found, ("the process", why)]
        found.append((lines[-1][1], why))
        first = lines[-1][0] + 1


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
