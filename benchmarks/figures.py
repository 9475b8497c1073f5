"""What the table across keys found, in a file of JSON lines: a line about the machine, then one for each measurement.

A measurement is of one engine on one workload with its events spread over keys in one way. The file is read whole, and
refused where a line is damaged.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from benchmarks.engines import FORMS, at_events
from benchmarks.workloads import SPREADS

FORMAT = "gpu_ops across keys, 1"

AGAIN = "Take it anew: python benchmarks/run.py across-keys --json FILE."

SERIAL = "gpu_ops/1 thread"
"""The name of gpu_ops with one thread; "gpu_ops" has all cores."""


class DamagedFileError(ValueError):
    """A file of figures cannot be read; the message names the file, the line and what to do."""


@dataclass(frozen=True)
class Runs:
    """Seconds of calls."""

    runs: tuple[float, ...]
    median: float
    least: float
    most: float

    @staticmethod
    def of(runs: Iterable[float]) -> Runs:
        listed = tuple(runs)
        return Runs(listed, statistics.median(listed), min(listed), max(listed))

    def within(self) -> tuple[float, float]:
        """The least and the most, but for a tenth of the calls at either end if there are ten."""
        left_out = len(self.runs) // 10
        ordered = sorted(self.runs)
        return ordered[left_out], ordered[-1 - left_out]


@dataclass(frozen=True)
class Measurement:
    """An engine on a workload over keys.

    Attributes:
        workload: Its name.
        keys: The name of how events are spread over keys (`workloads.SPREADS`).
        engine: "gpu_ops", `SERIAL`, or one of `engines.FORMS`.
        events: Of all inputs together; less than the others' if a call over all would have taken too long.
        rows: Of the answer.
        fewer_rows: What the answer leaves out of what was asked; empty if nothing.
        threads: How many the engine says that it takes.
        cpu_s: User and system CPU seconds of calls.
        wall_s: Seconds of the same calls.
        peak_mib: The most memory in the first call over input and answer, above what was held before the input.
        input_mib: The input as Arrow.
        output_mib: The answer as Arrow.
        checks: What was compared of the answer before anything was timed.
    """

    workload: str
    keys: str
    engine: str
    events: int
    rows: int
    fewer_rows: str
    threads: int
    cpu_s: Runs
    wall_s: Runs
    peak_mib: float
    input_mib: float
    output_mib: float
    checks: dict[str, Any]

    @property
    def name(self) -> tuple[str, str, str, int]:
        return self.workload, self.keys, self.engine, self.events

    @property
    def library(self) -> str:
        """The line of the table: our own two, and two of each peer, for there are forms that leave rows out."""
        if self.engine in {"gpu_ops", SERIAL}:
            return self.engine
        library = "Polars" if self.engine.startswith("polars") else "DuckDB"
        return f"{library}, at events" if at_events(self.engine) else library

    @property
    def ours(self) -> bool:
        return self.engine in {"gpu_ops", SERIAL}


@dataclass(frozen=True)
class Figures:
    """A file.

    Attributes:
        events: How many a measurement is over, if it does not say otherwise.
        date: When it was begun, in UTC.
        cores: That the process may use.
        processor: Its name.
        load: Of the machine in the minute before it was begun and before it ended: processes that ran or waited.
        versions: Of gpu_ops, its peers and Python.
        threads_variable: What ``GPU_OPS_THREADS`` was set to for "gpu_ops".
        copies_gb_s: GB read and written in a second by as many threads as the key says, each copying its own memory.
        measurements: In the order in which they were taken.
    """

    events: int
    date: str
    cores: int
    processor: str
    load: list[float]
    versions: dict[str, str]
    threads_variable: str
    copies_gb_s: dict[str, float]
    measurements: list[Measurement] = field(default_factory=list)

    def find(self, workload: str, keys: str, library: str) -> Measurement | None:
        """The measurement in a place of the table; of a peer there is one, in the form that was quickest."""
        place = (workload, keys, library)
        return next((each for each in self.measurements if (each.workload, each.keys, each.library) == place), None)


def lines(figures: Figures) -> list[str]:
    """A file's lines."""
    about = {"format": FORMAT, **{name: value for name, value in asdict(figures).items() if name != "measurements"}}
    return [json.dumps(each) for each in (about, *map(asdict, figures.measurements))]


