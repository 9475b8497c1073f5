"""The contract of operators: each computes the nodes of one family, over whole inputs and step by step.

A class names the types of nodes that it computes, which registers it. The local engine calls `Operator.batch`, a
running plan (`gpu_ops.operators.runtime.steps`) calls `Operator.step`. Engines read sources, share the results of nodes
that several others read, report progress, and decide when a step is due.

A batch gives the same rows as one step with a CTI of infinity; their order may differ. An operator that computes the
two differently says why.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from gpu_ops.core.state_parts import Parts, in_parts, whole
from gpu_ops.core.state_tables import StateTable, Tables
from gpu_ops.devices import Device
from gpu_ops.errors import PlanError
from gpu_ops.operators.events import Events, concat
from gpu_ops.plan.nodes import Node
from gpu_ops.plan.window_kinds import Declaration


@dataclass(frozen=True)
class StepInput:
    """The input of a node in a step.

    Attributes:
        events: Events with known lifetimes.
        opened: Open events: their ends are not known yet. Only for nodes that take them (`Node.ends`).
        closed: Events that were opened in an earlier step, with their ends.
    """

    events: Sequence[Events] = ()
    opened: Sequence[Events] = ()
    closed: Sequence[Events] = ()

    def each(self, change: Callable[[Events], Events]) -> StepInput:
        """The same input, with each piece changed."""
        return StepInput(*([change(piece) for piece in pieces] for pieces in (self.events, self.opened, self.closed)))


@dataclass(frozen=True)
class BatchInput:
    """The input of a batch.

    Attributes:
        inputs: The events of each input, in pieces as they come.
        wanted: The columns that the reader needs; the results may have more.
        gathered: Whether all results are in memory together at some time.
        cut: Whether the reader takes a group's results in several pieces, whatever `Node.whole` says.
    """

    inputs: Sequence[Iterator[Events]]
    wanted: tuple[str, ...]
    gathered: bool = False
    cut: bool = False


class Operator(Declaration, family=True):
    """The computation of one node. A class that leaves out an abstract part is refused when it is defined.

    Args:
        node: The node.
        device: Where arrays live.
    """

    called = "operator"

    own_numbers: int = 0
    """How many numbers of groups come before those of its table of groups; null keys have them, which meet nothing."""

    _registered: ClassVar[dict[type[Node], type[Operator]]] = {}

    def __init_subclass__(cls, *, nodes: Sequence[type[Node]] = (), family: bool = False) -> None:
        """Register an operator.

        Args:
            nodes: The types of nodes that it computes, including derived types.
            family: As in `Declaration`.

        Raises:
            PlanError: A part is missing, or another operator computes one of these types.
        """
        super().__init_subclass__(family=family)
        for each in nodes:
            if each in cls._registered:
                raise PlanError(
                    f"{each.__name__} has two operators: {cls._registered[each].__name__} and {cls.__name__}.",
                    remedy="Register one of them.",
                )
            cls._registered[each] = cls

    _node: Any

    def __init__(self, node: Any, device: Device) -> None:
        self._node, self._device = node, device

    @staticmethod
    def registered(node: Node) -> type[Operator] | None:
        """The class that computes a node; None if there is none."""
        known = Operator._registered
        return next((known[each] for each in type(node).__mro__ if each in known), None)

    @classmethod
    def of(cls, node: Any, device: Device, apart: Collection[Node] | None = None) -> Operator:
        """The operator of a node.

        Args:
            node: The node.
            device: Where arrays live.
            apart: For a batch: the nodes below that several nodes read, which are therefore computed separately.
                None for steps: every node keeps its place there, since checkpoints name nodes by their places.
        """
        del apart
        return cls(node, device)

    @classmethod
    def stepped(cls, node: Any) -> Node:
        """The node that is run step by step instead of a node: itself, unless a family replaces it by equal nodes."""
        found: Node = node
        return found

    @property
    def lowest(self) -> Node:
        """The lowest of the nodes that it computes. The inputs of that node feed the operator."""
        return self._node  # type: ignore[no-any-return]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes whose events it takes."""
        return self.lowest.inputs

    def needs(self, wanted: tuple[str, ...]) -> Sequence[tuple[str, ...]]:
        """The columns that a batch needs of each input to give the wanted ones."""
        return self._node.needs(wanted)  # type: ignore[no-any-return]

    @abstractmethod
    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """The results of all events at once, in pieces.

        An operator that needs all events, or whole groups, concatenates the pieces itself (`concat`,
        `of_whole_groups`). Every other one gives results before it asks for the next piece.
        """

    @abstractmethod
    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The results that became final, and the output CTI.

        Args:
            given: The input of each side; no event starts before that input's CTI of the previous step. Edges come
                only if `Node.ends` asks for them.
            ctis: The CTI of each input: no later event starts before it.
        """

    @property
    @abstractmethod
    def alive(self) -> int:
        """How many events it keeps."""

    @property
    @abstractmethod
    def waiting(self) -> int:
        """How many of these events wait for a CTI to pass their start."""

    @property
    def active_atoms(self) -> int:
        """How many atoms of patterns wait in it for an event (Esper: how many filters are active)."""
        return 0

    @abstractmethod
    def tables(self) -> dict[str, pa.Table]:
        """What it remembers from one step to the next."""

    def state_parts(self) -> Parts:
        """The same, part by part: parts with a name do not change, and are written once (`RunningQuery.save`)."""
        return in_parts(self.tables())

    @property
    def entire_tables(self) -> tuple[str, ...]:
        """The names of tables that `declared` is to be given whole, be they known to be sound or not."""
        return ()

    @abstractmethod
    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The declarations of the tables that `tables` gives, for `gpu_ops.core.state_tables.check`."""

    @abstractmethod
    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """Restore the state that `tables` gave."""

    def put_back(self, parts: Parts) -> None:
        """Restore the state that `state_parts` gave; then parts with a name keep it."""
        self.restore(whole(parts))

    # Edges within a plan: a data window may emit events as soon as they enter, before their leaves are known

    @property
    def gives_open(self) -> bool:
        """Whether it can emit events before their ends are known. It does so after `open`."""
        return False

    @property
    def passes_open(self) -> bool:
        """Whether open events may pass it, and their ends later."""
        return False

    def opens(self, at: int) -> bool:
        """Whether the operator of `with_open` takes open events from an input: by itself, from its only one.

        Args:
            at: The input's place in `inputs`.
        """
        del at
        return len(self.inputs) == 1

    def open(self) -> None:
        """Emit events before their ends are known from now on."""

    def without_ends(self) -> None:
        """Emit, from now on, no ends of events that were emitted before: all who take them ask for starts alone."""

    def with_open(self) -> Operator | None:
        """This operator or another one of the node that takes open events; None if no operator does."""
        return None


