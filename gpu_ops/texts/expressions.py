"""What an expression in EPL says. `str` of a node is a text that parses to an equal node."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, TypeAlias


class TextPlace(NamedTuple):
    """Where a node stands in its text.

    Attributes:
        line: The line that it begins in, from 1.
        column: The character of that line that it begins at, from 1.
        start: The character of the whole text that it begins at, from 0.
        end: The character of the whole text behind it.
    """

    line: int
    column: int
    start: int
    end: int


NOWHERE = TextPlace(0, 0, 0, 0)
"""The place of a node that no text has said."""


@dataclass(frozen=True)
class Syntax:
    """A part of a statement. Two parts are equal if they say the same, wherever they stand."""

    place: TextPlace = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class Expression(Syntax):
    """What has a value. A looser part is written in parentheses.

    Attributes:
        level: How strongly its parts hold together.
        in_parentheses: Whether its text is in parentheses by itself.
    """

    level: ClassVar[int] = 12
    in_parentheses: ClassVar[bool] = False


@dataclass(frozen=True)
class Constant(Expression):
    """A number, a string, a truth value or null; `type` is Esper's."""

    value: bool | int | float | str | None
    type: Literal["int", "long", "float", "double", "string", "boolean", "null"]

    @property
    def level(self) -> int:  # type: ignore[override]
        """A number is no target of a dot, which would be read as its decimal point."""
        return 12 if self.type in {"string", "boolean", "null"} else 10

    def __str__(self) -> str:
        if isinstance(self.value, str):
            return quoted(self.value)
        if self.value is None or isinstance(self.value, bool):
            return str(self.value).lower().replace("none", "null")
        return f"{self.value!r}{'L' if self.type == 'long' else 'f' if self.type == 'float' else ''}"


@dataclass(frozen=True)
class Parameter(Expression):
    """A value that is given later: `?`, `?:name` or `?:name:type`."""

    name: str = ""
    type: str = ""

    def __str__(self) -> str:
        return "?" + (f":{self.name}" if self.name else "") + (f":{self.type}" if self.type else "")


@dataclass(frozen=True)
class Name(Expression):
    """A property, stream, variable, table or type. A dynamic one (`name?`) need not be there."""

    name: str
    dynamic: bool = False

    def __str__(self) -> str:
        return ticked(self.name) + "?" * self.dynamic


@dataclass(frozen=True)
class Variable(Expression):
    """A variable that may change. No text parses to it: a name becomes it where a statement is planned."""

    name: str

    def __str__(self) -> str:
        return ticked(self.name)


@dataclass(frozen=True)
class ContextProperty(Expression):
    """`context.path`. No text parses to it: members of `context` become it where a statement is planned."""

    path: tuple[str, ...]

    def __str__(self) -> str:
        return dotted(".".join(("context", *self.path)))


@dataclass(frozen=True)
class Member(Expression):
    """`of.name`."""

    level = 11
    of: Expression
    name: str
    dynamic: bool = False

    def __str__(self) -> str:
        return f"{within(self.of, 11)}.{ticked(self.name, behind_dot=True)}{'?' * self.dynamic}"


@dataclass(frozen=True)
class Element(Expression):
    """`of[index]`: an element of an array, or a row of a table, whose keys may be several."""

    level = 11
    of: Expression
    indexes: tuple[Expression, ...]
    dynamic: bool = False

    def __str__(self) -> str:
        return f"{within(self.of, 11)}[{listed(self.indexes)}]{'?' * self.dynamic}"


@dataclass(frozen=True)
class FunctionCall(Expression):
    """`name(arguments)`, or `of.name(arguments)`: a function, an aggregate, a method or a property with a key.

    Attributes:
        quantity: `distinct` or `all`, where one of them stands before the arguments.
    """

    level = 11
    name: str
    arguments: tuple[Argument, ...] = ()
    of: Expression | None = None
    quantity: Literal["", "distinct", "all"] = ""
    dynamic: bool = False

    def __str__(self) -> str:
        before = "" if self.of is None else f"{within(self.of, 11)}."
        words = f"{self.quantity} " if self.quantity else ""
        name = ticked(self.name, behind_dot=self.of is not None)
        return f"{before}{name}({words}{listed(self.arguments)}){'?' * self.dynamic}"


@dataclass(frozen=True)
class Wildcard(Expression):
    """`*`, or `of.*`: all properties."""

    level = 11
    of: Expression | None = None

    def __str__(self) -> str:
        return "*" if self.of is None else f"{within(self.of, 11)}.*"


@dataclass(frozen=True)
class Prefixed(Expression):
    """`not`, `-` or `+` before an expression."""

    operator: Literal["not", "-", "+"]
    operand: Expression

    @property
    def level(self) -> int:  # type: ignore[override]
        """Of the operator."""
        return 4 if self.operator == "not" else 10

    def __str__(self) -> str:
        word = "not " if self.operator == "not" else self.operator
        return f"{word}{within(self.operand, self.level)}"


