"""Output every so long within contexts: each instance has a grid of its own, beside a walk from event to event."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import epl
from gpu_ops.errors import TextError
from tests.support.epl_at_rest import in_turns, live, rows, told
from tests.support.examples import examples

_SCHEMA = pa.schema(
    [("seq", pa.int64()), ("at", pa.int64()), ("k", pa.string()), ("v", pa.int32()), ("m", pa.string())]
)
_SPAN, _LIFE = 2_000, 5_000
_CONTEXTS = {
    "for ever": "create context C partition by k from A;",
    "for a time": "create context C partition by k from A terminated after 5 sec;",
    "from B on": "create context C start B end after 5 sec;",
}
_EVERY, _AT = "every 2 sec", "at (*, *, *, *, *, */2)"
_RATES = st.sampled_from([_EVERY, _EVERY, _AT])
_STATEMENTS = {
    "each": "select k, v from A output {rate}",
    "each of a window": "select k, v from A#length(2) output all {rate}",
    "last": "select k, v from A output last {rate}",
    "first": "select k, v from A output first {rate}",
    "each and end": "select k, v from A output {rate} and when terminated",
    "sums": "select sum(v) as s from A output {rate}",
    "last sum": "select sum(v) as s from A output last {rate}",
    "first sum": "select sum(v) as s from A output first {rate}",
    "sum now": "select sum(v) as s from A output snapshot {rate}",
    "last of groups": "select m, sum(v) as s from A group by m output last {rate}",
    "all groups": "select m, sum(v) as s from A group by m output all {rate}",
    "groups now": "select m, sum(v) as s from A group by m output snapshot {rate}",
}


@dataclass
class _Instance:
    """What an instance holds: from the first row on a grid of times, and what came since its last point.

    The times of the crontab, every even second, are a grid that begins with the epoch.
    """

    begun: int
    rate: str
    since: int | None = None
    passed: int = 0
    held: list[Mapping[str, Any]] = field(default_factory=list)
    sums: dict[str, int] = field(default_factory=dict)

    def come(self, row: Mapping[str, Any], now: int, how: str) -> list[Mapping[str, Any]]:
        """A row comes; what is output at once."""
        by = row["m"] if "groups" in how else ""
        self.sums[by] = self.sums.get(by, 0) + row["v"]
        made = {"k": row["k"], "v": row["v"]}
        if "sum" in how:
            made = {"s": self.sums[by]}
        elif "groups" in how:
            made = {"m": by, "s": self.sums[by]}
        is_first = self.since is None
        begin = now if self.rate == _EVERY else now - now % _SPAN
        self.since = begin if self.since is None else self.since
        if "first" in how:
            point = (now - self.since) // _SPAN
            given = is_first or point > self.passed
            self.passed = point
            return [made] if given else []
        self.held.append(made)
        return []

    def ticked(self, now: int, how: str) -> list[Mapping[str, Any]]:
        """What is output as the clock shows a time."""
        if "first" in how or self.since is None or (now - self.since) // _SPAN == self.passed:
            return []
        self.passed = (now - self.since) // _SPAN
        found, self.held = self.held, []
        if how in {"last sum", "sum now"} or (how == "sums" and not found):
            return [{"s": self.sums[""]}]
        if how in {"all groups", "groups now"}:
            return [{"m": m, "s": s} for m, s in self.sums.items()]
        if how == "last of groups":
            return list({row["m"]: row for row in found}.values())
        return found[-1:] if how == "last" else found


def _expected(frames: Mapping[str, pa.Table], context: str, how: str, until: int, rate: str) -> list[Mapping[str, Any]]:
    """What is delivered, event by event."""
    events = [(row["at"], row["seq"], name, row) for name, table in frames.items() for row in table.to_pylist()]
    alive: dict[Any, _Instance] = {}
    made: list[Mapping[str, Any]] = []
    clock = turn = 0

    def tick(now: int) -> None:
        for key in [key for key, each in alive.items() if context != "for ever" and now >= each.begun + _LIFE]:
            gone = alive.pop(key)
            made.extend({"turn": turn, "row": "new", **row} for row in gone.held if how == "each and end")
        for each in alive.values():
            made.extend({"turn": turn, "row": "new", **row} for row in each.ticked(now, how))

    for at, _, name, row in sorted(events, key=lambda each: each[:2]):
        if at > clock:
            turn, clock = turn + 1, at
            tick(at)
        turn += 1
        if name == "B":
            alive.setdefault(None, _Instance(clock, rate)) if context == "from B on" else None
            continue
        key = None if context == "from B on" else row["k"]
        if context != "from B on":
            alive.setdefault(key, _Instance(clock, rate))
        if key in alive:
            made.extend({"turn": turn, "row": "new", **each} for each in alive[key].come(row, clock, how))
    if until > clock:
        turn += 1
        tick(until)
    return made


@st.composite
def _events(draw: Any) -> Mapping[str, pa.Table]:
    found: dict[str, list[Mapping[str, Any]]] = {"A": [], "B": []}
    now = 0
    for number in range(draw(st.integers(0, 18))):
        now += draw(st.sampled_from([0, 0, 500, 1_000, 1_500, 2_000, 6_000]))
        row = {"seq": number, "at": now, "k": draw(st.sampled_from("xy")), "v": draw(st.integers(-2, 6))}
        found[draw(st.sampled_from("AAAB"))].append({**row, "m": draw(st.sampled_from("pq"))})
    return {name: pa.Table.from_pylist(list(some), _SCHEMA) for name, some in found.items()}


def _text(context: str, how: str, rate: str) -> str:
    return f"{_CONTEXTS[context]} context C {_STATEMENTS[how].format(rate=rate)}"


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "array"])
@given(st.sampled_from([*_CONTEXTS]), st.sampled_from([*_STATEMENTS]), _RATES, _events())
@examples(60, dear=True)
def test_each_instance_has_a_grid(
    device: str, context: str, how: str, rate: str, frames: Mapping[str, pa.Table]
) -> None:
    found = epl.query(_text(context, how, rate), frames, order="seq", time="at", until=90_000).collect(device=device)
    assert in_turns(rows(found)) == in_turns(_expected(frames, context, how, 90_000, rate))


@pytest.mark.slow
@given(st.sampled_from([*_CONTEXTS]), st.sampled_from([*_STATEMENTS]), _RATES, _events(), st.integers(0, 1 << 30))
@examples(30, dear=True)
def test_it_is_so_in_any_cut(
    tmp_path_factory: pytest.TempPathFactory,
    context: str,
    how: str,
    rate: str,
    frames: Mapping[str, pa.Table],
    seed: int,
) -> None:
    query = epl.query(_text(context, how, rate), frames, order="seq", time="at", until=90_000)
    found = rows(live(query, frames, "cpu", random.Random(seed), tmp_path_factory.mktemp("live")))
    assert in_turns(found) == in_turns(_expected(frames, context, how, 90_000, rate))
    assert in_turns(told(_text(context, how, rate), frames, 90_000)) == in_turns(found)


# What users see


def _sums(told_of: Sequence[Any]) -> list[Any]:
    return [each.new.to_pylist() if each.new is not None else None for each in told_of]


def test_a_grid_begins_with_the_first_row_of_its_instance() -> None:
    """Those of a at 2 s and at 4 s, those of b at 3 s and at 5 s.

    seconds   0    1    2    3    4    5
    a         1    2
    b              5
    sums                a:3  b:5  a:3  b:5
    """
    runtime = epl.Runtime({"A": {"k": "string", "v": "int"}})
    runtime.deploy("""
        create context ByKey partition by k from A;
        context ByKey select context.key1 as k, sum(v) as s from A output last every 2 sec
    """)
    runtime.send("A", {"k": "a", "v": 1})
    runtime.advance(1_000)
    runtime.send("A", [{"k": "a", "v": 2}, {"k": "b", "v": 5}])
    found = {now // 1_000: _sums(runtime.advance(now)) for now in (2_000, 3_000, 4_000, 5_000)}
    assert found == {
        seconds: [[{"k": k, "s": s}]] for seconds, k, s in [(2, "a", 3), (3, "b", 5), (4, "a", 3), (5, "b", 5)]
    }


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("select k, v from A#time(3 sec) output every 2 sec", "output rates of windows of time"),
        ("select k, v from A output snapshot every 2 sec", "output snapshot of un-aggregated"),
        ("select m, sum(v) as s from A#length(2) group by m output all every 2 sec", "output all of row per group in"),
        ("select m, sum(v) as s from A group by m output first every 2 sec", "output first of row per group"),
        ("select irstream sum(v) as s from A output every 2 sec", "old rows of row for all"),
        ("select sum(v) as s from A output every 2 sec and when terminated", "output rates of row for all and w"),
        ("select k, v from A output every 2 months", "output rates by months"),
        ("select sum(v) as s from A having sum(v) > 2 output every 2 sec", "'having' beside output rates"),
    ],
)  # fmt: skip
def test_what_there_is_not_is_refused(statement: str, said: str) -> None:
    runtime = epl.Runtime({"A": {"k": "string", "v": "int", "m": "string"}})
    with pytest.raises(TextError, match=f"gpu_ops has no {said}"):
        runtime.deploy(f"create context C partition by k from A; context C {statement}")
