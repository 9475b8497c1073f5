"""The parts of a syntax tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any


def parts(node: Any, into: Callable[[Any], bool] = lambda _: True) -> Iterator[Any]:
    """A node and all nodes in it; not what is in one that ``into`` does not hold for.

    Examples:
        >>> from gpu_ops.texts.expressions import Name, Operation
        >>> [str(part) for part in parts(Operation("+", Name("a"), Name("b")))]
        ['a+b', 'a', 'b']
    """
    if isinstance(node, tuple | list):
        for each in node:
            yield from parts(each, into)
    elif is_dataclass(node) and not isinstance(node, type):
        yield node
        if into(node):
            for each in fields(node):
                if each.name != "place":
                    yield from parts(getattr(node, each.name), into)