class InParts(Operator, family=True):
    """An operator whose state is in parts, some of which have a name."""

    def tables(self) -> dict[str, pa.Table]:
        """What `state_parts` makes up."""
        return whole(self.state_parts())

    @abstractmethod
    def state_parts(self) -> Parts:
        """What it remembers from one step to the next, part by part."""

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """Restore the state that `tables` gave."""
        self.put_back(in_parts(tables))

    @abstractmethod
    def put_back(self, parts: Parts) -> None:
        """Restore the state that `state_parts` gave; then parts with a name keep it."""


class Stateless(Operator, family=True):
    """An operator without state."""

    alive = waiting = 0

    def tables(self) -> dict[str, pa.Table]:
        """Nothing."""
        return {}

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """None."""
        yield from ()

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """There is no state to restore."""


class EachPiece(Stateless, family=True):
    """An operator that handles each event by itself, open events and their ends included."""

    @abstractmethod
    def each(self, events: Events) -> Events:
        """The results of some events."""

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """Piece by piece."""
        return map(self.each, whole.inputs[0])

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """Piece by piece; the CTI does not change."""
        return given[0].each(self.each), ctis[0]


def of_whole_groups(node: Node, group: Sequence[str], pieces: Iterator[Events], device: Device) -> Iterator[Events]:
    """A node's events in pieces of whole groups: as they come if the node gives whole groups, else all in one piece."""
    key = node.whole
    if key is not None and set(key) <= set(group):
        yield from pieces
    elif (given := concat(pieces, device)) is not None:
        yield given
