"""Row programs give for each pair of rows what Narwhals gives for a row with the columns of both."""

from __future__ import annotations

import math
from typing import Any

import narwhals as nw
import numba
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.core.polars_frames import to_frame
from gpu_ops.devices import choose
from gpu_ops.devices.cpu import row_programs as cpu
from gpu_ops.errors import PlanError
from gpu_ops.operators.row_cells import cell_values
from gpu_ops.plan.row_programs import Op, RowSlots, condition, program, tables
from tests.support.examples import examples

SCHEMA = pa.schema([("k", pa.string()), ("i", pa.int32()), ("j", pa.int64()), ("f", pa.float64()), ("b", pa.bool_())])
BOTH = pa.schema([*SCHEMA, *(each.with_name(f"a.{each.name}") for each in SCHEMA)])
SLOTS = RowSlots(BOTH, {name: ("a", name[2:]) if name.startswith("a.") else ("", name) for name in BOTH.names})


@numba.njit
def every_result(
    code: Any, bounds: Any, constants: Any, begins: Any, values: Any, there: Any, rows: Any, depth: int
) -> tuple[Any, Any]:
    """The results of the first program for some rows."""
    stack, known = np.zeros(depth + 1, np.int64), np.zeros(depth + 1, np.bool_)
    results, found = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    floats = stack.view(np.float64)
    for at in range(len(rows)):
        found[at] = cpu.evaluate(0, code, bounds, constants, begins, values, there, rows[at], stack, floats, known)
        results[at] = stack[0]
    return results, found


def run(expression: nw.Expr, mine: list[dict[str, Any]], others: list[dict[str, Any] | None]) -> list[Any]:
    """What a program gives for pairs of rows; "overflow" where a number does not fit."""
    made = program(expression, SLOTS)
    arrays = tables([made])
    device = choose("cpu")
    slots = {
        "": pa.Table.from_pylist(mine, SCHEMA),
        "a": pa.Table.from_pylist([each for each in others if each is not None], SCHEMA),
    }
    frames = []
    for at, cell in enumerate(arrays.cells):
        whole = nw.from_native(to_frame(slots[cell.slot])).with_columns(cell.value.alias(f"c{at}"))
        frame = whole.select(f"c{at}").to_native()
        frames.append((device.columns.from_arrow(frame.to_arrow()), f"c{at}"))
    cells = cell_values(arrays.cells, frames, device)
    other = np.cumsum([each is not None for each in others]) - 1
    other = np.where([each is not None for each in others], other, -1)
    rows = np.array([[at if c.slot == "" else other[at] for c in arrays.cells] for at in range(len(mine))], np.int64)
    rows = rows.reshape(len(mine), len(arrays.cells))
    numbers = (arrays.code, arrays.bounds, arrays.constants, cells.begins, cells.values, cells.there)
    results, found = every_result(*numbers, rows, arrays.depth)
    shown = results.view(np.float64) if made.kind == "float" else results
    words = {cpu.VALUE: None, cpu.UNKNOWN: None, cpu.OVERFLOW: "overflow"}
    return [shown[at].item() if how == cpu.VALUE else words[how] for at, how in enumerate(found)]


def reference(expression: nw.Expr, mine: list[dict[str, Any]], others: list[dict[str, Any] | None]) -> list[Any]:
    """What Narwhals gives; true and false are 1 and 0."""
    none = dict.fromkeys(SCHEMA.names)
    rows = [
        {**one, **{f"a.{name}": value for name, value in (other or none).items()}}
        for one, other in zip(mine, others, strict=True)
    ]
    frame = to_frame(pa.Table.from_pylist(rows, BOTH))
    values = nw.from_native(frame).select(value=expression)["value"].to_list()
    return [int(each) if isinstance(each, bool) else each for each in values]


col = nw.col
numbers = st.one_of(st.none(), st.integers(-3, 3))
rows = st.fixed_dictionaries(
    {
        "k": st.one_of(st.none(), st.sampled_from(["", "a", "b", "ä"])),
        "i": numbers,
        "j": numbers,
        "f": st.one_of(st.none(), st.sampled_from([-1.5, -0.0, 0.0, 2.0, math.nan, math.inf])),
        "b": st.one_of(st.none(), st.booleans()),
    }
)
names = st.sampled_from(["", "a."])


@st.composite
def values(draw: st.DrawFn, depth: int = 2) -> nw.Expr:
    """A number."""
    if depth and draw(st.booleans()):
        one, other = draw(values(depth - 1)), draw(values(depth - 1))
        return draw(st.sampled_from([one + other, one - other, one * other]))
    choice = draw(st.sampled_from(["i", "j", "f", "literal", "first"]))
    if choice == "literal":
        return nw.lit(draw(st.integers(-3, 3)))
    if choice == "first":
        return nw.coalesce(col("j"), col("a.j"))
    return col(draw(names) + choice)


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> nw.Expr:
    """A condition."""
    if depth and draw(st.booleans()):
        one, other = draw(conditions(depth - 1)), draw(conditions(depth - 1))
        joined = [one & other, one | other, ~one, nw.all_horizontal(one, other, ignore_nulls=False)]
        joined += [nw.any_horizontal(one, other, ignore_nulls=False), one.fill_null(False), one.is_null()]
        return draw(st.sampled_from([*joined, nw.when(one).then(other).otherwise(col("b"))]))
    if draw(st.booleans()):
        one, other = (col("k"), col("a.k")) if draw(st.booleans()) else (col("b"), col("a.b"))
        return draw(st.sampled_from([one == other, one != other, *([one < other] if "(k)" in repr(one) else [])]))
    one, other = draw(values()), draw(values())
    return draw(st.sampled_from([one == other, one != other, one < other, one <= other, one > other, one >= other]))


