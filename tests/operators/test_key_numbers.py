"""The numbers of groups are those that a dict would give, also where keys have one hash, and after a restore."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.devices import choose
from gpu_ops.operators.state.rows import GroupInterner

TEXTS = st.sampled_from([None, "", "a", "b", "a longer text", "another text", "ä"])
FLOATS = st.sampled_from([None, 0.0, -0.0, 1.5, float("nan")])
KEYS: dict[str, tuple[pa.Schema, st.SearchStrategy[tuple[Any, ...]]]] = {
    "texts": (pa.schema([("k", pa.string())]), st.tuples(TEXTS)),
    "several": (
        pa.schema([("k", pa.string()), ("n", pa.int32()), ("b", pa.bool_())]),
        st.tuples(TEXTS, st.sampled_from([None, 0, 1]), st.sampled_from([None, True])),
    ),
    "floats": (pa.schema([("x", pa.float64())]), st.tuples(FLOATS)),
    "integers": (pa.schema([("n", pa.int64())]), st.tuples(st.none() | st.integers(-(1 << 63), (1 << 63) - 1))),
}


def _few(hashes: Callable[..., Any]) -> Callable[..., Any]:
    """Hashes of which there are three."""

    def made(*given: Any) -> Any:
        found = hashes(*given)
        return None if found is None else found % 3

    return made


@pytest.mark.parametrize("name", ["cpu", "array"])
@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("few", [False, True])
@given(st.data())
def test_numbers_are_those_of_a_dict(name: str, kind: str, few: bool, data: st.DataObject) -> None:  # noqa: FBT001
    device, (schema, keys) = choose(name), KEYS[kind]
    columns, names = device.columns, tuple(schema.names)

    def frame(rows: list[tuple[Any, ...]]) -> Any:
        return columns.from_arrow(pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema))

    def said(row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(repr(0.0 if each == 0 and isinstance(each, float) else each) for each in row)

    hashes = _few(columns.row_hashes) if few else columns.row_hashes
    with mock.patch.object(columns, "row_hashes", hashes):
        groups, numbers = GroupInterner(names, schema, device), dict[tuple[Any, ...], int]()
        for rows in data.draw(st.lists(st.lists(keys, min_size=1, max_size=12), max_size=6)):
            asked = [numbers.get(said(row), -1) for row in rows]
            assert columns.host(groups.known(frame(rows))).tolist() == asked
            found = columns.host(groups.codes(frame(rows))).tolist()
            for row, number in zip(rows, found, strict=True):
                assert numbers.setdefault(said(row), number) == number
            assert sorted(numbers.values()) == list(range(len(numbers))) == list(range(len(groups)))
            if data.draw(st.booleans()):
                kept = columns.to_arrow(groups.keys, schema)
                groups = GroupInterner(names, schema, device)
                groups.restore(columns.from_arrow(kept))
        if numbers:
            of = columns.to_arrow(groups.keys_of(columns.array(np.array(list(numbers.values())))), schema)
            assert [said(tuple(row.values())) for row in of.to_pylist()] == list(numbers)
