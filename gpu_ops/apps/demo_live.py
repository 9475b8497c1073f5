"""``make demo-live``: an auction in Kafka, a live query on Spark over it that is killed in the middle, and its answer.

The query is ``spark_conf/demo/winning_bids.py``. What it has written into its topic is compared, byte by byte, with
what ``collect()`` gives of all events at once.
"""

from __future__ import annotations

import hashlib
import runpy
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyarrow import compute, parquet
from rich.console import Console
from rich.markup import escape

import gpu_ops as g
from gpu_ops.apps import nexmark
from gpu_ops.apps.broker import CONNECTOR, JARS, Broker, broker, check_here
from gpu_ops.apps.demo import CONF, step
from gpu_ops.apps.nexmark import streams
from gpu_ops.apps.spark_submit import ROOT, SparkJob, SparkSubmit
from gpu_ops.errors import GpuOpsError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gpu_ops.engines.spark.streams.log import EpochLog

OUTPUT = ROOT / "demo_live_output"
QUERY = CONF / "demo" / "winning_bids.py"

EVENTS = 40_000
RATE = 200
"""Events per second of the auction's time."""

EPOCH_EVENTS = 4_000
"""How many events Spark takes into an epoch."""

COMMITTED = 3
"""How many epochs are committed when the driver is killed in the next one."""

FEWEST = 10
"""How many auctions an average is drawn of, at least."""

_PARTITIONS = 3
_KILL_S = 120.0


class Killed(NamedTuple):
    """Where the first driver was killed.

    Attributes:
        epoch: The last epoch that it had begun.
        committed: Whether that was committed.
        rows: The results that stood in the topic.
    """

    epoch: int
    committed: bool
    rows: pa.Table


def main() -> int:
    """Run the demo into ``demo_live_output/``.

    Returns:
        The exit code: 0, or 1 after an error message.
    """
    console = Console()
    try:
        check_here()
        with tempfile.TemporaryDirectory(prefix="gpu_ops-kafka-") as folder, ExitStack() as stack:
            with step(console, "a Kafka broker starts"):
                server = stack.enter_context(broker(Path(folder) / "broker"))
            run(OUTPUT, console, server)
    except (GpuOpsError, OSError) as error:
        console.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        return 1
    return 0


def run(output: Path, console: Console, server: Broker) -> None:
    """Have a live query killed and started again, compare what it gives, and draw it.

    Args:
        output: The folder for results, picture and Spark's output; its old content is removed.
        console: The console for the report.
        server: The broker.

    Raises:
        GpuOpsError: This is not a checkout, Spark, its connector or matplotlib is missing, a driver failed, or the
            topic does not hold what `collect` gives.
    """
    from gpu_ops.plot import need_matplotlib

    need_matplotlib()
    if not CONF.is_dir():
        raise GpuOpsError(f"The demo needs {CONF}, which is not part of a package.", remedy="Run it in a checkout.")
    if not CONNECTOR:
        raise GpuOpsError(f"{JARS} has no connector of Spark for Kafka.", remedy="Fetch it: make kafka.")
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    asks = runpy.run_path(str(QUERY))
    names = [server.topic(name, _PARTITIONS) for name in ("auctions", "bids", "winners")]
    topics = asks["topics"](server.servers, *names)
    auction = nexmark.Generator(EVENTS, RATE)
    half = EVENTS // 2

    def written() -> pa.Table:
        return g.events(topics[2], start="start", end="end").collect()

    with tempfile.TemporaryDirectory(prefix="gpu_ops-demo-") as scratch:
        checkpoint = Path(scratch) / "checkpoint"
        driver = ["--driver-class-path", f"{CONNECTOR[-1]}/*", str(QUERY), server.servers, *names, str(checkpoint)]
        command = ["--properties-file", str(CONF / "local-cpu.properties"), *driver, str(EPOCH_EVENTS)]
        spark = SparkSubmit(Path(scratch), output / "spark.log")
        with step(console, "half of an auction goes into Kafka"):
            _send(server, topics[:2], auction, 0, half)
        with step(console, "Spark runs a live query over it, and its driver is killed (SIGKILL)"):
            killed = _killed(spark.start(*command), checkpoint, written)
        with step(console, "the other half goes into Kafka, while nobody reads it"):
            _send(server, topics[:2], auction, half, EVENTS)
        with step(console, "another driver goes on from the checkpoint, up to the end"):
            spark.submit(*command, "--end")
    with step(console, "collect() computes the same of all events at once"):
        found, tables = written(), auction.tables()
        expected = asks["query"](streams.auctions(tables.auctions), streams.bids(tables.bids)).collect()
    for name, table in (("winners", found), ("expected", expected)):
        parquet.write_table(_sorted(table), output / f"{name}.parquet")
    with step(console, "the winners become a picture"):
        _drawn(found, killed).savefig(output / "winners.png", dpi=150)
    console.print()
    for line in [*_story(tables, killed, found), _compared(found, expected)]:
        console.print(line, highlight=False, soft_wrap=True)
    said = f"The query: {QUERY.relative_to(ROOT)}. Parquet, winners.png and Spark's own output: {escape(str(output))}"
    console.print(said, highlight=False, soft_wrap=True)


