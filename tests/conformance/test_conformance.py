"""The runner over the recorded vectors, and what it says of vectors that are wrong or unknown."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.conformance.run import Verdict, local, main, report
from tests.conformance.vectors import Vector, read

PASS_IN_FULL = {
    "trill_oracle": """
        where_select snapshot snapshot_by_key alter_duration alter_duration_snapshot alter_duration_snapshot_by_key
        sliding tumbling tumbling_by_key hopping hopping_by_key hopping_lifetime repetitive_hopping quantize
        quantize_snapshot progressive_quantize chop stitch extend shift clip_const point_at_end distinct_key
        ingress ingress_count join_key join_cross left_outer_join_key full_outer_join_key where_not_exists_key
        left_anti_semi_join union clip_by clip_by_key clip_self_key
    """,
    "streaminsight": """
        si_snapshot si_snapshot_by_key si_hopping si_hopping_by_key si_tumbling si_tumbling_by_key
    """,
    "trill_tests": """
        edges extend punctuation clip_const point_at_end quantize clip join outer_join union pipeline alter_lifetime
        flush snapshot stateless stitch pattern partitioned
    """,
    "esper": """
        agg-filter-param agg-filtered agg-firstlastwindow agg-median-dev agg-minmax agg-sorted aggregate-all boundary
        join-inner join-outer join-unidirectional out-aggregategrouped out-rowforall out-rowperevent out-rowpergroup
        outputlimit-time prevprior q-aggregategrouped q-rowforall q-rowperevent seed sub-exists-in sub-unfiltered
        win-derived win-exttimed win-exttimedbatch win-first-last win-groupwin win-keepall win-lengthbatch win-sort
        win-time win-timeaccum win-timebatch win-timelengthbatch win-timeorder win-union
    """,
    "streamcruncher": """
        aggregate chain correlation delayed-matcher highest immediate-matcher join lowest partition prefilter schedule
        select sliding structure time time-max tumbling weights
    """,
}

AT_LEAST = {"esper": 676}
"""How many vectors of a file pass. The others ask for what there is not, by name."""

IN_ORDER_OF_ARRIVAL = {"ingress", "ingress_count"}
"""Spark has none: there these are refused, by that word."""

LIVE_STEP = 1 if settings().max_examples > 1000 else 3
"""Running queries are asked one of so many vectors."""

LINE = re.compile(r"(\S+) +passed +(\d+)  failed +(\d+)  unsupported +(\d+)")


def lines(printed: str) -> dict[str, tuple[int, int, int]]:
    """Per query what passed, failed, was unsupported."""
    found = [LINE.match(line) for line in printed.splitlines()]
    return {m[1]: (int(m[2]), int(m[3]), int(m[4])) for m in found if m}


@pytest.mark.slow
@pytest.mark.parametrize("file", PASS_IN_FULL)
def test_what_is_supported_passes_and_a_running_query_gives_the_same(
    conformance: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A running query is asked every third vector of each query, and all of them by the deep tests."""
    verdicts = list(local(read(conformance / f"{file}.jsonl.gz"), "cpu"))
    total = report(verdicts)
    printed = capsys.readouterr().out
    assert total["failed"] == 0, printed
    assert total["passed"] >= AT_LEAST.get(file, 0)
    found = lines(printed)
    for query in PASS_IN_FULL[file].split():
        passed, failed, unsupported = found[query]
        assert passed > 0
        assert failed == unsupported == 0
    sums = [sum(column) for column in zip(*found.values(), strict=True)]
    assert printed.splitlines()[-1] == f"passed {sums[0]} failed {sums[1]} unsupported {sums[2]}"
    by_query: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        by_query[verdict.vector.query].append(verdict)
    asked = [verdict for each in by_query.values() for verdict in each[::LIVE_STEP]]
    live = list(local([verdict.vector for verdict in asked], "cpu", live=True))
    report(live)
    assert [(each.vector.name, each.word) for each in live] == [(each.vector.name, each.word) for each in asked], (
        capsys.readouterr().out
    )


@pytest.mark.slow
def test_streaminsight_on_every_device(conformance: Path, device_name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(conformance / "streaminsight.jsonl.gz"), "--device", device_name]) == 0, capsys.readouterr().out