LEVELS = {
    **dict.fromkeys(("&", "|", "^"), 3),
    **dict.fromkeys(("=", "!=", "is", "is not"), 5),
    **dict.fromkeys(("<", "<=", ">", ">="), 6),
    "||": 7,
    **dict.fromkeys(("+", "-"), 8),
    **dict.fromkeys(("*", "/", "%"), 9),
}
"""How strongly an operator between two expressions holds them together."""


@dataclass(frozen=True)
class Operation(Expression):
    """Two expressions and an operator of `LEVELS` between them; `<>` is `!=`."""

    operator: str
    left: Expression
    right: Expression

    @property
    def level(self) -> int:  # type: ignore[override]
        """Of the operator."""
        return LEVELS[self.operator]

    def __str__(self) -> str:
        operator = f" {self.operator} " if self.operator.startswith("is") else self.operator
        return f"{within(self.left, self.level)}{operator}{within(self.right, self.level + 1)}"


@dataclass(frozen=True)
class Logical(Expression):
    """Conditions joined by `and`, or by `or`; none of them is joined by the same word (`joined` makes it so)."""

    operator: Literal["and", "or"]
    operands: tuple[Expression, ...]

    @property
    def level(self) -> int:  # type: ignore[override]
        """Of the operator."""
        return 2 if self.operator == "and" else 1

    def __str__(self) -> str:
        return f" {self.operator} ".join(within(operand, self.level + 1) for operand in self.operands)


@dataclass(frozen=True)
class Quantified(Expression):
    """`value operator any (options)`, or all of them; `some` is `any`. A sub-query may stand for the options."""

    operator: str
    quantity: Literal["any", "all"]
    value: Expression
    options: tuple[Expression, ...]

    @property
    def level(self) -> int:  # type: ignore[override]
        """Of the operator."""
        return LEVELS[self.operator]

    def __str__(self) -> str:
        operator = f" {self.operator} " if self.operator.startswith("is") else self.operator
        return f"{within(self.value, self.level)}{operator}{self.quantity} {_options(self.options)}"


@dataclass(frozen=True)
class Inclusion(Expression):
    """`value in (options)`; a sub-query may stand for the options."""

    level = 6
    value: Expression
    options: tuple[Expression, ...]
    negated: bool = False

    def __str__(self) -> str:
        return f"{within(self.value, 6)} {'not ' * self.negated}in {_options(self.options)}"


@dataclass(frozen=True)
class RangeInclusion(Expression):
    """`value in [low:high]`; a round bracket leaves the bound out."""

    level = 6
    value: Expression
    low: Expression
    high: Expression
    with_low: bool = True
    with_high: bool = True
    negated: bool = False

    def __str__(self) -> str:
        bounds = f"{'[' if self.with_low else '('}{self.low} : {self.high}{']' if self.with_high else ')'}"
        return f"{within(self.value, 6)} {'not ' * self.negated}in {bounds}"


@dataclass(frozen=True)
class Between(Expression):
    """`value between low and high`, both included, whichever is the greater."""

    level = 6
    value: Expression
    low: Expression
    high: Expression
    negated: bool = False

    def __str__(self) -> str:
        bounds = f"{within(self.low, 7)} and {within(self.high, 7)}"
        return f"{within(self.value, 6)} {'not ' * self.negated}between {bounds}"


@dataclass(frozen=True)
class TextMatch(Expression):
    """`value like pattern escape '!'`, or `value regexp pattern`."""

    level = 6
    operator: Literal["like", "regexp"]
    value: Expression
    pattern: Expression
    escape: Expression | None = None
    negated: bool = False

    def __str__(self) -> str:
        escape = "" if self.escape is None else f" escape {within(self.escape, 7)}"
        return f"{within(self.value, 6)} {'not ' * self.negated}{self.operator} {within(self.pattern, 7)}{escape}"


@dataclass(frozen=True)
class Case(Expression):
    """The value behind the first condition that holds, or behind the first value that equals the subject."""

    subject: Expression | None
    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None = None

    def __str__(self) -> str:
        subject = "" if self.subject is None else f" {self.subject}"
        branches = "".join(f" when {when} then {then}" for when, then in self.branches)
        return f"case{subject}{branches}{'' if self.otherwise is None else f' else {self.otherwise}'} end"


@dataclass(frozen=True)
class ArrayOf(Expression):
    """`{a,b}`."""

    items: tuple[Expression, ...]

    def __str__(self) -> str:
        return f"{{{listed(self.items)}}}"


@dataclass(frozen=True)
class Record(Expression):
    """`{name: value}`, or `new {name = value}`, where a name alone is that property."""

    fields: tuple[tuple[str, Expression | None], ...]
    new: bool = False

    def __str__(self) -> str:
        sign = "=" if self.new else ":"
        pairs = (f"{ticked(name)}{'' if value is None else f'{sign}{value}'}" for name, value in self.fields)
        return f"{'new ' * self.new}{{{','.join(pairs)}}}"


