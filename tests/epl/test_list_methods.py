"""Methods of `sorted`, `window` and lists, in a select clause and of a table's columns."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_ops.epl import Runtime
from gpu_ops.errors import TextError

TYPES = {"T": {"k": "string", "v": "int"}, "Ask": {"v": "int"}}
ROWS = [("a", 1), ("b", 1), ("c", 4), ("d", 6), ("e", 6)]


def _told(text: str, *, device: str = "cpu", together: bool = False) -> list[Any]:
    """What the last statement gives for the rows of T, then for an Ask of each value from 0 to 7."""
    runtime = Runtime(TYPES, device=device)
    statement = runtime.deploy(text)[-1]
    found: list[Any] = []
    statement.listen(lambda new, old, of: found.extend([] if new is None else new.to_pylist()))
    rows = [dict(zip("kv", each, strict=True)) for each in ROWS]
    for each in [rows] if together else rows:
        runtime.send("T", each)
    asks = [{"v": v} for v in range(8)]
    for ask in [asks] if together else asks:
        runtime.send("Ask", ask)
    return found


@pytest.mark.parametrize("device", ["cpu", "array"])
@pytest.mark.parametrize("together", [False, True])
def test_of_a_table(device: str, together: bool) -> None:  # noqa: FBT001
    # keys   1    4  6
    # events a b  c  d e
    text = """
        create table S (s sorted(v) @type(T));
        into table S select sorted(*) as s from T;
        select S.s.floorKey(v) as f, S.s.higherEvent(v).k as h, S.s.getEvents(v).lastOf().k as g,
            S.s.containsKey(v) as c, S.s.eventsBetween(1, false, v, true).countOf() as b,
            S.s.countEvents() as n from Ask
    """
    told = _told(text, device=device, together=together)
    assert [each["f"] for each in told] == [None, 1, 1, 1, 4, 4, 6, 6]
    assert [each["h"] for each in told] == ["a", "c", "c", "c", "d", "d", None, None]
    assert [each["g"] for each in told] == [None, "b", None, None, "c", None, "e", None]
    assert [each["c"] for each in told] == [False, True, False, False, True, False, True, False]
    assert [each["b"] for each in told] == [0, 0, 0, 0, 1, 1, 3, 3]
    assert {each["n"] for each in told} == {5}


def test_of_aggregates() -> None:
    text = """
        select sorted(v desc).firstKey() as k, sorted(v).lastEvents().countOf() as n, window(*).last(1).k as w,
            window(k).countEvents() as c, first().k as f, sorted(v).minBy().firstOf().k as m from T#length(3)
    """
    assert _told(text)[2:] == [
        {"k": 4, "n": 1, "w": "b", "c": 3, "f": "a", "m": "a"},
        {"k": 6, "n": 1, "w": "c", "c": 3, "f": "b", "m": "b"},
        {"k": 6, "n": 2, "w": "d", "c": 3, "f": "c", "m": "c"},
    ]


def test_of_the_events_of_one_stream_of_a_join() -> None:
    text = "select minby(T.k).v as m, sorted(T.k).lastEvent().k as l from T#keepall, Ask#lastevent"
    assert _told(text)[-1] == {"m": 1, "l": "e"}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("sorted(v).subMap(1, true, 2, true)", "maps of keys and events"),
        ("sorted(v).last()", "no method 'last' of sorted"),
        ("sorted(v).ceilingKey()", "takes a key, and there are 0"),
        ("sorted(v).ceilingKey('a')", "The keys are of type int"),
        ("sorted(v + 1).firstKey()", "by what is no property"),
        ("sorted(v, k).ceilingEvent(1)", "ceilingEvent of several keys"),
    ],
)
def test_wrong(asked: str, said: str) -> None:
    with pytest.raises(TextError, match=said.replace("(", r"\(")):
        Runtime(TYPES).deploy(f"select {asked} from T#keepall")
