"""Tables whose rows have numbers: their parts make up the table, whatever came, changed and went in between."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.core.numbered_runs import NumberedRuns, PlacedRuns
from gpu_ops.core.state_parts import NewerValues, StatePart, joined

SCHEMA = pa.schema([("number", pa.int64()), ("n", pa.int64()), ("m", pa.int64()), ("text", pa.string())])


class Rows:
    """The table as a list of rows: whoever asks is given them as they are now."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.rows, self.next = chance, list[dict[str, Any]](), 0
        self.used = set[int]()

    def add(self, count: int) -> None:
        for _ in range(count):
            self.next += self.chance.randrange(1, 4)
            text = self.chance.choice([None, "", "a"])
            self.rows.append({"number": self.next, "n": self.chance.randrange(9), "m": 0, "text": text})
            self.used.add(self.next)

    def add_older(self) -> None:
        unused = sorted({*range(self.next)} - self.used)
        if unused:
            number = self.chance.choice(unused)
            self.used.add(number)
            self.rows.append({"number": number, "n": 1, "m": 1, "text": "late"})
            self.rows.sort(key=lambda row: row["number"])

    def change(self, count: int) -> None:
        for each in self.chance.sample(self.rows, min(count, len(self.rows))):
            each[self.chance.choice("nm")] = self.chance.randrange(9)

    def drop(self, count: int) -> None:
        gone = set(self.chance.sample(range(len(self.rows)), min(count, len(self.rows))))
        self.rows = [row for at, row in enumerate(self.rows) if at not in gone]

    def of(self, at: Any) -> pa.Table:
        return pa.Table.from_pylist([self.rows[each] for each in at], schema=SCHEMA)

    def parts(self, runs: NumberedRuns) -> list[StatePart]:
        now = {name: np.array([row[name] for row in self.rows], np.int64) for name in ("number", "n", "m")}
        return runs.parts(now, self.of)


def _giver(table: pa.Table) -> Callable[[], pa.Table]:
    return lambda: table


def _as_saved(parts: list[StatePart]) -> list[StatePart]:
    """Parts as a file gives them back: nothing of them changes any more."""
    return [
        StatePart(
            _giver(part.rows()),
            part.name,
            gone=None if part.gone is None or not part.gone.any() else part.gone.copy(),
            changed=[NewerValues(each.name, _giver(each.rows())) for each in part.changed],
        )
        for part in parts
    ]


@given(st.randoms(use_true_random=False))
def test_the_parts_are_the_table(chance: random.Random) -> None:
    """Rows come, change and go, an older one comes; saved and restored in between, where names keep their content."""
    rows, runs = Rows(chance), NumberedRuns("number", ["n", "m"])
    known: dict[str, Any] = {}
    for _ in range(chance.randrange(1, 12)):
        rows.add(chance.choice([0, 0, 1, 30]))
        rows.change(chance.choice([0, 1, 20]))
        rows.drop(chance.choice([0, 0, 1, 3, 15, 100]))
        if chance.random() < 0.1:
            rows.add_older()
        parts = rows.parts(runs)
        assert joined([part.wanted() for part in parts]).equals(rows.of(range(len(rows.rows))))
        for part in parts:
            assert known.setdefault(str(part.name), part.rows()).equals(part.rows())
            for each in part.changed:
                assert known.setdefault(each.name, each.rows()).equals(each.rows())
        if chance.random() < 0.4:
            runs = NumberedRuns("number", ["n", "m"])
            runs.restore(_as_saved(parts))
            names = [part.name for part in parts]
            assert [part.name for part in rows.parts(runs)] == names or names == [None]


def test_little_is_new_where_little_changes() -> None:
    """Of 10,000 rows 10 change, one goes and one comes, a hundred times: all that is made is less than three tables."""
    rows, runs = Rows(random.Random(1)), NumberedRuns("number", ["n", "m"])
    rows.add(10_000)
    sizes: dict[str, int] = {}
    for _ in range(100):
        for part in rows.parts(runs):
            sizes[str(part.name)] = part.rows().num_rows
            sizes |= {each.name: each.rows().num_rows for each in part.changed}
        rows.change(10)
        rows.drop(1)
        rows.add(1)
    assert 10_000 + 1_000 < sum(sizes.values()) < 30_000


@pytest.mark.parametrize("part", [{"name": None}, {"name": "a", "passed": 1}])
def test_parts_of_other_kinds_are_not_taken_for_runs(part: dict[str, Any]) -> None:
    table, runs = pa.table({"number": [1]}), NumberedRuns("number")
    runs.restore([StatePart(_giver(table), **part)])
    assert not runs.runs


def test_a_table_of_an_older_state_is_made_anew() -> None:
    runs = NumberedRuns("number", ["n"])
    runs.restore([StatePart(_giver(pa.table({"number": [1]})), "a")])
    assert not runs.runs


@given(st.randoms(use_true_random=False))
def test_rows_that_keep_their_places(chance: random.Random) -> None:
    """Rows are appended and changed, all get other places; saved and restored in between."""
    runs, rows = PlacedRuns(["n", "m"]), np.zeros((0, 2), np.int64)
    for _ in range(chance.randrange(1, 12)):
        more = [[chance.randrange(9), 0] for _ in range(chance.choice([0, 1, 30]))]
        rows = np.concatenate([rows, np.array(more, np.int64).reshape(-1, 2)])
        for at in chance.sample(range(len(rows)), min(len(rows), chance.choice([0, 1, 9]))):
            rows[at, chance.randrange(2)] = chance.randrange(9)
        if chance.random() < 0.2:
            rows = rows[chance.randrange(len(rows) + 1) :].copy()
            runs.forget()
        parts = runs.parts(rows.copy())
        assert joined([part.wanted() for part in parts]).to_pydict() == {"n": [*rows[:, 0]], "m": [*rows[:, 1]]}
        if chance.random() < 0.4:
            runs = PlacedRuns(["n", "m"])
            runs.restore(_as_saved(parts), rows)
            assert [part.name for part in runs.parts(rows)] == [part.name for part in parts] or not len(rows)
