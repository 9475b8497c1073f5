"""Groups are listed in the order in which they got a row when they had none, however events are sent.

window        #length(2)
events        b    a    b    c    a
in it         b    b a  a b  b c  c a
listed        b    b a  b a  b c  c a      b has had a row all the time until a came again
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from gpu_ops import epl
from gpu_ops.devices import Device
from gpu_ops.operators.deliveries.group_order import GroupOrder
from tests.support.epl_interpreter import Interpreter
from tests.support.examples import examples
from tests.support.roads import large_roads

TYPES = {"E": {"k": "string", "v": "long"}}
KEYS = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([3, 1, 2, None]))
AGGREGATES = ["count(*)", "max(v)", "median(v)", "count(distinct v)", "min(v), sum(v)"]
LENGTHS: dict[str, int] = {"": 1 << 30, "#keepall": 1 << 30, "#length(1)": 1, "#length(2)": 2, "#length(3)": 3}


def listed(
    events: Sequence[tuple[Any, Any]], length: int, by: str, outputs: Sequence[int] = ()
) -> list[tuple[Any, ...]]:
    """The groups as they are listed behind all events.

    Args:
        events: The keys of each.
        length: The length of the window.
        by: The columns of groups.
        outputs: Behind how many events there was a snapshot: of these it knows the groups that had rows then.
    """
    held: Counter[tuple[Any, ...]] = Counter()
    order: list[tuple[Any, ...]] = []
    before: list[tuple[Any, ...]] = []
    last = 0
    keys = [each if by == "k, v" else each[:1] if by == "k" else each[1:] for each in events]
    for at in range(len(keys) + 1):
        if at in outputs:
            came = dict.fromkeys([*before, *keys[last:at]])
            inside = keys[max(0, at - length) : at]
            order = [each for each in came if each in inside]
            before, last = [*order], at
        if at == len(keys):
            break
        if not held[keys[at]]:
            order.append(keys[at])
        held[keys[at]] += 1
        if at >= length:
            gone = keys[at - length]
            held[gone] -= 1
            if not held[gone]:
                order.remove(gone)
    return order


def keys_of(rows: Sequence[dict[str, Any]], by: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in by.split(", ")) for row in rows]


@examples(dear=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    events=st.lists(KEYS, min_size=1, max_size=14),
    window=st.sampled_from([*LENGTHS]),
    by=st.sampled_from(["k", "v", "k, v"]),
    aggregate=st.sampled_from(AGGREGATES),
    output=st.sampled_from(["", " output snapshot every 1 sec"]),
    seed=st.integers(0, 1 << 30),
)
def test_groups_are_listed_as_they_came(
    tmp_path: Path, events: Any, window: str, by: str, aggregate: str, output: str, seed: int, device_name: str
) -> None:
    chance = random.Random(seed)
    runtime = epl.Runtime(TYPES, device=device_name)
    runtime.deploy(f"@name('s') select {by}, {aggregate} from E{window} group by {by}{output}")
    begin, now, outputs = 0, 0, list[int]()
    with large_roads():
        while begin < len(events):
            end = begin + chance.randrange(1, 6)
            runtime.send("E", [{"k": k, "v": v} for k, v in events[begin:end]])
            begin = end
            if chance.random() < 0.3:
                runtime.checkpoint(tmp_path / "c")
                runtime = epl.Runtime.restore(tmp_path / "c", device=device_name)
            assert keys_of(runtime.rows("s").to_pylist(), by) == listed(events[:begin], LENGTHS[window], by, outputs)
            if output and chance.random() < 0.5:
                now += 1000
                (delivered,) = runtime.advance(now)
                outputs.append(min(begin, len(events)))
                assert delivered.new is not None
                assert keys_of(delivered.new.to_pylist(), by) == listed(events[:begin], LENGTHS[window], by, outputs)


@examples(dear=True)
@given(events=st.lists(KEYS, min_size=1, max_size=20), size=st.integers(1, 20))
def test_without_a_window_the_interpreter_lists_the_same(events: Any, size: int) -> None:
    text = "@name('s') @IterableUnbound select k, v, count(*) as n from E group by k, v"
    interpreter, runtime = Interpreter(TYPES), epl.Runtime(TYPES)
    for engine in (interpreter, runtime):
        engine.deploy(text)
    rows = [{"k": k, "v": v} for k, v in events]
    for row in rows:
        interpreter.send("E", row)
    for begin in range(0, len(rows), size):
        runtime.send("E", rows[begin : begin + size])
    assert runtime.rows("s").to_pylist() == interpreter.rows("s")


def snapshots(events: Sequence[tuple[Any, Any, int]], text: str, size: int) -> Any:
    """The outputs of events that are sent so many at a time."""
    runtime = epl.Runtime(TYPES)
    runtime.deploy(text)
    runtime["s"].deliveries()
    times = [sum(each[2] for each in events[: at + 1]) for at in range(len(events))]
    for at in range(0, len(events), size):
        rows = [{"k": k, "v": v} for k, v, _ in events[at : at + size]]
        runtime.send("E", rows, at=times[at : at + size])
    runtime.advance(times[-1] + 40)
    return runtime["s"].deliveries().to_pylist(), runtime.rows("s").to_pylist()


@examples(dear=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    events=st.lists(
        st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([3, 1, 2, None]), st.sampled_from([0, 0, 1, 4, 20])),
        min_size=2,
        max_size=30,
    ),
    window=st.sampled_from(["#time(10 msec)", "#time_accum(10 msec)", "#length(3)", "#unique(k)", ""]),
    aggregate=st.sampled_from(AGGREGATES),
    size=st.integers(2, 30),
)
def test_what_empties_between_two_outputs_is_listed_alike_in_any_batches(
    events: Any, window: str, aggregate: str, size: int
) -> None:
    text = f"@name('s') select v, {aggregate} from E{window} group by v output snapshot every 7 msec"
    one = snapshots(events, text, 1)
    assert snapshots(events, text, size) == one
    with large_roads():
        assert snapshots(events, text, size) == one


def test_a_state_of_an_older_version_has_its_groups_as_they_are_numbered(device: Device) -> None:
    order = GroupOrder(device)
    order.restore(None, 3)
    groups = device.columns.array(np.array([0, 1, 2]))
    assert device.columns.host(order.of(groups, groups)).tolist() == [1, 2, 3]
