"""The steps of a running query: each node takes new events and a CTI, and gives final events and a CTI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.devices import Device
from gpu_ops.errors import PlanError, blame
from gpu_ops.operators.operator import EachPiece, Operator, StepInput
from gpu_ops.operators.runtime.families import registered
from gpu_ops.plan.nodes import Ends, Node

View = Literal["whole", "open"]
"""How a node sees its events. "whole": each event once its end is known; CTIs are held back at the oldest open event.
"open": start edges as they come, their ends later; CTIs as they came."""

Leaves = Mapping[tuple[Node, View], tuple[StepInput, int]]
"""The input of each leaf of a plan in a step, in each view that a node needs, and its CTI."""


@dataclass(eq=False)
class FirstFailure:
    """Where a plan on turns has failed: what it gives before that place stands.

    What nodes make of rows one by one they make of those before the failing row. Nothing that a node gives at a place
    depends on rows behind it, so that all nodes take the rest of the step, and the user of the plan drops what is given
    from that place on. Then it does not matter with which other rows the failing one came.

    Attributes:
        device: Where arrays live.
        place: The place of the first row that failed; `MAX_TIME` while none has.
        error: Why it failed.
    """

    device: Device
    place: int = MAX_TIME
    error: BaseException | None = None

    def stepped(
        self, own: Operator, given: StepInput, ctis: Sequence[int], error: BaseException
    ) -> tuple[StepInput, int]:
        """What an operator makes of the rows before the first one at which it fails.

        Args:
            own: The operator, which has no state.
            given: Its input, of which it has failed.
            ctis: Its CTI.
            error: What it failed of.
        """
        host, keep = self.device.columns.host, self.device.kernels.keep

        def some(first: int, until: int) -> StepInput:
            return given.each(lambda each: each.take(keep((each.start >= first) & (each.start < until)), self.device))

        def why(first: int, until: int) -> BaseException | None:
            try:
                own.step([some(first, until)], ctis)
            except Exception as wrong:  # noqa: BLE001  (whatever it is, it is that of the rows)
                return wrong
            return None

        every = (*given.events, *given.opened, *given.closed)
        places = np.unique(np.concatenate([host(each.start) for each in every]))
        low, high = 0, len(places)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if why(MIN_TIME, int(places[middle])) else (middle, high)
        place = int(places[low])
        if place < self.place:
            self.place, self.error = place, why(place, place + 1) or error
        return own.step([some(MIN_TIME, place)], ctis)


@dataclass(eq=False)
class RunningNode:
    """A node of a running plan, with the nodes below it. A node that feeds several nodes takes each step once.

    Attributes:
        node: The node of the plan.
        own: Its operator; None for a leaf.
        below: The nodes that feed it; none for a leaf.
        view: The view of its results. A node that passes edges on is there twice, if both views are needed.
        reads: How it uses the ends of each input's events.
        failure: What finds the rows before a failing one, for plans on turns; None where a failure is one of the step.
    """

    node: Node
    own: Operator | None
    below: tuple[RunningNode, ...] = ()
    view: View = "whole"
    reads: tuple[Ends, ...] = ()
    cti: int = MIN_TIME
    given: int = 0
    ctis: list[int] | None = None
    failure: FirstFailure | None = None
    _last: tuple[Leaves, StepInput] | None = None

    def step(self, leaves: Leaves) -> tuple[StepInput, int]:
        """A step of all nodes, the leaves first.

        Args:
            leaves: The input of the leaves, a new object for each step.
        """
        if self._last is None or self._last[0] is not leaves:
            self._last = leaves, self._take(leaves)
        return self._last[1], self.cti

    def rest(self) -> None:
        """Drop the results of the last step."""
        if self._last is not None:
            self._last = None
            for each in self.below:
                each.rest()

    def _take(self, leaves: Leaves) -> StepInput:
        if self.own is None:
            given, passed = leaves[self.node, self.view]
        else:
            inputs = [self._input(at, leaves) for at in range(len(self.below))]
            fed, ctis = [fed for fed, _ in inputs], [cti for _, cti in inputs]
            if ctis == self.ctis and not any(each.events or each.opened or each.closed for each in fed):
                # Nothing has come, and no CTI has moved: it has given all that it can.
                return StepInput()
            self.ctis = ctis
            try:
                given, passed = self.own.step(fed, ctis)
            except BaseException as error:
                blame(error, self.node.explained())
                if self.failure is None or not isinstance(self.own, EachPiece) or not isinstance(error, Exception):
                    raise
                given, passed = self.failure.stepped(self.own, fed[0], ctis, error)
        self.cti = max(self.cti, passed)
        self.given += sum(map(len, given.events))
        return given

    def _input(self, at: int, leaves: Leaves) -> tuple[StepInput, int]:
        fed, cti = self.below[at].step(leaves)
        if self.reads[at] == "unread":
            # The node needs no ends: an event is complete when it starts.
            fed = StepInput([*fed.events, *fed.opened])
        return fed, cti

    def walk(self) -> list[RunningNode]:
        """This node and all below it, each once, inputs first."""
        found: dict[RunningNode, None] = {}

        def visit(each: RunningNode) -> None:
            if each not in found:
                for part in each.below:
                    visit(part)
                found[each] = None

        visit(self)
        return list(found)


Known = dict[tuple[Node, View], RunningNode]


def running(node: Node, device: Device, failure: FirstFailure | None = None) -> RunningNode:
    """A plan, ready to run step by step; a node at several places of the plan runs once.

    Args:
        node: Its last node.
        device: Where arrays live.
        failure: As in `RunningNode`.

    Raises:
        PlanError: There is no operator for a node.
    """
    plan = _seen(node, "whole", device, {})
    _open_windows(plan)
    for each in plan.walk() if failure is not None else ():
        each.failure = failure
    return plan


def _seen(node: Node, view: View, device: Device, known: Known) -> RunningNode:
    """A node in a view; a node that gives no open edges has only one view."""
    view = view if node.gives_open else "whole"
    if (node, view) not in known:
        known[node, view] = _running(node, view, device, known)
    return known[node, view]


def _open_windows(plan: RunningNode) -> None:
    """Let operators emit events before their ends are known, where all that take these support it."""
    nodes = plan.walk()
    takers: dict[RunningNode, list[tuple[RunningNode, int]]] = {each: [] for each in nodes}
    for node in nodes:
        for at, below in enumerate(node.below):
            takers[below].append((node, at))

    def all_take(node: RunningNode) -> bool:
        """Whether open events of a node reach only such as take them."""
        return bool(takers[node]) and all(
            each.own is not None
            and (
                all_take(each)
                if each.own.passes_open
                else each.reads[at] == "unread" or (each.own.opens(at) and each.own.with_open() is not None)
            )
            for each, at in takers[node]
        )

    def asks_ends(node: RunningNode) -> bool:
        """Whether any that takes a node's events reads their ends."""
        return any(
            asks_ends(each) if each.own is not None and each.own.passes_open else each.reads[at] != "unread"
            for each, at in takers[node]
        )

    def reached(node: RunningNode) -> Iterator[RunningNode]:
        for each, _ in takers[node]:
            if each.own is not None and each.own.passes_open:
                yield from reached(each)
            else:
                yield each

    for node in nodes:
        if node.own is not None and node.own.gives_open and all_take(node):
            node.own.open()
            if not asks_ends(node):
                node.own.without_ends()
            for each in reached(node):
                if each.own is not None and (opened := each.own.with_open()) is not None:
                    each.own = opened


def _running(node: Node, view: View, device: Device, known: Known) -> RunningNode:
    if node.comes_in:
        return RunningNode(node, None, view=view)
    family = registered(node)
    if family is None:
        raise PlanError(
            f"There is no running query over {type(node).__name__}.", remedy="Start a query over local data instead."
        )
    other = family.stepped(node)
    if other is not node:
        return _seen(other, view, device, known)
    own = family.of(node, device)
    reads = tuple(own.lowest.ends(at) for at in range(len(own.inputs)))
    asked: dict[Ends, View] = {"needed": "whole", "later": "open", "unread": "open", "passed on": view}
    below = (_seen(each, asked[read], device, known) for each, read in zip(own.inputs, reads, strict=True))
    return RunningNode(node, own, tuple(below), view, reads)
