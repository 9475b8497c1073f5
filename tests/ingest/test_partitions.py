"""Partitions with clocks of their own, beside a literal reference; and each rule as a timeline."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.core.time import MAX_TIME, TICK
from gpu_ops.errors import PlanError, TimeError
from gpu_ops.ingest.advance import Advance, LatePolicy
from gpu_ops.ingest.arrivals import ArrivalKind, Arrivals
from gpu_ops.ingest.ingress import Admitted, Ingress
from tests.support.examples import examples
from tests.support.ingress_reference import Given, LateRow, Row, Violation
from tests.support.partitioned_reference import PartitionedReference

SCHEMA = pa.schema([("device", pa.string()), ("name", pa.string())])
KINDS = {
    "insert": ArrivalKind.INSERT,
    "point": ArrivalKind.INSERT,
    "start": ArrivalKind.START,
    "end": ArrivalKind.END,
    "cti": ArrivalKind.CTI,
}


def arrivals(rows: Sequence[Row]) -> Arrivals:
    """Rows; the first letter of a payload is the device."""
    kinds = np.array([KINDS[row.kind] for row in rows], np.int8)
    ends = [row.start + TICK if row.kind == "point" else row.end for row in rows]
    columns = [[row.payload[:1] or None for row in rows], [row.payload[1:] or None for row in rows]]
    payload = pa.table([pa.array(column, pa.string()) for column in columns], SCHEMA)
    start = np.array([row.start for row in rows], np.int64)
    return Arrivals(start, np.array(ends, np.int64), payload, kinds if kinds.any() else None)


def ticks(column: pa.ChunkedArray) -> list[int]:
    ints: list[int] = column.cast(pa.int64()).to_pylist()
    return ints


def together(payload: pa.Table) -> list[str]:
    return [row["device"] + (row["name"] or "") for row in payload.to_pylist()]


def seen(let_in: Admitted) -> tuple[Given, dict[str, list[int]]]:
    """What a call gave, in the reference's words: rows in no order, and the CTIs of each device."""
    events = list(zip(let_in.start.tolist(), let_in.end.tolist(), together(let_in.payload), strict=True))
    late, diverted = [], []
    if (table := let_in.late) is not None:
        named = [row["device"] + (row["name"] or "") for row in table["payload"].to_pylist()]
        columns: list[Any] = [table["kind"].to_pylist(), ticks(table["start"]), ticks(table["end"]), named]
        columns += [ticks(table["cti"]), ticks(table["late_by"]), table["fate"].to_pylist()]
        late = [LateRow(*row) for row in zip(*columns, strict=True)]
    if (aside := let_in.diverted) is not None:
        columns = [aside.start.tolist(), aside.end.tolist(), together(aside.payload), ticks(aside.payload["cti"])]
        diverted = list(zip(*columns, strict=True))
    own: dict[str, list[int]] = {}
    assert let_in.partitions is not None
    for device, cti in zip(let_in.partitions["device"].to_pylist(), ticks(let_in.partitions["cti"]), strict=True):
        own.setdefault(device, []).append(cti)
    return unordered(Given(events, let_in.ctis.tolist(), late, diverted, let_in.cti)), own


def unordered(given: Given) -> Given:
    late = [row._replace(kind="insert") if row.kind == "point" else row for row in given.late]
    return Given(sorted(given.events), given.ctis, sorted(late, key=repr), sorted(given.diverted), given.cti)


def run(settings: Advance, text: str) -> tuple[list[tuple[int, int, str]], list[int], dict[str, list[int]]]:
    """The events, the low watermarks and the CTIs of devices that rows give, as ``point 3 pa, cti 5 p, cti 4``."""
    entrance, rows = Ingress(settings, SCHEMA), []
    for part in text.split(","):
        kind, when, *payload = part.split()
        start, _, end = when.partition("-")
        rows.append(Row(kind, int(start), int(end) if end else MAX_TIME, *payload))
    first, own = seen(entrance.push(arrivals(rows)))
    last, more = seen(entrance.close())
    for device, ctis in more.items():
        own[device] = own.get(device, []) + ctis
    return sorted(first.events + last.events), first.ctis + last.ctis, own


