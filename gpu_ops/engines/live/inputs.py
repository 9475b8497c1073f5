"""The inputs of a running query: each stream's ingress, and the events that wait there for the next step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.devices import Device
from gpu_ops.errors import PlanError, shown
from gpu_ops.ingest.counts import Counts
from gpu_ops.ingest.ingress import Admitted, Ingress
from gpu_ops.operators.events import Events
from gpu_ops.operators.operator import StepInput
from gpu_ops.operators.runtime.steps import RunningNode, View
from gpu_ops.operators.state.least import Least
from gpu_ops.plan.identity import NodeIdentity
from gpu_ops.plan.nodes import Arrival, Node

if TYPE_CHECKING:
    from gpu_ops.ingest.sources import EventSource

_OWN = "0 entrance"
"""The prefix of the state tables of the query's first input."""


@dataclass(eq=False)
class Input:
    """An input stream: one that feeds the query, or one that only lends its CTIs to another.

    Attributes:
        name: The user's name for it.
        prefix: The prefix of its state tables.
        source: The schema and the checks of its rows.
        ingress: Its ingress.
        follows: The input whose CTIs it imports.
        leaves: The leaves of the plan that it feeds.
        counts: The counts of its rows.
        since_cti: How many rows were admitted since its CTI last moved, as far as is known.
        still_open: The starts of open events that were passed on as start edges; None unless a leaf takes whole events
            beside a leaf that takes edges.
        promised: Its CTI in each view at the last step.
        fresh: Events that no step has taken in yet. The next three wait for a step too.
        opened: Start edges of events whose ends are not known yet.
        closed: Events with their ends that were opened before.
        late: Diverted events.
    """

    name: str
    prefix: str
    source: EventSource
    ingress: Ingress
    follows: Input | None = None
    leaves: list[RunningNode] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    since_cti: int = 0
    still_open: Least | None = None
    promised: tuple[int, int] = (MIN_TIME, MIN_TIME)
    fresh: list[Events] = field(default_factory=list)
    opened: list[Events] = field(default_factory=list)
    closed: list[Events] = field(default_factory=list)
    late: list[Events] = field(default_factory=list)

    def waiting(self) -> dict[str, list[Events]]:
        """The events that wait for a step, by the names of their state tables."""
        return {"fresh": self.fresh, "opened": self.opened, "closed": self.closed, "late": self.late}

    @property
    def promises(self) -> tuple[int, int]:
        """The CTI of the open view and that of the whole view, which the oldest open event holds back."""
        cti = self.ingress.cti
        return cti, cti if self.still_open is None else self.still_open.least(cti)

    @property
    def moved(self) -> bool:
        """Whether a CTI has moved since the last step."""
        cti, whole = self.promises
        return cti > self.promised[0] or whole > self.promised[1]

    @cached_property
    def diverts(self) -> bool:
        """Whether a leaf takes late events."""
        return any(map(is_late, self.leaves))

    @cached_property
    def late_alone(self) -> bool:
        """Whether every leaf takes late events."""
        return all(map(is_late, self.leaves))

    @property
    def waits(self) -> int:
        """How many events wait for a step."""
        pieces = [*self.fresh, *self.opened, *self.closed, *self.late]
        return sum(map(len, pieces))

    @property
    def says_ctis(self) -> bool:
        """Whether its rows may bring CTIs."""
        return self.ingress.makes_ctis or self.source.says_ctis

    def named(self, partition: Any) -> Mapping[str, Any] | None:
        """A partition by its columns' values; a value alone is that of the only column."""
        if partition is None or isinstance(partition, Mapping):
            return partition
        return (
            dict.fromkeys(self.ingress.settings.per, partition)
            if len(self.ingress.settings.per) == 1
            else {"": partition}
        )

    def take(self, admitted: Admitted, device: Device) -> None:
        """Keep admitted events for the next step."""
        columns = device.columns
        self.since_cti = len(admitted.start) + (0 if len(admitted.ctis) else self.since_cti)
        self._note_edges(admitted)
        if admitted.diverted is not None and self.diverts:
            late = admitted.diverted
            times = columns.array(late.start), columns.array(late.end)
            self.late.append(Events(*times, columns.from_arrow(late.payload)))
        if self.late_alone:
            return
        if len(admitted.start):
            end = 1 if self.source.points else columns.array(admitted.end)
            events = Events(columns.array(admitted.start), end, columns.from_arrow(admitted.payload))
            if admitted.closes is None:
                self.fresh.append(events)
            else:
                closes = columns.array(admitted.closes)
                self.fresh.append(events.where(~closes, device))
                self.closed.append(events.where(closes, device))
        if admitted.opened is not None:
            start = columns.array(admitted.opened.start)
            self.opened.append(Events(start, 1, columns.from_arrow(admitted.opened.payload)))

    def _note_edges(self, admitted: Admitted) -> None:
        """Update the starts of open events, if they are needed."""
        if self.still_open is None:
            return
        if admitted.closes is not None:
            self.still_open.remove(admitted.start[admitted.closes])
        if admitted.opened is not None:
            self.still_open.add(admitted.opened.start)

    def restored(self, ingress: Ingress) -> None:
        """Go on with a restored ingress."""
        self.ingress = ingress
        if self.still_open is not None:
            self.still_open = Least()
            self.still_open.add(ingress.handed_out)

    def fed(self) -> dict[tuple[Node, View], tuple[StepInput, int]]:
        """The events and the CTI of each leaf in the next step."""
        cti, whole = self.promises
        views = {
            "open": (StepInput(self.fresh, self.opened, self.closed), cti),
            "whole": (StepInput([*self.fresh, *self.closed]), whole),
        }
        # A late event may start at any time, so late leaves have no CTI before the end of input.
        late = StepInput(self.late), cti if cti == MAX_TIME else MIN_TIME
        return {(leaf.node, leaf.view): late if is_late(leaf) else views[leaf.view] for leaf in self.leaves}

    def leaf(self, *, late: bool) -> Node:
        """A leaf that takes its events, or its late events."""
        return next(leaf.node for leaf in self.leaves if is_late(leaf) == late)

    def taken(self) -> None:
        """Forget the events that a step has just taken in."""
        self.promised = self.promises
        self.fresh, self.opened, self.closed, self.late = [], [], [], []


