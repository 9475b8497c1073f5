"""The parts of a syntax tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
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
    elif (names := _parts(type(node))) is not None:  # type: ignore[arg-type]
        yield node
        if into(node):
            for name in names:
                yield from parts(getattr(node, name), into)


@cache
def _parts(kind: type) -> tuple[str, ...] | None:
    """The fields of a kind of nodes that say something; None of what is no node."""
    return tuple(each.name for each in fields(kind) if each.name != "place") if is_dataclass(kind) else None
