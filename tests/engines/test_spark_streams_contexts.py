"""Contexts over two streams by key, live on Spark in one number of partitions after the other; and in a batch."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops import epl
from tests.support.epochs import put_table, run, same
from tests.support.keyed_contexts import OF_TWO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([("at", pa.int64()), ("seq", pa.int64()), ("k", pa.string()), ("v", pa.int64())])
PIECES = 4


def _drawn(seed: int, number: int) -> pa.Table:
    """Ten seconds of events, each of another time than the others of its stream, null keys and values among them."""
    draw = random.Random(100 * seed + number)
    order = draw.sample(range(60 * number, 60 * (number + 1)), 30)
    return pa.Table.from_pylist(
        [
            {
                "at": seq // 6,
                "seq": 2 * seq + seed,
                "k": draw.choice(["a", "b", "c", None]),
                "v": draw.choice([None, 1, 2]),
            }
            for seq in sorted(order)
        ],
        SCHEMA,
    )


def _asked(text: str, a: g.Stream, b: g.Stream) -> g.Stream:
    found = epl.query(text, A=a, B=b, order="seq", until=100_000)
    return found.select(*(name for name in found.schema.names if name != "turn"))


@pytest.mark.parametrize(
    "name",
    [
        "a join",
        *(
            pytest.param(name, marks=pytest.mark.services)
            for name in (
                "started by one, the other only moves the clock",
                "started by one and ended by the other",
                "one for each event, ended by the clock",
                "nested",
            )
        ),
    ],
)
def test_it_stops_and_goes_on(spark: SparkSession, tmp_path: Path, name: str) -> None:
    pieces = {of: [_drawn(seed, number) for number in range(PIECES)] for seed, of in enumerate("AB")}

    def far(of: str) -> g.Stream:
        (tmp_path / of).mkdir(exist_ok=True)
        columns = "at long, seq long, k string, v long"
        frame = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / of))
        return g.events(frame, start="at", unit="s", name=of).advance_time("1s", delay="12s", late="raise")

    query = _asked(OF_TWO[name], far("A"), far("B"))
    assert "partitions by k" in query.explain()
    where: dict[str, Any] = {"into": tmp_path / "out", "checkpoint": tmp_path / "checkpoint"}
    for number, partitions in enumerate((2, 1, 3, 2)):
        for of, each in pieces.items():
            put_table(tmp_path / of, number, each[number])
        run(query, **where, partitions=partitions, **({"shards": 3} if not number else {}))
    query.end_on_spark(**where)
    whole = {of: pa.concat_tables(each) for of, each in pieces.items()}
    near = {of: g.events(each, start="at", unit="s", name=of) for of, each in whole.items()}
    batch = {of: g.events(spark.createDataFrame(each), start="at", unit="s", name=of) for of, each in whole.items()}
    expected = _asked(OF_TWO[name], near["A"], near["B"]).collect()
    assert len(expected) > 5
    same(g.epochs(tmp_path / "out").read(), expected)
    at_rest = _asked(OF_TWO[name], batch["A"], batch["B"]).collect().toArrow()
    same(at_rest.cast(expected.schema), expected)
