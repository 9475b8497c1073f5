"""The ingress beside a literal, row-by-row reference; and each of its rules as a timeline."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK
from gpu_ops.devices.cpu import frames
from gpu_ops.errors import ColumnError, PlanError, SourceError, TimeError
from gpu_ops.ingest import arrival_kernel as k
from gpu_ops.ingest.advance import Advance, LatePolicy
from gpu_ops.ingest.arrivals import ArrivalKind, Arrivals
from gpu_ops.ingest.ingress import Admitted, Ingress
from tests.support.examples import examples
from tests.support.ingress_reference import EntranceReference, Given, LateRow, Row, Violation

SCHEMA = pa.schema([("name", pa.string())])
KINDS = {
    "insert": ArrivalKind.INSERT,
    "point": ArrivalKind.INSERT,
    "start": ArrivalKind.START,
    "end": ArrivalKind.END,
    "cti": ArrivalKind.CTI,
}


def arrivals(rows: Sequence[Row]) -> Arrivals:
    kinds = np.array([KINDS[row.kind] for row in rows], np.int8)
    ends = [row.start + TICK if row.kind == "point" else row.end for row in rows]
    payload = pa.table({"name": pa.array([None if row.kind == "cti" else row.payload for row in rows], pa.string())})
    start = np.array([row.start for row in rows], np.int64)
    # Without kinds where they are not needed, which is another way through.
    return Arrivals(start, np.array(ends, np.int64), payload, kinds if kinds.any() else None)


def ticks(column: pa.ChunkedArray) -> list[int | None]:
    ints: list[int | None] = column.cast(pa.int64()).to_pylist()
    return ints


def seen(let_in: Admitted) -> Given:
    """What a call gave, in the reference's words; points come back as inserts."""
    names = let_in.payload["name"].to_pylist()
    events = list(zip(let_in.start.tolist(), let_in.end.tolist(), names, strict=True))
    late, diverted = [], []
    if let_in.late is not None:
        table = let_in.late
        columns = [table["kind"].to_pylist(), ticks(table["start"]), ticks(table["end"])]
        columns += [[payload["name"] for payload in table["payload"].to_pylist()], ticks(table["cti"])]
        columns += [ticks(table["late_by"]), table["fate"].to_pylist()]
        late = [LateRow(*row) for row in zip(*columns, strict=True)]
    if let_in.diverted is not None:
        aside = let_in.diverted
        columns = [aside.start.tolist(), aside.end.tolist(), aside.payload["name"].to_pylist()]
        diverted = list(zip(*columns, ticks(aside.payload["cti"]), strict=True))
    assert sum(let_in.counts.values()) == len(late)
    return Given(events, let_in.ctis.tolist(), late, diverted, let_in.cti)


def expected(given: Given) -> Given:
    late = [row._replace(kind="insert") if row.kind == "point" else row for row in given.late]
    return Given(given.events, given.ctis, late, given.diverted, given.cti)


def joined(parts: Sequence[Given]) -> Given:
    whole = Given(cti=parts[-1].cti)
    for part in parts:
        whole.events += part.events
        whole.ctis += part.ctis
        whole.late += part.late
        whole.diverted += part.diverted
    return whole


def run(settings: Advance | None, rows: Sequence[Row], *, ends: bool = True) -> Given:
    """All rows in one push, then the end."""
    entrance = Ingress(settings, SCHEMA)
    parts = [seen(entrance.push(arrivals(rows)))]
    if ends:
        parts.append(seen(entrance.close()))
    return joined(parts)


# Beside the reference

times = st.integers(0, 30)


@st.composite
def histories(draw: st.DrawFn) -> list[Row]:
    """Rows about a few identities, so that edges meet, double, miss and come late."""
    rows: list[Row] = []
    for _ in range(draw(st.integers(0, 25))):
        kind = draw(st.sampled_from(["insert", "point", "start", "start", "end", "end", "cti"]))
        payload = draw(st.sampled_from("ab"))
        start = draw(times)
        open_edges = [row for row in rows if row.kind == "start"]
        if kind == "end" and open_edges and draw(st.integers(0, 5)):
            edge = draw(st.sampled_from(open_edges))
            start, payload = edge.start, edge.payload
        end = MAX_TIME if kind == "start" else start + draw(st.integers(1, 15))
        rows.append(Row(kind, start, end, payload))
    return rows


