"""Measure gpu_ops beside Polars and DuckDB.

    python benchmarks/run.py W2 --events 10000000 --json FILE    one workload, a line of JSON per engine
    python benchmarks/run.py --all                               every workload, at a tenth of its full size and at that
    python benchmarks/run.py scaling | keys | cold               gpu_ops alone: W2 from 1 to 50 million events, with a
                                                                 million keys, and from the start of the interpreter
    python benchmarks/run.py live                                W2 over an hour, pushed in micro-batches
    python benchmarks/run.py across-keys --json FILE             eight workloads with no key to a million, and with half
                                                                 of all events on one (benchmarks/across_keys.py)
    python benchmarks/run.py spark-W2                            beside native Spark SQL and an identity mapInArrow
    python benchmarks/run.py spark-W5                            both strategies beside native Spark SQL on buckets

Each engine runs in a process of its own, one at a time. What counts is user and system CPU seconds: they suffer less
from what else a machine does than wall time, but suffer they do (up to twofold on two busy cores), so compare figures
of one run. No figure is printed of an engine whose answer is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
# As a script this file sees its own folder only; as `benchmarks.run`, what it imports is here already.
sys.path.insert(0, str(ROOT))

from benchmarks import across_keys  # noqa: E402
from benchmarks.engines import FORMS, PEERS  # noqa: E402
from benchmarks.measure import cpu_seconds  # noqa: E402
from benchmarks.workloads import FULL, SPREADS, WORKLOADS, Checks  # noqa: E402

Result = dict[str, Any]

MODES = ("scaling", "keys", "across-keys", "cold", "live", "spark-W2", "spark-W5")

COLD = """
import time
started = time.time()
import gpu_ops as g
imported = time.time()
import numpy as np
import pyarrow as pa

def column(numbers, dtype):
    # pa.array(…) would import pandas where it is installed.
    return pa.Array.from_buffers(dtype, len(numbers), [None, pa.py_buffer(numbers)])

