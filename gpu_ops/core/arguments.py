"""Arguments of public functions, looked at where they are handed in."""

from __future__ import annotations

from collections.abc import Sequence

from gpu_ops.errors import PlanError, shown

MOST = 1 << 40
"""More rows than there are; numbers up to it add up without a care."""


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


def whole(value: object, *, name: str, least: int = 1) -> int:
    """A whole number from ``least`` to `MOST`.

    Raises:
        PlanError: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
        raise PlanError(f"{name} is {shown(value)}.", remedy=f"Give a whole number of at least {least}, up to 2**40.")
    return value


def callback(value: object, *, name: str, takes: str) -> None:
    """A function, or None.

    Raises:
        PlanError: It is neither.
    """
    if value is not None and not callable(value):
        raise PlanError(f"{name} is {shown(value)}.", remedy=f"It is a function that takes {takes}.")
