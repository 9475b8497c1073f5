"""What is said of a token that cannot stand where it stands, in the words of the language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpu_ops.epl.lexer import ALWAYS, UNITS
from gpu_ops.texts.messages import Wording, misplaced
from gpu_ops.texts.messages import refused as _no
from gpu_ops.texts.parsing import Token
from gpu_ops.texts.placed_error import PlacedError

_IN_EXPRESSIONS = """
    NAME NUMBER STRING PARAMETER LITERAL LPAR LAMBDA LBRACE LSQB CASE CAST EXISTS NEW MINUS PLUS NOT STAR DISTINCT
    ALL DELETE AND QUANTIFIER SELECTOR
"""
_OPERATORS = """
    EQUAL UNEQUAL LESS GREATER PLUS MINUS STAR DIVIDE JOINED BITS AND OR NOT LIKE IN BETWEEN DOT LSQB QMARK LPAR ARROW
"""
_FIRST = "NAME COMMA AS FROM WHERE GROUP HAVING OUTPUT ORDER LIMIT JOIN ON SELECT"
_WORDING = Wording(
    known={
        "NAME": "a name",
        "NUMBER": "a number",
        "STRING": "a string",
        "UNIT": "a unit of time",
        "STAR": "'*'",
        "$END": "the end",
        "EQUAL": "'='",
        "GREATER": "'>'",
        "MINUS": "'-'",
        "RETAIN": "'retain-union' or 'retain-intersection'",
    },
    unsaid=frozenset({"VIEWDOT", "LAMBDA", "ANDTERMINATED", "NEXTCONTEXT", "PARAMETER", "LITERAL", "SCHEMAOPTION"}),
    first=(
        "NAME",
        "COMMA",
        "AS",
        "FROM",
        "WHERE",
        "GROUP",
        "HAVING",
        "OUTPUT",
        "ORDER",
        "LIMIT",
        "JOIN",
        "ON",
        "SELECT",
    ),
    in_expressions=frozenset(_IN_EXPRESSIONS.split()),
    operators=frozenset(_OPERATORS.split()),
    units=tuple(dict.fromkeys(UNITS.values())),
    always=ALWAYS,
    ticked=True,
)


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
    return _refused(expected, token, seen) or misplaced(_WORDING, expected, token, seen, spelling, text)


# What Esper has and gpu_ops does not


def _refused(expected: set[str], token: Token, seen: Sequence[Token]) -> PlacedError | None:
    last, before = ([*[Token("", "", 0, 0)] * 2, *seen])[:-3:-1]
    word, previous = token.text.lower(), last.text.lower()
    starts = "CREATE" in expected
    sides = {"FROM", "COMMA", "JOIN"}
    if token.type == "COLON" and before.type in sides and previous in {"method", "sql", "metadatasql"}:
        what = "joins with methods" if previous == "method" else "joins with SQL databases"
        return _no(what, last, "Read the rows into a stream, and join with that.")
    if token.type == "LPAR" and last.type in sides and "PATTERN" in expected:
        return _no("queries in a from clause", token, "Write it as a statement of its own with insert into.")
    if token.type == "LSQB" and ("HASH" in expected or {"AT", "UNTIL"} <= expected):
        return _no("selections of contained events (Type[property])", token, "Flatten the events before they are sent.")
    if before.type == "CREATE" and previous == "dataflow":
        return _no("data flows", last, "Read sources and write sinks in Python.")
    if (starts and word == "inlined_class") or (before.type == "CREATE" and previous == "class"):
        return _no("inlined classes", last if previous == "class" else token, "Declare an expression.")
    scripted = {last.type: {"COLON", "LPAR"}, before.type: {"COLON", "LPAR", "NAME"}}.get("EXPRESSION", set())
    if token.type in scripted:
        return _no("scripts", last, "Declare an expression: expression name {x => ...}.")
    on_demand = "on-demand queries among statements", "Ask it by Runtime.query, or trigger it: on ... delete."
    if starts and word in {"delete", "update", "merge"}:
        return _no(on_demand[0], token, on_demand[1])
    if last.type == "UPDATE" and expected == {"SELECTOR"}:
        return _no(on_demand[0], last, on_demand[1])
    if word == "values" and "SELECT" in expected and any(each.type == "INTO" for each in seen):
        return _no("rows of values", token, "Write: insert into T select 1 as a, or send the rows as events.")
    if before.text.lower() == "new" and last.type == "NAME" and token.type in {"LPAR", "LSQB"}:
        return _no("objects of classes", before, "Write: new {name = value, ...}.")
    if token.type == "INSERT" and any(each.type == "WINDOW" for each in seen[-12:]) and "SELECT" not in expected:
        return _no("named windows that are filled from another", token, "Fill it by a statement: insert into ...")
    return None
