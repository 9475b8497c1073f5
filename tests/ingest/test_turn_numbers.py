"""The places of arrivals, and the order of rows at places, are those that a literal walk finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.core.turns import TURN
from gpu_ops.ingest import turn_numbers

TIMES = st.lists(st.integers(0, 5), max_size=8)


@given(TIMES, st.integers(0, 3), st.integers(0, 3))
def test_a_turn_that_moves_the_clock_goes_before_each_later_arrival(times: list[int], clock: int, turn: int) -> None:
    places, back = turn_numbers.numbered(np.array(times, np.int64), clock, turn)
    made, shown = list[int](), clock
    for row, time in enumerate(times):
        if time < shown:
            assert back == row
            return
        turn += time > shown
        made.append(turn)
        turn, shown = turn + 1, time
    assert (back, (places // TURN).tolist()) == (-1, made)


@pytest.mark.parametrize("few", [0, 1 << 12])
@given(rows=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), max_size=5))
def test_rows_stand_in_order_of_place_kind_and_number(few: int, rows: list[tuple[int, int, int]]) -> None:
    places, kinds, numbers = (np.array([row[at] for row in rows], np.int64) for at in range(3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turn_numbers, "_FEW", few)
        assert turn_numbers.stand_in_order(places, kinds.astype(np.int8), numbers) == (rows == sorted(rows))
