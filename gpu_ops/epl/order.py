"""In which order statements take some turns, so that each finds what others make for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

import numpy as np

from gpu_ops.core.turns import TURN
from gpu_ops.epl.running import RunningStatement
from gpu_ops.texts.feeding import PlacedRows, TickRows


@dataclass(frozen=True)
class Order:
    """How statements take turns.

    Attributes:
        of: The statements with their numbers, as they were deployed.
        statements: They in this order.
        cuts: The types whose events end a piece of the turns, which all statements take before the next; None if each
            turn is one. There are some where statements read variables that are set by what comes of them.
    """

    of: tuple[tuple[int, RunningStatement], ...]
    statements: tuple[tuple[int, RunningStatement], ...]
    cuts: frozenset[str] | None = frozenset()


def order_of(numbered: tuple[tuple[int, RunningStatement], ...], depths: Mapping[str, int]) -> Order:
    """The order of statements: those that insert, and those that set variables, before those that read it.

    Args:
        numbered: The statements as they were deployed, with their numbers.
        depths: How many statements are above events of a type.
    """
    known = dict(numbered)
    numbers = sorted(known, key=lambda at: max((depths[name] for name in _read(known[at])), default=0))
    setting = [at for at in numbers if known[at].plan.setting is not None]
    plain = tuple((at, known[at]) for at in numbers)
    if not setting:
        return Order(numbered, plain)
    above: dict[int, list[int]] = {}
    for at in numbers:
        above[at] = [other for other in numbers if known[other].target in _read(known[at])]
        above[at] += [other for other in setting if at != other and _reads(known[at], known[other], same=False)]
    own = any(_reads(known[at], known[at], same=True) for at in setting)
    try:
        ordered = tuple((at, known[at]) for at in TopologicalSorter(above).static_order())
        if not own:
            return Order(numbered, ordered)
    except CycleError:
        ordered = plain
    triggers = frozenset(name for at in setting for name in known[at].plan.reads)
    # The clock may be what makes an output that sets variables.
    every = any(setter.at_outputs for at in setting if (setter := known[at].plan.setting) is not None)
    every |= bool(triggers & {each.target for each in known.values()})
    return Order(numbered, ordered, None if every else triggers)


def _read(statement: RunningStatement) -> tuple[str, ...]:
    """The types that have to be known for a statement; what changes a named window waits for what is inserted there."""
    change = statement.plan.change
    return statement.plan.reads if change is None else (*statement.plan.reads, change.window)


def _reads(reader: RunningStatement, setter: RunningStatement, *, same: bool) -> bool:
    """Whether a statement reads what another sets; itself only before it knows what triggers it."""
    assert setter.plan.setting is not None  # noqa: S101  (it sets)
    names = set(reader.plan.filtering if same else reader.plan.variables.changing)
    return bool(names & set(setter.plan.setting.names))


@dataclass(frozen=True)
class SomeTurns:
    """Some turns.

    Attributes:
        arrived: The rows of each type.
        ticks: The moves of the clock.
        before: What the clock showed before them, in milliseconds.
        first: The place of the first of them, or one before it.
        until: The place behind them.
    """

    arrived: dict[str, PlacedRows]
    ticks: TickRows | None
    before: int
    first: int
    until: int

    def pieces(self, cuts: frozenset[str] | None) -> Iterator[SomeTurns]:
        """Pieces that end with events of some types, or with each turn; see `Order`."""
        ends = [each.places for name, each in self.arrived.items() if cuts is None or name in cuts]
        if cuts is None and self.ticks is not None:
            ends.append(self.ticks.places)
        if not ends:
            yield self
            return
        low, before = self.first, self.before
        for end in np.unique(np.append((np.concatenate(ends) // TURN + 1) * TURN, self.until)).tolist():
            spans = {name: _span(each.places, low, end) for name, each in self.arrived.items()}
            arrived = {name: self.arrived[name].between(*span) for name, span in spans.items() if span[0] < span[1]}
            span = (0, 0) if self.ticks is None else _span(self.ticks.places, low, end)
            ticks = None if self.ticks is None or span[0] == span[1] else self.ticks.between(*span)
            if arrived or ticks is not None:
                yield SomeTurns(arrived, ticks, before, low, end)
            low, before = end, before if ticks is None else int(ticks.clocks[-1]) // 1000


def _span(places: np.ndarray, low: int, end: int) -> tuple[int, int]:
    first, last = np.searchsorted(places, [low, end]).tolist()
    return first, last
