"""Bound expressions are worth what `tests.support.epl_values` computes row by row, and have the type that they say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding.expressions import bind
from gpu_ops.texts.binding.scope import BoundStream, StreamScope
from gpu_ops.texts.binding.types import event_type
from tests.support.epl_values import COMPUTED, value
from tests.support.examples import examples

Strategy = st.SearchStrategy[Any]

EVENT = pa.struct([("x", pa.int32()), ("y", pa.string())])
SCHEMA = event_type({
    "i": "int", "j": "int", "k": "long", "h": "short", "c": "byte", "d": "double", "v": "double", "f": "float",
    "t": "string", "u": "string", "p": "boolean", "q": "boolean", "a": "int[]", "n": EVENT,
})  # fmt: skip
SCOPE = StreamScope([BoundStream("s", "S", SCHEMA)])
BY_TYPE = {
    "whole": ["i", "j", "k", "h", "c"],
    "number": ["i", "j", "k", "h", "c", "d", "v", "f"],
    "text": ["t", "u"],
    "truth": ["p", "q"],
}

small = st.integers(-4, 4)
halves = st.integers(-8, 8).map(lambda number: number / 2)
doubles = st.booleans().flatmap(
    lambda odd: st.sampled_from([math.nan, math.nan, math.inf, -math.inf, -0.0]) if odd else halves
)
texts = st.text("ab%_\\.\n", max_size=4)
VALUES: dict[str, Strategy] = {
    **dict.fromkeys("ijkhc", small),
    **dict.fromkeys("dv", doubles),
    "f": halves,
    **dict.fromkeys("tu", texts),
    **dict.fromkeys("pq", st.booleans()),
    "a": st.lists(st.none() | small, max_size=3),
    "n": st.fixed_dictionaries({"x": st.none() | small, "y": st.none() | texts}),
}
rows = st.lists(
    st.fixed_dictionaries({name: st.none() | strategy for name, strategy in VALUES.items()}), min_size=4, max_size=8
)


def _one_of(*strategies: Strategy) -> Strategy:
    """Each as likely as the others, however many alternatives it has itself."""
    return st.sampled_from(strategies).flatmap(lambda strategy: strategy)


def _below(leaf: Strategy, depth: int, made: Any) -> Strategy:
    """What an operand is: often a leaf."""
    return _one_of(leaf, made(depth - 1)) if depth > 1 else leaf


def _named(kind: str) -> Strategy:
    return st.sampled_from(BY_TYPE[kind]).flatmap(
        lambda name: st.sampled_from([e.Name(name), e.Member(e.Name("s"), name)])
    )


def _operations(signs: str, left: Strategy, right: Strategy) -> Strategy:
    return st.builds(e.Operation, st.sampled_from(signs.split()), left, right)


def _calls(names: str, *given: Strategy, of: Strategy | None = None) -> Strategy:
    owner = st.none() if of is None else of
    return st.builds(e.FunctionCall, st.sampled_from(names.split()), st.tuples(*given), owner)


def _some(strategy: Strategy, least: int = 1) -> Strategy:
    return st.lists(strategy, min_size=least, max_size=3).map(tuple)


_null = st.just(e.Constant(None, "null"))
_math = st.just(e.Name("Math"))
_whole_constants = st.builds(e.Constant, st.integers(0, 4), st.sampled_from(["int", "long"]))
_indexes = st.builds(e.Constant, st.integers(0, 2), st.just("int")).map(lambda index: (index,))


@cache
def wholes(depth: int) -> Strategy:
    """Whole numbers."""
    leaf = _named("whole") | _whole_constants | st.builds(e.Element, st.just(e.Name("a")), _indexes)
    leaf = leaf | st.just(e.Member(e.Name("n"), "x")) | _calls("size", of=st.just(e.Name("a")))
    if not depth:
        return leaf
    inner, text = _below(leaf, depth, wholes), strings(depth - 1)
    return _one_of(
        _operations("+ - * %", inner, inner | _null),
        _operations("& | ^", inner, inner),
        st.builds(e.Prefixed, st.sampled_from("+-"), inner),
        _calls("coalesce min max", inner, inner),
        _calls("abs", inner, of=_math),
        _calls("length", of=text.filter(_is_no_number)),
        _calls("indexOf", st.builds(e.Constant, texts, st.just("string")), of=text.filter(_is_no_number)),
        _calls(
            "indexOf",
            st.builds(e.Constant, texts, st.just("string")),
            st.builds(e.Constant, st.integers(0, 4), st.just("int")),
            of=text.filter(_is_no_number),
        ),
        st.builds(e.Case, st.none(), _some(st.tuples(truths(depth - 1), inner)), st.none() | inner),
        st.builds(e.Cast, inner, st.just(e.TypeName("long"))),
    )


def _is_no_number(node: e.Expression) -> bool:
    return not isinstance(node, e.Constant) or node.type == "string"


@cache
def numbers(depth: int) -> Strategy:
    """Numbers of any type."""
    leaf = (
        _named("number") | _whole_constants | st.builds(e.Constant, halves.filter(lambda x: x >= 0), st.just("double"))
    )
    if not depth:
        return leaf
    inner = _below(leaf, depth, numbers)
    return _one_of(
        wholes(depth),
        _operations("+ - * /", inner, inner | _null),
        st.builds(e.Prefixed, st.just("-"), inner),
        _calls("coalesce min max", inner, inner),
        _calls("abs floor ceil sqrt signum", inner, of=_math),
        _calls("max min", inner, inner, of=_math),
        st.builds(e.Case, st.none() | inner, st.just(()), inner).flatmap(
            lambda case: st.builds(
                e.Case,
                st.just(case.subject),
                _some(st.tuples(truths(depth - 1) if case.subject is None else inner, inner)),
                st.just(case.otherwise),
            )
        ),
        st.builds(e.Cast, inner, st.just(e.TypeName("double"))),
    )


@cache
def strings(depth: int) -> Strategy:
    """Texts."""
    leaf = _named("text") | st.builds(e.Constant, texts, st.just("string")) | st.just(e.Member(e.Name("n"), "y"))
    if not depth:
        return leaf
    inner = _below(leaf, depth, strings)
    part = st.builds(e.Constant, texts, st.just("string"))
    return _one_of(
        _operations("||", inner, inner | _null),
        _calls("coalesce", inner, inner),
        _calls("toUpperCase trim", of=inner),
        _calls("replace", part.filter(lambda node: node.value), part, of=inner),
        _calls("substring charAt", st.just(e.Constant(1, "int")), of=inner),
        st.builds(e.Cast, wholes(depth - 1), st.just(e.TypeName("string"))),
        st.builds(e.Case, inner, _some(st.tuples(inner, inner)), st.none() | inner),
    )


_patterns = st.sampled_from(["a", "a.*", "[ab]+", "(a|b)b", r"\w*", r"\W", "", r"[^\d]b?"])


@cache
def truths(depth: int) -> Strategy:
    """Conditions."""
    leaf = _named("truth") | st.builds(e.Constant, st.booleans(), st.just("boolean"))
    if not depth:
        return leaf
    inner, number, text = _below(leaf, depth, truths), numbers(depth - 1), strings(depth - 1)
    number, text = _one_of(_named("number"), number), _one_of(_named("text"), text)
    flags = st.booleans()
    double = st.sampled_from([e.Name("d"), e.Name("v"), e.Constant(1.5, "double")])
    pairs = st.sampled_from([(number, number), (text, text), (double, double), (double, number)])
    constants = st.builds(e.Constant, texts, st.just("string"))
    signs = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])

    def of_pair(pair: tuple[Strategy, Strategy]) -> Strategy:
        one, other = pair
        options = _some(other | _null)
        return _one_of(
            _operations("= != < <= > >= is", one, other | _null)
            | st.builds(e.Operation, st.just("is not"), one, other),
            st.builds(e.Between, one, other, other, flags),
            st.builds(e.RangeInclusion, one, other, other, flags, flags, flags),
            st.builds(e.Inclusion, one, options, flags),
            st.builds(e.Quantified, signs, st.sampled_from(["any", "all"]), one, options),
        )

    return _one_of(
        pairs.flatmap(of_pair),
        pairs.flatmap(of_pair),
        pairs.flatmap(of_pair),
        st.builds(e.Prefixed, st.just("not"), inner),
        st.builds(e.logical, st.sampled_from(["and", "or"]), st.lists(inner | _null, min_size=2, max_size=3)),
        _operations("& | ^ = is", inner, inner),
        st.builds(e.TextMatch, st.just("like"), text, constants, st.none(), flags),
        st.builds(e.TextMatch, st.just("like"), text, constants, st.just(e.Constant("b", "string")), flags),
        st.builds(
            e.TextMatch, st.just("regexp"), text, st.builds(e.Constant, _patterns, st.just("string")), st.none(), flags
        ),
        _calls("contains startsWith endsWith", constants, of=text),
        _calls("equalsIgnoreCase", constants, of=text),
        _calls("isEmpty", of=text),
    )


def _expected(node: e.Expression, row: Mapping[str, Any]) -> Any:
    def lookup(part: e.Syntax) -> Any:
        match part:
            case e.Name(name) | e.Member(e.Name("s"), name):
                return row[name]
        return COMPUTED

    return value(node, lookup)


def _answers(nodes: Sequence[e.Expression], given_rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    columns = {field.name: pa.array([row[field.name] for row in given_rows], field.type) for field in SCHEMA}
    columns["at"] = pa.array(range(len(given_rows)), pa.timestamp("us", "UTC"))
    bound = {f"x{at}": bind(node, SCOPE) for at, node in enumerate(nodes)}
    found = g.events(pa.table(columns), start="at").select(**{name: each.value for name, each in bound.items()})
    table: pa.Table = found.collect()
    for name, each in bound.items():
        made = table.schema.field(name).type
        assert made == each.type or pa.types.is_null(each.type), (each.text, made, each.type)
    return table


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float | int):
        return (math.isnan(one) and math.isnan(other)) or one == other
    return one is other if one is None or isinstance(one, bool) else bool(one == other)


@pytest.mark.parametrize("kind", [wholes, numbers, strings, truths], ids=lambda kind: kind.__name__)
@examples(dear=True)
@given(st.data())
def test_expressions_are_worth_what_they_are_row_by_row(kind: Any, data: st.DataObject) -> None:
    nodes = data.draw(st.lists(kind(3), min_size=3, max_size=6))
    given_rows = data.draw(rows)
    for node in nodes:
        note(str(node))
    table = _answers(nodes, given_rows)
    for at, node in enumerate(nodes):
        expected = [_expected(node, row) for row in given_rows]
        found = table[f"x{at}"].to_pylist()
        assert all(map(_same, found, expected)), (str(node), found, expected)


def test_doubles_are_compared_as_in_java() -> None:
    special = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, None]
    given_rows = [{**dict.fromkeys(SCHEMA.names), "d": d, "v": v, "i": 1} for d, v in product(special, special)]
    d, v, i = e.Name("d"), e.Name("v"), e.Name("i")
    others = [v, i, e.Constant(1.5, "double"), e.Operation("/", e.Constant(1, "int"), e.Constant(0, "int"))]
    signs = ["=", "!=", "<", "<=", ">", ">=", "is", "is not"]
    pairs = [pair for other in others for pair in ((d, other), (other, d))]
    nodes: list[e.Expression] = [e.Operation(sign, one, other) for sign in signs for one, other in pairs]
    nodes += [e.FunctionCall(name, (d, v)) for name in ("min", "max")]
    nodes += [e.FunctionCall(name, (d,), e.Name("Math")) for name in ("abs", "floor", "ceil", "sqrt", "signum")]
    table = _answers(nodes, given_rows)
    for at, node in enumerate(nodes):
        expected = [_expected(node, row) for row in given_rows]
        assert all(map(_same, table[f"x{at}"].to_pylist(), expected)), str(node)
