"""What a statement holds of instances of its context is gone where these have ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops import epl
from gpu_ops.operators.runtime import released

_TYPES = {"Login": {"user": "long"}, "Logout": {"user": "long"}, "Click": {"user": "long", "v": "int"}}
_SESSIONS = "create context S initiated by Login as l terminated by Logout(user = l.user);"
_MINUTES = "create context S initiated by Login as l terminated after 1 min;"
_MINE = "Click(user = context.l.user)"
_AT_A_TIME = 8
"""So many sessions are there together."""

_STATEMENTS = [
    f"select sum(v) as s, max(v) as m from {_MINE}",
    f"select count(*) as c, sum(v) as s from {_MINE} output last when terminated",
    f"select v from {_MINE}#keepall output snapshot when terminated",
    f"select v from {_MINE} output all when terminated",
    f"select irstream v from {_MINE}#length(3)",
    f"select irstream v, sum(v) as s from {_MINE}#time(1 hour)",
    f"select v, count(*) as c from {_MINE}#time_batch(1 hour) group by v",
    f"select v, median(v) as m, window(v) as w from {_MINE}#keepall group by v",
    f"select v, prev(1, v) as p, prior(2, v) as q from {_MINE}#unique(v)",
    f"select v, (select count(*) from {_MINE}#keepall) as p from {_MINE}#sort(2, v)",
    f"select a.v as v from {_MINE}#keepall as a, {_MINE}#keepall as b where a.v = b.v",
    f"select a.v as v from {_MINE}#keepall as a left outer join {_MINE}#length(2) as b on a.v = b.v",
    f"select v from {_MINE} match_recognize (measures A.v as v pattern (A B) define B as B.v > A.v)",
]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(released, "FEW", 4)


def _held(runtime: epl.Runtime) -> int:
    """How many rows the tables of all statements have."""
    nodes = [node.own for each in runtime.statements for node in each.nodes if node.own is not None]
    return sum(len(table) for own in nodes for table in own.tables().values())


def _round(runtime: epl.Runtime, number: int) -> None:
    """Some users log in, click two times each, and log out; a minute goes by."""
    users = range(number * _AT_A_TIME, (number + 1) * _AT_A_TIME)
    runtime.send("Login", [{"user": user} for user in users])
    runtime.send("Click", [{"user": user, "v": user % 3 + at} for at in (1, 2) for user in users])
    runtime.send("Logout", [{"user": user} for user in users])
    runtime.advance((number + 1) * 60_000)


@pytest.mark.parametrize("statement", _STATEMENTS)
@pytest.mark.parametrize("context", [_SESSIONS, _MINUTES])
def test_what_is_held_does_not_grow(context: str, statement: str, tmp_path: Path) -> None:
    """Sessions end by logouts, or by the clock; half of the way the runtime is restored."""
    runtime = epl.Runtime(_TYPES, start=0)
    runtime.deploy(context + f"context S {statement}")
    held = []
    for number in range(12):
        if number == 6:
            runtime.checkpoint(tmp_path / "kept")
            runtime = epl.Runtime.restore(tmp_path / "kept")
        _round(runtime, number)
        held.append(_held(runtime))
    assert held[-1] <= max(held[:2]), held


def test_without_release_it_would_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(released.EndedInstances, "release", lambda self: None)
    runtime = epl.Runtime(_TYPES, start=0)
    runtime.deploy(_SESSIONS + f"context S select v from {_MINE}#keepall")
    held = []
    for number in range(3):
        _round(runtime, number)
        held.append(_held(runtime))
    assert held[0] < held[1] < held[2]


def test_few_instances_with_many_rows_are_released_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """One session at a time has thirty rows, and fewer than `FEW` sessions ever end."""
    monkeypatch.setattr(released, "FEW", 1000)
    monkeypatch.setattr(released, "MANY", 50)
    runtime = epl.Runtime(_TYPES, start=0)
    runtime.deploy(_SESSIONS + f"context S select v from {_MINE}#keepall")
    held = []
    for user in range(20):
        runtime.send("Login", {"user": user})
        runtime.send("Click", [{"user": user, "v": v} for v in range(30)])
        runtime.send("Logout", {"user": user})
        held.append(_held(runtime))
    assert max(held) < 30 * 5, held


def test_rows_of_instances_that_last_stay() -> None:
    """Of forty sessions one lasts: its sum goes on, and its window is what it was."""
    runtime = epl.Runtime(_TYPES, start=0)
    runtime.deploy(
        _SESSIONS
        + f"@name('sum') context S select sum(v) as s from {_MINE}; "
        + f"@name('window') context S select v from {_MINE}#length(2);"
    )
    runtime.send("Login", {"user": -1})
    runtime.send("Click", [{"user": -1, "v": v} for v in (1, 2, 4)])
    for number in range(5):
        _round(runtime, number)
    runtime.send("Click", {"user": -1, "v": 8})
    assert runtime.rows("sum").to_pylist() == [{"s": 15}]
    assert runtime.rows("window").to_pylist() == [{"v": 4}, {"v": 8}]


@pytest.mark.slow
def test_a_running_query_by_verbs_does_not_grow() -> None:
    """Three seconds from the first click of each user on, again and again."""
    clicks = g.events(pa.schema([("at", pa.int64()), ("user", pa.int64())]).empty_table(), start="at", unit="s")
    arrivals = g.arrivals(clicks)
    within = arrivals.within(arrivals.until(after="3s", one_per="user"), on="user")
    live = within.keep_all().deliveries("instance", c=g.count()).start()
    held: list[Any] = []
    for at in range(0, 240, 4):
        live.push(pa.table({"at": [at, at + 1], "user": [at, at + 1]}))
        live.advance(f"1970-01-01T00:{(at + 2) // 60:02}:{(at + 2) % 60:02}Z")
        held.append(sum(map(len, live.state().values())))
    assert held[-1] <= max(held[:12]), held
