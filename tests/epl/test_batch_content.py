"""What iterators show of windows of batches: rows that wait, with the aggregates of the batch that was posted last."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.epl.runtime import Runtime
from tests.support.epl_interpreter import Interpreter
from tests.support.epl_on_runtime import RuntimeEngine
from tests.support.epl_recorded import same
from tests.support.epl_scripts import NAME, SCHEMA, Step, done, scripts
from tests.support.examples import examples

_TEXTS = (
    "select sum(v) as s, count(*) as n, minever(v) as m from A{}",
    "select ts, sum(v) as s, sum(v, group_by: (k)) as t from A{}",
    "select k, sum(v) as s from A{} group by k having count(*) < 2",
    "select k, ts, first(v) as s from A{} group by k",
    "select k, count(*) as s from A{} where v > 0 group by k",
    "select k, v, sum(v) as s from A{} group by rollup(k, v)",
)
_WINDOWS = ("#length_batch(2)", "#length_batch(3)", "#time_batch(1 sec)", "#groupwin(k)#length_batch(2)")


@given(
    text=st.sampled_from(_TEXTS),
    window=st.sampled_from(_WINDOWS),
    steps=scripts(),
    device=st.sampled_from(["cpu", "array"]),
)
@examples(20, dear=True)
def test_as_the_interpreter(text: str, window: str, steps: tuple[Step, ...], device: str) -> None:
    engines = RuntimeEngine(SCHEMA, device=device), Interpreter(SCHEMA)
    for engine in engines:
        engine.deploy(f"@name('{NAME}') {text.format(window)}")
    for step in steps:
        for engine in engines:
            done(step, engine)
        found, wanted = (list(engine.rows(NAME) or []) for engine in engines)
        assert same(found, wanted, in_any_order=True)


def test_groups_that_only_wait_are_kept(tmp_path: Path) -> None:
    runtime = Runtime({"T": {"k": "string", "v": "int"}})
    runtime.deploy("@name('s') select k, sum(v) as s from T#length_batch(3) group by k")
    runtime.send("T", [{"k": "a", "v": 1}, {"k": "b", "v": 2}])
    waiting = [{"k": "a", "s": None}, {"k": "b", "s": None}]
    assert runtime.rows("s").to_pylist() == waiting
    runtime.checkpoint(tmp_path / "kept")
    assert Runtime.restore(tmp_path / "kept").rows("s").to_pylist() == waiting
