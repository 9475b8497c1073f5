from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.devices import choose
from gpu_ops.operators.row_order import in_order, order_in_places, stable_order
from tests.support.devices import HERE

_PLACES = st.one_of(
    st.integers(-4, 9).map(lambda turn: turn << 24),
    st.integers(-4, 9).map(lambda turn: (turn << 24) + (1 << 21)),
    st.sampled_from([0, 1, 3, 1 << 40, -(1 << 50), (1 << 62) + 1]),
)
_ROWS = st.lists(st.tuples(_PLACES, st.integers(0, 2), st.integers(-(1 << 62), 1 << 62)), max_size=12)


@given(_ROWS, st.integers(1, 3), st.sampled_from(HERE))
def test_rows_by_place_are_as_sorted(rows: list[tuple[int, int, int]], keys: int, name: str) -> None:
    """Places of turns are counted, others are sorted; equal rows keep their order."""
    device = choose(name)
    arrays = [device.columns.array(np.array([row[at] for row in rows], np.int64)) for at in range(3)]
    places, some = arrays[0], arrays[1 : 1 + keys] or [arrays[1]]
    expected = sorted(range(len(rows)), key=lambda at: tuple(rows[at][: 1 + len(some)]))
    assert device.columns.host(order_in_places(places, some, device)).tolist() == expected
    assert device.columns.host(stable_order([places, *some], places, device)).tolist() == expected
    assert in_order([places, *some]) == (expected == list(range(len(rows))))
