"""The workloads with no key, one, ten, up to a million, and with half of all events on one, beside Polars and DuckDB.

    python benchmarks/run.py across-keys --json FILE

Each library runs in a process of its own, and gpu_ops in two: with one thread and with as many as there are cores
(``GPU_OPS_THREADS``), if that makes a difference. Peers are asked in all their forms (`engines.FORMS`) over a hundredth
and a tenth of the events; the quickest form of each library is taken on to all events. A form whose call would take
more than `LIMIT` CPU seconds is measured over the tenth or the hundredth instead, and the file says over how many
events.

Every answer is compared with gpu_ops' over the same events before anything is timed. Forms that leave out rows are
compared on the rows that they have. Then all engines of a row are called in turns.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.engines import FORMS, at_events
from benchmarks.figures import BANDWIDTH, SERIAL, Figures, Measurement, Runs, projections, table, write
from benchmarks.workloads import SPREADS, Checks

ROOT = Path(__file__).parents[1]

EVENTS = 1_000_000
LIMIT = 3.0
"""CPU seconds of a call, beyond which a form gets fewer events; the machine's other work makes little of them."""
TURN = 0.1
"""Seconds of a turn: an engine whose call takes less is called again, up to `CALLS` times."""
CALLS = 5
TURNS, ENOUGH = 3, 2.0
"""So many turns have all engines; one that has taken so many seconds then has no more."""

FEWER_ROWS = "a row for each event, without its end; none for the times when an event leaves"


class Server:
    """A process that calls engines (`measure.serve`)."""

    def __init__(self, workload: str, keys: str, device: str, threads: int) -> None:
        spread = SPREADS[keys]
        options = [f"--keys={spread.keys}", f"--shape={spread.shape}", f"--device={device}"]
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  (closed with the process)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.measure", workload, *options],
            cwd=ROOT,
            env={**os.environ, "GPU_OPS_THREADS": str(threads)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )

    def call(self, engine: str, events: int) -> dict[str, Any]:
        """A call of an engine.

        Raises:
            RuntimeError: It failed.
        """
        assert self.process.stdin
        assert self.process.stdout
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps([engine, events]) + "\n")
            self.process.stdin.flush()
        said = self.process.stdout.readline()
        if not said:
            self.process.wait()
            self.errors.seek(0)
            raise RuntimeError(f"{engine} over {events:,} events failed:\n{self.errors.read()}")
        answer: dict[str, Any] = json.loads(said)
        return answer

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.errors.close()


@dataclass(frozen=True)
class Asked:
    """An engine over a number of events, in a process that has answered it once."""

    engine: str
    events: int
    server: Server
    first: dict[str, Any]

    def again(self) -> dict[str, Any]:
        """One more call."""
        return self.server.call(_form(self.engine), self.events)


def ask(server: Server, engine: str, events: int) -> Asked:
    return Asked(engine, events, server, server.call(_form(engine), events))


def _form(engine: str) -> str:
    """As a process is asked: what gives gpu_ops one thread is the process's environment."""
    return "gpu_ops" if engine == SERIAL else engine


def compare(ours: Asked, theirs: Asked) -> None:
    """That two answers are equal, or equal where both have rows.

    Raises:
        ValueError: They are not.
    """
    name = "checks_at_events" if at_events(theirs.engine) else "checks"
    expected, found = (Checks(**each.first[name]) for each in (ours, theirs))
    if not expected.agrees(found):
        raise ValueError(f"{ours.engine} gives {expected} but {theirs.engine} gives {found}, of {ours.events:,} events")


def peers(workload: str, servers: dict[str, Server], ours: dict[int, Asked]) -> Iterator[Asked]:
    """The quickest form of each peer, and of its forms that leave rows out, over as many events as its time allows."""
    hundredth, tenth, all_ = sorted(ours)
    kinds: defaultdict[tuple[str, bool], list[tuple[float, float, Asked]]] = defaultdict(list)
    for engine in FORMS[workload]:
        library = "polars" if engine.startswith("polars") else "duckdb"
        for events in (hundredth, tenth):
            asked = ask(servers[library], engine, events)
            compare(ours[events], asked)
            # The first call over an input may have memory to find.
            calls = asked.first, asked.again()
            wall, cpu = (min(call[clock] for call in calls) / events for clock in ("wall_s", "cpu_s"))
            if cpu * 10 * events > LIMIT:
                break
        kinds[library, at_events(engine)].append((wall, cpu, asked))
    for forms in kinds.values():
        _, cpu, asked = min(forms, key=lambda form: form[0])
        if asked.events == tenth and cpu * all_ <= LIMIT:
            asked = ask(asked.server, asked.engine, all_)
            compare(ours[all_], asked)
        yield asked


