"""How much a GPU is asked for the benchmarks' questions: counted on the stand-in, and never more than is written here.

Calls, launches and synchronisations are the same for ten million events as for ten thousand, where nothing loops over
rows: that is what makes a GPU worth asking. Launches are estimates (`tests/support/device_functions.py` says how). What
cuDF does for the columns is not counted.
"""

from __future__ import annotations

from dataclasses import astuple

import pytest

from benchmarks.engines import prepare
from benchmarks.workloads import inputs
from tests.support.device_array import tallied

EVENTS = 40_000

ASKED = {
    "W1": (0, 0, 0, 1),
    "W2": (84, 186, 12, 1),
    "W3": (82, 131, 9, 3),
    "W4": (47, 69, 7, 3),
    "W4b": (47, 69, 7, 3),
    "W5": (1064, 1120, 16, 4),
    "W6": (172, 291, 14, 1),
    "W7": (311, 608, 15, 2),
    "W8": (136, 297, 12, 1),
    "last": (155, 268, 21, 3),
    "session": (174, 273, 24, 3),
    "as-of": (315, 366, 13, 2),
    "union": (0, 0, 2, 2),
}
"""(calls, launches, synchronisations, uploads) of each question. Who lowers one writes it down: so it stays low."""

GROWTH = {
    # Searches by halves, a round of sixteen calls for each doubling; of two streams four of them.
    "W5": (64, 64, 0, 0),
    "as-of": (16, 16, 0, 0),
    # A running maximum, which looks twice as far back in each round.
    "W8": (2, 3, 0, 0),
}
"""By how much that grows with each doubling of the events, where it does."""


def asked(workload: str, events: int) -> tuple[int, ...]:
    run = prepare("gpu_ops", workload, inputs(workload, events), device="array")
    with tallied() as tally:
        run()
    return astuple(tally)


@pytest.mark.parametrize("workload", ASKED)
def test_no_more_is_asked_of_a_gpu_than_is_written_here(workload: str) -> None:
    found = asked(workload, EVENTS)
    assert all(now <= most for now, most in zip(found, ASKED[workload], strict=True)), "more than before"
    assert found == ASKED[workload], f'fewer than before: write "{workload}": {found} into ASKED'


@pytest.mark.parametrize("workload", ASKED)
def test_it_does_not_hang_on_how_many_events_there_are(workload: str) -> None:
    growth = GROWTH.get(workload, (0, 0, 0, 0))
    wanted = tuple(one + more for one, more in zip(ASKED[workload], growth, strict=True))
    assert asked(workload, 2 * EVENTS) == wanted
