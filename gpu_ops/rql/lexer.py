"""Text into tokens. A word of the language is one only where the grammar takes it: elsewhere it is a name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from gpu_ops.texts.parsing import Token
from gpu_ops.texts.placed_error import PlacedError

UNITS = {"milliseconds": 1, "seconds": 1_000, "minutes": 60_000, "hours": 3_600_000, "days": 86_400_000}
"""The units of a span, in milliseconds."""

KINDS = {
    "UNIT": (*UNITS, *(unit[:-1] for unit in UNITS)),
    "LITERAL": ("true", "false"),
    "DIRECTION": ("asc", "desc"),
    "NOT": ("not",),
    "SIDE": ("left", "right", "full"),
    "BEST": ("highest", "lowest"),
    "SET": ("union", "minus", "except", "intersect"),
    "ROWSTATUS": ("$row_status",),
    "DIFF": ("$diff",),
}
"""Tokens that are one of several words."""

SIGNS = {
    "*": "STAR",
    "+": "PLUS",
    "-": "MINUS",
    "/": "DIVIDE",
    "%": "DIVIDE",
    **dict.fromkeys(("=", "!=", "<>", "^=", "<", "<=", ">", ">="), "COMPARE"),
    "||": "JOINED",
}
"""Tokens that are one of several signs; other signs stand in the grammar as they are."""

_HARD = """
    select from where having and or not in is like between case when then else as distinct null store partition using
    correlate alert union minus except intersect join on
"""
HARD = frozenset(_HARD.split())
"""Words that are never names: with them mistakes are found where they are."""

ALWAYS = {word: re.compile(r"\s+by\b", re.IGNORECASE) for word in ("group", "order")}
"""Words that are never names before this."""

_ONLY_BEFORE = {
    "first": r"\s+\d",
    "self": r"\s*\#",
    "exists": r"\s*\(",
    "custom": r"\s*\(",
    "pinned": r"(?!\s*\()",
    "entrance": r"\s+only\b",
    "present": r"\s*\(",
    "all": r"(?!\s*[,.=<>!^*/%+-]|\s+(from|as)\b)",
    "nulls": r"\s+(first|last)\b",
    "to": r"\s*\(",
}
_MEANT = {word: re.compile(before, re.IGNORECASE) for word, before in _ONLY_BEFORE.items()}
"""Where a word and a name may both stand, it is the word only before this; all others always are."""

_UPDATE = re.compile(r"\s+update\s+group\b", re.IGNORECASE)
_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*|/\*.*?\*/)
  | (?P<word>(?:[^\W\d]|\$)[\w$]*)
  | (?P<number>(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:e[+-]?[0-9]+)?(?!\w))
  | (?P<string>'(?:[^']|'')*')
  | (?P<sign>!=|<>|\^=|<=|>=|\|\||/(?!\*)|[-+*%=<>.,;\#()])
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)


class QueryLexer:
    """Tokens of queries.

    Args:
        literals: The token of each word and sign that stands in the grammar as it is.
    """

    def __init__(self, literals: Mapping[str, str]) -> None:
        words = {text: [name] for text, name in literals.items() if text[0].isalpha()}
        for kind, members in KINDS.items():
            for word in members:
                words.setdefault(word, []).insert(0, kind)
        self._words = {word: tuple(kinds) for word, kinds in words.items()}
        self._signs = {sign: name for sign, name in literals.items() if not sign[0].isalpha()} | SIGNS
        self.spelling: Mapping[str, tuple[str, ...]] = (
            KINDS | {name: (text,) for text, name in literals.items()} | {"WITHUPDATE": ("with update group",)}
        )
        """How each token that is a word or a sign may be written."""

    def tokens(self, text: str, takes: Callable[[str], bool]) -> Iterator[Token]:
        """The tokens of a text; `takes` says whether a token of a type can come next."""
        at, previous = 0, ""
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise _unreadable(text, at)
            start, at, group = at, found.end(), found.lastgroup
            if group == "space":
                continue
            kind = "NUMBER" if group == "number" else "STRING"
            if group == "word":
                kind, at = self._word(text, start, at, previous, takes)
            elif group == "sign":
                kind = self._signs[found[0]]
            yield Token(kind, text[start:at], start, at)
            previous = kind

    def _word(self, text: str, start: int, end: int, previous: str, takes: Callable[[str], bool]) -> tuple[str, int]:
        word = text[start:end].lower()
        kinds = self._words.get(word, ())
        if word == "with" and (more := _UPDATE.match(text, end)) and takes("WITHUPDATE"):
            return "WITHUPDATE", more.end()
        if word.startswith("$"):
            return (kinds[0] if kinds else "UNKNOWN"), end
        if previous == "DOT":
            return "NAME", end
        hard = word in HARD or (word in ALWAYS and ALWAYS[word].match(text, end) is not None)
        for kind in kinds:
            if takes(kind):
                meant = _MEANT.get(word)
                if hard or meant is None or meant.match(text, end) or not takes("NAME"):
                    return kind, end
        return (kinds[0] if hard else "NAME"), end


def _unreadable(text: str, at: int) -> PlacedError:
    if text[at] == "'":
        return PlacedError(at, at + 1, "The string that begins here has no closing '.")
    if text.startswith("/*", at):
        return PlacedError(at, at + 2, "The comment that begins here has no closing */.")
    if text[at].isdigit() or text[at] == ".":
        said = re.match(r"[\w.]+", text[at:])
        return PlacedError(
            at, at + 1, f"{said[0] if said else text[at]!r} is no number.", "A name begins with a letter."
        )
    remedy = {'"': "Strings stand in single quotes: 'text'.", "!": "Write: not.", "&": "Write: and.", "|": "Write: or."}
    return PlacedError(at, at + 1, f"The character {text[at]!r} has no meaning here.", remedy.get(text[at], ""))
