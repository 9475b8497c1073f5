"""Damaged tables of patterns and of row patterns: they are refused, or the machine goes on and stops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from gpu_ops import epl
from gpu_ops.core.state_parts import whole
from gpu_ops.core.state_tables import Tables
from gpu_ops.engines.live.restoring import restore_node
from gpu_ops.errors import GpuOpsError, SourceError
from gpu_ops.operators.patterns.soundness import last_links
from gpu_ops.operators.runtime.steps import RunningNode
from gpu_ops.plan.pattern_matches import Pattern
from gpu_ops.plan.row_matches import RowMatches

TYPES = {"A": {"id": "string", "v": "int"}, "B": {"id": "string", "v": "int"}, "C": {"id": "string", "v": "int"}}

TEXTS = {
    "lists": "select * from pattern [every a=A -> [2:9] b=B(id=a.id) until c=C(v > a.v)]",
    "all of": "select * from pattern [every ([2] (a=A or b=B) and c=C(v = 9) and not timer:interval(90 sec))]",
    "found": "select * from pattern @DiscardPartialsOnMatch [every (every a=A and b=B(v = 4) and c=C(v = 7))]",
    "keys": """select * from pattern [every-distinct(a.id, 5 sec) a=A ->
        (every b=B where timer:withinmax(5 sec, 2)) -> c=C while (c.v < 9)]""",
    "schedule": "select * from pattern [every timer:schedule(repetitions: 9, period: 1 sec) -> a=A -> b=B(v = 9)]",
    "open starts": """select * from pattern [every a=A -> (timer:interval(2 sec)
        and (b=B(id = a.id) where timer:within(3 sec)) and not C(id = a.id, v > a.v))]""",
    "open starts of an event": "select * from pattern [every a=A -> b=A(id = a.id, v > a.v) where timer:within(3 sec)]",
    "rows": """select * from A match_recognize (partition by id measures X.v as x, count(Y.v) as n
        pattern (X Y* Z) interval 3 sec define Y as Y.v > prev(Y.v), Z as Z.v + sum(Y.v) > X.v)""",
    "rows of a window": """select * from A#length(4) match_recognize (measures X.v as x, Y.v as y all matches
        after match skip to current row pattern (X Y+) define Y as Y.v > X.v)""",
}


def _play(runtime: epl.Runtime, first: int, stop: int) -> None:
    for at in range(first, stop):
        for name in "ABC":
            runtime.send(name, {"id": None if at % 7 == 5 else "ab"[at % 2], "v": at % 5})
        runtime.advance(at * 500)


def _started(text: str) -> epl.Runtime:
    runtime = epl.Runtime(TYPES, start=0)
    runtime.deploy(f"@name('s') {text}")
    _play(runtime, 0, 9)
    return runtime


def _keepers(runtime: epl.Runtime) -> list[RunningNode]:
    return [each for each in runtime["s"].nodes if isinstance(each.node, Pattern | RowMatches)]


def _with(table: pa.Table, name: str, row: int, value: int | None) -> pa.Table:
    """A table with another value."""
    column, kind = table[name].combine_chunks(), table.schema.field(name).type
    one = pa.nulls(1, kind) if value is None else pa.array([value], pa.int64()).cast(kind, safe=False)
    changed = pa.concat_arrays([column.slice(0, row), one, column.slice(row + 1)])
    return table.set_column(table.column_names.index(name), name, changed)


def _damaged(sound: Tables) -> Iterator[tuple[str, Tables]]:
    """Tables with one value that is another: nothing, a number out of all range, its own row, the next one."""
    for name, table in sound.items():
        for column, kind in zip(table.column_names, table.schema.types, strict=True):
            is_number = pa.types.is_integer(kind) or pa.types.is_timestamp(kind)
            for row in range(table.num_rows)[table.num_rows // 2 :][: 2 if name == "instances" else 1]:
                values = (-1, 1 << 62, row, row + 1) if is_number else (None,)
                for value in values:
                    yield f"{name}.{column}[{row}] = {value}", {**sound, name: _with(table, column, row, value)}


@pytest.mark.parametrize("saved", ["whole", "in parts"])
@pytest.mark.parametrize("name", TEXTS)
def test_a_damaged_value_is_refused_or_the_machine_goes_on(name: str, saved: str) -> None:
    """In parts there is also what is no longer needed, and the places of instances that have ended."""
    runtime, at, seen = _started(TEXTS[name]), 9, Counter[str]()
    for number, keeper in enumerate(_keepers(runtime)):
        assert keeper.own is not None
        sound = keeper.own.tables() if saved == "whole" else whole(keeper.own.state_parts())
        for what, tables in [("as it was", sound), *_damaged(sound)]:
            try:
                restore_node(Path("c"), 0, keeper, tables, trusted=False)
            except SourceError:
                assert what != "as it was"
                seen["refused"] += 1
                continue
            try:
                _play(runtime, at, at + 1)
                assert keeper.own.tables(), what
            except GpuOpsError:
                seen["failed"] += 1
            at += 1
            seen["went on"] += 1
            if runtime["s"].failed is not None or at > 60:
                runtime, at = _started(TEXTS[name]), 9
                keeper = _keepers(runtime)[number]  # noqa: PLW2901  (of another runtime)
                assert keeper.own is not None
    assert min(seen["refused"], seen["went on"]) > 5, seen


@pytest.mark.parametrize(
    ("name", "table", "column", "row", "value"),
    [
        # Circles
        ("lists", "entries", "link", 3, 3),
        ("lists", "instances", "parent", 3, 3),
        ("found", "entries", "link", 3, 1),
        ("keys", "entries", "link", 3, 5),
        # What names something of another kind, or more than there is
        ("lists", "instances", "q", 3, 0),
        ("lists", "instances", "begin", 1, 1 << 40),
        ("found", "instances", "q", 1, 1),
        ("found", "instances", "p", 1, 3),
        ("found", "instances", "r", 1, 7),
        ("keys", "instances", "seen", 2, 0),
        ("keys", "dues", "who", 0, 0),
        ("keys", "machine", "begun", 0, 0),
        ("schedule", "instances", "p", 2, 1 << 62),
    ],
)
def test_what_is_damaged_is_named(name: str, table: str, column: str, row: int, value: int) -> None:
    (keeper,) = _keepers(_started(TEXTS[name]))
    assert keeper.own is not None
    sound = keeper.own.tables()
    damaged = {**sound, table: _with(sound[table], column, row, value)}
    with pytest.raises(SourceError, match=rf"is damaged: .* table '{table}'"):
        restore_node(Path("c"), 0, keeper, damaged, trusted=False)


def test_where_chains_end() -> None:
    #  0 <- 1 <- 3   2
    last, count = last_links(np.array([-1, 0, -1, 1]))
    assert last.tolist() == [0, 0, 2, 0]
    assert count.tolist() == [1, 2, 1, 3]


@pytest.mark.parametrize("name", ["lists", "found", "keys", "schedule", "open starts", "open starts of an event"])
def test_states_of_older_versions_have_no_numbers_of_rows(name: str) -> None:
    """Rows were named by their places; a machine had no instances that have ended."""
    now, older = _started(TEXTS[name]), _started(TEXTS[name])
    (keeper,) = _keepers(older)
    assert keeper.own is not None
    tables = keeper.own.tables()
    numbers = {each: tables[each]["@arrived"].to_pylist() for each in tables if each.startswith("rows ")}
    tables |= {each: tables[each].drop_columns("@arrived") for each in numbers}
    tables["clock"] = tables["clock"].select(["clock", "matches"])
    if "starts" in tables:
        node = keeper.node
        assert isinstance(node, Pattern)
        assert not isinstance(node.starts, str)
        of = {"row": node.starts.start, "found": node.starts.then}
        for column, part in of.items():
            values = tables["starts"][column].to_pylist()
            if part is not None and max(values, default=-1) >= 0:
                places = numbers[f"rows {part.stream}"]
                values = [each if each < 0 else places.index(each) for each in values]
            tables["starts"] = tables["starts"].set_column(
                tables["starts"].column_names.index(column), column, pa.array(values, pa.int64())
            )
    else:
        tables["machine"] = tables["machine"].drop_columns("dues")
    restore_node(Path("c"), 0, keeper, tables, trusted=False)
    for each in (now, older):
        _play(each, 9, 30)
    assert now["s"].deliveries() == older["s"].deliveries()
    assert now["s"].failed is None
