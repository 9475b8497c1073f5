"""Esper's language as far as it selects from one stream: text into a structure. All else is refused by its name."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedInput, v_args
from lark.exceptions import VisitError
from lark.tree import Meta

from tests.conformance.epl import (
    Call,
    Case,
    Expression,
    Item,
    Literal,
    Member,
    Name,
    Operation,
    Ordered,
    Period,
    Star,
    Statement,
    View,
)
from tests.conformance.unsupported import UnsupportedError

_GRAMMAR = r"""
start: statement (";" statement)* ";"?
statement: annotation* [insert] "select"i [SELECTOR] [DISTINCT] items source [where] [groups] [having] [order] [limit]
insert: "insert"i [SELECTOR] "into"i NAME ["(" NAME ("," NAME)* ")"]
annotation: "@" NAME ("(" (_setting ("," _setting)*)? ")")?
_setting: (NAME "=")? (STRING | NUMBER | CONSTANT | NAME)
items: item ("," item)*
item: (expression | everything) "as"i? [NAME]
everything: "*"
source: "from"i stream ("," stream)*
stream: NAME filters views "as"i? [NAME] [RETAIN]
filters: ("(" expression ("," expression)* ")")?
views: view*
view: ("#" (NAME ":")? | "." NAME ":") NAME ("(" _arguments? ")")?
where: "where"i expression
groups: "group"i "by"i group ("," group)*
group: expression | SETS "(" group ("," group)* ")" | several
several: "(" ")" | "(" expression ("," expression)+ ")"
having: "having"i expression
order: "order"i "by"i sorted ("," sorted)*
sorted: expression [DIRECTION]
limit: "limit"i row_count (("offset"i | ",") row_count)?
!row_count: "-"? NUMBER

_arguments: argument ("," argument)*
argument: [DISTINCT | ALL] (expression | everything | period) [DIRECTION]
        | NAME ":" (expression | several)                        -> option
period: (NUMBER NAME)+

?expression: conjunction | expression OR conjunction             -> binary
?conjunction: bits | conjunction AND bits                        -> binary
?bits: negation | bits BITS negation                             -> binary
?negation: comparison | NOT negation                             -> unary
?comparison: joined
           | comparison COMPARE joined                           -> binary
           | comparison IS joined                                -> binary
           | comparison COMPARE ALL "(" expression ("," expression)* ")" -> quantified
           | comparison COMPARE SOME "(" expression ("," expression)* ")" -> quantified
           | comparison [NOT] LIKE joined ["escape"i STRING]     -> alike
           | comparison [NOT] BETWEEN joined AND joined          -> between
           | comparison [NOT] IN "(" expression ("," expression)* ")"  -> within
           | comparison [NOT] IN (OPEN | "(") joined ":" joined (CLOSE | ")") -> ranged
?joined: sum | joined JOINED sum                                 -> binary
?sum: product | sum (PLUS | MINUS) product                       -> binary
?product: signed | product (STAR | DIVIDE) signed                -> binary
?signed: postfix | MINUS signed                                  -> unary
?postfix: atom
        | postfix "." NAME                                       -> member
        | postfix "." "*"                                        -> members
        | postfix OPEN expression CLOSE                          -> element
        | postfix "." NAME "(" _arguments? ")"                   -> method
?atom: NAME                                                      -> name
     | NAME "(" _arguments? ")"                                  -> call
     | SELECTOR "(" ")"                                          -> call
     | NUMBER                                                    -> number
     | STRING                                                    -> string
     | CONSTANT                                                  -> constant
     | "(" expression ")"
     | "{" [expression ("," expression)*] "}"                    -> array
     | "cast"i "(" expression ("," | "as"i) NAME ("." NAME)* ")" -> cast
     | "case"i [subject] when+ ["else"i expression] "end"i       -> case
subject: expression
when: "when"i expression "then"i expression