def write(path: Path, figures: Figures) -> None:
    path.write_text("".join(f"{line}\n" for line in lines(figures)), encoding="utf-8")


def read(path: Path) -> Figures:
    """The figures in a file.

    Raises:
        DamagedFileError: There is no such file, or a line of it is not what `write` writes.
    """
    try:
        said = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as failure:
        raise DamagedFileError(f"{path} cannot be read: {failure}. {AGAIN}") from failure
    if not said:
        raise DamagedFileError(f"{path} is empty. {AGAIN}")
    number = 1
    try:
        about = _object(said[0])
        if about.pop("format", None) != FORMAT:
            raise ValueError(f"it does not begin with the format {FORMAT!r}")  # noqa: TRY301
        figures = Figures(**_checked(Figures, about, but="measurements"))
        names: set[tuple[str, str, str, int]] = set()
        for number, line in enumerate(said[1:], 2):  # noqa: B007  (the error names it)
            values = _checked(Measurement, _object(line))
            runs = {name: _runs(values[name]) for name in ("cpu_s", "wall_s")}
            each = Measurement(**{**values, **runs})
            _check_names(each)
            if each.name in names:
                raise ValueError(f"{', '.join(map(str, each.name))} was there before")  # noqa: TRY301
            names.add(each.name)
            figures.measurements.append(each)
    except ValueError as failure:
        raise DamagedFileError(
            f"{path}, line {number}: {failure}. The file is damaged or cut off. {AGAIN}"
        ) from failure
    return figures


def _object(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except json.JSONDecodeError as failure:
        raise ValueError(f"no JSON ({failure})") from failure
    if not isinstance(found, dict):
        raise ValueError("no object of JSON")  # noqa: TRY004  (damage is one kind of error)
    return found


_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "list[float]": (list,),
    "Runs": (dict,),
}


def _checked(kind: type, found: dict[str, Any], *, but: str = "") -> dict[str, Any]:
    """The values of a class's fields, if there are all, no others, and each has its type."""
    wanted = {each.name: str(each.type) for each in fields(kind) if each.name != but}
    if missing := sorted(wanted.keys() - found.keys()):
        raise ValueError(f"{', '.join(missing)} is missing")
    if unknown := sorted(found.keys() - wanted.keys()):
        raise ValueError(f"{', '.join(unknown)} means nothing here")
    for name, type_ in wanted.items():
        if not isinstance(found[name], _TYPES.get(type_, (dict,))) or isinstance(found[name], bool):
            raise ValueError(f"{name} is {found[name]!r}, not of type {type_}")  # noqa: TRY004  (as above)
    return found


def _check_names(each: Measurement) -> None:
    if each.keys not in SPREADS:
        raise ValueError(f"no events are spread over keys as {each.keys!r}")
    if each.workload not in FORMS or not (each.ours or each.engine in FORMS[each.workload]):
        raise ValueError(f"{each.workload} is not asked of {each.engine!r}")
    if each.events < 1:
        raise ValueError(f"events is {each.events}")


def _runs(found: dict[str, Any]) -> Runs:
    runs = found.get("runs")
    if not isinstance(runs, list) or not runs:
        raise ValueError("a list of runs is missing or empty")
    if not all(isinstance(run, (int, float)) and math.isfinite(run) and run > 0 for run in runs):
        raise ValueError(f"the runs {runs} are not all positive numbers")
    return Runs.of(runs)


# Tables


def used(figures: Figures) -> tuple[list[str], list[str]]:
    """The workloads and the spreads over keys of a file, in the order in which they are listed."""
    workloads = dict.fromkeys(each.workload for each in figures.measurements)
    keys = {each.keys for each in figures.measurements}
    return list(workloads), [name for name in SPREADS if name in keys]


LIBRARIES = ("gpu_ops", SERIAL, "Polars", "DuckDB", "Polars, at events", "DuckDB, at events")

TITLES = {"gpu_ops": "gpu_ops", SERIAL: "gpu_ops, 1 thread"}


