"""The steps of a running query: each node takes what is new and a CTI, and gives what has become final and a CTI.

A batch is one step whose CTI is infinity: what every operator does then is what `gpu_ops.engines.local` has it do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import narwhals as nw
import numpy as np
import pyarrow as pa

from gpu_ops.devices import Device
from gpu_ops.errors import PlanError, TimeError
from gpu_ops.operators import lifetimes, relational
from gpu_ops.operators.events import Events, concat
from gpu_ops.operators.fills import RunningFill
from gpu_ops.operators.joins import numbered
from gpu_ops.operators.running import RunningWindow
from gpu_ops.operators.running_blocks import goes_along
from gpu_ops.operators.running_data_windows import RunningDataWindow
from gpu_ops.operators.running_joins import RunningAsOf, RunningBinary, RunningClip, RunningJoin
from gpu_ops.operators.running_stitch import RunningStitch
from gpu_ops.operators.running_whole import RunningWhole
from gpu_ops.operators.unnest import several
from gpu_ops.plan.advance import AdvanceTime, Late
from gpu_ops.plan.aggregates import EXTREMES
from gpu_ops.plan.data_windows import DataWindow
from gpu_ops.plan.expressions import column_names
from gpu_ops.plan.fills import Fill
from gpu_ops.plan.joins import AsOf, ClipBy, Join, Numbered, Union
from gpu_ops.plan.lifetimes import AlterLifetime, Chop, Lifetime, SetDuration, Stitch, ToPoint
from gpu_ops.plan.nodes import Feed, Filter, KeyBy, Node, Project, Source
from gpu_ops.plan.time_rules import depends_on_start_alone, moved_cti
from gpu_ops.plan.unnest import Repeat, Unnest
from gpu_ops.plan.windows import Snapshot, WindowAggregate
from gpu_ops.time import MIN_TIME, TICK, format_time


class Step(Protocol):
    """A node in a running query. Only the ones that remember anything have tables."""

    def step(self, events: Events | None, cti: int) -> tuple[list[Events], int]:
        """What has become final, and the CTI after it; ``events`` start at or after the step before's CTI."""

    @property
    def alive(self) -> int:
        """How many events it keeps."""

    def tables(self) -> dict[str, pa.Table]:
        """What it remembers."""

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """Remember what `tables` gave."""


class Stateless:
    """A node that handles each event by itself."""

    alive = 0

    def __init__(self, device: Device) -> None:
        self._device = device

    def tables(self) -> dict[str, pa.Table]:
        """Nothing."""
        return {}

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """Nothing to remember."""


class Columns(Stateless):
    """A chain of filters and projections."""

    def __init__(self, chain: Sequence[Filter | Project], device: Device) -> None:
        super().__init__(device)
        self._chain = chain

    def step(self, events: Events | None, cti: int) -> tuple[list[Events], int]:
        """Each event by itself; the CTI as it is."""
        return self.each([] if events is None else [events]), cti

    @property
    def reads_end(self) -> bool:
        """Whether anything in the chain asks when an event ends."""
        read = [e for each in self._chain for e in ([each.condition] if isinstance(each, Filter) else each.expressions)]
        return any("end" in column_names(expression, ["end"]) for expression in read)

    def each(self, pieces: Sequence[Events]) -> list[Events]:
        """The chain over each piece."""
        return [relational.run(self._chain, events, self._device) for events in pieces]


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
        change = self._node.exact
        made = [] if events is None else [lifetimes.change_lifetimes(change, events, self._device)]
        moved = moved_cti(change, cti)
        if moved is None and isinstance(change, AlterLifetime) and change.start is not None:
            self._check(made)
            moved = self._as_start(change.start, cti) if depends_on_start_alone(self._node) else MIN_TIME
        self._promised = max(self._promised, cti if moved is None else moved)
        return made, self._promised

    def _as_start(self, new: nw.Expr, cti: int) -> int:
        """The new start of an event that starts at the CTI."""
        columns = self._device.columns
        schema = pa.schema([each.with_nullable(True) for each in self._node.input.schema])
        nothing = pa.table([pa.nulls(1, each.type) for each in schema], schema=schema)
        start = columns.array(np.array([cti]))

        def step(frame: Any) -> Any:
            return frame.select("start", "end", __moved=new.cast(nw.Datetime("us", "UTC")))

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
        return [] if events is None else [several(self._node, events, self._device)], cti


@dataclass(frozen=True)
class Fed:
    """What comes to a node in a step.

    Attributes:
        events: Events whose lifetimes are known.
        opened: Events whose ends are not known yet, if the plan takes them (`takes_open`).
        closed: Events that were opened in an earlier step, with their ends.
    """

    events: Sequence[Events] = ()
    opened: Sequence[Events] = ()
    closed: Sequence[Events] = ()


def takes_open(node: Node) -> bool:
    """Whether a plan can count events whose ends are not known: their start edges go to a window that adds up.

    On the way there nothing may ask when an event ends. A minimum or maximum would have to know, to forget the others.
    """
    above = [each for each in node.walk() if not isinstance(each, Source | AdvanceTime | KeyBy)]
    for each in above:
        if isinstance(each, Filter | Project):
            read = [each.condition] if isinstance(each, Filter) else each.expressions
            if any("end" in column_names(expression, ["end"]) for expression in read):
                return False
        elif isinstance(each, Lifetime) and isinstance(each.change, SetDuration | ToPoint):
            return True
        elif isinstance(each, WindowAggregate):
            read = [given for one in each.aggregates for given in one.reads]
            window = each.window
            return (
                (isinstance(window, Snapshot) or (window.membership == "overlap" and window.until is None))
                and not any(one.holistic or one.kind in EXTREMES for one in each.aggregates)
                and not any("end" in column_names(expression, ["end"]) for expression in read)
            )
        else:
            return False
    return False


