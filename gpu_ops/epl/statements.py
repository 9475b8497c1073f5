"""What a statement in EPL says. `str` of each is a text that parses to an equal one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gpu_ops.epl.expressions import (
    Argument,
    Expression,
    FunctionCall,
    LambdaFunction,
    Period,
    SortKey,
    Syntax,
    TypeName,
    dotted,
    listed,
    ticked,
    within,
)
from gpu_ops.epl.patterns import Annotation, EventFilter, PatternTerm, RowPattern

Selector: TypeAlias = Literal["", "istream", "rstream", "irstream"]
Selection: TypeAlias = Literal["", "first", "last", "all", "snapshot"]
Retain: TypeAlias = Literal["", "union", "intersection"]


@dataclass(frozen=True)
class Statement(Syntax):
    """What a text deploys: a body, its annotations, the expressions that it declares, and its context.

    Examples:
        >>> from gpu_ops.epl import parse
        >>> (statement,) = parse("@name('large') select * from Withdrawal(amount >= 200)")
        >>> statement.name
        'large'
        >>> str(statement)
        "@name('large') select * from Withdrawal(amount>=200)"
    """

    body: Body
    annotations: tuple[Annotation, ...] = ()
    declarations: tuple[ExpressionDeclaration, ...] = ()
    context: str = ""

    @property
    def name(self) -> str:
        """What `@name` says, else nothing."""
        named = [each.value for each in self.annotations if each.name.lower() == "name"]
        return named[-1] if named and isinstance(named[-1], str) else ""

    def __str__(self) -> str:
        context = f"context {ticked(self.context)}" if self.context else ""
        return _words(*self.annotations, *self.declarations, context, self.body)


@dataclass(frozen=True)
class ExpressionDeclaration(Syntax):
    """`expression name {body}`, whose body may be a lambda; `expression name alias for {body}`."""

    name: str
    body: Expression | LambdaFunction
    alias: bool = False

    def __str__(self) -> str:
        return f"expression {ticked(self.name)} {'alias for ' * self.alias}{{{self.body}}}"


# Queries


@dataclass(frozen=True)
class SelectItem(Syntax):
    """A column of a select clause, and its name if it has one; `*` and `stream.*` are wildcards."""

    expression: Expression
    alias: str = ""
    annotations: tuple[Annotation, ...] = ()

    def __str__(self) -> str:
        return _words(self.expression, *self.annotations, _alias(self.alias))


@dataclass(frozen=True)
class InsertInto(Syntax):
    """The stream or named window that rows go to, which of them, and what the columns are called there."""

    target: str
    selector: Selector = ""
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        return _words("insert", self.selector, "into", ticked(self.target)) + _names(self.columns)


@dataclass(frozen=True)
class PatternSource(Syntax):
    """`pattern [..]`, the matches of an event pattern."""

    pattern: PatternTerm
    annotations: tuple[Annotation, ...] = ()

    def __str__(self) -> str:
        return _words("pattern", *self.annotations, f"[{self.pattern}]")


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
        return _words(source, _alias(self.alias), "unidirectional" * self.unidirectional, retain)


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
        return f" {_words(kind, 'join', self.stream, _clause('on', self.on))}"


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
        return _words("when", self.condition, _list("then set", self.assignments))


@dataclass(frozen=True)
class OutputTerminated(Syntax):
    """`when terminated and condition then set assignments`: when a context partition ends."""

    condition: Expression | None = None
    assignments: tuple[Assignment, ...] = ()

    def __str__(self) -> str:
        return _words("when terminated", _clause("and", self.condition), _list("then set", self.assignments))


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
        return _words("output", _clause("after", self.after), self.selection, rate, both, self.terminated)


@dataclass(frozen=True)
class Limit(Syntax):
    """At most so many rows of a delivery, and how many are left out before them."""

    rows: Expression
    offset: Expression | None = None

    def __str__(self) -> str:
        offset = "" if self.offset is None else f"offset {within(self.offset, 10)}"
        return _words("limit", within(self.rows, 10), offset)


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
            _list("partition by", self.partition_by),
            _list("measures", self.measures),
            "all matches" * self.all_matches,
            "" if self.skip == "past last row" else f"after match skip {self.skip}",
            f"pattern ({self.pattern})",
            _clause("interval", self.interval),
            "or terminated" * self.or_terminated,
            _list("define", self.definitions),
        )
        return f"match_recognize ({_words(*parts)})"


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
        return _words(
            f"into table {ticked(self.into_table)}" if self.into_table else "",
            self.insert,
            "select",
            "delete" * self.deleting,
            self.selector,
            "distinct" * self.distinct,
            listed(self.items),
            f"from {self.stream}{''.join(map(str, self.joins))}",
            self.recognize,
            _clause("where", self.where),
            _list("group by", self.group_by),
            _clause("having", self.having),
            self.output,
            _list("order by", self.order_by),
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


# Triggers


@dataclass(frozen=True)
class Trigger(Syntax):
    """What an on clause waits for."""

    source: EventFilter | PatternSource
    alias: str = ""

    def __str__(self) -> str:
        return _words("on", self.source, _alias(self.alias))


@dataclass(frozen=True)
class OnQuery(Syntax):
    """`on trigger select ..`: a query over a named window or table, asked by an event."""

    trigger: Trigger
    query: Query

    def __str__(self) -> str:
        return f"{self.trigger} {self.query}"


@dataclass(frozen=True)
class SplitBranch(Syntax):
    """Where the triggering event goes if a condition holds, and as what."""

    insert: InsertInto
    items: tuple[SelectItem, ...]
    where: Expression | None = None

    def __str__(self) -> str:
        return _words(self.insert, "select", listed(self.items), _clause("where", self.where))


@dataclass(frozen=True)
class OnSplit(Syntax):
    """`on trigger insert into .. select .. insert into .. select ..`: the first branch that fits, or all."""

    trigger: Trigger
    branches: tuple[SplitBranch, ...]
    all_branches: bool = False

    def __str__(self) -> str:
        return _words(self.trigger, *self.branches, "output all" * self.all_branches)


@dataclass(frozen=True)
class OnDelete(Syntax):
    """`on trigger delete from target where ..`."""

    trigger: Trigger
    target: str
    alias: str = ""
    where: Expression | None = None

    def __str__(self) -> str:
        target = _words(ticked(self.target), _alias(self.alias))
        return _words(self.trigger, "delete from", target, _clause("where", self.where))


@dataclass(frozen=True)
class OnUpdate(Syntax):
    """`on trigger update target set .. where ..`."""

    trigger: Trigger
    target: str
    alias: str
    assignments: tuple[Assignment, ...]
    where: Expression | None = None

    def __str__(self) -> str:
        target = _words("update", ticked(self.target), _alias(self.alias))
        return _words(self.trigger, target, _list("set", self.assignments), _clause("where", self.where))


@dataclass(frozen=True)
class OnSet(Syntax):
    """`on trigger set variable = value`."""

    trigger: Trigger
    assignments: tuple[Assignment, ...]

    def __str__(self) -> str:
        return _words(self.trigger, _list("set", self.assignments))


@dataclass(frozen=True)
class MergeInsert(Syntax):
    """`insert into target(columns) select ..`; without a target rows go to what is merged."""

    items: tuple[SelectItem, ...]
    target: str = ""
    columns: tuple[str, ...] = ()
    where: Expression | None = None

    def __str__(self) -> str:
        into = f"into {ticked(self.target)}" if self.target else ""
        insert = _words("insert", into) + _names(self.columns)
        return _words(insert, "select", listed(self.items), _clause("where", self.where))


@dataclass(frozen=True)
class MergeUpdate(Syntax):
    """`update set .. where ..`."""

    assignments: tuple[Assignment, ...]
    where: Expression | None = None

    def __str__(self) -> str:
        return _words("update", _list("set", self.assignments), _clause("where", self.where))


@dataclass(frozen=True)
class MergeDelete(Syntax):
    """`delete where ..`."""

    where: Expression | None = None

    def __str__(self) -> str:
        return _words("delete", _clause("where", self.where))


@dataclass(frozen=True)
class MergeBranch(Syntax):
    """`when [not] matched and condition then ..`; `matched` is None for an insert that asks for no match."""

    matched: bool | None
    actions: tuple[MergeInsert | MergeUpdate | MergeDelete, ...]
    condition: Expression | None = None

    def __str__(self) -> str:
        if self.matched is None:
            return " ".join(map(str, self.actions))
        when = _words("when", "" if self.matched else "not", "matched", _clause("and", self.condition))
        return _words(when, *(f"then {action}" for action in self.actions))


@dataclass(frozen=True)
class OnMerge(Syntax):
    """`on trigger merge target where .. when matched then .. when not matched then ..`."""

    trigger: Trigger
    target: str
    alias: str
    where: Expression | None
    branches: tuple[MergeBranch, ...]

    def __str__(self) -> str:
        target = _words("merge", ticked(self.target), _alias(self.alias), _clause("where", self.where))
        return _words(self.trigger, target, *self.branches)


@dataclass(frozen=True)
class UpdateStream(Syntax):
    """`update istream type set .. where ..`: events are changed before statements see them."""

    type_name: str
    alias: str
    assignments: tuple[Assignment, ...]
    where: Expression | None = None

    def __str__(self) -> str:
        target = _words("update istream", dotted(self.type_name), _alias(self.alias))
        return _words(target, _list("set", self.assignments), _clause("where", self.where))


# What is made


@dataclass(frozen=True)
class ColumnDefinition(Syntax):
    """A column of a schema, a window or a table; a table's may be an aggregate."""

    name: str
    type: TypeName | FunctionCall
    primary_key: bool = False
    annotations: tuple[Annotation, ...] = ()

    def __str__(self) -> str:
        return _words(ticked(self.name), self.type, "primary key" * self.primary_key, *self.annotations)


