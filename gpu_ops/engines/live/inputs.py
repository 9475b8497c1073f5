"""The inputs of a running query: where each stream comes in, and what waits there for the next step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.devices import Device
from gpu_ops.errors import PlanError
from gpu_ops.ingest.counts import Counts
from gpu_ops.ingest.ingress import Admitted, Ingress
from gpu_ops.operators.events import Events
from gpu_ops.operators.operator import StepInput
from gpu_ops.operators.runtime.steps import RunningNode, View
from gpu_ops.operators.state.rows import Least
from gpu_ops.plan.identity import NodeIdentity
from gpu_ops.plan.nodes import Arrival, Node

if TYPE_CHECKING:
    from gpu_ops.ingest.sources import EventSource

_OWN = "0 entrance"
"""The name of the state of the query's own input."""


@dataclass(eq=False)
class Input:
    """Where a stream comes in: one of the query's own, or one that CTIs are imported from.

    Attributes:
        name: What the user calls it.
        prefix: The name of its state.
        source: What its rows look like.
        entrance: What lets them in.
        follows: Where its CTIs come from besides.
        leaves: The leaves of the plan that it feeds.
        counts: What was counted of the rows that have come in.
        since_cti: How many were let in since its CTI has moved, as far as is known.
        still_open: The starts of the events that were handed out as start edges and have not ended; None where nobody
            needs whole events besides.
        promised: What it promises in each view, as far as a step has taken it in.
        fresh: What no step has taken in yet: events, and so the next three.
        opened: Start edges of events whose ends are not known yet.
        closed: Events that were opened before, with their ends.
        late: Events that were kept aside.
    """

    name: str
    prefix: str
    source: EventSource
    entrance: Ingress
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
        """What no step has taken in yet, by the names of its tables."""
        return {"fresh": self.fresh, "opened": self.opened, "closed": self.closed, "late": self.late}

    @property
    def promises(self) -> tuple[int, int]:
        """The CTI with open edges, and the one of whole events: that one is held back at the oldest that is open."""
        cti = self.entrance.cti
        return cti, cti if self.still_open is None else self.still_open.least(cti)

    @property
    def moved(self) -> bool:
        """Whether it promises more than the last step has taken in."""
        cti, whole = self.promises
        return cti > self.promised[0] or whole > self.promised[1]

    @cached_property
    def diverts(self) -> bool:
        """Whether anybody takes what is late."""
        return any(map(is_late, self.leaves))

    @cached_property
    def late_alone(self) -> bool:
        """Whether nobody takes anything else."""
        return all(map(is_late, self.leaves))

    @property
    def waits(self) -> int:
        """How many events no step has taken in yet."""
        pieces = [*self.fresh, *self.opened, *self.closed, *self.late]
        return sum(map(len, pieces))

    @property
    def says_ctis(self) -> bool:
        """Whether its rows may bring a CTI."""
        return self.entrance.makes_ctis or self.source.says_ctis

    def take(self, admitted: Admitted, device: Device) -> None:
        """Keep what was let in for the next step."""
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
        """Keep the starts of open edges that have begun and ended, if anybody asks for the oldest."""
        if self.still_open is None:
            return
        if admitted.closes is not None:
            self.still_open.remove(admitted.start[admitted.closes])
        if admitted.opened is not None:
            self.still_open.add(admitted.opened.start)

    def restored(self, entrance: Ingress) -> None:
        """Go on with an entrance as it was."""
        self.entrance = entrance
        if self.still_open is not None:
            self.still_open = Least()
            self.still_open.add(entrance.handed_out)

    def fed(self) -> dict[tuple[Node, View], tuple[StepInput, int]]:
        """What its leaves get in the next step, and what they promise."""
        cti, whole = self.promises
        views = {
            "open": (StepInput(self.fresh, self.opened, self.closed), cti),
            "whole": (StepInput([*self.fresh, *self.closed]), whole),
        }
        # What is late may be as late as it likes.
        late = StepInput(self.late), cti if cti == MAX_TIME else MIN_TIME
        return {(leaf.node, leaf.view): late if is_late(leaf) else views[leaf.view] for leaf in self.leaves}

    def leaf(self, *, late: bool) -> Node:
        """A leaf that gets its events, or what is late."""
        return next(leaf.node for leaf in self.leaves if is_late(leaf) == late)

    def taken(self) -> None:
        """A step has taken all of it in."""
        self.promised = self.promises
        self.fresh, self.opened, self.closed, self.late = [], [], [], []


def is_late(leaf: RunningNode) -> bool:
    """Whether a leaf takes what is late."""
    return _arrival(leaf.node).late


def _arrival(leaf: Node) -> Arrival:
    """What comes in at a leaf."""
    assert leaf.arrival is not None  # noqa: S101  (that is what makes it one)
    return leaf.arrival


def inputs(leaves: Sequence[RunningNode]) -> list[Input]:
    """The inputs of a plan's leaves and all that they follow; the leaves' own first.

    Raises:
        PlanError: Two have one name.
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
        entrance = Ingress(arrival.settings, source.schema, hands_out_open="open" in asked)
        own = made[each.identity] = Input(name, _OWN if not made else f"{_OWN} {name}", source, entrance)
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


def find(known: Sequence[Input], name: str | None) -> Input:
    """An input by its name; without a name the only one that is the query's own.

    Raises:
        PlanError: There is none, or there are several.
    """
    if name is None and not (len(known) > 1 and known[1].leaves):
        return known[0]
    for each in known:
        if each.name == name:
            return each
    names = ", ".join(repr(each.name) for each in known)
    if name is None:
        raise PlanError("The query has several inputs.", remedy=f"Say which one it is: input= one of {names}.")
    raise PlanError(f"The query has no input {name!r}.", remedy=f"It has {names}.")
