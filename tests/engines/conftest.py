"""Events of every type in a Parquet file, as the RAPIDS planner is shown them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyarrow import parquet

import gpu_ops as g
from tests.support.planner import EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("plans") / "events.parquet"
    parquet.write_table(EVENTS, file)
    return str(file)


@pytest.fixture
def frame(spark: SparkSession, path: str) -> DataFrame:
    return spark.read.parquet(path)


@pytest.fixture
def stream(frame: DataFrame) -> g.Stream:
    return g.events(frame, start="s", end="e")
