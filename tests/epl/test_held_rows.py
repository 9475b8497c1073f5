"""Rows that are held until an output: in which order they are, and what they see then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gpu_ops.errors import TextError
from tests.support.epl_interpreter import Interpreter
from tests.support.epl_on_runtime import RuntimeEngine
from tests.support.epl_scripts import NAME, SCHEMA, Advance, Scenario, Send, Step, played, same_traces


def _event(v: int | None, ts: int = 0, k: str = "a", x: float | None = None) -> Send:
    return Send("A", {"k": k, "v": v, "x": x, "ts": ts})


def _delivered(text: str, *steps: Step, device: str = "cpu") -> list[Any]:
    """What the last step delivers: a runtime and the interpreter agree on it, and on all steps before."""
    scenario = Scenario(f"@name('{NAME}') {text}", steps, in_any_order=False)
    found = played(scenario, RuntimeEngine(SCHEMA, device=device))
    assert same_traces(found, played(scenario, Interpreter(SCHEMA)), scenario), found
    return found[-1]


def _column(rows: Sequence[Any] | None, name: str) -> list[Any]:
    return [row[name] for row in rows or ()]


@pytest.mark.parametrize("device", ["cpu", "array"])
def test_the_last_row_that_leaves_a_window_in_order_is_the_last_of_its_order(device: str) -> None:
    """By stamps, whichever came first:  v=3 at 3500 | v=0 at 2750 | 4501: both leave, 3500 behind 2750."""
    text = "select rstream v from A#time_order(ts, 1 sec) output last every 2 events"
    ((new, _),) = _delivered(text, _event(3, 3500), _event(0, 2750), Advance(4501), device=device)
    assert _column(new, "v") == [3]


@pytest.mark.parametrize("device", ["cpu", "array"])
def test_a_row_that_waits_sees_the_window_as_it_is_output(device: str) -> None:
    """Window of two:  1 | 2 | 3, 4. Both rows of an output see what is in the window then, and none before."""
    text = "select v, prevtail(0, v) as t, prev(1, v) as p, prevwindow(v) as w from A#length(2) output every 2 events"
    ((new, _),) = _delivered(text, *(_event(v) for v in (1, 2, 3, 4)), device=device)
    assert new == [{"v": 3, "t": 3, "p": 3, "w": [4, 3]}, {"v": 4, "t": 3, "p": 3, "w": [4, 3]}]


def test_aggregated_rows_that_wait_see_it_too_unless_the_last_one_is_asked_for() -> None:
    """1 | 2 through a window of three: the first row is made with the second, or, of the last rows, as it came."""
    shown = "select v, prevtail(0, v) as t, prevcount(v) as c, count(*) as n from A#length(3) output {} every 2 events"
    ((new, _),) = _delivered(shown.format(""), _event(1), _event(2))
    assert [(row["c"], row["n"]) for row in new] == [(2, 1), (2, 2)]
    ((new, _),) = _delivered(shown.format("all"), _event(1), _event(2))
    assert [(row["c"], row["n"]) for row in new] == [(1, 1), (2, 2)]


def test_a_row_of_an_earlier_batch_sees_nothing_of_its_own() -> None:
    """Batches of two:  1, 2 | 3, 4: where both are output, the first batch is not the one that was posted last."""
    text = "select v, prev(1, v) as p, prevtail(0, v) as t from A#length_batch(2) output every 4 events"
    ((new, _),) = _delivered(text, *(_event(v) for v in (1, 2, 3, 4)))
    assert [(row["p"], row["t"]) for row in new] == [(None, 3), (None, 3), (None, 3), (3, 3)]


def test_groups_of_windows_are_seen_by_their_keys() -> None:
    """a1 | b2 | a3: where all are output, a's rows see a's window."""
    text = "select k, prevwindow(v) as w, prev(v, v) as p from A#groupwin(k)#length(2) output every 3 events"
    ((new, _),) = _delivered(text, _event(1, k="a"), _event(0, k="b"), _event(3, k="a"))
    assert _column(new, "w") == [[3, 1], [0], [3, 1]]


def test_prev_is_refused_where_another_window_is_there_at_the_output() -> None:
    for text, said in (
        ("select prev(1, v) from A#time(1 sec) output every 1 sec", "clock's window beside outputs at the clock"),
        ("select v from A#length(2) having prev(1, v) > 0 output every 2 events", "prev in 'having'"),
    ):
        with pytest.raises(TextError, match=said):
            RuntimeEngine(SCHEMA).deploy(text)


# Aggregates of what has left


@pytest.mark.parametrize("device", ["cpu", "array"])
def test_nth_is_what_left_last_where_no_more_rows_are_left(device: str) -> None:
    """Window of two:  1 | 2 | null | 3: with 2 and null in it one value is left, and nth(v, 1) is still 1; then 2."""
    steps = [_event(v) for v in (1, 2, None)]
    text = "select nth(v, 1) as n from A#length(2)"
    assert _delivered(text, *steps, device=device) == [([{"n": 1}], None)]
    assert _delivered(text, *steps, _event(3), device=device) == [([{"n": 2}], None)]


def test_an_event_with_a_null_key_gives_way_to_any_other() -> None:
    """v: null at 1 | null at 2 | 0 at 3 | null at 4."""
    text, steps = "select maxbyever(v).ts as t from A", [_event(v, at) for at, v in enumerate((None, None, 0, None), 1)]
    told = [_delivered(text, *steps[:count])[0][0][0]["t"] for count in range(1, 5)]
    assert told == [1, 2, 3, 3]


# Selections of rows that were held


def test_the_old_row_of_a_first_one_that_having_let_through_is_as_it_is_afterwards() -> None:
    """Twice a, where two are asked for: the second is the first that passes, and it is the old row too."""
    text = "select irstream k, count(*) as n from A group by k having count(*) >= 2 output first every 5 events"
    assert _delivered(text, _event(1), _event(1)) == [([{"k": "a", "n": 2}], [{"k": "a", "n": 2}])]


def test_all_rows_in_an_order_have_none_for_what_leaves() -> None:
    """1 enters at 0 and leaves at 500, when all rows are output: the row of its entry, and no other of the group."""
    text = "select k, v, sum(v) as s from A#time(500 msec) group by k output all every 500 msec"
    assert [row["s"] for row in _delivered(text, _event(1), Advance(500))[0][0]] == [1, None]
    assert [row["s"] for row in _delivered(f"{text} order by v", _event(1), Advance(500))[0][0]] == [1]


def test_a_limit_counts_equal_rows() -> None:
    """2 and 2 leave at once: the second of them is within the limit, whichever is the first of equal ones."""
    text = "select rstream distinct v from A#time(1 sec) limit 1 offset 1"
    assert _delivered(text, _event(2), _event(2), Advance(1000)) == [([{"v": 2}], None)]


@pytest.mark.parametrize("device", ["cpu", "array"])
def test_what_groups_of_a_window_lose_at_one_move_of_the_clock_is_one_delivery(device: str) -> None:
    """Key a at 0, b at 400; the clock jumps to 3000: both have left, and there is one row of the count."""
    steps: list[Step] = [_event(1, k="a"), Advance(400), _event(1, k="b"), Advance(3000)]
    text = "select irstream count(*) as n from A#groupwin(k)#time(1 sec)"
    assert _delivered(text, *steps, device=device) == [([{"n": 0}], [{"n": 2}])]
    assert _delivered(f"{text} output first every 2 events", *steps, device=device) == [([{"n": 0}], [{"n": 2}])]


def test_a_snapshot_of_a_window_in_order_is_in_its_order() -> None:
    """0 | 3 | 2, the greatest first: 3, 2, 0."""
    ((new, _),) = _delivered("select v from A#sort(3, v desc) output snapshot every 3 events", *map(_event, (0, 3, 2)))
    assert _column(new, "v") == [3, 2, 0]
