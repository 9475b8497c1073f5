"""The steps of a running query: each node takes what is new and a CTI, and gives what has become final and a CTI.

A batch is one step whose CTI is infinity: what every operator does then is what `gpu_ops.engines.local.engine` has it
do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

import narwhals as nw
import numpy as np
import pyarrow as pa

from gpu_ops.core.state_tables import StateTable, Tables, counter
from gpu_ops.core.time import MIN_TIME, TICK, format_time
from gpu_ops.devices import Device
from gpu_ops.errors import PlanError, TimeError, blame
from gpu_ops.operators import filter_project, lifetimes
from gpu_ops.operators.events import Events, concat
from gpu_ops.operators.joins.incremental import RunningAsOf, RunningBinary, RunningClip, RunningJoin
from gpu_ops.operators.joins.incremental_stitch import RunningStitch
from gpu_ops.operators.joins.joins import numbered
from gpu_ops.operators.row_windows.incremental import RunningDataWindow
from gpu_ops.operators.unnest import several
from gpu_ops.operators.windows.fills import RunningFill
from gpu_ops.operators.windows.incremental_window import RunningWindow
from gpu_ops.operators.windows.recomputing_window import RunningWhole
from gpu_ops.plan.data_windows import DataWindow
from gpu_ops.plan.fills import Fill
from gpu_ops.plan.joins import AsOf, ClipBy, Join, Numbered, Union
from gpu_ops.plan.lifetimes import Chop, Lifetime, Stitch
from gpu_ops.plan.nodes import Ends, Expressions, KeyBy, Node
from gpu_ops.plan.unnest import Repeat, Unnest
from gpu_ops.plan.windows import WindowAggregate


class Step(Protocol):
    """A node in a running query. Only the ones that remember anything have tables."""

    def step(self, events: Events | None, cti: int) -> tuple[list[Events], int]:
        """What has become final, and the CTI after it; ``events`` start at or after the step before's CTI."""

    @property
    def alive(self) -> int:
        """How many events it keeps."""

    @property
    def waiting(self) -> int:
        """How many of them wait for a CTI to pass their start."""

    def tables(self) -> dict[str, pa.Table]:
        """What it remembers."""

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives, as `gpu_ops.core.state_tables.HasState.declared`."""

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """Remember what `tables` gave."""


class Stateless:
    """A node that handles each event by itself."""

    alive = waiting = 0

    def __init__(self, device: Device) -> None:
        self._device = device

    def tables(self) -> dict[str, pa.Table]:
        """Nothing."""
        return {}

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """None."""
        yield from ()

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """Nothing to remember."""


class Columns(Stateless):
    """A chain of filters and projections."""

    def __init__(self, chain: Sequence[Expressions], device: Device) -> None:
        super().__init__(device)
        self._chain = chain

    def step(self, events: Events | None, cti: int) -> tuple[list[Events], int]:
        """Each event by itself; the CTI as it is."""
        return self.each([] if events is None else [events]), cti

    @property
    def reads_end(self) -> bool:
        """Whether anything in the chain asks when an event ends."""
        return any(each.ends(0) == "needed" for each in self._chain)

    def each(self, pieces: Sequence[Events]) -> list[Events]:
        """The chain over each piece."""
        return [filter_project.run(self._chain, events, self._device) for events in pieces]


class Numbers(Stateless):
    """A number for each event, in the order in which they come."""

    def __init__(self, node: Numbered, device: Device) -> None:
        super().__init__(device)
        self._node, self._next = node, 0

    def step(self, events: Events | None, cti: int) -> tuple[list[Events], int]:
        """Each event with the next number; the CTI as it is."""
        if events is None:
            return [], cti
        made = numbered(self._node, events, self._next, self._device)
        self._next += len(events)
        return [made], cti

    def tables(self) -> dict[str, pa.Table]:
        """The next number."""
        return {"next": pa.table({"number": pa.array([self._next], pa.int64())})}

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The table that `tables` gives."""
        yield StateTable("next", {"number": counter()}, rows=1, required=True)

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """Go on with the number that `tables` gave."""
        self._next = tables["next"]["number"][0].as_py()


class Pieces(Stateless):
    """Lifetimes cut at a grid: no piece starts before its event."""

    def __init__(self, node: Chop, device: Device) -> None:
        super().__init__(device)
        self._node = node

    def step(self, events: Events | None, cti: int) -> tuple[list[Events], int]:
        """All pieces of each event; the CTI as it is."""
        return [] if events is None else [lifetimes.chop(self._node, events, self._device)], cti


