"""The walk through windows by a condition, block by block, is what a list of rows does as each row comes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kernel_contracts import PORTS, ints, port_of


def walked(port: Any, holds: list[Any], width: int, mode: int) -> list[list[int]]:
    """What becomes of the rows of each group; ``holds[group][oldest, newest]`` is the condition."""
    sizes = [len(table) for table in holds]
    begins = ints(np.cumsum([0, *sizes])[:-1])
    ends = begins + ints(sizes)
    left = np.full(sum(sizes), -1)
    oldest, newest = begins.copy(), begins.copy()
    while (active := np.flatnonzero(newest < ends)).size:
        block = np.zeros((len(active), width, width), np.bool_)
        for at, group in enumerate(active):
            low, high = oldest[group] - begins[group], newest[group] - begins[group]
            part = holds[group][low : low + width, high : high + width]
            block[at, : part.shape[0], : part.shape[1]] = part
        arguments = (block.reshape(-1), width, oldest[active], newest[active], ends[active], mode)
        first, last, rows, by = port.call("window_walk", *arguments)
        assert (last > newest[active]).any() or (first > oldest[active]).any()
        assert rows.tolist() == sorted(rows.tolist())
        oldest[active], newest[active], left[rows] = first, last, by
    return [
        (np.where(found >= 0, found - begin, -1)).tolist()
        for found, begin in zip(np.split(left, ends[:-1]), begins, strict=True)
    ]


def by_a_list(table: Any, mode: int) -> list[int]:
    rows, left = list[int](), [-1] * len(table)
    for row in range(len(table)):
        rows.append(row)
        if mode == 0:
            while rows and not table[rows[0], row]:
                left[rows.pop(0)] = row
        elif table[rows[0], row] and (mode == 1 or len(rows) > 1):
            left[rows[0]] = row
            rows = [] if mode == 1 else [row]
    return left


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("name", [each for each in PORTS if each != "strict"])
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3), width=st.integers(1, 4), data=st.data())
def test_a_walk(name: str, mode: int, sizes: list[int], width: int, data: st.DataObject) -> None:
    bits = data.draw(st.lists(st.booleans(), min_size=sum(n * n for n in sizes), max_size=sum(n * n for n in sizes)))
    parts = np.split(np.array(bits), np.cumsum([n * n for n in sizes])[:-1])
    tables = [part.reshape(n, n) for part, n in zip(parts, sizes, strict=True)]
    assert walked(port_of(name), tables, width, mode) == [by_a_list(table, mode) for table in tables]
