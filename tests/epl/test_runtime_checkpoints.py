"""Checkpoints of runtimes: what is restored goes on as the other, and a damaged file is refused by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import epl
from gpu_ops.engines.live.checkpoints import read_checkpoint, write_checkpoint
from gpu_ops.errors import GpuOpsError, QueryFailedError, SourceError, TextError
from tests.support.epl_on_runtime import RuntimeEngine, rows_of
from tests.support.epl_recorded import same
from tests.support.epl_scripts import NAME, SCHEMA, Scenario, asking, done, joins, played, same_traces, scenarios
from tests.support.examples import examples

_BANK = {"Withdrawal": {"account": "string", "amount": "int"}}


@pytest.mark.slow
@given(scenarios() | scenarios() | joins() | asking(), st.data())
@examples(20, dear=True)
def test_deliveries_do_not_depend_on_a_checkpoint_in_between(
    tmp_path_factory: pytest.TempPathFactory, scenario: Scenario, data: st.DataObject
) -> None:
    """Before each step the runtime may be another one, on another device, that goes on where a file says."""
    whole = RuntimeEngine(SCHEMA)
    try:
        wanted = played(scenario, whole)
    except TextError:
        return
    path = tmp_path_factory.mktemp("kept") / "runtime.checkpoint"
    cut = RuntimeEngine(SCHEMA)
    cut.deploy(scenario.text)
    stops = data.draw(st.sets(st.integers(0, len(scenario.steps) - 1), min_size=1, max_size=2))
    found = []
    for at, step in enumerate(scenario.steps):
        if at in stops:
            cut.runtime.checkpoint(path)
            cut.runtime = epl.Runtime.restore(path, device=data.draw(st.sampled_from(["cpu", "array"])))
        found.append(done(step, cut))
    assert same_traces(found, wanted, scenario)
    assert same(*(rows_of(each.runtime.rows(NAME)) for each in (cut, whole)), in_any_order=True)
    assert [path.name for path in path.parent.iterdir()] == [path.name]


def _restored(runtime: epl.Runtime, tmp_path: Path) -> epl.Runtime:
    path = tmp_path / "runtime.checkpoint"
    runtime.checkpoint(path)
    return epl.Runtime.restore(path)


def test_types_statements_and_deliveries_are_kept(tmp_path: Path) -> None:
    """Large withdrawals become a stream of their own, which is summed; nothing was taken from `deliveries` yet."""
    runtime = epl.Runtime(_BANK, start=5_000, default_selector="irstream")
    runtime.deploy(
        """
        create schema Deposit (account string, amount int);
        @name('large') insert into Large select account, amount from Withdrawal(amount > 10);
        select sum(amount) as total from Large#time(10 sec) output last every 3 sec;
        """
    )
    runtime["statement 2"].deliveries()
    for amount in (20, 5, 30):
        runtime.send("Withdrawal", {"account": "a", "amount": amount})
    runtime.advance(8_000)
    again = _restored(runtime, tmp_path)
    assert [each.name for each in again.statements] == ["large", "statement 2"]
    assert (again.clock, again.active_filters()) == (8_000, 2)
    for each in (runtime, again):
        each.send("Large", {"account": "b", "amount": 1})
        each.send("Deposit", {"account": "b", "amount": 1})
        each.advance(11_000)
        each.deploy("select * from Deposit")
    assert again["statement 2"].deliveries().equals(runtime["statement 2"].deliveries())
    assert [each.name for each in again.statements] == [each.name for each in runtime.statements]


def test_a_statement_that_has_failed_stays_failed(tmp_path: Path) -> None:
    runtime = epl.Runtime({"E": {"v": "long"}})
    runtime.deploy("@name('total') select sum(v) as v from E; @name('all') select v from E")
    with pytest.raises(GpuOpsError):
        runtime.send("E", [{"v": (1 << 63) - 1}, {"v": 1}])
    again = _restored(runtime, tmp_path)
    assert [each.statement for each in again.send("E", {"v": 1})] == ["all"]
    with pytest.raises(QueryFailedError, match="'total' has failed"):
        again.rows("total")


def test_what_is_no_checkpoint_of_a_runtime_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "runtime.checkpoint"
    with pytest.raises(SourceError, match=r"no checkpoint .*runtime\.checkpoint"):
        epl.Runtime.restore(path)
    path.write_bytes(b"no archive")
    with pytest.raises(SourceError, match=r"runtime\.checkpoint is no checkpoint"):
        epl.Runtime.restore(path)
    write_checkpoint(path, {"plan": []}, {})
    with pytest.raises(SourceError, match=r"runtime\.checkpoint is none of a runtime"):
        epl.Runtime.restore(path)
    runtime = epl.Runtime(_BANK)
    runtime.deploy("select sum(amount) as total from Withdrawal#length(2)")
    runtime.checkpoint(path)
    facts, tables = read_checkpoint(path)
    for change in _changes(facts):
        write_checkpoint(path, {**facts, **change}, tables)
        with pytest.raises(SourceError, match=r"runtime\.checkpoint"):
            epl.Runtime.restore(path)
    for name in tables:
        for damaged in (None, pa.table({"strange": [1]})):
            given = {**tables, name: damaged} if damaged else {each: tables[each] for each in tables if each != name}
            write_checkpoint(path, facts, given)
            with pytest.raises(SourceError, match=r"runtime\.checkpoint"):
                epl.Runtime.restore(path).send("Withdrawal", {"account": "a", "amount": 1})


def _changes(facts: dict[str, Any]) -> list[dict[str, Any]]:
    (statement,) = facts["statements"]
    return [
        {"clock": "late"},
        {"turn": -1},
        {"statements": [statement, statement]},
        *(
            {"statements": [{**statement, name: value}]}
            for name, value in (
                ("text", "select"),
                ("text", "select 1 as n from Withdrawal; select 2 as n from Withdrawal"),
                ("text", "create schema T (a int)"),
                ("text", "select sum(account) as total from Withdrawal"),
                ("text", "select sum(amount) as total from Withdrawal#length(3)"),
                ("ctis", []),
                ("ctis", [1 << 60 for _ in statement["ctis"]]),
                ("given", None),
            )
        ),
    ]


def test_isolated_services_and_what_is_declared_are_kept(tmp_path: Path) -> None:
    runtime = epl.Runtime(_BANK)
    runtime.deploy("create expression twice {x => x * 2}")
    runtime.deploy("@name('total') select sum(twice(amount)) as total from Withdrawal#time(10 sec)")
    runtime.send("Withdrawal", {"account": "a", "amount": 5})
    runtime.isolated("aside", start=100_000).add("total")
    runtime.isolated("aside").advance(104_000)
    again = _restored(runtime, tmp_path)
    assert again.isolated("aside").clock == 104_000
    assert again.isolated("aside").rows("total").to_pylist() == [{"total": 10}]
    assert not again.isolated("aside").advance(109_999)
    assert [each.new.to_pylist() for each in again.isolated("aside").advance(110_000) if each.new] == [
        [{"total": None}]
    ]
    again.deploy("select twice(amount) as d from Withdrawal")
    facts, tables = read_checkpoint(tmp_path / "runtime.checkpoint")
    write_checkpoint(tmp_path / "runtime.checkpoint", {**facts, "isolated": {}}, tables)
    with pytest.raises(SourceError, match="no isolated service 'aside'"):
        epl.Runtime.restore(tmp_path / "runtime.checkpoint")
