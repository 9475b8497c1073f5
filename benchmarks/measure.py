"""One engine on one workload, in a process of its own: prints the measurement as a line of JSON.

    python -m benchmarks.measure W2 duckdb --events 1000000

The first call is made on a thousand events: it imports what the engine imports late and loads or compiles its kernels.
Memory is counted from there. Then the input is made, and all that follows is the workload itself.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import resource
import statistics
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from benchmarks.engines import prepare
from benchmarks.workloads import WORKLOADS, checks, inputs, text_keys

MIB = 1 << 20
STATUS = Path("/proc/self/status")


def cpu_seconds() -> float:
    """User and system time of this process and of its children that have ended."""
    usages = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def forget_peak() -> None:
    """Count the peak of memory from now on, where the system can; elsewhere it is the peak since the start."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """The most memory that this process has held since `forget_peak`."""
    if STATUS.exists() and (line := re.search(r"VmHWM:\s+(\d+) kB", STATUS.read_text())):
        return int(line[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure(
    workload: str, engine: str, *, events: int, repeats: int, seconds: float, device: Any, keys: int, key_type: str
) -> dict[str, Any]:
    """Time an engine; see the module's text for what is in the result.

    Raises:
        ValueError: The answer is wrong.
    """

    def source(size: int) -> list[pa.Table]:
        tables = inputs(workload, size, keys)
        return [text_keys(table, keys) if key_type == "text" else table for table in tables]

    started = time.perf_counter()
    prepare(engine, workload, source(1000), device=device)()
    cold = time.perf_counter() - started

    gc.collect()
    before = psutil.Process().memory_info().rss
    forget_peak()
    tables = source(events)
    input_bytes = sum(table.nbytes for table in tables)
    run = prepare(engine, workload, tables, device=device)
    del tables

    cpu: list[float] = []
    wall: list[float] = []
    peak = 0
    result: dict[str, Any] = {}
    # A call of milliseconds says little alone: it is repeated for a second at least.
    while (len(cpu) < repeats or sum(wall) < 1) and (not cpu or sum(wall) + max(wall) < seconds):
        cpu_before, wall_before = cpu_seconds(), time.perf_counter()
        answer = run()
        wall.append(time.perf_counter() - wall_before)
        cpu.append(cpu_seconds() - cpu_before)
        if not result:
            peak = peak_bytes() - before
            found = checks(WORKLOADS[workload], answer)
            if (events, keys) == (WORKLOADS[workload].full, 1000) and not found.agrees(WORKLOADS[workload].answer):
                raise ValueError(f"{engine} answers {workload} with {found}, not {WORKLOADS[workload].answer}.")
            result = {"checks": asdict(found), "output_mib": answer.nbytes / MIB}
        del answer
        gc.collect()

    figures = {
        "workload": workload,
        "engine": engine,
        "events": events,
        "cpu_s": min(cpu),
        "cpu_median_s": statistics.median(cpu),
        "wall_s": min(wall),
        "wall_median_s": statistics.median(wall),
        "meps": events / min(cpu) / 1e6,
        "cold_s": cold,
        "peak_mib": peak / MIB,
        "input_mib": input_bytes / MIB,
        **result,
        "repeats": len(cpu),
        "keys": keys,
        "key_type": key_type,
        "device": device if engine == "gpu_ops" else "cpu",
    }
    return {name: round(value, 5) if isinstance(value, float) else value for name, value in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("engine")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--key-type", choices=("integer", "text"), default="integer")
    print(json.dumps(measure(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()
