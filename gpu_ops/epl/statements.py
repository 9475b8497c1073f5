"""What a statement in EPL says: a query, a trigger, or something that is made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from gpu_ops.epl.patterns import Annotation, EventFilter
from gpu_ops.epl.queries import (
    Assignment,
    Crontab,
    InsertInto,
    PatternSource,
    Query,
    Retain,
    SelectItem,
    View,
    as_alias,
    clause,
    column_names,
    listed_behind,
    words,
)
from gpu_ops.errors import PlanError, shown
from gpu_ops.texts.expressions import (
    Expression,
    FunctionCall,
    LambdaFunction,
    Period,
    Syntax,
    TypeName,
    dotted,
    listed,
    ticked,
)


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
        return words(*self.annotations, *self.declarations, context, self.body)


@dataclass(frozen=True)
class ExpressionDeclaration(Syntax):
    """`expression name {body}`, whose body may be a lambda; `expression name alias for {body}`."""

    name: str
    body: Expression | LambdaFunction
    alias: bool = False

    def __str__(self) -> str:
        return f"expression {ticked(self.name)} {'alias for ' * self.alias}{{{self.body}}}"


# Triggers


@dataclass(frozen=True)
class Trigger(Syntax):
    """What an on clause waits for."""

    source: EventFilter | PatternSource
    alias: str = ""

    def __str__(self) -> str:
        return words("on", self.source, as_alias(self.alias))


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
        return words(self.insert, "select", listed(self.items), clause("where", self.where))


@dataclass(frozen=True)
class OnSplit(Syntax):
    """`on trigger insert into .. select .. insert into .. select ..`: the first branch that fits, or all."""

    trigger: Trigger
    branches: tuple[SplitBranch, ...]
    all_branches: bool = False

    def __str__(self) -> str:
        return words(self.trigger, *self.branches, "output all" * self.all_branches)


@dataclass(frozen=True)
class OnDelete(Syntax):
    """`on trigger delete from target where ..`."""

    trigger: Trigger
    target: str
    alias: str = ""
    where: Expression | None = None

    def __str__(self) -> str:
        target = words(ticked(self.target), as_alias(self.alias))
        return words(self.trigger, "delete from", target, clause("where", self.where))


@dataclass(frozen=True)
class OnUpdate(Syntax):
    """`on trigger update target set .. where ..`."""

    trigger: Trigger
    target: str
    alias: str
    assignments: tuple[Assignment, ...]
    where: Expression | None = None

    def __str__(self) -> str:
        target = words("update", ticked(self.target), as_alias(self.alias))
        return words(self.trigger, target, listed_behind("set", self.assignments), clause("where", self.where))


@dataclass(frozen=True)
class OnSet(Syntax):
    """`on trigger set variable = value`."""

    trigger: Trigger
    assignments: tuple[Assignment, ...]

    def __str__(self) -> str:
        return words(self.trigger, listed_behind("set", self.assignments))


@dataclass(frozen=True)
class MergeInsert(Syntax):
    """`insert into target(columns) select ..`; without a target rows go to what is merged."""

    items: tuple[SelectItem, ...]
    target: str = ""
    columns: tuple[str, ...] = ()
    where: Expression | None = None

    def __str__(self) -> str:
        into = f"into {ticked(self.target)}" if self.target else ""
        insert = words("insert", into) + column_names(self.columns)
        return words(insert, "select", listed(self.items), clause("where", self.where))


@dataclass(frozen=True)
class MergeUpdate(Syntax):
    """`update set .. where ..`."""

    assignments: tuple[Assignment, ...]
    where: Expression | None = None

    def __str__(self) -> str:
        return words("update", listed_behind("set", self.assignments), clause("where", self.where))


@dataclass(frozen=True)
class MergeDelete(Syntax):
    """`delete where ..`."""

    where: Expression | None = None

    def __str__(self) -> str:
        return words("delete", clause("where", self.where))


@dataclass(frozen=True)
class MergeBranch(Syntax):
    """`when [not] matched and condition then ..`; `matched` is None for an insert that asks for no match."""

    matched: bool | None
    actions: tuple[MergeInsert | MergeUpdate | MergeDelete, ...]
    condition: Expression | None = None

    def __str__(self) -> str:
        if self.matched is None:
            return " ".join(map(str, self.actions))
        when = words("when", "" if self.matched else "not", "matched", clause("and", self.condition))
        return words(when, *(f"then {action}" for action in self.actions))


@dataclass(frozen=True)
class OnMerge(Syntax):
    """`on trigger merge target where .. when matched then .. when not matched then ..`."""

    trigger: Trigger
    target: str
    alias: str
    where: Expression | None
    branches: tuple[MergeBranch, ...]

    def __str__(self) -> str:
        target = words("merge", ticked(self.target), as_alias(self.alias), clause("where", self.where))
        return words(self.trigger, target, *self.branches)


@dataclass(frozen=True)
class UpdateStream(Syntax):
    """`update istream type set .. where ..`: events are changed before statements see them."""

    type_name: str
    alias: str
    assignments: tuple[Assignment, ...]
    where: Expression | None = None

    def __str__(self) -> str:
        target = words("update istream", dotted(self.type_name), as_alias(self.alias))
        return words(target, listed_behind("set", self.assignments), clause("where", self.where))


# What is made


@dataclass(frozen=True)
class ColumnDefinition(Syntax):
    """A column of a schema, a window or a table; a table's may be an aggregate."""

    name: str
    type: TypeName | FunctionCall
    primary_key: bool = False
    annotations: tuple[Annotation, ...] = ()

    def __str__(self) -> str:
        return words(ticked(self.name), self.type, "primary key" * self.primary_key, *self.annotations)


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
        return words("create", kind, "schema", ticked(self.name), content, *options)


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
            return words("create window", name, retain, "as", f"({listed(self.columns)})")
        items = f"select {listed(self.items)} from" if self.items else ""
        return words("create window", name, retain, "as", items, dotted(self.type_name))


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
        return words("create", "constant" * self.constant, "variable", self.type, ticked(self.name)) + value


