"""Text into tokens. A word of the language is one only where the grammar takes it: elsewhere it is a name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from gpu_ops.texts.parsing import Token
from gpu_ops.texts.placed_error import PlacedError

UNITS = {
    **dict.fromkeys(("year", "years"), "year"),
    **dict.fromkeys(("month", "months"), "month"),
    **dict.fromkeys(("week", "weeks"), "week"),
    **dict.fromkeys(("day", "days"), "day"),
    **dict.fromkeys(("hour", "hours"), "hour"),
    **dict.fromkeys(("minute", "minutes", "min"), "minute"),
    **dict.fromkeys(("second", "seconds", "sec"), "second"),
    **dict.fromkeys(("millisecond", "milliseconds", "msec"), "millisecond"),
    **dict.fromkeys(("microsecond", "microseconds", "usec"), "microsecond"),
}
"""The units of a period, and what they are called in the syntax tree."""

KINDS = {
    "UNIT": tuple(UNITS),
    "LITERAL": ("true", "false", "null"),
    "SELECTOR": ("istream", "rstream", "irstream"),
    "DIRECTION": ("asc", "desc"),
    "LIKE": ("like", "regexp"),
    "NOT": ("not",),
    "UNEQUAL": ("is",),
    "QUANTIFIER": ("any", "some", "all"),
    "SIDE": ("left", "right", "full"),
    "RATE": ("first", "last", "all", "snapshot"),
    "LASTING": ("last", "weekday", "lastweekday"),
    "SCHEMAOPTION": ("inherits", "copyfrom", "starttimestamp", "endtimestamp"),
}
"""Tokens that are one of several words."""

RETAIN = ("retain-union", "retain-intersection")

SYMBOLS = {
    "*": "STAR",
    "+": "PLUS",
    "-": "MINUS",
    "/": "DIVIDE",
    "%": "DIVIDE",
    "=": "EQUAL",
    "!=": "UNEQUAL",
    "<>": "UNEQUAL",
    "<": "LESS",
    "<=": "LESS",
    ">=": "LESS",
    ">": "GREATER",
    "||": "JOINED",
    **dict.fromkeys("&|^", "BITS"),
}
"""Tokens that are one of several signs; other signs stand in the grammar as they are."""

_HARD = """
    select from where having insert into and or not in is like regexp between case when then else as distinct null
    true false create
