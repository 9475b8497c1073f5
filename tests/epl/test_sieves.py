"""Statements that run by themselves are given the rows alone that their filters take, and give what they give alone.

statements  sum over the last two of Tick(symbol = 'a'), of Tick(symbol = 'b'), ...
events      a        b        a            the sieve says once for all whose they are
stepped     first    second   first
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import epl
from gpu_ops.epl import sieves
from gpu_ops.errors import IntegerOverflowError
from tests.support.epl_on_runtime import rows_of
from tests.support.epl_rules import TICK, TYPES, WINDOWED, Alone, delivered, texts
from tests.support.examples import examples


@pytest.fixture(autouse=True, scope="module")
def two_are_enough() -> Iterator[None]:
    with mock.patch.object(sieves, "_FEW", 2):
        yield


@given(texts(WINDOWED), st.lists(st.lists(TICK, min_size=1, max_size=5), min_size=2, max_size=4), st.data())
@examples(15, dear=True)
def test_each_statement_gives_what_it_gives_alone(
    tmp_path_factory: pytest.TempPathFactory, rules: list[str], batches: list[list[Any]], data: st.DataObject
) -> None:
    """One of them goes in between, and the runtime may be another one, on another device."""
    alone, runtime = Alone(), epl.Runtime(TYPES, device=data.draw(st.sampled_from(["cpu", "array"])))
    path = tmp_path_factory.mktemp("kept") / "runtime.checkpoint"
    for number, text in enumerate(rules):
        runtime.deploy(f"@name('r{number}') {text}")
        alone.deploy(f"r{number}", text)
    for second, batch in enumerate(batches):
        assert delivered(runtime.send("Tick", batch)) == alone.send(batch)
        if data.draw(st.booleans()):
            runtime.checkpoint(path)
            runtime = epl.Runtime.restore(path, device=data.draw(st.sampled_from(["cpu", "array"])))
        assert delivered(runtime.advance(second * 2_000)) == alone.advance(second * 2_000)
        if len(alone.runtimes) > 1 and data.draw(st.booleans()):
            gone = data.draw(st.sampled_from([*alone.runtimes]))
            runtime.undeploy(gone)
            del alone.runtimes[gone]


def _sums(count: int) -> epl.Runtime:
    runtime = epl.Runtime(TYPES)
    for number in range(count):
        runtime.deploy(f"select sum(price) as s from Tick(symbol = '{chr(97 + number)}')#length(2)")
    return runtime


def test_only_those_are_stepped_whose_filter_takes_a_row() -> None:
    runtime = _sums(3)
    with mock.patch.object(epl.RunningStatement, "step", autospec=True, side_effect=epl.RunningStatement.step) as step:
        sent = runtime.send("Tick", [{"symbol": "b", "price": 1}, {"symbol": "z"}, {"symbol": "b", "price": 2}])
    assert [call.args[0].name for call in step.call_args_list] == ["statement 2"]
    assert [rows_of(each.new) for each in sent] == [[{"s": 1}], [{"s": 3}]]
    assert not runtime.send("Tick", {"symbol": "z"})


def test_a_statement_in_another_service_has_its_own_events() -> None:
    runtime = _sums(3)
    aside = runtime.isolated("aside", start=0)
    aside.add("statement 1")
    assert not runtime.send("Tick", {"symbol": "a", "price": 1})
    assert [rows_of(each.new) for each in aside.send("Tick", {"symbol": "a", "price": 2})] == [[{"s": 2}]]
    aside.remove("statement 1")
    assert [rows_of(each.new) for each in runtime.send("Tick", {"symbol": "a", "price": 3})] == [[{"s": 5}]]


def test_what_a_filter_cannot_compute_fails_of_itself() -> None:
    runtime = epl.Runtime(TYPES)
    for least in (1, 2):
        runtime.deploy(f"select count(*) as n from Tick(price * 2000000000 > {least})")
    with pytest.raises(IntegerOverflowError):
        runtime.send("Tick", {"price": 2})
    assert all(each.failed is not None for each in runtime.statements)


def test_a_filter_that_asks_for_more_than_the_event_is_asked_itself() -> None:
    """Sub-queries, variables and the clock are what they are for each statement."""
    runtime = epl.Runtime(TYPES)
    runtime.deploy("create variable int least = 2")
    for number in (1, 2):
        runtime.deploy(f"select count(*) as n from Tick(price > least + {number})")
        runtime.deploy(f"select count(*) as n from Tick(exists (select * from Tick#length({number})))")
        runtime.deploy(f"select count(*) as n from Tick(price > current_timestamp() + {number})")
    assert [each.sieve for each in runtime.statements] == [None] * 6
    sent = runtime.send("Tick", [{"price": 4}, {"price": 4}])
    assert sorted(rows_of(each.new)[0]["n"] for each in sent) == [1, 1, 1, 1, 1, 2, 2, 2]  # type: ignore[index]