@dataclass(frozen=True)
class TypeName(Syntax):
    """`int`, `int[]`, `a.b.Type[]`; the text between brackets is a dimension's (`primitive`, or nothing)."""

    name: str
    dimensions: tuple[str, ...] = ()

    def __str__(self) -> str:
        return dotted(self.name) + "".join(f"[{each}]" for each in self.dimensions)


@dataclass(frozen=True)
class Cast(Expression):
    """`cast(value,type)`, with options such as `dateformat`."""

    value: Expression
    type: TypeName
    options: tuple[NamedArgument, ...] = ()

    def __str__(self) -> str:
        return f"cast({listed((self.value, self.type, *self.options))})"


# What only an argument can be


@dataclass(frozen=True)
class Period(Syntax):
    """A span of time: amounts and their units (year, month ... microsecond), as they stand: `1 hour 30 minute`."""

    parts: tuple[tuple[Expression, str], ...]

    def __str__(self) -> str:
        return " ".join(f"{within(amount, 8)} {unit}" for amount, unit in self.parts)


@dataclass(frozen=True)
class SortKey(Syntax):
    """An expression to sort by."""

    expression: Expression
    descending: bool = False

    def __str__(self) -> str:
        return f"{self.expression}{' desc' * self.descending}"


@dataclass(frozen=True)
class NamedArgument(Syntax):
    """`filter: value` or `group_by: (a,b)`; a period is alone."""

    name: str
    values: tuple[Expression | Period, ...]

    def __str__(self) -> str:
        values = str(self.values[0]) if len(self.values) == 1 else f"({listed(self.values)})"
        return f"{ticked(self.name)}:{values}"


@dataclass(frozen=True)
class LambdaFunction(Syntax):
    """`x => body`, of one parameter or more."""

    parameters: tuple[str, ...]
    body: Expression

    def __str__(self) -> str:
        names = ",".join(ticked(name) for name in self.parameters)
        return f"{names if len(self.parameters) == 1 else f'({names})'} => {self.body}"


@dataclass(frozen=True)
class CronStep(Syntax):
    """`*/step`: every so many."""

    step: Expression

    def __str__(self) -> str:
        return f"*/{within(self.step, 10)}"


@dataclass(frozen=True)
class CronRange(Syntax):
    """`low:high`, both included."""

    low: Constant
    high: Constant

    def __str__(self) -> str:
        return f"{self.low}:{self.high}"


@dataclass(frozen=True)
class CronLast(Syntax):
    """`5 last`, `3 weekday`: the last such day of a month, the weekday nearest to one."""

    value: Expression
    word: Literal["last", "weekday", "lastweekday"]

    def __str__(self) -> str:
        return f"{self.value} {self.word}"


@dataclass(frozen=True)
class CronList(Syntax):
    """`[1,2,5:7]`."""

    items: tuple[Expression | CronRange, ...]

    def __str__(self) -> str:
        return f"[{listed(self.items)}]"


Argument: TypeAlias = (
    Expression | Period | SortKey | NamedArgument | LambdaFunction | CronStep | CronRange | CronLast | CronList
)


def logical(operator: Literal["and", "or"], operands: Iterable[Expression], place: TextPlace = NOWHERE) -> Logical:
    """Conditions joined by a word; those that are joined by the same word themselves become part of it."""
    flat: list[Expression] = []
    for operand in operands:
        same = isinstance(operand, Logical) and operand.operator == operator
        flat.extend(operand.operands if same else (operand,))  # type: ignore[attr-defined]
    return Logical(operator, tuple(flat), place=place)


def within(term: Expression, level: int) -> str:
    """The text of an expression as a part of one of this level."""
    return str(term) if term.level >= level else f"({term})"


def listed(nodes: Iterable[Syntax]) -> str:
    """The texts of nodes with commas between."""
    return ",".join(map(str, nodes))


def _options(options: tuple[Expression, ...]) -> str:
    return str(options[0]) if len(options) == 1 and options[0].in_parentheses else f"({listed(options)})"


def quoted(text: str) -> str:
    """A string as it is written in a statement."""
    escapes = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return f"'{''.join(escapes.get(character, character) for character in text)}'"


_RESERVED = """
    after all and any as between by case cast constant context create cube delete desc distinct else end every exists
    expression false for from full group grouping having in index inner insert into irstream is istream join left like
    limit match_recognize method new not null offset on or order outer output pattern regexp right rollup rstream
    schema select set some sql table then true unidirectional unique until update variable when where while window
"""
RESERVED = frozenset(_RESERVED.split())
"""Words that are written in backticks where they are names. The parser takes most of them bare where it can."""

_PLAIN = re.compile(r"[^\W\d][\w$]*|\$[\w$]*")


def ticked(name: str, *, behind_dot: bool = False) -> str:
    """A name as it is written in a statement."""
    plain = _PLAIN.fullmatch(name) is not None and (behind_dot or name.lower() not in RESERVED)
    return name if plain else f"`{name}`"


def dotted(name: str) -> str:
    """A name of several parts as it is written in a statement."""
    first, *more = name.split(".")
    return ".".join((ticked(first), *(ticked(part, behind_dot=True) for part in more)))
