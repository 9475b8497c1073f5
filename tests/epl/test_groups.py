"""Statements of one template are computed together: each gives what it gives in a runtime of its own.

template   select … from Tick(symbol = 'a' and price > 3)
events     a 5    b 4    a 3          each row goes to those that want it, in the order
rules      a>3    a>4    b>0          in which the statements were deployed
deliveries 1 2    3      -
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import epl
from gpu_ops.errors import GpuOpsError, IntegerOverflowError, PlanError, QueryFailedError, TextError
from tests.support.epl_on_runtime import rows_of
from tests.support.epl_rules import SINGLE, TICK, TYPES, Alone, delivered, texts
from tests.support.examples import examples


@given(texts(SINGLE), st.lists(st.lists(TICK, min_size=1, max_size=6), min_size=1, max_size=3), st.data())
@examples(25, dear=True)
def test_each_statement_gives_what_it_gives_alone(
    tmp_path_factory: pytest.TempPathFactory, rules: list[str], batches: list[list[Any]], data: st.DataObject
) -> None:
    """Statements come and go between batches, and the runtime may be another one, on another device."""
    alone, runtime = Alone(), epl.Runtime(TYPES, device=data.draw(st.sampled_from(["cpu", "array"])))
    path, waiting = tmp_path_factory.mktemp("kept") / "runtime.checkpoint", list(enumerate(rules))
    for batch in batches:
        for number, text in waiting[: data.draw(st.integers(1, len(rules)))]:
            name = f"r{number}"
            runtime.deploy(f"@name('{name}') {text}")
            alone.deploy(name, text)
        waiting = waiting[len(alone.runtimes) :]
        if data.draw(st.booleans()):
            runtime.checkpoint(path)
            runtime = epl.Runtime.restore(path, device=data.draw(st.sampled_from(["cpu", "array"])))
        assert delivered(runtime.send("Tick", batch)) == alone.send(batch)
        assert runtime.active_filters() == len(alone.runtimes)
        gone = data.draw(st.sampled_from([*alone.runtimes, ""]))
        if gone:
            runtime.undeploy(gone)
            del alone.runtimes[gone]
            waiting = []
    assert [each.name for each in runtime.statements] == [*alone.runtimes]


def _deployed(texts: Sequence[str], **options: Any) -> epl.Runtime:
    runtime = epl.Runtime(TYPES, **options)
    for text in texts:
        runtime.deploy(text)
    return runtime


RULES = [
    f"select symbol, price from Tick(symbol = '{symbol}' and price > {least})" for symbol, least in ("a3", "a4", "b0")
]


def _tick(symbol: str, price: int) -> dict[str, Any]:
    return {"symbol": symbol, "price": price}


TICKS = [_tick("a", 5), _tick("b", 4), _tick("a", 3)]


def test_statements_of_a_template_are_a_group_with_one_table() -> None:
    runtime = _deployed(RULES)
    group = runtime.statements[0].group
    assert isinstance(group, epl.StatementGroup)
    assert [each.group for each in runtime.statements] == [group] * 3
    assert group.text == "select symbol,price from Tick(symbol=?:_0:string and price>?:_1:int)"
    assert [each.text for each in group.statements] == [
        text.replace(" = ", "=").replace(" > ", ">").replace("l, p", "l,p") for text in RULES
    ]
    assert group.constants.to_pydict() == {
        "statement": ["statement 1", "statement 2", "statement 3"],
        "@constant 0": ["a", "a", "b"],
        "@constant 1": [3, 4, 0],
    }
    group.deliveries()
    runtime.send("Tick", TICKS)
    assert group.deliveries().to_pylist() == [
        {"turn": 3, "row": "new", "statement": "statement 1", "symbol": "a", "price": 5},
        {"turn": 3, "row": "new", "statement": "statement 2", "symbol": "a", "price": 5},
        {"turn": 4, "row": "new", "statement": "statement 3", "symbol": "b", "price": 4},
    ]
    assert len(group.deliveries()) == 0
    assert "Wanted where @value 0 in (@constant 0)" in runtime.statements[0].explain()


def test_listeners_and_deliveries_of_single_statements() -> None:
    """One listens before it has a group, one listens from its second event on, one keeps."""
    runtime = epl.Runtime(TYPES)
    heard: list[Any] = []

    def late(new: Any, old: Any, statement: epl.RunningStatement) -> None:
        heard.append((statement.name, rows_of(new)))

    def first(new: Any, old: Any, statement: epl.RunningStatement) -> None:
        heard.append((statement.name, rows_of(new)))
        if len(heard) == 1:
            runtime["statement 3"].listen(late)

    (one,) = runtime.deploy(RULES[0])
    one.listen(first)
    for text in RULES[1:]:
        runtime.deploy(text)
    runtime["statement 2"].deliveries()
    runtime.send("Tick", TICKS)
    assert heard == [("statement 1", [_tick("a", 5)]), ("statement 3", [_tick("b", 4)])]
    kept = runtime["statement 2"].deliveries()
    assert kept.to_pylist() == [{"turn": 3, "row": "new", **_tick("a", 5)}]
    assert kept.schema == runtime["statement 2"].kept_schema
    runtime.send("Tick", _tick("a", 4))
    assert len(runtime["statement 2"].deliveries()) == 0


def test_turns_are_numbered_as_without_a_group() -> None:
    """A question for content is a turn, and the content of a statement without a window is nothing."""
    runtime = _deployed(RULES)
    assert runtime.rows("statement 2").to_pylist() == []
    assert runtime.rows("statement 2").schema == runtime["statement 2"].schema
    runtime["statement 1"].deliveries()
    runtime.send("Tick", TICKS)
    assert runtime["statement 1"].deliveries()["turn"].to_pylist() == [5]


def test_what_a_checkpoint_keeps_of_a_group(tmp_path: Path) -> None:
    runtime = _deployed(RULES)
    runtime.deploy("@name('by itself') select count(*) as n from Tick")
    group = runtime["statement 1"].group
    assert group is not None
    group.deliveries()
    runtime["statement 3"].deliveries()
    runtime.send("Tick", TICKS)
    runtime.checkpoint(tmp_path / "runtime.checkpoint")
    again = epl.Runtime.restore(tmp_path / "runtime.checkpoint")
    assert [(each.name, each.text) for each in again.statements] == [
        (each.name, each.text) for each in runtime.statements
    ]
    other = again["statement 1"].group
    assert other is not None
    for each in (runtime, again):
        each.send("Tick", TICKS)
        each.deploy(RULES[0])
        each.send("Tick", TICKS)
    assert other.deliveries().to_pylist() == group.deliveries().to_pylist()
    assert again["statement 3"].deliveries().equals(runtime["statement 3"].deliveries())
    assert again["statement 5"].group is other


def test_a_statement_whose_row_fails_fails_alone() -> None:
    """2 * 2,000,000,000 is no int: whoever wants the second row fails, and the others go on."""
    text = "select price * 2000000000 as much from Tick(symbol = '{}' and price > 0)"
    runtime = _deployed([text.format("a"), text.format("b")])
    states: list[Any] = []
    runtime.listen_states(lambda statement, state: states.append((statement.name, state)))
    runtime["statement 2"].deliveries()
    with pytest.raises(IntegerOverflowError):
        runtime.send("Tick", [_tick("b", 1), _tick("a", 2), _tick("a", 1)])
    assert states == [("statement 1", "failed")]
    assert runtime["statement 2"].deliveries()["much"].to_pylist() == [2_000_000_000]
    with pytest.raises(QueryFailedError):
        runtime.rows("statement 1")
    assert runtime["statement 1"].text == "select price*2000000000 as much from Tick(symbol='a' and price>0)"
    assert [each.statement for each in runtime.send("Tick", [_tick("a", 1), _tick("b", 1)])] == ["statement 2"]


def test_all_fail_where_what_they_ask_cannot_be_computed(tmp_path: Path) -> None:
    runtime = _deployed([f"select * from Tick(price * 2000000000 > {least})" for least in (1, 2, 3)])
    with pytest.raises(IntegerOverflowError) as failed:
        runtime.send("Tick", _tick("a", 2))
    assert "'statement 1' has failed, and gives nothing any more, and so have 2 others" in str(failed.value.__notes__)
    assert not runtime.send("Tick", _tick("a", 1))
    runtime.checkpoint(tmp_path / "runtime.checkpoint")
    again = epl.Runtime.restore(tmp_path / "runtime.checkpoint")
    assert all(isinstance(each.failed, QueryFailedError) for each in again.statements)
    assert not again.send("Tick", _tick("a", 1))


def test_a_statement_that_moves_to_another_service_leaves_its_group() -> None:
    runtime = _deployed(RULES)
    aside = runtime.isolated("aside")
    aside.add("statement 1")
    for text in RULES[:2]:
        aside.deploy(text)
    assert [each.statement for each in runtime.send("Tick", TICKS)] == ["statement 2", "statement 3"]
    assert [each.statement for each in aside.send("Tick", TICKS)] == ["statement 1", "statement 4", "statement 5"]
    aside.remove("statement 1", "statement 4")
    assert [each.statement for each in runtime.send("Tick", TICKS[:1])] == ["statement 1", "statement 2", "statement 4"]


def test_what_is_created_later_means_something_for_later_texts_alone() -> None:
    """Names in the third text might be those of the expression, so that it is no statement of the group."""
    runtime = epl.Runtime(TYPES)
    runtime.deploy("select price + 1 as p from Tick(price > 1)")
    runtime.deploy("select price + 1 as p from Tick(price > 2)")
    runtime.deploy("create expression twice {x => x * 2}")
    runtime.deploy("select price + 1 as p from Tick(price > 3)")
    runtime.deploy("select price + 1 as p from Tick(price > 4)")
    one, two, three, four = runtime.statements
    assert one.group is two.group is not three.group is four.group is not None
    assert [each.statement for each in runtime.send("Tick", _tick("a", 4))] == [each.name for each in (one, two, three)]


def test_names_are_of_one_statement_each() -> None:
    runtime = _deployed([f"@name('r{number}') {text}" for number, text in enumerate(RULES)])
    assert [each.name for each in runtime.statements] == ["r0", "r1", "r2"]
    with pytest.raises(TextError, match="There is a statement 'r1' already"):
        runtime.deploy(f"@name('r1') {RULES[0]}")
    runtime.undeploy("r1")
    runtime.deploy(f"@name('r1') {RULES[0]}")
    assert [each.name for each in runtime.statements] == ["r0", "r2", "r1"]


def test_a_group_whose_statements_come_and_go() -> None:
    """Places of statements that have gone are used again, and rows go to those that are there."""
    runtime = epl.Runtime(TYPES)
    wanted: list[str] = []
    for number in range(4_000):
        runtime.deploy(f"@name('r{number}') select price from Tick(symbol = 'a' and price > {number % 10})")
        wanted.append(f"r{number}")
        if number % 8:
            runtime.undeploy(wanted.pop(-2 if len(wanted) > 1 else -1))
        if number % 1_000 == 500:
            sent = runtime.send("Tick", _tick("a", 5))
            assert [each.statement for each in sent] == [each for each in wanted if int(each[1:]) % 10 < 5]
    assert runtime.active_filters() == len(wanted) == len(runtime.statements)


@pytest.mark.parametrize(
    "text",
    [
        "select sum(price) as s from Tick(price > {})",
        "select * from Tick(price > {})#length(2)",
        "insert into Large select price from Tick(price > {})",
        "select prior(1, price) as before from Tick(price > {})",
        "select price from Tick(price > {}) output every 2 events",
        "select price from Tick(price > {} and exists (select * from Tick#length(1)))",
        "select rstream price from Tick(price > {})",
        "@hint('x') select price from Tick(price > {})",
    ],
)
def test_other_statements_are_computed_by_themselves(text: str) -> None:
    runtime = _deployed([text.format(1), text.format(2)])
    assert [each.group for each in runtime.statements] == [None, None]


def test_literals_that_are_no_constants_of_a_filter_make_another_group() -> None:
    texts = [f"select price * {factor} as p from Tick(price > {least})" for factor in (2, 3) for least in (1, 2)]
    runtime = _deployed(texts)
    one, two, three, four = (each.group for each in runtime.statements)
    assert one is two is not three is four
    assert [rows_of(each.new) for each in runtime.send("Tick", _tick("a", 2))] == [[{"p": 4}], [{"p": 6}]]


def test_events_that_statements_insert_reach_a_group() -> None:
    runtime = _deployed(["insert into Large select symbol, price from Tick(price > 2)"])
    for least in (2, 3):
        runtime.deploy(f"select price from Large(price > {least})")
    sent = runtime.send("Tick", [_tick("a", 3), _tick("a", 1), _tick("a", 4)])
    assert [each.statement for each in sent if each.statement != "statement 1"] == [
        "statement 2",
        "statement 2",
        "statement 3",
    ]


def test_texts_without_constants_are_one_group_too() -> None:
    runtime = _deployed(["select price from Tick"] * 3)
    assert [each.statement for each in runtime.send("Tick", TICKS[:1])] == [f"statement {at}" for at in (1, 2, 3)]
    runtime.undeploy("statement 2")
    assert [each.statement for each in runtime.send("Tick", TICKS[:1])] == ["statement 1", "statement 3"]
    assert pa.types.is_dictionary(runtime.statements[0].group.kept_schema.field("statement").type)  # type: ignore[union-attr]


def _rules(**columns: Any) -> pa.Table:
    return pa.table(
        {"rule": ["r0", "r1", "r2"], "symbol": ["a", "a", "b"], "least": pa.array([3, 4, 0], pa.int32()), **columns}
    )


TEMPLATE = "select symbol, price from Tick(symbol = ?:symbol:string and price > ?:least)"


@pytest.mark.parametrize("device", ["cpu", "array"])
def test_a_template_with_a_frame_is_what_its_texts_are(device: str) -> None:
    texts = epl.Runtime(TYPES, device=device)
    for number, text in enumerate(RULES):
        texts.deploy(f"@name('r{number}') {text}")
    runtime = epl.Runtime(TYPES, device=device)
    group = runtime.deploy_each(TEMPLATE, _rules(), names="rule")
    assert runtime.groups == (group,) == (runtime["r1"].group,)
    assert [(each.name, each.text) for each in runtime.statements] == [
        (each.name, each.text) for each in texts.statements
    ]
    assert runtime.active_filters() == 3
    assert delivered(runtime.send("Tick", TICKS)) == delivered(texts.send("Tick", TICKS))
    assert group.deliveries().schema == group.kept_schema
    for each in (texts, runtime):
        each.undeploy("r0")
        each.deploy(f"@name('r3') {RULES[0]}")
    assert runtime["r3"].group is group
    assert delivered(runtime.send("Tick", TICKS)) == delivered(texts.send("Tick", TICKS))
    runtime.undeploy(group)
    assert [*runtime.statements, *runtime.groups] == []
    assert runtime.active_filters() == 0
    assert not runtime.send("Tick", TICKS)
    with pytest.raises(PlanError, match="The group has no statements"):
        runtime.undeploy(group)


def test_more_statements_of_a_template_join_its_group() -> None:
    """The names of parameters do not matter; those that are alike are told apart by their names alone."""
    runtime = epl.Runtime(TYPES)
    group = runtime.deploy_each(TEMPLATE, _rules())
    assert [each.name for each in group.statements] == ["statement 1", "statement 2", "statement 3"]
    other = TEMPLATE.replace("least", "floor:int")
    assert runtime.deploy_each(other, [{"symbol": "b", "floor": 4}, {"symbol": None, "floor": 0}]) is group
    assert runtime.isolated("aside").deploy_each(TEMPLATE, _rules(), names="rule") is not group
    assert [each.statement for each in runtime.send("Tick", _tick("b", 5))] == ["statement 3", "statement 4"]
    assert [each.statement for each in runtime.isolated("aside").send("Tick", _tick("b", 5))] == ["r2"]
    assert runtime["statement 5"].text == "select symbol,price from Tick(symbol=null and price>0)"


def test_constants_that_are_null_or_nan_want_nothing() -> None:
    runtime = epl.Runtime(TYPES)
    weights = pa.array([None, float("nan"), 1.5])
    for condition in ("weight > ?:w", "weight between ?:w and ?:w", "not (weight != ?:w)", "weight in (?:w, ?:w)"):
        runtime.deploy_each(f"select price from Tick({condition})", {"w": weights})
    sent = runtime.send("Tick", [{"weight": 1.5, "price": 1}, {"weight": float("inf"), "price": 2}])
    assert [int(each.statement.split()[1]) for each in sent] == [6, 9, 12, 3]


@pytest.mark.parametrize(
    ("text", "constants", "wrong"),
    [
        ("select * from Tick(price > ?)", {"a": [1]}, "The parameter has no name"),
        ("select ?:a from Tick", {"a": [1]}, "A parameter is a side of a comparison"),
        ("select * from Tick(price * ?:a > 2)", {"a": [1]}, "A parameter is a side of a comparison"),
        ("select * from Tick(symbol = ?:a)", {"a": [1]}, "they cannot be compared"),
        ("select * from Tick(price > ?:a:date)", {"a": [1]}, "A parameter is of type date"),
        ("select * from Tick(price > ?:a)#length(2)", {"a": [1]}, "do not deliver single events"),
        ("@name('x') select * from Tick(price > ?:a)", {"a": [1]}, "has a name of its own"),
        ("select * from Tick(price > ?:a); select * from Tick", {"a": [1]}, "is one statement"),
        ("select * from Tick(price > ?:a)", {"b": [1]}, "lack a column"),
        ("select * from Tick(price > ?:a)", {"a": [True]}, "constants are numbers or texts"),
        ("select * from Tick(price > ?:a:int)", {"a": ["x"]}, "'x' is no int"),
        ("select * from Tick(price > ?:a)", {"a": pa.array([], pa.int32())}, "There are no constants"),
        ("select * from Tick(price > ?:a)", 5, "These are no constants"),
        (5, {"a": [1]}, "takes a text"),
    ],
)
def test_what_is_refused_of_a_template(text: Any, constants: Any, wrong: str) -> None:
    runtime = epl.Runtime(TYPES)
    with pytest.raises(GpuOpsError, match=wrong):
        runtime.deploy_each(text, constants)
    assert (runtime.statements, runtime.groups) == ((), ())


@pytest.mark.parametrize(
    ("names", "column", "wrong"),
    [
        (["x", "x", "y"], "rule", "Row 0 is called 'x' too"),
        (["x", None, "y"], "rule", "None is no name"),
        (["x", "there", "y"], "rule", "There is a statement 'there' already"),
        (["x", "y", "z"], "named", "lack a column"),
    ],
)
def test_names_that_are_refused(names: Any, column: str, wrong: str) -> None:
    runtime = _deployed(["@name('there') select * from Tick"])
    with pytest.raises(GpuOpsError, match=wrong):
        runtime.deploy_each(TEMPLATE, _rules(rule=names), names=column)
    assert len(runtime.statements) == 1
