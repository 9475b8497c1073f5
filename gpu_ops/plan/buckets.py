"""Buckets: the number below some bound that a hash of columns gives, by which a context shares events out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import pyarrow as pa

from gpu_ops.errors import ColumnError
from gpu_ops.plan.nodes import Unary
from gpu_ops.plan.splits import Split

HashFunction: TypeAlias = Literal["hash_code", "consistent_hash_crc32"]
"""`hash_code` is Java's hash of values, `consistent_hash_crc32` the CRC-32 of their bytes (Esper's hash contexts)."""


def is_hashed(dtype: pa.DataType) -> bool:
    """Whether there is a hash of a type's values: texts, whole numbers, floats and booleans."""
    types = pa.types
    return bool(
        types.is_string(dtype)
        or types.is_boolean(dtype)
        or types.is_signed_integer(dtype)
        or types.is_float32(dtype)
        or types.is_float64(dtype)
    )


@dataclass(frozen=True, eq=False)
class Bucket(Unary):
    """Events with one more column: the number of the bucket that a hash of some columns gives.

    Attributes:
        columns: The columns.
        function: The hash.
        count: How many buckets there are; their numbers begin at 0.
        name: The name of the column.
    """

    columns: tuple[str, ...]
    function: HashFunction
    count: int
    name: str

    def __post_init__(self) -> None:
        for name in self.columns:
            dtype = self.input.schema.field(name).type
            if not is_hashed(dtype):
                raise ColumnError(f"There is no hash of {dtype}.", column=name, remedy="Hash texts or whole numbers.")

    @cached_property
    def schema(self) -> pa.Schema:
        return self.input.schema.append(pa.field(self.name, pa.int32(), nullable=False))

    takes_ends = "passed on"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        read = {*wanted, *self.columns}
        return [tuple(name for name in self.input.schema.names if name in read)]

    def split(self, below: Sequence[Split]) -> Split:
        return below[0]

    def describe(self) -> str:
        return f"Bucket {self.name}={self.function}({', '.join(self.columns)}) of {self.count}"
