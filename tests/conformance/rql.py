"""StreamCruncher's language: text into a plain structure. What is not read here is refused by its name.

Expressions are those of Esper's language (`epl`), as far as both have them; a column's name has its alias before a dot.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedInput, v_args
from lark.exceptions import VisitError

from tests.conformance.rql_structure import AggregateCall, Alert, Inner, Part, Pick, Select, Sorted, Status, Table
from tests.conformance.rql_tree import Call, Case, Expression, Literal, Name, Operation, Ordered, Star
from tests.conformance.unsupported import UnsupportedError

_GRAMMAR = r"""
start: select ";"?
select: "select"i [first] [QUANTITY] items source [where] [groups] [having] (SET picked)* [order] [limit]
picked: "select"i [QUANTITY] items source [where] [groups] [having]
first: "first"i NUMBER
items: item ("," item)*
item: expression "as"i? [NAME] | everything
everything: STAR | NAME "." STAR
source: "from"i (alert | table joined*)
joined: "," table | [JOIN] "join"i table "on"i expression
table: NAME chain "as"i? NAME                              -> partition
     | NAME ["as"i? NAME]                                  -> plain
     | "self"i "#" NAME "as"i? NAME                        -> itself
     | "(" select ")" "as"i? NAME                          -> selected
chain: part ("to"i part)*
part: "(" "partition"i [by] "store"i pick [with_] [where] ")"
by: "by"i NAME ("," NAME)*
pick: "last"i NUMBER [provider]                            -> sliding
    | "last"i NUMBER UNIT [maximum] [provider]             -> spanned
    | "latest"i NUMBER [provider]                          -> tumbling
    | "random"i NUMBER [provider]                          -> random
    | BEST NUMBER "using"i NAME [update] [provider]        -> best
maximum: "max"i NUMBER
update: UPDATE NAME ("," NAME)*
provider: STRING
with_: "with"i [PINNED] aggregate ("," aggregate)*
aggregate: NAME "(" NAME [diff] ")" [ENTRANCE] "as"i? NAME
         | CUSTOM "(" NAME ("," expression)* ")" [ENTRANCE] "as"i? NAME  -> custom
diff: DIFF [STRING]
alert: "alert"i projected ("," projected)* USING correlated ("," correlated)* WHEN present ("or"i present)*
projected: NAME "." NAME "as"i NAME
correlated: NAME chain "as"i? NAME "correlate"i "on"i NAME
present: "present"i "(" wanted ("and"i wanted)* ")"
wanted: [NOT] NAME
where: "where"i expression
groups: "group"i "by"i expression ("," expression)*
having: "having"i expression
order: "order"i "by"i sorted ("," sorted)*
sorted: expression [DIRECTION] [NULLS]
limit: "limit"i NUMBER ["offset"i NUMBER]

?expression: conjunction | expression OR conjunction       -> binary
?conjunction: negation | conjunction AND negation          -> binary
?negation: comparison | NOT negation                       -> negated
?comparison: sum
           | comparison COMPARE sum                        -> binary
           | comparison IS_NULL                            -> null
           | comparison [NOT] IN "(" expression ("," expression)* ")"  -> within
           | comparison [NOT] IN "(" select ")"            -> within_select
           | comparison [NOT] LIKE STRING                  -> alike
           | comparison [NOT] BETWEEN sum AND sum          -> between
           | "exists"i "(" select ")"                      -> exists
           | STATUS                                        -> status
?sum: product | sum (PLUS | MINUS | JOINED) product        -> binary
?product: signed | product (STAR | DIVIDE) signed          -> binary
?signed: atom | MINUS signed                               -> minus
?atom: NAME ["." NAME]                                     -> name
     | NAME "(" [DISTINCT] [expression ("," expression)*] ")"  -> call
     | NAME "(" STAR ")"                                   -> call_all
     | NUMBER                                              -> number
     | STRING                                              -> string
     | "null"i                                             -> nothing
     | "(" expression ")"
     | "case"i [subject] when+ ["else"i expression] "end"i -> case
subject: expression
when: WHEN expression "then"i expression

