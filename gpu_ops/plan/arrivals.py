"""Streams on turns: the leaves of plans per arrival, made of streams of events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import narwhals as nw

from gpu_ops.core.turns import ROW
from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.plan.ledger import TURN_NUMBER, AtClock, EventLedger, TurnNumbers
from gpu_ops.plan.nodes import Filter, KeyBy, Node, Project

TURN_COLUMN, ROW_COLUMN = "turn", "row"
"""The columns of deliveries beside those of their rows."""


@dataclass(frozen=True)
class OnTurns:
    """What a ledger gives.

    Attributes:
        arrivals: The arrivals of each stream.
        ticks: The ticks.
        since: What the clock shows first, in ticks.
    """

    arrivals: Mapping[str, Node]
    ticks: Node
    since: int


def on_turns(
    streams: Mapping[str, Node], *, order: str | None, since: int, until: int | None = None, moves: bool = True
) -> OnTurns:
    """Streams of events on the turns of one ledger.

    Args:
        streams: The streams by their names.
        order: As in `TurnNumbers`.
        since: Likewise.
        until: Likewise.
        moves: Likewise.

    Raises:
        ColumnError: As `TurnNumbers`.
        PlanError: As `TurnNumbers`; or some of the events are on Spark and some are not.
    """
    there = [name for name, node in streams.items() if node.on_spark]
    if there and len(there) < len(streams):
        here = next(name for name in streams if name not in there)
        raise PlanError(
            f"{there[0]!r} is on Spark, and {here!r} is not.",
            remedy="Give all as DataFrames: spark.createDataFrame(table).",
        )
    nodes = tuple(KeyBy(node, ()) if node.key else node for node in streams.values())
    numbers = TurnNumbers(nodes, tuple(streams), order, since, until, moves)
    made = {name: EventLedger.of(numbers, at) for at, name in enumerate(streams)}
    return OnTurns(made, EventLedger.of(numbers, None), since)


def delivered(deliveries: Node, ticks: Node, columns: Mapping[str, str], shows: tuple[int | None, int | None]) -> Node:
    """Deliveries as events: ``turn``, ``row``, and columns by their new names.

    Args:
        deliveries: The rows of deliveries, on turns.
        ticks: The ticks.
        columns: From names of the deliveries to new names.
        shows: Which kinds of rows are new rows, and which are old ones; None for none.

    Raises:
        ColumnError: A column has the name of another one.
    """
    named = list(columns.values())
    for name in (TURN_COLUMN, ROW_COLUMN, "start", "end"):
        if name in named:
            raise ColumnError("Deliveries have a column of this name.", column=name, remedy="Give it another name.")
    new, _ = shows
    kinds = [each for each in shows if each is not None]
    some = deliveries if _always(deliveries, ROW) in kinds else Filter(deliveries, nw.col(ROW).is_in(kinds))
    word = nw.lit("old" if new is None else "new")
    if len(kinds) == 2:
        word = nw.when(nw.col(ROW) == new).then(word).otherwise(nw.lit("old"))
    shown = [nw.col(TURN_NUMBER).alias(TURN_COLUMN), word.alias(ROW_COLUMN)]
    shown += [nw.col(name).alias(other) for name, other in columns.items()]
    return Project(AtClock(some, ticks), tuple(shown), keep=False)


def _always(node: Node, name: str) -> int | None:
    """The number that a column has in each row, if the plan says so."""
    while isinstance(node, Project):
        value = node.values.get(name)
        while value is not None and value.name == "alias":
            (value,) = value.terms
        if value is not None and value.name != "col":
            return value.literal
        name = name if value is None else value.options["name"]
        node = node.input
    return None
