"""``make demo``: run a Spark job, turn its event log into tables, and query them on Spark to see the executors at work.

The jobs run through the real ``spark-submit`` of the pyspark package, whose output goes into a file. Then ``gpu_ops
run`` answers a query that joins two streams.
"""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyarrow import compute, parquet
from rich.console import Console
from rich.markup import escape

from gpu_ops.apps import nexmark
from gpu_ops.apps.broker import SHORT_LIVED
from gpu_ops.apps.spark_event_log import SparkLog
from gpu_ops.apps.spark_report import SparkReport
from gpu_ops.apps.spark_submit import ROOT, SparkSubmit
from gpu_ops.errors import GpuOpsError

CONF = ROOT / "spark_conf"
OUTPUT = ROOT / "demo_output"
QUERIES = CONF / "demo" / "queries.py"
ANSWERS = ("running_tasks", "idle_cores", "shuffled_bytes")

ORDERS = 800_000

AUCTION = CONF / "demo" / "auction.py"
AUCTION_EVENTS = 100_000


def main() -> int:
    """Run the demo into ``demo_output/``.

    Returns:
        The exit code: 0, or 1 after an error message.
    """
    console = Console()
    try:
        run(OUTPUT, console)
    except (GpuOpsError, OSError) as error:
        console.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        return 1
    return 0


def run(output: Path, console: Console) -> None:
    """Make the demo's tables, answers and picture, and print the report.

    Args:
        output: The folder for them; its old content is removed.
        console: The console for the report.

    Raises:
        GpuOpsError: This is not a checkout, Spark is missing, or a program failed; the message then ends with the
            program's output.
    """
    if not CONF.is_dir():
        raise GpuOpsError(f"The demo needs {CONF}, which is not part of a package.", remedy="Run it in a checkout.")
    shutil.rmtree(output, ignore_errors=True)
    events = output / "event_log"
    events.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="gpu_ops-demo-") as scratch:
        spark = SparkSubmit(Path(scratch), output / "spark.log")
        with step(console, "Spark runs a skewed job on two executors"):
            spark.submit(*_workload(events))
        with step(console, "its event log becomes tables"):
            log = SparkLog(events)
            log.write(output)
        answers = output / "answers"
        with step(console, f"Spark answers {QUERIES.relative_to(ROOT)}"):
            spark.submit(
                *("--properties-file", CONF / "local-cpu.properties", CONF / "job.py", QUERIES),
                *("--input", f"tasks={output / 'tasks.parquet'}", "--input", f"cores={output / 'cores.parquet'}"),
                *("--output", answers),
            )
    for answer in ANSWERS:
        (answers / answer).rename(output / f"{answer}.parquet")
    shutil.rmtree(answers)
    windows = runpy.run_path(str(QUERIES))
    report = SparkReport(log, output, windows["SIZE"], windows["EVERY"])
    with step(console, "the answers become a picture"):
        report.draw().savefig(output / "timeline.png", dpi=150)
    with step(console, f"gpu_ops run answers {AUCTION.relative_to(ROOT)}"):
        prices = _auction(output)
    console.print()
    report.print(console)
    console.print(prices, highlight=False)
    console.print(
        f"Parquet, timeline.png and Spark's own output: {escape(str(output))}", highlight=False, soft_wrap=True
    )


@contextmanager
def step(console: Console, what: str) -> Iterator[None]:
    """Show what is being done, and then how long it took."""
    start = time.monotonic()
    with console.status(what):
        yield
    console.print(f"{time.monotonic() - start:5.1f} s  {what}", highlight=False)


def _auction(output: Path) -> str:
    """Make an auction's tables, run a query over two of them, and return the answer as text."""
    auction = nexmark.generate(AUCTION_EVENTS, rate=1000)
    command = [str(Path(sysconfig.get_path("scripts"), "gpu_ops")), "run", str(AUCTION)]
    for name in ("auctions", "bids"):
        path = output / f"{name}.parquet"
        parquet.write_table(getattr(auction, name), path)
        command += ["--input", f"{name}={path}"]
    answer = output / "closing_prices.parquet"
    ran = subprocess.run(  # noqa: S603  (our own arguments)
        [*command, "--output", str(answer)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise GpuOpsError(
            f"gpu_ops run failed with exit code {ran.returncode}.\n{ran.stderr}",
            remedy="Correct the error that it names.",
        )
    averages = parquet.read_table(answer)
    final = averages.filter(compute.equal(averages["end"], compute.max(averages["end"]))).sort_by("category")
    said = (f"{each['category']}: {each['final'] / 1_000_000:.1f}" for each in final.to_pylist())
    return (
        f"NEXMark, {auction.auctions.num_rows:,} auctions and {auction.bids.num_rows:,} bids: the average closing "
        f"price in millions, by category: {', '.join(said)}"
    )


def _workload(events: Path) -> Sequence[str | Path]:
    settings = {
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.enabled": "true",
        "spark.executor.extraJavaOptions": SHORT_LIVED,
        "spark.executor.memory": "700m",
        "spark.sql.shuffle.partitions": "8",
    }
    # Two executors of two cores, each its own JVM: local[4] would be one JVM.
    options = ["--master", "local-cluster[2,2,1024]"]
    for name, value in settings.items():
        options += ["--conf", f"{name}={value}"]
    return [*options, CONF / "demo" / "workload.py", str(ORDERS)]


if __name__ == "__main__":
    sys.exit(main())
