"""The query files about Spark's event log: one file, the same answer here and on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.apps.queries import query_answers
from gpu_ops.apps.spark_event_log import SparkLog
from tests.support import event_logs as log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    events = [*log.wages(), log.task_start(9, 7000), log.task_end(8, 7500, 7500, metrics={}, reason="TaskKilled")]
    (folder / "app-1").write_bytes(log.text(*events))
    SparkLog(folder / "app-1").write(folder)
    return folder


@pytest.mark.usefixtures("few_tasks")
def test_the_same_answers_on_spark(spark: SparkSession, tables: Path) -> None:
    paths = {name: str(tables / f"{name}.parquet") for name in ("tasks", "cores")}
    here = query_answers(ROOT / "spark_conf/demo/queries.py", paths)
    frames = {name: spark.read.parquet(path) for name, path in paths.items()}
    there = query_answers(ROOT / "spark_conf/demo/queries.py", frames)
    assert isinstance(here, dict)
    assert isinstance(there, dict)
    for name, stream in here.items():
        local = pa.table(stream)
        assert local.num_rows > 0
        order = [(column, "ascending") for column in local.column_names]
        assert there[name].collect().toArrow().cast(local.schema).sort_by(order) == local.sort_by(order)


def test_no_core_is_less_than_idle() -> None:
    """Spark launches a task on a core before it notes that the one before has ended."""
    at = pa.array([0, 0, 4], pa.timestamp("s", "UTC"))
    end = pa.array([9, 5, 9], pa.timestamp("s", "UTC"))
    cores = pa.table({"executor": ["1", "1", "1"], "start": at, "end": end, "cores": [1, -1, -1]})
    answer = query_answers(ROOT / "gpu_ops/apps/queries/idle_cores.py", {"cores": cores})
    assert isinstance(answer, g.Stream)
    assert pa.table(answer)["idle"].to_pylist() == [0, 0, 0]