Leaves = Mapping[Node, tuple[Fed, int]]
"""What comes to each leaf of a plan in a step, and what it promises."""


@dataclass(eq=False)
class Running:
    """A node of a running plan with all that is below it. A node that feeds several takes each step once.

    Attributes:
        node: The node of the plan.
        own: Its step; None where events pass as they are.
        below: What feeds it; nothing for a leaf.
    """

    node: Node
    own: Step | RunningBinary | None
    below: tuple[Running, ...] = ()
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
        inputs = [each.step(leaves, device) for each in self.below] or [leaves[self.node]]
        given, passed = inputs[0]
        if len(inputs) > 1 and isinstance(self.own, RunningBinary):
            sides = [concat(fed.events, device) for fed, _ in inputs]
            events, passed = self.own.step(sides, [cti for _, cti in inputs])
            given = Fed(events)
        elif len(inputs) > 1:
            pieces = [events for fed, _ in inputs for events in fed.events]
            names = self.node.schema.names
            given = Fed([Events(each.start, each.ends, device.columns.select(each.frame, names)) for each in pieces])
            passed = min(cti for _, cti in inputs)
        elif self.own is not None:
            given, passed = self._step(cast("Step", self.own), given, passed, device)
        self.cti = max(self.cti, passed)
        self.given += sum(map(len, given.events))
        return given

    def _step(self, own: Step, given: Fed, cti: int, device: Device) -> tuple[Fed, int]:
        if isinstance(own, RunningWindow | RunningWhole):
            opened, closed = concat(given.opened, device), concat(given.closed, device)
            events, passed = own.step(concat(given.events, device), cti, opened, closed)
            return Fed(events), passed
        if isinstance(own, Columns):
            return Fed(own.each(given.events), own.each(given.opened), own.each(given.closed)), cti
        if isinstance(own, RunningDataWindow):
            events, passed = own.step(concat(given.events, device), cti)
            return Fed(events, *own.edges()), passed
        # A lifetime that starts with the event and lasts so long: its end plays no part.
        events, passed = own.step(concat([*given.events, *given.opened], device), cti)
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


def running(node: Node, device: Device, known: dict[Node, Running] | None = None) -> Running:
    """A plan, made ready to run step by step.

    Args:
        node: Its last node.
        device: Where arrays live.
        known: The nodes that are ready already: one that stands at several places of the plan runs once.

    Raises:
        PlanError: There is no step for a node.
    """
    if known is None:
        plan = running(node, device, {})
        _open_windows(plan, device)
        return plan
    if node not in known:
        known[node] = _running(node, device, known)
    return known[node]


def _open_windows(plan: Running, device: Device) -> None:
    """Let data windows give events before their leaves are known, where what takes them needs no more."""
    nodes = plan.walk()
    used = Counter(each for node in nodes for each in node.below)
    for node in nodes:
        if not isinstance(node.own, RunningWindow | RunningWhole):
            continue
        (below,) = node.below
        while used[below] == 1 and (isinstance(below.node, KeyBy) or _looks_at_no_end(below)):
            (below,) = below.below
        window = below.own
        if used[below] > 1 or not isinstance(window, RunningDataWindow) or not window.gives_open:
            continue
        if not node.own.take_open():
            # What is kept of an extreme by rank hangs on when events end. All events say it without.
            whole = RunningWhole(node.own.node, device)
            if not whole.take_open():
                continue
            node.own = whole
        window.open()


def _looks_at_no_end(node: Running) -> bool:
    return isinstance(node.own, Columns) and not node.own.reads_end


def _running(node: Node, device: Device, known: dict[Node, Running]) -> Running:
    def below(*inputs: Node) -> tuple[Running, ...]:
        return tuple(running(each, device, known) for each in inputs)

    if isinstance(node, Source | Late | Feed) or (isinstance(node, AdvanceTime) and isinstance(node.input, Source)):
        return Running(node, None)
    if isinstance(node, KeyBy | AdvanceTime):
        return Running(node, None, below(node.input))
    if isinstance(node, Filter | Project):
        chain: list[Filter | Project] = [node]
        while isinstance(chain[0].input, Filter | Project):
            chain.insert(0, chain[0].input)
        return Running(node, Columns(chain, device), below(chain[0].input))
    if isinstance(node, WindowAggregate):
        lowered = node.lowered()
        whole = not all(goes_along(one, lowered.input.schema) for one in lowered.aggregates)
        own: Step = (RunningWhole if whole else RunningWindow)(lowered, device)
        return Running(node, own, below(lowered.input))
    if isinstance(node, Union):
        return Running(node, None, below(*node.parts))
    if isinstance(node, Join) and node.how == "semi":
        return running(node.as_inner(), device, known)
    for kind, step in _STEPS.items():
        if isinstance(node, kind):
            return Running(node, step(node, device), below(*node.inputs))
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
