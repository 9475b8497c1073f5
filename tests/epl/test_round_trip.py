"""The text of a syntax tree says what the tree says: parsed again, it gives the tree."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from gpu_ops.epl import parse, unparse
from tests.support.epl_statements import expressions, leaves, patterns, statements
from tests.support.examples import examples


def _body(text: str) -> Any:
    (statement,) = parse(text)
    return statement.body


@given(expressions)
def test_an_expression(expression: Any) -> None:
    assert _body(f"select {expression} as x from T").items[0].expression == expression


@given(patterns(leaves))
def test_a_pattern(pattern: Any) -> None:
    assert _body(f"select * from pattern [{pattern}]").stream.source.pattern == pattern


@pytest.mark.slow
@examples(dear=True)
@given(statements)
def test_a_statement(statement: Any) -> None:
    text = unparse([statement])
    assert parse(text) == (statement,)
    assert parse(unparse([statement, statement])) == (statement, statement)
