from __future__ import annotations

import datetime
import math
import random
from collections.abc import Callable, Mapping
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.errors import ColumnError
from tests.support.aggregate_reference import CHOICES
from tests.support.cuts import in_any_cut, in_some_order
from tests.support.devices import HERE
from tests.support.examples import examples
from tests.support.reference import Event
from tests.support.rows import check, rows, stream, to_table
from tests.support.timeline import timeline

NAN, INF = math.nan, math.inf


def test_the_value_of_one_event(device_name: str) -> None:
    rides = timeline("""
        a: [=====)    v=5 w=2
        b:   [=====)  v=7 w=2
        c:   [=)      v=6 w=9
    """)
    answer = (
        stream(rides)
        .snapshot()
        .agg(
            first=g.first("v"),
            last=g.last("v"),
            by_value=g.last("v", order=[-g.col("v")]),
            least=g.arg_min("v", "w"),
            most=g.arg_max("name", "w", where=g.col("v") < 7),
        )
    )
    expected = [
        *timeline("5: [=)      last=5 by_value=5 least=5 most=a", label="first"),
        *timeline("5:   [=)    last=7 by_value=6 least=5 most=c", label="first"),
        *timeline("5:     [=)  last=7 by_value=7 least=5 most=a", label="first"),
        *timeline("7:       [=) last=7 by_value=7 least=7 most=None", label="first"),
    ]
    check(answer, device_name, expected)


def whole(aggregate: g.Aggregate, columns: Mapping[str, Any], types: dict[str, pa.DataType], device: str) -> Any:
    payloads = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    made = stream([Event(0, 1, payload) for payload in payloads], pa.schema(list(types.items())))
    (answer,) = made.snapshot().agg(r=aggregate).collect(device=device)["r"].to_pylist()
    return answer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "ascending"),
    [
        (pa.bool_(), [False, True]),
        (pa.int8(), [-128, 0, 127]),
        (pa.uint64(), [0, 2**63, 2**64 - 1]),
        (pa.float32(), [-INF, -1.5, 0.0, INF, NAN]),
        (pa.float64(), [-INF, -5e-324, 0.0, 5e-324, INF, NAN]),
        (pa.string(), ["", "Z", "a", "é"]),
        (pa.binary(), [b"", b"\x00", b"\xff"]),
        (pa.decimal128(38, 2), [Decimal("-99.99"), Decimal("0.01"), Decimal("1" + "0" * 30 + ".00")]),
        (pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
        (pa.timestamp("us", "UTC"), [datetime.datetime(y, 1, 1, tzinfo=datetime.UTC) for y in (1969, 2026)]),
        (pa.duration("us"), [datetime.timedelta(seconds=s) for s in (-1, 0, 1)]),
    ],
    ids=str,
)
def test_any_ordered_type_is_chosen_and_chosen_by(device_name: str, dtype: pa.DataType, ascending: list[Any]) -> None:
    for values in (ascending, ascending[::-1], [None, *ascending, None]):
        columns, types = {"v": values, "n": list(range(len(values)))}, {"v": dtype, "n": pa.int64()}
        least, most = values.index(ascending[0]), values.index(ascending[-1])
        assert whole(g.arg_min("n", "v"), columns, types, device_name) == least
        assert whole(g.arg_max("n", "v"), columns, types, device_name) == most
        for aggregate, wanted in ((g.first("v"), ascending[0]), (g.last("v"), ascending[-1])):
            got = whole(aggregate, columns, types, device_name)
            assert got == wanted or (got != got and wanted != wanted)  # noqa: PLR0124  (NaN)
    made = stream([Event(0, 1, {"v": None})], pa.schema([("v", dtype)])).snapshot().agg(r=g.first("v"))
    assert made.schema.field("r").type == dtype
    table = made.collect(device=device_name)
    assert table["r"].to_pylist() == [None]
    assert table.schema.field("r").type == dtype


def test_categories_are_chosen_as_their_values(device_name: str) -> None:
    events = pa.table(
        {"start": pa.array([0, 1], pa.timestamp("us", "UTC")), "v": pa.array(["b", "a"]).dictionary_encode()}
    )
    answer = g.events(events, start="start").tumbling("1s").agg(f=g.first("v"), a=g.arg_max("v", "v"))
    (row,) = answer.collect(device=device_name).select(["f", "a"]).to_pylist()
    assert row == {"f": "b", "a": "b"}


def test_zeros_are_one_zero_and_nulls_come_first_in_an_order(device_name: str) -> None:
    columns, types = {"v": [-0.0, 0.0], "o": [2, None]}, {"v": pa.float64(), "o": pa.int64()}
    for aggregate in (g.first("v"), g.last("v"), g.arg_min("v", "v"), g.first("v", order="o")):
        assert math.copysign(1, whole(aggregate, columns, types, device_name)) == 1.0
    columns["v"] = [3.0, 4.0]
    assert whole(g.first("v", order="o"), columns, types, device_name) == 4.0
    assert whole(g.last("v", order="o"), columns, types, device_name) == 3.0
    assert whole(g.arg_max("v", "o"), columns, types, device_name) == 3.0


