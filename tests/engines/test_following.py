"""A running query from store to store: whenever it is killed, no result is lost and none is there twice."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import settings

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from gpu_ops.errors import PlanError, SourceError
from tests.support.followers import follow_one, run
from tests.support.rows import rows
from tests.support.ticks import at_us

pytestmark = pytest.mark.slow

UTC = pa.timestamp("us", "UTC")
KILLS = 50 if settings().max_examples > 1000 else 5


def batch(starts: list[int]) -> pa.Table:
    start = pa.array(starts, pa.int64())
    return pa.table(
        {
            "start": start.cast(UTC),
            "end": pa.array([each + 1 + each % 7 for each in starts], pa.int64()).cast(UTC),
            "k": [each % 3 for each in starts],
            "v": starts,
        }
    )


def filled(folder: Path) -> g.Store:
    """Forty batches, some events too late for a CTI every 5 ticks."""
    chance = random.Random(3)
    source = g.store(folder / "in")
    with source.writer() as writer:
        for number in range(40):
            writer.append(batch([max(0, number * 4 + chance.randrange(-8, 5)) for _ in range(5)]))
        writer.advance(at_us(MAX_TIME))
    return source


@pytest.mark.services
def test_killed_whenever_it_is_exactly_once(tmp_path: Path) -> None:
    source = filled(tmp_path)
    chance = random.Random(4)
    codes = [run(follow_one, tmp_path, chance.uniform(0, 0.4)) for _ in range(KILLS)]
    assert -signal.SIGKILL in codes
    assert run(follow_one, tmp_path) == 0
    whole = g.events(source).advance_time("5us", late="divert")
    expected = whole.by("k").snapshot().agg(n=g.count(), v=g.sum("v"), best=g.max("v")).collect(device="cpu")
    out, late = g.store(tmp_path / "out"), g.store(tmp_path / "late")
    assert rows(out.read()) == rows(expected)
    assert out.cti == MAX_TIME
    diverted = whole.late().collect(device="cpu")
    assert diverted.num_rows > 0
    assert rows(late.read().select(["start", "end"])) == rows(diverted.select(["start", "end"]))


def test_results_come_with_the_cti_behind_them(tmp_path: Path) -> None:
    source, out = g.store(tmp_path / "in"), g.store(tmp_path / "out")
    source.append(batch([2, 4]), cti=at_us(5))
    live = g.events(source).snapshot().agg(n=g.count()).start(device="cpu")
    live.follow(source, into=out, timeout=0)
    # 2 to 5, 4 to 9: at the CTI 5 the snapshots up to 5 are final
    assert [(row["n"], row["end"].microsecond) for row in out.read().to_pylist()] == [(1, 4), (2, 5)]
    assert out.cti == 5
    source.append(batch([8]), cti=at_us(MAX_TIME))
    live.follow(source, into=out, timeout=0)
    assert out.read()["n"].to_pylist() == [1, 2, 1, 2, 1]
    assert out.cti == MAX_TIME
    assert live.closed


def test_late_rows_that_go_nowhere_do_not_pile_up(tmp_path: Path) -> None:
    source = g.store(tmp_path / "in")
    source.append(batch([9, 2, 3]), cti=at_us(MAX_TIME))
    live = g.events(source).advance_time(1, late="drop").snapshot().agg(n=g.count()).start(device="cpu")
    assert live.follow(source, timeout=0).late == {"dropped": 2}
    assert live.late() is None


def test_another_results_store_is_refused(tmp_path: Path) -> None:
    source, out = g.store(tmp_path / "in"), g.store(tmp_path / "out")
    source.append(batch([2, 4]), cti=at_us(5))
    query = g.events(source).snapshot().agg(n=g.count())
    query.start(device="cpu").follow(source, into=out, checkpoint=tmp_path / "c", timeout=0)
    with pytest.raises(SourceError, match="was made after batch 1 of it"):
        g.restore(tmp_path / "c", query).follow(source, into=g.store(tmp_path / "other"), timeout=0)
    with pytest.raises(PlanError, match="after one batch or more"):
        g.restore(tmp_path / "c", query).follow(source, into=out, every=0, timeout=0)


def test_batches_that_have_expired_before_they_were_read_are_missed_aloud(tmp_path: Path) -> None:
    source = g.store(tmp_path / "in")
    source.append(batch([2, 4]), cti=at_us(5))
    query = g.events(source).snapshot().agg(n=g.count())
    live = query.start(device="cpu")
    live.follow(source, timeout=0)
    source.append(batch([8]), cti=at_us(20))
    source.append(batch([30]), cti=at_us(40))
    source.expire(at_us(25))
    with pytest.raises(SourceError, match="after number 1, which the query had come to, have expired"):
        live.follow(source, timeout=0)
    fresh = query.start(device="cpu")
    fresh.follow(source, timeout=0)
    assert fresh.status().events_in == 1