# Beside the reference


@st.composite
def histories(draw: st.DrawFn) -> list[Row]:
    """Rows of a few devices, whose edges meet and miss; CTIs of a device and of all."""
    rows: list[Row] = []
    for _ in range(draw(st.integers(0, 25))):
        kind = draw(st.sampled_from(["insert", "point", "point", "start", "end", "cti"]))
        device, name, start = draw(st.sampled_from("pqr")), draw(st.sampled_from("ab")), draw(st.integers(0, 30))
        payload = device + name
        if kind == "cti":
            payload = draw(st.sampled_from([device, device, ""]))
        open_edges = [row for row in rows if row.kind == "start"]
        if kind == "end" and open_edges and draw(st.booleans()):
            edge = draw(st.sampled_from(open_edges))
            start, payload = edge.start, edge.payload
        rows.append(Row(kind, start, MAX_TIME if kind == "start" else start + draw(st.integers(1, 15)), payload))
    return rows


@st.composite
def policies(draw: st.DrawFn) -> Advance:
    generated = draw(st.sampled_from(["none", "every", "period", "snapped"]))
    late: LatePolicy = draw(st.sampled_from(("raise", "drop", "adjust", "divert")))
    watermark = draw(st.sampled_from([None, 3, 10]))
    return Advance(
        every=draw(st.integers(1, 3)) if generated == "every" else None,
        period=draw(st.integers(1, 8)) if generated in {"period", "snapped"} else None,
        snapped=generated == "snapped",
        delay=draw(st.sampled_from([0, -1, 4])),
        final=draw(st.booleans()),
        late=late,
        late_ends=draw(st.sampled_from(["drop", "adjust"])) if late == "adjust" else "drop",
        reorder=draw(st.sampled_from([None, 0, 5, 100])),
        per=("device",),
        low_watermark=watermark,
        lag=0 if watermark is None else draw(st.sampled_from([0, 4])),
    )


@examples(dear=True)
@given(policies(), histories(), st.data())
def test_as_the_reference_however_cut_and_restored(settings: Advance, rows: list[Row], data: st.DataObject) -> None:
    entrance, reference, at = Ingress(settings, SCHEMA), PartitionedReference(settings), 0
    while at < len(rows):
        step = data.draw(st.integers(1, len(rows) - at))
        part, before = rows[at : at + step], deepcopy(reference)
        at += step
        try:
            right = unordered(reference.push(part))
        except Violation:
            reference = before
            with pytest.raises(TimeError):
                entrance.push(arrivals(part))
        else:
            assert seen(entrance.push(arrivals(part))) == (right, reference.own)
        if data.draw(st.booleans()):
            entrance = Ingress.restore(settings, SCHEMA, entrance.tables())
    try:
        right = unordered(reference.close())
    except Violation:
        with pytest.raises(TimeError):
            entrance.close()
    else:
        assert seen(entrance.close()) == (right, reference.own)


# Rule by rule


DROP = Advance(late="drop", reorder=0, per=("device",))


def test_disorder_across_partitions_is_no_disorder() -> None:
    # p            * 50        q comes behind p, and is not late;
    # q  * 3  * 2              within q, 2 comes behind 3
    events, ctis, _ = run(DROP, "point 50 p, point 3 q, point 2 q")
    assert (events, ctis) == ([(3, 4, "q"), (50, 51, "p")], [MAX_TIME])


def test_a_cti_of_a_partition_is_about_that_one_alone() -> None:
    # p  ----| 10   * 9 is late          q      * 9 is not
    events, _, own = run(DROP, "cti 10 p, point 9 p, point 9 q")
    assert (events, own) == ([(9, 10, "q")], {"p": [10]})


def test_a_low_watermark_moves_those_that_are_behind_it_and_none_that_is_ahead() -> None:
    # p ------------------| 30     * 25 late by its own CTI
    # q  * 3 -----| 20     * 19 late by the low watermark, * 20 on time
    # r            | 20    * 19 late: it begins where the low watermark stands
    text = "cti 30 p, point 3 q, cti 20, point 25 p, point 31 p, point 19 q, point 20 q, point 19 r"
    events, ctis, own = run(DROP, text)
    assert events == [(3, 4, "q"), (20, 21, "q"), (31, 32, "p")]
    assert (ctis, own) == ([20, MAX_TIME], {"p": [30]})


