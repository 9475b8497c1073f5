"""Timelines: what is drawn, as matplotlib's own objects say."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from gpu_ops.plot import MOST_SERIES, timeline


def steps(*rows: tuple[int, int, Any], **columns: list[Any]) -> pa.Table:
    """A result: start and end in seconds, and the value ``n``; an end of -1 is open."""
    start, end, value = zip(*rows, strict=True) if rows else ((), (), ())
    ticks = [[at * 1_000_000 for at in start], [MAX_TIME if at < 0 else at * 1_000_000 for at in end]]
    times = [pa.array(column, pa.int64()).cast(pa.timestamp("us", "UTC")) for column in ticks]
    return pa.table({"start": times[0], "end": times[1], "n": pa.array(value), **columns})


def drawn(line: Line2D) -> list[tuple[float, float | None]]:
    """Where a line's steps begin, in seconds, and their levels; None where there is none."""
    times = np.asarray(line.get_xdata(orig=True)).astype("datetime64[us]").astype(np.int64) / 1e6
    levels = np.asarray(line.get_ydata(), dtype=float)
    return [(float(at), None if np.isnan(level) else float(level)) for at, level in zip(times, levels, strict=True)]


def test_a_level_holds_from_start_to_end_and_gaps_stay_empty() -> None:
    # 2       |=====|
    # 1 |=====|       |=====|
    #   0     5    10 15    20
    figure = timeline(steps((0, 5, 1), (5, 10, 2), (15, 20, 1)), value="n")
    (line,) = figure.axes[0].lines
    assert drawn(line) == [(0, 1), (5, 2), (10, None), (15, 1), (20, None)]
    assert line.get_drawstyle() == "steps-post"
    assert figure.axes[0].get_ylabel() == "n"
    assert figure.axes[0].get_xlabel() == "time (UTC)"
    assert figure.axes[0].get_legend() is None


def test_a_series_for_each_group_in_natural_order() -> None:
    table = steps((0, 5, 1), (0, 5, 2), (0, 5, 3), executor=["10", "driver", "9"])
    axes = timeline(table, value="n", by="executor").axes[0]
    assert [line.get_label() for line in axes.lines] == ["9", "10", "driver"]
    legend = axes.get_legend()
    assert legend is not None
    assert legend.get_title().get_text() == "executor"


def test_a_series_for_each_value() -> None:
    table = steps((0, 5, 1), zone=["A"]).append_column("m", pa.array([2.5]))
    axes = timeline(table, value=["n", "m"], by="zone", label="both", title="Two").axes[0]
    assert [line.get_label() for line in axes.lines] == ["A n", "A m"]
    assert (axes.get_ylabel(), axes.get_title(loc="left")) == ("both", "Two")


def test_areas_lie_upon_each_other() -> None:
    table = steps((0, 10, 1), (5, 15, 2), by=["a", "b"])
    axes = timeline(table, value="n", by="by", shape="stacked").axes[0]
    assert [area.get_label() for area in axes.collections] == ["a", "b"]
    # The upper one: from 0 to 5 at 1, to 10 from 1 to 3, to 15 from 0 to 2.
    corners = axes.collections[1].get_paths()[0].vertices
    assert {float(level) for level in np.asarray(corners)[:, 1]} == {0, 1, 2, 3}
    assert axes.get_ylim()[0] == 0


@pytest.mark.parametrize("shape", ["lines", "stacked"])
def test_many_series_are_told_apart_by_size(shape: Any) -> None:
    count = MOST_SERIES + 3
    table = steps(*((0, 5, n) for n in range(count)), by=list(range(count)))
    axes = timeline(table, value="n", by="by", shape=shape).axes[0]
    _, names = axes.get_legend_handles_labels()
    largest = [str(n) for n in range(3, count)]
    assert names == ([*largest, "3 others"] if shape == "stacked" else ["3 others", *largest])


def test_overlapping_windows_are_drawn_over_their_last_hop() -> None:
    # 10 long, every 5:
    # |====1====|
    #      |====2====|
    #                          |====3====|
    (line,) = timeline(steps((0, 10, 1), (5, 15, 2), (25, 35, 3)), value="n").axes[0].lines
    assert drawn(line) == [(5, 1), (10, 2), (15, None), (30, 3), (35, None)]


