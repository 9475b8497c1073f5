"""The parser: Lark makes the tables of a grammar, once for each process, and a loop here runs tokens through them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import accumulate
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from gpu_ops.errors import PlanError, shown
from gpu_ops.texts.expressions import Syntax, TextPlace
from gpu_ops.texts.placed_error import PlacedError, failure_at, shown_in

if TYPE_CHECKING:
    from lark.grammar import Rule

_LONGEST, _DEEPEST = 1_000_000, 100
"""Characters of a text; levels of a tree, which others walk by recursion."""

_STATES = 4_000
"""The states of the parser at a time, which open brackets keep."""


class Token(NamedTuple):
    """A word, name, number, string or sign of a text, and where it stands (characters from 0)."""

    type: str
    text: str
    start: int
    end: int


class TextLexer(Protocol):
    """What makes the tokens of texts in a language.

    Attributes:
        spelling: How each token that is a word or a sign may be written.
    """

    spelling: Mapping[str, tuple[str, ...]]

    def tokens(self, text: str, takes: Callable[[str], bool]) -> Iterator[Token]:
        """The tokens of a text; `takes` says whether a token of a type can come next."""


@dataclass(frozen=True)
class Language:
    """What a parser is made of.

    Attributes:
        grammar: The rules, from which Lark makes the tables.
        builder: Makes what has a method for each rule, which makes a node.
        lexer: Makes the lexer of the token of each word and sign that stands in the grammar as it is.
        unexpected: What is wrong where a token cannot stand: from the tokens that can, the token, those before it, the
            lexer's spelling and the text.
    """

    grammar: str
    builder: Callable[[], Any]
    lexer: Callable[[Mapping[str, str]], TextLexer]
    unexpected: Callable[[set[str], Token, Sequence[Token], Mapping[str, tuple[str, ...]], str], PlacedError]


@dataclass(frozen=True, slots=True)
class _Reduction:
    """A rule of the grammar: how many symbols it takes, what of them it hands on, and to whom.

    Attributes:
        size: How many symbols it takes off the stack.
        origin: The symbol that it puts there.
        kept: The symbols whose values count.
        spliced: Those of them that are lists of values themselves.
        build: What makes the value; None for a list of values.
        passes: Whether a single value is handed on as it is.
    """

    size: int
    origin: str
    kept: tuple[int, ...]
    spliced: frozenset[int]
    build: Callable[..., Any] | None
    passes: bool


@dataclass(frozen=True, slots=True)
class ParserTables:
    """What the parser knows of the grammar.

    Attributes:
        actions: For each state, what a token does there: the next state, or a rule to reduce.
        steps: For each state, the next state behind a symbol that a rule has made.
        first: The state before a text.
        last: The state behind one.
        lexer: Makes the tokens.
    """

    actions: Sequence[dict[str, int | _Reduction]]
    steps: Sequence[dict[str, int]]
    first: int
    last: int
    lexer: TextLexer

    def takes(self, states: Sequence[int], kind: str) -> bool:
        """Whether a token of a type can come next."""
        actions, below = self.actions, len(states)
        above: list[int] = []
        state = states[-1]
        while True:
            action = actions[state].get(kind)
            if action is None:
                return False
            if isinstance(action, int):
                return True
            size = action.size
            if size > len(above):
                below -= size - len(above)
                above.clear()
            elif size:
                del above[-size:]
            state = self.steps[above[-1] if above else states[below - 1]][action.origin]
            above.append(state)

    def expected(self, states: Sequence[int]) -> set[str]:
        """The types of all tokens that can come next."""
        return {kind for kind in self.actions[states[-1]] if self.takes(states, kind)}


_LOCK = Lock()


def tables_of(language: Language) -> ParserTables:
    """The tables of a language, made on first use."""
    with _LOCK:
        return _made(language)


@lru_cache
def _made(language: Language) -> ParserTables:
    from lark import Lark
    from lark.lexer import Lexer as LarkLexer
    from lark.lexer import PatternStr
    from lark.parsers.lalr_analysis import Shift

    class NoLexer(LarkLexer):
        """Lark makes the tables alone."""

        __future_interface__ = 2

        def __init__(self, configuration: object) -> None:
            """As Lark calls it."""

        def lex(self, *_given: object) -> Iterator[Token]:  # type: ignore[override]
            return iter(())

    parser = Lark(language.grammar, parser="lalr", lexer=NoLexer, maybe_placeholders=False)
    found = parser.parser.parser._parse_table  # noqa: SLF001
    builder = language.builder()
    rules = {id(rule): _reduction(rule, builder) for rule in parser.rules}
    made = {rule.origin for rule in rules.values()}
    actions: list[dict[str, int | _Reduction]] = [{} for _ in found.states]
    steps: list[dict[str, int]] = [{} for _ in found.states]
    for state, row in found.states.items():
        for symbol, (action, argument) in row.items():
            if action is not Shift:
                actions[state][symbol] = rules[id(argument)]
            else:
                (steps if symbol in made else actions)[state][symbol] = argument
    literals = {str(each.pattern.value): each.name for each in parser.terminals if isinstance(each.pattern, PatternStr)}
    first, last = found.start_states["start"], found.end_states["start"]
    return ParserTables(actions, steps, first, last, language.lexer(literals))


def _reduction(rule: Rule, builder: object) -> _Reduction:
    helper = rule.origin.name.startswith("_")
    everything = rule.options.keep_all_tokens
    kept = tuple(
        at for at, symbol in enumerate(rule.expansion) if everything or not getattr(symbol, "filter_out", False)
    )
    spliced = frozenset(at for at in kept if rule.expansion[at].name.startswith("_") and not rule.expansion[at].is_term)
    passes = bool(rule.options.expand1) and not rule.alias
    build = None if helper or (passes and len(kept) == 1) else getattr(builder, rule.alias or rule.origin.name)
    return _Reduction(len(rule.expansion), rule.origin.name, kept, spliced, build, passes)


def read(language: Language, text: str) -> Any:
    """What a language's builder makes of a text.

    Raises:
        TextError: The text cannot be read; the error shows the place and says what can stand there. Or it asks for
            something that gpu_ops does not have.
        PlanError: It is no text.
    """
    check_text(text)
    with shown_in(text):
        return _run(language, tables_of(language), text)


def check_text(text: object) -> None:
    """Refuse what is no text.

    Raises:
        PlanError: It is none.
    """
    if not isinstance(text, str):
        raise PlanError(f"{shown(text)} is no text of statements.", remedy='Write "select * from Withdrawal".')


def _run(language: Language, table: ParserTables, text: str) -> Any:
    if len(text) > _LONGEST:
        raise PlacedError(_LONGEST, _LONGEST, f"The text has more than {_LONGEST:,} characters.")
    lines = [0, *accumulate(len(line) + 1 for line in text.split("\n")[:-1])]
    actions, steps = table.actions, table.steps
    states: list[int] = [table.first]
    values: list[Any] = []
    starts: list[int] = []
    ends: list[int] = []
    seen: list[Token] = []
    tokens = table.lexer.tokens(text, lambda kind: table.takes(states, kind))
    end = len(text.rstrip())
    while True:
        token = next(tokens, None) or Token("$END", "", end, end)
        kind = token.type
        before: list[int] | None = None
        while True:
            action = actions[states[-1]].get(kind)
            if isinstance(action, int):
                states.append(action)
                values.append(token.text)
                starts.append(token.start)
                ends.append(token.end)
                break
            before = before or states.copy()
            if action is None:
                raise language.unexpected(table.expected(before), token, seen, table.lexer.spelling, text)
            size = action.size
            if size:
                given = values[-size:]
                start = next((at for at in starts[-size:] if at >= 0), -1)
                last = max(ends[-size:])
                del states[-size:], values[-size:], starts[-size:], ends[-size:]
            else:
                given, start, last = [], -1, -1
            value = _value(action, given, start if start >= 0 else token.start, max(last, start, 0), lines)
            states.append(steps[states[-1]][action.origin])
            values.append(value)
            starts.append(start)
            ends.append(last)
            if kind == "$END" and states[-1] == table.last:
                if len(seen) > _DEEPEST:
                    _refuse_depth(value)
                return value
        seen.append(token)
        if len(states) > _STATES:
            raise PlacedError(token.start, token.end, "Too many brackets are open here.")


def _refuse_depth(made: Any) -> None:
    waiting: list[tuple[Any, int]] = [(made, 0)]
    while waiting:
        given, depth = waiting.pop()
        if isinstance(given, tuple):
            waiting.extend((each, depth) for each in given)
        elif isinstance(given, Syntax):
            if depth > _DEEPEST:
                raise failure_at(given, f"The expression is nested deeper than {_DEEPEST} times.")
            inner = (getattr(given, field.name) for field in fields(given) if field.name != "place")
            waiting.extend((each, depth + 1) for each in inner)


def _value(rule: _Reduction, given: list[Any], start: int, end: int, lines: list[int]) -> Any:
    if rule.spliced:
        kept: list[Any] = []
        for at in rule.kept:
            if at in rule.spliced:
                kept.extend(given[at])
            else:
                kept.append(given[at])
    else:
        kept = [given[at] for at in rule.kept] if len(rule.kept) < len(given) else given
    if rule.passes and len(kept) == 1:
        return kept[0]
    if rule.build is None:
        return kept
    line = bisect_right(lines, start)
    return rule.build(TextPlace(line, start - lines[line - 1] + 1, start, max(start, end)), *kept)
