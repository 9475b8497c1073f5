"""The least of times that come and go, beside a list of them; and restores of many rows in the middle of a batch."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.operators.state import least
from tests.support.rows import rows
from tests.support.ticks import at_us

STEPS = st.lists(
    st.tuples(st.lists(st.integers(-9, 9), max_size=20), st.floats(0, 1), st.integers(-12, 12)), max_size=12
)


@given(STEPS, st.integers(1, 12), st.integers(1, 4), st.integers(1, 8), st.randoms(use_true_random=False))
def test_it_is_that_of_a_list(
    steps: list[tuple[list[int], float, int]], few: int, looked: int, piece: int, draw: random.Random
) -> None:
    """In each step times come, and a share of those that are there goes. What counts as many is few here."""
    there: list[int] = []
    with mock.patch.multiple(least, _FEW=few, _LOOKED_AT=looked, _PIECE=piece):
        found = least.Least()
        for come, share, otherwise in steps:
            found.add(np.array(come, np.int64))
            there += come
            go = draw.sample(there, int(share * len(there)))
            found.remove(np.array(go, np.int64))
            there = list((Counter(there) - Counter(go)).elements())
            assert found.least(otherwise) == min([*there, otherwise])


def test_most_of_many_times_are_never_sorted() -> None:
    """A million times come at once, and go from the least one on: what is sorted is a small part of them."""
    times = np.random.default_rng(1).permutation(1_000_000)
    found = least.Least()
    with mock.patch.object(np, "unique", side_effect=np.unique) as sort:
        found.add(times)
        assert found.least(2_000_000) == 0
        sort.assert_not_called()
        for first in range(0, 20_000, 100):
            found.remove(np.arange(first, first + 100))
            assert found.least(2_000_000) == first + 100
        assert sum(len(call.args[0]) for call in sort.call_args_list) < 80_000


JOINS: dict[str, Callable[[g.Stream, g.Stream], g.Stream]] = {
    "clip": lambda a, b: a.clip_by(b, on="k"),
    "as-of forward": lambda a, b: a.asof_join(b, on="k", direction="forward"),
    "as-of nearest": lambda a, b: a.asof_join(b, on="k", direction="nearest", how="left"),
    "left": lambda a, b: a.join(b, on="k", how="left"),
    "full": lambda a, b: a.join(b, on="k", how="full"),
    "anti": lambda a, b: a.join(b, on="k", how="anti"),
}

MANY = 6_000
#    0          6000        6100                 12100
# a  |starts    |           |ends of a           |
# b               few starts, so that most of a waits, and some ends sooner


def _sides(seed: int) -> tuple[pa.Table, pa.Table]:
    draw = np.random.default_rng(seed)
    start = draw.permutation(MANY)
    a = {"start": start, "end": start + 6_000 + draw.integers(0, 200, MANY), "k": draw.integers(0, 40, MANY)}
    late = np.sort(draw.integers(MANY, MANY + 5_900, 60))
    b = {"start": late, "end": late + draw.integers(1, 300, 60), "k": draw.integers(0, 60, 60)}
    made = [pa.table({**each, "v": np.arange(len(each["k"]))}) for each in (a, b)]
    return made[0], made[1]


@pytest.mark.parametrize("name", JOINS)
def test_many_rows_are_restored_in_the_middle_of_a_batch(name: str, tmp_path: Path) -> None:
    """All of one side waits when the query is saved, which is again and again, and another one goes on."""
    a, b = _sides(len(name))

    def ask(*sides: pa.Table) -> g.Stream:
        streams = (
            g.events(each, start="start", end="end", unit="us", name=of) for of, each in zip("ab", sides, strict=True)
        )
        return JOINS[name](*streams)

    none = a.slice(0, 0), b.slice(0, 0)
    parts, live = [], ask(*none).start(device="cpu")
    live.push(a, input="a")
    for begin in range(0, 60, 20):
        piece = b.slice(begin, 20)
        live.push(piece.slice(0, 10), input="b")
        live.advance(at_us(piece["start"][9].as_py()))
        live.push(piece.slice(10), input="b")
        parts.append(live.results())
        live.save(tmp_path / "saved")
        live = g.restore(tmp_path / "saved", ask(*none), device="cpu")
    assert live.state()
    live.close()
    parts.append(live.results())
    assert rows(pa.concat_tables(parts)) == rows(ask(a, b).collect())
