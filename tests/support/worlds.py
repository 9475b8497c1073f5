"""Runs of simulated worlds: from a seed, always the same; and the shortest trace of one in which something broke.

``python -m tests.support.worlds SEED`` shows the trace of one world, whole.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_ops.microbatches.names import UnsettledError
from tests.support.simulation import WEIGHTS, Action, World
from tests.support.witness import ViolationError

ACTIONS = 100
"""How many there are in a world."""

_TRIES = 120
"""How often a world is run again at most to make its trace shorter."""


@dataclass
class Ended:
    """A world that was run.

    Attributes:
        trace: What was done.
        counts: How often what happened.
        violation: What broke; None if nothing did.
        done: How many actions there were until then.
        turns: How many steps, with those amid others.
    """

    trace: list[str]
    counts: Counter[str]
    violation: str | None
    done: int
    turns: int


def draw(seed: int) -> list[Action]:
    """The actions of a world."""
    chance = random.Random(seed)
    kinds = chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=ACTIONS)
    return [(kind, chance.randrange(1 << 30)) for kind in kinds]


def run(seed: int, actions: Sequence[Action]) -> Ended:
    """Do these actions in the world of a seed, and close it."""
    world, done, violation = World(seed), 0, None
    with world.disk.mounted():
        try:
            world.start()
            for action in actions:
                done += 1
                world.act(action)
            world.finish()
        except (ViolationError, UnsettledError) as error:  # the latter: a store has lost a file
            violation = str(error).replace(f"{world.disk.root}/", "")
    return Ended(world.trace, world.counts, violation, done, world.turns)


def simulate(seed: int) -> Ended:
    """Run the world of a seed.

    Raises:
        AssertionError: Something broke. The message has the seed and the shortest trace of it that was found.
    """
    actions = draw(seed)
    ended = run(seed, actions)
    if ended.violation is not None:
        ended = shortest(seed, actions[: ended.done], ended)
        trace = "\n".join(ended.trace)
        raise AssertionError(
            f"In the world of seed {seed}: {ended.violation}\n\n{trace}\n\n"
            f"The whole of it: python -m tests.support.worlds {seed}"
        )
    return ended


def shortest(seed: int, actions: Sequence[Action], ended: Ended) -> Ended:
    """The same world with as few actions as it takes for something to break; halves are left out first, then less."""
    left, size, tries = list(actions), max(len(actions) // 2, 1), 0
    while tries < _TRIES:
        at, before = 0, len(left)
        while at < len(left) and tries < _TRIES:
            fewer = left[:at] + left[at + size :]
            again = run(seed, fewer)
            tries += 1
            if again.violation is None:
                at += size
            else:
                left, ended = fewer[: again.done], again
        if size == 1 and len(left) == before:
            break
        size = max(size // 2, 1)
    return ended


if __name__ == "__main__":
    whole = run(int(sys.argv[1]), draw(int(sys.argv[1])))
    print("\n".join([*whole.trace, whole.violation or "Nothing broke."]))