@dataclass(frozen=True)
class CreateIndex(Syntax):
    """`create unique index name on target (column kind)`; a kind is `hash` or `btree`, nothing where it is not said."""

    name: str
    target: str
    columns: tuple[tuple[str, str], ...]
    unique: bool = False

    def __str__(self) -> str:
        columns = ",".join(words(ticked(name), ticked(kind) if kind else "") for name, kind in self.columns)
        index = words("create", "unique" * self.unique, "index", ticked(self.name))
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
        return words(self.source, *self.annotations, as_alias(self.alias))


Condition: TypeAlias = ContextCondition | Crontab | Period


@dataclass(frozen=True)
class ContextKey(Syntax):
    """The keys by which events of a type belong to a partition."""

    keys: tuple[Expression, ...]
    events: EventFilter
    alias: str = ""

    def __str__(self) -> str:
        return words(listed(self.keys), "from", self.events, as_alias(self.alias))


@dataclass(frozen=True)
class KeyedContext(Syntax):
    """`partition by keys from type`: a partition for each key."""

    keys: tuple[ContextKey, ...]
    initiated: Condition | None = None
    terminated: Condition | None = None

    def __str__(self) -> str:
        ends = _condition("initiated by", self.initiated), _condition("terminated by", self.terminated)
        return words(listed_behind("partition by", self.keys, ", "), *ends)


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
        return words(listed_behind("coalesce by", self.hashes, ", "), granularity, "preallocate" * self.preallocate)


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
    """`start condition end condition`: at most one partition at a time.

    Attributes:
        start: What starts a partition; None for `@now`: there is always one.
        end: What ends it.
    """

    start: Condition | None
    end: Condition | None = None

    def __str__(self) -> str:
        start = "start @now" if self.start is None else _condition("start", self.start)
        return words(start, _condition("end", self.end))


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
        start = words("initiated by", distinct, both, _condition("", self.initiated))
        return words(start, _condition("terminated by", self.terminated))


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

    Raises:
        PlanError: One of them is no statement.

    Examples:
        >>> from gpu_ops.epl import parse, unparse
        >>> print(unparse(parse("SELECT a FROM T WHERE (b > 1) ; select * from U")))
        select a from T where b>1;
        select * from U
    """
    said: object = statements  # whatever was handed in
    given: list[object] = list(said) if isinstance(said, Iterable) else [said]
    for each in given:
        if not isinstance(each, Statement):
            raise PlanError(f"{shown(each)} is no statement.", remedy="Give what parse returns.")
    return ";\n".join(map(str, given))


def _condition(word: str, condition: Condition | None) -> str:
    """Words that `by` ends have none before `after`."""
    if not isinstance(condition, Period):
        return "" if condition is None else words(word, condition)
    return words(word.removesuffix("by").strip(), "after", condition)
