"""What tasks make of the events of their keys is, together, what one makes of all; without Spark.

Events get their places from the ledger of the local engine, and tasks the ticks that the plan says they need.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops import epl
from gpu_ops.core.turns import CLOCK, ORDER, PLACE
from gpu_ops.engines.local.engine import run_fragment
from gpu_ops.engines.spark.sides import shared_slots
from gpu_ops.engines.spark.turns import TurnFragment
from gpu_ops.engines.spark.type_codecs import encoded_schema
from gpu_ops.errors import PlanError, TextError
from gpu_ops.plan.ledger import AtClock
from gpu_ops.plan.nodes import Node
from tests.support.examples import by_default, examples
from tests.support.keyed_contexts import OF_TWO
from tests.support.rows import rows

TASKS = 3
UTC = pa.timestamp("us", "UTC")


def _drawn(seed: int, size: int) -> pa.Table:
    draw = random.Random(seed)
    times = [draw.choice([0, 1, 2, 5]) * 500 + draw.randrange(20) * 1000 for _ in range(size)]
    return pa.table(
        {
            "at": pa.array(times, pa.int64()),
            "seq": pa.array(draw.sample(range(3 * size), size), pa.int64()),
            "k": pa.array([draw.choice(["a", "b", "c", None]) for _ in range(size)]),
            "v": pa.array([draw.choice([None, 1, 2, 3]) for _ in range(size)], pa.int64()),
        }
    )


def _found(node: Node) -> pa.Table:
    table: pa.Table = g.Stream(node).collect(device="cpu")
    return table


def _numbers(times: Any) -> Any:
    return times.cast(pa.int64()).to_numpy()


def _in_tasks(last: AtClock) -> pa.Table:
    """What tasks make of the events of a plan."""
    part = TurnFragment.of(last)
    payloads = tuple(each.numbers.streams[each.gives or 0].schema for each in part.streams)
    slots = shared_slots(payloads, part.keys)
    task = part.task(payloads, last.schema, slots)
    columns = pa.schema([("start", UTC), ("clock", UTC), ("stream", pa.int32()), *slots.schema])
    given: list[list[pa.Table]] = [[columns.empty_table()] for _ in range(TASKS)]

    def give(at: int, found: pa.Table, **more: Any) -> None:
        made = {"start": found["start"], "clock": found[CLOCK], **more}
        arrays = [made[each.name] if each.name in made else pa.nulls(len(found), each.type) for each in columns]
        given[at].append(pa.table(arrays, schema=columns))

    for number, leaf in enumerate(part.streams):
        events = _found(leaf)
        keys = [events[name].to_pylist() for name in part.keys[number] or (PLACE,)]
        chosen = np.array([sum(map(ord, str(key))) % TASKS for key in zip(*keys, strict=True)])
        there = zip(payloads[number].names, encoded_schema(payloads[number]).names, strict=True)
        slot = {name: slots.places[number][encoded] for name, encoded in there}
        for at in range(TASKS):
            mine = events.filter(pa.array(chosen == at))
            stream = pa.array(np.full(len(mine), leaf.gives), pa.int32())
            give(at, mine, stream=stream, **{slot[name]: mine[name] for name in slot})
            if part.spans != frozenset():
                (ticks,) = (_found(each) for each in part.leaves if each.gives is None)
                if part.spans is not None:
                    due = [_numbers(mine[CLOCK]) + span for span in part.spans]
                    first = np.unique(np.searchsorted(_numbers(ticks[CLOCK]), np.concatenate(due)))
                    ticks = ticks.take(first[first < len(ticks)])
                give(at, ticks)
    made = [_found(last).slice(0, 0)]
    for each in given:
        handed = task.handed(pa.concat_tables(each).combine_chunks().to_batches())
        made += [pa.Table.from_batches([batch]) for batch in run_fragment(task.plan, handed, "cpu", last.schema.names)]
    return pa.concat_tables(made)


WINDOWS = (
    *("", "#keepall", "#time(3 sec)", "#unique(k)", "#firstunique(k)", "#unique(k, v)", "#unique(v)", "#length(2)"),
    *(
        f"#groupwin(k){each}"
        for each in (
            *("#length(2)", "#length_batch(2)", "#firstlength(2)", "#time(2 sec)", "#time_batch(3 sec)"),
            *("#time_length_batch(3 sec, 2)", "#time_accum(1500 msec)", "#sort(2, v)", "#ext_timed(at, 2 sec)"),
            *("#firsttime(4 sec)", "#rank(v, 2, seq)", "#length(3)#unique(v)"),
        )
    ),
)

ONE = (
    "select irstream k, v from A{0}",
    "select irstream k, sum(v) as s, count(*) as n from A{0} group by k",
    "select irstream k, v, max(v) as m from A(v > 1){0} group by k having max(v) > 2",
    "select irstream k, prev(1, v) as p from A{0}",
    "select distinct k from A{0} order by k",
    "select irstream k, avg(count(*)) as m from A{0} group by k",
    "select k, v from A{0} group by k output first every 2 sec",
    "select k, sum(v) as s from A{0} group by k output first every 3 events",
    "create context C partition by k from A; context C select irstream k, sum(v) as s from A{0}",
    (
        "create context C partition by k from A terminated after 2 sec;"
        " context C select k, sum(v) as s from A{0} output last when terminated"
    ),
)
TWO = (
    "insert into C select k, v from A{0}; select irstream k, count(*) as n from C{1} group by k",
    "insert into C select irstream k, v from A{0}; insert into C select k, v from B; select irstream * from C{1}",
    "select irstream a.k as k, a.v as v, b.v as w from A{0} as a, B{1} as b where a.k = b.k",
    "select irstream a.k as k, b.v as w from A{0} as a full outer join B{1} as b on a.k = b.k",
    "select k, v, (select max(v) from B{1} as b where b.k = a.k) as m from A{0} as a",
    "select k, exists (select * from B{1} as b where b.k = a.k and b.v > a.v) as m from A{0} as a",
)
TEXTS = (
    *(text.format(window) for text, window in itertools.product(ONE, WINDOWS)),
    *(
        text.format(*pair)
        for text in TWO
        for pair in random.Random(3).sample([*itertools.product(WINDOWS, WINDOWS)], 20)
    ),
)


@given(st.sampled_from(TEXTS), st.integers(0, 99), st.booleans())
@examples(dear=True)
def test_tasks_make_what_one_makes(text: str, seed: int, moves: bool) -> None:  # noqa: FBT001
    """Some of the texts are refused: they need one order of all events, or are not there at all."""
    tables = {"A": _drawn(seed, 40), "B": _drawn(seed + 1, 25)}
    inputs = {name: table for name, table in tables.items() if name in text}
    when: dict[str, Any] = {"time": "at", "order": "seq"} if moves else {"order": "seq"}
    try:
        (last,) = epl.query(text, inputs, until=30_000, **when)._node.all(AtClock)
        found = _in_tasks(last)
    except (PlanError, TextError):
        assume(False)
    assert rows(found.drop_columns(ORDER)) == rows(_found(last).drop_columns(ORDER))


@pytest.mark.parametrize("name", OF_TWO)
@given(st.integers(0, 999))
@by_default(2)
def test_contexts_over_two_streams_by_key(name: str, seed: int) -> None:
    tables = {"A": _drawn(seed, 40), "B": _drawn(seed + 1, 25)}
    (last,) = epl.query(OF_TWO[name], tables, until=30_000, time="at", order="seq")._node.all(AtClock)
    assert rows(_in_tasks(last).drop_columns(ORDER)) == rows(_found(last).drop_columns(ORDER))


@pytest.mark.parametrize(
    ("name", "spans"),
    [
        ("an aggregate", frozenset()),
        ("started by one and ended by the other", frozenset()),
        ("one for each event", frozenset()),
        ("nested", frozenset()),
        ("a window of time", frozenset({3_000_000})),
        ("one for each event, ended by the clock", frozenset({4_000_000})),
        ("ended by the clock", None),
    ],
)
def test_contexts_are_told_the_moves_of_the_clock_that_they_wait_for(name: str, spans: frozenset[int] | None) -> None:
    """The last one has outputs on a grid, which any move may pass."""
    tables = {"A": _drawn(0, 4), "B": _drawn(1, 4)}
    (last,) = epl.query(OF_TWO[name], tables, time="at", order="seq")._node.all(AtClock)
    assert TurnFragment.of(last).spans == spans
