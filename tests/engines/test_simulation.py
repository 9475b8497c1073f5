"""A follower among producers, readers and rivals, on a disk that fails: nothing is lost, nothing is there twice."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest

from gpu_ops.microbatches.folders import LocalFolder
from tests.support.worlds import draw, run, simulate

pytestmark = pytest.mark.slow

PARTS = 4
STEPS = 5_000 // PARTS
DEEP_PARTS = 40
DEEP_STEPS = 200_000 // DEEP_PARTS


def simulate_steps(first_seed: int, steps: int) -> Counter[str]:
    """Worlds, one after the other, until there were so many steps; how often what happened."""
    counts: Counter[str] = Counter()
    turns = 0
    for seed in count(first_seed):
        world = simulate(seed)
        counts += world.counts
        turns += world.turns
        if turns >= steps:
            return counts
    raise AssertionError


@pytest.mark.parametrize("part", range(PARTS))
def test_the_sink_holds_what_an_uninterrupted_follower_writes(part: int) -> None:
    counts = simulate_steps(1_000 * part, STEPS)
    assert not [what for what in ("follower", "producer", "kill", "power cut") if not counts[what]]


@pytest.mark.deep
@pytest.mark.parametrize("part", range(DEEP_PARTS))
def test_in_many_worlds_too(part: int) -> None:
    simulate_steps(1_000 * (PARTS + part), DEEP_STEPS)


def test_a_broken_package_is_found_and_the_trace_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the sync of folders a cut of the power takes what was acknowledged."""
    monkeypatch.setattr(LocalFolder, "sync", lambda folder: None)
    seed = next(seed for seed in count() if run(seed, draw(seed)).violation is not None)
    messages = []
    for _ in range(2):
        with pytest.raises(AssertionError, match=f"In the world of seed {seed}: ") as caught:
            simulate(seed)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert messages[0].count("\n") < 60


def test_a_seed_is_one_world() -> None:
    first, again = (run(7, draw(7)) for _ in range(2))
    assert first == again