def test_many_keys_do_not_run_out_of_numbers(device_name: str) -> None:
    chance = random.Random(4)
    count = 3000
    columns = {name: [chance.randrange(10**9) for _ in range(count)] for name in "vabcdef"}
    columns["a"] = [chance.randrange(2) for _ in range(count)]
    events = sorted(zip(*(columns[name] for name in "abcdefv"), strict=True))
    got = whole(g.first("v", order=list("abcdef")), columns, dict.fromkeys(columns, pa.int64()), device_name)
    assert got == events[0][-1]


def test_types_without_an_order_are_refused() -> None:
    schema = pa.schema([("v", pa.int64()), ("l", pa.list_(pa.int64()))])
    events = stream([Event(0, 1, {"v": 1, "l": [1]})], schema).snapshot()
    for aggregate in (g.first("l"), g.last("v", order="l"), g.arg_min("v", "l"), g.arg_max("l", "v")):
        with pytest.raises(ColumnError, match="does not take") as caught:
            events.agg(r=aggregate)
        assert caught.value.column == "l"


# By definition, in any cut

PAYLOAD = pa.schema([("k", pa.string()), ("v", pa.int64()), ("x", pa.float64()), ("t", pa.string())])
EVENTS = st.lists(
    st.builds(
        lambda start, length, *payload: Event(start, start + length, dict(zip(PAYLOAD.names, payload, strict=True))),
        st.integers(0, 30),
        st.integers(1, 15),
        st.sampled_from(["a", "b", None]),
        st.none() | st.integers(-2, 2),
        st.none() | st.sampled_from([0.5, -2.5, NAN, INF, -0.0, 0.0]),
        st.none() | st.sampled_from(["p", "q", "r"]),
    ),
    max_size=18,
)
ASKED = [(kind, *pair) for kind in CHOICES for pair in (("v", "x"), ("t", "v"), ("x", "t"), ("t", "t"))]
SOME = st.lists(st.sampled_from(ASKED), min_size=1, max_size=4, unique=True)
KEYS = st.sampled_from([[], ["k"]])


def asked(kind: str, value: str, key: str) -> g.Aggregate:
    if kind in {"first", "last"}:
        return {"first": g.first, "last": g.last}[kind](value, order=key)
    return {"arg_min": g.arg_min, "arg_max": g.arg_max}[kind](value, key)


def over(events: g.Stream, keys: list[str], some: list[tuple[str, str, str]]) -> g.Stream:
    return (events.by(*keys) if keys else events).snapshot().agg(**{"_".join(each): asked(*each) for each in some})


def beside_others(events: g.Stream, keys: list[str], some: list[tuple[str, str, str]]) -> g.Stream:
    """With aggregates that share columns with them, and windows of a grid."""
    windows = (events.by(*keys) if keys else events).hopping("8us", "3us")
    more = {"least": g.min("t"), "some": g.first("t", where=g.col("v") > 0), "most": g.max("x"), "n": g.sum("v")}
    return windows.agg(**{"_".join(each): asked(*each) for each in some}, **more)


def expected(events: list[Event], keys: list[str], some: list[tuple[str, str, str]]) -> list[Event]:
    found = []
    for group in {tuple(event.payload[key] for key in keys) for event in events}:
        members = [event for event in events if tuple(event.payload[key] for key in keys) == group]
        times = sorted({time for event in members for time in (event.start, event.end)})
        for start, end in pairwise(times):
            alive = [event for event in members if event.start <= start and end <= event.end]
            if not alive:
                continue
            payload: dict[str, Any] = {}
            for kind, value, key in some:
                triples = [(e.start, e.payload[value], e.payload[key]) for e in alive]
                payload[f"{kind}_{value}_{key}"] = _plain(CHOICES[kind](triples))
            found.append(Event(start, end, {**dict(zip(keys, group, strict=True)), **payload}))
    return found


def _plain(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) and value == 0 else value


@given(EVENTS, KEYS, SOME, st.sampled_from(HERE))
def test_choices_are_what_they_say(
    events: list[Event], keys: list[str], some: list[tuple[str, str, str]], device: str
) -> None:
    check(over(stream(events, PAYLOAD), keys, some), device, expected(events, keys, some))


@examples(dear=True)
@given(
    EVENTS,
    KEYS,
    SOME,
    st.sampled_from([over, beside_others]),
    st.sampled_from(HERE),
    st.randoms(use_true_random=False),
)
def test_live_is_batch(
    tmp_path_factory: pytest.TempPathFactory,
    events: list[Event],
    keys: list[str],
    some: list[tuple[str, str, str]],
    query: Callable[..., g.Stream],
    device: str,
    chance: random.Random,
) -> None:
    arrived = in_some_order(to_table(events, PAYLOAD), chance)
    batch = query(g.events(arrived, start="start", end="end"), keys, some)
    found = in_any_cut(batch, arrived, device, chance, tmp_path_factory.mktemp("live"))
    assert rows(found) == rows(batch.collect(device=device))
