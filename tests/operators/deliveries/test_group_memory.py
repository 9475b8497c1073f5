"""What groups remember: beside a dictionary of groups that is walked move by move."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.core.state_tables import check
from gpu_ops.core.turns import PLACE
from gpu_ops.devices import Device, choose
from gpu_ops.operators.deliveries.changes import UNKNOWN, Changes
from gpu_ops.operators.deliveries.group_memory import GroupMemory
from tests.support.devices import HERE
from tests.support.examples import examples

_SCHEMA = pa.schema([("k", pa.string()), (PLACE, pa.int64())])

# A row: its group, the place at which it enters, and after how many places it leaves.
_ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(1, 12), st.integers(0, 6)), max_size=12)


def _literal(rows: list[tuple[Any, int, int]], limit: int) -> dict[str, dict[int, tuple[int, int]]]:
    """For each row that is remembered (as one that entered, or left) from when on, and until when."""
    alive: dict[Any, set[int]] = defaultdict(set)
    known: dict[Any, list[tuple[str, int]]] = defaultdict(list)
    made: dict[str, dict[int, tuple[int, int]]] = {"remembered": {}, "remembered left": {}}
    for place in range(1, limit):
        entering = [at for at, (_, enter, _) in enumerate(rows) if enter == place]
        leaving = [at for at, (_, enter, lasts) in enumerate(rows) if enter + lasts == place]
        if entering:
            for key in [key for key in known if not alive[key]]:
                for life, at in known.pop(key):
                    made[life][at] = (made[life][at][0], place)
        for life, some in (("remembered", entering), ("remembered left", leaving)):
            for at in some:
                key = rows[at][0]
                known[key].append((life, at))
                made[life][at] = (place, UNKNOWN)
                (alive[key].add if life == "remembered" else alive[key].discard)(at)
    return made


def _changes(rows: list[tuple[Any, int, int]], begin: int, limit: int, device: Device) -> Changes:
    array = device.columns.array
    some = [(at, *row) for at, row in enumerate(rows) if begin <= row[1] < limit or begin <= row[1] + row[2] < limit]
    table = pa.table({"k": [each[1] for each in some], PLACE: [each[0] for each in some]}, schema=_SCHEMA)
    enter = np.array([2 * each[2] for each in some], np.int64)
    leave = np.array([2 * (each[2] + each[3]) for each in some], np.int64)
    enters, leaves = ((2 * begin <= each) & (each < 2 * limit) for each in (enter, leave))
    leave = np.where(leaves, leave, UNKNOWN)
    return Changes(device.columns.from_arrow(table), *map(array, (enter, leave, enters, leaves)))


@pytest.mark.parametrize("device", HERE)
@given(_ROWS, st.lists(st.integers(2, 18), max_size=3), st.sampled_from(["restores", "goes on"]))
@examples()
def test_rows_are_remembered_until_their_group_is_forgotten(
    device: str, rows: list[tuple[Any, int, int]], cuts: list[int], then: str
) -> None:
    own = choose(device)
    memory = GroupMemory(("k",), _SCHEMA, own)
    found: dict[str, dict[int, tuple[int, int]]] = {"remembered": {}, "remembered left": {}}
    begins = [1, *sorted({*cuts})]
    for begin, limit in zip(begins, [*begins[1:], 20], strict=True):
        for life, changes in memory.step(_changes(rows, begin, limit, own)).items():
            host = own.columns.host
            numbers = own.columns.to_arrow(changes.frame, _SCHEMA)[PLACE].to_pylist()
            arrays = (host(getattr(changes, name)).tolist() for name in ("enter", "leave", "enters", "leaves"))
            for number, enter, leave, enters, leaves in zip(numbers, *arrays, strict=True):
                if enters and leaves and enter == leave:
                    continue  # it only says that its group has a value there
                was = found[life].get(number)
                assert (was is None) == enters
                assert was is None or was == (enter // 2, UNKNOWN)
                found[life][number] = (enter // 2, leave // 2 if leaves else UNKNOWN)
        if then == "restores":
            tables = memory.tables("m/")
            check("The state", tables, lambda known, old=memory: old.declared(known, "m/"))  # type: ignore[misc]
            memory = GroupMemory(("k",), _SCHEMA, own)
            memory.restore(tables, "m/")
    wanted = _literal(rows, 20)
    assert found == wanted
    assert len(memory) == sum(until == UNKNOWN for each in wanted.values() for _, until in each.values())


def test_groups_of_which_nothing_is_known_lose_their_numbers() -> None:
    """Ten thousand keys, each of which has one row for one moment: as the next one comes it is forgotten."""
    own = choose("cpu")
    schema = pa.schema([("k", pa.int64()), (PLACE, pa.int64())])
    memory = GroupMemory(("k",), schema, own)
    for step in range(100):
        number = np.arange(step * 100, step * 100 + 100)
        frame = own.columns.from_arrow(pa.table({"k": number, PLACE: number}, schema=schema))
        yes = np.ones(100, np.bool_)
        memory.step(Changes(frame, 4 * number, 4 * number + 2, yes, yes))
    assert len(memory) == 2
    assert memory.tables("")["groups"].num_rows < 10_000
