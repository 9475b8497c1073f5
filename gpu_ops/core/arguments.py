"""Checks of the arguments of public functions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from gpu_ops.errors import PlanError, shown

MOST = 1 << 40
"""More rows than any input has. Sums of numbers up to it do not overflow."""


def flag(value: object, *, name: str) -> bool:
    """True or False.

    Raises:
        PlanError: It is neither.
    """
    if not isinstance(value, bool):
        raise PlanError(f"{name} is {shown(value)}.", remedy="It is True or False.")
    return value


def word(value: object, known: Sequence[str], *, name: str) -> str:
    """One of the words that are known.

    Raises:
        PlanError: It is none of them.

    Examples:
        >>> word("window", ["window", "point"], name="output")
        'window'
    """
    if not isinstance(value, str) or value not in known:
        words = [f'"{each}"' for each in known]
        last = f" or {words.pop()}" if len(words) > 1 else ""
        raise PlanError(f"{name} {shown(value)} is unknown.", remedy=f"It is {', '.join(words)}{last}.")
    return value


def whole(value: object, *, name: str, least: int = 1, most: int = MOST) -> int:
    """A whole number from ``least`` to ``most``.

    Raises:
        PlanError: It is none, or out of that range.

    Examples:
        >>> whole(0, name="events", least=0, most=1_000_000)
        0
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        said = f"of at least {least}, up to 2**40" if most == MOST else f"from {least:,} to {most:,}"
        raise PlanError(f"{name} is {shown(value)}.", remedy=f"Give a whole number {said}.")
    return value


def by_names(value: object, *, name: str, holds: str) -> Mapping[str, Any]:
    """A mapping whose keys are texts; nothing for None.

    Raises:
        PlanError: It is none.

    Examples:
        >>> by_names({"Tick": {"price": "int"}}, name="types", holds="the properties of each type of event")
        {'Tick': {'price': 'int'}}
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise PlanError(f"{name} is {shown(value)}.", remedy=f"It is a mapping from names to {holds}.")
    for each in value:
        if not isinstance(each, str):
            raise PlanError(f"{name} has the name {shown(each)}, which is no text.", remedy="Give texts as names.")
    return value


def path_like(value: object, *, name: str) -> None:
    """A path: a text or a path object.

    Raises:
        PlanError: It is neither.
    """
    if not isinstance(value, str | os.PathLike):
        raise PlanError(
            f"{name} is {shown(value)}, and no path.", remedy='Give a text, for instance "bids.checkpoint".'
        )


def callback(value: object, *, name: str, takes: str) -> None:
    """A function, or None.

    Raises:
        PlanError: It is neither.
    """
    if value is not None and not callable(value):
        raise PlanError(f"{name} is {shown(value)}.", remedy=f"It is a function that takes {takes}.")
