"""What a query can read: streams, tables, and what is said of them where the query is registered."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from gpu_ops.core.arguments import whole
from gpu_ops.core.cycles import WHENEVER, Schedule
from gpu_ops.errors import PlanError, shown
from gpu_ops.plan.combinations import Combinable
from gpu_ops.plan.nodes import Node

OwnAggregate = Callable[..., Combinable]
"""A function of the names of columns, and of constants, that gives an aggregate: `g.weighted_mean` is one."""


@dataclass(frozen=True)
class KnownStream:
    """A stream.

    Attributes:
        schema: Its columns.
        arrivals: Its events, on turns.
        time: The column with the events' own times, milliseconds since 1970; nothing if they have none.
    """

    schema: pa.Schema
    arrivals: Node
    time: str = ""


@dataclass(frozen=True)
class KnownTable:
    """A plain table.

    Attributes:
        schema: Its columns.
        rows: Its rows, points in the cycles from which queries see them.
        read: Its rows, on turns, where partitions' conditions have read the table again.
    """

    schema: pa.Schema
    rows: Node
    read: Node


@dataclass(frozen=True)
class WindowSize:
    """The size of a key's window, where it is not that of the text.

    Attributes:
        count: How many rows; None for as many as the text says.
        milliseconds: How long, for a span; None for as long as the text says.
    """

    count: int | None = None
    milliseconds: int | None = None

    def __post_init__(self) -> None:
        for said in (self.count, self.milliseconds):
            if said is not None and (isinstance(said, bool) or said < 1):
                raise PlanError(f"The size of a window is {shown(said)}.", remedy="Give a whole number from 1 on.")


SizesByKey = Mapping[tuple[object, ...], WindowSize]
"""Sizes of windows by the values of a partition's columns."""


@dataclass(frozen=True)
class QuerySettings:
    """What is said of a query beside its text.

    Attributes:
        schedule: When it may run.
        weights: For each stream how much of a cycle one of its events asks for; 1 where nothing is said.
        waiting: For each stream how many rows may wait for a full window; any number where nothing is said.
        sizes: Sizes of windows by the names that texts give them behind `store last N`.
        baselines: Numbers by the names that texts give them behind `$diff`.
        seed: What decides which rows a random window takes.
        aggregates: Own aggregates by the names that texts give them: `custom(name, …)` is what the function makes of
            the names of columns, and of constants.
    """

    schedule: Schedule = WHENEVER
    weights: Mapping[str, float] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[str, SizesByKey] = field(default_factory=dict)
    baselines: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    aggregates: Mapping[str, OwnAggregate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, weight in self.weights.items():
            given: object = weight
            if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < float("inf"):
                raise PlanError(f"The weight of {name!r} is {shown(weight)}.", remedy="Give a number of 0 or more.")
        for name, count in self.waiting.items():
            whole(count, name=f"waiting[{name!r}]", least=0)
        whole(self.seed, name="seed", least=0)

    def check_names(self, streams: Collection[str]) -> None:
        """See to it that what is said of streams names some of these.

        Raises:
            PlanError: It names another one.
        """
        for word, said in (("weights", self.weights), ("waiting", self.waiting)):
            for name in said:
                if name not in streams:
                    known = ", ".join(streams) or "none"
                    raise PlanError(f"{word}= names {name!r}, which is no stream.", remedy=f"Streams: {known}.")


@dataclass(frozen=True)
class KnownSources:
    """All that a query can read.

    Attributes:
        streams: The streams by their names.
        tables: The tables by their names.
        clocks: What says how far the clock is: the ticks, or the streams of events.
        ticks: Whether `clocks` are the ticks.
    """

    streams: Mapping[str, KnownStream]
    tables: Mapping[str, KnownTable]
    clocks: tuple[Node, ...]
    ticks: bool
