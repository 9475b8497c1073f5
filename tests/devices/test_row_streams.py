"""Rows of partitions that come mixed: an automaton and ways find the same matches, in tables that are full, too."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_ops.devices.cpu.row_streams import automaton_matches, stream_matches
from gpu_ops.operators.row_patterns.matching import automaton_arrays, machine_arrays
from gpu_ops.plan.row_automata import RowAutomaton
from gpu_ops.plan.row_patterns import EitherRows, OneRow, OrderedRows, RepeatedRows, RowMachine, RowPattern

A, B, C = (OneRow(name) for name in "ABC")
MANY_B, A_OR_B = RepeatedRows(B, 1, None), EitherRows((A, B))


@pytest.mark.parametrize("pattern", [OrderedRows((A, MANY_B, C)), OrderedRows((A, MANY_B, MANY_B, C)), A_OR_B], ids=str)
@pytest.mark.parametrize("likely", [0.01, 0.3])
def test_the_automaton_and_the_ways_find_the_same_matches(pattern: RowPattern, likely: float) -> None:
    # 200,000 rows in 50 partitions, of which one stays open from its first rows on: more steps than there is room for.
    chance, rows = np.random.default_rng(1), 200_000
    codes = chance.integers(0, 50, rows).astype(np.int32)
    mask = np.zeros(rows, np.int64)
    for at, share in enumerate((0.6, 0.97, likely)):
        mask |= (chance.random(rows) < share).astype(np.int64) << at
    mask[codes == 7] = 0b010
    mask[np.flatnonzero(codes == 7)[0]] = 0b001
    machine = RowMachine.of(pattern)
    automaton = RowAutomaton.of(machine)
    ways = stream_matches(codes, mask, 50, machine_arrays(machine))
    if automaton is None:
        assert len(ways.end)
        return
    for one, other in zip(automaton_matches(codes, mask, 50, automaton_arrays(automaton)), ways, strict=True):
        assert (one == other).all()


def test_a_pattern_whose_ways_are_told_apart_by_their_rows_has_no_automaton() -> None:
    # A B+ B+ C: of the ways over two rows B, at the second B+, the one is better that stayed longer at the first
    assert RowAutomaton.of(RowMachine.of(OrderedRows((A, MANY_B, MANY_B, C)))) is None
    assert RowAutomaton.of(RowMachine.of(OrderedRows((A, MANY_B, C)))) is not None
