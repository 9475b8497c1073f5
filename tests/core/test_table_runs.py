"""Tables that are kept in runs: what they are made up of is the table, and little of it is new each time."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.core import table_runs
from gpu_ops.core.state_parts import NewerValues, StatePart, doubtful, joined, whole
from gpu_ops.core.table_runs import TableRuns

KINDS = {"n": pa.int64(), "at": pa.timestamp("us", "UTC"), "sure": pa.bool_(), "text": pa.string(), "x": pa.float64()}


def _value(kind: pa.DataType, chance: random.Random) -> Any:
    if pa.types.is_boolean(kind):
        return chance.random() < 0.5
    if pa.types.is_string(kind):
        return chance.choice([None, "", "a", "a longer text"])
    if pa.types.is_floating(kind):
        return chance.choice([None, 0.5, -1.0])
    return chance.randrange(100)


class Rows:
    """The table as a list of rows: whoever asks is given them as they are now."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.rows, self.kinds = chance, list[dict[str, Any]](), dict(list(KINDS.items())[:3])

    def add(self, count: int) -> None:
        for _ in range(count):
            self.rows.append({"key/k": len(self.rows), **self._values()})

    def _values(self) -> dict[str, Any]:
        return {name: _value(kind, self.chance) for name, kind in self.kinds.items()}

    def change(self, count: int) -> list[int]:
        at = self.chance.sample(range(len(self.rows)), min(count, len(self.rows)))
        for each in at:
            self.rows[each] |= self._values()
        return at

    def of(self, at: Any) -> pa.Table:
        schema = pa.schema([("key/k", pa.int64()), *self.kinds.items()])
        return pa.Table.from_pylist([self.rows[each] for each in at], schema=schema)


@given(st.randoms(use_true_random=False), st.sampled_from([0, 1 << 12]))
def test_the_parts_are_the_table(chance: random.Random, few: int) -> None:
    """Rows are appended and changed, columns come, all is numbered anew; saved and restored in between."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_runs, "_FEW", few)
        rows, runs, before = Rows(chance), TableRuns("key/"), set[str]()
        for _ in range(chance.randrange(1, 12)):
            what = chance.random()
            if what < 0.08 and len(rows.kinds) < len(KINDS):
                rows.kinds = dict(list(KINDS.items())[: len(rows.kinds) + 1])
                rows.rows = [{**each, **rows._values()} for each in rows.rows]
            elif what < 0.14:
                rows.rows = chance.sample(rows.rows, chance.randrange(len(rows.rows) + 1))
                runs.forget()
            rows.add(chance.choice([0, 0, 1, 30]))
            for count in chance.choice([(), (1,), (3, 1), (40,)]):
                runs.note(np.array(rows.change(count), np.int64))
            if chance.random() < 0.3:
                continue  # not saved
            parts = runs.parts(len(rows.rows), rows.of)
            every = rows.of(range(len(rows.rows)))
            assert joined([part.wanted() for part in parts]).equals(every)
            assert whole({"t": parts})["t"] == every == doubtful({"t": parts}, ("t",))["t"]
            if not rows.rows:
                continue
            names = {str(part.name) for part in parts} | {each.name for part in parts for each in part.changed}
            assert len(names) == len(parts) + sum(len(part.changed) for part in parts)
            before |= names
            if chance.random() < 0.4:
                # What a file holds, and nothing of what is known beside it.
                kept = [(part.name, part.rows(), [(c.name, c.rows()) for c in part.changed]) for part in parts]
                runs = TableRuns("key/")
                runs.restore([StatePart(_giver(table), name, changed=_newer(of)) for name, table, of in kept])
                assert {part.name for part in runs.parts(len(rows.rows), rows.of)} <= before


def _giver(table: pa.Table) -> Callable[[], pa.Table]:
    return lambda: table


def _newer(changed: list[tuple[str, pa.Table]]) -> list[Any]:

    return [NewerValues(name, _giver(table)) for name, table in changed]


def test_little_is_new_where_little_changes() -> None:
    """Of 10,000 rows 10 change and one comes, a hundred times: all that was ever made is less than five tables."""
    rows, runs = Rows(random.Random(1)), TableRuns("key/")
    rows.add(10_000)
    sizes: dict[str, int] = {}
    for _ in range(100):
        for part in runs.parts(len(rows.rows), rows.of):
            sizes[str(part.name)] = part.rows().num_rows
            sizes |= {each.name: each.rows().num_rows for each in part.changed}
        runs.note(np.array(rows.change(10)))
        rows.add(1)
    assert 10_000 + 1_000 < sum(sizes.values()) < 30_000


@pytest.mark.parametrize("part", [{"name": None}, {"name": "a", "passed": 1}, {"name": "a", "gone": np.array([True])}])
def test_parts_of_other_kinds_are_not_taken_for_runs(part: dict[str, Any]) -> None:
    table, runs = pa.table({"n": [1]}), TableRuns()
    runs.restore([StatePart(lambda: table, **part)])
    assert [each.name for each in runs.parts(1, lambda at: table.take(pa.array(at)))] != ["a"]
