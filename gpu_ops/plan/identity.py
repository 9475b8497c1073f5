"""What is identical: parts of plans are by kind and content, all else of the user's only as the same object."""

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
"""What its type and its ``repr`` tell all of."""


@dataclass(frozen=True)
class NodeIdentity:
    """Equal for what is identical, and for nothing else.

    Attributes:
        digest: A short form of all that is told of it.
        held: The objects that are told by their places in memory, where no others can come to be as long as this is.
    """

    digest: bytes
    held: tuple[Any, ...] = field(compare=False, repr=False)


class Identified:
    """What knows its own identity."""

    @property
    def identity(self) -> NodeIdentity:
        """What it is."""
        raise NotImplementedError


def identity(*parts: Any) -> NodeIdentity:
    """What is made of some parts.

    Constants are identical by type and value (1, 1.0 and True differ, 0.0 and -0.0 do, NaN is NaN), Arrow's types and
    schemas by all that they say, expressions by how they are written, collections and frozen dataclasses by what is in
    them. All else, such as functions, frames and series, is identical only as the same object.

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
    """A value as tuples whose ``repr`` is equal for identical values alone; and what it refers to as an object."""

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
