"""Everything at once: kills, merged and expired batches, two inputs, late rows, and a store that another runs into."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import settings

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from gpu_ops.errors import SourceError
from tests.support.followers import batch_of_two, both, follow_two, late, run
from tests.support.following import facts_of, fill, query
from tests.support.rows import rows
from tests.support.ticks import at_us

pytestmark = pytest.mark.slow

KILLS = 40 if settings().max_examples > 1000 else 4
BATCHES = 60


def tidy(folder: Path, chance: random.Random) -> None:
    """What an operator does between two runs: each store is merged, and what the checkpoint has passed expires."""
    path = folder / "check pöint"
    for name in ("one", "two", "out", "late"):
        store = g.store(folder / name)
        if store.sequence and chance.random() < 0.6:
            store.compact(chance.choice([10, 100]))
    if path.exists():
        for name in ("one", "two"):
            passed = int(facts_of(path)["positions"][f"store {name}"])
            files = [
                file for file in g.store(folder / name).log().files if file.last <= passed and file.end is not None
            ]
            ends = [
                file.end for file in g.store(folder / name).log().files if file.last > passed and file.end is not None
            ]
            if files and ends:
                g.store(folder / name).expire(at_us(min(ends) - 1))


@pytest.mark.services
def test_nothing_is_lost_and_nothing_is_there_twice(tmp_path: Path) -> None:
    folder, chance = tmp_path / "a plåce for störes", random.Random(6)
    folder.mkdir()
    tables: dict[str, pa.Table] = {}
    for name in ("one", "two"):
        made = [batch_of_two([max(0, at * 4 + chance.randrange(-9, 5)) for _ in range(4)]) for at in range(BATCHES)]
        tables[name] = pa.concat_tables(made)
        with g.store(folder / name).writer() as writer:
            for each in made:
                writer.append(each)
            writer.advance(at_us(MAX_TIME))
    codes = []
    for _ in range(KILLS):
        codes.append(run(follow_two, folder, chance.uniform(0.3, 1.5)))
        tidy(folder, chance)
    assert -signal.SIGKILL in codes
    assert run(follow_two, folder) == 0
    out = g.store(folder / "out")
    assert rows(out.read()) == rows(both(**tables).collect(device="cpu"))
    assert out.cti == MAX_TIME
    expected = [
        late(table, name).late().collect(device="cpu").select(["start", "end"]) for name, table in tables.items()
    ]
    assert sum(each.num_rows for each in expected) > 10
    assert rows(g.store(folder / "late").read().select(["start", "end"])) == rows(pa.concat_tables(expected))
    assert all(g.store(folder / name).verify().sound for name in ("one", "two", "out", "late"))
    # Nothing is left to do, and somebody else's late rows are noticed.
    assert run(follow_two, folder) == 0
    g.store(folder / "late").append(g.store(folder / "late").read().slice(0, 1))
    assert run(follow_two, folder) == 1


KILLED = """
import os, signal, sys
from pathlib import Path
import gpu_ops as g
from tests.support.following import batch, query

folder, path = Path(sys.argv[1]), Path(sys.argv[1]) / "checkpoint"
plan = query(batch(0).slice(0, 0))
live = g.restore(path, plan, device="cpu") if path.exists() else plan.start(device="cpu")
steps = iter(range(1, 1000))
live.follow(
    g.store(folder / "in"), into=g.store(folder / "out"), checkpoint=path, every=1000, timeout=0,
    on_step=lambda _: next(steps) == 50 and os.kill(os.getpid(), signal.SIGKILL),
)
"""


@pytest.mark.services
def test_what_expires_after_a_kill_is_missed_aloud(tmp_path: Path) -> None:
    source = fill(g.store(tmp_path / "in"), 60)
    arguments = [sys.executable, "-c", KILLED, str(tmp_path)]
    here = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    assert subprocess.run(arguments, check=False, env=here).returncode == -signal.SIGKILL
    out = g.store(tmp_path / "out")
    before = out.read()
    assert out.sequence == 50
    source.expire(at_us(400))
    source.compact()
    again = subprocess.run(arguments, check=False, env=here, capture_output=True, text=True)
    assert again.returncode == 1
    assert "after number 0, which the query had come to, have expired" in again.stderr
    assert out.read().equals(before)
    with pytest.raises(SourceError, match="holds the results of another run"):
        query(source.read().slice(0, 0)).start(device="cpu").follow(source, into=out, timeout=0)
