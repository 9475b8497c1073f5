"""One engine on one workload, in a process of its own: prints the measurement as a line of JSON.

    python -m benchmarks.measure W2 duckdb --events 1000000

Without an engine it calls those that standard input names, one at a time: `serve`.

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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from benchmarks.engines import FORMS, Run, at_events, prepare
from benchmarks.workloads import EVEN, WORKLOADS, Spread, checks, cut_to_events, inputs, text_keys

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


def timed(run: Run) -> tuple[pa.Table, float, float]:
    """An answer, the CPU seconds and the seconds that it took."""
    cpu, wall = cpu_seconds(), time.perf_counter()
    answer = run()
    wall = time.perf_counter() - wall
    return answer, cpu_seconds() - cpu, wall


@dataclass(frozen=True)
class Question:
    """A workload over an input of any size.

    Attributes:
        workload: Its name.
        spread: Of events over keys.
        key_type: "integer" or "text".
        device: Where gpu_ops runs.
    """

    workload: str
    spread: Spread
    key_type: str
    device: Any

    def source(self, events: int) -> list[pa.Table]:
        tables = inputs(self.workload, events, self.spread)
        return [text_keys(table, self.spread.keys) if self.key_type == "text" else table for table in tables]

    def prepared(self, engine: str, events: int) -> tuple[Run, list[pa.Table]]:
        tables = self.source(events)
        return prepare(engine, self.workload, tables, device=self.device, spread=self.spread), tables

    def first(self, engine: str, events: int) -> tuple[Run, dict[str, Any]]:
        """An engine that is ready to be timed, and its first call, with what is known of the answer and of memory.

        Raises:
            ValueError: The answer is wrong.
        """
        started = time.perf_counter()
        self.prepared(engine, 1000)[0]()
        cold = time.perf_counter() - started

        gc.collect()
        before = psutil.Process().memory_info().rss
        forget_peak()
        run, tables = self.prepared(engine, events)
        input_bytes = sum(table.nbytes for table in tables)
        del tables
        answer, cpu, wall = timed(run)
        peak = peak_bytes() - before
        workload = WORKLOADS[self.workload]
        result: dict[str, Any] = {"rows": answer.num_rows, "output_mib": answer.nbytes / MIB}
        if at_events(engine):
            result["checks_at_events"] = asdict(checks(workload, cut_to_events(answer, self.source(events)[0])))
        else:
            found = checks(workload, answer)
            if (events, self.spread) == (workload.full, EVEN) and not found.agrees(workload.answer):
                raise ValueError(f"{engine} answers {self.workload} with {found}, not {workload.answer}.")
            result["checks"] = asdict(found)
            if engine == "gpu_ops" and any(map(at_events, FORMS.get(self.workload, ()))):
                result["checks_at_events"] = asdict(checks(workload, cut_to_events(answer, self.source(events)[0])))
        more = {"cold_s": cold, "peak_mib": peak / MIB, "input_mib": input_bytes / MIB}
        return run, {"cpu_s": cpu, "wall_s": wall, **more, **result}


def measure(question: Question, engine: str, *, events: int, repeats: int, seconds: float) -> dict[str, Any]:
    """Time an engine; see the module's text for what is in the result.

    Raises:
        ValueError: The answer is wrong.
    """
    run, first = question.first(engine, events)
    gc.collect()
    cpu: list[float] = [first["cpu_s"]]
    wall: list[float] = [first["wall_s"]]
    # A call of milliseconds says little alone: it is repeated for a second at least.
    while (len(cpu) < repeats or sum(wall) < 1) and sum(wall) + max(wall) < seconds:
        took = timed(run)[1:]
        cpu.append(took[0])
        wall.append(took[1])
        gc.collect()

    figures = {
        "workload": question.workload,
        "engine": engine,
        "events": events,
        "cpu_s": min(cpu),
        "cpu_median_s": statistics.median(cpu),
        "wall_s": min(wall),
        "wall_median_s": statistics.median(wall),
        "meps": events / min(cpu) / 1e6,
        **{name: first[name] for name in ("cold_s", "peak_mib", "input_mib", "checks", "output_mib")},
        "repeats": len(cpu),
        "keys": question.spread.keys,
        "key_type": question.key_type,
        "device": question.device if engine == "gpu_ops" else "cpu",
    }
    return rounded(figures)


def serve(question: Question) -> None:
    """Answer each line of standard input, an engine and a number of events in JSON, by a call in a line of JSON.

    The first call of each says more: `Question.first`.
    """
    runs: dict[tuple[str, int], Run] = {}
    for line in sys.stdin:
        engine, events = json.loads(line)
        if run := runs.get((engine, events)):
            _, cpu, wall = timed(run)
            said: dict[str, Any] = {"cpu_s": cpu, "wall_s": wall}
        else:
            runs[engine, events], said = question.first(engine, events)
            # A collection walks through all that was imported, which takes longer than many a call.
            gc.collect()
            gc.freeze()
        print(json.dumps({**rounded(said, 7), "threads": threads(engine, question.device)}), flush=True)


def threads(engine: str, device: Any) -> int:
    """How many threads an engine's own work is given, as it says itself."""
    match engine.partition("/")[0]:
        case "gpu_ops":
            from gpu_ops.devices import choose

            return choose(device).threads
        case "duckdb":
            import duckdb

            return int(duckdb.execute("SELECT current_setting('threads')").fetchall()[0][0])
        case _:
            import polars as pl

            return pl.thread_pool_size()


def rounded(figures: dict[str, Any], digits: int = 5) -> dict[str, Any]:
    return {name: round(value, digits) if isinstance(value, float) else value for name, value in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("engine", nargs="?", help="none: as `serve` is asked")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--keys", type=int, default=1000, help="0: the question has none")
    parser.add_argument("--key-type", choices=("integer", "text"), default="integer")
    parser.add_argument("--shape", choices=("even", "half"), default="even", help="half: of all events on one key")
    options = parser.parse_args()
    spread = Spread(options.keys, options.shape)
    question = Question(options.workload, spread, options.key_type, options.device)
    if options.engine is None:
        serve(question)
        return
    given = {"events": options.events, "repeats": options.repeats, "seconds": options.seconds}
    print(json.dumps(measure(question, options.engine, **given)))


if __name__ == "__main__":
    main()
