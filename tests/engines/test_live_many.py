"""Every kind of query over some two hundred events of a few keys, null among them: live in random cuts as at once.

Drawn events are few; with more, keys come and go, and come again in another order than they have numbers. Now and then
a query is saved, and may go on from there.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import gpu_ops as g
from tests.support.damage import QUERIES, events
from tests.support.rows import rows
from tests.support.ticks import at_us

CUT = [name for name in QUERIES if not name.startswith("edges")]
MANY = 200


@pytest.mark.parametrize("device", ["cpu", "array"])
@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 30), marks=pytest.mark.deep)])
def test_cuts_and_saves_change_nothing(name: str, seeds: range, device: str, tmp_path: Path) -> None:
    for seed in seeds:
        chance, query = random.Random(seed), QUERIES[name]()
        whole, live = query.start(device="cpu"), query.start(device=device)
        given = {each: events(3 * seed + at, 0, 9, MANY) for at, each in enumerate(live.input_ctis())}
        for each, table in given.items():
            whole.push(table, input=each)
        whole.close()
        at = dict.fromkeys(given, 0)
        while left := [each for each in at if at[each] < MANY]:
            each = chance.choice(left)
            upto = min(MANY, at[each] + chance.choice([1, 2, 5, 17, 40]))
            live.push(given[each].slice(at[each], upto - at[each]), input=each)
            at[each] = upto
            if upto < MANY:
                live.advance(at_us(given[each]["at"][upto].as_py() * 1_000_000), input=each)
            if chance.random() < 0.15:
                live.save(tmp_path / f"{seed}")
                if chance.random() < 0.5:
                    live = g.restore(tmp_path / f"{seed}", query, device=device)
        live.close()
        assert rows(live.results()) == rows(whole.results())