SET.2: /(union(\s+all)?|minus|except|intersect)\b/i
JOIN.2: /((left|right|full)(\s+outer)?|inner)\b/i
QUANTITY.2: "all"i | "distinct"i
DISTINCT.2: "distinct"i
BEST: "highest"i | "lowest"i
UNIT: /(milliseconds|seconds|minutes|hours|days)\b/i
UPDATE.2: /with\s+update\s+group\b/i
PINNED: "pinned"i
CUSTOM.2: /custom(?=\s*\()/i
ENTRANCE.2: /entrance\s+only\b/i
DIFF: /\$diff\b/i
USING: "using"i
WHEN: "when"i
DIRECTION: "asc"i | "desc"i
NULLS: /nulls\s+(first|last)\b/i
LIKE: "like"i
BETWEEN: "between"i
JOINED: "||"
STATUS.3: /(\w+\s*\.\s*)?\$row_status\s+is\s+(not\s+dead|new|dead)\b/i
IS_NULL.2: /is(\s+not)?\s+null\b/i
OR: "or"i
AND: "and"i
NOT: "not"i
IN: "in"i
COMPARE: "!=" | "<>" | "^=" | "<=" | ">=" | "=" | "<" | ">"
PLUS: "+"
MINUS: "-"
STAR: "*"
DIVIDE: "/" | "%"
NUMBER: /\d+(\.\d+)?/
STRING: /'[^']*'/
NAME: /(?!RESERVED\b)[a-z_]\w*/i
%ignore /\/\*(.|\n)*?\*\//
%ignore /\s+/
"""

_RESERVED = """
    select from where group by having order limit offset as and or not is in exists null case when then else end like
    between union minus except intersect left right full inner join asc desc nulls using store partition with to on
    correlate present alert