class Lifetimes(Stateless):
    """A change of lifetime, which the CTI goes through as starts do."""

    def __init__(self, node: Lifetime, device: Device) -> None:
        super().__init__(device)
        self._node = node
        self._promised = MIN_TIME

    def step(self, events: Events | None, cti: int) -> tuple[list[Events], int]:
        """Each event by itself; the CTI as the start of an event would.

        Raises:
            TimeError: A new start lies before a CTI that went the same way: starts do not keep their order.
        """
        node = self._node
        made = [] if events is None else [lifetimes.changed(node, events, self._device)]
        moved = node.moved_cti(cti)
        if moved is None:
            self._check(made)
            new = node.new_start if node.by_start_alone else None
            moved = MIN_TIME if new is None else self._as_start(new, cti)
        self._promised = max(self._promised, moved)
        return made, self._promised

    def _as_start(self, new: nw.Expr, cti: int) -> int:
        """The new start of an event that starts at the CTI."""
        columns = self._device.columns
        schema = pa.schema([each.with_nullable(True) for each in self._node.input.schema])
        nothing = pa.table([pa.nulls(1, each.type) for each in schema], schema=schema)
        start = columns.array(np.array([cti]))

        def step(frame: Any) -> Any:
            return frame.select("start", "end", __moved=new)

        _, _, made = columns.evaluate(start, TICK, columns.from_arrow(nothing), [step])
        moved, valid = columns.values(made, "__moved")
        return int(moved[0]) if valid is None else self._promised

    def _check(self, made: Iterable[Events]) -> None:
        for events in made:
            if len(events) and self._device.kernels.extent(events.start)[0] < self._promised:
                at = int((events.start < self._promised).argmax())
                raise TimeError(
                    "alter_lifetime moves a start before the CTI that went the same way: "
                    f"{format_time(int(events.start[at]))} is before {format_time(self._promised)}.",
                    row=at,
                    remedy="Let no later start have an earlier new start, or let CTIs wait: advance_time(delay=…).",
                )


class Rows(Stateless):
    """Lists of structs as rows, or events that are there several times."""

    def __init__(self, node: Unnest | Repeat, device: Device) -> None:
        super().__init__(device)
        self._node = node

    def step(self, events: Events | None, cti: int) -> tuple[list[Events], int]:
        """All rows of each event; the CTI as it is."""
        return self.each([] if events is None else [events]), cti

    def each(self, pieces: Sequence[Events]) -> list[Events]:
        """The rows of each piece."""
        return [several(self._node, events, self._device) for events in pieces]


@dataclass(frozen=True)
class Fed:
    """What comes to a node in a step.

    Attributes:
        events: Events whose lifetimes are known.
        opened: Events whose ends are not known yet, if the node takes them (`Node.ends`).
        closed: Events that were opened in an earlier step, with their ends.
    """

    events: Sequence[Events] = ()
    opened: Sequence[Events] = ()
    closed: Sequence[Events] = ()


View = Literal["whole", "open"]
"""How a node sees its events: each once its end is known, with CTIs that are held back at the oldest one that is open;
or start edges as they come and their ends later, with the CTIs that came."""

Leaves = Mapping[tuple[Node, View], tuple[Fed, int]]
"""What comes to each leaf of a plan in a step, in each view of it that is asked for, and what it promises."""


@dataclass(eq=False)
class Running:
    """A node of a running plan with all that is below it. A node that feeds several takes each step once.

    Attributes:
        node: The node of the plan.
        own: Its step; None where events pass as they are.
        below: What feeds it; nothing for a leaf.
        view: How what it gives sees events. A node that hands edges on stands twice, if both views are asked for.
        reads: What it does with the ends of the events of each input.
    """

    node: Node
    own: Step | RunningBinary | None
    below: tuple[Running, ...] = ()
    view: View = "whole"
    reads: tuple[Ends, ...] = ()
    cti: int = MIN_TIME
    given: int = 0
    _last: tuple[Leaves, Fed] | None = None

    def step(self, leaves: Leaves, device: Device) -> tuple[Fed, int]:
        """A step of all nodes, the leaves first.

        Args:
            leaves: What comes in, as one object for each step.
            device: Where arrays live.
        """
        if self._last is None or self._last[0] is not leaves:
            self._last = leaves, self._take(leaves, device)
        return self._last[1], self.cti

    def rest(self) -> None:
        """Let go of what the last step gave."""
        if self._last is not None:
            self._last = None
            for each in self.below:
                each.rest()

    def _take(self, leaves: Leaves, device: Device) -> Fed:
        inputs = [self._input(at, leaves, device) for at in range(len(self.below))]
        try:
            return self._made(inputs or [leaves[self.node, self.view]], device)
        except BaseException as error:
            blame(error, self.node.describe())
            raise

    def _made(self, inputs: Sequence[tuple[Fed, int]], device: Device) -> Fed:
        given, passed = inputs[0]
        if len(inputs) > 1 and isinstance(self.own, RunningBinary):
            sides = [concat(fed.events, device) for fed, _ in inputs]
            events, passed = self.own.step(sides, [cti for _, cti in inputs])
            given = Fed(events)
        elif len(inputs) > 1:
            given = self._together([fed for fed, _ in inputs], device)
            passed = min(cti for _, cti in inputs)
        elif self.own is not None:
            given, passed = self._step(cast("Step", self.own), given, passed, device)
        self.cti = max(self.cti, passed)
        self.given += sum(map(len, given.events))
        return given

    def _input(self, at: int, leaves: Leaves, device: Device) -> tuple[Fed, int]:
        fed, cti = self.below[at].step(leaves, device)
        if self.reads[at] == "unread":
            # All of an event is known when it starts.
            fed = Fed([*fed.events, *fed.opened])
        return fed, cti

    def _together(self, parts: Sequence[Fed], device: Device) -> Fed:
        names = self.node.schema.names

        def ordered(pieces: Iterable[Events]) -> list[Events]:
            return [Events(each.start, each.ends, device.columns.select(each.frame, names)) for each in pieces]

        return Fed(
            ordered(events for fed in parts for events in fed.events),
            ordered(events for fed in parts for events in fed.opened),
            ordered(events for fed in parts for events in fed.closed),
        )

    def _step(self, own: Step, given: Fed, cti: int, device: Device) -> tuple[Fed, int]:
        if isinstance(own, RunningWindow | RunningWhole):
            opened, closed = concat(given.opened, device), concat(given.closed, device)
            events, passed = own.step(concat(given.events, device), cti, opened, closed)
            return Fed(events), passed
        if isinstance(own, Columns | Rows):
            return Fed(own.each(given.events), own.each(given.opened), own.each(given.closed)), cti
        if isinstance(own, RunningDataWindow):
            events, passed = own.step(concat(given.events, device), cti)
            return Fed(events, *own.edges()), passed
        events, passed = own.step(concat(given.events, device), cti)
        return Fed(events), passed

    def walk(self) -> list[Running]:
        """This node and all below it, each once, inputs first."""
        found: dict[Running, None] = {}

        def visit(each: Running) -> None:
            if each not in found:
                for part in each.below:
                    visit(part)
                found[each] = None

        visit(self)
        return list(found)