@st.composite
def policies(draw: st.DrawFn) -> Advance | None:
    generated = draw(st.sampled_from(["none", "every", "period", "snapped"]))
    late: LatePolicy = draw(st.sampled_from(("raise", "drop", "drop", "adjust", "adjust", "divert")))
    settings = Advance(
        every=draw(st.integers(1, 4)) if generated == "every" else None,
        period=draw(st.integers(1, 8)) if generated in {"period", "snapped"} else None,
        snapped=generated == "snapped",
        delay=draw(st.sampled_from([0, 0, -1, -3, 1, 4])),
        final=draw(st.booleans()),
        late=late,
        late_ends=draw(st.sampled_from(["drop", "adjust"])) if late == "adjust" else "drop",
        reorder=draw(st.sampled_from([None, None, 0, 1, 5, 100])),
    )
    return None if settings == Advance() else settings


@examples(dear=True)
@given(policies(), histories(), st.data())
def test_as_the_reference_however_cut_and_restored(
    settings: Advance | None, rows: list[Row], data: st.DataObject
) -> None:
    entrance, reference = Ingress(settings, SCHEMA), EntranceReference(settings)
    at = 0
    while at < len(rows):
        step = data.draw(st.integers(1, len(rows) - at))
        part, before = rows[at : at + step], deepcopy(reference)
        at += step
        try:
            right = expected(reference.push(part))
        except Violation:
            reference = before
            with pytest.raises(TimeError):
                entrance.push(arrivals(part))
        else:
            assert seen(entrance.push(arrivals(part))) == right
        if data.draw(st.booleans()):
            entrance = Ingress.restore(settings, SCHEMA, entrance.tables())
    try:
        right = expected(reference.close())
    except Violation:
        with pytest.raises(TimeError):
            entrance.close()
    else:
        assert seen(entrance.close()) == right


@given(policies(), histories(), st.data())
def test_no_cut_changes_what_is_given(settings: Advance | None, rows: list[Row], data: st.DataObject) -> None:
    try:
        whole = run(settings, rows)
    except TimeError:
        return
    entrance, parts, at = Ingress(settings, SCHEMA), [], 0
    while at < len(rows):
        step = data.draw(st.integers(1, len(rows) - at))
        parts.append(seen(entrance.push(arrivals(rows[at : at + step]))))
        at += step
    parts.append(seen(entrance.close()))
    assert joined(parts) == whole
    # What was promised was kept: no call let in what starts before the promise of the call before.
    for before, after in pairwise(parts):
        assert before.cti <= after.cti
        assert all(start >= before.cti for start, _, _ in after.events)


def handed_out(reference: EntranceReference) -> dict[int, tuple[int, str]]:
    """The open start edges that the last CTI is past: start and payload by their arrival's number."""
    return {
        each.number: (each.start, payload)
        for (_, payload), queue in reference.open.items()
        for each in queue
        if each.start is not None and each.start < reference.last
    }


@examples(dear=True)
@given(policies(), histories(), st.data())
def test_open_edges_are_handed_out_when_the_cti_passes_them(
    settings: Advance | None, rows: list[Row], data: st.DataObject
) -> None:
    entrance, reference = Ingress(settings, SCHEMA, hands_out_open=True), EntranceReference(settings)

    def agree(given_now: Admitted, right: Given, before: dict[int, tuple[int, str]]) -> None:
        assert (seen(given_now).events, given_now.ctis.tolist()) == (right.events, right.ctis)
        assert given_now.cti == max(reference.last, MIN_TIME)  # nothing that is open holds it back
        after = handed_out(reference)
        out = given_now.opened
        starts = [] if out is None else zip(out.start.tolist(), out.payload["name"].to_pylist(), strict=True)
        assert list(starts) == [after[number] for number in sorted(after.keys() - before.keys())]
        closes = [False] * len(right.events) if given_now.closes is None else given_now.closes.tolist()
        closed = [(start, payload) for (start, _, payload), old in zip(right.events, closes, strict=True) if old]
        assert sorted(closed) == sorted(before[number] for number in before.keys() - after.keys())
        assert given_now.closes is None or closed

    at = 0
    while at < len(rows):
        step = data.draw(st.integers(1, len(rows) - at))
        part, old, before = rows[at : at + step], deepcopy(reference), handed_out(reference)
        at += step
        try:
            right = expected(reference.push(part))
        except Violation:
            reference = old
            with pytest.raises(TimeError):
                entrance.push(arrivals(part))
        else:
            agree(entrance.push(arrivals(part)), right, before)
        if data.draw(st.booleans()):
            entrance = Ingress.restore(settings, SCHEMA, entrance.tables(), hands_out_open=True)
    before = handed_out(reference)
    try:
        right = expected(reference.close())
    except Violation:
        with pytest.raises(TimeError):
            entrance.close()
    else:
        agree(entrance.close(), right, before)