def is_late(leaf: RunningNode) -> bool:
    """Whether a leaf takes late events."""
    return _arrival(leaf.node).late


def _arrival(leaf: Node) -> Arrival:
    """The arrival that a leaf declares."""
    assert leaf.arrival is not None  # noqa: S101  (every leaf has one)
    return leaf.arrival


def inputs(leaves: Sequence[RunningNode]) -> list[Input]:
    """The inputs that feed a plan's leaves, then the inputs that only lend their CTIs.

    Raises:
        PlanError: Two inputs have the same name.
    """
    made: dict[NodeIdentity, Input] = {}

    views: dict[Node, set[View]] = {}
    for leaf in leaves:
        if not is_late(leaf):
            views.setdefault(leaf.node, set()).add(leaf.view)

    def add(each: Node) -> Input:
        if each.identity in made:
            return made[each.identity]
        arrival, asked = _arrival(each), views.get(each, set())
        source, name = arrival.source.source, arrival.source.name or "input"
        ingress = Ingress(arrival.settings, source.schema, hands_out_open="open" in asked)
        own = made[each.identity] = Input(name, _OWN if not made else f"{_OWN} {name}", source, ingress)
        own.still_open = Least() if len(asked) > 1 else None
        own.follows = None if arrival.follows is None else add(arrival.follows)
        return own

    for leaf in leaves:
        add(_arrival(leaf.node).node).leaves.append(leaf)
    names = Counter(each.name for each in made.values())
    (name, count), *_ = names.most_common(1)
    if count > 1:
        raise PlanError(
            f"{count} inputs of the query are called {name!r}, and a running query tells them apart by their names.",
            remedy='Give each stream one: g.events(…, name="orders"). One stream in several places is one input, '
            "if it is one g.events(…) with one .advance_time(…).",
        )
    return sorted(made.values(), key=lambda each: not each.leaves)


def tables_in_turn(own: list[Input]) -> Iterator[tuple[str, pa.Table]]:
    """The tables of the sources, one of each source in turn."""
    left = [(each.name, each.source.raw_tables()) for each in own]
    while left:
        for each in list(left):
            table = next(each[1], None)
            if table is None:
                left.remove(each)
            else:
                yield each[0], table


def find(known: Sequence[Input], name: str | None) -> Input:
    """An input by its name; without a name, the only one that feeds the query.

    Raises:
        PlanError: No input has the name; or no name was given, and there are several inputs.
    """
    if name is None and not (len(known) > 1 and known[1].leaves):
        return known[0]
    for each in known:
        if isinstance(name, str) and each.name == name:
            return each
    names = ", ".join(repr(each.name) for each in known)
    if name is None:
        raise PlanError("The query has several inputs.", remedy=f"Say which one it is: input= one of {names}.")
    raise PlanError(f"The query has no input {shown(name)}.", remedy=f"It has {names}.")
