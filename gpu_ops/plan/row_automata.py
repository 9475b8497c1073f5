"""Row patterns as automata: what is open in a partition is one state, where a match ends all other ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpu_ops.plan.row_patterns import RowMachine

MOST_MOVES = 1 << 11
"""How many states times masks an automaton may have."""

_Way = tuple[int, bool]
"""A place, and whether the way has the first row of the way before it."""

_NONE: tuple[_Way, ...] = ()


@dataclass(frozen=True)
class RowMove:
    """What a row does to a state.

    Attributes:
        after: The state behind it.
        ways: For each way of that state the variable of its last row, and its way before the row: -1 if it begins.
        match: The same for the match that ends with the row; None for no match.
    """

    after: int
    ways: tuple[tuple[int, int], ...]
    match: tuple[int, int] | None


@dataclass(frozen=True)
class RowAutomaton:
    """A machine whose ways are never told apart by how many rows they have: the states of partitions, and their moves.

    A state is the ways that are open, in the order of their first rows, one for each place. State 0 has none.

    Attributes:
        moves: For each state and each set of variables whose conditions hold for a row (a bit for each) the move.
    """

    moves: tuple[tuple[RowMove, ...], ...]

    @property
    def most(self) -> int:
        """How many ways a state has at most."""
        return max(len(move.ways) for moves in self.moves for move in moves)

    @staticmethod
    def of(machine: RowMachine) -> RowAutomaton | None:
        """The automaton of a machine; None if it were too large, or if ways would have to be told apart.

        Examples:
            >>> from gpu_ops.plan.row_patterns import OneRow, OrderedRows, RepeatedRows
            >>> a, b = OneRow("A"), OneRow("B")
            >>> automaton = RowAutomaton.of(RowMachine.of(OrderedRows((a, RepeatedRows(b, 1, None)))))
            >>> automaton.moves[0][0b01], automaton.moves[1][0b10]
            (RowMove(after=1, ways=((0, -1),), match=None), RowMove(after=0, ways=(), match=(1, 0)))
        """
        masks = 1 << (max(machine.variable) + 1) if max(machine.variable) < MOST_MOVES.bit_length() else MOST_MOVES + 1
        states = _States(machine)
        while len(states.moves) < len(states.known):
            if len(states.known) * masks > MOST_MOVES:
                return None
            moves = [states.moved(states.known[len(states.moves)], mask) for mask in range(masks)]
            if None in moves:
                return None
            states.moves.append(tuple(move for move in moves if move is not None))
        return RowAutomaton(tuple(states.moves))


@dataclass
class _States:
    """The states that were found so far, and the moves of the first of them."""

    machine: RowMachine
    known: list[tuple[_Way, ...]] = field(default_factory=lambda: [_NONE])
    moves: list[tuple[RowMove, ...]] = field(default_factory=list)

    def moved(self, ways: Sequence[_Way], mask: int) -> RowMove | None:
        """What a row does; None if it depends on how many rows ways have."""
        machine = self.machine
        # For each place its way before, and a number that ascends with the first row.
        found: dict[int, tuple[int, int]] = {}
        begins = 0
        for at, (place, same) in enumerate((*ways, (-1, False))):
            begins += not same
            for to in machine.following[place] if place >= 0 else machine.first:
                if not mask >> machine.variable[to] & 1:
                    continue
                if to not in found:
                    found[to] = (at if place >= 0 else -1, begins)
                elif found[to][1] == begins:
                    return None
        ends = [to for to in found if machine.last[to]]
        if ends:
            first = min(found[to][1] for to in ends)
            match, *others = (to for to in ends if found[to][1] == first)
            return None if others else RowMove(0, (), (machine.variable[match], found[match][0]))
        going = [to for to in found if machine.following[to]]
        state = tuple((to, at > 0 and found[going[at - 1]][1] == found[to][1]) for at, to in enumerate(going))
        if state not in self.known:
            self.known.append(state)
        made = tuple((machine.variable[to], found[to][0]) for to in going)
        return RowMove(self.known.index(state), made, None)
