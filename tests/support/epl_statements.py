"""Random statements of EPL, as syntax trees: what the grammar can say, in the form in which the parser gives it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

from hypothesis import strategies as st

from gpu_ops.epl import patterns as p
from gpu_ops.epl import queries as q
from gpu_ops.epl import statements as s
from gpu_ops.texts import expressions as e

_WORDS = """
    a b price theString order group last first events every day minutes istream Select from x.y näher $v min pattern
    until context all any case end null true is_1 set delete output unidirectional left partition escape by when cast
    exists new rollup match method sql offset desc window table_ at terminated
"""
_UNITS = ("year", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")
Strategy = st.SearchStrategy[Any]


@st.composite
def _drawn(draw: Any, make: Callable[[], Strategy]) -> Any:
    return draw(make())


def opaque(make: Callable[..., Strategy]) -> Callable[..., Strategy]:
    """A strategy that is made when it is first drawn from, and whose own text does not hold that of all within it."""

    @wraps(make)
    def made(*given: Any, **options: Any) -> Strategy:
        return _drawn(cache(lambda: make(*given, **options)))

    return made


def some(strategy: Strategy, *, least: int = 0, most: int = 3) -> Strategy:
    """A tuple of a few."""
    return st.lists(strategy, min_size=least, max_size=most).map(tuple)


def maybe(strategy: Strategy) -> Strategy:
    return st.none() | strategy


names = st.sampled_from(_WORDS.split()) | st.from_regex(r"[a-z_][a-zA-Z_0-9]{0,4}", fullmatch=True)
simple = names.filter(lambda name: "." not in name)
optional = st.just("") | names
dotted = st.lists(simple, min_size=1, max_size=3).map(".".join)
types = st.builds(e.TypeName, dotted, some(st.sampled_from(["", "primitive"]), most=2))
_kinds = st.tuples(st.integers(0, 2**31 - 1), st.just("int")) | st.tuples(st.integers(0, 2**63 - 1), st.just("long"))
_floats = st.floats(0, allow_infinity=False).map(abs)
numbers = st.builds(lambda pair: e.Constant(*pair), _kinds) | st.builds(
    e.Constant, _floats, st.sampled_from(["float", "double"])
)
constants = st.one_of(
    numbers,
    st.builds(e.Constant, st.text(max_size=5), st.just("string")),
    st.builds(e.Constant, st.booleans(), st.just("boolean")),
    st.just(e.Constant(None, "null")),
)
_named = st.builds(e.Name, names, st.booleans())
_parameters = st.builds(e.Parameter, st.sampled_from(["", "p1"])) | st.just(e.Parameter("p", "int"))


@opaque
def _compound(inner: Strategy) -> Strategy:
    """Expressions of expressions."""
    flags = st.booleans()
    pairs = st.tuples(simple, inner)
    return st.one_of(
        st.builds(e.Member, inner, names, flags),
        st.builds(e.Element, inner, some(inner, least=1, most=2), flags),
        calls(inner, maybe(inner)),
        st.builds(e.Prefixed, st.sampled_from(["not", "-", "+"]), inner),
        st.builds(e.Operation, st.sampled_from(sorted(e.LEVELS)), inner, inner),
        st.builds(e.logical, st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)),
        st.builds(
            e.Quantified,
            st.sampled_from(["=", "!=", "is", "is not", "<", "<=", ">", ">="]),
            st.sampled_from(["any", "all"]),
            inner,
            some(inner, least=1),
        ),
        st.builds(e.Inclusion, inner, some(inner, least=1), flags),
        st.builds(e.RangeInclusion, inner, inner, inner, flags, flags, flags),
        st.builds(e.Between, inner, inner, inner, flags),
        st.builds(e.TextMatch, st.sampled_from(["like", "regexp"]), inner, inner, maybe(inner), flags),
        st.builds(e.Case, maybe(inner), some(st.tuples(inner, inner), least=1), maybe(inner)),
        st.builds(e.ArrayOf, some(inner)),
        st.builds(e.Record, some(pairs, least=1)),
        st.builds(e.Record, some(pairs | st.tuples(simple, st.none()), least=1), st.just(True)),
        st.builds(e.Cast, inner, types, some(st.builds(e.NamedArgument, simple, inner.map(lambda x: (x,))), most=1)),
        st.builds(q.Subquery, queries(inner)),
        st.builds(q.Exists, queries(inner)),
    )


@opaque
def periods(inner: Strategy) -> Strategy:
    return st.builds(e.Period, some(st.tuples(inner, st.sampled_from(_UNITS)), least=1))


@opaque
def arguments(inner: Strategy) -> Strategy:
    """What stands in the parentheses of a call, of a view, of a crontab."""
    ranges = st.builds(e.CronRange, numbers, numbers)
    return st.one_of(
        inner,
        inner,
        periods(inner),
        st.builds(e.SortKey, inner, st.just(True)),
        st.builds(e.NamedArgument, names, some(inner) | periods(inner).map(lambda period: (period,))),
        st.builds(e.LambdaFunction, some(simple, least=1, most=2), inner),
        st.builds(e.CronStep, inner),
        ranges,
        st.builds(e.CronLast, inner, st.sampled_from(["last", "weekday", "lastweekday"])),
        st.builds(e.CronList, some(inner | ranges, least=1)),
        st.just(e.Wildcard()),
        st.builds(e.Wildcard, inner),
    )


@opaque
def calls(inner: Strategy, of: Strategy | None = None) -> Strategy:
    given = arguments(inner)
    of = st.none() if of is None else of
    plain = st.builds(e.FunctionCall, names, some(given), of, dynamic=st.booleans())
    counted = st.builds(e.FunctionCall, names, some(given, least=1), of, st.sampled_from(["distinct", "all"]))
    return plain | counted


# Clauses


def noted(most: int = 2) -> Strategy:
    settings: Strategy = st.one_of(
        constants,
        st.builds(e.Name, simple),
        st.builds(e.Member, st.builds(e.Name, simple), simple),
        st.builds(e.Prefixed, st.just("-"), numbers),
        st.builds(p.Annotation, dotted),
        st.builds(p.AnnotationList, some(constants)),
    )
    one = st.builds(p.Annotation, dotted, some(st.tuples(st.just("value") | simple, settings), most=2))
    return some(one, most=most)


@opaque
def items(inner: Strategy) -> Strategy:
    selected = st.one_of(inner, inner, st.just(e.Wildcard()), st.builds(e.Wildcard, inner))
    return some(st.builds(q.SelectItem, selected, optional, noted(1)), least=1)


@opaque
def events(inner: Strategy) -> Strategy:
    return st.builds(p.EventFilter, dotted, some(inner, most=2))


@opaque
def views(inner: Strategy) -> Strategy:
    return some(st.builds(q.View, simple, some(arguments(inner)), st.just("") | simple), most=2)


@opaque
def sources(inner: Strategy) -> Strategy:
    return events(inner) | st.builds(q.PatternSource, patterns(inner), noted(1))


@opaque
def streams(inner: Strategy) -> Strategy:
    retain = st.sampled_from(["", "union", "intersection"])
    return st.builds(q.StreamTerm, sources(inner), views(inner), optional, st.booleans(), retain)


@opaque
def joins(inner: Strategy) -> Strategy:
    kinds = st.sampled_from(["inner", "left", "right", "full"])
    by_word = st.builds(q.JoinTerm, kinds, streams(inner), maybe(inner))
    return some(st.builds(q.JoinTerm, st.just("cross"), streams(inner)), most=2) | some(by_word, most=2)


@opaque
def groupings(inner: Strategy) -> Strategy:
    keys = some(inner, least=2) | st.just(())
    leaves: Strategy = inner | st.builds(q.GroupingKeys, keys)
    kinds = st.sampled_from(["rollup", "cube", "grouping sets"])
    sets: Callable[[Strategy], Strategy] = lambda of: st.builds(q.GroupingSets, kinds, some(of, least=1))  # noqa: E731
    return some(leaves | sets(leaves | sets(leaves)))


@opaque
def assignments(inner: Strategy, *, least: int = 1) -> Strategy:
    targets = st.builds(e.Name, names) | st.builds(e.Member, st.builds(e.Name, names), names)
    done = calls(inner).map(lambda call: q.Assignment(call, None))
    return some(st.builds(q.Assignment, targets, inner) | done, least=least, most=2)


@opaque
def outputs(inner: Strategy) -> Strategy:
    counts = st.builds(q.EventCount, inner)
    crontabs = st.builds(q.Crontab, some(arguments(inner)))
    when = st.builds(q.OutputWhen, inner, assignments(inner, least=0))
    ended = st.builds(q.OutputTerminated, maybe(inner), assignments(inner, least=0))
    made = st.builds(
        q.Output,
        st.sampled_from(["", "first", "last", "all", "snapshot"]),
        maybe(periods(inner) | counts),
        maybe(st.one_of(periods(inner), counts, crontabs, when)),
        maybe(ended),
    )
    return made.filter(lambda output: bool(output.after or output.rate or output.terminated))


def _rows(inner: Strategy) -> Strategy:
    def flat(kind: Any, parts: list[Any]) -> Any:
        field = "items" if kind is p.RowSequence else "options"
        return kind(tuple(x for part in parts for x in (getattr(part, field) if isinstance(part, kind) else [part])))

    several = st.lists(inner, min_size=2, max_size=3)
    bounds = st.tuples(st.integers(0, 3), st.none() | st.integers(0, 5))
    lazy = st.sampled_from([(0, None), (1, None), (0, 1)])
    return st.one_of(
        several.map(lambda parts: flat(p.RowSequence, parts)),
        several.map(lambda parts: flat(p.RowChoice, parts)),
        st.builds(p.RowPermutation, some(inner, least=1)),
        st.builds(lambda item, times: p.RowRepeat(item, *times), inner, bounds),
        st.builds(lambda item, times: p.RowRepeat(item, times[0], times[1], greedy=False), inner, lazy),
    )


rows: Strategy = st.recursive(st.builds(p.RowVariable, names), _rows, max_leaves=5)


@opaque
def recognized(inner: Strategy) -> Strategy:
    interval = st.tuples(st.none(), st.just(False)) | st.tuples(periods(inner), st.booleans())
    skips = st.sampled_from(["past last row", "to next row", "to current row"])
    measures = some(st.builds(q.SelectItem, inner, names), least=1)
    defined = some(st.builds(q.Definition, names, inner))
    return st.builds(
        lambda measures, rows, defined, keys, every, skip, interval: q.MatchRecognize(
            measures, rows, defined, keys, every, skip, *interval
        ),
        *(measures, rows, defined, some(inner), st.booleans(), skips, interval),
    )


def inserts() -> Strategy:
    return st.builds(q.InsertInto, names, st.sampled_from(["", "istream", "rstream", "irstream"]), some(names))


@opaque
def queries(inner: Strategy, *, deleting: bool = False, whole: bool = False) -> Strategy:
    """Queries; in an expression those of a few clauses, which are drawn quickly."""
    if not whole:
        return st.builds(
            q.Query,
            st.lists(st.builds(q.SelectItem, inner, optional), min_size=1, max_size=2).map(tuple),
            st.builds(q.StreamTerm, st.builds(p.EventFilter, dotted, some(inner, most=1)), st.just(()), optional),
            where=maybe(inner),
        )
    return st.builds(
        q.Query,
        items(inner),
        streams(inner),
        joins(inner),
        st.sampled_from(["", "istream", "rstream", "irstream"]),
        st.booleans(),
        recognize=maybe(recognized(inner)),
        where=maybe(inner),
        group_by=groupings(inner),
        having=maybe(inner),
        output=maybe(outputs(inner)),
        order_by=some(st.builds(e.SortKey, inner, st.booleans())),
        limit=maybe(st.builds(q.Limit, inner, maybe(inner))),
        insert=maybe(inserts()),
        into_table=optional,
        deleting=st.booleans() if deleting else st.just(False),
        delivery=some(st.builds(e.FunctionCall, names, some(arguments(inner))), most=1),
    )


@opaque
def patterns(inner: Strategy) -> Strategy:
    atoms = st.one_of(
        st.builds(p.PatternEvents, events(inner), optional, noted(1)),
        st.builds(p.PatternObserver, simple, simple, some(arguments(inner))),
    )

    def compound(part: Strategy) -> Strategy:
        several = st.lists(part, min_size=2, max_size=3)

        def joined(word: Any, parts: list[Any]) -> Any:
            same = [each.patterns if getattr(each, "operator", "") == word else (each,) for each in parts]
            return p.PatternLogical(word, tuple(x for group in same for x in group))

        def followed(parts: list[Any], limits: list[Any]) -> Any:
            first, *more = parts
            flat = isinstance(first, p.PatternFollowedBy)
            before, had = (first.patterns, first.limits) if flat else ((first,), ())
            return p.PatternFollowedBy((*before, *more), (*had, *limits[: len(more)]))

        bounded = st.tuples(maybe(inner), maybe(inner)).filter(any)
        return st.one_of(
            st.builds(joined, st.sampled_from(["and", "or"]), several),
            st.builds(followed, several, st.lists(maybe(inner), min_size=2, max_size=2)),
            st.builds(p.PatternEvery, part, maybe(some(arguments(inner)))),
            st.builds(p.PatternNot, part),
            st.builds(p.PatternUntil, part, part),
            st.builds(lambda each, end, bounds: p.PatternUntil(each, end, *bounds), part, maybe(part), bounded),
            st.builds(lambda each, count: p.PatternUntil(each, None, count, count), part, inner),
            st.builds(p.PatternGuard, part, simple, simple, some(arguments(inner))),
            st.builds(p.PatternWhile, part, inner),
        )

    return st.recursive(atoms, compound, max_leaves=4)


# Statements


@opaque
def _triggered(inner: Strategy) -> Strategy:
    triggers = st.builds(s.Trigger, sources(inner), optional)
    where = maybe(inner)
    adds = st.builds(s.MergeInsert, items(inner), optional, some(names), where)
    actions = st.one_of(adds, st.builds(s.MergeUpdate, assignments(inner), where), st.builds(s.MergeDelete, where))
    branches = st.one_of(
        st.builds(s.MergeBranch, st.booleans(), some(actions, least=1, most=2), where),
        st.builds(s.MergeBranch, st.none(), adds.map(lambda action: (action,))),
    )
    split = st.builds(s.SplitBranch, inserts(), items(inner), where)
    return st.one_of(
        st.builds(s.OnQuery, triggers, queries(inner, deleting=True, whole=True)),
        st.builds(s.OnSplit, triggers, some(split, least=1, most=2), st.booleans()),
        st.builds(s.OnDelete, triggers, names, optional, where),
        st.builds(s.OnUpdate, triggers, names, optional, assignments(inner), where),
        st.builds(s.OnSet, triggers, assignments(inner)),
        st.builds(s.OnMerge, triggers, names, optional, where, some(branches, least=1, most=2)),
        st.builds(s.UpdateStream, dotted, optional, assignments(inner), where),
    )


@opaque
def declarations(inner: Strategy) -> Strategy:
    functions = st.builds(e.LambdaFunction, some(simple, least=1, most=2), inner)
    aliases = st.builds(s.ExpressionDeclaration, names, inner, st.just(True))
    return st.builds(s.ExpressionDeclaration, names, inner | functions) | aliases


@opaque
def _made(inner: Strategy) -> Strategy:
    columns = some(st.builds(s.ColumnDefinition, names, types | calls(inner).map(_still), st.booleans(), noted(1)))
    retain = st.sampled_from(["", "union", "intersection"])
    options = st.sampled_from(["inherits", "copyfrom", "starttimestamp", "endtimestamp"])
    return st.one_of(
        st.builds(
            s.CreateSchema, names, columns, kind=optional, options=some(st.tuples(options, some(dotted, least=1)))
        ),
        st.builds(s.CreateSchema, names, types=some(dotted, least=1) | st.just(("*",)), kind=optional),
        st.builds(s.CreateWindow, names, views(inner), dotted, st.just(()) | items(inner), retain=retain),
        st.builds(s.CreateWindow, names, views(inner), columns=columns, retain=retain),
        st.builds(s.CreateTable, names, columns),
        st.builds(s.CreateVariable, names, types, maybe(inner), st.booleans()),
        st.builds(s.CreateIndex, names, names, some(st.tuples(names, optional), least=1), st.booleans()),
        st.builds(s.CreateExpression, declarations(inner)),
        st.builds(s.CreateContext, names, contexts(inner)),
    )


def _still(call: e.FunctionCall) -> e.FunctionCall:
    return e.FunctionCall(call.name, call.arguments, None, call.quantity)


@opaque
def contexts(inner: Strategy) -> Strategy:
    condition = st.one_of(
        st.builds(s.ContextCondition, events(inner), optional),
        st.builds(s.ContextCondition, st.builds(q.PatternSource, patterns(inner)), optional, noted(1)),
        st.builds(q.Crontab, some(arguments(inner))),
        periods(inner),
    )
    # Keys that `and` joins are several.
    single = inner.filter(lambda node: not (isinstance(node, e.Logical) and node.operator == "and"))
    keys = st.builds(s.ContextKey, some(single, least=1), events(inner), optional)
    hashes = st.builds(s.ContextHash, calls(inner).map(_still), events(inner))
    categories = some(st.builds(s.ContextCategory, inner, names), least=1)
    kinds = st.one_of(
        st.builds(s.KeyedContext, some(keys, least=1, most=2), maybe(condition), maybe(condition)),
        st.builds(s.HashContext, some(hashes, least=1, most=2), st.integers(1, 100), st.booleans()),
        st.builds(s.CategoryContext, categories, events(inner)),
        st.builds(s.StartEndContext, maybe(condition), maybe(condition)),
        st.builds(s.OverlappingContext, condition, maybe(condition), some(inner, most=2), st.booleans()),
        st.builds(s.OverlappingContext, st.none(), maybe(condition), some(inner, most=2), st.just(True)),
    )
    return kinds | st.builds(s.NestedContext, some(st.tuples(names, kinds), least=2, most=2))


leaves: Strategy = st.one_of(constants, _named, _named, _parameters)
expressions: Strategy = st.recursive(leaves, _compound, max_leaves=6)
_small: Strategy = opaque(lambda: leaves | _compound(leaves))()
statements: Strategy = st.builds(
    s.Statement,
    st.one_of(queries(_small, whole=True), _triggered(_small), _made(_small)),
    noted(),
    some(declarations(_small), most=1),
    optional,
)
"""Whole statements, whose expressions are small."""