# What a step costs


class Watched(np.ndarray[Any, np.dtype[np.int64]]):
    """An array that counts the rows that are read of it, outside of compiled code."""

    read = 0

    def __getitem__(self, key: Any) -> Any:
        got = super().__getitem__(key)
        Watched.read += np.shape(got)[0] if np.shape(got) else 1
        return got


def rows_touched(monkeypatch: pytest.MonkeyPatch, *, still_open: int, hands_out_open: bool) -> int:
    """How many rows 20 pushes of 100 edges read and copy, while so many others are open."""
    entrance = Ingress(None, SCHEMA, hands_out_open=hands_out_open)

    def edges(now: int) -> list[Row]:
        starts = [Row("start", now + at, MAX_TIME, "x") for at in range(50)]
        return [*starts, *(Row("end", row.start - 50, now + 50, "x") for row in starts), Row("cti", now + 50)]

    begun = [Row("start", -at, MAX_TIME, "y") for at in range(still_open)]
    entrance.push(arrivals([*begun, *(Row("start", at, MAX_TIME, "x") for at in range(50)), Row("cti", 50)]))
    entrance.push(arrivals(edges(50)))
    touched = 0
    compiled, take, concat = k.admit, frames.rows_at, pl.concat

    def admit(*arguments: Any) -> None:
        nonlocal touched
        clock = arguments[8]
        waiting, rows = int(clock[k.ClockField.WAITING]), len(arguments[1])
        compiled(*(np.asarray(argument) for argument in arguments))
        touched += rows + waiting - int(clock[k.ClockField.WAITING])

    def counted_take(frame: pl.DataFrame, indices: Any) -> pl.DataFrame:
        nonlocal touched
        touched += len(indices)
        return take(frame, indices)

    def counted_concat(frames: Any, **options: Any) -> Any:
        nonlocal touched
        touched += sum(map(len, frames))
        return concat(frames, **options)

    state = entrance._state
    state.held, state.waiting = state.held.view(Watched), state.waiting.view(Watched)
    with monkeypatch.context() as patched:
        patched.setattr(k, "admit", admit)
        patched.setattr(frames, "rows_at", counted_take)
        patched.setattr(pl, "concat", counted_concat)
        Watched.read = 0
        for now in range(100, 1100, 50):
            entrance.push(arrivals(edges(now)))
    assert isinstance(state.held, Watched)
    assert isinstance(state.waiting, Watched)
    return touched + Watched.read


@pytest.mark.parametrize("hands_out_open", [False, True])
def test_a_push_costs_the_same_however_many_edges_are_open(
    monkeypatch: pytest.MonkeyPatch, *, hands_out_open: bool
) -> None:
    few, many = (
        rows_touched(monkeypatch, still_open=still_open, hands_out_open=hands_out_open) for still_open in (2500, 40_000)
    )
    assert many <= 1.1 * few


# Rule by rule


def parse(text: str) -> list[Row]:
    """Rows as ``insert 3-7 a, point 4 b, start 5 a, end 5-9 a, cti 6``: what, when, payload."""
    rows = []
    for part in text.split(","):
        kind, when, *payload = part.split()
        start, _, end = when.partition("-")
        rows.append(Row(kind, int(start), int(end) if end else MAX_TIME, *payload))
    return rows


