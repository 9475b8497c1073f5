"""What a query in EPL says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from gpu_ops.epl.patterns import Annotation, EventFilter, PatternTerm, RowPattern
from gpu_ops.texts.expressions import (
    Argument,
    Expression,
    FunctionCall,
    Period,
    SortKey,
    Syntax,
    listed,
    ticked,
    within,
)

Selector: TypeAlias = Literal["", "istream", "rstream", "irstream"]
Selection: TypeAlias = Literal["", "first", "last", "all", "snapshot"]
Retain: TypeAlias = Literal["", "union", "intersection"]


@dataclass(frozen=True)
class SelectItem(Syntax):
    """A column of a select clause, and its name if it has one; `*` and `stream.*` are wildcards."""

    expression: Expression
    alias: str = ""
    annotations: tuple[Annotation, ...] = ()

    def __str__(self) -> str:
        return words(self.expression, *self.annotations, as_alias(self.alias))


@dataclass(frozen=True)
class InsertInto(Syntax):
    """The stream or named window that rows go to, which of them, and what the columns are called there."""

    target: str
    selector: Selector = ""
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        return words("insert", self.selector, "into", ticked(self.target)) + column_names(self.columns)


@dataclass(frozen=True)
class PatternSource(Syntax):
    """`pattern [..]`, the matches of an event pattern."""

    pattern: PatternTerm
    annotations: tuple[Annotation, ...] = ()

    def __str__(self) -> str:
        return words("pattern", *self.annotations, f"[{self.pattern}]")


@dataclass(frozen=True)
class View(Syntax):
    """A data window or a derived view: `#time(10 sec)`, `.win:time(10 sec)`."""

    name: str
    arguments: tuple[Argument, ...] = ()
    namespace: str = ""

    def __str__(self) -> str:
        namespace = f"{ticked(self.namespace)}:" if self.namespace else ""
        return f"#{namespace}{ticked(self.name)}({listed(self.arguments)})"


@dataclass(frozen=True)
class StreamTerm(Syntax):
    """One stream of a from clause."""

    source: EventFilter | PatternSource
    views: tuple[View, ...] = ()
    alias: str = ""
    unidirectional: bool = False
    retain: Retain = ""

    def __str__(self) -> str:
        retain = f"retain-{self.retain}" if self.retain else ""
        source = f"{self.source}{''.join(map(str, self.views))}"
        return words(source, as_alias(self.alias), "unidirectional" * self.unidirectional, retain)


@dataclass(frozen=True)
class JoinTerm(Syntax):
    """A further stream of a from clause; behind a comma it is a cross join, whose condition is in the where clause."""

    kind: Literal["cross", "inner", "left", "right", "full"]
    stream: StreamTerm
    on: Expression | None = None

    def __str__(self) -> str:
        if self.kind == "cross":
            return f", {self.stream}"
        kind = "inner" if self.kind == "inner" else f"{self.kind} outer"
        return f" {words(kind, 'join', self.stream, clause('on', self.on))}"


@dataclass(frozen=True)
class GroupingSets(Syntax):
    """`rollup(..)`, `cube(..)` or `grouping sets(..)`."""

    kind: Literal["rollup", "cube", "grouping sets"]
    items: tuple[Grouping, ...]

    def __str__(self) -> str:
        return f"{self.kind}({listed(self.items)})"


@dataclass(frozen=True)
class GroupingKeys(Syntax):
    """`(a,b)`, or `()`: keys that a rollup takes together."""

    keys: tuple[Expression, ...]

    def __str__(self) -> str:
        return f"({listed(self.keys)})"


Grouping: TypeAlias = Expression | GroupingSets | GroupingKeys


@dataclass(frozen=True)
class Assignment(Syntax):
    """`target = value`; the value is None where a function that is called assigns by itself."""

    target: Expression
    value: Expression | None

    def __str__(self) -> str:
        return str(self.target) if self.value is None else f"{self.target}={self.value}"


@dataclass(frozen=True)
class EventCount(Syntax):
    """`count events`."""

    count: Expression

    def __str__(self) -> str:
        return f"{within(self.count, 10)} events"


@dataclass(frozen=True)
class Crontab(Syntax):
    """`(minutes, hours, days of month, months, days of week, seconds, time zone)`; `*` is a wildcard."""

    fields: tuple[Argument, ...]

    def __str__(self) -> str:
        return f"({listed(self.fields)})"


@dataclass(frozen=True)
class OutputWhen(Syntax):
    """`when condition then set assignments`."""

    condition: Expression
    assignments: tuple[Assignment, ...] = ()

    def __str__(self) -> str:
        return words("when", self.condition, listed_behind("then set", self.assignments))


@dataclass(frozen=True)
class OutputTerminated(Syntax):
    """`when terminated and condition then set assignments`: when a context partition ends."""

    condition: Expression | None = None
    assignments: tuple[Assignment, ...] = ()

    def __str__(self) -> str:
        return words("when terminated", clause("and", self.condition), listed_behind("then set", self.assignments))


@dataclass(frozen=True)
class Output(Syntax):
    """When rows are output, and which of those since the last time.

    Attributes:
        selection: `first`, `last`, `all`, `snapshot`, or nothing for the rows as they came.
        after: What must pass before anything is output.
        rate: Every so often, so many events, at a crontab's times, or when a condition holds.
        terminated: Whether there is output when the context partition ends, if there is.
    """

    selection: Selection = ""
    after: Period | EventCount | None = None
    rate: Period | EventCount | Crontab | OutputWhen | None = None
    terminated: OutputTerminated | None = None

    def __str__(self) -> str:
        before = {Period: "every ", EventCount: "every ", Crontab: "at "}.get(type(self.rate), "")
        rate = "" if self.rate is None else f"{before}{self.rate}"
        both = "and" if self.terminated is not None and self.rate is not None else ""
        return words("output", clause("after", self.after), self.selection, rate, both, self.terminated)


@dataclass(frozen=True)
class Limit(Syntax):
    """At most so many rows of a delivery, and how many are left out before them."""

    rows: Expression
    offset: Expression | None = None

    def __str__(self) -> str:
        offset = "" if self.offset is None else f"offset {within(self.offset, 10)}"
        return words("limit", within(self.rows, 10), offset)


@dataclass(frozen=True)
class Definition(Syntax):
    """Which rows a name of a row pattern stands for."""

    name: str
    condition: Expression

    def __str__(self) -> str:
        return f"{ticked(self.name)} as {self.condition}"


@dataclass(frozen=True)
class MatchRecognize(Syntax):
    """A pattern of rows. `skip` says where the next match may begin."""

    measures: tuple[SelectItem, ...]
    pattern: RowPattern
    definitions: tuple[Definition, ...] = ()
    partition_by: tuple[Expression, ...] = ()
    all_matches: bool = False
    skip: Literal["past last row", "to next row", "to current row"] = "past last row"
    interval: Period | None = None
    or_terminated: bool = False

    def __str__(self) -> str:
        parts = (
            listed_behind("partition by", self.partition_by),
            listed_behind("measures", self.measures),
            "all matches" * self.all_matches,
            "" if self.skip == "past last row" else f"after match skip {self.skip}",
            f"pattern ({self.pattern})",
            clause("interval", self.interval),
            "or terminated" * self.or_terminated,
            listed_behind("define", self.definitions),
        )
        return f"match_recognize ({words(*parts)})"


@dataclass(frozen=True)
class Query(Syntax):
    """A select statement, or a sub-query.

    Attributes:
        items: Its columns.
        stream: The first stream of its from clause.
        joins: The others.
        selector: Which rows are shown, nothing where it is not said.
        distinct: Whether equal rows are shown once.
        recognize: Its match_recognize clause.
        where: Which events are aggregated and shown.
        group_by: The keys of its groups.
        having: Which rows are shown.
        output: When.
        order_by: In which order.
        limit: How many.
        insert: Where its rows go as well.
        into_table: The table that its aggregates are kept in.
        deleting: Whether the rows that a trigger selects are deleted too.
        delivery: What is behind `for`, such as `for grouped_delivery(key)`.
    """

    items: tuple[SelectItem, ...]
    stream: StreamTerm
    joins: tuple[JoinTerm, ...] = ()
    selector: Selector = ""
    distinct: bool = False
    recognize: MatchRecognize | None = None
    where: Expression | None = None
    group_by: tuple[Grouping, ...] = ()
    having: Expression | None = None
    output: Output | None = None
    order_by: tuple[SortKey, ...] = ()
    limit: Limit | None = None
    insert: InsertInto | None = None
    into_table: str = ""
    deleting: bool = False
    delivery: tuple[FunctionCall, ...] = ()

    @property
    def streams(self) -> tuple[StreamTerm, ...]:
        """All streams of the from clause."""
        return self.stream, *(join.stream for join in self.joins)

    def __str__(self) -> str:
        return words(
            f"into table {ticked(self.into_table)}" if self.into_table else "",
            self.insert,
            "select",
            "delete" * self.deleting,
            self.selector,
            "distinct" * self.distinct,
            listed(self.items),
            f"from {self.stream}{''.join(map(str, self.joins))}",
            self.recognize,
            clause("where", self.where),
            listed_behind("group by", self.group_by),
            clause("having", self.having),
            self.output,
            listed_behind("order by", self.order_by),
            self.limit,
            *(f"for {call}" for call in self.delivery),
        )


@dataclass(frozen=True)
class Subquery(Expression):
    """A query in parentheses, for its value or its rows."""

    in_parentheses = True
    query: Query

    def __str__(self) -> str:
        return f"({self.query})"


@dataclass(frozen=True)
class Exists(Expression):
    """Whether a query has rows."""

    query: Query

    def __str__(self) -> str:
        return f"exists ({self.query})"


def words(*parts: object) -> str:
    """Texts with spaces between; None and empty texts are left out."""
    return " ".join(text for text in (str(part) for part in parts if part is not None) if text)


def clause(word: str, node: Syntax | None) -> str:
    """A word and what stands behind it, if anything does."""
    return "" if node is None else f"{word} {node}"


def listed_behind(word: str, nodes: tuple[Syntax, ...], comma: str = ",") -> str:
    """A word and the list that stands behind it, if it is not empty."""
    return f"{word} {comma.join(map(str, nodes))}" if nodes else ""


def column_names(names: tuple[str, ...]) -> str:
    """The columns behind what rows are inserted into."""
    return f"({','.join(map(ticked, names))})" if names else ""


def as_alias(alias: str) -> str:
    """The name behind what it is given to."""
    return f"as {ticked(alias)}" if alias else ""