"""

_UNITS = {"milliseconds": 1, "seconds": 1000, "minutes": 60_000, "hours": 3_600_000, "days": 86_400_000}

_CONSTRUCTS = {
    "like or between in a partition's where": r"\bstore\b[^()]*\bwhere\b[^()]*\b(like|between)\b",
    "filters by class": r"\(\s*filter\s+using\b",
}
"""What is refused, and how it is seen in a text without its strings."""


def parse(text: str) -> Select:
    """The query of a text.

    Raises:
        UnsupportedError: It has a construct that is not read here.
    """
    bare = re.sub(r"'[^']*'|/\*.*?\*/", "''", text, flags=re.DOTALL).lower()
    for construct, seen in _CONSTRUCTS.items():
        if re.search(seen, bare):
            raise UnsupportedError(f"RQL: no {construct} yet")
    try:
        select: Select = _Structure().transform(_PARSER.parse(text))
    except UnexpectedInput as error:
        at = getattr(error, "pos_in_stream", 0) or 0
        raise UnsupportedError(f"RQL: no word for {text[at : at + 20]!r}") from error
    except VisitError as error:
        if isinstance(error.orig_exc, UnsupportedError):
            raise error.orig_exc from None
        raise
    return select


@v_args(inline=True)
class _Structure(Transformer[Token, Any]):
    # Expressions

    def name(self, first: str, second: str | None) -> Name:
        return Name(str(first) if second is None else f"{first}.{second}")

    def number(self, token: str) -> Literal:
        return Literal(int(token) if token.isdigit() else float(token))

    def string(self, token: str) -> Literal:
        return Literal(str(token[1:-1]))

    def nothing(self) -> Literal:
        return Literal(None)

    def call(self, name: str, distinct: str | None, *arguments: Expression | None) -> Call:
        given = tuple(argument for argument in arguments if argument is not None)
        return Call(name.lower(), given, distinct=distinct is not None)

    def call_all(self, name: str, _star: str) -> Call:
        return Call(name.lower(), (Star(),))

    def minus(self, _operator: str, operand: Expression) -> Expression:
        if isinstance(operand, Literal) and operand.value is not None:
            return Literal(-operand.value)
        return Operation("negative", (operand,))

    def negated(self, _operator: str, operand: Expression) -> Operation:
        return Operation("not", (operand,))

    def binary(self, left: Expression, operator: str, right: Expression) -> Operation:
        plain = {"<>": "!=", "^=": "!="}.get(operator, operator.lower())
        return Operation(plain, (left, right))

    def null(self, value: Expression, operator: str) -> Expression:
        return _unless("not" in operator.lower() or None, Operation("is null", (value,)))

    def within(self, value: Expression, no: str | None, _in: str, *values: Expression) -> Expression:
        return _unless(no, Operation("in", (value, *values)))

    def within_select(self, value: Expression, no: str | None, _in: str, select: Select) -> Expression:
        return _unless(no, Inner(select, value))  # type: ignore[arg-type]

    def alike(self, value: Expression, no: str | None, _like: str, pattern: str) -> Expression:
        return _unless(no, Operation("like", (value, self.string(pattern))))

    def between(self, value: Expression, no: str | None, *given: Any) -> Expression:
        low, high = (each for each in given if not isinstance(each, Token))
        return _unless(no, Operation("and", (Operation(">=", (value, low)), Operation("<=", (value, high)))))

    def exists(self, select: Select) -> Inner:
        return Inner(select)

    def status(self, token: str) -> Status:
        before, state = re.split(r"\$row_status\s+is\s+", token, flags=re.IGNORECASE)
        return Status(before.strip().rstrip(".").strip(), " ".join(state.lower().split()))

    def subject(self, value: Expression) -> Ordered:
        return Ordered(value, descending=False)

    def when(self, _when: str, condition: Expression, value: Expression) -> tuple[Expression, Expression]:
        return condition, value

    def case(self, subject: Ordered | None, *given: Any) -> Case:
        *branches, otherwise = given
        if subject is not None:
            branches = [(Operation("=", (subject.expression, value)), then) for value, then in branches]
        return Case(tuple(branches), Literal(None) if otherwise is None else otherwise)

    # Partitions

    def by(self, *names: str) -> tuple[str, ...]:
        if len(set(names)) < len(names):
            raise UnsupportedError("RQL: a partition by the same column twice is an error")
        return tuple(map(str, names))

    def provider(self, token: str) -> str:
        return str(token[1:-1])

    def maximum(self, number: str) -> int:
        return int(number)

    def update(self, _update: str, *names: str) -> tuple[str, ...]:
        return tuple(map(str, names))

    def sliding(self, size: str, provider: str | None) -> Pick:
        return Pick("sliding", int(size), provider=provider)

    def spanned(self, size: str, unit: str, maximum: int | None, provider: str | None) -> Pick:
        return Pick("time", maximum, int(size) * _UNITS[unit.lower()], provider=provider)

    def tumbling(self, size: str, provider: str | None) -> Pick:
        return Pick("tumbling", int(size), provider=provider)

    def random(self, size: str, provider: str | None) -> Pick:
        return Pick("random", int(size), provider=provider)

    def best(self, which: str, size: str, column: str, update: tuple[str, ...] | None, provider: str | None) -> Pick:
        return Pick(which.lower(), int(size), 0, str(column), update or (), provider)

    def diff(self, _diff: str, baseline: str | None) -> tuple[bool, str | None]:
        return True, None if baseline is None else str(baseline[1:-1])

    def aggregate(self, function: str, column: str, diff: Any, entrance: str | None, name: str) -> AggregateCall:
        is_diff, baseline = diff or (False, None)
        return AggregateCall(function.lower(), str(column), str(name), is_diff, baseline, entrance is not None)

    def custom(self, _custom: str, _function: str, *given: Any) -> AggregateCall:
        return AggregateCall("custom", "", str(given[-1]))

    def with_(self, pinned: str | None, *aggregates: AggregateCall) -> tuple[bool, tuple[AggregateCall, ...]]:
        return pinned is not None, aggregates

    def part(self, by: tuple[str, ...] | None, pick: Pick, aggregates: Any, where: Expression | None) -> Part:
        pinned, calls = aggregates or (False, ())
        return Part(by or (), pick, calls, pinned, where)

    def chain(self, *given: Part) -> tuple[Part, ...]:
        return given

    # Clauses

    def partition(self, name: str, chain: tuple[Part, ...], alias: str) -> Table:
        return Table(str(name), str(alias), chain)

    def plain(self, name: str, alias: str | None) -> Table:
        return Table(str(name), str(alias or name))

    def itself(self, of: str, alias: str) -> Table:
        return Table(str(of), str(alias), itself=True)

    def projected(self, alias: str, column: str, name: str) -> tuple[str, str, str]:
        return str(alias), str(column), str(name)

    def correlated(self, name: str, chain: tuple[Part, ...], alias: str, column: str) -> tuple[Table, str]:
        return Table(str(name), str(alias), chain), str(column)

    def wanted(self, no: str | None, alias: str) -> tuple[str, bool]:
        return str(alias), no is None

    def present(self, *wanted: tuple[str, bool]) -> list[tuple[str, bool]]:
        return list(wanted)

    def alert(self, *given: Any) -> Alert:
        columns = tuple(each for each in given if isinstance(each, tuple) and len(each) == 3)
        correlated = [each for each in given if isinstance(each, tuple) and len(each) == 2]
        patterns = tuple(tuple(each) for each in given if isinstance(each, list))
        on = tuple((table.alias, column) for table, column in correlated)
        return Alert(columns, tuple(table for table, _ in correlated), on, patterns)

    def everything(self, *given: str) -> Star | Name:
        return Star() if len(given) == 1 else Name(f"{given[0]}.*")

    def item(self, expression: Expression, name: str | None = None) -> tuple[Expression, str]:
        if name is None:
            name = expression.name.rpartition(".")[2] if isinstance(expression, Name) else ""
        return expression, str(name)

    def items(self, *items: tuple[Expression, str]) -> tuple[tuple[Expression, str], ...]:
        return items

    def source(self, *tables: Any) -> Any:
        return tables

    def where(self, condition: Expression) -> Expression:
        return condition

    def groups(self, *expressions: Expression) -> tuple[Expression, ...]:
        return expressions

    def having(self, condition: Expression) -> Expression:
        return condition

    def sorted(self, expression: Expression, direction: str | None, nulls: str | None) -> Sorted:
        descending = (direction or "").lower() == "desc"
        first = not descending if nulls is None else "first" in nulls.lower()
        return Sorted(Ordered(expression, descending), first)

    def order(self, *ordered: Sorted) -> tuple[Sorted, ...]:
        return ordered

    def first(self, number: str) -> int:
        return int(number)

    def limit(self, rows: str, offset: str | None) -> tuple[int, int]:
        return int(rows), int(offset or 0)

    def selected(self, select: Select, alias: str) -> Table:
        return Table("", str(alias), select=select)

    def joined(self, *given: Any) -> Table:
        how, table, on = given if len(given) > 1 else (None, given[0], None)
        assert isinstance(table, Table)
        return replace(table, how="inner" if how is None else how.split()[0].lower(), on=on)

    def picked(self, *given: Any) -> Select:
        return self.select(None, *given, None, None)

    def select(self, *given: Any) -> Select:
        first, quantity, items, tables, where, groups, having, *sets, order, limit = given
        alert = tables[0] if isinstance(tables[0], Alert) else None
        rows, offset = limit or (first, 0)
        distinct = (quantity or "").lower() == "distinct"
        words = (" ".join(word.lower().split()).replace("except", "minus") for word in sets[::2])
        return Select(
            items=items,
            tables=() if alert else tables,
            alert=alert,
            where=where,
            groups=groups or (),
            having=having,
            order=order or (),
            distinct=distinct,
            limit=rows,
            offset=offset,
            others=tuple(zip(words, sets[1::2], strict=True)),
        )

    def start(self, select: Select) -> Select:
        return select


def _unless(no: Any, operation: Expression) -> Expression:
    return operation if no is None else Operation("not", (operation,))


_PARSER = Lark(_GRAMMAR.replace("RESERVED", f"({'|'.join(_RESERVED.split())})"), parser="lalr")