def given_by(settings: Advance | None, text: str) -> Given:
    return run(settings, parse(text))


def fates(given: Given) -> list[tuple[str, str]]:
    return [(row.payload, row.fate) for row in given.late]


EVERY_SECOND = Advance(every=2, late="drop")


def test_a_cti_after_every_second_start() -> None:
    # a [==)        c  *   CTIs made:  3 (from b), 8 (from d); the end edge is not counted
    #    b *            d *
    given = given_by(EVERY_SECOND, "insert 1-4 a, start 3 b, end 3-4 b, point 6 c, point 8 d")
    assert given.ctis == [3, 8, MAX_TIME]
    assert given.late == []


def test_a_row_that_is_left_out_counts_but_brings_no_cti() -> None:
    # The fourth is late (2 < 5): it completes the pair, and no CTI is made of it.
    given = given_by(EVERY_SECOND, "point 1 a, point 5 b, point 7 c, point 2 d, point 8 e, point 9 f")
    assert given.ctis == [5, 9, MAX_TIME]
    assert fates(given) == [("d", "dropped")]


@pytest.mark.parametrize(
    ("settings", "ctis"),
    [
        # starts 10 12 20 21 31: the first brings one, then those at least 10 above the last CTI
        (Advance(period=10), [10, 20, 31]),
        (Advance(period=10, delay=5), [5, 15, 26]),
        # with 15 behind, each start is 10 above the last CTI: 10-15, 12-15 …
        (Advance(period=10, delay=15), [-5, -3, 5, 6, 16]),
        (Advance(period=10, delay=-1), [11, 22]),
        (Advance(period=10, snapped=True), [10, 20, 30]),
        (Advance(every=2, delay=-1, late="drop"), [13, 22]),
    ],
)
def test_ctis_of_a_span(settings: Advance, ctis: list[int]) -> None:
    given = given_by(settings, "point 10 a, point 12 b, point 20 c, point 21 d, point 31 e")
    grid = (0 - MIN_TIME) % 10
    assert grid == 0  # so that the grid from the year 1 has a line at 0
    assert given.ctis == [*ctis, MAX_TIME]


def test_a_delay_of_minus_one_tick_commits_what_has_just_come() -> None:
    entrance = Ingress(Advance(every=1, delay=-1), SCHEMA)
    assert entrance.push(arrivals(parse("point 5 a"))).cti == 6


def test_an_event_at_the_cti_is_not_late() -> None:
    assert given_by(Advance(late="drop"), "cti 5, point 5 a, point 4 b").events == [(5, 6, "a")]


@pytest.mark.parametrize(
    ("late", "events", "what"),
    [
        # CTI at 5:      |         a [2, 7)   b [2, 5)   c at 4
        ("drop", [], {"a": "dropped", "b": "dropped", "c": "dropped"}),
        ("adjust", [(5, 7, "a")], {"a": "adjusted", "b": "dropped", "c": "dropped"}),
        ("divert", [], {"a": "diverted", "b": "diverted", "c": "diverted"}),
    ],
)
def test_what_becomes_of_a_late_event(
    late: LatePolicy, events: list[tuple[int, int, str]], what: dict[str, str]
) -> None:
    given = given_by(Advance(late=late), "cti 5, insert 2-7 a, insert 2-5 b, point 4 c")
    assert given.events == events
    assert dict(fates(given)) == what
    assert [(row.cti, row.late_by) for row in given.late] == [(5, 3), (5, 3), (5, 1)]
    assert given.diverted == ([(2, 7, "a", 5), (2, 5, "b", 5), (4, 5, "c", 5)] if late == "divert" else [])


def test_a_late_row_is_an_error_unless_something_else_is_said() -> None:
    entrance = Ingress(None, SCHEMA)
    entrance.push(arrivals(parse("point 3 a, cti 5")))
    with pytest.raises(TimeError, match=r"starts before the CTI 1970-01-01T00:00:00\.000005Z") as caught:
        entrance.push(arrivals(parse("point 6 b, insert 4-9 c")))
    assert caught.value.row == 1
    assert "start=1970-01-01T00:00:00.000004Z, end=1970-01-01T00:00:00.000009Z" in str(caught.value)
    # Nothing of it was taken in.
    assert seen(entrance.push(arrivals(parse("point 6 b")))).events == [(6, 7, "b")]


