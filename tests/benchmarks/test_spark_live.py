"""What live queries on Spark are measured beside gives the same rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

from benchmarks.live_peers import Changes
from benchmarks.spark_live import FORMS, agree, epochs
from benchmarks.spark_w2 import session
from benchmarks.workloads import points
from gpu_ops import count, events, mean


@pytest.mark.parametrize("cuts", [(), (300,), (1, 100, 101, 480)])
def test_changes_give_the_rows_of_a_window_whatever_the_cut(cuts: tuple[int, ...]) -> None:
    """Without Spark; the watermark is the last event's time, and in the end that of all windows' ends."""
    table = points(500)
    at, changes, rows = table["t"].cast(pa.int64()).to_numpy(), Changes.of([]), []
    frame = pd.DataFrame({"t": at.view("datetime64[us]"), "k": table["k"].to_numpy(), "v": table["v"].to_numpy()})
    ends = [*cuts, 500]
    for low, high in zip([0, *ends], [*ends, 501], strict=True):
        more = changes.and_more(Changes.of([frame[low:high]]))
        made, changes = more.final(int(at[high]) if high < 500 else 1 << 60)
        rows.append(made)
    found = pd.concat(rows).sort_values(["k", "low"])
    window = events(table, start="t").by("k").sliding("3min").agg(n=count(), mean=mean("v"))
    expected = window.collect().sort_by([("k", "ascending"), ("start", "ascending")])
    assert not len(changes.k)
    for mine, theirs in (("k", "k"), ("n", "n"), ("mean", "mean")):
        assert np.array_equal(found[mine].to_numpy(), expected[theirs].to_numpy())
    for mine, theirs in (("low", "start"), ("high", "end")):
        assert np.array_equal(found[mine].to_numpy(), expected[theirs].cast(pa.int64()).to_numpy())


@pytest.mark.services
@pytest.mark.spark
def test_all_forms_give_the_same_rows(tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf", reason="transformWithStateInPandas needs it")
    epochs(tmp_path / "events", 2_000, 2)
    spark = session(tmp_path)
    try:
        for workload, forms in FORMS.items():
            agree(spark, workload, forms, tmp_path / "events", tmp_path / "answers")
    finally:
        spark.stop()