Known = dict[tuple[Node, View], Running]


def running(node: Node, device: Device) -> Running:
    """A plan, made ready to run step by step; a node that stands at several places of it runs once.

    Args:
        node: Its last node.
        device: Where arrays live.

    Raises:
        PlanError: There is no step for a node.
    """
    plan = _seen(node, "whole", device, {})
    _open_windows(plan, device)
    return plan


def _seen(node: Node, view: View, device: Device, known: Known) -> Running:
    """A node in a view: there is but one of what gives no open edges."""
    view = view if node.gives_open else "whole"
    if (node, view) not in known:
        known[node, view] = _running(node, view, device, known)
    return known[node, view]


def _open_windows(plan: Running, device: Device) -> None:
    """Let data windows give events before their leaves are known, where what takes them needs no more."""
    nodes = plan.walk()
    used = Counter(each for node in nodes for each in node.below)
    for node in nodes:
        if not isinstance(node.own, RunningWindow | RunningWhole):
            continue
        (below,) = node.below
        while used[below] == 1 and (below.node.unkeyed is not below.node or _looks_at_no_end(below)):
            (below,) = below.below
        window = below.own
        if used[below] > 1 or not isinstance(window, RunningDataWindow) or not window.gives_open:
            continue
        if not node.own.take_open():
            # What is kept of an extreme by rank depends on when events end. All events say it without.
            whole = RunningWhole(node.own.node, device)
            if not whole.take_open():
                continue
            node.own = whole
        window.open()


def _looks_at_no_end(node: Running) -> bool:
    return isinstance(node.own, Columns) and not node.own.reads_end


def _running(node: Node, view: View, device: Device, known: Known) -> Running:
    def made(own: Step | RunningBinary | None, first: Node = node) -> Running:
        """The node; ``first`` is the lowest of the nodes that it is made of."""
        reads = tuple(first.ends(at) for at in range(len(first.inputs)))
        asked: dict[Ends, View] = {"needed": "whole", "later": "open", "unread": "open", "passed on": view}
        below = (_seen(each, asked[read], device, known) for each, read in zip(first.inputs, reads, strict=True))
        return Running(node, own, tuple(below), view, reads)

    if node.comes_in:
        return Running(node, None, view=view)
    if isinstance(node, KeyBy | Union):
        return made(None)
    if chain := node.chain():
        return made(Columns(chain, device), chain[0])
    if isinstance(node, WindowAggregate):
        lowered = node.lowered()
        whole = any(one.keeps(lowered.input.schema) == "events" for one in lowered.aggregates)
        return made((RunningWhole if whole else RunningWindow)(lowered, device), lowered)
    if isinstance(node, Join) and node.how == "semi":
        return _seen(node.as_inner(), view, device, known)
    for kind, step in _STEPS.items():
        if isinstance(node, kind):
            return made(step(node, device))
    raise PlanError(
        f"There is no running query over {type(node).__name__}.", remedy="Start a query over local data instead."
    )


_STEPS: dict[type[Node], Callable[[Any, Device], Step | RunningBinary]] = {
    Lifetime: Lifetimes,
    Chop: Pieces,
    Unnest: Rows,
    Repeat: Rows,
    Stitch: RunningStitch,
    Fill: RunningFill,
    DataWindow: RunningDataWindow,
    Numbered: Numbers,
    Join: RunningJoin,
    ClipBy: RunningClip,
    AsOf: RunningAsOf,
}
"""The step of each node that takes what its inputs give as it is."""
