"""What is said of a token that cannot stand where it stands, in the words of the language."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from gpu_ops.epl.lexer import ALWAYS, UNITS
from gpu_ops.texts.parsing import Token
from gpu_ops.texts.placed_error import PlacedError

_OPENS = {"LPAR": "RPAR", "LAMBDA": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE"}
_STARTS = frozenset({"NAME", "NUMBER", "STRING"})
_IN_EXPRESSIONS = """
    NAME NUMBER STRING PARAMETER LITERAL LPAR LAMBDA LBRACE LSQB CASE CAST EXISTS NEW MINUS PLUS NOT STAR DISTINCT
    ALL DELETE AND QUANTIFIER SELECTOR
"""
_OPERATORS = """
    EQUAL UNEQUAL LESS GREATER PLUS MINUS STAR DIVIDE JOINED BITS AND OR NOT LIKE IN BETWEEN DOT LSQB QMARK LPAR ARROW
"""
_FIRST = "NAME COMMA AS FROM WHERE GROUP HAVING OUTPUT ORDER LIMIT JOIN ON SELECT"
"""What is named before others that can stand somewhere too."""

_KNOWN = {
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
}
_UNSAID = frozenset({"VIEWDOT", "LAMBDA", "ANDTERMINATED", "NEXTCONTEXT", "PARAMETER", "LITERAL", "SCHEMAOPTION"})
_MOST = 9


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
    known = _refused(expected, token, seen) or _doubled(token, seen)
    words = {word: kind for kind in expected for word in spelling.get(kind, ()) if word[0].isalpha()}
    known = known or _misspelled(token, words, seen) or _misspelled_before(words, token, seen)
    if known is not None:
        return known
    unclosed = _unclosed(seen)
    closing = "" if unclosed is None else _OPENS[unclosed.type]
    remedy = f"Expected: {_listed(expected, spelling, closing)}."
    opened = "" if unclosed is None else f"{unclosed.text!r} of {_place(text, unclosed.start)}"
    said = f"{token.text!r} cannot stand here."
    if token.type == "$END":
        said = "The text ends too early." if seen else "The text has no statement."
        if closing in expected:
            said = f"The text ends before the {opened} is closed."
    elif token.type in _OPENS.values() and unclosed is None:
        said, remedy = f"This {token.text!r} closes nothing.", "Leave it out."
    elif closing in expected and token.type not in _STARTS:
        said = f"{token.text!r} cannot stand here: the {opened} is open."
    elif seen and seen[-1].type == "AS" and token.text[:1].isalpha():
        remedy = f"{remedy} (A word of the language is a name in backticks: `{token.text}`.)"
    return PlacedError(token.start, token.end, said, remedy)


def _place(text: str, at: int) -> str:
    return f"line {text.count(chr(10), 0, at) + 1}, column {at - text.rfind(chr(10), 0, at)}"


def _doubled(token: Token, seen: Sequence[Token]) -> PlacedError | None:
    """Signs of other languages."""
    last = seen[-1] if seen else token
    meant = {"==": "=", "&&": "and"}.get(last.text + token.text)
    if meant is None or last.end != token.start:
        return None
    return PlacedError(last.start, token.end, f"{last.text + token.text!r} is no operator.", f"Write {meant!r}.")


def _misspelled(wrong: Token, words: Mapping[str, str], seen: Sequence[Token]) -> PlacedError | None:
    """Where a name cannot stand, and a word that is written almost like it can."""
    if wrong.type != "NAME":
        return None
    said = wrong.text.lower()
    amount = "UNIT" in words.values() and bool(seen) and seen[-1].type == "NUMBER"
    near = difflib.get_close_matches(said, words if amount else [w for w in words if words[w] != "UNIT"], 1, 0.7)
    mean = f"Did you mean {near[0]!r}?" if near and near[0] != said and len(said) > 2 else ""
    if amount and (not near or words[near[0]] == "UNIT"):
        units = f"Units: {', '.join(dict.fromkeys(UNITS.values()))}."
        return PlacedError(wrong.start, wrong.end, f"{wrong.text!r} is no unit of time.", f"{mean} {units}".strip())
    return PlacedError(wrong.start, wrong.end, f"{wrong.text!r} cannot stand here.", mean) if mean else None


def _misspelled_before(words: Mapping[str, str], token: Token, seen: Sequence[Token]) -> PlacedError | None:
    """Where a word was taken for a name (`select a form T`), and what follows that cannot stand there."""
    if not seen or (len(seen) > 1 and seen[-2].type in {"DOT", "AS", "AT", "HASH"}):
        return None
    said = seen[-1].text.lower()
    if seen[-1].type == "NAME" and said in ALWAYS and token.type in _STARTS:
        return PlacedError(
            seen[-1].end, seen[-1].end, f"Behind {seen[-1].text!r} stands 'by'.", f"Write: {said} by ..."
        )
    return _misspelled(seen[-1], {word: kind for word, kind in words.items() if kind != "UNIT"}, ())


def _unclosed(seen: Sequence[Token]) -> Token | None:
    """The last bracket that is open."""
    opened: list[Token] = []
    for token in seen:
        if token.type in _OPENS or token.text == "-[":
            opened.append(token)
        elif token.type in _OPENS.values() and opened:
            opened.pop()
    return next((token for token in reversed(opened) if token.type in _OPENS), None)


def _listed(expected: set[str], spelling: Mapping[str, tuple[str, ...]], closing: str) -> str:
    """The tokens that can stand somewhere, in plain words; what closes a bracket first."""
    rest, said = expected - _UNSAID, []
    if expected >= _STARTS:
        rest -= set(_IN_EXPRESSIONS.split())
        said.append("an expression")
    elif {"STAR", "MINUS"} <= expected:
        rest -= set(_OPERATORS.split()) - (set() if "EQUAL" in expected else {"AND"})
    named = dict.fromkeys([closing, *_FIRST.split(), *spelling])
    first = {kind: at for at, kind in enumerate(named)}
    for kind in sorted(rest, key=lambda kind: (first.get(kind, len(first)), kind)):
        said.extend([_KNOWN[kind]] if kind in _KNOWN else map(repr, spelling.get(kind, ())))
    if len(said) > _MOST:
        return ", ".join([*said[:_MOST], "and others"])
    return " or ".join([", ".join(said[:-1]), said[-1]]) if len(said) > 1 else "".join(said)


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
    on_demand = "on-demand queries", "Trigger it by an event: on ... delete, update, merge or select."
    if starts and word in {"delete", "update", "merge"}:
        return _no(on_demand[0], token, on_demand[1])
    if last.type == "UPDATE" and expected == {"SELECTOR"}:
        return _no(on_demand[0], last, on_demand[1])
    if word == "values" and "SELECT" in expected and any(each.type == "INTO" for each in seen):
        return _no("on-demand queries", token, "Send the rows as events.")
    if before.text.lower() == "new" and last.type == "NAME" and token.type in {"LPAR", "LSQB"}:
        return _no("objects of classes", before, "Write: new {name = value, ...}.")
    if token.type == "INSERT" and any(each.type == "WINDOW" for each in seen[-12:]) and "SELECT" not in expected:
        return _no("named windows that are filled from another", token, "Fill it by a statement: insert into ...")
    return None


def _no(construct: str, token: Token, remedy: str) -> PlacedError:
    return PlacedError(token.start, token.end, f"gpu_ops has no {construct}.", remedy, construct=construct)
