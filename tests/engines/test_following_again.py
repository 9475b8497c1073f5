"""What a restored query gives again is the same, batch by batch: what `follow` compares instead of writing it."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.errors import ColumnError, TimeError
from gpu_ops.microbatches.contents import content_crc
from tests.support.cuts import in_some_order
from tests.support.devices import HERE
from tests.support.examples import examples
from tests.support.live_plans import events, plan_of, plans, source, table
from tests.support.ticks import at_us

MEETINGS = {
    "alone": lambda s: s,
    "join": lambda s: s.join(s.select("k", "v").shift("1us"), on="k"),
    "full": lambda s: s.join(s.filter(g.col("v") > 0).select("k", "v"), on="k", how="full"),
    "union": lambda s: s.union(s.shift("3us")),
    "asof": lambda s: s.to_point().asof_join(s.to_point().select("k", "v"), on="k"),
    "clip": lambda s: s.clip_by(s.shift("4us"), on="k"),
}


def steps(arrived: pa.Table, chance: random.Random) -> list[tuple[pa.Table, int]]:
    """Batches, and the CTI behind each."""
    starts, at, made = arrived["start"].cast(pa.int64()).to_pylist(), 0, []
    while at < arrived.num_rows:
        size = chance.randrange(1, 8)
        made.append((arrived.slice(at, size), chance.randrange(-5, 1 + min(starts[at + size :], default=100))))
        at += size
    return made


@examples(dear=True)
@given(
    plans,
    st.sampled_from([*MEETINGS]),
    events,
    st.randoms(use_true_random=False),
    st.sampled_from(HERE),
)
def test_each_batch_is_the_same_again(
    tmp_path_factory: pytest.TempPathFactory,
    names: list[str],
    meeting: str,
    given_events: list[Any],
    chance: random.Random,
    device: str,
) -> None:
    arrived = in_some_order(table(given_events), chance)
    try:
        stream = plan_of(names)(MEETINGS[meeting](source(arrived.slice(0, 0))))
        batches = steps(arrived, chance)
        live, first = stream.start(device="cpu"), []
        for batch, cti in batches:
            live.push(batch)
            live.advance(at_us(cti))
            first.append(live.results())
        live.close()
    except (TimeError, ColumnError):
        return
    first.append(live.results())
    path = tmp_path_factory.mktemp("again") / "checkpoint"
    live, second = stream.start(device="cpu"), []
    for batch, cti in batches:
        if chance.random() < 0.3:
            live.checkpoint(path)
            live = g.restore(path, stream, device=device)
        live.push(batch)
        live.advance(at_us(cti))
        second.append(live.results())
    live.close()
    second.append(live.results())
    assert [(each.num_rows, content_crc(each)) for each in first] == [
        (each.num_rows, content_crc(each)) for each in second
    ]
