"""Variables: beside the interpreter, in any cut and on the array device; what they are, and what is wrong with them."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import epl
from gpu_ops.errors import ColumnError, GpuOpsError, PlanError, TextError
from tests.support.epl_interpreter import Interpreter
from tests.support.epl_on_runtime import rows_of
from tests.support.examples import examples

SCHEMA = {"A": {"k": "string", "v": "int"}, "B": {"w": "int"}, "C": {"c": "int"}}
CREATED = "create variable int x = 1; create variable long y; create constant variable int two = 2;"
SETTING = [
    "on B as b set x = b.w, y = x + two",
    "on A set x = v",
    "on A(v > x) set x = x + 1",
    "on A set x = x + v",
    "on A as a set y = a.v - y",
    "on B set x = x - w, y = w",
    "on B set x = case when w > x then w else x end",
    "on A set x = case when k = 'a' then v else x end",
    "on A set y = x, x = x + two, y = y + x",
    "on C(c > y) set y = c",
]
READING = [
    "select v, x, y, x * two as d from A",
    "select w from B(w < x)",
    "select w from B where w < x or y is null",
    "select irstream v, x from A#length(2)",
    "select irstream v from A#length(2) where v < x",
    "select sum(v) as s, x from A having sum(v) > x",
    "select k, count(*) as n, x from A#length(3) group by k having count(*) > x - 2",
    "insert into C select v + x as c from A where v >= x",
    "select c, x from C",
    "select irstream c, y from C#lastevent",
    "select v, x from A order by x",
    "select v from A#length(two)",
    "select v, x from A output first every 2 events",
    "select a.v as v, b.w as w, x from A#lastevent as a, B#lastevent as b",
]


@st.composite
def texts(draw: st.DrawFn) -> str:
    setting = draw(st.lists(st.sampled_from(SETTING), min_size=1, max_size=3))
    reading = draw(st.lists(st.sampled_from(READING), min_size=1, max_size=3))
    both = draw(st.permutations([*setting, *reading]))
    return CREATED + ";".join(f"@name('s{at}') {each}" for at, each in enumerate(both))


numbers = st.integers(-3, 5)
events = st.one_of(
    st.tuples(st.just("A"), st.fixed_dictionaries({"k": st.sampled_from("ab"), "v": numbers})),
    st.tuples(st.just("B"), st.fixed_dictionaries({"w": numbers})),
)


def _told(deliveries: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for each in deliveries:
        sides = [rows_of(side) if isinstance(side, pa.Table) else side for side in (each.new, each.old)]
        ordered = [None if rows is None else sorted(repr(sorted(row.items())) for row in rows) for rows in sides]
        found[each.statement].append(ordered)
    return found


@pytest.mark.slow
@given(texts(), st.lists(events, min_size=1, max_size=12), st.data())
@examples(20, dear=True)
def test_statements_see_what_stood_when_their_turn_came(
    text: str, script: list[tuple[str, dict[str, Any]]], data: st.DataObject
) -> None:
    """All events one by one, through the interpreter; in runs of a type, cut anywhere, through the runtime."""
    literal = Interpreter(SCHEMA)
    literal.deploy(text)
    runtime = epl.Runtime(SCHEMA, device=data.draw(st.sampled_from(["cpu", "cpu", "array"])))
    runtime.deploy(text)
    wanted: dict[str, list[Any]] = defaultdict(list)
    found: dict[str, list[Any]] = defaultdict(list)
    for name, run in groupby(script, key=lambda each: each[0]):
        rows = [row for _, row in run]
        for row in rows:
            for statement, told in _told(literal.send(name, row)).items():
                wanted[statement] += told
        while rows:
            many = data.draw(st.integers(1, len(rows)))
            for statement, told in _told(runtime.send(name, rows[:many])).items():
                found[statement] += told
            rows = rows[many:]
        assert found == wanted
    assert dict(runtime.variables) == literal.variables


WAKING = [
    "select v from A output when x > 2",
    "select irstream v from A#length(2) output when count_insert > x",
    "select v from A#time(2 sec) output last when x > 1 or count_remove > 1",
    "select sum(v) as s from A#length(3) having sum(v) > 0 output all when x = 1 and count_insert_total > 1",
    "select k, count(*) as n from A group by k output when x > 1",
    "select v from A output after 2 events when x > 0",
]


@pytest.mark.slow
@given(
    st.lists(st.sampled_from(WAKING), min_size=1, max_size=2, unique=True).flatmap(
        lambda waking: st.permutations(
            [*waking, "on B set x = w", "on A(k = 'a') set x = v", "on A(k = 'b') set x = x + 1"]
        )
    ),
    st.lists(events | st.tuples(st.just(""), st.integers(1, 3)), min_size=1, max_size=12),
    st.data(),
)
@examples(15, dear=True)
def test_an_output_waits_for_a_variable(order: list[str], script: list[tuple[str, Any]], data: st.DataObject) -> None:
    """A change that makes the condition hold is output by the next move of the clock, a delivery at once."""
    text = "create variable int x = 0;" + ";".join(f"@name('s{at}') {each}" for at, each in enumerate(order))
    literal = Interpreter(SCHEMA)
    literal.deploy(text)
    runtime = epl.Runtime(SCHEMA, device=data.draw(st.sampled_from(["cpu", "cpu", "array"])))
    runtime.deploy(text)
    for name, run in groupby(script, key=lambda each: each[0]):
        wanted: dict[str, list[Any]] = defaultdict(list)
        rows = [row for _, row in run]
        for row in rows:
            told = literal.send(name, row) if name else literal.advance(literal.clock.now + row * 1000)
            for statement, some in _told(told).items():
                wanted[statement] += some
        if name:
            found = _told(runtime.send(name, rows))
        else:
            found = defaultdict(list)
            for seconds in rows:
                for statement, some in _told(runtime.advance(runtime.clock + seconds * 1000)).items():
                    found[statement] += some
        assert found == wanted


def deployed(text: str) -> epl.Runtime:
    runtime = epl.Runtime(SCHEMA)
    runtime.deploy(text)
    return runtime


def test_a_variable_has_a_type_and_a_value_and_is_set_from_outside() -> None:
    runtime = deployed(
        "create variable int a = 2 * 3; create variable long b = a + 1; create constant variable double c = a;"
        "create variable string s; create variable int[] many = {1, 2}; create variable boolean t = true"
    )
    variables = runtime.variables
    assert dict(variables) == {"a": 6, "b": 7, "c": 6.0, "s": None, "many": [1, 2], "t": True}
    variables["s"], variables["a"], variables["many"] = "x", None, [3]
    assert (variables["s"], variables["a"], variables["many"], len(variables)) == ("x", None, [3], 6)
    (seen,) = runtime.deploy("select s, a, b, c, t, many[0] as first from A")
    assert seen.schema.types == [pa.string(), pa.int32(), pa.int64(), pa.float64(), pa.bool_(), pa.int32()]
    (delivery,) = runtime.send("A", {"k": "a", "v": 1})
    assert rows_of(delivery.new) == [{"s": "x", "a": None, "b": 7, "c": 6.0, "t": True, "first": 3}]


@pytest.mark.parametrize(
    ("name", "value", "error", "said"),
    [
        ("a", "much", ColumnError, r"'much' is no int\. \[column 'a'\]"),
        ("a", 1.5, ColumnError, r"1\.5 is no int\. \[column 'a'\]"),
        ("a", 1 << 40, ColumnError, r"is no int\. \[column 'a'\]"),
        ("c", 1, PlanError, "The variable 'c' is a constant"),
        ("d", 1, PlanError, r"There is no variable 'd'\. There are: a, c"),
    ],
)
def test_what_a_variable_cannot_be(name: str, value: object, error: type[GpuOpsError], said: str) -> None:
    runtime = deployed("create variable int a = 1; create constant variable int c = 2")
    with pytest.raises(error, match=said):
        runtime.variables[name] = value
    assert dict(runtime.variables) == {"a": 1, "c": 2}


WRONG = {
    "create variable int x = 1.5": r"'1\.5' is no int\. \[line 1, column 25\]",
    "create variable int x = v": r"'v' is no constant",
    "create variable object x": r"gpu_ops has no variables of type object\. \[line 1, column 17\]",
    "create variable int n": r"There is a variable 'n' already",
    "create constant variable int m = 1; on A set m = 2": r"The variable 'm' is a constant\. \[line 1, column 46\]",
    "on A set m = 2": r"There is no variable 'm'\. \[line 1, column 10\] Known: n",
    "on A set n = k": r"The variable 'n' is of type int, and 'k' is of type string\. \[line 1, column 14\]",
    "on A set n = 2.5": r"The variable 'n' is of type int, and '2\.5' is of type double",
    "on A set n = sum(v)": r"sum\(…\) is an aggregate, and there are none here",
    "on D set n = 1": r"There is no type of events 'D'\. \[line 1, column 4\]",
    "on A set n[0] = 1": "gpu_ops has no assignments but to variables",
    "create variable int v; select v from A": r"'v' is a variable, and a property of 'A'\. \[line 1, column 31\]",
    "select n + k from A": r"'\+' takes numbers, and 'k' is of type string",
    "select * from A where n": r"'where' takes a condition, and 'n' is of type int",
    "select v from A output first when n > 1 then set n = 0": "gpu_ops has no output first … then set",
    "select v from A output when n > 1 then set n = k": "'output' has no property 'k'",
    "on B set n = w; @name('r') select sum(v * n) from A": "The statement 'r' has read the variable 'n' once",
    "@name('r') select v from A limit n; on B set n = w": "The statement 'r' has read the variable 'n' once",
}


def test_a_pattern_sets_a_variable() -> None:
    """A(v=1), B(w=5): the pattern is complete and sets 6, which a statement behind it sees at that event."""
    runtime = deployed(
        "create variable int n = 0; on pattern [every a=A -> b=B] set n = a.v + b.w; @name('r') select n from B"
    )
    runtime.send("A", {"v": 1})
    assert [rows_of(each.new) for each in runtime.send("B", {"w": 5}) if each.statement == "r"] == [[{"n": 6}]]
    assert dict(runtime.variables) == {"n": 6}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_text(text: str) -> None:
    runtime = deployed("create variable int n = 1")
    with pytest.raises(TextError, match=WRONG[text]):
        runtime.deploy(text)
    assert dict(runtime.variables) == {"n": 1}
    assert runtime.statements == ()


def test_what_is_read_once_is_a_constant_while_the_statement_runs() -> None:
    runtime = deployed(
        "create variable int n = 2; @name('r') select sum(v * n) as s from A#length(n) output every n events"
    )
    (delivery,) = runtime.send("A", [{"v": 1}, {"v": 2}])
    assert rows_of(delivery.new) == [{"s": 2}, {"s": 6}]
    with pytest.raises(PlanError, match="The statement 'r' has read the variable 'n' once"):
        runtime.variables["n"] = 3
    runtime.undeploy("r")
    runtime.variables["n"] = 3


def test_a_statement_that_sets_tells_its_listeners_and_has_rows() -> None:
    """Events B with w = 5 and 7: x becomes w, then y one more than x."""
    runtime = deployed(
        "create variable int x; create variable int y; @name('set') on B(w > 1) as b set x = b.w, y = x + 1"
    )
    heard: list[Any] = []
    runtime["set"].listen(lambda new, old, statement: heard.append((rows_of(new), old, statement.name)))
    runtime.send("B", [{"w": 5}, {"w": 0}, {"w": 7}])
    assert heard == [([{"x": 5, "y": 6}], None, "set"), ([{"x": 7, "y": 8}], None, "set")]
    assert runtime.rows("set").to_pylist() == [{"x": 7, "y": 8}]
    assert runtime.active_filters() == 1


@pytest.mark.parametrize(
    ("assignment", "wanted"),
    [
        ("x = x + v", [1, 3, 6, 10, 15]),
        ("x = v + x", [1, 3, 6, 10, 15]),
        ("x = x - 1", [-1, -2, -3, -4, -5]),
        ("x = case when v > x + 1 then v else x end", [0, 2, 2, 4, 4]),
        ("x = x * 2 + 1", [1, 3, 7, 15, 31]),
        ("x = v, x = x + 1", [2, 3, 4, 5, 6]),
    ],
)
def test_a_variable_that_depends_on_itself(assignment: str, wanted: list[int]) -> None:
    runtime = deployed(f"create variable int x = 0; @name('set') on A set {assignment}")
    runtime["set"].deliveries()
    runtime.send("A", [{"v": v} for v in range(1, 6)])
    assert runtime["set"].deliveries()["x"].to_pylist() == wanted


def test_a_count_of_many_events_is_one_sum() -> None:
    runtime = deployed(
        "create variable long n = 0; create variable double s = 0; on A set n = n + 1, s = s + v; on B set n = w"
    )
    runtime.send("A", pa.table({"k": ["a"] * 100_000, "v": pa.array(range(100_000), pa.int32())}))
    assert dict(runtime.variables) == {"n": 100_000, "s": float(sum(range(100_000)))}


def test_a_sum_that_does_not_fit_stops_the_statement_that_sets_it() -> None:
    runtime = deployed(
        "create variable int x = 2147483646; @name('set') on A set x = x + 1; @name('b') select x from B"
    )
    runtime.send("A", {"v": 0})
    with pytest.raises(GpuOpsError):
        runtime.send("A", {"v": 0})
    (delivery,) = runtime.send("B", {"w": 0})
    assert rows_of(delivery.new) == [{"x": 2147483647}]


def test_variables_are_in_checkpoints(tmp_path: Path) -> None:
    text = f"{CREATED} @name('r') select irstream v, x from A#length(1) where v >= x; on B set x = w, y = x"
    one = deployed(text)
    one.send("B", {"w": 3})
    one.send("A", {"v": 4})
    one.checkpoint(tmp_path / "runtime.checkpoint")
    again = epl.Runtime.restore(tmp_path / "runtime.checkpoint")
    assert dict(again.variables) == dict(one.variables) == {"x": 3, "y": 3, "two": 2}
    told = []
    for each in (one, again):
        first = each.send("A", [{"v": 3}, {"v": 1}])
        each.send("B", {"w": 0})
        told.append(
            [(rows_of(delivery.new), rows_of(delivery.old)) for delivery in (*first, *each.send("A", {"v": 0}))]
        )
    assert told[0] == told[1]
    with pytest.raises(PlanError, match="constant"):
        again.variables["two"] = 3


def test_variables_over_data_at_rest_are_constants() -> None:
    data = pa.table({"seq": [1, 2, 3], "v": pa.array([1, 5, 7], pa.int32())})
    text = "create variable int least = 5; expression twice {x => x * 2} select twice(v) as d from A(v >= least)"
    assert epl.query(text, A=data, order="seq").collect()["d"].to_pylist() == [10, 14]


def test_over_data_at_rest_they_are_set_too() -> None:
    data = pa.table({"seq": [1, 2, 3], "v": pa.array([1, 5, 7], pa.int32())})
    text = "create variable int n = 1; on A set n = v; select n from A"
    assert epl.query(text, A=data, order="seq").collect()["n"].to_pylist() == [1, 5, 7]