def table(figures: Figures) -> list[list[str]]:
    """The rows of the table across keys, its heading first.

    A figure is milliseconds for a million events, wall / CPU; * and ** say that it was taken over a tenth and a
    hundredth of the events.
    """
    workloads, keys = used(figures)
    rows = [["", "", *keys, "1 / 1,000"]]
    for workload in workloads:
        first = workload
        for library in LIBRARIES:
            found = [figures.find(workload, name, library) for name in keys]
            if not any(found):
                continue
            forms = dict.fromkeys(FORMS[workload][each.engine] for each in found if each and not each.ours)
            title = TITLES.get(library) or f"{library}: {'; '.join(forms)}"
            one, thousand = (figures.find(workload, name, library) for name in ("1", "1,000"))
            ratio = f"{_ratio(one, thousand, 'wall_s')} / {_ratio(one, thousand, 'cpu_s')}" if one and thousand else ""
            rows.append([first, title, *(_cell(each, figures.events) for each in found), ratio])
            first = ""
    return rows


def _ratio(one: Measurement, other: Measurement, clock: str) -> str:
    costs = [getattr(each, clock).median / each.events for each in (one, other)]
    return f"{costs[0] / costs[1]:.2f}"


def _cell(measurement: Measurement | None, events: int) -> str:
    if measurement is None:
        return ""
    marks = "*" * round(math.log10(events / measurement.events))
    wall, cpu = (each.median / measurement.events * 1e9 for each in (measurement.wall_s, measurement.cpu_s))
    return f"{_short(wall)} / {_short(cpu)}{marks}"


def _short(number: float) -> str:
    """Two digits at least, and no exponent."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}"


# More cores


BANDWIDTH = 200.0
"""GB per second that no number of cores exceeds: what a server's socket of a few years ago reaches."""


@dataclass(frozen=True)
class Projection:
    """What a workload would take on more cores, from what it takes on one and on those that are here.

    Attributes:
        serial: The share of a single thread's time that more threads do not shorten, by Amdahl's law: of the quickest
            calls, and of the medians.
        moved_gb: GB that are read and written at least: each byte of the peak of memory once.
        seconds: By the number of cores.
        bound: By the number of cores: "serial", "parallel" or "memory", whichever takes longest.
    """

    serial: tuple[float, float]
    moved_gb: float
    seconds: dict[int, float]
    bound: dict[int, str]


def project(one: Measurement, all_: Measurement, copies: dict[str, float], cores: Iterable[int]) -> Projection:
    """A workload on so many cores, from its quickest calls, in which the machine's other work counts least.

    Args:
        one: With one thread.
        all_: With as many threads as it says.
        copies: `Figures.copies_gb_s`.
        cores: For which to say it.
    """
    most = max(map(int, copies))
    alone = one.wall_s.least
    serial, median = (
        min(1.0, max(0.0, (ratio - 1 / all_.threads) / (1 - 1 / all_.threads)))
        for ratio in (all_.wall_s.least / alone, all_.wall_s.median / one.wall_s.median)
    )
    moved = 2 * one.peak_mib * (1 << 20) / 1e9
    seconds, bound = {}, {}
    for count in cores:
        speed = min(BANDWIDTH, copies[str(most)] / most * count)
        shares = {"serial": serial * alone, "parallel": (1 - serial) * alone / count}
        computing, moving = sum(shares.values()), moved / speed
        seconds[count] = max(computing, moving)
        bound[count] = "memory" if moving > computing else max(shares, key=lambda name: shares[name])
    return Projection((serial, median), moved, seconds, bound)


CORES = (16, 64)


def projections(figures: Figures, spreads: Iterable[str] = ("1", "1,000", "half on one")) -> list[list[str]]:
    """The rows of the table of more cores, its heading first; the heading alone if one thread was not measured."""
    rows = [["", "keys", "serial", "1 thread", f"{figures.cores} cores", *(f"{count} cores" for count in CORES)]]
    for workload in used(figures)[0]:
        first = workload
        for keys in spreads:
            one, all_ = (figures.find(workload, keys, library) for library in (SERIAL, "gpu_ops"))
            if not one or not all_ or all_.threads < 2:
                continue
            found = project(one, all_, figures.copies_gb_s, CORES)
            rates = [one.events / each.wall_s.least / 1e6 for each in (one, all_)]
            more = [f"{one.events / found.seconds[count] / 1e6:.3g} ({found.bound[count]})" for count in CORES]
            rows.append(
                [
                    first,
                    keys,
                    " / ".join(f"{share:.0%}" for share in found.serial),
                    *(f"{rate:.3g}" for rate in rates),
                    *more,
                ]
            )
            first = ""
    return rows