def test_a_start_edge_waits_for_its_end_edge_and_holds_the_promise() -> None:
    # a    [====)           a is let in when its end is known;
    # b       *             until then no more is promised than its start
    entrance = Ingress(None, SCHEMA)
    first = seen(entrance.push(arrivals(parse("start 2 a, point 5 b, cti 6"))))
    assert (first.events, first.ctis, first.cti) == ([(5, 6, "b")], [6], 2)
    second = seen(entrance.push(arrivals(parse("end 2-7 a"))))
    assert (second.events, second.cti) == ([(2, 7, "a")], 6)


def test_the_oldest_of_many_open_start_edges_holds_the_promise() -> None:
    entrance = Ingress(None, SCHEMA)
    rows = [Row("start", at, MAX_TIME, "x") for at in range(3000)] + [Row("cti", 3000)]
    assert entrance.push(arrivals(rows)).cti == 0
    ends = [Row("end", at, 5000 + at, "x") for at in range(1, 3000)]
    assert entrance.push(arrivals(ends[::-1])).cti == 0
    assert entrance.push(arrivals([Row("end", 0, 9000, "x")])).cti == 3000


def test_an_edge_that_is_never_ended_never_ends() -> None:
    assert given_by(None, "start 2 a, start 2 b, end 2-4 a").events == [(2, 4, "a"), (2, MAX_TIME, "b")]
    assert given_by(Advance(final=False), "start 2 a").events == [(2, MAX_TIME, "a")]


def test_a_cti_at_infinity_ends_what_is_open() -> None:
    entrance = Ingress(None, SCHEMA)
    assert seen(entrance.push(arrivals([*parse("start 2 a"), Row("cti", MAX_TIME)]))).events == [(2, MAX_TIME, "a")]
    assert seen(entrance.close()).events == []


def test_of_equal_start_edges_the_first_is_ended_first() -> None:
    given = given_by(None, "start 2 a, start 2 a, end 2-4 a, end 2-9 a")
    assert given.events == [(2, 4, "a"), (2, 9, "a")]


def test_of_equal_start_edges_those_that_came_late_are_ended_first() -> None:
    # As in Trill: one on time, moved to 9, moved to 11; the ends go to the moved ones, and the first stays open.
    given = given_by(Advance(late="adjust"), "start 5 x, cti 9, start 5 x, cti 11, start 5 x, end 5-20 x, end 5-24 x")
    assert given.events == [(9, 20, "x"), (11, 24, "x"), (5, MAX_TIME, "x")]


def test_a_start_edge_that_is_left_out_takes_its_end_edge_along() -> None:
    text = "cti 5, start 3 a, start 6 b, end 3-9 a, end 6-9 b"
    given = given_by(Advance(late="drop"), text)
    assert given.events == [(6, 9, "b")]
    assert [(row.kind, row.payload, row.fate) for row in given.late] == [
        ("start", "a", "dropped"),
        ("end", "a", "dropped"),
    ]
    aside = given_by(Advance(late="divert"), text + ", start 2 c")
    assert aside.diverted == [(3, 9, "a", 5), (2, MAX_TIME, "c", 5)]


def test_late_end_edges_are_dropped_or_moved() -> None:
    text = "start 2 a, cti 6, end 2-4 a"
    assert given_by(Advance(late="adjust"), text).events == [(2, MAX_TIME, "a")]
    moved = given_by(Advance(late="adjust", late_ends="adjust"), text)
    assert (moved.events, fates(moved)) == ([(2, 6, "a")], [("a", "adjusted")])


def test_a_moved_start_edge_that_ends_by_then_is_empty() -> None:
    given = given_by(Advance(late="adjust"), "cti 6, start 2 a, end 2-6 a")
    assert (given.events, fates(given)) == ([], [("a", "adjusted"), ("a", "emptied")])