def _send(server: Broker, topics: Sequence[g.Topic], auction: nexmark.Generator, first: int, last: int) -> None:
    """Write a range of events into the topics of auctions and bids, over all their partitions."""
    kinds: tuple[nexmark.Kind, ...] = ("auctions", "bids")
    for topic, kind in zip(topics, kinds, strict=True):
        values, _ = topic.encode(auction.table(kind, first, last))
        server.write(topic.name, values, partition=[number % _PARTITIONS for number in range(len(values))])


def _killed(driver: SparkJob, checkpoint: Path, written: Callable[[], pa.Table]) -> Killed:
    """Kill a driver in the middle of an epoch.

    Raises:
        GpuOpsError: It has ended by itself, or does not come so far.
    """
    from gpu_ops.engines.spark.streams.log import EpochLog

    log, given_up = EpochLog(checkpoint), time.monotonic() + _KILL_S
    try:
        while not _is_running(log):
            if driver.process.poll() is not None:
                driver.wait()
                raise GpuOpsError("The driver has ended before it was killed.", remedy=f"See {driver.printed}.")
            if time.monotonic() > given_up:
                raise GpuOpsError(
                    f"The driver has not run {COMMITTED} epochs in {_KILL_S:.0f} s.", remedy=f"See {driver.printed}."
                )
            time.sleep(0.02)
    finally:
        driver.kill()
    last = log.last() or 0
    begun = log.begun(last + 1) is not None
    return Killed(last + begun, not begun, written())


def _is_running(log: EpochLog) -> bool:
    """Whether an epoch is being run, after so many others."""
    if not log.state.exists():
        return False
    last = log.last()
    return last is not None and last + 1 >= COMMITTED and log.begun(last + 1) is not None


def _story(tables: nexmark.Tables, killed: Killed, found: pa.Table) -> list[str]:
    """What has happened, in a few lines."""
    at = "behind" if killed.committed else "in the middle of"
    early, late = killed.rows.num_rows, found.num_rows - killed.rows.num_rows
    counted = f"{tables.auctions.num_rows:,} auctions and {tables.bids.num_rows:,} bids"
    went_on = f"The second one went on with epoch {killed.epoch + killed.committed}"
    return [
        f"NEXMark, {counted} in Kafka: a live query on Spark writes the winning bid of each auction into a topic.",
        f"The first driver was killed {at} epoch {killed.epoch}: {early:,} winners stood in the topic.",
        f"{went_on}, from the checkpoint, and wrote the other {late:,}.",
    ]


def _compared(found: pa.Table, expected: pa.Table) -> str:
    """Say that both tables have the same bytes once they are sorted.

    Raises:
        GpuOpsError: They have not.
    """
    one, other = (_bytes(_sorted(each.select(expected.column_names))) for each in (found, expected))
    if one != other:
        raise GpuOpsError(
            f"The topic holds {found.num_rows:,} results, and collect() gives {expected.num_rows:,}, or other ones.",
            remedy="This is a defect: compare winners.parquet and expected.parquet, and report it.",
        )
    return (
        f"The topic holds what collect() gives of all events, byte by byte: {found.num_rows:,} rows, {len(one):,} "
        f"bytes of Arrow, SHA-256 {hashlib.sha256(one).hexdigest()[:12]}…"
    )


def _sorted(table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in table.column_names]).combine_chunks()


def _bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _drawn(found: pa.Table, killed: Killed) -> Figure:
    """The average winning price of each category over hopping windows; and which driver has written which winners."""
    from matplotlib.figure import Figure

    from gpu_ops.plot import timeline

    won = g.events(found, start="start", end="end")
    average = won.by("category").hopping("30s", "5s").agg(n=g.count(), price=g.mean("price"))
    # Of a few auctions, as at both ends, an average says little.
    millions = average.filter(g.col("n") >= FEWEST).select("category", price=g.col("price") / 1_000_000).collect()
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    title = "What auctions went for: average of the last 30 s, in millions, by category"
    timeline(millions, value="price", by="category", title=title, label="price", axes=above)
    above.set_xlabel("")
    early = compute.is_in(found["auction"], value_set=killed.rows["auction"].combine_chunks())
    named = compute.if_else(early, "the first, which was killed", "the second")
    by_driver = g.events(found.append_column("driver", named), start="start", end="end").by("driver")
    counts = by_driver.tumbling("5s").agg(n=g.count()).collect()
    title = "Auctions that ended in each 5 s, by the driver that wrote them"
    timeline(counts, value="n", by="driver", shape="stacked", title=title, label="auctions", axes=below)
    return figure


if __name__ == "__main__":
    sys.exit(main())