def test_an_open_end_reaches_a_little_beyond_all_else() -> None:
    (line,) = timeline(steps((0, 100, 1), (50, -1, 2), by=["a", "a"]).slice(1), value="n").axes[0].lines
    assert drawn(line)[0] == (50, 2)
    assert 50 < drawn(line)[1][0] < 60
    (line, *_) = timeline(steps((0, 100, 1), (100, -1, 2)), value="n").axes[0].lines
    assert drawn(line) == [(0, 1), (100, 2), (105, None)]


def test_nulls_and_nans_are_gaps() -> None:
    (line,) = (
        timeline(steps((0, 5, 1.0), (5, 10, None), (10, 15, float("nan")), (15, 20, 2.0)), value="n").axes[0].lines
    )
    assert drawn(line) == [(0, 1), (5, None), (15, 2), (20, None)]


@pytest.mark.slow
def test_peaks_survive_where_steps_are_finer_than_the_picture() -> None:
    level = np.zeros(200_000, dtype=np.int64)
    level[123_456] = 7
    table = steps(*((at, at + 1, int(n)) for at, n in enumerate(level)), (400_000, 400_001, 1))
    (line,) = timeline(table, value="n").axes[0].lines
    levels = drawn(line)
    assert len(levels) < 10_000
    assert [at for at, n in levels if n == 7] == [pytest.approx(123_456, abs=300)]
    # After the last step there is nothing, not the peak of its pixel.
    assert (200_000, None) in levels


def test_a_stream_is_drawn_and_saved(tmp_path: Path) -> None:
    rides = pa.table({"a": [0, 60], "b": [120, 90], "zone": ["A", "B"]})
    busy = g.events(rides, start="a", end="b", unit="s").by("zone").snapshot().agg(n=g.count())
    timeline(busy, value="n", by="zone", shape="stacked").savefig(tmp_path / "busy.png")
    assert (tmp_path / "busy.png").read_bytes().startswith(b"\x89PNG")


def test_into_axes_that_are_given() -> None:
    figure = Figure()
    above, below = figure.subplots(2)
    assert timeline(steps((0, 5, 1)), value="n", axes=below) is figure
    assert len(below.lines) == 1
    assert len(above.lines) == 0


def test_times_are_shown_in_the_zone_of_the_result() -> None:
    table = steps((0, 3600, 1))
    vienna = pa.timestamp("us", "Europe/Vienna")
    table = table.set_column(0, "start", table["start"].cast(vienna)).set_column(1, "end", table["end"].cast(vienna))
    axes = timeline(table, value="n").axes[0]
    assert axes.get_xlabel() == "time (Europe/Vienna)"
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]
    assert "01:00" in axes.get_xticklabels()[0].get_text()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"value": "nn"}, g.ColumnError, "no such column.*'nn'.*Did you mean 'n'"),
        ({"value": "n", "by": "zone"}, g.ColumnError, "no such column.*'zone'"),
        ({"value": "start"}, g.PlanError, "'start' is timestamp"),
        ({"value": "n"}, g.PlanError, "'n' has several values at a time.*by="),
        ({"value": "n", "by": "by", "shape": "stacked"}, g.PlanError, "Negative values"),
    ],
)
def test_what_cannot_be_drawn(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        timeline(steps((0, 5, -1), (0, 5, 2), by=["a", "b"]), **options)


def test_nothing_to_draw() -> None:
    for table in (steps((0, 5, None)).set_column(2, "n", pa.array([None], pa.int64())), steps((0, 5, 1)).slice(1)):
        with pytest.raises(g.PlanError, match="nothing to draw"):
            timeline(table, value="n")


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(g.GpuOpsError, match=r"needs matplotlib.*pip install 'gpu_ops\[plot\]'"):
        timeline(steps((0, 5, 1)), value="n")


@pytest.mark.services
def test_importing_and_drawing_leaves_pyplot_alone() -> None:
    code = """
import sys, gpu_ops.plot
assert "matplotlib" not in sys.modules
import datetime, pyarrow as pa
at = [datetime.datetime(2026, 1, day, tzinfo=datetime.UTC) for day in (1, 2)]
gpu_ops.plot.timeline(pa.table({"start": at[:1], "end": at[1:], "n": [1]}), value="n")
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