@dataclass(frozen=True)
class CreateSchema(Syntax):
    """`create kind schema name (columns)`, or `as types`; options are `inherits`, `copyfrom` and the like, by word."""

    name: str
    columns: tuple[ColumnDefinition, ...] | None = None
    types: tuple[str, ...] = ()
    kind: str = ""
    options: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __str__(self) -> str:
        types = ",".join(each if each == "*" else dotted(each) for each in self.types)
        content = f"as {types}" if self.columns is None else f"({listed(self.columns)})"
        options = (f"{word} {','.join(map(dotted, names))}" for word, names in self.options)
        kind = ticked(self.kind) if self.kind else ""
        return _words("create", kind, "schema", ticked(self.name), content, *options)


@dataclass(frozen=True)
class CreateWindow(Syntax):
    """`create window name#view as type`, or `as select .. from type`, or `as (columns)`."""

    name: str
    views: tuple[View, ...] = ()
    type_name: str = ""
    items: tuple[SelectItem, ...] = ()
    columns: tuple[ColumnDefinition, ...] | None = None
    retain: Retain = ""

    def __str__(self) -> str:
        retain = f"retain-{self.retain}" if self.retain else ""
        name = ticked(self.name) + "".join(map(str, self.views))
        if self.columns is not None:
            return _words("create window", name, retain, "as", f"({listed(self.columns)})")
        items = f"select {listed(self.items)} from" if self.items else ""
        return _words("create window", name, retain, "as", items, dotted(self.type_name))