SELECTOR: "irstream"i | "istream"i | "rstream"i
DISTINCT: "distinct"i
ALL: "all"i
RETAIN: "retain-union"i | "retain-intersection"i
SETS.2: /rollup\b|cube\b|grouping\s+sets\b/i
DIRECTION: "asc"i | "desc"i
OR: "or"i
AND: "and"i
NOT: "not"i
IS.2: /is(\s+not)?\b/i
LIKE: "like"i | "regexp"i
BETWEEN: "between"i
IN: "in"i
OPEN: "["
CLOSE: "]"
COMPARE: "!=" | "<>" | "<=" | ">=" | "=" | "<" | ">"
SOME.2: /(any|some)(?=\s*\()/i
BITS: "&" | "|" | "^"
JOINED: "||"
PLUS: "+"
MINUS: "-"
STAR: "*"
DIVIDE: "/" | "%"
CONSTANT: "true"i | "false"i | "null"i
NUMBER: /(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?[lfd]?/i
STRING: /'([^'\\]|\\.)*'|"([^"\\]|\\.)*"/
NAME: /(?!RESERVED\b)[a-z_$][\w$]*|`[^`]+`/i
%ignore /\/\*(.|\n)*?\*\/|\/\/[^\n]*/
%ignore /\s+/
"""

_RESERVED = """
    select istream irstream rstream distinct all from as where group by having order limit offset asc desc and or not is
    like regexp between in true false null case when then else end rollup cube retain
"""

_UNITS = {
    **dict.fromkeys(("day", "days"), 86_400_000),
    **dict.fromkeys(("hour", "hours"), 3_600_000),
    **dict.fromkeys(("minute", "minutes", "min"), 60_000),
    **dict.fromkeys(("second", "seconds", "sec"), 1000),
    **dict.fromkeys(("millisecond", "milliseconds", "msec"), 1),
    **dict.fromkeys(("week", "weeks"), 604_800_000),
}
_ANNOTATIONS = {
    *("audit", "buseventtype", "description", "eventrepresentation", "hint", "iterableunbound", "name", "nolock"),
    *("private", "protected", "public", "tag"),
}
"""Those that change nothing of what one statement shows, and what its iterator holds without a window."""

_CALENDAR = {"year": 12, "years": 12, "month": 1, "months": 1}

_CONSTRUCTS = {
    "patterns": r"\bpattern\s*(@\w+\s*)*\[",
    "match_recognize": r"\bmatch_recognize\b",
    "contexts": r"\bcontext\s+\w+|\bcontext\.\w+",
    "tables": r"\bcreate\s+table\b|\binto\s+table\b",
    "named windows": r"\bcreate\s+window\b",
    "create": r"\bcreate\s+(?!(\w+\s+)?schema\b)",
    "triggers (on …)": r"(^|;)\s*(@\w+(\([^)]*\))?\s*)*on\s",
    "output rates": r"output\s+(all|first|last|snapshot|every|after|when|at)\b",
    "subqueries": r"\(\s*select\b",
    "joins": r"\bjoin\b|\bunidirectional\b",
    "update": r"\bupdate\s+istream\b",
    "expression declarations": r"\bexpression\s+\w+",
    "select from methods": r"\bmethod\s*:",
}
"""What is refused, and how it is seen in a text without its strings."""


_SCHEMA = r"(?i)(@\w+\s*)*create\s+(\w+\s+)?schema\s+\w+\s*(as\s*)?\([^)]*\)\s*;"
"""A type of events: the vectors say beside their queries what events look like."""


def parse(text: str) -> list[Statement]:
    """The statements of a text.

    Raises:
        UnsupportedError: One has a construct that is not read here.
    """
    bare = re.sub(r"'([^'\\]|\\.)*'|\"([^\"\\]|\\.)*\"|/\*.*?\*/|//[^\n]*", "''", text, flags=re.DOTALL).lower()
    for construct, seen in _CONSTRUCTS.items():
        if re.search(seen, bare):
            raise UnsupportedError(f"EPL: no {construct} yet")
    text = re.sub(_SCHEMA, "", text)
    try:
        statements: list[Statement] = _Structure(text).transform(_PARSER.parse(text))
    except UnexpectedInput as error:
        at = getattr(error, "pos_in_stream", 0) or 0
        raise UnsupportedError(f"EPL: no word for {text[at : at + 20]!r}") from error
    except VisitError as error:
        if isinstance(error.orig_exc, UnsupportedError):
            raise error.orig_exc from None
        raise
    return statements


def _levels(groups: list[Any]) -> tuple[tuple[Expression, ...], ...]:
    """Each combination of one level of every part: a rollup of a, b has the levels (a, b), (a), ()."""
    levels: list[tuple[Expression, ...]] = [()]
    for group in groups:
        levels = [(*level, *more) for level in levels for more in group]
    return tuple(tuple(dict.fromkeys(level)) for level in levels)


def _without_stream(expression: Any, stream: str | None) -> Any:
    """The same, where properties do not say which stream they are of: there is one."""
    if isinstance(expression, Member) and expression.of == Name(stream or ""):
        return Name(expression.name)
    if isinstance(expression, Name) and expression.name == stream:
        return Star()
    if isinstance(expression, tuple):
        return tuple(_without_stream(inner, stream) for inner in expression)
    if is_dataclass(expression) and not isinstance(expression, type):
        inner = {field.name: _without_stream(getattr(expression, field.name), stream) for field in fields(expression)}
        return type(expression)(**inner)
    return expression


@v_args(inline=True)
class _Structure(Transformer[Token, Any]):
    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    # Expressions

    def name(self, given: str) -> Expression:
        return Call(str(given)) if given == "current_timestamp" else Name(str(given).strip("`"))

    def number(self, token: str) -> Literal:
        plain = token.rstrip("lLfFdD")
        whole = plain.isdigit() and token[-1] not in "fFdD"
        return Literal(int(plain) if whole else float(plain))

    def string(self, token: str) -> Literal:
        return Literal(re.sub(r"\\(.)", r"\1", token[1:-1]))

    def constant(self, token: str) -> Literal:
        return Literal({"true": True, "false": False, "null": None}[token.lower()])

    def everything(self) -> Star:
        return Star()

    def member(self, of: Expression, name: str) -> Member:
        return Member(of, str(name).strip("`"))

    def element(self, of: Expression, _open: str, place: Expression, _close: str) -> Operation:
        return Operation("element", (of, place))

    def members(self, of: Expression) -> Expression:
        return of

    def period(self, *given: str) -> Period:
        months = milliseconds = 0.0
        for number, unit in zip(given[::2], given[1::2], strict=True):
            if unit.lower() not in {*_UNITS, *_CALENDAR}:
                raise UnsupportedError(f"EPL: no unit {str(unit)!r}")
            months += float(number) * _CALENDAR.get(unit.lower(), 0)
            milliseconds += float(number) * _UNITS.get(unit.lower(), 0)
        return Period(round(months), round(milliseconds))

    def argument(self, distinct: str | None, value: Expression, direction: str | None) -> tuple[bool, Expression]:
        ordered = value if direction is None else Ordered(value, direction.lower() == "desc")
        return distinct is not None and distinct.lower() == "distinct", ordered

    def option(self, name: str, value: Any) -> tuple[str, tuple[Expression, ...]]:
        return str(name).lower(), value if isinstance(value, tuple) else (value,)

    def several(self, *expressions: Expression) -> tuple[Expression, ...]:
        return expressions

    def call(self, name: str, *arguments: tuple[Any, Any], of: Expression | None = None) -> Call:
        plain = [(distinct, value) for distinct, value in arguments if isinstance(distinct, bool)]
        named = tuple((option, value) for option, value in arguments if not isinstance(option, bool))
        named_so = str(name) if of is not None else str(name).lower()
        return Call(named_so, tuple(value for _, value in plain), named, any(distinct for distinct, _ in plain), of)

    def method(self, of: Expression, name: str, *arguments: tuple[Any, Any]) -> Call:
        return self.call(name, *arguments, of=of)

    def unary(self, operator: str, operand: Expression) -> Expression:
        if operator == "-" and isinstance(operand, Literal) and operand.value is not None:
            return Literal(-operand.value)
        return Operation("negative" if operator == "-" else "not", (operand,))

    def binary(self, left: Expression, operator: str, right: Expression) -> Operation:
        return Operation(" ".join(operator.lower().split()).replace("<>", "!="), (left, right))

    def alike(
        self, left: Expression, no: str | None, operator: str, right: Expression, escape: str | None
    ) -> Operation:
        more = () if escape is None else (self.string(escape),)
        return _unless(no, Operation(operator.lower(), (left, right, *more)))

    def quantified(self, left: Expression, operator: str, which: str, *values: Expression) -> Operation:
        compared = Literal(operator.replace("<>", "!="))
        return Operation("all" if which.lower() == "all" else "any", (compared, left, *values))

    def array(self, *values: Expression | None) -> Operation:
        return Operation("array", tuple(each for each in values if each is not None))

    def cast(self, given: Expression, *kind: str) -> Call:
        return Call("cast", (given, Literal(".".join(kind))))

    def between(self, *given: Any) -> Operation:
        value, no, _, low, _, high = given
        return _unless(no, Operation("between", (value, low, high)))

    def within(self, value: Expression, no: str | None, _in: str, *values: Expression) -> Operation:
        return _unless(no, Operation("in", (value, *values)))

    def ranged(self, value: Expression, no: str | None, _in: str, *given: Any) -> Operation:
        low, high = (bound for bound in given if not isinstance(bound, Token))
        above = "<=" if any(bound == "[" for bound in given) else "<"
        below = "<=" if any(bound == "]" for bound in given) else "<"
        bounds = Operation(above, (low, value)), Operation(below, (value, high))
        return _unless(no, Operation("and", bounds))

    def subject(self, value: Expression) -> Ordered:
        return Ordered(value, descending=False)

    def when(self, condition: Expression, value: Expression) -> tuple[Expression, Expression]:
        return condition, value

    def case(self, subject: Ordered | None, *given: Any) -> Case:
        *branches, otherwise = given
        if subject is not None:
            branches = [(Operation("=", (subject.expression, value)), then) for value, then in branches]
        return Case(tuple(branches), Literal(None) if otherwise is None else otherwise)

    # Clauses

    @v_args(meta=True)
    def item(self, meta: Meta, children: list[Any]) -> Item:
        expression, name = children
        if name is not None:
            return Item(expression, name.strip("`"))
        text = self._text[meta.start_pos : meta.end_pos]
        return Item(expression, re.sub(r"\s*([-(),+*/%=<>|])\s*", r"\1", " ".join(text.split())))

    def items(self, *items: Item) -> tuple[Item, ...]:
        return items

    def filters(self, *filters: Expression) -> tuple[Expression, ...]:
        return filters

    def view(self, *given: Any) -> View:
        *_, name = (token for token in given if isinstance(token, Token))
        arguments = [argument for argument in given if not isinstance(argument, Token)]
        return View(name.lower(), tuple(value for _, value in arguments))

    def views(self, *views: View) -> tuple[View, ...]:
        return views

    def stream(self, event_type: str, filters: Any, views: Any, alias: str | None, retain: str | None) -> Any:
        return str(event_type), filters, views, alias, "" if retain is None else retain.lower().partition("-")[2]

    def source(self, stream: Any, *more: Any) -> Any:
        if more:
            raise UnsupportedError("EPL: no joins yet")
        return stream

    def where(self, condition: Expression) -> Expression:
        return condition

    def group(self, *given: Any) -> tuple[tuple[Expression, ...], ...]:
        if not isinstance(given[0], Token):
            return (given[0] if isinstance(given[0], tuple) else (given[0],),)
        inner = [level for group in given[1:] for level in group]
        kind = given[0].lower()
        if kind == "rollup":
            return tuple(sum(inner[:size], ()) for size in range(len(inner), -1, -1))
        if kind == "cube":
            last = 1 << len(inner)
            return tuple(
                sum((part for at, part in enumerate(inner) if not mask >> (len(inner) - 1 - at) & 1), ())
                for mask in range(last)
            )
        return tuple(inner)

    def groups(self, *groups: Any) -> tuple[tuple[Expression, ...], ...]:
        return _levels(list(groups))

    def having(self, condition: Expression) -> Expression:
        return condition

    def sorted(self, expression: Expression, direction: str | None) -> Ordered:
        return Ordered(expression, descending=(direction or "").lower() == "desc")

    def order(self, *ordered: Ordered) -> tuple[Ordered, ...]:
        return ordered

    def row_count(self, *marks: str) -> int:
        return int("".join(marks))

    def limit(self, rows: int, skipped: int = 0) -> tuple[int, int]:
        return rows, skipped

    def annotation(self, name: str, *settings: str) -> tuple[str, str]:
        return name.lower(), settings[-1].strip("'\"") if settings else ""

    def insert(self, selector: str | None, name: str, *columns: str | None) -> tuple[str, str, tuple[str, ...]]:
        return str(name), (selector or "istream").lower(), tuple(str(each) for each in columns if each is not None)

    def statement(self, *given: Any) -> Statement:
        *annotations, insert, selector, distinct, items, source, where, levels, having, order, limit = given
        event_type, filters, views, alias, retain = source
        named = dict(annotations)
        unknown = set(named) - _ANNOTATIONS
        if unknown:
            raise UnsupportedError(f"EPL: no annotation {min(unknown)!r}")
        made = (items, event_type, filters, views, retain, where, levels, having, order or (), limit)
        made = tuple(_without_stream(part, alias or event_type) for part in made)
        selected = "istream" if selector is None else selector.lower()
        keeps_last = "iterableunbound" in named
        into, columns = (None, ()) if insert is None else (insert[:2], insert[2])
        name = named.get("name", "")
        return Statement(name, selected, distinct is not None, *made, keeps_last, into, columns)

    def start(self, *statements: Statement) -> list[Statement]:
        return list(statements)


def _unless(no: str | None, operation: Operation) -> Operation:
    return operation if no is None else Operation("not", (operation,))


_PARSER = Lark(
    _GRAMMAR.replace("RESERVED", f"({'|'.join(_RESERVED.split())})"), parser="lalr", propagate_positions=True
)