"""
HARD = frozenset(_HARD.split())
"""Words that are never names, unless in backticks or behind a dot: with them mistakes are found where they are."""

ALWAYS = {"group": re.compile(r"\s+by\b", re.IGNORECASE), "order": re.compile(r"\s+by\b", re.IGNORECASE)}
"""Words that are never names before this."""

_PARENTHESIS = re.compile(r"\s*\(")
_ONLY_BEFORE = {
    "new": r"\s*\{",
    "exists": r"\s*\(\s*select\b",
    **dict.fromkeys(("cast", "any", "some", "rollup", "cube", "match_recognize_permute"), r"\s*\("),
    "all": r"\s*\(|\s+[\w'\"`{?*+\[-]",
    "grouping": r"\s+sets\b",
    "pattern": r"\s*[\[@]",
    **dict.fromkeys(KINDS["SELECTOR"], r"(?!\s*\(\s*\))(?!\s*[,.])(?!\s+(from|as)\b)"),
}
_MEANT = {word: re.compile(before, re.IGNORECASE) for word, before in _ONLY_BEFORE.items()}
"""Where a word and a name may both stand, it is the word only before this; all others always are."""

_DELETING = re.compile(r"(?!\s*[,.=<>!|&^/%)])(?!\s+(from|as)\b)", re.IGNORECASE)
_AND_TERMINATED = re.compile(r"\s+when\s+terminated\b", re.IGNORECASE)
_IS_NOT = re.compile(r"\s+not\b", re.IGNORECASE)
_PARAMETERS = re.compile(r"\s*[\w$`]+\s*(,\s*[\w$`]+\s*)*\)\s*=>")
_VIEW = re.compile(r"\s*\w+\s*:\s*\w+")
_CONTEXT = re.compile(r"\s*context\s+[\w`]", re.IGNORECASE)
_PARAMETER = re.compile(r"(?::([^\W\d]\w*))?(?::([^\W\d]\w*))?")

TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*|/\*.*?\*/)
  | (?P<hyphened>(?:retain-union|retain-intersection|every-distinct)\b)
  | (?P<word>(?:[^\W\d]|\$)[\w$]*(?:\\\.[\w$]+)*)
  | (?P<number>0x[0-9a-f]+l?|(?:[0-9]+(?:\.[0-9]+|\.(?!\w))?|\.[0-9]+)(?:e[+-]?[0-9]+)?(?:[lfd](?!\w))?)
  | (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
  | (?P<ticked>`[^`\n]+`)
  | (?P<sign>=>|->|-\[|!=|<>|<=|>=|\|\||/(?!\*)|[-+*%=<>&|^?.,:;\#@()\[\]{}])
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
"""A token, or space between two."""


class Lexer:
    """Tokens of texts.

    Args:
        literals: The token of each word and sign that stands in the grammar as it is.
    """

    def __init__(self, literals: Mapping[str, str]) -> None:
        words = {text: [name] for text, name in literals.items() if text[0].isalpha() and "-" not in text}
        for kind, members in KINDS.items():
            for word in members:
                words.setdefault(word, []).insert(0, kind)
        self._words = {word: tuple(kinds) for word, kinds in words.items()}
        self._hyphened = {**dict.fromkeys(RETAIN, "RETAIN"), "every-distinct": literals["every-distinct"]}
        self._signs = {sign: name for sign, name in literals.items() if not sign[0].isalpha()} | SYMBOLS
        self.spelling: Mapping[str, tuple[str, ...]] = KINDS | {name: (text,) for text, name in literals.items()}
        """How each token that is a word or a sign may be written."""

    def tokens(self, text: str, takes: Callable[[str], bool]) -> Iterator[Token]:
        """The tokens of a text; `takes` says whether a token of a type can come next."""
        at, previous = 0, ""
        match = TOKEN.match
        while at < len(text):
            found = match(text, at)
            if found is None:
                raise _unreadable(text, at)
            start, at, group = at, found.end(), found.lastgroup
            said = found[0]
            if group == "space":
                continue
            if group == "word":
                kind, said, at = self._word(text, start, at, previous, takes)
            elif group == "sign":
                kind, said, at = self._sign(text, start, at, takes)
            elif group == "hyphened":
                kind = self._hyphened[said.lower()]
                if not takes(kind):
                    at = text.index("-", start)
                    kind, said = "NAME", text[start:at]
            elif group == "ticked":
                kind, said = "NAME", said[1:-1]
            else:
                kind = "NUMBER" if group == "number" else "STRING"
            yield Token(kind, said, start, at)
            previous = kind

    def _word(
        self, text: str, start: int, end: int, previous: str, takes: Callable[[str], bool]
    ) -> tuple[str, str, int]:
        said = text[start:end]
        word = said.lower()
        kinds = self._words.get(word)
        if kinds is None:
            return "NAME", said.replace("\\.", "."), end
        if word == "and" and (more := _AND_TERMINATED.match(text, end)) and takes("ANDTERMINATED"):
            return "ANDTERMINATED", said, more.end()
        if word == "is" and (more := _IS_NOT.match(text, end)):
            return "UNEQUAL", "is not", more.end()
        if previous in {"DOT", "AT"}:
            return "NAME", said, end
        hard = word in HARD or (word in ALWAYS and ALWAYS[word].match(text, end) is not None)
        for kind in kinds:
            if takes(kind):
                meant = _DELETING if previous == "SELECT" and word == "delete" else _MEANT.get(word)
                if hard or meant is None or meant.match(text, end) or not takes("NAME"):
                    return kind, said, end
        return (kinds[0] if hard else "NAME"), said, end

    def _sign(self, text: str, start: int, end: int, takes: Callable[[str], bool]) -> tuple[str, str, int]:
        said = text[start:end]
        if said == "?" and takes("PARAMETER"):
            more = _PARAMETER.match(text, end)
            end = more.end() if more else end
            return "PARAMETER", text[start:end], end
        if said == "(" and _PARAMETERS.match(text, end) and takes("LAMBDA"):
            return "LAMBDA", said, end
        if said == "." and _VIEW.match(text, end) and takes("VIEWDOT"):
            return "VIEWDOT", said, end
        if said == "," and (more := _CONTEXT.match(text, end)) and takes("NEXTCONTEXT"):
            end = text.lower().index("context", end) + len("context")
            return "NEXTCONTEXT", said, end
        return self._signs[said], said, end


def _unreadable(text: str, at: int) -> PlacedError:
    if text[at] in "'\"":
        return PlacedError(at, at + 1, f"The string that begins here has no closing {text[at]}.")
    if text.startswith("/*", at):
        return PlacedError(at, at + 2, "The comment that begins here has no closing */.")
    if text[at] == "`":
        return PlacedError(at, at + 1, "The name that begins here has no closing ` in its line.")
    remedy = "Write: not." if text[at] == "!" else ""
    return PlacedError(at, at + 1, f"The character {text[at]!r} has no meaning here.", remedy)