@examples(dear=True)
@given(conditions(), st.lists(st.tuples(rows, st.one_of(st.none(), rows)), min_size=1, max_size=4))
def test_conditions_mean_what_narwhals_means(expression: nw.Expr, pairs: list[Any]) -> None:
    mine, others = [one for one, _ in pairs], [other for _, other in pairs]
    assert run(expression, mine, others) == reference(expression, mine, others)


@examples(dear=True)
@given(conditions(), st.lists(st.tuples(rows, rows), min_size=1, max_size=4))
def test_the_parts_of_a_condition_hold_where_it_holds(expression: nw.Expr, pairs: list[Any]) -> None:
    mine, others = [one for one, _ in pairs], [other for _, other in pairs]
    parts = condition(expression, SLOTS)
    found = np.ones(len(mine), np.bool_)
    if parts.alone is not None:
        found &= np.array(reference(parts.alone, mine, others)) == 1
    for one, other in parts.equal:
        frames = [to_frame(pa.Table.from_pylist(each, SCHEMA)) for each in (mine, others)]
        sides = [nw.from_native(f).select(v=c.value)["v"].to_list() for f, c in zip(frames, (one, other), strict=True)]
        found &= np.array([a is not None and a == b for a, b in zip(*sides, strict=True)])
    if parts.rest is not None:
        rest = run(expression, mine, others)
        found &= np.array([each == 1 for each in rest])
    assert list(found) == [each == 1 for each in reference(expression, mine, others)]


def test_a_number_that_does_not_fit_is_found() -> None:
    largest = {"k": None, "i": (1 << 31) - 1, "j": (1 << 63) - 1, "f": 0.0, "b": True}
    one = {**largest, "i": 1, "j": 1}
    assert run(col("i") + col("a.i"), [largest, one], [one, one]) == ["overflow", 2]
    assert run(col("j") + col("a.j"), [largest, one], [one, one]) == ["overflow", 2]
    assert run(col("j") * col("a.j"), [largest, one], [largest, one]) == ["overflow", 1]
    least = {**one, "j": -(1 << 63)}
    assert run(col("j") - col("a.j"), [one, least], [least, {**one, "j": -1}]) == ["overflow", -(1 << 63) + 1]
    half = {**one, "j": 1 << 62}
    assert run(col("j") * col("a.j"), [half, half, least], [{**one, "j": n} for n in (-2, 2, -1)]) == [
        -(1 << 63),
        "overflow",
        "overflow",
    ]


def test_what_there_is_no_instruction_for_is_refused() -> None:
    with pytest.raises(PlanError, match="concat_str"):
        program(nw.concat_str(col("k"), col("a.k")) == "ab", SLOTS)
    with pytest.raises(PlanError, match="abs"):
        program((col("j") - col("a.j")).abs() > 3, SLOTS)


@pytest.mark.parametrize(
    "expression",
    [
        (col("i") + col("a.i")).is_in([1, 2]),
        (col("f") + col("a.f")).fill_nan(-1.0) < 0,
        nw.when(col("i") > col("a.i")).then(nw.lit("b")).otherwise(col("k")) == col("a.k"),
        nw.coalesce(col("k"), col("a.k")) == "a",
        nw.coalesce(col("k"), col("a.k")).is_in(["a", "b"]),
    ],
    ids=str,
)
def test_lists_texts_and_nan_mean_what_narwhals_means(expression: nw.Expr) -> None:
    """Each of four rows beside each: texts that are equal or missing, numbers that are NaN, infinite or missing."""
    some: list[Any] = [
        {"k": k, "i": i, "j": 0, "f": f, "b": True}
        for k, i, f in [("a", 0, math.nan), ("b", 2, math.inf), (None, 1, None), ("b", None, -1.5)]
    ]
    mine, others = [one for one in some for _ in some], [other for _ in some for other in some]
    assert run(expression, mine, others) == reference(expression, mine, others)


def test_the_kernel_has_the_instructions_of_the_plan() -> None:
    assert {op.name: int(op) for op in Op} == {op.name: getattr(cpu, op.name) for op in Op}


def test_what_reads_one_slot_is_a_cell_of_any_kind() -> None:
    made = condition(col("k").str.len_chars() > col("a.k").str.len_chars(), SLOTS)
    assert made.rest is not None
    assert [cell.slot for cell in made.rest.cells] == ["a", ""]
    pair = {"k": "bb", "i": 1, "j": 1, "f": 0.0, "b": True}
    assert run(col("k").str.len_chars() > col("a.k").str.len_chars(), [pair], [{**pair, "k": "a"}]) == [1]
