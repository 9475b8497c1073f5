"""Groups at outputs: for their values, what happens between two outputs of a rate happens at the second one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import narwhals as nw
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.core.time import LIFETIME, MAX_TIME
from gpu_ops.core.turns import CLOCK, EMPTY, HELD, NEW, OLD, ORDER, PLACE, ROW, TURN
from gpu_ops.errors import PlanError
from gpu_ops.plan.clock_windows import ClockSpan, UntilTick
from gpu_ops.plan.deliveries import Delivered, Deliveries
from gpu_ops.plan.expressions import bare_column, column_names
from gpu_ops.plan.nodes import Node
from gpu_ops.plan.rates import EveryPeriod, EveryRows, Rate
from tests.support.devices import HERE
from tests.support.examples import examples
from tests.support.on_turns import ROWS, Placed, Row, Script, Stepped, Tick, feeds, placed, scripts

_SPAN = 10
_RATES: dict[str, EveryPeriod | EveryRows] = {
    "every 7 ticks": EveryPeriod(ClockSpan(ticks=7)),
    "every 3 rows": EveryRows(3),
}


def _in_turns(expression: nw.Expr) -> str:
    """Places stand for times."""
    return PLACE if column_names(expression, LIFETIME) else str(bare_column(expression))


Shown = tuple[int, int, str | None, int, int | None, int | None]


def _plan(rate: str, *, touched: bool) -> Any:
    def made(arrivals: Node, ticks: Node) -> Deliveries:
        total = Delivered(replace(g.sum("v"), name="total"))
        latest = Delivered(replace(g.last("v", order=PLACE).over(_in_turns), name="latest"))
        return Deliveries(
            UntilTick(arrivals, ticks, CLOCK, ClockSpan(ticks=_SPAN)),
            ticks,
            "group",
            (("k",),),
            (Delivered(replace(g.count(), name="n")), total, latest),
            new=True,
            old=touched,
            content=True,
            snapshot=Rate(_RATES[rate], since=0),
            touched=touched,
        )

    return made


@dataclass
class _ByHand:
    """Rows in a window of time, turn by turn, and what is output of their groups."""

    rate: str
    touched: bool
    rows: list[tuple[int, Placed]] = field(default_factory=list)
    before: dict[Any, tuple[Any, ...]] = field(default_factory=dict)
    changed: list[Any] = field(default_factory=list)
    due: int | None = None
    entered: int = 0
    left: int = 0
    shown: list[Shown] = field(default_factory=list)

    def take(self, each: Placed) -> None:
        turn = each.place // TURN
        if isinstance(each.turn, Row):
            self.rows.append((each.clock + _SPAN, each))
            self.moved(each.clock, each.turn.k, entered=1)
            self.by_count(turn)
        elif isinstance(each.turn, Tick):
            gone = [row for row in self.rows if row[0] <= each.clock]
            fell, late = self.due, False
            fires = self.rate == "every 7 ticks" and fell is not None and each.clock >= fell
            if fires and fell is not None:
                late = bool(gone) and min(due for due, _ in gone) > fell
                self.due = fell + 7 * ((each.clock - fell) // 7 + 1)
                if late:
                    self.output(turn)
            for row in gone:
                self.rows.remove(row)
                self.moved(each.clock, row[1].turn.k, left=1)  # type: ignore[union-attr]
            if fires and not late:
                self.output(turn)
            self.by_count(turn)
        else:
            self.shown += [(turn, HELD, key, *values) for key, values in self.values().items()]

    def moved(self, clock: int, key: Any, entered: int = 0, left: int = 0) -> None:
        self.due = clock + 7 if self.due is None else self.due
        self.entered, self.left = self.entered + entered, self.left + left
        self.changed.append(key)

    def by_count(self, turn: int) -> None:
        if self.rate == "every 3 rows" and max(self.entered, self.left) >= 3:
            self.output(turn)

    def values(self) -> dict[Any, tuple[Any, ...]]:
        found: dict[Any, list[Any]] = {}
        for _, each in self.rows:
            found.setdefault(each.turn.k, []).append(each.turn.v)  # type: ignore[union-attr]
        made = {}
        for key, some in found.items():
            known = [v for v in some if v is not None]
            made[key] = (len(some), sum(known) if known else None, known[-1] if known else None)
        return made

    def output(self, turn: int) -> None:
        self.entered = self.left = 0
        now, nothing = self.values(), (None, None, None)
        if self.touched:
            # A row for each group that changed: as new rows in order of its last change, as old ones of its first.
            last = list(reversed(dict.fromkeys(reversed(self.changed))))
            self.shown += [(turn, NEW, key, *now.get(key, nothing)) for key in last]
            self.shown += [(turn, OLD, key, *self.before.get(key, nothing)) for key in dict.fromkeys(self.changed)]
        else:
            self.shown += [(turn, NEW, key, *values) for key, values in now.items()]
        self.before, self.changed = now, []


def _stepped(script: Script, plan: Any, device: str, chance: random.Random | None) -> list[Shown]:
    live = Stepped(plan, device, opens=chance is not None and chance.random() < 0.5)
    turns = placed(script)
    at = 0
    while at < len(turns):
        size = len(turns) if chance is None else chance.choice([1, 1, 2, 5])
        some = turns[at : at + size]
        live.step(some, some[-1].place + TURN)
        at += size
        if chance is not None and chance.random() < 0.4:
            live.again()
    live.step([], MAX_TIME)
    rows = [row for row in live.found if row[ROW] != EMPTY]
    rows.sort(key=lambda row: (row["start"], row[ROW], row[ORDER]))
    return [(row["start"] // TURN, row[ROW], row["k"], row["n"], row["total"], row["latest"]) for row in rows]


def _in_any_order(rows: Sequence[Shown]) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.parametrize("shown", ["touched", "all"])
@pytest.mark.parametrize("rate", sorted(_RATES))
@given(scripts(ROWS), st.randoms(), st.sampled_from(HERE))
@examples(20, dear=True)
def test_as_by_hand(rate: str, shown: str, script: Script, chance: random.Random, device: str) -> None:
    """Turn by turn, in one step and in any cut, with the state as tables in between."""
    touched = shown == "touched"
    hand = _ByHand(rate, touched)
    for each in placed(script):
        hand.take(each)
    for cut in (None, chance):
        found = _stepped(script, _plan(rate, touched=touched), device, cut)
        if touched:
            without_content = [[row for row in rows if row[1] != HELD] for rows in (found, hand.shown)]
            assert without_content[0] == without_content[1]
        assert _in_any_order(found) == _in_any_order(hand.shown)


def test_only_groups_in_windows_are_output_where_they_were_touched() -> None:
    arrivals, ticks = feeds()
    with pytest.raises(PlanError, match="Only groups in a window"):
        Deliveries(arrivals, ticks, "row", touched=True)