rows = np.arange(1000)
names = ["t", "k", "v"]
types = [pa.timestamp("us", "UTC"), pa.int64(), pa.int64()]
events = pa.table([column(values, dtype) for values, dtype in zip((rows * 5000, rows % 2, rows), types)], names)
stream = g.events(events, start="t").by("k").sliding("3min")
answer = stream.agg(n=g.count(), mean=g.mean("v")).collect(device="cpu")
print(answer["n"][1000], answer["mean"][1000])
print(imported - started, time.time())
"""


def child(workload: str, engine: str, options: argparse.Namespace, **more: Any) -> Result:
    """The measurement of one engine by `benchmarks.measure`, added to the file that the user named.

    Raises:
        SystemExit: It failed, or its answer is wrong.
    """
    given = {"repeats": options.repeats, "seconds": options.seconds, "device": options.device, **more}
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    command = [sys.executable, "-m", "benchmarks.measure", workload, engine, *arguments]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise SystemExit(f"{engine} failed on {workload}:\n{finished.stderr}")
    result: Result = json.loads(finished.stdout.splitlines()[-1])
    save(options.json, result)
    return result


def measure(workload: str, options: argparse.Namespace, *, peers: str, events: int, console: Console) -> list[Result]:
    """A workload on gpu_ops and peers, and that all of them agree.

    Raises:
        SystemExit: Two engines do not agree.
    """
    chosen = {"none": (), "best": WORKLOADS[workload].best_peers, "all": PEERS[workload]}[peers]
    results: list[Result] = []
    for engine in ("gpu_ops", *chosen):
        with console.status(f"{workload}, {events:,} events: {engine}"):
            results.append(child(workload, engine, options, events=events))
        if not Checks(**results[0]["checks"]).agrees(Checks(**results[-1]["checks"])):
            raise SystemExit(f"{workload}: gpu_ops {results[0]['checks']} but {engine} {results[-1]['checks']}")
    return results


def save(path: Path | None, result: Result) -> None:
    """Add a result to a file as a line of JSON."""
    if path:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")


def table_of(results: list[Result]) -> Table:
    """Ours beside the best peer, a row for each engine."""
    table = Table(
        caption="M/s: million events per CPU second, best call. first: the first call in a process, on 1000 events. "
        "peak: above what imports take; as a ratio of input plus output.",
    )
    table.add_column("")
    table.add_column("engine")
    for heading in ("M events", "M/s", "CPU s", "wall s", "first s", "peak MiB", "in + out", "best peer", "target"):
        table.add_column(heading, justify="right")
    for workload in dict.fromkeys(result["workload"] for result in results):
        rows = [result for result in results if result["workload"] == workload]
        fastest = max((row["meps"] for row in rows[1:]), default=0)
        for row in rows:
            ours = row["engine"] == "gpu_ops"
            target = WORKLOADS[workload].target
            table.add_row(
                workload if ours else "",
                row["engine"],
                f"{row['events'] / 1e6:g}" if ours else "",
                f"{row['meps']:.4g}",
                f"{row['cpu_s']:.3f}",
                f"{row['wall_s']:.3f}",
                f"{row['cold_s']:.2f}",
                f"{row['peak_mib']:.0f}",
                f"{row['peak_mib'] / (row['input_mib'] + row['output_mib']):.2f}x",
                f"{row['meps'] / fastest:.3g}x" if ours and fastest else "",
                f"{row['meps'] / target:.2f}x of {target:g}" if ours else "",
                style="bold" if ours else "",
            )
        table.add_section()
    return table


def scaling(options: argparse.Namespace, console: Console) -> None:
    """W2 from 1 to 50 million events: the cost of an event is to stay within 1.6x."""
    costs = []
    # The first call has new memory to fault in, so that a single one says little.
    seconds = max(options.seconds, 120)
    for millions in (1, 2, 5, 10, 20, 50):
        result = child("W2", "gpu_ops", options, events=millions * 1_000_000, seconds=seconds)
        costs.append(1000 / result["meps"])
        ratio = result["peak_mib"] / (result["input_mib"] + result["output_mib"])
        console.print(f"{millions:3} M events: {costs[-1]:6.1f} CPU ns an event, peak {ratio:.2f}x of input + output")
    console.print(f"dearest / cheapest: {max(costs) / min(costs):.2f}x, to be at most 1.6x")


def keys(options: argparse.Namespace, console: Console) -> None:
    """W2 with a million keys: at most 3x a thousand integer keys per event, text at most 6x."""
    limits = {(1000, "integer"): 1, (1_000_000, "integer"): 3, (1000, "text"): 6, (1_000_000, "text"): 6}
    costs = []
    for (count, key_type), limit in limits.items():
        result = child("W2", "gpu_ops", options, events=options.events or FULL, keys=count, key_type=key_type)
        costs.append(1000 / result["meps"])
        ratio = costs[-1] / costs[0]
        console.print(f"{count:9,} {key_type:7} keys: {costs[-1]:6.1f} CPU ns an event, {ratio:.2f}x, at most {limit}x")


def live(options: argparse.Namespace, console: Console) -> None:
    """W2 over an hour, pushed in micro-batches: of 1,000 events at least 1 M/s, of 100,000 at least 5 M/s."""
    for batch, target in ((1000, 1), (100_000, 5)):
        events = options.events or FULL
        arguments = [f"--batches={batch}", f"--events={events}", f"--device={options.device}"]
        command = [sys.executable, "-m", "benchmarks.live", *arguments]
        finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if finished.returncode:
            raise SystemExit(f"live failed on batches of {batch}:\n{finished.stderr}")
        result: Result = json.loads(finished.stdout.splitlines()[-1])
        save(options.json, result)
        memory = result["rss_mib"]
        console.print(
            f"batches of {batch:7,}: {result['meps']:.2f} M/s, {result['meps'] / target:.2f}x of {target:g}; "
            f"resident {min(memory[len(memory) // 2 :])} to {max(memory)} MiB"
        )


def cold(options: argparse.Namespace, console: Console) -> None:
    """From the start of the interpreter to the printed answer of a small W2: at most 1.5 s.

    An earlier run has left compiled kernels behind, and Python's bytecode too, even where the environment forbids it.
    """
    walls, cpus, imports = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for repeat in range(max(options.repeats, 5) + 1):
            started, cpu = time.time(), cpu_seconds()
            command = [sys.executable, "-c", COLD]
            finished = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
            imported, printed = map(float, finished.stdout.splitlines()[-1].split())
            if repeat:
                walls.append(printed - started)
                cpus.append(cpu_seconds() - cpu)
                imports.append(imported)
    console.print(
        f"first answer: best {min(walls):.2f} s, median {statistics.median(walls):.2f} s, to be at most 1.5 s;"
        f" importing gpu_ops is {min(imports):.2f} s of it; {min(cpus):.2f} s of CPU until the process has ended"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help=", ".join((*WORKLOADS, *MODES)))
    parser.add_argument("--all", action="store_true", help="every workload")
    parser.add_argument("--events", type=int, help="of all inputs together; a tenth of the full size by default")
    parser.add_argument("--peers", choices=("none", "best", "all"), help="best from the full size on, else all")
    parser.add_argument(
        "--repeats",
        type=int,
        default=5,
        help="so many calls of each engine, and a second of them at least; the best counts",
    )
    parser.add_argument("--seconds", type=float, default=30, help="no further call once an engine would take longer")
    parser.add_argument("--device", default="cpu", help="where gpu_ops runs")
    parser.add_argument("--json", type=Path, help="a file to add a line of JSON per engine to")
    parser.add_argument("--workloads", nargs="*", choices=FORMS, metavar="WORKLOAD", help="of across-keys: only these")
    parser.add_argument("--spreads", nargs="*", choices=SPREADS, metavar="KEYS", help="of across-keys: only these")
    options = parser.parse_args()
    if options.json:
        options.json.write_text("")
    if unknown := sorted({*options.what} - {*WORKLOADS, *MODES}):
        parser.error(f"there is no {', '.join(unknown)}")
    if not options.what and not options.all:
        parser.error("name a workload or a mode, or say --all")
    if options.json and "across-keys" in options.what and (options.all or len(options.what) > 1):
        parser.error("across-keys has a --json file of its own: ask for it alone")
    console = Console()
    # A log is not read through a keyhole.
    console.width = max(console.width, 132)

    modes = {"scaling": scaling, "keys": keys, "across-keys": across_keys.report, "cold": cold, "live": live}
    workloads = list(WORKLOADS) if options.all else [name for name in options.what if name in WORKLOADS]
    for share in (10, 1) if options.all and not options.events else (10,) if workloads else ():
        results = []
        for workload in workloads:
            full = WORKLOADS[workload].full
            events = options.events or full // share
            peers = options.peers or ("best" if events >= full else "all")
            results += measure(workload, options, peers=peers, events=events, console=console)
        console.print(table_of(results))
    for name in options.what:
        if name in modes:
            modes[name](options, console)
        elif name == "spark-W2":
            from benchmarks import spark_w2  # this mode and the next one need a JVM

            spark_w2.report(options, console)
        elif name == "spark-W5":
            from benchmarks import spark_w5

            spark_w5.report(options, console)


if __name__ == "__main__":
    main()
