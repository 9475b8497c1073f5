"""The clock of arrivals in many partitions: each is shown all its moves, whichever partition has the events.

Windows of time wait for the clock, which the events of all keys move. So the driver asks an epoch for the times of its
events before its tasks run, and each partition numbers its own events beside them: its clock moves as that of one
partition would. Its turns are then others, so what shows their numbers still needs one partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpu_ops.core.arrow_buffers import to_arrow
from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.time import TIME_TYPE
from gpu_ops.ingest import open_source
from gpu_ops.plan.ledger import TurnNumbers
from gpu_ops.plan.nodes import KeyBy, Node, Project, Source

Moves = tuple[npt.NDArray[np.int64], ...]
"""For each of some clocks the times to which events move it, in ticks."""


@dataclass(frozen=True)
class Clock:
    """The clock of a ledger, as one more input of each partition.

    Attributes:
        name: What the running query of a partition calls the input.
        of: The numbers of the inputs whose events move it.
        columns: The columns of its rows: ``start``, and what orders events of one time.
    """

    name: str
    of: tuple[int, ...]
    columns: pa.Schema

    def cti(self, ctis: Sequence[int | None]) -> int | None:
        """Its CTI, of the CTIs of all inputs."""
        known = [each for each in (ctis[number] for number in self.of) if each is not None]
        return min(known) if len(known) == len(self.of) else None

    def rows(self, times: npt.NDArray[np.int64]) -> pa.Table:
        """What is pushed for some times, in ticks; no two are the same."""
        first = pa.array(np.zeros(len(times), np.int64))
        order = [first.cast(each.type) for each in list(self.columns)[1:]]
        return pa.Table.from_arrays([to_arrow(times, TIME_TYPE), *order], schema=self.columns)


def movers(ledger: TurnNumbers, leaves: Mapping[Node, int]) -> tuple[int, ...] | None:
    """The inputs whose events are those that move a ledger's clock; None if others do: fewer of them, or made ones.

    Args:
        ledger: The ledger.
        leaves: The numbers of the inputs, by their leaves.
    """
    found = []
    for each in ledger.streams:
        below = each
        while below not in leaves and isinstance(below, KeyBy | Project):
            below = below.input
        if below not in leaves:
            return None
        found.append(leaves[below])
    return tuple(dict.fromkeys(found))


def with_clocks(plan: Node, leaves: Sequence[Node]) -> tuple[Node, list[Clock]]:
    """A plan whose ledgers take the moves of their clocks from inputs of their own.

    Args:
        plan: The plan of a partition.
        leaves: Where its inputs come in, by their numbers.
    """
    numbers = {leaf: number for number, leaf in enumerate(leaves)}
    clocks: list[Clock] = []
    made: dict[Node, Node] = {}
    for each in plan.walk():
        below = [made[under] for under in each.inputs]
        made[each] = each if below == list(each.inputs) else each.over(*below)
        of = movers(each, numbers) if isinstance(each, TurnNumbers) and each.moves else None
        if of is not None:
            ledger = made[each]
            assert isinstance(ledger, TurnNumbers)  # noqa: S101  (over gives its own kind)
            order = [] if ledger.order is None else [ledger.streams[0].schema.field(ledger.order)]
            columns = pa.schema([("start", TIME_TYPE), *order])
            clock = Clock(f"clock {len(clocks) + 1}", of, columns)
            source = Source(open_source(empty_table(columns), start="start"), clock.name)
            streams, called = (*ledger.streams, source), (*ledger.called, "the clock")
            made[each] = replace(ledger, streams=streams, called=called, shown=True)
            clocks.append(clock)
    return made[plan], clocks
