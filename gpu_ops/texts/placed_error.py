"""What is wrong with a text, before it is an error that shows its place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from gpu_ops.errors import TextError
from gpu_ops.texts.expressions import TextPlace


class PlacedError(Exception):
    """Why a text cannot be read, and from which character to which. Never seen by a user."""

    def __init__(self, start: int, end: int, problem: str, remedy: str = "", *, construct: str = "") -> None:
        super().__init__(problem)
        self.start, self.end = start, end
        self.problem, self.remedy, self.construct = problem, remedy, construct


class HasPlace(Protocol):
    """What stands somewhere in a text."""

    @property
    def place(self) -> TextPlace:
        """Where."""


def failure_at(node: HasPlace, problem: str, remedy: str = "", *, construct: str = "") -> PlacedError:
    """What is wrong with a node."""
    return PlacedError(node.place.start, node.place.end, problem, remedy, construct=construct)


def unsupported(node: HasPlace, construct: str, remedy: str = "") -> PlacedError:
    """That gpu_ops does not have what a node asks for."""
    return failure_at(node, f"gpu_ops has no {construct}.", remedy, construct=construct)


@contextmanager
def shown_in(text: str) -> Iterator[None]:
    """Show what is wrong in the text that it is wrong with.

    Raises:
        TextError: What was done within raised a `PlacedError`.

    Examples:
        >>> with shown_in("select a from T"):
        ...     raise PlacedError(7, 8, "'T' has no property 'a'.")
        Traceback (most recent call last):
        gpu_ops.errors.TextError: 'T' has no property 'a'. [line 1, column 8]
            select a from T
                   ^
    """
    try:
        yield
    except PlacedError as failure:
        raise TextError(
            failure.problem, text=text, at=failure.start, remedy=failure.remedy or None, construct=failure.construct
        ) from None
