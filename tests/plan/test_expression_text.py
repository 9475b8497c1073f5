"""Expressions as text: Python reads them as what they are."""

from __future__ import annotations

import narwhals as nw
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.plan.expression_text import for_readers, line_text, text_of

COLUMNS = {name: nw.col(name) for name in ("a", "b", "long_name")}
LEAVES = st.sampled_from([*COLUMNS.values(), nw.col("a").abs(), nw.col("b").is_in([1, 2]), nw.col("b").fill_null(0)])
BINARY = st.sampled_from(["+", "-", "*", "/", "//", "%", "**", "&", "|", "==", "!=", "<", "<=", ">", ">="])
ARITHMETIC = {"+", "-", "*", "/", "//", "%", "**"}


def combined(below: st.SearchStrategy[nw.Expr]) -> st.SearchStrategy[nw.Expr]:
    def made(sign: str, left: nw.Expr, right: nw.Expr | int, *, turned: bool) -> nw.Expr:
        # A number comes first before an arithmetic sign alone: Python turns comparisons around.
        names = {"l": right, "r": left} if turned and sign in ARITHMETIC else {"l": left, "r": right}
        value: nw.Expr = eval(f"l {sign} r", {}, names)  # noqa: S307
        return value

    unary = st.one_of(
        below.map(lambda each: -each), below.map(lambda each: ~each), below.map(lambda each: each.round(2))
    )
    return unary | st.builds(made, BINARY, below, below | st.integers(0, 9), turned=st.booleans())


@given(st.recursive(LEAVES, combined, max_leaves=8))
def test_python_reads_the_text_as_the_expression(expression: nw.Expr) -> None:
    assert repr(eval(text_of(expression), {}, COLUMNS)) == repr(expression)  # noqa: S307


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (nw.col("@key 0") + 1, "`@key 0` + 1"),
        ((nw.col("a") & nw.col("b")).alias("both"), "a & b as both"),
        (nw.coalesce("a", nw.lit(1)), "coalesce(a, 1)"),
        (nw.col("a") - (-1), "a - -1"),
        (nw.lit(-1) ** nw.col("a"), "(-1) ** a"),
        (nw.col("a").is_in([*range(10)]), "a.is_in([0, 1, 2, 3, 4, 5, 6, 7, … 2 more])"),
        (nw.when(nw.col("a") > 1, nw.col("b") > 1).then(nw.lit("x")), "when(all_horizontal(a > 1, b > 1)).then('x')"),
        (nw.col("s").str.slice(1, 2), "s.str.slice(offset=1, length=2)"),
    ],
)
def test_what_python_has_no_sign_for(expression: nw.Expr, text: str) -> None:
    assert text_of(expression) == text


def test_checkpoints_hold_the_other_form_and_explain_this_one() -> None:
    bids = g.events(pa.table({"at": [1], "price": [2]}), start="at", unit="s").filter(g.col("price") * 2 > 3)
    assert bids._node.describe() == "Filter col(price).__mul__(2).__gt__(3)"
    assert bids.explain().startswith("Filter price * 2 > 3\n")
    with for_readers():
        assert line_text(g.col("price")) == "price"
    assert line_text(g.col("price")) == "col(price)"
