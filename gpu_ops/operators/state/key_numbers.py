"""The numbers of keys that are no single integer: by hashes; where two keys have one hash, by the keys themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.core.arrow_buffers import booleans, in_one
from gpu_ops.devices import Device
from gpu_ops.operators.state.integer_numbers import IntegerNumbers


class KeyNumbers:
    """A number for each of some keys.

    Args:
        schema: The columns of keys.
        device: Where arrays live.
    """

    def __init__(self, schema: pa.Schema, device: Device) -> None:
        self._schema, self._device = schema, device
        self._by_hash = IntegerNumbers(device)
        self._others: dict[tuple[Any, ...], int] = {}
        """Keys whose hash another key had first, and all keys where the device has no hashes of them."""

    def find(self, keys: Any, keys_of: Callable[[Any], Any]) -> Any:
        """int32 number of each of some distinct keys, in an array of its own; -1 if it has none.

        Args:
            keys: A frame.
            keys_of: Gives the frame of the keys that have some int64 numbers.
        """
        columns, kernels = self._device.columns, self._device.kernels
        hashes = columns.row_hashes(keys, self._schema)
        if hashes is None:
            return self._among_others(keys)
        found = self._by_hash.find(hashes)
        at = kernels.keep(found >= 0)
        if not len(at):
            return found
        known = columns.to_arrow(keys_of(kernels.take(found, at).astype(np.int64)), self._schema)
        same = columns.array(_same(columns.to_arrow(columns.take(keys, at), self._schema), known))
        if not bool(same.all()):
            wrong = kernels.take(at, kernels.keep(~same))
            found[wrong] = self._among_others(columns.take(keys, wrong))
        return found

    def _among_others(self, keys: Any) -> Any:
        columns = self._device.columns
        return columns.array(np.array([self._others.get(key, -1) for key in columns.tuples(keys)], np.int32))

    def add(self, keys: Any, numbers: Any) -> None:
        """Give keys that have no number one each.

        Args:
            keys: A frame of distinct ones.
            numbers: int32: their numbers.
        """
        columns, kernels = self._device.columns, self._device.kernels
        hashes = columns.row_hashes(keys, self._schema)
        first = np.zeros_like(numbers, dtype=np.bool_)
        if hashes is not None:
            first[np.unique(hashes, return_index=True)[1]] = True
            first &= self._by_hash.find(hashes) < 0
            at = kernels.keep(first)
            self._by_hash.add(kernels.take(hashes, at), kernels.take(numbers, at))
        rest = kernels.keep(~first)
        if len(rest):
            others = columns.tuples(columns.take(keys, rest))
            self._others |= zip(others, columns.host(kernels.take(numbers, rest)).tolist(), strict=True)


def _same(keys: pa.Table, others: pa.Table) -> Any:
    """Host bools: which rows are the same; null is null."""
    same = np.ones(len(keys), np.bool_)
    for one, other in zip(keys.columns, others.columns, strict=True):
        equal = pc.equal(one, other)
        if equal.null_count:
            both = pc.and_(pc.is_null(one), pc.is_null(other))
            equal = pc.or_(pc.fill_null(equal, False), both)
        same &= booleans(in_one(equal))
    return same