@dataclass(frozen=True)
class CreateTable(Syntax):
    """`create table name (columns)`."""

    name: str
    columns: tuple[ColumnDefinition, ...]

    def __str__(self) -> str:
        return f"create table {ticked(self.name)} ({listed(self.columns)})"


@dataclass(frozen=True)
class CreateVariable(Syntax):
    """`create constant variable type name = value`."""

    name: str
    type: TypeName
    value: Expression | None = None
    constant: bool = False

    def __str__(self) -> str:
        value = "" if self.value is None else f" = {self.value}"
        return _words("create", "constant" * self.constant, "variable", self.type, ticked(self.name)) + value


@dataclass(frozen=True)
class CreateIndex(Syntax):
    """`create unique index name on target (column kind)`; a kind is `hash` or `btree`, nothing where it is not said."""

    name: str
    target: str
    columns: tuple[tuple[str, str], ...]
    unique: bool = False

    def __str__(self) -> str:
        columns = ",".join(_words(ticked(name), ticked(kind) if kind else "") for name, kind in self.columns)
        index = _words("create", "unique" * self.unique, "index", ticked(self.name))
        return f"{index} on {ticked(self.target)}({columns})"


@dataclass(frozen=True)
class CreateExpression(Syntax):
    """An expression declaration for all statements."""

    declaration: ExpressionDeclaration

    def __str__(self) -> str:
        return f"create {self.declaration}"


# Contexts


@dataclass(frozen=True)
class ContextCondition(Syntax):
    """An event or a pattern that starts or ends a context partition; others are `Crontab` and `Period`."""

    source: EventFilter | PatternSource
    alias: str = ""
    annotations: tuple[Annotation, ...] = ()

    def __str__(self) -> str:
        return _words(self.source, *self.annotations, _alias(self.alias))


Condition: TypeAlias = ContextCondition | Crontab | Period


@dataclass(frozen=True)
class ContextKey(Syntax):
    """The keys by which events of a type belong to a partition."""

    keys: tuple[Expression, ...]
    events: EventFilter
    alias: str = ""

    def __str__(self) -> str:
        return _words(listed(self.keys), "from", self.events, _alias(self.alias))


@dataclass(frozen=True)
class KeyedContext(Syntax):
    """`partition by keys from type`: a partition for each key."""

    keys: tuple[ContextKey, ...]
    initiated: Condition | None = None
    terminated: Condition | None = None

    def __str__(self) -> str:
        ends = _condition("initiated by", self.initiated), _condition("terminated by", self.terminated)
        return _words(_list("partition by", self.keys, ", "), *ends)