def test_an_end_edge_without_a_start_edge() -> None:
    assert fates(given_by(Advance(late="drop"), "start 2 a, end 3-5 a, end 2-5 b")) == [
        ("a", "unmatched"),
        ("b", "unmatched"),
    ]
    with pytest.raises(TimeError, match="ends an event that has not started"):
        given_by(None, "end 3-5 a")


def test_reordering_lets_rows_go_on_by_time() -> None:
    # With a latency of 3, 9 lets go what is 6 or earlier, and 5 is late then.
    entrance = Ingress(Advance(reorder=3, late="drop"), SCHEMA)
    first = seen(entrance.push(arrivals(parse("point 4 a, point 6 b, point 5 c, point 9 d, point 5 e, point 7 f"))))
    assert first.events == [(4, 5, "a"), (5, 6, "c"), (6, 7, "b")]
    assert fates(first) == [("e", "dropped")]
    assert entrance.tables()["buffer"]["payload"].to_pylist() == [{"name": "d"}, {"name": "f"}]
    assert seen(entrance.advance(8)).events == [(7, 8, "f")]
    assert seen(entrance.close()).events == [(9, 10, "d")]


def test_a_cti_never_goes_back() -> None:
    given = given_by(Advance(every=1, delay=0, late="drop"), "point 5 a, cti 3, point 5 b, cti 9, cti 9")
    assert given.ctis == [5, 9, MAX_TIME]


def test_no_final_cti() -> None:
    assert given_by(Advance(every=1, final=False), "point 5 a").ctis == [5]


def test_the_state_is_tables_that_can_be_read() -> None:
    entrance = Ingress(Advance(reorder=4, late="drop"), SCHEMA)
    entrance.push(arrivals(parse("start 1 a, cti 5, start 3 b, point 8 c")))
    tables = entrance.tables()
    assert tables["open"].column_names == ["arrival", "start", "let_in", "cti", "payload"]
    assert ticks(tables["open"]["start"]) == [1]
    assert tables["kept_out"].to_pylist()[0]["payload"] == {"name": "b"}
    assert tables["buffer"]["kind"].to_pylist() == ["insert"]
    assert (tables["clock"]["arrivals"][0].as_py(), tables["clock"]["dropped"][0].as_py()) == (4, 1)
    with pytest.raises(SourceError, match=r"table .buffer.: a column has the type"):
        Ingress.restore(None, pa.schema([("v", pa.int64())]), tables)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.5, -0.0, float("nan"), 0.0, -float("nan")]),
        pa.array([1.5, 2.0, -0.0, float("nan"), 0.0], pa.float32()),
        pa.array([None, "x", None, "y", None]),
        pa.array(["x", "y", "x", None, "x"]).dictionary_encode(),
        pa.array([1, 2, 1, None, 1], pa.decimal128(20, 2)),
        pa.array([b"1", b"2", None, b"1", None]),
        pa.array([True, None, False, True, False]),
    ],
    ids=lambda column: str(column.type),
)
def test_edges_of_any_payload_meet(column: pa.Array) -> None:
    """The third and the fifth are one payload, whatever comes between, and in another batch."""
    schema = pa.schema([("v", column.type)])
    entrance = Ingress(None, schema)
    table = pa.table({"v": column}, schema=schema)
    starts = Arrivals(np.array([5, 5, 5]), np.array([9, 9, 9]), table.slice(0, 3), np.array([1, 1, 1], np.int8))
    entrance.push(starts)
    ended = entrance.push(Arrivals(np.array([5]), np.array([8]), table.slice(4), np.array([2], np.int8)))
    assert (ended.start.tolist(), ended.end.tolist()) == ([5], [8])
    assert ended.payload.schema == schema
    assert repr(ended.payload["v"].to_pylist()) == repr(column.slice(2, 1).to_pylist())


