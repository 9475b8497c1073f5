"""What the API has no word for."""

from __future__ import annotations

from typing import Any

import gpu_ops as g


class UnsupportedError(Exception):
    """The API has no word for what is asked."""


def aggregate(kind: str, column: Any, **options: Any) -> g.Aggregate:
    """An aggregate by the name that the vectors have for it; ``column`` is empty where rows are counted.

    Raises:
        UnsupportedError: There is none of that kind.
    """
    names = {"avg": "mean", "stddev": "standard_deviation"}
    make = getattr(g, names.get(kind, kind), None)
    if make is None:
        raise UnsupportedError(f"gpu_ops has no aggregate {kind!r}")
    made: g.Aggregate = make(**options) if isinstance(column, str) and not column else make(column, **options)
    return made