def test_a_low_watermark_is_not_raised_to_what_has_come() -> None:
    _, ctis, _ = run(DROP, "point 90 p, cti 80, cti 70, point 85 q")
    assert ctis == [80, MAX_TIME]


def test_rows_of_any_partition_make_low_watermarks() -> None:
    # rows at    0p   110q  99p      260q      period 100, lag 10
    # 0 - 10 -> -100; 110 - 10 -> 100; 260 - 10 -> 200
    settings = Advance(late="drop", reorder=0, per=("device",), low_watermark=100, lag=10)
    events, ctis, _ = run(settings, "point 0 p, point 110 q, point 99 p, point 260 q")
    assert ctis == [-100, 100, 200, MAX_TIME]
    assert events == [(0, 1, "p"), (110, 111, "q"), (260, 261, "q")]


def test_a_low_watermark_releases_what_waits_in_every_buffer() -> None:
    entrance = Ingress(Advance(late="drop", reorder=50, per=("device",)), SCHEMA)
    rows = [Row("point", 30, payload="p"), Row("point", 20, payload="p"), Row("point", 25, payload="q")]
    assert entrance.push(arrivals(rows)).start.tolist() == []
    assert entrance.waiting == 3
    assert entrance.advance(25).start.tolist() == [20, 25]


def test_ctis_of_a_span_are_made_for_each_partition() -> None:
    # p  0 . 15 . 22 (20)     q  19 . 20 (20)     a low watermark of 50 counts for both: next at 60
    settings = Advance(period=20, snapped=True, reorder=0, per=("device",))
    _, ctis, own = run(
        settings, "cti 0, point 15 p, point 19 q, point 22 p, point 20 q, cti 50, point 55 p, point 70 q"
    )
    assert (ctis, own) == ([0, 50, MAX_TIME], {"p": [20], "q": [20, 60]})


def test_a_late_row_is_an_error_that_names_its_partition_and_takes_nothing_in() -> None:
    entrance = Ingress(Advance(reorder=0, per=("device",)), SCHEMA)
    entrance.push(arrivals([Row("point", 5, payload="p")]))
    with pytest.raises(TimeError, match="device='p'"):
        entrance.push(
            arrivals([Row("point", 9, payload="q"), Row("point", 7, payload="p"), Row("point", 4, payload="p")])
        )
    assert entrance.push(arrivals([Row("point", 8, payload="q"), Row("point", 6, payload="p")])).start.tolist() == [
        8,
        6,
    ]


def test_a_cti_is_told_to_a_partition_by_its_name() -> None:
    entrance = Ingress(DROP, SCHEMA)
    told = entrance.advance(10, {"device": "p"})
    assert (told.cti, seen(told)[1]) == (entrance.cti, {"p": [10]})
    assert entrance.push(arrivals([Row("point", 9, payload="p"), Row("point", 9, payload="q")])).start.tolist() == [9]
    for wrong in ({"name": "p"}, {"device": None}, {"device": 5}):
        with pytest.raises(PlanError):
            entrance.advance(20, wrong)
    with pytest.raises(PlanError, match="per="):
        Ingress(None, SCHEMA).advance(20, {"device": "p"})


def test_a_partition_is_forgotten_once_the_low_watermark_says_all_that_it_knows() -> None:
    entrance = Ingress(Advance(late="drop", reorder=0, per=("device",)), pa.schema([("device", pa.int64())]))
    for first in range(0, 4000, 100):
        devices = np.arange(first, first + 100)
        entrance.push(Arrivals(devices, None, pa.table({"device": devices})))
        entrance.advance(first + 100)
    known = entrance.tables()["partitions"].num_rows
    assert known <= 400
    assert len(entrance._state.parts) <= 1024


@pytest.mark.parametrize("wrong", [{"low_watermark": 5}, {"per": ("device",), "lag": 5}])
def test_settings_that_need_each_other(wrong: dict[str, Any]) -> None:
    with pytest.raises(PlanError):
        Advance(**wrong)
