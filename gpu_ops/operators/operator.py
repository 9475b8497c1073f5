"""What an operator says of itself: how the nodes of one family are computed, over whole inputs and step by step.

Each family has one class, which says for which types of nodes it is. That is the registry: the local engine asks it for
`Operator.batch`, and a running plan (`gpu_ops.operators.runtime.steps`) for `Operator.step`. The engines keep what is
theirs: reading sources, sharing what several nodes read, progress, what comes in and when a step is due.

A batch gives what one step with a CTI of infinity gives, but for the order of rows. Where the two are computed
differently, the operator's own text says why.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from gpu_ops.core.state_tables import StateTable, Tables
from gpu_ops.devices import Device
from gpu_ops.errors import PlanError
from gpu_ops.operators.events import Events, concat
from gpu_ops.plan.nodes import Node
from gpu_ops.plan.window_kinds import Declaration


@dataclass(frozen=True)
class StepInput:
    """What comes to a node in a step.

    Attributes:
        events: Events whose lifetimes are known.
        opened: Events whose ends are not known yet, if the node takes them (`Node.ends`).
        closed: Events that were opened in an earlier step, with their ends.
    """

    events: Sequence[Events] = ()
    opened: Sequence[Events] = ()
    closed: Sequence[Events] = ()

    def each(self, change: Callable[[Events], Events]) -> StepInput:
        """The same, each piece changed by itself."""
        return StepInput(*([change(piece) for piece in pieces] for pieces in (self.events, self.opened, self.closed)))


@dataclass(frozen=True)
class BatchInput:
    """What a batch is computed from.

    Attributes:
        inputs: The events of each input, in pieces as they come.
        wanted: The columns that are asked for; more may be given.
        gathered: Whether all results are in memory together at some time.
    """

    inputs: Sequence[Iterator[Events]]
    wanted: tuple[str, ...]
    gathered: bool = False


class Operator(Declaration, family=True):
    """One node, computed. A class that leaves out a part that is abstract here is an error where it is made.

    Args:
        node: The node.
        device: Where arrays live.
    """

    called = "operator"

    _registered: ClassVar[dict[type[Node], type[Operator]]] = {}

    def __init_subclass__(cls, *, nodes: Sequence[type[Node]] = (), family: bool = False) -> None:
        """Register an operator.

        Args:
            nodes: The types of nodes that it computes, those derived from them included.
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
            apart: For a batch the nodes below that are computed by themselves, since several others read them; None for
                steps, where nodes keep their places: checkpoints name them.
        """
        del apart
        return cls(node, device)

    @classmethod
    def stepped(cls, node: Any) -> Node:
        """The node that is run step by step in the place of one: itself, unless other nodes say the same."""
        found: Node = node
        return found

    @property
    def lowest(self) -> Node:
        """The lowest of the nodes that it computes: that one's inputs feed it."""
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

        What has to see all events, or whole groups, puts them together itself (`concat`, `of_whole_groups`); what does
        not, gives results before the next piece is there.
        """

    @abstractmethod
    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """What has become final, and the CTI after it.

        Args:
            given: What each input gives; no event starts before that input's CTI of the step before. Edges come where
                `Node.ends` asks for them.
            ctis: What each input promises: no event that comes later starts before it.
        """

    @property
    @abstractmethod
    def alive(self) -> int:
        """How many events it keeps."""

    @property
    @abstractmethod
    def waiting(self) -> int:
        """How many of them wait for a CTI to pass their start."""

    @abstractmethod
    def tables(self) -> dict[str, pa.Table]:
        """What it remembers from one step to the next."""

    @abstractmethod
    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives, as `gpu_ops.core.state_tables.check` takes them."""

    @abstractmethod
    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """Remember what `tables` gave."""

    # Edges within a plan: a data window may hand on that events have entered before it is known when they leave

    @property
    def gives_open(self) -> bool:
        """Whether it does not always know the ends of what it could give already: after `open` it gives that."""
        return False

    @property
    def passes_open(self) -> bool:
        """Whether such events may go through it, and their ends later."""
        return False

    def open(self) -> None:
        """Give events before their ends are known."""

    def with_open(self) -> Operator | None:
        """An operator of the node that takes events before their ends are known, if there is one: it or another."""
        return None


class Stateless(Operator, family=True):
    """An operator that remembers nothing."""

    alive = waiting = 0

    def tables(self) -> dict[str, pa.Table]:
        """Nothing."""
        return {}

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """None."""
        yield from ()

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """Nothing to remember."""


class EachPiece(Stateless, family=True):
    """An operator that handles each event by itself: pieces go through as they come, open edges and their ends too."""

    @abstractmethod
    def each(self, events: Events) -> Events:
        """What becomes of some events."""

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """Piece by piece."""
        return map(self.each, whole.inputs[0])

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """Piece by piece; the CTI as it is."""
        return given[0].each(self.each), ctis[0]


def of_whole_groups(node: Node, group: Sequence[str], pieces: Iterator[Events], device: Device) -> Iterator[Events]:
    """What a node gives, in pieces that each hold whole groups: as they come where they do, else all in one."""
    key = node.whole
    if key is not None and set(key) <= set(group):
        yield from pieces
    elif (given := concat(pieces, device)) is not None:
        yield given
