"""Each construct of the language, and the syntax tree that it becomes."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_ops.epl import parse
from gpu_ops.epl import patterns as p
from gpu_ops.epl import queries as q
from gpu_ops.epl import statements as s
from gpu_ops.epl.lexer import HARD
from gpu_ops.epl.parsing import tables
from gpu_ops.texts.expressions import (
    ArrayOf,
    Between,
    Case,
    Cast,
    Constant,
    CronLast,
    CronList,
    CronRange,
    CronStep,
    Element,
    FunctionCall,
    Inclusion,
    LambdaFunction,
    Logical,
    Member,
    Name,
    NamedArgument,
    Operation,
    Parameter,
    Period,
    Prefixed,
    Quantified,
    RangeInclusion,
    Record,
    SortKey,
    TextMatch,
    TextPlace,
    TypeName,
    Wildcard,
)

a, b, c = Name("a"), Name("b"), Name("c")
T = q.StreamTerm(p.EventFilter("T"))
ALL = (q.SelectItem(Wildcard()),)


def number(value: int) -> Constant:
    return Constant(value, "int")


def text(value: str) -> Constant:
    return Constant(value, "string")


def call(name: str, *arguments: Any, **more: Any) -> FunctionCall:
    return FunctionCall(name, arguments, **more)


def seconds(count: int) -> Period:
    return Period(((number(count), "second"),))


one, two, three = number(1), number(2), number(3)


def body(statement: str) -> Any:
    (parsed,) = parse(statement)
    return parsed.body


EXPRESSIONS: list[tuple[str, Any]] = [
    # Constants
    ("1", one),
    ("0x1F", number(31)),
    ("5L", Constant(5, "long")),
    ("5000000000", Constant(5_000_000_000, "long")),
    ("1.5", Constant(1.5, "double")),
    (".5", Constant(0.5, "double")),
    ("2d", Constant(2.0, "double")),
    ("1.5f", Constant(1.5, "float")),
    ("1e3", Constant(1000.0, "double")),
    ("-1", Prefixed("-", one)),
    ("'it\\'s'", text("it's")),
    ("\"say 'so'\"", text("say 'so'")),
    (r"'a\tb\\c\u00e9'", text("a\tb\\cé")),
    (r"'\ud83d\ude00'", text("\N{GRINNING FACE}")),
    ("TRUE", Constant(True, "boolean")),
    ("null", Constant(None, "null")),
    ("?", Parameter()),
    ("?:limit", Parameter("limit")),
    ("?:limit:int", Parameter("limit", "int")),
    # Properties
    ("a.b", Member(a, "b")),
    ("a.from", Member(a, "from")),
    ("`from`", Name("from")),
    (r"a\.b", Name("a.b")),
    ("a[1]", Element(a, (one,))),
    ("a[b, 1].c", Member(Element(a, (b, one)), "c")),
    ("a('key')", call("a", text("key"))),
    ("a.b?.c", Member(Member(a, "b", dynamic=True), "c")),
    ("a[0]?", Element(a, (number(0),), dynamic=True)),
    *(
        (word, Name(word))
        for word in ("order", "group", "last", "first", "events", "day", "min", "window", "output", "limit", "end")
    ),
    # Functions and aggregates
    ("count(*)", call("count", Wildcard())),
    ("count(distinct a)", call("count", a, quantity="distinct")),
    ("median(all a)", call("median", a, quantity="all")),
    ("sum(a, filter: b > 1)", call("sum", a, NamedArgument("filter", (Operation(">", b, one),)))),
    ("sum(a, group_by: ())", call("sum", a, NamedArgument("group_by", ()))),
    ("sum(group_by: (b, c), a)", call("sum", NamedArgument("group_by", (b, c)), a)),
    ("first(a.*)", call("first", Wildcard(a))),
    ("first(*).b", Member(call("first", Wildcard()), "b")),
    ("sorted(a desc, b asc)", call("sorted", SortKey(a, descending=True), b)),
    ("prev(1, a)", call("prev", one, a)),
    ("istream()", call("istream")),
    ("a.b(1).c()", call("c", of=call("b", one, of=a))),
    ("a.where(x => x.v > 1)", call("where", LambdaFunction(("x",), Operation(">", Member(Name("x"), "v"), one)), of=a)),
    ("a.f((x, i) => i)", call("f", LambdaFunction(("x", "i"), Name("i")), of=a)),
    ("a.plus(1 hour 30 min)", call("plus", Period(((one, "hour"), (number(30), "minute"))), of=a)),
    ("instanceof(a, int)", call("instanceof", a, Name("int"))),
    ("cast(a, int)", Cast(a, TypeName("int"))),
    ("cast(a as java.lang.Long)", Cast(a, TypeName("java.lang.Long"))),
    ("cast(a, int[])", Cast(a, TypeName("int", ("",)))),
    ("cast(a, date, dateformat: 'x')", Cast(a, TypeName("date"), (NamedArgument("dateformat", (text("x"),)),))),
    ("f({topk: 3})", call("f", Record((("topk", three),)))),
    # Operators
    ("1 + 2 * 3", Operation("+", one, Operation("*", two, three))),
    ("(1 + 2) * 3", Operation("*", Operation("+", one, two), three)),
    ("1 - 2 - 3", Operation("-", Operation("-", one, two), three)),
    ("-a % 2", Operation("%", Prefixed("-", a), two)),
    ("a || b || c", Operation("||", Operation("||", a, b), c)),
    ("a <> b", Operation("!=", a, b)),
    ("a = b + 1", Operation("=", a, Operation("+", b, one))),
    ("a is not null", Operation("is not", a, Constant(None, "null"))),
    ("a is b", Operation("is", a, b)),
    ("a & b | c", Operation("|", Operation("&", a, b), c)),
    ("not a and b", Logical("and", (Prefixed("not", a), b))),
    ("not (a and b)", Prefixed("not", Logical("and", (a, b)))),
    ("a or b and c", Logical("or", (a, Logical("and", (b, c))))),
    ("(a or b) or c", Logical("or", (a, b, c))),
    ("a between 1 and 2 and b", Logical("and", (Between(a, one, two), b))),
    ("a not between 1 and 2", Between(a, one, two, negated=True)),
    ("a in (1, 2)", Inclusion(a, (one, two))),
    ("a not in (1)", Inclusion(a, (one,), negated=True)),
    ("3 * a in (b)", Inclusion(Operation("*", three, a), (b,))),
    ("a in [1:2]", RangeInclusion(a, one, two)),
    ("a in (b.x:c.y]", RangeInclusion(a, Member(b, "x"), Member(c, "y"), with_low=False)),
    ("a in [1:2)", RangeInclusion(a, one, two, with_high=False)),
    ("a like 'x!%' escape '!'", TextMatch("like", a, text("x!%"), text("!"))),
    ("a not regexp 'x'", TextMatch("regexp", a, text("x"), negated=True)),
    ("a > all (1, 2)", Quantified(">", "all", a, (one, two))),
    ("a = some (1)", Quantified("=", "any", a, (one,))),
    ("case when a then 1 else 2 end", Case(None, ((a, one),), two)),
    ("case a when 1 then b when 2 then c end", Case(a, ((one, b), (two, c)))),
    ("{1, 2}", ArrayOf((one, two))),
    ("{}", ArrayOf(())),
    ("new {a, x = b}", Record((("a", None), ("x", b)), new=True)),
]


@pytest.mark.parametrize(("said", "meant"), EXPRESSIONS, ids=[said for said, _ in EXPRESSIONS])
def test_an_expression(said: str, meant: Any) -> None:
    assert body(f"select {said} as x from T").items == (q.SelectItem(meant, "x"),)
    assert body(f"select * from T where {said}").where == meant
    assert body(f"SELECT * FROM T(({said}))").stream.source.filters == (meant,)


FROM_U = q.Query((q.SelectItem(a),), q.StreamTerm(p.EventFilter("U")))


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("(select a from U)", q.Subquery(FROM_U)),
        ("exists (select a from U)", q.Exists(FROM_U)),
        ("not exists (select a from U)", Prefixed("not", q.Exists(FROM_U))),
        ("b in (select a from U)", Inclusion(b, (q.Subquery(FROM_U),))),
        ("b <= any (select a from U)", Quantified("<=", "any", b, (q.Subquery(FROM_U),))),
        ("(select a from U).b", Member(q.Subquery(FROM_U), "b")),
    ],
)
def test_a_query_in_an_expression(said: str, meant: Any) -> None:
    assert body(f"select * from T where {said}").where == meant


def time_window(count: int) -> q.View:
    return q.View("time", (seconds(count),))


def query(stream: q.StreamTerm = T, *joins: q.JoinTerm, **clauses: Any) -> q.Query:
    return q.Query(clauses.pop("items", ALL), stream, joins, **clauses)


def stream(name: str, alias: str = "", **more: Any) -> q.StreamTerm:
    return q.StreamTerm(p.EventFilter(name), alias=alias, **more)


on_ab = Operation("=", a, b)
every_3 = q.EventCount(three)

QUERIES: list[tuple[str, q.Query]] = [
    # Select
    ("select irstream * from T", query(selector="irstream")),
    ("select distinct a from T", query(items=(q.SelectItem(a),), distinct=True)),
    ("select a as x, b y, T.* as z from T", query(
        items=(q.SelectItem(a, "x"), q.SelectItem(b, "y"), q.SelectItem(Wildcard(Name("T")), "z")))),
    ("select a as order from T", query(items=(q.SelectItem(a, "order"),))),
    ("select a @eventbean as x from T", query(items=(q.SelectItem(a, "x", (p.Annotation("eventbean"),)),))),
    ("insert rstream into U(x, y) select * from T", query(insert=q.InsertInto("U", "rstream", ("x", "y")))),
    ("into table U select * from T", query(into_table="U")),
    # From
    ("select * from a.b.T", query(stream("a.b.T"))),
    ("select * from T(a > 1, b)", query(q.StreamTerm(p.EventFilter("T", (Operation(">", a, one), b))))),
    ("select * from T#time(5 sec)", query(q.StreamTerm(p.EventFilter("T"), (time_window(5),)))),
    ("select * from T.win:time(5 sec)", query(
        q.StreamTerm(p.EventFilter("T"), (q.View("time", (seconds(5),), "win"),)))),
    ("select * from T#groupwin(a)#length(2) as t", query(
        q.StreamTerm(p.EventFilter("T"), (q.View("groupwin", (a,)), q.View("length", (two,))), "t"))),
    ("select * from T#keepall", query(q.StreamTerm(p.EventFilter("T"), (q.View("keepall"),)))),
    ("select * from T#unique(a)#length(3) t retain-union", query(q.StreamTerm(
        p.EventFilter("T"), (q.View("unique", (a,)), q.View("length", (three,))), "t", retain="union"))),
    ("select * from A as a, B b unidirectional", query(
        stream("A", "a"), q.JoinTerm("cross", stream("B", "b", unidirectional=True)))),
    ("select * from A join B on a = b", query(stream("A"), q.JoinTerm("inner", stream("B"), on_ab))),
    ("select * from A inner join B", query(stream("A"), q.JoinTerm("inner", stream("B")))),
    ("select * from A left outer join B on a = b full join C on a = b", query(
        stream("A"), q.JoinTerm("left", stream("B"), on_ab), q.JoinTerm("full", stream("C"), on_ab))),
    ("select * from pattern @X [every T]", query(q.StreamTerm(q.PatternSource(
        p.PatternEvery(p.PatternEvents(p.EventFilter("T"))), (p.Annotation("X"),))))),
    # Groups
    ("select * from T group by a, b having c", query(group_by=(a, b), having=c)),
    ("select * from T group by a, rollup(b, c)", query(group_by=(a, q.GroupingSets("rollup", (b, c))))),
    ("select * from T group by grouping sets((a, b), cube(c), ())", query(group_by=(q.GroupingSets(
        "grouping sets", (q.GroupingKeys((a, b)), q.GroupingSets("cube", (c,)), q.GroupingKeys(()))),))),
    # Output
    ("select * from T output every 3 events", query(output=q.Output("", None, every_3))),
    ("select * from T output last every 3 sec", query(output=q.Output("last", None, seconds(3)))),
    ("select * from T output after 3 events", query(output=q.Output("", every_3))),
    ("select * from T output after 5 sec snapshot every 3 sec", query(
        output=q.Output("snapshot", seconds(5), seconds(3)))),
    ("select * from T output at (*/5, 1:3, [1, 2], 5 last, *)", query(output=q.Output("", None, q.Crontab((
        CronStep(number(5)), CronRange(one, three), CronList((one, two)), CronLast(number(5), "last"), Wildcard()))))),
    ("select * from T output when a then set b = 1, f(c)", query(output=q.Output("", None, q.OutputWhen(
        a, (q.Assignment(b, one), q.Assignment(call("f", c), None)))))),
    ("select * from T output when a and b and when terminated and c", query(output=q.Output(
        "", None, q.OutputWhen(Logical("and", (a, b))), q.OutputTerminated(c)))),
    ("select * from T output all when terminated", query(output=q.Output("all", None, None, q.OutputTerminated()))),
    # Order, limit, delivery
    ("select * from T order by a, b desc", query(order_by=(SortKey(a), SortKey(b, descending=True)))),
    ("select * from T limit 3 offset b", query(limit=q.Limit(three, b))),
    ("select * from T limit 1, 3", query(limit=q.Limit(three, one))),
    ("select * from T for grouped_delivery(a)", query(delivery=(call("grouped_delivery", a),))),
]  # fmt: skip


@pytest.mark.parametrize(("said", "meant"), QUERIES, ids=[said for said, _ in QUERIES])
def test_a_query(said: str, meant: q.Query) -> None:
    assert body(said) == meant


def events(name: str, tag: str = "") -> p.PatternEvents:
    return p.PatternEvents(p.EventFilter(name), tag)


A, B, C = events("A"), events("B"), events("C")
PATTERNS: list[tuple[str, Any]] = [
    ("a=A(b > 1)@consume(2)", p.PatternEvents(
        p.EventFilter("A", (Operation(">", b, one),)), "a", (p.Annotation("consume", (("value", two),)),))),
    ("every A -> B", p.PatternFollowedBy((p.PatternEvery(A), B), (None,))),
    ("every (A -> B)", p.PatternEvery(p.PatternFollowedBy((A, B), (None,)))),
    ("A -[2]> B -> C", p.PatternFollowedBy((A, B, C), (two, None))),
    ("A -> B or C and A", p.PatternFollowedBy(
        (A, p.PatternLogical("or", (B, p.PatternLogical("and", (C, A))))), (None,))),
    ("A and not B", p.PatternLogical("and", (A, p.PatternNot(B)))),
    ("every A where timer:within(5 sec)", p.PatternEvery(p.PatternGuard(A, "timer", "within", (seconds(5),)))),
    ("(every A) while (a)", p.PatternWhile(p.PatternEvery(A), a)),
    ("every-distinct(a, 5 sec) A", p.PatternEvery(A, (a, seconds(5)))),
    ("A until B", p.PatternUntil(A, B)),
    ("[2] A", p.PatternUntil(A, None, two, two)),
    ("[2:] A until B", p.PatternUntil(A, B, two)),
    ("[:3] A until B", p.PatternUntil(A, B, None, three)),
    ("every [2] A", p.PatternEvery(p.PatternUntil(A, None, two, two))),
    ("timer:interval(5 sec)", p.PatternObserver("timer", "interval", (seconds(5),))),
    ("timer:at(*, 5)", p.PatternObserver("timer", "at", (Wildcard(), number(5)))),
    ("timer:schedule(period: 5 sec)", p.PatternObserver(
        "timer", "schedule", (NamedArgument("period", (seconds(5),)),))),
    ("timer:schedule(iso: 'x')", p.PatternObserver("timer", "schedule", (NamedArgument("iso", (text("x"),)),))),
]  # fmt: skip


@pytest.mark.parametrize(("said", "meant"), PATTERNS, ids=[said for said, _ in PATTERNS])
def test_a_pattern(said: str, meant: Any) -> None:
    assert body(f"select * from pattern [{said}]").stream.source.pattern == meant


X, Y, Z = p.RowVariable("X"), p.RowVariable("Y"), p.RowVariable("Z")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("X", X),
        ("X Y Z", p.RowSequence((X, Y, Z))),
        ("X (Y Z)", p.RowSequence((X, Y, Z))),
        ("X | Y Z", p.RowChoice((X, p.RowSequence((Y, Z))))),
        ("(X | Y) Z", p.RowSequence((p.RowChoice((X, Y)), Z))),
        ("X* Y+ Z?", p.RowSequence((p.RowRepeat(X, 0, None), p.RowRepeat(Y, 1, None), p.RowRepeat(Z, 0, 1)))),
        ("X*? Y??", p.RowSequence((p.RowRepeat(X, 0, None, greedy=False), p.RowRepeat(Y, 0, 1, greedy=False)))),
        ("X{2}", p.RowRepeat(X, 2, 2)),
        ("X{2,} Y{,3} Z{2,3}", p.RowSequence((p.RowRepeat(X, 2, None), p.RowRepeat(Y, 0, 3), p.RowRepeat(Z, 2, 3)))),
        ("match_recognize_permute(X, Y)", p.RowPermutation((X, Y))),
    ],
)
def test_a_pattern_of_rows(said: str, meant: Any) -> None:
    assert body(f"select * from T match_recognize (measures X.a as x pattern ({said}))").recognize.pattern == meant


def test_a_match_recognize_clause() -> None:
    found = body(
        "select * from T match_recognize (partition by a measures X.b as x, 1 as one all matches "
        "after match skip to next row pattern (X Y) interval 5 sec or terminated define X as X.b > 1, Y as c)"
    ).recognize
    assert found == q.MatchRecognize(
        measures=(q.SelectItem(Member(Name("X"), "b"), "x"), q.SelectItem(one, "one")),
        pattern=p.RowSequence((X, Y)),
        definitions=(q.Definition("X", Operation(">", Member(Name("X"), "b"), one)), q.Definition("Y", c)),
        partition_by=(a,),
        all_matches=True,
        skip="to next row",
        interval=seconds(5),
        or_terminated=True,
    )


on_t = s.Trigger(p.EventFilter("T"), "t")
set_a = (q.Assignment(a, one),)
int_column = s.ColumnDefinition("a", TypeName("int"))


def context(kind: Any) -> s.CreateContext:
    return s.CreateContext("C", kind)


def when(name: str, alias: str = "") -> s.ContextCondition:
    return s.ContextCondition(p.EventFilter(name), alias)


U = p.EventFilter("U")
later = s.MergeInsert((q.SelectItem(a),), "U", ("x",), b)
MERGE = """
    on T t merge W w where a when matched and b then update set a = 1 then delete where c
    when not matched then insert into U(x) select a where b