@pytest.mark.usefixtures("spark", "few_tasks")
def test_every_supported_query_on_spark(conformance: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of each query the numbers that most vectors share: several vectors in one query, and many queries in one job."""
    whole = {name: PASS_IN_FULL[name].split() for name in ("trill_oracle", "streaminsight")}
    files = [conformance / f"{name}.jsonl.gz" for name in whole]
    supported = {query for queries in whole.values() for query in queries} - IN_ORDER_OF_ARRIVAL
    shapes: dict[str, list[Vector]] = defaultdict(list)
    for vector in (vector for file in files for vector in read(file)):
        shapes[vector.shape].append(vector)
    most = {batch[0].query: batch for batch in sorted(shapes.values(), key=len)}
    refused = [most[query][0].name for query in sorted(IN_ORDER_OF_ARRIVAL)]
    names = [vector.name for query in sorted(supported) for vector in most[query]]
    chosen = [option for name in [*names, *refused] for option in ("--vector", name)]
    code = main([*map(str, files), "--engine", "spark", *chosen])
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert printed.splitlines()[-1] == f"passed {len(names)} failed 0 unsupported {len(refused)}"
    assert set(lines(printed)) == supported | IN_ORDER_OF_ARRIVAL
    assert printed.count("Spark has no order of arrival") == len(IN_ORDER_OF_ARRIVAL)


# Vectors of our own


def own(query: str, expected: list[dict[str, Any]], **params: Any) -> dict[str, Any]:
    """Two points of value 1 and 2, at 3 and at 5."""
    payloads = [{"k": 1, "v": value, "x": None, "id": value} for value in (1, 2)]
    left = [
        {"kind": "point", "start": at, "end": at + 1, "payload": payload}
        for at, payload in zip((3, 5), payloads, strict=True)
    ]
    return {"id": f"{query}-0", "query": query, "params": params, "inputs": {"left": left}, "expected": expected}


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*vectors: dict[str, Any], options: tuple[str, ...] = ()) -> tuple[int, list[str]]:
        file = tmp_path / "vectors.jsonl"
        file.write_text("\n".join(json.dumps(vector) for vector in vectors))
        code = main([str(file), *options])
        return code, capsys.readouterr().out.splitlines()

    return run


RIGHT = own("snapshot", [{"start": 3, "end": 4, "payload": 1}, {"start": 5, "end": 6, "payload": 1}], agg="count")
WRONG = own("snapshot", [{"start": 3, "end": 4, "payload": 1}, {"start": 5, "end": 6, "payload": 2}], agg="count")


def test_a_right_answer_passes(run: Any) -> None:
    assert run(RIGHT)[0] == 0
    assert run(RIGHT)[1][-1] == "passed 1 failed 0 unsupported 0"


@pytest.mark.parametrize("expected", [[], WRONG["expected"], RIGHT["expected"][:1], RIGHT["expected"] * 2])
def test_a_wrong_answer_fails_and_shows_the_difference(run: Any, expected: list[dict[str, Any]]) -> None:
    code, printed = run(own("snapshot", expected, agg="count"), RIGHT)
    assert code == 1
    assert printed[-1] == "passed 1 failed 1 unsupported 0"
    assert any("snapshot-0" in line and "not expected" in line for line in printed)


def test_segments_are_compared_where_the_vector_has_them(run: Any) -> None:
    wrong = RIGHT | {"canonical": [{"start": 3, "end": 4, "payload": 1, "count": 2}]}
    code, printed = run(wrong)
    assert code == 1
    assert any("segments: missing" in line for line in printed)


def test_a_query_that_raises_fails(run: Any) -> None:
    code, printed = run(own("extend", [], by=300_000_000_000_000_000))
    assert code == 1
    assert any("TimeError" in line for line in printed)


def test_what_has_no_word_is_unsupported_by_that_word(run: Any) -> None:
    code, printed = run(own("juggle", [], balls=3), own("snapshot", [], agg="entropy_v"))
    assert code == 0
    assert "Stream has no verb 'juggle'" in printed[0]
    assert "no aggregate 'entropy'" in printed[1]
    assert printed[-1] == "passed 0 failed 0 unsupported 2"


def test_one_vector_alone(run: Any) -> None:
    other = {**WRONG, "id": "other"}
    assert run(RIGHT, other, options=("--vector", "snapshot-0"))[1][-1] == "passed 1 failed 0 unsupported 0"
    with pytest.raises(SystemExit, match="2"):
        run(RIGHT, options=("--vector", "unknown"))


def test_trills_written_pipelines(run: Any) -> None:
    events = [{"kind": "insert", "start": at, "end": at + 4, "payload": {"v": at}} for at in (1, 2)]
    line = {
        "id": "written-0",
        "area": "snapshot",
        "inputs": {"s": {"fields": {"v": "int64"}, "events": events}},
        "settings": {"on_completed": "cti_infinity"},
        "query": "where(v mod 2 = 0) | clip_const(3) | snapshot | aggregate(total=sum(v), n=count())",
        "expected": [{"kind": "insert", "start": 2, "end": 5, "payload": {"total": 2, "n": 1}}],
        "check": {"form": "logical"},
    }
    assert run(line)[1][-1] == "passed 1 failed 0 unsupported 0"
    assert run(line | {"query": "snapshot | detect(A B)"})[1][-1] == "passed 0 failed 0 unsupported 1"
    assert run(line | {"query": "session(timeout=3) | snapshot | sum(v)"})[1][0].endswith("no word for session")
    inputs: dict[str, Any] = {
        "s": {"fields": {"v": "int64"}, "events": [each | {"partition": each["start"]} for each in events]}
    }
    settings = {"on_completed": "cti_infinity", "partitioned": True}
    apart: dict[str, Any] = {"settings": settings, "check": {"ctis": "not asserted"}}
    expected = [{"kind": "insert", "start": 2, "end": 5, "payload": {"total": 2, "n": 1}, "partition": 2}]
    found = run({**line, **apart, "inputs": inputs, "expected": expected})
    assert found[1][-1] == "passed 1 failed 0 unsupported 0"


@pytest.mark.parametrize(
    ("query", "values"),
    [
        ("where(v mod 2 = 0 and v > 1) | select(v * 10)", [20, 40]),
        ("where(v > 3 OR v = 1) | select(w=v / 2, v)", [{"w": 0, "v": 1}, {"w": 2, "v": 4}]),
        ("selectmany(repeat v + 1, v times) | where(v < 4)", [2, 3, 3]),
        ("selectmany(repeat v twice) | where(v = 4)", [4, 4]),
        ("alter_duration(9) | group_aggregate(key=v / 3, count(), sum(v mod 3)) -> key*100+count*10+sum", [23, 111]),
        ("alter_duration(9) | group_apply(key=v mod 2, snapshot | sum(v))", [1, 6]),
        ("alter_duration(9) | snapshot | sum_squares(v where v > 1)", [20]),
        (
            "alter_duration(9) | snapshot | aggregate(spread=variance_population(v), product(v))",
            [{"spread": 14 / 9, "product": 8.0}],
        ),
        ("alter_lifetime(start -> start + 5, dur=2) | select(start_time)", [5, 5, 5]),
        ("shift(by = start+1) | select(v)", [1, 2, 4]),
    ],
)  # fmt: skip
def test_expressions_of_trills_written_pipelines(run: Any, query: str, values: list[Any]) -> None:
    events = [{"kind": "insert", "start": 0, "end": 1, "payload": {"v": v}} for v in (1, 2, 4)]
    line = {
        "id": "written-0",
        "area": "stateless",
        "inputs": {"s": {"fields": {"v": "int64"}, "events": events}},
        "settings": {"on_completed": "cti_infinity"},
        "query": query,
        "expected": [],
        "check": {"form": "logical", "float_tolerance": 1e-9},
    }
    found = run(line)[1]
    start = 5 if query.startswith("alter_lifetime") else 1 if query.startswith("shift") else 0
    end = start + (9 if query.startswith("alter_duration") else 2 if query.startswith("alter_lifetime") else 1)
    payloads = [value if isinstance(value, dict) else {"value": value} for value in values]
    rows = [{"kind": "insert", "start": start, "end": end, "payload": payload} for payload in payloads]
    assert run(line | {"expected": rows})[1][-1] == "passed 1 failed 0 unsupported 0", found


def test_what_is_final_of_an_input_that_has_not_ended(run: Any) -> None:
    # [0 5) and [3 9): when the CTI is 4, the first stretch is over, and the second may yet be another one.
    rows = [("insert", 0, 5), ("insert", 3, 9), ("cti", 4, None)]
    events = [{"kind": kind, "start": s, "end": e, "payload": {} if kind == "cti" else {"v": s}} for kind, s, e in rows]
    line = {
        "id": "written-0",
        "area": "flush",
        "inputs": {"s": {"fields": {"v": "int64"}, "events": events}},
        "settings": {"on_completed": "none"},
        "query": "snapshot | count()",
        "expected": [{"kind": "insert", "start": 0, "end": 3, "payload": 1}],
        "check": {"form": "logical", "ctis": "not asserted"},
    }
    assert run(line)[1][-1] == "passed 1 failed 0 unsupported 0"
    assert run(line | {"settings": {"on_completed": "cti_infinity"}})[0] == 1


def written(query: str, *expected: tuple[int, int | None, dict[str, Any]], **inputs: list[tuple[Any, ...]]) -> Any:
    """A pipeline over inputs of (start, end, k, value) each; the value is called as the input begins."""
    return {
        "id": "written-0",
        "area": "two",
        "inputs": {
            name: {
                "fields": {"k": "int64", name[0]: "string"},
                "events": [
                    {"kind": "insert", "start": s, "end": e, "payload": {"k": k, name[0]: v}} for s, e, k, v in rows
                ],
            }
            for name, rows in inputs.items()
        },
        "settings": {"on_completed": "cti_infinity"},
        "query": query,
        "expected": [{"kind": "insert", "start": s, "end": e, "payload": payload} for s, e, payload in expected],
        "check": {"form": "logical"},
    }


LEFT_ROWS = [(0, 9, 1, "ab"), (4, None, 2, "c")]
RIGHT_ROWS = [(3, 6, 1, "ad"), (6, 7, 12, "x")]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("join(left, right, key=k) -> (k, l, r)", [(3, 6, {"k": 1, "l": "ab", "r": "ad"})]),
        ("join(left, right, key=k) | select(r)", [(3, 6, {"r": "ad"})]),
        (
            "anti_join(left, right, key=k)",
            [(0, 3, {"k": 1, "l": "ab"}), (6, 9, {"k": 1, "l": "ab"}), (4, None, {"k": 2, "l": "c"})],
        ),
        ("clip(left, right, no key) | where(l='c')", [(4, 6, {"k": 2, "l": "c"})]),
        (
            "x = alter_duration(left, 6); clip(x, right, left key=k, right key=k mod 10)",
            [(0, 3, {"k": 1, "l": "ab"}), (4, 6, {"k": 2, "l": "c"})],
        ),
        (
            "left_outer_join(where(k=1), right, left.k=right.k AND right.r!='ad', unmatched -> r='none') -> (l, r)",
            [(0, 9, {"l": "ab", "r": "none"})],
        ),
        (
            "full_outer_join(left, where(k>5), left.k=right.k) -> (l) with nulls",
            [(0, 9, {"l": "ab"}), (4, None, {"l": "c"})],
        ),
        (
            "union(left | select(k), right | select(k)) | where(k in (1,12))",
            [(0, 9, {"k": 1}), (3, 6, {"k": 1}), (6, 7, {"k": 12})],
        ),
    ],
)
def test_trills_written_pipelines_of_two_streams(
    run: Any, query: str, expected: list[tuple[int, int | None, dict[str, Any]]]
) -> None:
    code, printed = run(written(query, *expected, left=LEFT_ROWS, right=RIGHT_ROWS))
    assert code == 0, printed
    assert printed[-1] == "passed 1 failed 0 unsupported 0", printed
    assert run(written(query, left=LEFT_ROWS, right=RIGHT_ROWS))[0] == 1
