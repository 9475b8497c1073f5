"""Instances by verbs: they give what the same statements give in EPL."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops import epl
from gpu_ops.errors import ColumnError, PlanError

_LOGINS: dict[str, list[Any]] = {"at": [0, 1, 5], "user": ["a", "b", "a"], "n": [7, 8, 9]}
_LOGOUTS: dict[str, list[Any]] = {"at": [4, 9], "user": ["a", "a"]}
_CLICKS: dict[str, list[Any]] = {"at": [2, 3, 6, 8], "user": ["a", "b", "a", "c"], "v": [1, 2, 4, 8]}


def _told(columns: dict[str, list[Any]]) -> g.Stream:
    return g.events(pa.table(columns), start="at", unit="s")


def _three() -> tuple[g.ArrivalStream, g.ArrivalStream, g.ArrivalStream]:
    logins, logouts, clicks = g.arrivals(_told(_LOGINS), _told(_LOGOUTS), _told(_CLICKS))
    return logins, logouts, clicks


def _by_text(statement: str) -> list[Any]:
    """What a statement in a context of sessions delivers."""
    text = f"create context S initiated by Login as l terminated by Logout(user = l.user); context S {statement}"
    made = epl.query(text, Login=_told(_LOGINS), Logout=_told(_LOGOUTS), Click=_told(_CLICKS)).collect()
    return [{name: row[name] for name in row if name not in {"start", "end", "turn"}} for row in made.to_pylist()]


def _shown(stream: g.Stream, *names: str) -> list[Any]:
    rows: list[Any] = stream.collect().select(["row", *names]).to_pylist()
    return rows


def test_what_sessions_hold_where_they_end() -> None:
    """a: 0 … 4 with a click, b: 1 … with one, a: 5 … 9 with one; b's never ends."""
    logins, logouts, clicks = _three()
    sessions = logins.until(logouts, on="user")
    ends = clicks.within(sessions, on="user").at_ends(c=g.count(), s=g.sum("v"))
    assert _shown(ends, "user", "n", "c", "s") == _by_text(
        "select context.l.user as user, context.l.n as n, count(*) as c, sum(v) as s "
        "from Click(user = context.l.user) output last when terminated"
    )


def test_deliveries_within_sessions() -> None:
    """Sums of each session go on with each of its clicks, in windows of their own."""
    logins, logouts, clicks = _three()
    within = clicks.within(logins.until(logouts, on="user"))
    assert _shown(within.last(2).deliveries("instance", "v", shown="both"), "instance", "v") == _by_text(
        "select irstream context.id as instance, v from Click#length(2)"
    )
    assert _shown(within.deliveries("instance", s=g.sum("v")), "instance", "s") == _by_text(
        "select context.id as instance, sum(v) as s from Click"
    )


def test_one_at_a_time_by_the_clock() -> None:
    """One for each user, 3 s long: the second click of a in it starts none."""
    clicks = g.arrivals(_told(_CLICKS))
    within = clicks.within(clicks.until(after="3s", one_per="user"), on="user")
    assert _shown(within.deliveries("instance", "user_start", "v"), "instance", "user_start", "v") == [
        {"row": "new", "instance": 0, "user_start": "a", "v": 1},
        {"row": "new", "instance": 1, "user_start": "b", "v": 2},
        {"row": "new", "instance": 2, "user_start": "a", "v": 4},
        {"row": "new", "instance": 3, "user_start": "c", "v": 8},
    ]


def test_any_cut_of_the_input_gives_the_same() -> None:
    """Live, event by event, with the time said after each."""
    whole = g.arrivals(_told(_CLICKS))
    question = whole.within(whole.until(after="3s", one_per=())).deliveries("instance", s=g.sum("v"))
    live = question.start()
    for at in range(len(_CLICKS["at"])):
        live.push(pa.table({name: values[at : at + 1] for name, values in _CLICKS.items()}))
    live.close()
    rows = live.results()
    assert sorted(map(str, rows.to_pylist())) == sorted(map(str, question.collect().to_pylist()))


def test_what_makes_no_sense_is_said() -> None:
    logins, logouts, clicks = _three()
    sessions = logins.until(logouts, on="user")
    with pytest.raises(PlanError, match="within no instances"):
        clicks.at_ends(n=g.count())
    with pytest.raises(PlanError, match="no instances on the turns"):
        g.arrivals(_told(_CLICKS)).within(sessions)
    with pytest.raises(PlanError, match="no output rates"):
        clicks.within(sessions).deliveries(n=g.count()).output(every=2)
    with pytest.raises(PlanError, match="in EPL alone"):
        clicks.within(sessions).within(sessions)
    with pytest.raises(ColumnError):
        logins.until(logouts, on="nobody")
