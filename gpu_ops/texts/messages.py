"""What is said of a token that cannot stand where it stands, in the words of its language."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gpu_ops.texts.parsing import Token
from gpu_ops.texts.placed_error import PlacedError

_OPENS = {"LPAR": "RPAR", "LAMBDA": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE"}
_STARTS = frozenset({"NAME", "NUMBER", "STRING"})
_MOST = 9


@dataclass(frozen=True)
class Wording:
    """How errors name what can stand somewhere.

    Attributes:
        known: What tokens that are no words or signs are called.
        unsaid: Tokens that are not named.
        first: Those that are named before others.
        in_expressions: Those that an expression may begin with: they are named as one.
        operators: Those that may stand behind a value, which are not named where a clause may.
        units: The units of time.
        always: Words behind which stands `by`.
        ticked: Whether a word of the language is a name in backticks.
    """

    known: Mapping[str, str]
    unsaid: frozenset[str]
    first: tuple[str, ...]
    in_expressions: frozenset[str]
    operators: frozenset[str]
    units: tuple[str, ...]
    always: Collection[str] = ()
    ticked: bool = False


def misplaced(
    wording: Wording,
    expected: set[str],
    token: Token,
    seen: Sequence[Token],
    spelling: Mapping[str, tuple[str, ...]],
    text: str,
) -> PlacedError:
    """What is wrong where a token cannot stand.

    Args:
        wording: How it is said.
        expected: The tokens that can.
        token: The one that cannot.
        seen: Those before it.
        spelling: How tokens that are words or signs are written.
        text: The text that they are of.
    """
    known = _doubled(token, seen)
    words = {word: kind for kind in expected for word in spelling.get(kind, ()) if word[0].isalpha()}
    known = known or _misspelled(wording, token, words, seen) or _misspelled_before(wording, words, token, seen)
    if known is not None:
        return known
    unclosed = _unclosed(seen)
    closing = "" if unclosed is None else _OPENS[unclosed.type]
    remedy = f"Expected: {_listed(wording, expected, spelling, closing)}."
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
    elif wording.ticked and seen and seen[-1].type == "AS" and token.text[:1].isalpha():
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


def _misspelled(wording: Wording, wrong: Token, words: Mapping[str, str], seen: Sequence[Token]) -> PlacedError | None:
    """Where a name cannot stand, and a word that is written almost like it can."""
    if wrong.type != "NAME":
        return None
    said = wrong.text.lower()
    amount = "UNIT" in words.values() and bool(seen) and seen[-1].type == "NUMBER"
    near = difflib.get_close_matches(said, words if amount else [w for w in words if words[w] != "UNIT"], 1, 0.7)
    mean = f"Did you mean {near[0]!r}?" if near and near[0] != said and len(said) > 2 else ""
    if amount and (not near or words[near[0]] == "UNIT"):
        units = f"Units: {', '.join(wording.units)}."
        return PlacedError(wrong.start, wrong.end, f"{wrong.text!r} is no unit of time.", f"{mean} {units}".strip())
    return PlacedError(wrong.start, wrong.end, f"{wrong.text!r} cannot stand here.", mean) if mean else None


def _misspelled_before(
    wording: Wording, words: Mapping[str, str], token: Token, seen: Sequence[Token]
) -> PlacedError | None:
    """Where a word was taken for a name (`select a form T`), and what follows that cannot stand there."""
    if not seen or (len(seen) > 1 and seen[-2].type in {"DOT", "AS", "AT", "HASH"}):
        return None
    said = seen[-1].text.lower()
    if seen[-1].type == "NAME" and said in wording.always and token.type in _STARTS:
        return PlacedError(
            seen[-1].end, seen[-1].end, f"Behind {seen[-1].text!r} stands 'by'.", f"Write: {said} by ..."
        )
    return _misspelled(wording, seen[-1], {word: kind for word, kind in words.items() if kind != "UNIT"}, ())


def _unclosed(seen: Sequence[Token]) -> Token | None:
    """The last bracket that is open."""
    opened: list[Token] = []
    for token in seen:
        if token.type in _OPENS or token.text == "-[":
            opened.append(token)
        elif token.type in _OPENS.values() and opened:
            opened.pop()
    return next((token for token in reversed(opened) if token.type in _OPENS), None)


def _listed(wording: Wording, expected: set[str], spelling: Mapping[str, tuple[str, ...]], closing: str) -> str:
    """The tokens that can stand somewhere, in plain words; what closes a bracket first."""
    rest, said = expected - wording.unsaid, []
    if expected >= _STARTS:
        rest -= wording.in_expressions
        said.append("an expression")
    elif {"STAR", "MINUS"} <= expected:
        rest -= wording.operators - (set() if "EQUAL" in expected else {"AND"})
    named = dict.fromkeys([closing, *wording.first, *spelling])
    first = {kind: at for at, kind in enumerate(named)}
    for kind in sorted(rest, key=lambda kind: (first.get(kind, len(first)), kind)):
        said.extend([wording.known[kind]] if kind in wording.known else map(repr, spelling.get(kind, ())))
    if len(said) > _MOST:
        return ", ".join([*said[:_MOST], "and others"])
    return " or ".join([", ".join(said[:-1]), said[-1]]) if len(said) > 1 else "".join(said)


def refused(construct: str, token: Token, remedy: str) -> PlacedError:
    """That gpu_ops does not have what a token begins."""
    return PlacedError(token.start, token.end, f"gpu_ops has no {construct}.", remedy, construct=construct)
