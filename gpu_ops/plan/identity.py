"""Identity of parts of plans: by kind and content; the user's own objects are identical only to themselves."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import fractions
import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from gpu_ops.plan.expressions import written

_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes})
_BY_REPR = (
    *(*_PLAIN, range, uuid.UUID, datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo),
    *(decimal.Decimal, fractions.Fraction, np.generic, nw.dtypes.DType),
)
"""The types whose ``repr`` tells everything about a value."""


@dataclass(frozen=True)
class NodeIdentity:
    """Equal for identical things alone.

    Attributes:
        digest: A hash of the description of the thing.
        held: The objects that the description names by their addresses. While they are held, no address is reused.
    """

    digest: bytes
    held: tuple[Any, ...] = field(compare=False, repr=False)


class Identified:
    """A thing that knows its own identity."""

    @property
    def identity(self) -> NodeIdentity:
        """Its identity."""
        raise NotImplementedError


def identity(*parts: Any) -> NodeIdentity:
    """The identity of a thing made of some parts.

    Constants are identical by type and value (1, 1.0 and True differ, 0.0 and -0.0 differ, NaN equals NaN), Arrow's
    types and schemas by all their parts, expressions by how they are written, collections and frozen dataclasses by
    their content. All other objects, such as functions, frames and series, are identical only to themselves.

    Examples:
        >>> identity(1) == identity(1.0), identity(nw.col("v") + 1) == identity(nw.col("v") + 1)
        (False, True)
    """
    held: dict[int, Any] = {}
    told = repr([_told(each, held) for each in parts])
    return NodeIdentity(hashlib.blake2b(told.encode(), digest_size=16).digest(), tuple(held.values()))


def inside(value: Any) -> dict[str, Any] | None:
    """What a part of a plan is made of, by the names of fields or the numbers of items; None of what has no parts."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name, None) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): each for key, each in value.items()}
    if isinstance(value, list | tuple):
        return {str(number): each for number, each in enumerate(value)}
    return None


def _told(value: Any, held: dict[int, Any]) -> Any:
    """A description of a value whose ``repr`` is equal for identical values alone; it adds objects to ``held``."""

    def same(thing: Any) -> int:
        held[id(thing)] = thing
        return id(thing)

    kind = type(value)
    if isinstance(value, Identified | nw.Expr):
        known = value.identity if isinstance(value, Identified) else identity(kind, written(value))
        same(known)
        return known.digest
    if isinstance(value, _BY_REPR):
        return same(kind), repr(value)
    if isinstance(value, pa.Schema):
        return same(kind), value.serialize().to_pybytes()
    if isinstance(value, pa.DataType):
        return same(kind), _told(pa.schema([("", value)]), held)
    if isinstance(value, list | tuple) and set(map(type, value)) <= _PLAIN:
        return same(kind), repr([*value])
    if isinstance(value, set | frozenset):
        return same(kind), *sorted(repr(_told(each, held)) for each in value)
    if isinstance(value, Mapping):
        return same(kind), *((_told(key, held), _told(each, held)) for key, each in value.items())
    frozen = getattr(kind, "__dataclass_params__", None)
    if isinstance(value, list | tuple) or (frozen is not None and frozen.frozen and not callable(value)):
        return same(kind), *(_told(each, held) for each in (inside(value) or {}).values())
    return "object", same(value)
