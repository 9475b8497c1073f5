"""What is found once of an object that never changes, and kept as long as the object lives."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def once_for_each_object(found: Callable[[K], V]) -> Callable[[K], V]:
    """Have a function of one object called once for each: objects are told apart by identity, and need no hash.

    The objects can be referred to weakly, and what is found holds none of them.

    Examples:
        >>> class Thing: ...
        >>> @once_for_each_object
        ... def named(thing: Thing) -> list[str]:
        ...     return [type(thing).__name__]
        >>> one = Thing()
        >>> named(one), named(one) is named(one), named(one) is named(Thing())
        (['Thing'], True, False)
    """
    kept: dict[int, tuple[weakref.ref[K], V]] = {}

    @functools.wraps(found)
    def known(given: K) -> V:
        address = id(given)
        there = kept.get(address)
        if there is not None and there[0]() is given:
            return there[1]

        def forget(gone: weakref.ref[K]) -> None:
            # Another object may live at the address by now.
            if (now := kept.get(address)) is not None and now[0] is gone:
                kept.pop(address, None)

        value = found(given)
        kept[address] = weakref.ref(given, forget), value
        return value

    return known
