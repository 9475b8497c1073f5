"""Statements that fail: what they delivered before stands however events came; errors speak of turns and events."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import epl
from gpu_ops.errors import ColumnError, IntegerOverflowError
from tests.support.epl_on_runtime import rows_of
from tests.support.examples import examples

TYPES = {"T": {"k": "string", "v": "int"}, "U": {"w": "int"}}
MOST = 2_147_483_647

_TEXTS = (
    "select v * v as w from T",
    "select sum(v) as s from T#length(3)",
    "select irstream k, sum(v) as s, count(*) as n from T#length(4) group by k",
    "select k, v, sum(v) as s from T#time(2 sec) group by k",
    "select v from T(v * v > 0)#length(2)",
    "select v, v + 1 as more from T#length_batch(2)",
    "select v from T#length(3) where v * 2 > 2",
    "select sum(v) as s from T#keepall having sum(v) * 2 > 0",
    "select v + 1 as more from T output every 2 events",
    "select last(v) + 1 as l, sum(v) as s from T#keepall output last every 1 sec",
    "select a.v + b.v as s from T#length(2) as a, T#keepall as b where a.k = b.k",
    "select v, (select sum(v) from T#keepall) as s from T",
    "select v from T#sort(2, v * v)",
    "select v + 1 as more from T order by v * 2",
    "select a.v + b.v as s from pattern [every a=T -> b=T(k = a.k)]",
    "insert into U select v + 1 as w from T",
)
_READERS = ("select sum(w) as s from U", "select w * 2 as d from U#length(2)")
_EVENTS = st.fixed_dictionaries({"k": st.sampled_from("ab"), "v": st.sampled_from([0, 1, 2, 3, 5, 8, MOST])})
_STEPS = st.lists(
    st.lists(_EVENTS, min_size=1, max_size=6) | st.sampled_from([500, 1000, 3000]), min_size=1, max_size=4
)


def _run(texts: Sequence[str], steps: Sequence[Any], device: str, *, singly: bool) -> tuple[list[Any], list[str]]:
    """What each statement delivered, and which of them have failed."""
    runtime = epl.Runtime(TYPES, device=device)
    made = [statement for text in texts for statement in runtime.deploy(text)]
    for each in made:
        each.deliveries()
    for step in steps:
        if isinstance(step, int):
            with contextlib.suppress(IntegerOverflowError):
                runtime.advance(runtime.clock + step)
            continue
        for call in [[each] for each in step] if singly else [step]:
            with contextlib.suppress(IntegerOverflowError):
                runtime.send("T", call)
    told = [each.deliveries().to_pylist() for each in made]
    return told, [each.name for each in made if each.failed is not None]


@pytest.mark.parametrize("device", ["cpu", "array"])
@examples(dear=True)
@given(st.lists(st.sampled_from(_TEXTS), min_size=1, max_size=3, unique=True), st.sampled_from(_READERS), _STEPS)
def test_what_was_delivered_before_a_failure_does_not_depend_on_batches(
    device: str, texts: list[str], reader: str, steps: list[Any]
) -> None:
    every = [*texts, reader]
    assert _run(every, steps, device, singly=False) == _run(every, steps, device, singly=True)


def test_rows_before_the_failing_one_are_delivered() -> None:
    """v: 1 | 2 | MOST | 4: of the third sum there is no int. Two deliveries stand, and the error names the event."""
    runtime = epl.Runtime(TYPES)
    (total,) = runtime.deploy("@name('total') select sum(v) as total from T#keepall")
    told: list[Any] = []
    total.listen(lambda new, old, given: told.append(rows_of(new)))
    with pytest.raises(IntegerOverflowError) as failed:
        runtime.send("T", [{"k": "a", "v": value} for value in (1, 2, MOST, 4)])
    assert told == [[{"total": 1}], [{"total": 3}]]
    assert str(failed.value) == (
        f"A whole number of the expression sum(v) does not fit its type. [turn 3, sum(v)={MOST + 3}] "
        "Cast what it reads to a type that holds the result: cast(v, long), or cast(v, double)."
    )
    notes = failed.value.__notes__
    assert "It is event 2 of the 4 of type 'T' in this call, from 0 on." in notes
    assert "The statement 'total' has failed, and gives nothing any more." in notes


def test_a_text_that_is_no_number_fails_at_its_event() -> None:
    runtime = epl.Runtime(TYPES)
    (numbers,) = runtime.deploy("select cast(k, int) as n from T")
    numbers.deliveries()
    with pytest.raises(ColumnError, match="conversion from `str`") as failed:
        runtime.send("T", [{"k": "1"}, {"k": "x"}, {"k": "3"}])
    assert numbers.deliveries()["n"].to_pylist() == [1]
    assert "It is a row of turn 2." in failed.value.__notes__


def test_what_was_inserted_and_set_before_a_failure_stands() -> None:
    """v: 1 | MOST | 3: the first is inserted and counted, and then neither statement does anything more."""
    runtime = epl.Runtime(TYPES)
    runtime.deploy("create variable int seen = 0; on T set seen = seen + v; insert into U select v + 1 as w from T")
    runtime.deploy("@name('reader') select sum(w) as s from U")
    reader = runtime["reader"]
    reader.deliveries()
    with pytest.raises(IntegerOverflowError):
        runtime.send("T", [{"v": 1}, {"v": MOST}, {"v": 3}])
    assert reader.deliveries()["s"].to_pylist() == [2]
    assert runtime.variables["seen"] == 1


def test_statements_of_a_template_fail_at_their_own_rows() -> None:
    """a: 1, 2, MOST; b: 3: what a's statement gave for 1 and 2 stands, and b's goes on."""
    runtime = epl.Runtime(TYPES)
    for key in "ab":
        runtime.deploy(f"@name('{key}') select v + 1 as more from T(k = '{key}' and v > 0)")
        runtime[key].deliveries()
    rows = [{"k": "a", "v": 1}, {"k": "b", "v": 3}, {"k": "a", "v": 2}, {"k": "a", "v": MOST}, {"k": "a", "v": 5}]
    with pytest.raises(IntegerOverflowError, match="turn 5"):
        runtime.send("T", rows)
    assert [runtime[key].deliveries()["more"].to_pylist() for key in "ab"] == [[2, 3], [4]]
    assert [runtime[key].failed is None for key in "ab"] == [False, True]
