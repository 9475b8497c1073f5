"""A report on a Spark application: the answers of `gpu_ops.apps.queries` as tables in a terminal and as a picture."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Column, Table

import gpu_ops as g
from gpu_ops.apps.spark_event_log import SparkLog
from gpu_ops.core.time import Duration, format_span, format_time, ticks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 12
"""The most rows of a printed table; the Parquet files hold all rows."""

_STATUSES = {"success": "succeeded", "failed": "failed", "killed": "killed", "running": "still running"}
_LASTED = (pl.col("end") - pl.col("start")).dt.total_microseconds()


@dataclass(frozen=True)
class SparkReport:
    """The tables of one event log, and the answers of the queries over them.

    Attributes:
        log: The log, read to its end.
        folder: The folder of ``tasks``, ``executors``, ``stages``, ``cores``, ``running_tasks``, ``idle_cores`` and
            ``shuffled_bytes``. Each is called ``….parquet``: a file, or a folder as Spark writes it.
        size: The length of a window of ``shuffled_bytes``.
        every: The time between the starts of two windows.
    """

    log: SparkLog
    folder: Path
    size: Duration
    every: Duration

    def print(self, console: Console) -> None:
        """Print the report, for a terminal of 80 columns or more."""
        for line in self._summary():
            console.print(line, highlight=False, soft_wrap=True)
        for table in (self._executors(), self._stages(), self._running(), self._shuffled()):
            console.print(table)

    def draw(self) -> Figure:
        """Draw the concurrent tasks per executor, and below them the bytes shuffled per window, on one time axis.

        Raises:
            GpuOpsError: matplotlib is not installed.
            PlanError: The log has no task.
        """
        from gpu_ops.plot import need_matplotlib, timeline

        need_matplotlib()
        from matplotlib.figure import Figure

        figure = Figure(figsize=(11, 6.5), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
        timeline(
            self._at_once("executor"),
            value="running",
            by="executor",
            shape="stacked",
            title=f"Tasks at once in {self.log.name or self.log.path.name} (dashed: all cores)",
            label="tasks",
            axes=above,
        )
        given = g.events(self._table("cores"), start="start", end="end").filter(g.col("cores") > 0)
        start, end, cores = (column.to_pylist() for column in pa.table(given.snapshot().agg(cores=g.sum("cores"))))
        above.hlines(cores, start, end, color="0.2", linestyle="dashed", linewidth=1)
        above.set_xlabel("")
        shuffled = self._table("shuffled_bytes")
        if shuffled["read"].null_count == shuffled["written"].null_count == shuffled.num_rows:
            below.set_title("No bytes were shuffled", loc="left")
        else:
            timeline(
                shuffled,
                value=["read", "written"],
                shape="stacked",
                title=f"Bytes shuffled by the tasks that ended in a window of {self._window()}",
                label="bytes",
                axes=below,
            )
        return figure

    def _table(self, name: str, *columns: str) -> pa.Table:
        return pq.read_table(self.folder / f"{name}.parquet", columns=list(columns) or None)

    def _frame(self, name: str, *columns: str) -> pl.DataFrame:
        return pl.DataFrame(self._table(name, *columns))

    def _window(self) -> str:
        return f"{format_span(ticks(self.size))}, every {format_span(ticks(self.every))}"

    def _at_once(self, *key: str) -> g.Stream:
        """The answer of `gpu_ops.apps.queries.running_tasks`, added up over the columns outside the key."""
        running = g.events(self._table("running_tasks"), start="start", end="end")
        return running.by(*key).snapshot().agg(running=g.sum("running"))

    def _peaks(self, *key: str) -> pl.DataFrame:
        at_once = pl.DataFrame(pa.table(self._at_once(*key)))
        return (
            at_once.group_by(key).agg(peak=pl.col("running").max()) if key else at_once.select(peak=pl.max("running"))
        )

    def _summary(self) -> list[str]:
        log, counts = self.log, self.log.counts
        statuses = dict(self._frame("tasks", "status").group_by("status").len().iter_rows())
        tasks = ", ".join(f"{statuses[status]:,} {text}" for status, text in _STATUSES.items() if status in statuses)
        until = f"{'ended' if log.ended else 'last seen'} {format_time(log.last_time)}"
        lines = [
            f"[bold]{escape(log.name or log.path.name)}[/] ({log.application}), Spark {log.spark_version}, {until}",
            f"tasks: {tasks or 'none'}",
        ]
        notes = {
            "unfinished tasks, shown to end at the log's last time": counts.unfinished,
            "tasks shorter than a millisecond of the log, shown to last one tick (1 µs)": counts.zero_length
            + counts.backwards,
        }
        lines += [f"[yellow]{note}: {count:,}[/]" for note, count in notes.items() if count]
        if counts.torn_lines:
            lines.append("[yellow]the last line is incomplete and was left out[/]")
        if log.compacted:
            lines.append("[yellow]Spark has compacted this log: tasks of finished jobs are missing[/]")
        return lines

    def _executors(self) -> Table:
        cores = self._frame("cores").filter(pl.col("cores") > 0)
        given = cores.group_by("executor").agg(
            cores=pl.col("cores").max(), lived=_LASTED.sum(), core_time=(pl.col("cores") * _LASTED).sum()
        )
        idle = self._frame("idle_cores").group_by("executor").agg(idle=(pl.col("idle") * _LASTED).sum())
        tasks = self._frame("tasks", "executor").group_by("executor").agg(tasks=pl.len())
        rows = given.join(idle, on="executor", how="left")
        for more in (tasks, self._peaks("executor")):
            rows = rows.join(more, on="executor", how="left")
        rows = rows.with_columns(pl.col("tasks", "peak").fill_null(0))
        shown = rows.sort("idle", "executor", descending=[True, False]).head(MOST_ROWS)

        numbers = _right("cores", "lifetime", "tasks", "peak", "busy core s", "idle core s", "idle")
        table = _titled("Idle cores, per executor", len(shown), len(rows), "most idle", ["executor", *numbers])
        for row in sorted(shown.iter_rows(named=True), key=lambda row: _natural(row["executor"])):
            table.add_row(escape(row["executor"]), f"{row['cores']}", _span(row["lived"]), *_use(row))
        if len(rows) > 1:
            total = rows.select(pl.col("tasks", "core_time", "idle", "cores").sum()).row(0, named=True)
            table.add_section()
            total["peak"] = self._peaks()["peak"].item() or 0
            table.add_row("in total", f"{total['cores']}", "", *_use(total), style="bold")
        if rows.filter(pl.col("peak") > pl.col("cores")).height:
            table.caption = (
                "A peak may exceed the cores for some ms: Spark launches a task\n"
                "before it logs the end of the previous one.\n"
            )
        return table

    def _stages(self) -> Table:
        key = ["stage", "stage_attempt"]
        took = (pl.col("finish") - pl.col("launch")).dt.total_microseconds()
        rows = (
            self._frame("tasks", *key, "launch", "finish", "shuffle_read_bytes", "shuffle_write_bytes")
            .group_by(key)
            .agg(
                tasks=pl.len(),
                took=took.sum(),
                median=took.median(),
                longest=took.max(),
                read=pl.col("shuffle_read_bytes").sum(),
                written=pl.col("shuffle_write_bytes").sum(),
            )
            .join(self._frame("stages", *key, "name"), on=key, how="left")
        )
        shown = rows.sort("took", *key, descending=[True, False, False]).head(MOST_ROWS)
        numbers = _right("tasks", "median", "longest", "read", "written", no_wrap=True)
        columns: list[Column | str] = [*_right("stage", no_wrap=True, min_width=5), "", *numbers]
        table = _titled("Stages: the times of their tasks", len(shown), len(rows), "longest", columns)
        for row in shown.sort(key).iter_rows(named=True):
            attempt = f".{row['stage_attempt']}" if row["stage_attempt"] else ""
            table.add_row(
                f"{row['stage']}{attempt}",
                escape(_short(row["name"] or "")),
                f"{row['tasks']:,}",
                _span(row["median"]),
                _span(row["longest"]),
                _bytes(row["read"]),
                _bytes(row["written"]),
            )
        return table

    def _running(self) -> Table:
        lasted = _LASTED.sum()
        rows = (
            self._frame("running_tasks")
            .sort("start")
            .group_by("executor", "stage")
            .agg(
                changes=pl.len(),
                peak=pl.col("running").max(),
                since=pl.col("start").get(pl.col("running").arg_max()),
                mean=(pl.col("running") * _LASTED).sum() / lasted,
                lasted=lasted,
            )
        )
        shown = rows.sort("lasted", "executor", "stage", descending=[True, False, False]).head(MOST_ROWS)
        columns: list[Column | str] = [
            "executor",
            *_right("stage", "changes", "peak", "first at (UTC)", "mean", "over"),
        ]
        table = _titled("Tasks at once, per executor and stage", len(shown), len(rows), "longest", columns)
        for row in sorted(shown.iter_rows(named=True), key=lambda row: (_natural(row["executor"]), row["stage"])):
            table.add_row(
                escape(row["executor"]),
                f"{row['stage']}",
                f"{row['changes']:,}",
                f"{row['peak']}",
                f"{row['since']:%H:%M:%S.%f}"[:-3],
                f"{row['mean']:.1f}",
                _span(row["lasted"]),
            )
        return table

    def _shuffled(self) -> Table:
        rows = self._frame("shuffled_bytes").with_columns(pl.col("read", "written").fill_null(0))
        rows = rows.with_columns(both=pl.col("read") + pl.col("written"))
        shown = rows.sort("both", "start", descending=[True, False]).head(MOST_ROWS).sort("start")
        window, bar = Column("window (UTC)", no_wrap=True), Column("", no_wrap=True)
        columns = [window, *_right("tasks", "read", "written", no_wrap=True), bar]
        table = _titled(f"Bytes shuffled per window of {self._window()}", len(shown), len(rows), "busiest", columns)
        most = max(shown["both"].max() or 0, 1)
        for row in shown.iter_rows(named=True):
            table.add_row(
                f"{_clock(row['start'])} to {_clock(row['end'])}",
                f"{row['ended']:,}",
                _bytes(row["read"]),
                _bytes(row["written"]),
                "█" * round(16 * row["both"] / most),
            )
        return table


def _right(*names: str, **look: Any) -> list[Column]:
    """Columns of numbers."""
    return [Column(name, justify="right", **look) for name in names]


def _titled(title: str, shown: int, rows: int, which: str, columns: Sequence[Column | str]) -> Table:
    if shown < rows:
        title += f" (the {shown} {which} of {rows:,})"
    return Table(
        *columns,
        title=title,
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        caption_style="dim",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )


def _use(row: dict[str, int]) -> tuple[str, ...]:
    busy = row["core_time"] - row["idle"]
    share = f"{row['idle'] / row['core_time']:.0%}" if row["core_time"] else ""
    return f"{row['tasks']:,}", f"{row['peak']}", f"{busy / 1e6:,.1f}", f"{row['idle'] / 1e6:,.1f}", share


def _span(microseconds: float) -> str:
    for unit, length in (("h", 3.6e9), ("min", 6e7), ("s", 1e6)):
        if microseconds >= length * (1 if unit == "s" else 2):
            return f"{microseconds / length:,.1f} {unit}"
    return f"{microseconds / 1e3:.0f} ms"


def _short(stage: str) -> str:
    """A stage's name without the folders of its file: ``collect at wages.py:10``."""
    name = re.sub(r"(?<= at )\S*/", "", stage)
    return name if len(name) <= 28 else name[:27] + "…"


def _bytes(count: int) -> str:
    return re.sub(" bytes?$", " B", decimal(count))


def _clock(time: datetime.datetime) -> str:
    return time.isoformat(timespec="milliseconds")[11:23].removesuffix(".000")


def _natural(executor: str) -> tuple[int, str]:
    return (int(executor), "") if executor.isdigit() else (-1, executor)
