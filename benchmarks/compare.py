"""Say what got slower from one file of `across_keys` to another.

    python benchmarks/compare.py OLD NEW

A row is slower if its median is beyond what is noise, in CPU seconds or in wall time. The noise of a row is the largest
of: how far its calls lie apart, in both files (without a tenth of them at either end, if there are ten); how much nine
in ten of the peers' rows differ from file to file at equal versions, for that is the machine's doing; and 5 %. The exit
status is 1 if gpu_ops got slower anywhere, and 2 if a file is damaged or the two cannot be compared.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

# As a script this file sees its own folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.figures import DamagedFileError, Figures, Measurement, Runs, read

LEAST_NOISE = 1.05


@dataclass(frozen=True)
class Change:
    """One clock of a row in both files.

    Attributes:
        old: Median, in seconds.
        new: Median, in seconds.
        noise: A factor; a ratio within it, up or down, says nothing.
    """

    old: float
    new: float
    noise: float

    @property
    def ratio(self) -> float:
        return self.new / self.old

    @property
    def verdict(self) -> str:
        """Whether it is "slower" or "faster"; empty if neither."""
        return "slower" if self.ratio > self.noise else "faster" if self.ratio < 1 / self.noise else ""


@dataclass(frozen=True)
class Pair:
    """A row of both files."""

    row: Measurement
    cpu: Change
    wall: Change

    @property
    def verdict(self) -> str:
        found = {self.cpu.verdict, self.wall.verdict}
        return "slower" if "slower" in found else "faster" if "faster" in found else ""


@dataclass(frozen=True)
class Comparison:
    """Two files.

    Attributes:
        pairs: Rows that both have.
        gone: Names of rows that only the old file has.
        fresh: Names of rows that only the new file has.
        machine: By how much the peers differ: of CPU seconds and of wall time.
        peers: How many of their rows say so.
    """

    pairs: list[Pair]
    gone: list[str]
    fresh: list[str]
    machine: tuple[float, float]
    peers: int

    @property
    def slower(self) -> list[Pair]:
        """Ours alone: a peer's row is slower because of the machine, or of its version."""
        return [pair for pair in self.pairs if pair.row.ours and pair.verdict == "slower"]


def compare(old: Figures, new: Figures) -> Comparison:
    """Row by row.

    Raises:
        ValueError: They are not over as many events, or have no row in common.
    """
    if old.events != new.events:
        raise ValueError(
            f"One is over {old.events:,} events and the other over {new.events:,}: --events must be the same."
        )
    before, after = ({each.name: each for each in figures.measurements} for figures in (old, new))
    both = [(before[name], after[name]) for name in before if name in after]
    if not both:
        raise ValueError("The files have no row in common: they are of other workloads or keys.")
    same = [pair for pair in both if not pair[0].ours and _version(old, pair[0]) == _version(new, pair[0])]
    machine = _machine([(a.cpu_s, b.cpu_s) for a, b in same]), _machine([(a.wall_s, b.wall_s) for a, b in same])
    pairs = [Pair(a, _change(a.cpu_s, b.cpu_s, machine[0]), _change(a.wall_s, b.wall_s, machine[1])) for a, b in both]
    gone, fresh = (
        [_said(name) for name in one if name not in other] for one, other in ((before, after), (after, before))
    )
    return Comparison(pairs, gone, fresh, machine, len(same))


def _version(figures: Figures, row: Measurement) -> str:
    return figures.versions.get(row.engine.partition("-")[0].partition("/")[0], "")


def _machine(pairs: list[tuple[Runs, Runs]]) -> float:
    """The factor that nine in ten of rows differ by at most, of engines that are the same."""
    apart = sorted(abs(math.log(new.median / old.median)) for old, new in pairs)
    return math.exp(apart[math.ceil(len(apart) * 0.9) - 1]) if apart else 1.0


def _change(old: Runs, new: Runs, machine: float) -> Change:
    (least_old, most_old), (least_new, most_new) = old.within(), new.within()
    # Slower: most of the new calls are above most of the old ones; faster: below.
    up = most_old / old.median * new.median / least_new
    down = old.median / least_old * most_new / new.median
    own = up if new.median > old.median else down
    return Change(old.median, new.median, max(own, machine, LEAST_NOISE))


def _said(name: tuple[str, str, str, int]) -> str:
    workload, keys, engine, events = name
    return f"{workload}, keys {keys}, {engine}, {events:,} events"


def shown(rows: list[Pair]) -> Table:
    """Rows with the noise that they were held against."""
    table = Table(
        caption="Milliseconds, medians. noise: a ratio within it says nothing.",
        caption_justify="left",
    )
    for name in ("", "keys", "engine"):
        table.add_column(name)
    for name in ("M events", "CPU old", "new", "ratio", "noise", "wall old", "new", "ratio", "noise"):
        table.add_column(name, justify="right")
    table.add_column("")
    for pair in rows:
        row = pair.row
        clocks = [
            cell
            for change in (pair.cpu, pair.wall)
            for cell in (
                f"{change.old * 1e3:.4g}",
                f"{change.new * 1e3:.4g}",
                f"{change.ratio:.2f}x",
                f"{change.noise:.2f}x",
            )
        ]
        style = {"slower": "red", "faster": "green"}.get(pair.verdict, "")
        table.add_row(row.workload, row.keys, row.engine, f"{row.events / 1e6:g}", *clocks, pair.verdict, style=style)
    return table


def _about(figures: Figures) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in figures.versions.items())
    load = " to ".join(f"{each:g}" for each in figures.load)
    return f"{figures.date}, {figures.cores} cores of {figures.processor}, load {load}; {versions}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--all", action="store_true", help="print the rows within the noise too")
    options = parser.parse_args()
    try:
        old, new = read(options.old), read(options.new)
        found = compare(old, new)
    except DamagedFileError as failure:
        parser.exit(2, f"{failure}\n")
    except ValueError as failure:
        parser.exit(2, f"{options.old} and {options.new}: {failure}\n")
    console = Console()
    # A log is not read through a keyhole.
    console.width = max(console.width, 160)
    rows = [pair for pair in found.pairs if pair.verdict or options.all]
    for word, figures in (("From", old), ("to  ", new)):
        console.print(f"{word} {_about(figures)}", soft_wrap=True)
    if rows:
        console.print(shown(rows))
    console.print(
        f"{found.peers} rows of peers of equal versions differ by {found.machine[0]:.2f}x in CPU time and "
        f"{found.machine[1]:.2f}x in wall time, nine in ten of them: no noise is less.",
        soft_wrap=True,
    )
    if old.cores != new.cores or old.processor != new.processor:
        console.print("The machines are not the same: what differs may be theirs.", style="yellow")
    for title, names in (("Only in the old file", found.gone), ("Only in the new file", found.fresh)):
        if names:
            console.print(f"{title}: {'; '.join(names)}.")
    ours = [pair for pair in found.pairs if pair.row.ours]
    within = sum(not pair.verdict for pair in ours)
    ratios = [statistics.median(getattr(pair, clock).ratio for pair in ours) for clock in ("cpu", "wall") if ours]
    if ratios:
        console.print(
            f"gpu_ops over {len(ours)} rows, in the median: {ratios[0]:.2f}x CPU time, {ratios[1]:.2f}x wall time."
        )
    console.print(
        f"gpu_ops is slower in {len(found.slower)} of {len(ours)} rows, faster in "
        f"{len(ours) - len(found.slower) - within}, within the noise in {within}."
    )
    sys.exit(1 if found.slower else 0)


if __name__ == "__main__":
    main()
