"""What a worker keeps between tasks, so that a task of few rows costs little."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import gpu_ops as g

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.usefixtures("few_tasks")
def test_a_task_spares_the_next_one_archives_and_garbage(spark: SparkSession) -> None:
    def unspared(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Make a worker as one of PySpark's own daemon is, which the suite's is not."""
        import gc
        import os
        import sys
        from zipimport import zipimporter

        from gpu_ops.engines.spark.between_tasks import set_aside

        gc.unfreeze()
        set_aside.cache_clear()
        packages = [each for module in list(sys.modules.values()) for each in getattr(module, "__path__", ())]
        archived = {path: zipimporter(path) for path in packages if "pyspark.zip" in path}
        assert len(archived) > 2
        sys.path_importer_cache.update(archived)
        os.environ["UNSPARED"] = "1"
        yield from batches

    def kept(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """How many finders of Spark's archives are asked anew before each task, and how much is set aside."""
        import gc
        import os
        import sys
        from zipimport import zipimporter

        import pyarrow as pa

        list(batches)
        archives = [each.archive for each in sys.path_importer_cache.values() if isinstance(each, zipimporter)]
        asked = sum("pyspark.zip" in each or "py4j" in each or each.endswith(".jar") for each in archives)
        counts = {"asked": asked, "aside": gc.get_freeze_count(), "looked_through": len(gc.get_objects())}
        yield pa.RecordBatch.from_pylist([counts | {"unspared": int(os.environ.pop("UNSPARED", "0"))}])

    each_worker = spark.range(8, numPartitions=8)  # those that have nothing to do take turns
    assert each_worker.mapInArrow(unspared, "id LONG").count() == 8
    table = pa.table({"start": [1, 2], "end": [5, 7], "k": [1, 2]})
    for _ in range(2):
        source = g.events(spark.createDataFrame(table), start="start", end="end", unit="s")
        assert source.by("k").snapshot().agg(n=g.count()).collect().count() == 2
    columns = "asked LONG, aside LONG, looked_through LONG, unspared LONG"
    found = each_worker.mapInArrow(kept, columns).toArrow().to_pylist()
    # Another worker may have had no task of ours.
    spared = [row for row in found if row["asked"] <= 2 and row["aside"] > row["looked_through"]]
    assert any(row["unspared"] for row in spared), found


@pytest.mark.usefixtures("few_tasks")
def test_a_task_works_on_as_many_threads_as_it_has_cores(spark: SparkSession) -> None:
    def working(rows: pa.Table) -> int:
        from gpu_ops.core.threads import threads

        return threads()

    table = pa.table({"start": [1, 2, 3], "end": [5, 7, 9], "k": [1, 2, 1]})
    source = g.events(spark.createDataFrame(table), start="start", end="end", unit="s")
    n = g.window_function(working, returns=pa.int64(), of="k")
    assert {row["n"] for row in source.by("k").snapshot().agg(n=n).collect().toArrow().to_pylist()} == {1}
