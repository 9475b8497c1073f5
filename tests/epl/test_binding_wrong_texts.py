"""What is said of expressions that cannot be bound: to the letter, at the place in the text."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from gpu_ops.epl import parse
from gpu_ops.epl import queries as q
from gpu_ops.epl.column_names import column_names
from gpu_ops.epl.patterns import EventFilter
from gpu_ops.errors import TextError
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding.expressions import bind, bind_condition, period
from gpu_ops.texts.binding.scope import BoundStream, StreamScope
from gpu_ops.texts.binding.types import event_type
from gpu_ops.texts.placed_error import shown_in

PLACE = pa.struct([("street", pa.string()), ("number", pa.int32())])
EVENTS = {
    "Withdrawal": event_type({
        "account": "string", "amount": "int", "fee": "double", "rate": "float", "late": "boolean", "at": "long",
        "tags": "string[]", "counts": "int[]", "place": PLACE, "due": "decimal", "big": "bigint",
    }),
    "Deposit": event_type({"account": "string", "amount": "int", "branch": "string"}),
}  # fmt: skip

_FOUND = (Path(__file__).parent / "wrong_expressions.txt").read_text(encoding="utf-8")
WRONG = [case.rstrip("\n").split("\n~~~~\n") for case in _FOUND.split("\n----\n")]


def bound(text: str) -> None:
    """Bind the expressions of a query."""
    (statement,) = parse(text)
    query = statement.body
    assert isinstance(query, q.Query)
    streams = []
    for term in query.streams:
        assert isinstance(term.source, EventFilter)
        streams.append(BoundStream(term.alias, term.source.type_name, EVENTS[term.source.type_name]))
    scope = StreamScope(streams)
    with shown_in(text):
        column_names(query.items)
        for item in query.items:
            if not isinstance(item.expression, e.Wildcard):
                bind(item.expression, scope)
        if query.where is not None:
            bind_condition(query.where, scope)
        for view in query.stream.views:
            for argument in view.arguments:
                period(argument)


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[text for text, _ in WRONG])
def test_a_wrong_expression(text: str, message: str) -> None:
    with pytest.raises(TextError) as raised:
        bound(text)
    assert str(raised.value) == message