"""
BODIES: list[tuple[str, Any]] = [
    ("on T as t select * from W", s.OnQuery(on_t, query(stream("W")))),
    ("on T as t select and delete * from W", s.OnQuery(on_t, query(stream("W"), deleting=True))),
    ("on T as t select delete 'x' from W", s.OnQuery(
        on_t, query(stream("W"), items=(q.SelectItem(text("x")),), deleting=True))),
    ("on T as t select delete, a from W", s.OnQuery(
        on_t, query(stream("W"), items=(q.SelectItem(Name("delete")), q.SelectItem(a))))),
    ("on T t delete from W as w where a", s.OnDelete(on_t, "W", "w", a)),
    ("on T t update W set a = 1 where b", s.OnUpdate(on_t, "W", "", set_a, b)),
    ("on pattern [A] set a = 1", s.OnSet(s.Trigger(q.PatternSource(A)), set_a)),
    ("on T t insert into U select a where b insert into V select * output all", s.OnSplit(
        on_t,
        (s.SplitBranch(q.InsertInto("U"), (q.SelectItem(a),), b), s.SplitBranch(q.InsertInto("V"), ALL)),
        all_branches=True,
    )),
    (MERGE, s.OnMerge(on_t, "W", "w", a, (
        s.MergeBranch(True, (s.MergeUpdate(set_a), s.MergeDelete(c)), b), s.MergeBranch(False, (later,))))),
    ("on T t merge W insert select *", s.OnMerge(
        on_t, "W", "", None, (s.MergeBranch(None, (s.MergeInsert(ALL),)),))),
    ("update istream T as t set a = 1 where b", s.UpdateStream("T", "t", set_a, b)),
    ("create schema S (a int, b int[primitive]) inherits P, Q starttimestamp a", s.CreateSchema(
        "S",
        (int_column, s.ColumnDefinition("b", TypeName("int", ("primitive",)))),
        options=(("inherits", ("P", "Q")), ("starttimestamp", ("a",))),
    )),
    ("create objectarray schema S as (a int)", s.CreateSchema("S", (int_column,), kind="objectarray")),
    ("create variant schema S as A, B", s.CreateSchema("S", types=("A", "B"), kind="variant")),
    ("create window W#time(5 sec) as T", s.CreateWindow("W", (time_window(5),), "T")),
    ("create window W#time(5 sec) retain-union as select a from T", s.CreateWindow(
        "W", (time_window(5),), "T", (q.SelectItem(a),), retain="union")),
    ("create window W.win:time(5 sec) (a int)", s.CreateWindow(
        "W", (q.View("time", (seconds(5),), "win"),), columns=(int_column,))),
    ("create table W (a int primary key, b sum(int), c window(*) @type(T))", s.CreateTable("W", (
        s.ColumnDefinition("a", TypeName("int"), primary_key=True),
        s.ColumnDefinition("b", call("sum", Name("int"))),
        s.ColumnDefinition("c", call("window", Wildcard()), annotations=(
            p.Annotation("type", (("value", Name("T")),)),))))),
    ("create constant variable int a = 1", s.CreateVariable("a", TypeName("int"), one, constant=True)),
    ("create unique index I on W(a hash, b)", s.CreateIndex("I", "W", (("a", "hash"), ("b", "")), unique=True)),
    ("create expression f {x => x + 1}", s.CreateExpression(s.ExpressionDeclaration(
        "f", LambdaFunction(("x",), Operation("+", Name("x"), one))))),
    ("create context C partition by a, b from T as t, c from U initiated by V terminated after 5 sec", context(
        s.KeyedContext(
            (s.ContextKey((a, b), p.EventFilter("T"), "t"), s.ContextKey((c,), U)), when("V"), seconds(5)))),
    ("create context C coalesce by f(a) from U granularity 16 preallocate", context(
        s.HashContext((s.ContextHash(call("f", a), U),), 16, preallocate=True))),
    ("create context C group a as x, group by b as y from U", context(
        s.CategoryContext((s.ContextCategory(a, "x"), s.ContextCategory(b, "y")), U))),
    ("create context C as start T as t end after 5 sec", context(s.StartEndContext(when("T", "t"), seconds(5)))),
    ("create context C start @now end after 5 sec", context(s.StartEndContext(None, seconds(5)))),
    ("create context C start (0, 9, *, *, *) end pattern [A] as x", context(s.StartEndContext(
        q.Crontab((number(0), number(9), Wildcard(), Wildcard(), Wildcard())),
        s.ContextCondition(q.PatternSource(A), "x")))),
    ("create context C initiated by distinct(a) T as t terminated by U", context(
        s.OverlappingContext(when("T", "t"), when("U"), (a,)))),
    ("create context C initiated @now and T terminated U", context(
        s.OverlappingContext(when("T"), when("U"), now=True))),
    ("create context C initiated by @now", context(s.OverlappingContext(None, now=True))),
    ("create context C context D partition by a from T, b from U, context E start T", context(s.NestedContext((
        ("D", s.KeyedContext((s.ContextKey((a,), p.EventFilter("T")), s.ContextKey((b,), U)))),
        ("E", s.StartEndContext(when("T"))))))),
]  # fmt: skip


@pytest.mark.parametrize(("said", "meant"), BODIES, ids=[said for said, _ in BODIES])
def test_what_is_no_query(said: str, meant: Any) -> None:
    assert body(said) == meant


def test_what_stands_before_a_statement() -> None:
    (statement,) = parse(
        "@Name('s0') @hint(value='x', model={1, 2}) @Priority(-1) expression f alias for {a} context C select f from T"
    )
    assert statement.name == "s0"
    assert statement.context == "C"
    assert statement.declarations == (s.ExpressionDeclaration("f", a, alias=True),)
    assert statement.annotations[1:] == (
        p.Annotation("hint", (("value", text("x")), ("model", p.AnnotationList((one, two))))),
        p.Annotation("Priority", (("value", Prefixed("-", one)),)),
    )


def test_statements_comments_and_empty_statements() -> None:
    first, second = parse("select * /* all ; */ from A; // the first\n ;select * from B;")
    assert first.body == query(stream("A"))
    assert second.body == query(stream("B"))


def test_each_node_knows_its_place() -> None:
    said = "select a,\n  sum(b + 1) as total\nfrom T#time(5 sec)"
    found = body(said)
    total = found.items[1].expression
    assert total.place == TextPlace(2, 3, 12, 22)
    assert said[total.place.start : total.place.end] == "sum(b + 1)"
    assert said[slice(*total.arguments[0].place[2:])] == "b + 1"
    assert said[slice(*found.stream.views[0].place[2:])] == "#time(5 sec)"
    assert said[slice(*found.place[2:])] == said


@pytest.mark.parametrize(
    "said",
    [
        # The statements of the processing model's chapter, in its order.
        "select * from Withdrawal",
        "select * from Withdrawal#length(5)",
        "select * from Withdrawal(amount>=200)#length(5)",
        "select * from Withdrawal#length(5) where amount >= 200",
        "select account, amount from Withdrawal#time_batch(1 sec)",
        "select sum(amount) as mysum from Withdrawal#time_batch(1 sec)",
        "@name('P') select * from pattern [every w1=WithdrawalEvent -> w2=WithdrawalEvent(accountId = w1.accountId)]",
        "@name('A') create context UserSession initiated by LoginEvent as loginEvent",
        "@name('B') context UserSession select count(*) from WithdrawalEvent(accountId = context.loginEvent.accountId)",
    ],
)
def test_the_chapter_s_statements(said: str) -> None:
    (statement,) = parse(said)
    assert parse(str(statement)) == (statement,)


def test_a_column_without_a_name_is_called_by_its_text() -> None:
    items = body("select max( a , 1 ), a + 1 * 2, Math.max(a.x, b), count(*), a like 'x%' from T").items
    assert [str(item) for item in items] == ["max(a,1)", "a+1*2", "Math.max(a.x,b)", "count(*)", "a like 'x%'"]


WORDS = sorted({word for words in tables().lexer.spelling.values() for word in words if word.isidentifier()})


@pytest.mark.parametrize("word", WORDS)
def test_a_word_of_the_language_is_a_name_in_backticks_and_behind_a_dot(word: str) -> None:
    found = body(f"select `{word}`, a.{word} as `{word}` from `{word}` as `{word}`")
    assert found == query(stream(word, word), items=(q.SelectItem(Name(word)), q.SelectItem(Member(a, word), word)))


@pytest.mark.parametrize("word", [word for word in WORDS if word not in HARD])
def test_most_words_are_names_where_they_cannot_be_words(word: str) -> None:
    equal = Operation("=", Name(word), one)
    found = body(f"select {word}, max({word}) {word} from T({word} = 1) where {word} = 1 order by {word}")
    assert found == query(
        q.StreamTerm(p.EventFilter("T", (equal,))),
        items=(q.SelectItem(Name(word)), q.SelectItem(call("max", Name(word)), word)),
        where=equal,
        order_by=(SortKey(Name(word)),),
    )
