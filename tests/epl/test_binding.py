"""Types, functions and names of bound expressions, one by one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import narwhals as nw
import polars as pl
import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.core.turns import CLOCK
from gpu_ops.epl import parse
from gpu_ops.epl import queries as q
from gpu_ops.epl.column_names import column_names
from gpu_ops.errors import ColumnError
from gpu_ops.plan.expression_types import type_of
from gpu_ops.plan.expressions import exact_divisions, output_schema
from gpu_ops.plan.terms import Term, terms
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound
from gpu_ops.texts.binding.expressions import TimeSpan, bind, bind_condition, bind_period, constant, period
from gpu_ops.texts.binding.scope import BoundStream, StreamScope, is_aggregate
from gpu_ops.texts.placed_error import PlacedError

EVENT = pa.struct([("x", pa.int32()), ("inner", pa.struct([("y", pa.string())]))])
SCHEMA = t.event_type({
    "i": "int", "k": "long", "h": "short", "c": "byte", "d": "double", "f": "float", "t": "string", "p": "boolean",
    "a": "int[]", "b": "string[]", "n": EVENT, "es": pa.list_(EVENT), "big": "BigInteger", "due": "decimal",
    "order": "int",
})  # fmt: skip
ROW: dict[str, Any] = {
    "i": 7, "k": 1_600_000_000_123, "h": 3, "c": -2, "d": 2.5, "f": 0.5, "t": " aB ", "p": True, "a": [4, None, 6],
    "b": ["x", "y"], "n": {"x": 1, "inner": {"y": "in"}}, "es": [{"x": 5, "inner": None}], "big": Decimal(12),
    "due": Decimal("1.5"), "order": 9,
}  # fmt: skip
CLOCK_FIELD = pa.field(CLOCK, pa.timestamp("us", "UTC"))
NOW = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=5_000)


def expression(text: str) -> e.Expression:
    (statement,) = parse(f"select {text} from S")
    assert isinstance(statement.body, q.Query)
    return statement.body.items[0].expression


def result(text: str) -> tuple[str, Any]:
    """The type and the value of an expression."""
    bound = bind(expression(text), StreamScope([BoundStream("s", "S", SCHEMA)]))
    schema = pa.schema([*SCHEMA, CLOCK_FIELD])
    made = output_schema(schema, [bound.value.alias("made")], where="select", only_columns=True).field("made").type
    assert made == bound.type
    rows = pl.from_arrow(pa.Table.from_pylist([{**ROW, CLOCK: NOW}], schema=schema))
    assert isinstance(rows, pl.DataFrame)
    times = pl.lit(0).cast(pl.Datetime("us", "UTC"))
    frame = nw.from_native(rows.with_columns(start=times, end=times))
    (exact,) = exact_divisions([bound.value], schema)
    return t.type_name(bound.type), frame.select(made=exact)["made"].to_list()[0]


def bound(text: str) -> Bound:
    return bind(expression(text), StreamScope([BoundStream("s", "S", SCHEMA)]))


@pytest.mark.parametrize("name", ["min", "max"])
def test_of_many_values_each_stands_in_the_expression_a_few_times(name: str) -> None:
    few, many = (repr(bound(f"{name}({', '.join(['d', 'f'] * count)})").value).count("col(") for count in (2, 16))
    assert many < 16 * 8 * few  # it doubled for each value: some 65,000 times as many


@pytest.mark.parametrize("name", ["min", "max", "Math.min", "Math.max"])
def test_the_least_of_the_least_is_that_of_all(name: str) -> None:
    nested = bound(f"{name}({name}(d, {name}(f, k)), {name}(i, 2))")
    flat = bound(f"{name.removeprefix('Math.')}(d, f, k, i, 2)")
    assert repr(nested.value) == repr(flat.value)
    assert nested.type == flat.type


def test_parts_that_stand_in_an_expression_many_times_are_looked_at_once() -> None:
    looks = 0

    def counted(term: Term) -> Term:
        nonlocal looks
        looks += 1
        return term

    value = nw.col("v")
    for _ in range(12):
        value = nw.when(value > 0).then(value).otherwise(value + 1)
    (made,) = terms(value.alias("w"), nw.from_native(pl.DataFrame({"v": [1]})), counted).values()
    assert looks < 12 * 8  # the expression has half a million parts
    assert sum(1 for _ in made.walk()) == looks
    assert type_of(value, {"v": pl.Int64()}) == pl.Int64()


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        # Promotion
        ("h + h", "int", 6),
        ("c + h", "int", 1),
        ("i + k", "long", 1_600_000_000_130),
        ("f + f", "float", 1.0),
        ("f + i", "double", 7.5),
        ("f + d", "double", 3.0),
        ("i * 2L", "long", 14),
        ("-h", "int", -3),
        ("+h", "short", 3),
        ("big + i", "BigInteger", Decimal(19)),
        ("due + 1", "BigDecimal", Decimal("2.5")),
        ("big + due", "BigDecimal", Decimal("13.5")),
        ("big / 5", "double", 2.4),
        ("i / 2", "double", 3.5),
        ("i / 0", "double", float("inf")),
        ("-i / 0", "double", float("-inf")),
        ("5 / 3", "double", 5 / 3),
        ("i / 3", "double", 7 / 3),
        ("i % 4", "int", 3),
        ("-i % 4", "int", -3),
        ("i % 0", "int", None),
        ("-i % -4", "int", -3),
        ("-i % -2147483648", "int", -7),
        ("-i % 4L", "long", -3),
        ("7 % -4", "int", 3),
        ("2147483647 + 1L", "long", 2_147_483_648),
        ("-2147483648", "int", -2_147_483_648),
        ("null + 1", "int", None),
        ("null / 1", "double", None),
        ("i & 3", "int", 3),
        ("c | h", "int", -1),
        ("h ^ h", "short", 0),
        ("due > i", "boolean", False),
        ("big = 12", "boolean", True),
        ("f = 0.5", "boolean", True),
        # Properties
        ("s.i", "int", 7),
        ("`order` + s.`order`", "int", 18),
        ("n.x", "int", 1),
        ("s.n.inner.y", "string", "in"),
        ("a[0]", "int", 4),
        ("a[5]", "int", None),
        ("es[0].x", "int", 5),
        ("es[0].inner.y", "string", None),
        ("es[1].x", "int", None),
        ("es.size()", "int", 1),
        ("es.firstOf().x", "int", 5),
        ("missing?", "null", None),
        ("exists(missing?)", "boolean", False),
        ("exists(n.inner)", "boolean", True),
        ("exists(n.other?)", "boolean", False),
        ("missing? is null", "boolean", True),
        ("missing?.more = 1", "boolean", None),
        # Functions
        ("coalesce(null, i, d)", "double", 7.0),
        ("min(i, d, h)", "double", 2.5),
        ("max(i, null)", "int", None),
        ("typeof(k)", "string", "Long"),
        ("typeof(b)", "string", "String[]"),
        ("typeof(null)", "string", None),
        ("instanceof(i, int, string)", "boolean", True),
        ("instanceof(i, java.lang.Integer)", "boolean", True),
        ("instanceof(i, long)", "boolean", False),
        ("current_timestamp", "long", 5_000),
        ("current_timestamp() + 1", "long", 5_001),
        ("Math.abs(c)", "int", 2),
        ("java.lang.Math.max(i, d)", "double", 7.0),
        ("Math.round(d)", "long", 3),
        ("Math.round(-d)", "long", -2),
        ("Math.floor(d)", "double", 2.0),
        ("Math.sqrt(-d)", "double", float("nan")),
        ("Math.pow(i, 2)", "double", 49.0),
        ("Math.signum(c)", "double", -1.0),
        ("Integer.toString(i)", "string", "7"),
        ("Long.valueOf('12')", "long", 12),
        ("String.valueOf(p)", "string", "true"),
        # Casts
        ("cast(d, int)", "int", 2),
        ("cast(-d, long)", "long", -2),
        ("cast(i, double)", "double", 7.0),
        ("cast(i, BigDecimal)", "BigDecimal", Decimal(7)),
        ("cast('12', int) + 1", "int", 13),
        ("cast('1.5', double)", "double", 1.5),
        ("cast(i, java.lang.String)", "string", "7"),
        ("cast(null, long)", "long", None),
        ("cast(due, double) * d", "double", 3.75),
        ("h.intValue()", "int", 3),
        ("d.longValue()", "long", 2),
        # Texts
        ("t || 'c' || null", "string", None),
        ("'a' || 'b'", "string", "ab"),
        ("t.trim().toUpperCase()", "string", "AB"),
        ("t.toLowerCase().length()", "int", 4),
        ("t.substring(1, 2)", "string", "a"),
        ("t.substring(2)", "string", "B "),
        ("t.concat('!')", "string", " aB !"),
        ("t.equals(' aB ')", "boolean", True),
        ("t.equalsIgnoreCase(' Ab ')", "boolean", True),
        ("t.matches('.*B')", "boolean", False),
        ("t.charAt(1)", "string", "a"),
        ("'a.b.c'.lastIndexOf('.')", "int", 3),
        ("'aaa'.lastIndexOf('aa')", "int", 1),
        ("'a.b.c'.lastIndexOf('.', 2)", "int", 1),
        ("t.lastIndexOf('x')", "int", -1),
        ("t.lastIndexOf('')", "int", 4),
        ("'a1bc22'.replaceAll('[0-9]+', '#')", "string", "a#bc#"),
        ("'abc'.replaceAll('x*', '-')", "string", "-a-b-c-"),
        ("t.charAt(4)", "string", None),
        ("t.indexOf('B')", "int", 2),
        ("t.indexOf('b')", "int", -1),
        ("t.indexOf(' ', 1)", "int", 3),
        ("t.indexOf('a', 9)", "int", -1),
        ("t.indexOf('', 2)", "int", 2),
        ("t.indexOf('', 9)", "int", 4),
        # Texts as times
        ("cast('20100301', long, dateformat: 'yyyyMMdd')", "long", 1_267_401_600_000),
        ("cast('1.3.2010 12:34', date, dateformat: 'd.M.yyyy HH:mm')", "long", 1_267_446_840_000),
        ("cast('1 Mar 10 01 PM', java.util.Date, dateformat: 'd MMM yy hh a')", "long", 1_267_448_400_000),
        ("cast('2010', calendar, dateformat: 'yyyy')", "long", 1_262_304_000_000),
        ("cast('01:30', long, dateformat: 'HH:mm')", "long", 5_400_000),
        ("cast('2010-03-01T12:34:56.789', long, dateformat: \"yyyy-MM-dd'T'HH:mm:ss.SSS\")", "long", 1_267_446_896_789),
        ("cast('2010-03-01', date, dateformat: 'iso').getDayOfWeek()", "int", 2),
        ("cast('1969-12-31T23:59:59.999', long, dateformat: 'iso')", "long", -1),
        ("cast('2010-03-01T12:34:56Z', long, dateformat: 'iso')", "long", 1_267_446_896_000),
        ("cast('2010-03-01T12:34:56.5+01:30', long, dateformat: 'iso')", "long", 1_267_441_496_500),
        ("cast(null, long, dateformat: 'yyyy')", "long", None),
        ("i like '7%'", "boolean", True),
        ("t like '%a_%'", "boolean", True),
        ("t regexp '.*B'", "boolean", False),
        ("t regexp '.*B\\\\s'", "boolean", True),
        # Times
        ("k.getDayOfWeek()", "int", 1),
        ("k.getYear()", "int", 2020),
        ("k.getMonthOfYear()", "int", 8),
        ("k.getMillisOfSecond()", "int", 123),
        ("(k + 86400000).getDayOfWeek()", "int", 2),
        # Arrays
        ("{1, 2, 3}", "int[]", [1, 2, 3]),
        ("{1, 2.5}.size()", "int", 2),
        ("6 in (a)", "boolean", True),
        ("'z' in (b)", "boolean", False),
        ("b.contains('x')", "boolean", True),
        ("a.countOf()", "int", 3),
        ("i in ({1, 7})", "boolean", True),
        ("i = any ({1, 7})", "boolean", True),
        ("i > all ({1, 7})", "boolean", False),
        # Choices
        ("case when p then 1 else 2.5 end", "double", 1.0),
        ("case i when 7 then 'seven' end", "string", "seven"),
        ("case i when null then 'none' else null end", "string", None),
        ("case when null then 1 end", "int", None),
        ("not (i in (1, null))", "boolean", None),
        ("null = null", "boolean", None),
        ("null is null", "boolean", True),
        ("i is not null", "boolean", True),
        ("a = a", "boolean", True),
    ],
)  # fmt: skip
def test_an_expression(text: str, kind: str, value: Any) -> None:
    assert result(text) == (kind, pytest.approx(value, nan_ok=True) if isinstance(value, float) else value)


@pytest.mark.parametrize(
    "text",
    [
        "i > 1 and t = 'a' or not p",
        "d > 1.5",
        "d <= i",
        "d != 1.5",
        "d in (1.0, 2.5)",
        "d between 1 and 2",
        "t between 'a' and t",
        "t like 'a%' or t like '%a' or t like '%a%'",
        "i not in (1, 2, null)",
        "i > any (1, 2)",
        "case when p then i else k end",
        "i / 2 + d * 3",
        "i % 2",
        "t || 'x'",
        "p is not null",
        "coalesce(i, 0)",
        "cast(i, string)",
        "n.inner.y",
        "k.getDayOfWeek()",
        "a.size()",
    ],
)
def test_most_expressions_mean_the_same_on_every_device(text: str) -> None:
    rows = pa.Table.from_pylist([ROW], schema=SCHEMA).append_column("at", pa.array([0], pa.timestamp("us", "UTC")))
    bound = bind(expression(text), StreamScope([BoundStream("s", "S", SCHEMA)]))
    found = g.events(rows, start="at").select(made=bound.value).collect(exact=True)["made"].to_pylist()
    assert found == [result(text)[1]]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 * (3 + 4)", 14),
        ("-5", -5),
        ("7 / 2", 3.5),
        ("1 / 0", float("inf")),
        ("'a' || 'b'", "ab"),
        ("null", None),
        ("true", True),
        ("{1, -2}", [1, -2]),
        ("-2147483648", -2_147_483_648),
    ],
)
def test_a_constant(text: str, value: Any) -> None:
    assert constant(expression(text)) == value


def spans(text: str) -> list[e.Syntax]:
    (statement,) = parse(f"select * from S#time({text})")
    assert isinstance(statement.body, q.Query)
    return list(statement.body.stream.views[0].arguments)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("10 sec", TimeSpan(0, 10_000)),
        ("1 year 2 months 1 week", TimeSpan(14, 7 * 86_400_000)),
        ("1.5 min 500 milliseconds", TimeSpan(0, 90_500)),
        ("1.1 sec", TimeSpan(0, 1_100)),
        ("1499 microseconds", TimeSpan(0, 1)),
        ("1500 microseconds", TimeSpan(0, 2)),
        ("10", TimeSpan(0, 10_000)),
        ("0.5", TimeSpan(0, 500)),
        ("(2 * 3) sec", TimeSpan(0, 6_000)),
    ],
)
def test_a_span_of_time(text: str, span: TimeSpan) -> None:
    (node,) = spans(text)
    assert period(node) == span


@pytest.mark.parametrize(
    ("text", "value"),
    [("s.i sec", 7_000), ("d min s.h sec", 153_000), ("1 hour k msec", 1_600_003_600_123), ("h", 3_000), ("d", 2_500)],
)
def test_a_span_of_values_is_a_long_of_milliseconds(text: str, value: int) -> None:
    (node,) = spans(text)
    bound = bind_period(node, StreamScope([BoundStream("s", "S", SCHEMA)]))
    assert bound.type == pa.int64()
    frame = nw.from_native(pl.DataFrame({name: [ROW[name]] for name in "ikhd"}))
    assert frame.select(bound.value.alias("x"))["x"].to_list() == [value]


class Keyed(StreamScope):
    """A scope in which some nodes have a meaning of their own."""

    def special(self, node: e.Expression) -> Bound | None:
        if node in {expression("i + 1"), expression("prior(1, i)"), e.Name("myvar")}:
            return Bound(nw.col("key"), pa.int64())
        return None

    def aggregate(self, call: e.FunctionCall) -> Bound:
        return Bound(nw.col(str(call)), EVENT if call.name == "last" else pa.float64())


def test_a_scope_binds_what_it_knows_before_anything_else() -> None:
    scope = Keyed([BoundStream("s", "S", SCHEMA)])
    frame = nw.from_native(pl.DataFrame({"key": [4], "i": [2], "sum(i)": [1.5], "last(*)": [{"x": 8}]}))
    for text, value in {
        "(i + 1) * 2": 8,
        "2 + prior(1, i)": 6,
        "myvar": 4,
        "sum(i) + i": 3.5,
        "last(*).x": 8,
        "min(sum(i), 1)": 1.0,
    }.items():
        bound = bind(expression(text), scope)
        assert frame.select(bound.value.alias("x"))["x"].to_list() == [value], text
        assert bound.text == str(expression(text))


def test_an_unqualified_name_is_that_of_the_only_stream_that_has_it() -> None:
    left = BoundStream("l", "L", t.event_type({"a": "int", "b": "int"}), {"a": "l.a", "b": "l.b"})
    right = BoundStream("", "R", t.event_type({"b": "string", "c": "int"}), {"b": "r.b", "c": "r.c"})
    scope = StreamScope([left, right])
    frame = nw.from_native(pl.DataFrame({"l.a": [1], "l.b": [2], "r.b": ["x"], "r.c": [3]}))
    for text, value in {"a + c": 4, "l.b": 2, "R.b": "x", "l.b + R.c": 5}.items():
        assert frame.select(bind(expression(text), scope).value.alias("x"))["x"].to_list() == [value]
    with pytest.raises(PlacedError, match="streams 'l' and 'R'"):
        bind(expression("a + b"), scope)


def test_a_name_before_a_dot_is_a_stream_if_that_has_such_a_property() -> None:
    both = BoundStream("n", "S", t.event_type({"n": EVENT, "x": "string"}), {"n": "n.n", "x": "n.x"})
    assert bind(expression("n.x"), StreamScope([both])).type == pa.string()
    assert bind(expression("n.inner.y"), StreamScope([both])).type == pa.string()
    assert bind(expression("n.n.x"), StreamScope([both])).type == pa.int32()


def test_a_condition_is_a_boolean() -> None:
    scope = StreamScope([BoundStream("s", "S", SCHEMA)])
    assert bind_condition(expression("null"), scope).type == pa.bool_()
    with pytest.raises(PlacedError, match="A filter takes a condition, and 'i' is of type int"):
        bind_condition(expression("i"), scope, "A filter")


@pytest.mark.slow
def test_a_long_condition_is_not_deep() -> None:
    text = " or ".join(f"i = {number}" for number in range(2_000))
    assert result(text) == ("boolean", True)


def test_types_have_esper_names() -> None:
    names = ["int", "long", "short", "byte", "float", "double", "string", "boolean", "BigInteger", "BigDecimal"]
    schema = t.event_type({name: name for name in names})
    assert [t.type_name(field.type) for field in schema] == names
    assert t.type_of("java.lang.Integer[]") == pa.list_(pa.int32())
    assert t.type_of("int[primitive][]") == pa.list_(pa.list_(pa.int32()))
    with pytest.raises(ColumnError, match="There is no type 'intt'"):
        t.event_type({"a": "intt"})


NUMBERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), t.BIG_INTEGER]


@pytest.mark.parametrize("one", NUMBERS)
@pytest.mark.parametrize("other", NUMBERS)
def test_promotion_does_not_depend_on_the_order(one: pa.DataType, other: pa.DataType) -> None:
    assert t.promoted(one, other) == t.promoted(other, one)
    for operator in "+-*/%":
        made = t.arithmetic_type(operator, one, other)
        assert made == t.arithmetic_type(operator, other, one)
        assert made is None or t.arithmetic_type("+", made, made) == made


def items(text: str) -> tuple[q.SelectItem, ...]:
    (statement,) = parse(f"select {text} from S")
    assert isinstance(statement.body, q.Query)
    return statement.body.items


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a, s.b, c as d", ["a", "s.b", "d"]),
        ("sum( a ), a*2, a + b", ["sum(a)", "a*2", "a+b"]),
        ("window(s), `order`, count(distinct a)", ["window(s)", "order", "count(distinct a)"]),
        ("*, s.*", [None, None]),
        ("'`' || a", ["'`'||a"]),
        ("(select x as y from T), (select z from T), (select * from T)", ["y", "z", "subselect_3"]),
    ],
)
def test_columns_are_called_as_they_are_written(text: str, names: list[str | None]) -> None:
    assert column_names(items(text)) == names


def test_aggregates_are_known_by_their_names() -> None:
    texts = ["count(*)", "MAX(a)", "max(a, b)", "min(a, filter: b > 1)", "s.sum(a)", "abs(a)", "maxbyever(a)"]
    calls = [expression(text) for text in texts]
    assert [isinstance(call, e.FunctionCall) and is_aggregate(call) for call in calls] == [
        True, True, False, True, False, False, True,
    ]  # fmt: skip
