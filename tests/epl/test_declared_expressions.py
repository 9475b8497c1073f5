"""DeclaredExpression expressions: statements with them are the statements in which they are written out."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_ops import epl
from gpu_ops.epl.inlining import DeclaredExpression, inlined
from gpu_ops.epl.statements import CreateExpression
from gpu_ops.errors import TextError

TYPES = {"T": {"a": "int", "b": "int", "s": "string"}, "U": {"s": "string", "c": "int"}}


def written_out(text: str, *created: str) -> str:
    """The body of a statement, written out."""
    known = {}
    for each in created:
        (statement,) = epl.parse(each)
        assert isinstance(statement.body, CreateExpression)
        known[statement.body.declaration.name] = DeclaredExpression(statement.body.declaration, each)
    (statement,) = epl.parse(text)
    return str(inlined(statement, known, text).body)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("expression twice {x => x*2} select twice(a) as d from T", "select a*2 as d from T"),
        ("expression twice {x => x*2} select twice(a+b) from T", "select (a+b)*2 as `twice(a+b)` from T"),
        ("expression twice {x => x*2} select twice(twice(a)) as d from T", "select a*2*2 as d from T"),
        ("expression mid {x => x.a-x.b} select mid(t) as d from T as t", "select t.a-t.b as d from T as t"),
        ("expression mid {x => x.a-x.b} select mid(*) as d from T", "select a-b as d from T"),
        ("expression one {1} select one() as d, one as e from T", "select 1 as d,1 as e from T"),
        ("expression ab alias for {a+b} select ab from T where ab > 1", "select a+b as ab from T where a+b>1"),
        ("expression f {(x,y) => x.a*y} select f(t, b) as d from T as t", "select t.a*b as d from T as t"),
        ("expression f {x => x+1} expression g {x => f(x)*a} select g(b) as d from T", "select (b+1)*a as d from T"),
        ("expression x {a} expression g {a => a+x()} select g(b) as d from T", "select b+a as d from T"),
        (
            "expression f {x => sum(x)} select f(a) as d from T having f(a) > 1",
            "select sum(a) as d from T having sum(a)>1",
        ),
        ("expression f {x => x.a} select * from T(f(*) > 1)#expr(f(*) > 2)", "select * from T(a>1)#expr(a>2)"),
        ("select a from T", "select a from T"),
    ],
)
def test_written_out(text: str, expected: str) -> None:
    assert written_out(text) == str(epl.parse(expected)[0].body)


def test_a_statement_knows_what_was_created_and_its_own_first() -> None:
    created = "create expression f {x => x+1}", "create expression g {x => f(x)*2}"
    assert written_out("select g(a) as d from T", *created) == "select (a+1)*2 as d from T"
    assert written_out("expression f {x => x+9} select f(a) as d from T", *created) == "select a+9 as d from T"


def test_rows_are_those_of_the_statement_written_out() -> None:
    runtime = epl.Runtime(TYPES)
    runtime.deploy("create expression most {x => (select max(c) from U#keepall as u where u.s = x.s)}")
    made = runtime.deploy("""
        expression key {x => x.s || '!'} expression total alias for {sum(a)}
            select key(t), total from T#length(2) as t group by key(t) having total > 0;
        select t.s || '!', sum(a) from T#length(2) as t group by t.s || '!' having sum(a) > 0;
        select most(t) from T as t;
        select (select max(c) from U#keepall as u where u.s = t.s) from T as t
    """)
    for each in made:
        assert each.deliveries().num_rows == 0
    runtime.send("U", [{"s": "x", "c": 4}, {"s": "y", "c": 5}])
    runtime.send("T", [{"a": 1, "b": 2, "s": "x"}, {"a": 2, "b": 2, "s": "y"}, {"a": 3, "b": 2, "s": "x"}])
    called, plain, most, asked = ([*each.deliveries().to_pydict().values()] for each in made)
    assert called == plain
    assert called[2:] == [["x!", "y!", "x!"], [1, 2, 3]]
    assert most == asked
    assert most[2:] == [[4, 5, 4]]
    assert made[0].schema.names == ["key(t)", "total"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "expression e {x => x+'a'}\nselect e(a) from T",
            r"'\+' takes numbers, and 'a' is of type string\. \[line 1, column 22",
        ),
        ("expression e {x => x.c}\nselect e(t) from T as t", r"'T' has no property 'c'\. \[line 1, column 20"),
        (
            "expression e {x => x+1}\nselect e(s) from T",
            r"'\+' takes numbers, and 's' is of type string\. \[line 2, column 10",
        ),
        ("expression e {x => x}\nselect e(a, b) from T", r"e takes 1 value, and there are 2\. \[line 2, column 8"),
        ("expression e {1}\nselect e(a) from T", r"e takes no value, and there is 1\. \[line 2, column 8"),
        ("expression e {x => e(x)} select e(a) from T", r"The expression 'e' calls itself\. \[line 1, column 20"),
        (
            "expression e {f()} expression f {e()} select e() from T",
            r"The expression 'e' calls itself\. \[line 1, column 34",
        ),
        (
            "expression e {1} expression e {2} select e() from T",
            r"There is an expression 'e' already\. \[line 1, column 18",
        ),
        (
            "create expression e {1}; create expression e {2}",
            r"There is an expression 'e' already\. \[line 1, column 33",
        ),
        ("select far(t) from T as t", r"'T' has no property 'gone'\. \[line 1, column 8"),
    ],
)
def test_a_wrong_expression(text: str, said: str) -> None:
    runtime = epl.Runtime(TYPES)
    runtime.deploy("create expression far {x => x.a + x.gone}")
    with pytest.raises(TextError, match=said):
        runtime.deploy(text)
    assert runtime.statements == ()


def test_what_a_refused_text_declares_is_not_known() -> None:
    runtime = epl.Runtime(TYPES)
    with pytest.raises(TextError):
        runtime.deploy("create expression e {1}; select gone from T")
    runtime.deploy("create expression e {2}")


def test_expressions_that_double_again_and_again_are_refused() -> None:
    doubling = "".join(f"expression e{n} {{x => e{n + 1}(x) + e{n + 1}(x)}} " for n in range(40))
    with pytest.raises(TextError, match=r"more than 10,000 parts|nested deeper"):
        epl.Runtime(TYPES).deploy(f"{doubling}expression e40 {{x => x}} select e0(a) from T")


def test_expressions_are_in_checkpoints(tmp_path: Path) -> None:
    runtime = epl.Runtime(TYPES)
    runtime.deploy("create expression twice {x => x*2}; @name('d') select twice(a), twice(b) as c from T#length(2)")
    runtime.send("T", {"a": 1, "b": 2, "s": "x"})
    runtime.checkpoint(tmp_path / "runtime.checkpoint")
    again = epl.Runtime.restore(tmp_path / "runtime.checkpoint")
    assert again.rows("d").to_pylist() == runtime.rows("d").to_pylist() == [{"twice(a)": 2, "c": 4}]
    again.deploy("select twice(b) from T")
