"""The base class of all verbs: it holds a node of a plan, and names the classes that verbs return.

`gpu_ops.api.stream` makes `Stream`, `Windowed` and `DataWindowed` from the verbs of the other modules. The verbs return
these classes, but their modules must not import them: so the three classes are type parameters here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from gpu_ops.plan.data_windows import DataWindow
from gpu_ops.plan.nodes import Node
from gpu_ops.plan.window_kinds import TimeWindowKind

Filling = tuple[Any, tuple[int, int] | None] | None
"""The fill of windows without events, and the span to fill; None if such windows give nothing."""

Stream = TypeVar("Stream", bound="Verbs[Any, Any, Any]")
Windowed = TypeVar("Windowed", bound="Verbs[Any, Any, Any]")
DataWindowed = TypeVar("DataWindowed", bound="Verbs[Any, Any, Any]")


class Verbs(ABC, Generic[Stream, Windowed, DataWindowed]):
    """Verbs over the events of a node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @abstractmethod
    def _with(self, node: Node) -> Stream:
        """The stream of a node's events."""

    @abstractmethod
    def _windows(self, node: Node, window: TimeWindowKind, filling: Filling = None) -> Windowed:
        """Windows over a node's events."""

    @abstractmethod
    def _data_windows(self, alive: DataWindow, names: tuple[str, ...]) -> DataWindowed:
        """A data window: the node of its events, and which columns of that are the payload."""