def test_edges_without_payload_meet_by_their_starts() -> None:
    nothing = pa.table({"at": [0, 0]}).select([])
    entrance = Ingress(Advance(late="drop"), nothing.schema, hands_out_open=True)
    kinds = np.array([ArrivalKind.START, ArrivalKind.START], np.int8)
    entrance.push(Arrivals(np.array([1, 2]), np.array([9, 9]), nothing, kinds))
    opened = entrance.advance(4).opened
    assert opened is not None
    assert opened.start.tolist() == [1, 2]
    entrance = Ingress.restore(Advance(late="drop"), nothing.schema, entrance.tables(), hands_out_open=True)
    kinds = np.array([ArrivalKind.END, ArrivalKind.END], np.int8)
    ended = entrance.push(Arrivals(np.array([2, 3]), np.array([7, 8]), nothing, kinds))
    assert (ended.start.tolist(), ended.end.tolist(), ended.counts) == ([2], [7], {"unmatched": 1})
    assert entrance.tables()["open"].num_rows == 1


def test_edges_of_nested_payload_are_refused() -> None:
    schema = pa.schema([("v", pa.list_(pa.int64()))])
    with pytest.raises(ColumnError, match="no equality"):
        Ingress(None, schema).push(
            Arrivals(np.array([5]), np.array([9]), pa.table({"v": [[1]]}, schema=schema), np.array([1], np.int8))
        )


def test_what_nothing_can_make_late_is_not_copied() -> None:
    entrance = Ingress(Advance(late="adjust"), SCHEMA)
    batch = arrivals(parse("insert 4-9 a, insert 7-8 b"))
    let_in = entrance.push(batch)
    assert let_in.payload is batch.payload
    assert let_in.start is batch.start
    assert let_in.end is batch.end


def test_many_edges_in_many_pushes() -> None:
    """Slots, buckets and runs of payload grow, are left and used again."""
    rng = np.random.default_rng(7)
    entrance, reference = Ingress(Advance(late="drop"), SCHEMA), EntranceReference(Advance(late="drop"))
    alive: list[tuple[int, str]] = []
    now = 0
    for step in range(60):
        rows = []
        for _ in range(int(rng.integers(1, 80))):
            now += 1
            if alive and rng.random() < (0.3 if step < 30 else 0.8):
                start, payload = alive.pop(int(rng.integers(len(alive))))
                rows.append(Row("end", start, now, payload))
            else:
                payload = str(rng.integers(5))
                alive.append((now, payload))
                rows.append(Row("start", now, MAX_TIME, payload))
        rows.append(Row("cti", now - 20))
        assert seen(entrance.push(arrivals(rows))) == expected(reference.push(rows))
    assert seen(entrance.close()) == expected(reference.close())


@pytest.mark.parametrize("call", ["push", "advance", "close"])
def test_nothing_comes_after_the_end(call: str) -> None:
    entrance = Ingress(None, SCHEMA)
    entrance.close()
    arguments: dict[str, list[Any]] = {"push": [arrivals([])], "advance": [5], "close": []}
    with pytest.raises(PlanError, match="closed"):
        getattr(entrance, call)(*arguments[call])


def test_what_is_no_time_is_no_cti() -> None:
    with pytest.raises(PlanError, match="no time"):
        Ingress(None, SCHEMA).advance(MAX_TIME + 1)


def test_settings_that_do_not_fit_together() -> None:
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"every": 3, "period": 5}, "not by both"),
        ({"every": 0}, "every is 0. Give a whole number of at least 1"),
        ({"reorder": -1}, "reorder must be 0 or more"),
        ({"late": "ignore"}, "no policy"),
        ({"late_ends": "adjust"}, "late is 'raise'"),
        ({"snapped": True}, "there is no span"),
    )
    for settings, problem in refused:
        with pytest.raises(PlanError, match=problem):
            Advance(**settings)


def test_compiled_code_stays_inside_its_arrays(tmp_path: Path) -> None:
    """What Numba does not check, it checks when told to: kernels compiled so, over the tests that use them most."""
    if hypothesis.settings().max_examples <= 1000:
        pytest.skip("long: HYPOTHESIS_PROFILE=deep (`make test-deep`) runs it")
    environment = os.environ | {
        "NUMBA_BOUNDSCHECK": "1",
        "NUMBA_CACHE_DIR": str(tmp_path),
        "HYPOTHESIS_PROFILE": "default",
    }
    tests = ["ingest/test_entrance.py", "engines/test_live.py", "devices/test_kernels.py", "operators"]
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"tests/{test}" for test in tests)]
    finished = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout
