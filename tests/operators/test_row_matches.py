"""Matches of row patterns are those that a literal search finds, in any cut, on any device, from any checkpoint."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from gpu_ops.core.turns import CLOCK, PLACE
from gpu_ops.errors import PlanError
from gpu_ops.plan import aggregates as g
from gpu_ops.plan.clock_windows import ClockSpan, UntilTick
from gpu_ops.plan.nodes import Node
from gpu_ops.plan.row_conditions import RowConditions
from gpu_ops.plan.row_matches import ChosenRow, OverRows, Register, RowMatches, VariableRule
from gpu_ops.plan.row_patterns import (
    EitherRows,
    OneRow,
    OrderedRows,
    PermutedRows,
    RepeatedRows,
    RowPattern,
    variables_of,
)
from tests.support.examples import by_default
from tests.support.on_turns import ARRIVALS, Row, Script, Tick, in_any_cut, in_one_step, placed
from tests.support.row_pattern_reference import Match, Partition, PlacedRow, Rules, TooManyWordsError

SKIPS = ("past last row", "to next row", "to current row", "while open")
REGISTER = Register("r", 0)
CHANGES: dict[str, tuple[Any, Any]] = {
    "A": (nw.col("r") + 1, lambda r, v: None if r is None else r + 1),
    "B": (nw.col("v"), lambda r, v: v),
}
"""What rows of a variable change the register to."""

# Conditions: what the plan evaluates, and what the reference does.

Holding = tuple[Any, Any]


def _is(numbers: Sequence[int]) -> Holding:
    return (
        lambda _: nw.col("v").is_in(list(numbers)),
        lambda row, before, so_far: row.values.v in numbers,
    )


def _falls() -> Holding:
    def holds(row: PlacedRow, before: Sequence[PlacedRow], so_far: Any) -> bool:
        other = before[-1].values.v if before else None
        return row.values.v is not None and other is not None and row.values.v < other

    return lambda made: nw.col("v") < made.previous(nw.col("v"), pa.int64(), 1), holds


def _above(variable: str, kind: Any) -> Holding:
    """More than the last, or the first, row of a variable."""

    def holds(row: PlacedRow, before: Any, so_far: Sequence[tuple[str, PlacedRow]]) -> bool:
        rows = [each for name, each in so_far if name == variable]
        other = (rows[-1] if kind == "last" else rows[0]).values.v if rows else None
        return row.values.v is not None and other is not None and row.values.v > other

    return lambda made: nw.col("v") > made.noted(variable, kind, "v", pa.int64()), holds


def _total(variable: str) -> Holding:
    """At most four together with the rows of a variable, of which there are at most three."""

    def holds(row: PlacedRow, before: Any, so_far: Sequence[tuple[str, PlacedRow]]) -> bool:
        rows = [each.values.v for name, each in so_far if name == variable]
        known = [value for value in rows if value is not None]
        return row.values.v is not None and row.values.v + (sum(known) if known else 0) <= 4 and len(rows) <= 3

    def value(made: RowConditions) -> nw.Expr:
        whole = made.total(variable, nw.col("v"), pa.int64())
        return (nw.col("v") + nw.coalesce(whole, nw.lit(0)) <= 4) & (made.number(variable) <= 3)

    return value, holds


def _register_of(so_far: Sequence[tuple[str, PlacedRow]]) -> int | None:
    """What the register is behind some rows."""
    value: int | None = REGISTER.begins  # type: ignore[assignment]
    for name, row in so_far:
        value = CHANGES[name][1](value, row.values.v) if name in CHANGES else value
    return value


def _register_above(number: int) -> Holding:
    def holds(row: PlacedRow, before: Any, so_far: Sequence[tuple[str, PlacedRow]]) -> bool:
        value = _register_of(so_far)
        return value is not None and value > number

    return lambda _: nw.col("r") > number, holds


NAMES = ["A", "B", "C"]
VARIABLES = st.sampled_from(NAMES).map(OneRow)
ALONE = st.one_of(st.none(), st.lists(st.integers(-2, 3), min_size=1, max_size=5).map(_is), st.just(_falls()))
HOLDINGS = st.one_of(
    ALONE,
    st.builds(_above, st.sampled_from(NAMES), st.sampled_from(["last", "nth"])),
    st.sampled_from(NAMES).map(_total),
)
WITH_REGISTER = st.one_of(HOLDINGS, st.integers(-1, 1).map(_register_above))
TIMES = st.sampled_from([(0, None), (1, None), (0, 1), (2, 2), (1, 3), (2, None), (0, 2)])


def _larger(parts: st.SearchStrategy[RowPattern]) -> st.SearchStrategy[RowPattern]:
    several = st.lists(parts, min_size=2, max_size=3).map(tuple)
    repeated = st.builds(
        lambda item, times, greedy: RepeatedRows(item, times[0], times[1], greedy), parts, TIMES, st.booleans()
    )
    return st.one_of(
        several.map(OrderedRows),
        several.map(OrderedRows),
        several.map(EitherRows),
        st.lists(parts, min_size=2, max_size=2).map(tuple).map(PermutedRows),
        repeated,
        repeated,
    )


PATTERNS = st.recursive(VARIABLES, _larger, max_leaves=4)
ROWS = st.builds(Row, st.sampled_from(["a", None]), st.none() | st.integers(-2, 3), st.just(0))
TICKS = st.builds(Tick, st.sampled_from([0, 1, 1, 2, 3, 9]))
SCRIPTS = st.lists(st.one_of(ROWS, ROWS, ROWS, ROWS, TICKS), max_size=13)


class Drawn:
    """A pattern with its conditions and policies."""

    def __init__(
        self,
        pattern: RowPattern,
        holdings: Sequence[Holding | None],
        options: dict[str, Any],
        keys: tuple[str, ...],
        *,
        registers: bool = False,
    ) -> None:
        self.pattern, self.options, self.keys, self.registers = pattern, options, keys, registers
        self.holdings = dict(zip(variables_of(pattern), holdings, strict=False))
        reads = set(self.holdings)
        self.holdings = {
            name: holding if holding is None or _known(holding, reads) else None
            for name, holding in self.holdings.items()
        }

    def __repr__(self) -> str:
        return f"{self.pattern} {self.options} by {self.keys} {[n for n, h in self.holdings.items() if h is None]}"

    def plan(self, rows: Node, ticks: Node, *, window: int | None = None) -> Node:
        """The node over arrivals."""
        if window is not None:
            rows = UntilTick(rows, ticks, CLOCK, ClockSpan(ticks=window))
        made = RowConditions(ARRIVALS)
        registers = (REGISTER,) if self.registers else ()
        for at, each in enumerate(registers):
            made.register(at, each)
        rules = tuple(
            VariableRule() if holding is None else made.rule(holding[0](made)) for holding in self.holdings.values()
        )
        if registers:
            changes = [CHANGES.get(name) for name in self.holdings]
            sets = [() if each is None else ((0, made.change(each[0], REGISTER)),) for each in changes]
            rules = tuple(replace(rule, sets=each) for rule, each in zip(rules, sets, strict=True))
        names = variables_of(self.pattern)
        span = self.options.get("interval")
        return RowMatches(
            made.over(rows, self.keys),
            ticks,
            self.pattern,
            rules,
            self.keys,
            tuple(ChosenRow(f"{name} {at}", PLACE if at else "v", name, at) for name in names for at in (0, -1, 1)),
            tuple(OverRows(_named(g.count(PLACE), f"{name} n"), (name,)) for name in names)
            + tuple(OverRows(_named(g.sum("v"), f"{name} s"), (name,)) for name in names),
            **{**self.options, "interval": None if span is None else ClockSpan(ticks=span)},
            windowed=window is not None,
            registers=registers,
        )

    def expected(self, script: Script, window: int | None = None) -> list[Match]:
        """What the reference finds."""
        turns = placed(script)
        ticks = [(each.place, each.clock) for each in turns if isinstance(each.turn, Tick)]
        found: list[Match] = []
        for key in ("a", None) if self.keys else ("",):
            rows = []
            for each in turns:
                if isinstance(each.turn, Row) and key in {"", each.turn.k}:
                    leave = float("inf")
                    if window is not None:
                        later = (at for at, clock in ticks if at > each.place and clock >= each.clock + window)
                        leave = next(later, leave)
                    rows.append(PlacedRow(each.place, each.clock, each.turn, leave))
            found += Partition(Rules(self.pattern, self._holds, **self.options), rows, ticks).matches()
        return found

    def _holds(self, name: str, row: PlacedRow, before: Sequence[PlacedRow], so_far: Any) -> bool:
        holding = self.holdings[name]
        return holding is None or bool(holding[1](row, before, so_far))


def _named(aggregate: Any, name: str) -> Any:
    return replace(aggregate, name=name)


def _known(holding: Holding, names: set[str]) -> bool:
    """Whether a condition reads variables of the pattern alone."""
    made = RowConditions(ARRIVALS)
    made.register(0, REGISTER)
    rule = made.rule(holding[0](made))
    read = [each for each in (() if rule.rest is None else rule.rest.notes) if each is not None]
    return all(each.variable in names or each.kind == "register" for each in read)


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    """A pattern."""
    pattern = draw(PATTERNS)
    options: dict[str, Any] = {"skip": draw(st.sampled_from(SKIPS)), "every": draw(st.booleans())}
    if draw(st.booleans()):
        options |= {"interval": draw(st.sampled_from([1, 2, 5])), "or_terminated": draw(st.booleans())}
    keys = draw(st.sampled_from([(), ("k",)]))
    registers = draw(st.booleans())
    holdings = WITH_REGISTER if registers else HOLDINGS
    return Drawn(pattern, draw(st.tuples(holdings, holdings, holdings)), options, keys, registers=registers)


def _measured(match: Match, names: Sequence[str], *, registers: bool = False) -> tuple[Any, ...]:
    """A match as the row that is made of it."""
    made: list[Any] = [match.place]
    if registers:
        made.append(_register_of(list(zip(match.labels, match.rows, strict=True))))
    for name in names:
        rows = [row for row, label in zip(match.rows, match.labels, strict=True) if label == name]
        values = [row.values.v for row in rows if row.values.v is not None]
        made += [
            rows[0].values.v if rows else None,
            rows[-1].place if rows else None,
            rows[1].place if len(rows) > 1 else None,
            len(rows) or None,
            sum(values) if values else None,
        ]
    return tuple(made)


def _shown(found: Sequence[dict[str, Any]], names: Sequence[str]) -> list[tuple[Any, ...]]:
    own = ["r"] if found and "r" in found[0] else []
    columns = [*own, *(f"{name} {what}" for name in names for what in ("0", "-1", "1", "n", "s"))]
    return [(row["start"], *(row[column] for column in columns)) for row in found]


def _known_matches(query: Drawn, script: Script, window: int | None = None) -> tuple[Script, list[Match]]:
    """As much of a script as the reference can follow, and its matches."""
    while True:
        try:
            return script, query.expected(script, window)
        except TooManyWordsError:
            script = script[: len(script) // 2]


@pytest.mark.parametrize("device", ["cpu", "array"])
@given(drawn(), SCRIPTS, st.none() | st.sampled_from([2, 5]), st.integers(0, 1 << 30))
@by_default(100)
def test_matches_are_those_that_a_literal_search_finds(
    device: str, query: Drawn, script: Script, window: int | None, seed: int
) -> None:
    names = variables_of(query.pattern)
    note(f"{query!r}")
    script, found = _known_matches(query, script, window)
    expected = Counter(_measured(match, names, registers=query.registers) for match in found)

    def plan(rows: Node, ticks: Node) -> Node:
        return query.plan(rows, ticks, window=window)

    whole = in_one_step(plan, script, device)
    assert Counter(_shown(whole, names)) == expected
    cut = in_any_cut(plan, script, device, random.Random(seed))
    order = sorted(whole, key=lambda row: (row["start"], row[PLACE]))
    assert sorted(cut, key=lambda row: (row["start"], row[PLACE])) == order


@pytest.mark.parametrize("device", ["cpu", "array"])
@given(PATTERNS, st.tuples(ALONE, ALONE, ALONE), st.lists(ROWS, max_size=30), st.booleans(), st.integers(0, 1 << 30))
@by_default(100)
def test_rows_of_many_partitions_are_matched_as_they_come_where_a_match_ends_all_other_ways(
    device: str,
    pattern: RowPattern,
    holdings: tuple[Holding | None, ...],
    script: Script,
    keyed: bool,  # noqa: FBT001
    seed: int,
) -> None:
    # a   A B . B C . . A …      the ways of both partitions are open side by side, and a match of one ends
    # null  . A . . B C .        no way of the other
    query, names = Drawn(pattern, holdings, {}, ("k",) if keyed else ()), variables_of(pattern)
    script, found = _known_matches(query, script)
    expected = Counter(_measured(match, names) for match in found)
    whole = in_one_step(query.plan, script, device)
    assert Counter(_shown(whole, names)) == expected
    assert [row["start"] for row in whole] == sorted(row["start"] for row in whole)
    cut = in_any_cut(query.plan, script, device, random.Random(seed))
    assert sorted(cut, key=lambda row: (row["start"], row[PLACE])) == whole


def test_too_many_ways_are_refused_by_their_bound() -> None:
    pattern = OrderedRows((RepeatedRows(OneRow("A"), 0, None), RepeatedRows(OneRow("B"), 0, None)))

    def plan(rows: Node, ticks: Node) -> Node:
        return RowMatches(
            rows, ticks, pattern, (VariableRule(), VariableRule()), every=True, most=100, skip="to current row"
        )

    with pytest.raises(PlanError, match="More than 100 ways to match the pattern A\\* B\\*"):
        in_one_step(plan, [Row("a", 1, 0)] * 200, "cpu")
