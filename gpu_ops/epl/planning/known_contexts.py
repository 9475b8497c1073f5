"""Contexts as statements see them: what is within their instances, and what these are called by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from gpu_ops.core.turns import INSTANCE
from gpu_ops.epl.inlining import rebuilt
from gpu_ops.epl.planning.parts import parts
from gpu_ops.plan.contexts import Instances, Within
from gpu_ops.plan.expressions import bare_column, column_names
from gpu_ops.plan.joins import On
from gpu_ops.plan.nodes import Node
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding.bound import Bound
from gpu_ops.texts.binding.scope import StreamScope, unknown
from gpu_ops.texts.placed_error import failure_at

Entering = Callable[[Node], Node]
"""From the arrivals of a type to those that are in a context, with the columns of its keys."""

Path = tuple[str, ...]


@dataclass(frozen=True)
class ContextLevel:
    """One of the contexts that are nested in each other.

    Attributes:
        called: Its name.
        keys: The columns by which an event belongs to an instance, if there are any.
        entering: How events of each type come to have these; events of other types are in all instances.
        preset: Whether all instances start where the context begins, and none ends.
        listens: How many filters over events start instances; the atoms of patterns are not among them.
        one_by_one: Whether they listen only while no instance is there.
        ends_by_atoms: Whether it is atoms of patterns that listen for its ends.
    """

    called: str
    keys: tuple[str, ...] = ()
    entering: Mapping[str, Entering] = field(default_factory=dict)
    preset: bool = False
    listens: int = 0
    one_by_one: bool = False
    ends_by_atoms: bool = False


@dataclass(frozen=True)
class KnownContext:
    """A context.

    Attributes:
        name: Its name.
        node: The points of its instances.
        leaf: What statements read them from.
        reads: The types of events that it reads.
        levels: The contexts that are nested in each other, the outermost first.
        properties: What statements call the columns of an instance.
        ending: The columns that are known where an instance ends.
        before: The types of events of a pattern that are within the instance that it starts, though they came before it
            (Esper: `@Inclusive`).
    """

    name: str
    node: Instances
    leaf: Node
    reads: tuple[str, ...]
    levels: tuple[ContextLevel, ...]
    properties: Mapping[Path, Bound]
    ending: frozenset[str] = frozenset()
    before: frozenset[str] = frozenset()

    def within(
        self,
        rows: Node,
        type_name: str,
        carries: Sequence[str],
        leaf: Node | None = None,
        number: str = INSTANCE,
        equal: On = (),
    ) -> Node:
        """The arrivals of a type with the instances that they are within.

        Args:
            rows: The arrivals.
            type_name: The type.
            carries: The columns of instances that they get.
            leaf: Where instances are read from, if not from `leaf`.
            number: The column with their numbers.
            equal: Pairs (column of the arrivals, column of instances) that are equal besides.
        """
        on: list[str] = []
        for level in self.levels:
            if type_name in level.entering:
                rows = level.entering[type_name](rows)
                on += level.keys
        carried = tuple(name for name in carries if name not in rows.schema.names)
        return Within(rows, self.leaf if leaf is None else leaf, (*((key, key) for key in on), *equal), carried, number)


def with_context_properties(node: Any) -> Any:
    """A part of a statement in which members of `context` are nodes of their own."""

    def change(part: Any) -> Any:
        path = _path(part)
        return None if path is None else e.ContextProperty(path, place=part.place)

    return rebuilt(node, change)


def _path(node: Any) -> Path | None:
    names: list[str] = []
    while isinstance(node, e.Member):
        names.append(node.name)
        node = node.of
    if names and isinstance(node, e.Name) and node.name == "context":
        return tuple(reversed(names))
    return None


class ContextNames:
    """The context of a statement, if it is in one: its properties as columns of rows within instances.

    Args:
        context: The context; None for none.
        statement: The statement, with `with_context_properties`.
    """

    def __init__(self, context: KnownContext | None, statement: Any) -> None:
        self.context = context
        read = [part for part in parts(statement) if isinstance(part, e.ContextProperty)]
        bound = [each.value for each in map(self.special, read) if each is not None]
        known = [] if context is None else context.node.schema.names
        found = {name for value in bound for name in column_names(value, known)} - {INSTANCE}
        self.columns = tuple(name for name in known if name in found)
        self.early = tuple(each for each in self.columns if context is not None and each not in context.ending)

    def special(self, node: e.Expression) -> Bound | None:
        """A property of the context; None for any other node.

        Raises:
            PlacedError: There is no such property, or no context.
        """
        if not isinstance(node, e.ContextProperty):
            return None
        if self.context is None:
            raise failure_at(node, f"The statement is in no context, so there is no {node}.", "Write: context C select")
        found = self.context.properties.get(node.path)
        if found is None:
            known = [".".join(path) for path in self.context.properties]
            said = ".".join(node.path)
            raise unknown(node, f"The context has no {said!r}.", said, known, known)
        return found

    def within(self, rows: Node, type_name: str, equal: On = ()) -> Node:
        """The arrivals of a type within instances, if the statement is in a context."""
        return rows if self.context is None else self.context.within(rows, type_name, self.early, equal=equal)

    def pair(self, node: e.Expression, stream: StreamScope) -> tuple[str, str] | None:
        """(column of a stream, column of instances), if a condition says that these are equal."""
        if not isinstance(node, e.Operation) or node.operator != "=":
            return None
        sides = (node.left, node.right)
        paths = [each for each in sides if isinstance(each, e.ContextProperty)]
        others = [each for each in sides if isinstance(each, e.Name | e.Member)]
        if len(paths) != 1 or len(others) != 1:
            return None
        mine, around = stream.property(others[0]), self.special(paths[0])
        if mine is None or around is None or mine.type != around.type:
            return None
        names = bare_column(mine.value), bare_column(around.value)
        flat = not (pa.types.is_nested(mine.type) or pa.types.is_floating(mine.type))
        if not flat or None in names or names[1] not in self.early:
            return None
        return str(names[0]), str(names[1])

    @property
    def key(self) -> tuple[str, ...]:
        """The column with the number of an instance, if rows have one."""
        return () if self.context is None else (INSTANCE,)


def reads_context(node: Any) -> bool:
    """Whether a property of the context is in an expression."""
    return any(isinstance(part, e.ContextProperty) for part in parts(node))