@dataclass(frozen=True)
class ContextHash(Syntax):
    """The function that gives the number of the partition of a type's events."""

    function: FunctionCall
    events: EventFilter

    def __str__(self) -> str:
        return f"{self.function} from {self.events}"


@dataclass(frozen=True)
class HashContext(Syntax):
    """`coalesce by function(key) from type granularity n`: n partitions."""

    hashes: tuple[ContextHash, ...]
    granularity: int
    preallocate: bool = False

    def __str__(self) -> str:
        granularity = f"granularity {self.granularity}"
        return _words(_list("coalesce by", self.hashes, ", "), granularity, "preallocate" * self.preallocate)


@dataclass(frozen=True)
class ContextCategory(Syntax):
    """The condition of a category, and its label."""

    condition: Expression
    label: str

    def __str__(self) -> str:
        return f"group {self.condition} as {ticked(self.label)}"


@dataclass(frozen=True)
class CategoryContext(Syntax):
    """`group condition as label, .. from type`: a partition for each category."""

    categories: tuple[ContextCategory, ...]
    events: EventFilter

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.categories))} from {self.events}"


@dataclass(frozen=True)
class StartEndContext(Syntax):
    """`start condition end condition`: at most one partition at a time."""

    start: Condition
    end: Condition | None = None

    def __str__(self) -> str:
        return _words(_condition("start", self.start), _condition("end", self.end))


@dataclass(frozen=True)
class OverlappingContext(Syntax):
    """`initiated by condition terminated by condition`: a partition for each start.

    Attributes:
        initiated: What starts a partition; None where `@now` alone does.
        terminated: What ends it.
        distinct: One partition at a time for each value of these.
        now: Whether the first partition starts at once.
    """

    initiated: Condition | None
    terminated: Condition | None = None
    distinct: tuple[Expression, ...] = ()
    now: bool = False

    def __str__(self) -> str:
        distinct = f"distinct({listed(self.distinct)})" if self.distinct else ""
        both = " and".join(["@now" * self.now, ""]) if self.initiated is not None and self.now else "@now" * self.now
        start = _words("initiated by", distinct, both, _condition("", self.initiated))
        return _words(start, _condition("terminated by", self.terminated))


ContextKind: TypeAlias = KeyedContext | HashContext | CategoryContext | StartEndContext | OverlappingContext


@dataclass(frozen=True)
class NestedContext(Syntax):
    """`context a .., context b ..`: partitions of b within each partition of a."""

    contexts: tuple[tuple[str, ContextKind], ...]

    def __str__(self) -> str:
        return ", ".join(f"context {ticked(name)} {context}" for name, context in self.contexts)


@dataclass(frozen=True)
class CreateContext(Syntax):
    """`create context name ..`."""

    name: str
    context: ContextKind | NestedContext

    def __str__(self) -> str:
        return f"create context {ticked(self.name)} {self.context}"


Body: TypeAlias = (
    Query
    | OnQuery
    | OnSplit
    | OnDelete
    | OnUpdate
    | OnSet
    | OnMerge
    | UpdateStream
    | CreateSchema
    | CreateWindow
    | CreateTable
    | CreateVariable
    | CreateIndex
    | CreateExpression
    | CreateContext
)


def unparse(statements: Iterable[Statement]) -> str:
    """The text of statements: parsed again, it gives statements that are equal to these.

    Examples:
        >>> from gpu_ops.epl import parse, unparse
        >>> print(unparse(parse("SELECT a FROM T WHERE (b > 1) ; select * from U")))
        select a from T where b>1;
        select * from U
    """
    return ";\n".join(map(str, statements))


def _words(*parts: object) -> str:
    """Texts with spaces between; None and empty texts are left out."""
    return " ".join(text for text in (str(part) for part in parts if part is not None) if text)


def _clause(word: str, node: Syntax | None) -> str:
    return "" if node is None else f"{word} {node}"


def _list(word: str, nodes: tuple[Syntax, ...], comma: str = ",") -> str:
    return f"{word} {comma.join(map(str, nodes))}" if nodes else ""


def _names(names: tuple[str, ...]) -> str:
    return f"({','.join(map(ticked, names))})" if names else ""


def _alias(alias: str) -> str:
    return f"as {ticked(alias)}" if alias else ""


def _condition(word: str, condition: Condition | None) -> str:
    """Words that `by` ends have none before `after`."""
    if not isinstance(condition, Period):
        return "" if condition is None else _words(word, condition)
    return _words(word.removesuffix("by").strip(), "after", condition)
