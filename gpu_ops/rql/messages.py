"""What is said of a token that cannot stand where it stands, in the words of the language."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from gpu_ops.rql.lexer import UNITS
from gpu_ops.texts.messages import Wording, misplaced, refused
from gpu_ops.texts.parsing import Token
from gpu_ops.texts.placed_error import PlacedError

_IN_EXPRESSIONS = "NAME NUMBER STRING LITERAL NULL LPAR CASE EXISTS MINUS PLUS NOT STAR DISTINCT ALL ROWSTATUS"
_OPERATORS = "COMPARE PLUS MINUS STAR DIVIDE JOINED AND OR NOT LIKE IN IS BETWEEN DOT LPAR"
_FIRST = "NAME COMMA AS FROM WHERE GROUP HAVING ORDER LIMIT JOIN ON SELECT"
_WORDING = Wording(
    known={
        "NAME": "a name",
        "NUMBER": "a number",
        "STRING": "a string",
        "UNIT": "a unit of time",
        "STAR": "'*'",
        "$END": "the end",
        "SEMICOLON": "the end",
        "COMPARE": "a comparison",
    },
    unsaid=frozenset({"LITERAL"}),
    first=tuple(_FIRST.split()),
    in_expressions=frozenset(_IN_EXPRESSIONS.split()),
    operators=frozenset(_OPERATORS.split()),
    units=tuple(UNITS),
    always=("group", "order"),
)

_OF_SQL = {
    "insert": ("statements that change tables", "Change them by the runtime: insert(table, rows)."),
    "update": ("statements that change tables", "Change them by the runtime: insert(table, rows)."),
    "delete": ("statements that change tables", "Change them by the runtime: insert(table, rows)."),
    "create": ("statements that create tables", "Say them where the runtime is made: Runtime(types, tables=…)."),
    "with": ("queries with a name (with … as)", "Write the query where it is read: from (select …) as name."),
}
"""What other dialects of SQL begin a text with."""


def unexpected(
    expected: set[str], token: Token, seen: Sequence[Token], spelling: Mapping[str, tuple[str, ...]], text: str
) -> PlacedError:
    """What is wrong where a token cannot stand.

    Args:
        expected: The tokens that can.
        token: The one that cannot.
        seen: Those before it.
        spelling: How tokens that are words or signs are written.
        text: The text that they are of.
    """
    return _known(expected, token, seen) or misplaced(_WORDING, expected, token, seen, spelling, text)


def _known(expected: set[str], token: Token, seen: Sequence[Token]) -> PlacedError | None:
    """What is meant where something else stands, and what there is not."""
    last, before = ([*[Token("", "", 0, 0)] * 2, *seen])[:-3:-1]
    word, previous = token.text.lower(), last.text.lower()
    if not seen and word in _OF_SQL:
        return refused(_OF_SQL[word][0], token, _OF_SQL[word][1])
    if word == "filter" and before.type == "NAME" and last.type == "LPAR":
        return refused("filters by a class", token, "Write a condition: (partition store … where …).")
    if token.type == "UNKNOWN":
        near = difflib.get_close_matches(word, ("$row_status", "$diff"), 1, 0.5)
        return _wrong(token, f"There is no {token.text!r}.", f"Did you mean {near[0]!r}?" if near else "")
    if token.type == "STORE" and last.type == "COMMA":
        return _wrong(last, "Behind this comma stands a column.", "Leave the comma out.")
    if word in {"max", "pinned"} and "UNIT" in expected:
        behind = "a span of time: last 3 seconds max 5" if word == "max" else "'with': with pinned count(id) as n"
        return _wrong(token, f"{token.text!r} stands behind {behind}.")
    for there, problem, remedy in (
        (last.type == "SEMICOLON", "A text is one query.", "Register further queries by themselves."),
        (
            token.type == "LPAR" and "TO" in expected and last.type == "RPAR",
            "Between two partitions of a chain stands 'to'.",
            "Write: (partition …) to (partition …)",
        ),
        (
            token.type == "PARTITION" and "SELECT" in expected,
            "A partition is of a stream.",
            "Write its name first: from stream (partition …) as name.",
        ),
        (
            previous == "update" and before.type == "WITH",
            "An update group has columns.",
            "Write: with update group column, column",
        ),
        (
            last.type == "LPAR" and before.type == "EXISTS",
            "exists(…) takes a query.",
            "Write: exists (select … from …).",
        ),
        (
            last.type == "ROWSTATUS" and token.type == "COMPARE",
            "'$row_status' is asked for by 'is'.",
            "Write: $row_status is new, is dead or is not dead.",
        ),
        (
            previous == "is" and before.type == "ROWSTATUS",
            f"{token.text!r} is no status of a row.",
            "It is new, dead or not dead.",
        ),
        (
            token.type == "STAR" and last.type == "LPAR" and expected == {"NAME"},
            "An aggregate of a partition is of a column.",
            "Name the column of the id: count(id).",
        ),
    ):
        if there:
            return _wrong(token, problem, remedy)
    return None


def _wrong(token: Token, problem: str, remedy: str = "") -> PlacedError:
    return PlacedError(token.start, token.end, problem, remedy)