def row(
    workload: str, keys: str, *, events: int, repeats: int, device: str, cores: int, alone: bool
) -> list[Measurement]:
    """All engines on a workload over keys, in turns; ``alone``: gpu_ops with one thread too.

    Raises:
        ValueError: Two of them do not agree.
        RuntimeError: One of them failed.
    """
    with contextlib.ExitStack() as stack:
        # They start side by side; what is timed is timed alone.
        threads = {"gpu_ops": cores, "polars": cores, "duckdb": cores, **({SERIAL: 1} if alone else {})}
        servers = {name: Server(workload, keys, device, count) for name, count in threads.items()}
        for server in servers.values():
            stack.callback(server.close)
        ours = {size: ask(servers["gpu_ops"], "gpu_ops", size) for size in (events // 100, events // 10, events)}
        chosen = [ours[events]]
        if alone:
            chosen.append(ask(servers[SERIAL], SERIAL, events))
            compare(*chosen)
        chosen += peers(workload, servers, ours)
        cpu: list[list[float]] = [[] for _ in chosen]
        wall: list[list[float]] = [[] for _ in chosen]
        for turn in range(repeats):
            for at in range(len(chosen)):
                number = (at + turn) % len(chosen)
                asked, began = chosen[number], sum(wall[number])
                if turn >= TURNS and began > ENOUGH:
                    continue
                for _ in range(CALLS):
                    said = asked.again()
                    # The clock of CPU time may stand still for a millisecond.
                    cpu[number].append(max(said["cpu_s"], 1e-6))
                    wall[number].append(said["wall_s"])
                    if sum(wall[number]) - began > TURN:
                        break
        return [
            measurement(workload, keys, asked, Runs.of(spent), Runs.of(took))
            for asked, spent, took in zip(chosen, cpu, wall, strict=True)
        ]


def measurement(workload: str, keys: str, asked: Asked, cpu: Runs, wall: Runs) -> Measurement:
    first, less = asked.first, at_events(asked.engine)
    return Measurement(
        workload=workload,
        keys=keys,
        engine=asked.engine,
        events=asked.events,
        rows=first["rows"],
        fewer_rows=FEWER_ROWS if less else "",
        threads=first["threads"],
        cpu_s=cpu,
        wall_s=wall,
        peak_mib=first["peak_mib"],
        input_mib=first["input_mib"],
        output_mib=first["output_mib"],
        checks=first["checks_at_events" if less else "checks"],
    )


# The machine


def copies(threads: int, mib: int = 64, times: int = 8) -> float:
    """GB that so many threads read and write in a second, copying memory of their own; the best of three."""
    arrays = [(np.zeros(mib << 17), np.ones(mib << 17)) for _ in range(threads)]

    def copy(pair: tuple[Any, Any]) -> None:
        for _ in range(times):
            np.copyto(*pair)

    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(3):
            began = time.perf_counter()
            list(pool.map(copy, arrays))
            best = max(best, 2 * threads * times * (mib << 20) / (time.perf_counter() - began) / 1e9)
    return round(best, 2)


def threads(device: str, asked: int) -> int:
    """How many threads gpu_ops takes where ``GPU_OPS_THREADS`` asks for some."""
    code = f"from gpu_ops.devices import choose; print(choose({device!r}).threads)"
    environment = {**os.environ, "GPU_OPS_THREADS": str(asked)}
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    return int(said.stdout)


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    path = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", path.read_text(encoding="utf-8")) if path.exists() else None
    return found[1] if found else platform.processor() or platform.machine()


def load() -> float:
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0


def begin(events: int) -> Figures:
    """What is known of the machine before anything is measured."""
    cores = usable_cores()
    versions = {
        name: importlib.metadata.version(name) for name in ("gpu_ops", "polars", "duckdb", "pyarrow", "numpy", "numba")
    }
    return Figures(
        events=events,
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        cores=cores,
        processor=processor(),
        load=[load()],
        versions={**versions, "python": platform.python_version()},
        threads_variable=str(cores),
        copies_gb_s={str(threads): copies(threads) for threads in sorted({1, cores})},
    )


def shown(lines: list[list[str]], **options: Any) -> Table:
    """A table of the terminal."""
    heading, *rows = lines
    made = Table(title_justify="left", caption_justify="left", **options)
    for at, name in enumerate(heading):
        made.add_column(name, justify="left" if at < 2 else "right", no_wrap=at != 1)
    for at, each in enumerate(rows):
        if each[0] and at:
            made.add_section()
        made.add_row(*each, style="bold" if each[1].startswith("gpu_ops") else "")
    return made


def report(options: argparse.Namespace, console: Console) -> None:
    """Measure all, write the file after each row, and print the tables.

    Raises:
        SystemExit: An engine failed, or two do not agree.
    """
    events = options.events or EVENTS
    if events % 200:
        raise SystemExit("across-keys takes --events that 200 divides: a hundredth is asked of two inputs")
    figures = begin(events)
    workloads = options.workloads or list(FORMS)
    places = [(workload, keys) for workload in workloads for keys in options.spreads or SPREADS]
    alone = threads(options.device, 1) != threads(options.device, figures.cores)
    given = {"events": events, "repeats": options.repeats, "device": options.device, "cores": figures.cores}
    for number, (workload, keys) in enumerate(places, 1):
        with console.status(f"{number} of {len(places)}: {workload}, keys: {keys}"):
            try:
                figures.measurements.extend(row(workload, keys, alone=alone, **given))
            except (ValueError, RuntimeError) as failure:
                raise SystemExit(f"{workload}, keys: {keys}: {failure}") from failure
        figures.load[1:] = [load()]
        if options.json:
            write(options.json, figures)
    # Fifteen columns of two figures are no table on 132 characters.
    console.width = max(console.width, 200)
    caption = (
        f"Milliseconds for a million events, wall / CPU; {events:,} events, * a tenth of them, ** a hundredth. "
        f"at events: {FEWER_ROWS}. {figures.cores} cores, load {min(figures.load)} to {max(figures.load)}."
    )
    console.print(shown(table(figures), title="Across keys", caption=caption))
    lines = projections(figures)
    if len(lines) > 1:
        speeds = ", ".join(f"{speed:.3g} GB/s with {count}" for count, speed in figures.copies_gb_s.items())
        caption = (
            f"Million events per second, quickest calls. Copying memory, threads: {speeds}; {BANDWIDTH:g} at most."
        )
        console.print(shown(lines, title="More cores", caption=caption))
    else:
        console.print("gpu_ops took the same number of threads with GPU_OPS_THREADS=1: no projection to more cores.")
