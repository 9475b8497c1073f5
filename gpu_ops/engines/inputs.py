"""The inputs of a running query: where each stream comes in, and what waits there for the next step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpu_ops.errors import PlanError
from gpu_ops.ingest.entrance import Entrance
from gpu_ops.operators.events import Events
from gpu_ops.operators.steps import Fed
from gpu_ops.plan.advance import AdvanceTime, Late
from gpu_ops.plan.nodes import Node, Source
from gpu_ops.time import MAX_TIME, MIN_TIME

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
        leaves: The leaves of the plan that it feeds, and whether each takes what is late.
        rows: How many rows have come in.
        promised: Its CTI, as far as a step has taken it in.
        fresh: What no step has taken in yet: events, and so the next three.
        opened: Start edges of events whose ends are not known yet.
        closed: Events that were opened before, with their ends.
        late: Events that were kept aside.
    """

    name: str
    prefix: str
    source: EventSource
    entrance: Entrance
    follows: Input | None = None
    leaves: list[tuple[Node, bool]] = field(default_factory=list)
    rows: int = 0
    promised: int = MIN_TIME
    fresh: list[Events] = field(default_factory=list)
    opened: list[Events] = field(default_factory=list)
    closed: list[Events] = field(default_factory=list)
    late: list[Events] = field(default_factory=list)

    def waiting(self) -> dict[str, list[Events]]:
        """What no step has taken in yet, by the names of its tables."""
        return {"fresh": self.fresh, "opened": self.opened, "closed": self.closed, "late": self.late}

    def fed(self) -> dict[Node, tuple[Fed, int]]:
        """What its leaves get in the next step, and what they promise."""
        events = Fed(self.fresh, self.opened, self.closed), self.entrance.cti
        # What is late may be as late as it likes.
        late = Fed(self.late), self.entrance.cti if self.entrance.cti == MAX_TIME else MIN_TIME
        return {node: late if diverts else events for node, diverts in self.leaves}

    def leaf(self, *, late: bool) -> Node:
        """A leaf that gets its events, or what is late."""
        return next(node for node, diverts in self.leaves if diverts == late)

    def taken(self) -> None:
        """A step has taken all of it in."""
        self.promised = self.entrance.cti
        self.fresh, self.opened, self.closed, self.late = [], [], [], []


def inputs(leaves: Sequence[Node], *, hands_out_open: bool) -> list[Input]:
    """The inputs of a plan's leaves and all that they follow; the leaves' own first."""
    made: dict[Node, Input] = {}

    def add(each: Source | AdvanceTime) -> Input:
        if each in made:
            return made[each]
        leaf, settings, follows = (
            (each.source, each.settings, each.follows) if isinstance(each, AdvanceTime) else (each, None, None)
        )
        open_too = hands_out_open and leaf.source.edges and not made
        entrance = Entrance(settings, leaf.source.schema, hands_out_open=open_too)
        name = leaf.name or "input"
        own = made[each] = Input(name, _OWN if not made else f"{_OWN} {name}", leaf.source, entrance)
        own.follows = None if follows is None else add(follows)
        return own

    for leaf in leaves:
        each = leaf.advance if isinstance(leaf, Late) else leaf
        assert isinstance(each, Source | AdvanceTime)  # noqa: S101  (leaves are nothing else)
        add(each).leaves.append((leaf, isinstance(leaf, Late)))
    names = Counter(each.name for each in made.values())
    (name, count), *_ = names.most_common(1)
    if count > 1:
        raise PlanError(
            f"{count} inputs of the query are called {name!r}, and a running query tells them apart by their names.",
            remedy='Give each stream one: g.events(…, name="orders"). One stream in several places is one input, '
            "if it is one g.events(…) with one .advance_time(…).",
        )
    return sorted(made.values(), key=lambda each: not each.leaves)
