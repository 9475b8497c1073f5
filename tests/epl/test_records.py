"""Events that a select clause makes: `new {name = value}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import epl
from tests.support.examples import examples

_SCHEMA = pa.schema([("seq", pa.int64()), ("k", pa.string()), ("v", pa.int32())])
_TEXT = """
    insert into Made select new {v, twice = v * 2, of = new {k}, one = 1L} as made from T;
    select made, made.twice as twice, made.of.k as k,
        case when made.v > 2 then new {x = 'more'} else new {x = made.of.k} end as said
    from Made
"""


def _expected(k: str | None, v: int | None) -> Mapping[str, Any]:
    twice = None if v is None else 2 * v
    made = {"v": v, "twice": twice, "of": {"k": k}, "one": 1}
    return {"made": made, "twice": twice, "k": k, "said": {"x": "more" if v is not None and v > 2 else k}}


@pytest.mark.parametrize("device", ["cpu", "array"])
@given(st.lists(st.tuples(st.none() | st.sampled_from("xy"), st.none() | st.integers(-3, 9)), max_size=6))
@examples(dear=True)
def test_a_record_has_the_values_of_its_row(device: str, events: list[tuple[str | None, int | None]]) -> None:
    data = pa.Table.from_pylist([{"seq": at, "k": k, "v": v} for at, (k, v) in enumerate(events)], _SCHEMA)
    found = epl.query(_TEXT, T=data, order="seq").collect(device=device)
    assert found.select(["made", "twice", "k", "said"]).to_pylist() == [_expected(*each) for each in events]


def test_of_aggregates_and_of_elements() -> None:
    runtime = epl.Runtime({"T": {"k": "string", "v": "int"}})
    (shown,) = runtime.deploy("""
        select new {s = sum(v), n = count(*)} as made, window(*).selectFrom(x => new {a = x.v}) as every
        from T#length(2)
    """)
    shown.deliveries()
    runtime.send("T", [{"k": "x", "v": 5}, {"k": "y", "v": 7}, {"k": "z", "v": 1}])
    assert shown.deliveries().select(["made", "every"]).to_pylist() == [
        {"made": {"s": 5, "n": 1}, "every": [{"a": 5}]},
        {"made": {"s": 12, "n": 2}, "every": [{"a": 5}, {"a": 7}]},
        {"made": {"s": 8, "n": 2}, "every": [{"a": 7}, {"a": 1}]},
    ]
