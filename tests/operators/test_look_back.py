"""Rows with what entered before them: beside a brute force, in any cut, gone on from the state, on any device."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.core.time import MAX_TIME
from gpu_ops.core.turns import PLACE, TURN
from gpu_ops.errors import PlanError
from gpu_ops.plan.data_windows import DataWindow, Last, Sorted
from gpu_ops.plan.look_back import Earlier, LookBack
from gpu_ops.plan.nodes import Node, selected
from tests.support.devices import HERE
from tests.support.examples import examples
from tests.support.on_turns import ARRIVALS, ROWS, Script, Stepped, feeds, placed, scripts

_EARLIER = st.lists(st.tuples(st.sampled_from(["k", "v"]), st.integers(0, 3), st.booleans()), min_size=1, max_size=3)
_WINDOWS = {
    "rows": Last(2),
    "batches": Last(2, 2, partial=False),
    "sorted": Sorted(2, (("v", True),), refused="shown"),
}


def _window(name: str, arrivals: Node) -> Node:
    return selected(DataWindow(arrivals, _WINDOWS[name], ("k",)), ARRIVALS.names)


def _run(plan: Any, script: Script, device: str, chance: random.Random | None) -> list[dict[str, Any]]:
    """What a plan gives, with rows before their leaves are known; in steps if there is chance, else at once."""
    live, turns = Stepped(plan, device, opens=True), placed(script)
    while chance is not None and turns:
        some, turns = turns[: (size := chance.choice([1, 2, 5]))], turns[size:]
        live.step(some, some[-1].place + TURN)
        if chance.random() < 0.3:
            live.again()
    live.step(turns, MAX_TIME)
    return live.found


def _by_hand(rows: Sequence[dict[str, Any]], earlier: Sequence[Earlier]) -> list[dict[str, Any]]:
    """Each row with what is so many before it among all rows, or among those of its group and its moment."""
    ordered, made = sorted(rows, key=lambda row: (row["start"], row[PLACE])), []
    for row in ordered:
        mates = [each for each in ordered if (each["start"], each["k"]) == (row["start"], row["k"])]
        seen = {}
        for each in earlier:
            among = mates if each.together else ordered
            at = next(at for at, other in enumerate(among) if other is row) - each.back
            seen[each.name] = among[at][each.column] if at >= 0 else None
        made.append(row | seen)
    return made


@examples(dear=True)
@given(scripts(ROWS), st.sampled_from(sorted(_WINDOWS)), _EARLIER, st.randoms(), st.sampled_from(HERE))
def test_as_by_hand(script: Script, window: str, drawn: Any, chance: random.Random, device: str) -> None:
    earlier = tuple(Earlier(f"seen {at}", *each) for at, each in enumerate(drawn))
    windowed = _run(lambda arrivals, _: _window(window, arrivals), script, device, None)
    expected = sorted(map(repr, _by_hand(windowed, earlier)))
    for cut in (None, chance):
        found = _run(lambda arrivals, _: LookBack(_window(window, arrivals), earlier, ("k",)), script, device, cut)
        assert sorted(map(repr, found)) == expected


def test_what_cannot_be_is_refused() -> None:
    arrivals, ticks = feeds()
    with pytest.raises(PlanError, match="-1 rows before another"):
        LookBack(arrivals, (Earlier("later", "v", -1),))
    with pytest.raises(PlanError, match="rows on turns"):
        LookBack(ticks, (Earlier("before", "v", 1),))


def test_it_says_what_it_does() -> None:
    node = LookBack(feeds()[0], (Earlier("a", "v", 2), Earlier("b", "v", 1, together=True)), ("k",))
    assert node.describe() == "LookBack a=v 2 before, b=v 1 before in its batch for each k"
