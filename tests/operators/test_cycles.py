"""Partitions in cycles: all rows of all statuses are those of the interpreter, however the input is cut."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from tests.support.claims import true_claims
from tests.support.cuts import in_any_cut
from tests.support.cycle_interpreter import Part, Row, run
from tests.support.examples import by_default
from tests.support.pieces import in_pieces, sizes

MS = 1000
COLUMNS = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("k", pa.string()), ("g", pa.int64()), ("v", pa.int64())])

CALLS = {"known": "count"}
"""Aggregates that the interpreter calls otherwise."""


@st.composite
def scripts(draw: st.DrawFn) -> list[tuple[int, Row]]:
    """Events in their order, some at one instant, some with late times of their own."""
    now, events = 0, []
    for number, gap in enumerate(draw(st.lists(st.sampled_from([0, 0, 0, 1, 2, 5]), max_size=16))):
        now += gap
        event = {
            "id": number,
            "ts": now - draw(st.sampled_from([0, 0, 0, 3, 6])),
            "k": draw(st.sampled_from(["a", "b", None])),
            "g": draw(st.integers(-3, -1)),
            "v": draw(st.sampled_from([None, 1, 2, 3, 4])),
        }
        events.append((now, event))
    return events


@st.composite
def parts(draw: st.DrawFn, columns: tuple[str, ...], keys: tuple[str, ...], at: int) -> Part:
    """A partition over rows with some columns of whole numbers, and some that can be keys."""
    kind = draw(st.sampled_from(["last", "latest", "span", "most", "highest", "lowest"]))
    size, by = draw(st.integers(1, 4)), draw(st.sampled_from([(), keys[:1], keys]))
    functions: tuple[tuple[str, str, str], ...] = ()
    if draw(st.integers(0, 2)) == 0:
        column = draw(st.sampled_from(columns))
        most = draw(st.sampled_from(["min", "max"]))
        every = [(f"n{at}", "count", ""), (f"s{at}", "sum", column), (f"c{at}", "known", column)]
        if draw(st.booleans()):
            every.append((f"m{at}", most, column))  # then all are computed by deliveries
        functions = tuple(draw(st.lists(st.sampled_from(every), min_size=1, max_size=3, unique=True)))
    names = [name for name, _, _ in functions]
    some = st.frozensets(st.sampled_from(names)) if names else st.just(frozenset[str]())
    update = draw(st.sampled_from([(), keys[-1:]])) if kind in {"highest", "lowest"} else ()
    return Part(
        "span" if kind == "most" else kind,
        None if kind == "span" else size,
        draw(st.integers(1, 5)),
        draw(st.sampled_from([None, "ts"])) if at == 0 and kind in {"span", "most"} else None,
        draw(st.sampled_from(columns)),
        tuple(update),
        by,
        functions,
        draw(some),
        draw(some) - {f"m{at}"},
        bool(functions) and draw(st.booleans()),
        draw(st.sampled_from(["new", "new", "dead"])),
        draw(st.sampled_from([None, (columns[0], 1)])),
        draw(st.sampled_from([None, None, 0, 1])) if kind == "last" and at == 0 else None,
    )


@st.composite
def chains(draw: st.DrawFn) -> list[Part]:
    """One partition, or up to three, one behind the other."""
    columns: tuple[str, ...] = ("v", "g")
    keys: tuple[str, ...] = ("k", "g")
    made = list[Part]()
    for at in range(draw(st.integers(1, 3))):
        part = draw(parts(columns, keys, at))
        if part.functions:
            columns = tuple(name for name, _, _ in part.functions)
            keys = part.by or columns[:1]
        made.append(part)
    return made


def circular(chain: Sequence[Part]) -> bool:
    """Whether what a partition takes would depend on the cycles that it makes run."""
    return any(
        part.kind == "latest"
        and (part.functions or behind.takes == "dead")
        and any(other.kind not in {"highest", "lowest"} for other in chain[at + 1 :])
        for at, (part, behind) in enumerate(pairwise(chain))
    )


def table(events: Sequence[tuple[int, Row]]) -> pa.Table:
    times = pa.array([at * MS for at, _ in events], pa.timestamp("us", "UTC"))
    return pa.table(
        {
            "start": times,
            "at": pa.array(range(len(events)), pa.int64()),
            **{each.name: pa.array([row[each.name] for _, row in events], each.type) for each in COLUMNS},
        }
    )


def query(stream: g.Stream, chain: Sequence[Part], every: int = 0, weight: float = 1.0) -> Any:
    """The chain by verbs."""
    made: Any = g.cycles(stream, order="at", every=f"{every}ms" if every else None, weights=weight)
    for at, part in enumerate(chain):
        coming = made if at == 0 else made.became(part.takes)
        if part.above is not None:
            coming = coming.where(g.col(part.above[0]) > part.above[1])
        windows = coming.partition(*part.by)
        match part.kind:
            case "last":
                made = windows.last(part.size, waiting=part.waiting)
            case "latest":
                made = windows.latest(part.size)
            case "span":
                own = {} if part.stamp is None else {"stamp": part.stamp}
                made = windows.last_span(f"{part.span}ms", most=part.size, **own)
            case _:
                best = windows.highest if part.kind == "highest" else windows.lowest
                made = best(part.size, part.column, update=part.update)
        if part.functions:
            calls = {
                name: g.count()
                if function == "count"
                else getattr(g, {"known": "count"}.get(function, function))(column)
                for name, function, column in part.functions
            }
            made = made.agg(
                pinned=part.pinned, entrance=tuple(part.entrance), difference=tuple(part.differences), **calls
            )
    return made


STATUS = {"new": ["new"], "dead": ["dead"], "not_dead": ["new", "old"], "any_status": ["new", "old", "dead"]}


def expected(
    chain: Sequence[Part], events: Sequence[tuple[int, Row]], status: str, every: int = 0, weight: float = 1.0
) -> list[Any]:
    """(clock, number of the cycle, row), sorted."""
    found = []
    for number, (now, rows) in enumerate(run(chain, events, every, weight)):
        for word in STATUS[status]:
            found += [(now, number, shown(row)) for row in rows[word]]
    return sorted(found, key=repr)


def shown(row: Row) -> dict[str, Any]:
    return {name: value for name, value in sorted(row.items()) if not name.startswith("@") and name != "at"}


def answered(answer: pa.Table) -> list[Any]:
    starts = answer["start"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    rows = answer.drop_columns(["start", "end", "cycle"]).to_pylist()
    numbers = answer["cycle"].to_pylist()
    return sorted(
        ((at // MS, number, shown(row)) for at, number, row in zip(starts, numbers, rows, strict=True)), key=repr
    )


@pytest.mark.parametrize("device", ["cpu", "array"])
@by_default(40)
@given(chain=chains(), events=scripts(), status=st.sampled_from(list(STATUS)), size=sizes)
def test_chains_are_those_of_the_interpreter(
    device: str, chain: list[Part], events: list[tuple[int, Row]], status: str, size: int
) -> None:
    if circular(chain):
        with pytest.raises(g.PlanError, match="depend on themselves"):
            query(g.events(table(events), start="start"), chain)
        return
    made = query(g.events(table(events), start="start"), chain)
    with in_pieces(size), true_claims():
        assert answered(getattr(made, status)().collect(device=device)) == expected(chain, events, status)


@pytest.mark.parametrize("device", ["cpu", "array"])
@by_default(25)
@given(chain=chains(), events=scripts(), status=st.sampled_from(list(STATUS)), seed=st.integers(0, 1 << 20))
def test_no_cut_and_no_restart_changes_an_answer(
    device: str, chain: list[Part], events: list[tuple[int, Row]], status: str, seed: int
) -> None:
    if circular(chain):
        return
    given = table(events)
    made = getattr(query(g.events(given.slice(0, 0), start="start"), chain), status)()
    with TemporaryDirectory() as folder:
        found = in_any_cut(made, given, device, random.Random(seed), Path(folder))
    assert answered(found) == expected(chain, events, status)


@by_default(25)
@given(
    chain=chains(),
    events=scripts(),
    status=st.sampled_from(list(STATUS)),
    every=st.sampled_from([3, 10]),
    seed=st.integers(0, 1 << 20),
    size=sizes,
)
def test_fixed_times_are_those_of_the_interpreter(
    chain: list[Part], events: list[tuple[int, Row]], status: str, every: int, seed: int, size: int
) -> None:
    if circular(chain):
        return
    given = table(events)
    wanted = expected(chain, events, status, every)
    with in_pieces(size):
        assert answered(getattr(query(g.events(given, start="start"), chain, every), status)().collect()) == wanted
    live = getattr(query(g.events(given.slice(0, 0), start="start"), chain, every), status)()
    assert answered(in_any_cut(live, given, "cpu", random.Random(seed))) == wanted


@pytest.mark.parametrize("device", ["cpu", "array"])
@by_default(20)
@given(
    chain=chains(),
    events=scripts(),
    status=st.sampled_from(list(STATUS)),
    weight=st.sampled_from([0, 0.2, 0.5]),
    seed=st.integers(0, 1 << 20),
)
def test_weights_are_those_of_the_interpreter(
    device: str, chain: list[Part], events: list[tuple[int, Row]], status: str, weight: float, seed: int
) -> None:
    if circular(chain):
        return
    given, (first, *others) = table(events), chain
    if any(part.kind == "span" for part in others) or (first.kind == "span" and first.size is not None):
        with pytest.raises(g.PlanError, match="weigh less than one"):
            query(g.events(given, start="start"), chain, 0, weight)
        return
    wanted = expected(chain, events, status, 0, weight)
    query_of = getattr(query(g.events(given, start="start"), chain, 0, weight), status)()
    assert answered(query_of.collect(device=device)) == wanted
    live = getattr(query(g.events(given.slice(0, 0), start="start"), chain, 0, weight), status)()
    with TemporaryDirectory() as folder:
        assert answered(in_any_cut(live, given, device, random.Random(seed), Path(folder))) == wanted


def test_nothing_is_kept_at_the_end_though_the_last_row_was_never_taken() -> None:
    # rows   0 0 0 | 0   at the end one still weighs too little: the window has a row, and nothing comes
    rows = pa.table({"at": [0, 1, 2, 3], "start": [0, 0, 0, 2]})
    counted = Part("last", 1, functions=(("n", "count", ""),), differences=frozenset({"n"}))
    live = (
        query(g.events(rows.slice(0, 0), start="start", unit="ms"), [Part("last", 1), counted], weight=0.34)
        .new()
        .start()
    )
    live.push(rows)
    live.advance("1970-01-01T00:00:00.001Z")
    assert live.results().num_rows > 0
    live.close()
    assert (live.results().num_rows, live.status().alive) == (0, 0)


@pytest.mark.parametrize("status", ["new", "any_status"])
def test_many_windows_that_begin_in_one_cycle_are_in_the_order_in_which_they_did(status: str) -> None:
    def event(number: int) -> Row:
        return {"id": number, "ts": 0, "k": str(number * 7 % 100), "g": -1, "v": number % 3 or None}

    # Of equal counts the newest rows stay: those of the windows that began last.
    events = [(number // 100, event(number)) for number in range(300)]
    functions = (("n0", "count", ""), ("s0", "sum", "v"))
    chain = [Part("span", span=2, by=("k",), functions=functions), Part("highest", 3, column="n0")]
    for some in (chain[:1], chain):
        made = query(g.events(table(events), start="start"), some)
        assert answered(getattr(made, status)().collect()) == expected(some, events, status)


@pytest.mark.parametrize("device", ["cpu", "array"])
def test_a_sum_beyond_64_bits_is_refused_by_name(device: str) -> None:
    window = g.cycles(stream_of([0, 1, 9], v=[1 << 62] * 3)).partition().last_span("5ms")
    with pytest.raises(g.SumOverflowError, match="does not fit int64"):
        window.agg(s=g.sum("v")).new().collect(device=device)


def stream_of(at: Sequence[int], **columns: Any) -> g.Stream:
    return g.events(pa.table({"at": pa.array(at, pa.int64()), **columns}), start="at", unit="ms")


def test_a_coin_takes_about_half_of_the_rows_and_the_seed_decides_which() -> None:
    rows = stream_of(range(400), v=list(range(400)))
    taken = {seed: g.cycles(rows).partition().random(3, seed=seed).new().collect()["v"].to_pylist() for seed in (0, 1)}
    assert all(150 < len(each) < 250 for each in taken.values())
    assert taken[0] != taken[1]
    again = g.cycles(rows).partition().random(3, seed=1)
    assert again.new().collect(device="array")["v"].to_pylist() == taken[1]
    content = again.not_dead().collect().to_pylist()
    assert max(sum(row["cycle"] == each["cycle"] for row in content) for each in content) == 3
    assert len({row["cycle"] for row in content}) > 395  # a refused row makes a cycle run too


def test_a_column_says_how_large_the_window_of_a_key_is() -> None:
    rows = stream_of(range(6), k=list("aabbab"), n=[2, 9, 1, 9, 9, 9])
    windows = g.cycles(rows).partition("k")
    assert windows.last("n").dead().collect().select(["cycle", "k"]).to_pylist() == [
        {"cycle": 3, "k": "b"},
        {"cycle": 4, "k": "a"},
        {"cycle": 5, "k": "b"},
    ]
    none = g.cycles(rows.with_columns(n=g.col("n") - 9)).partition("k").last("n").new()
    with pytest.raises(g.ColumnError, match="one row"):
        none.collect()


def test_rows_come_in_while_a_table_has_them() -> None:
    table = pa.table({"since": [0, 5], "to": [8, None], "k": ["a", "b"]})
    known = g.events(table, start="since", end="to", unit="ms", null_end="open")
    coming = g.cycles(stream_of([1, 4, 6, 9, 11], k=list("abbab")))

    def kept(**options: Any) -> list[int]:
        answer = coming.among(known, on="k", **options).partition().last(9).new().collect()
        return [at.microsecond // 1000 for at in answer["start"].to_pylist()]

    assert kept(refresh="1ms") == [1, 6, 11]
    assert kept(refresh="10ms") == [1, 9, 11]  # at 10 the query sees what happened since 0
    assert kept(refresh="1ms", absent=True) == [4, 9]


def test_own_aggregates_are_of_what_a_window_holds() -> None:
    def width(rows: pa.Table) -> int:
        values = rows["v"].to_pylist()
        return int(max(values) - min(values))

    spread = g.window_function(width, returns=pa.int64(), of="v")
    windows = g.cycles(stream_of(range(4), v=[3, 8, 4, 4])).partition().last(2)
    assert windows.agg(spread=spread).new().collect().select(["cycle", "spread"]).to_pylist() == [
        {"cycle": 0, "spread": 0},
        {"cycle": 1, "spread": 5},
        {"cycle": 2, "spread": 4},
        {"cycle": 3, "spread": 0},
    ]


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda s: g.cycles(s, order="k").partition("k").last(1), "whole numbers"),
        (lambda s: g.cycles(s).partition("k").last(0), "n is 0"),
        (lambda s: g.cycles(s, weights=(1, 2)), "weights"),
        (lambda s: g.cycles(s).partition("k", "k").last(2), "twice"),
        (lambda s: g.cycles(s).partition("z").last(2), "'z'"),
        (lambda s: g.cycles(s).partition().last_span("1us"), "milliseconds"),
        (lambda s: g.cycles(s).partition().last_span("1s", stamp="k"), "own time"),
        (lambda s: g.cycles(s).partition().highest(2, "z"), "'z'"),
        (lambda s: g.cycles(s).partition("k").last(2).agg(k=g.count()), "this name"),
        (lambda s: g.cycles(s).partition("k").last(2).agg(), "aggregates"),
        (lambda s: g.cycles(s).partition("k").last(2).agg(n=g.count()).agg(m=g.count()), "has aggregates"),
        (lambda s: g.cycles(s).partition("k").last(2).agg(n=g.count(), entrance="m"), "'m'"),
        (lambda s: g.cycles(s).partition("k").last(2).became("not dead"), "not dead"),
        (lambda s: g.cycles(), "takes streams"),
    ],
)
def test_what_makes_no_partition_is_refused(made: Any, says: str) -> None:
    with pytest.raises(g.GpuOpsError, match=says):
        made(stream_of([0, 1], k=["a", "b"]))


def test_an_event_far_from_the_start_is_refused() -> None:
    far = stream_of([180 * 366 * 86_400_000])
    with pytest.raises(g.TimeError, match="120 years"):
        g.cycles(far).partition().last(2).new().collect()
    assert g.cycles(far, start="2140-01-01T00:00:00Z").partition().last(2).new().collect().num_rows == 1


def in_batches(query: g.Stream, rows: pa.Table, size: int) -> tuple[list[Any], int]:
    """What a running query gives, and how many rows it keeps at most."""
    live, found, most = query.start(device="cpu"), list[pa.Table](), 0
    for at in range(0, rows.num_rows, size):
        live.push(rows.slice(at, size))
        live.advance(rows["start"][min(at + size, rows.num_rows - 1)].as_py())
        found.append(live.results())
        most = max(most, live.status().alive)
    live.close()
    return sorted(map(repr, pa.concat_tables([*found, live.results()]).to_pylist())), most


@pytest.mark.slow
@pytest.mark.parametrize(
    ("windows", "made"),
    [
        (1, lambda s: g.cycles(s).partition("k").last_span("9ms").agg(n=g.count(), total=g.sum("v")).new()),
        (1, lambda s: g.cycles(s).partition("t").last_span("9ms", most=2).not_dead()),
        (
            2,
            lambda s: (
                g.cycles(s)
                .partition("k")
                .last_span("9ms")
                .agg(n=g.count())
                .became("new")
                .partition("k")
                .latest(1)
                .dead()
            ),
        ),
        (1, lambda s: g.cycles(s).partition("d").highest(5, "v", update="k").new()),
        (1, lambda s: g.cycles(s, weights=0.3).partition("t").last_span("9ms").dead()),
    ],
)
def test_keys_that_have_gone_are_forgotten(windows: int, made: Callable[[g.Stream], g.Stream]) -> None:
    """A window looks which rows it needs when it has twice as many as it needed, and 4,096 more."""
    count = 15_000
    chance = random.Random(1)
    keys = [at // 3 - chance.randrange(3) for at in range(count)]
    rows = pa.table(
        {
            "start": pa.array([at * MS for at in range(count)], pa.timestamp("us", "UTC")),
            "k": keys,
            "t": [str(key) for key in keys],
            "d": [at // 9999 for at in range(count)],
            "v": [chance.randrange(1000) + at // 10 for at in range(count)],
        }
    )
    wanted = sorted(map(repr, made(g.events(rows, start="start")).collect().to_pylist()))
    found, most = in_batches(made(g.events(rows.slice(0, 0), start="start")), rows, 700)
    assert found == wanted
    assert most < windows * 12_500


def test_texts_and_decimals_have_an_order_that_no_cut_changes() -> None:
    rows = pa.table(
        {
            "start": pa.array([at * MS for at in range(7)], pa.timestamp("us", "UTC")),
            "k": ["d", "b", None, "e", "a", "c", "e"],
            "v": pa.array([4, 2, None, 5, 1, 3, 5], pa.decimal128(9, 2)),
            "x": [4.0, 2.0, float("nan"), 5.0, 1.0, 3.0, 5.0],
        }
    )
    for column in ("k", "v", "x"):
        for verb, in_the_end in (("highest", [3, 6]), ("lowest", [1, 4])):

            def made(stream: g.Stream, verb: str = verb, column: str = column) -> g.Stream:
                numbered = stream.with_columns(at=(g.col("start").dt.timestamp("us") // MS))
                query: g.Stream = getattr(g.cycles(numbered).partition(), verb)(2, column).not_dead()
                return query

            answer = made(g.events(rows, start="start")).collect()
            last = [row["at"] for row in answer.to_pylist() if row["cycle"] == 6]
            assert sorted(last) == in_the_end
            for size in (1, 3):
                found, _ = in_batches(made(g.events(rows.slice(0, 0), start="start")), rows, size)
                assert found == sorted(map(repr, answer.to_pylist()))
