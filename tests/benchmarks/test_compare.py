"""Files of figures are read whole or refused, and what is called slower is beyond the noise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.compare import Comparison, compare
from benchmarks.figures import SERIAL, DamagedFileError, Figures, Measurement, Runs, lines, read, write

ROOT = Path(__file__).parents[2]

QUIET = (1.0, 1.01, 0.99, 1.0, 1.02)


def measured(
    runs: Sequence[float], *, wall: Sequence[float] | None = None, engine: str = "gpu_ops", workload: str = "W2"
) -> Measurement:
    return Measurement(
        workload=workload,
        keys="1,000",
        engine=engine,
        events=1000,
        rows=1999,
        fewer_rows="",
        threads=2,
        cpu_s=Runs.of(runs),
        wall_s=Runs.of(wall or runs),
        peak_mib=100,
        input_mib=1.5,
        output_mib=7,
        checks={"rows": 1999},
    )


def figures(*measurements: Measurement) -> Figures:
    return Figures(
        events=1000,
        date="2026-11-23 12:00",
        cores=2,
        processor="any",
        load=[0.1, 0.5],
        versions={"gpu_ops": "0.1.0", "polars": "2.1.0", "duckdb": "2.0.0"},
        threads_variable="2",
        copies_gb_s={"1": 10, "2": 18.0},
        measurements=list(measurements),
    )


def times(factor: float, runs: Sequence[float] = QUIET) -> list[float]:
    return [factor * run for run in runs]


def compared(old: Sequence[Measurement], new: Sequence[Measurement]) -> Comparison:
    return compare(figures(*old), figures(*new))


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "benchmarks/compare.py", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200"},
        check=False,
        capture_output=True,
        text=True,
    )


def test_a_file_says_what_was_written(tmp_path: Path) -> None:
    wrote = figures(measured(QUIET), measured(times(2), engine="polars/rolling"))
    write(tmp_path / "a", wrote)
    assert read(tmp_path / "a") == wrote
    line = json.loads((tmp_path / "a").read_text().splitlines()[1])
    assert line["cpu_s"] == {"runs": [*QUIET], "median": 1.0, "least": 0.99, "most": 1.02}


def test_equal_files_are_not_slower() -> None:
    found = compared([measured(QUIET)], [measured(QUIET)])
    assert (found.slower, found.gone, found.fresh) == ([], [], [])
    assert found.pairs[0].verdict == ""
    assert found.pairs[0].cpu.ratio == 1


@pytest.mark.parametrize("clock", ["cpu_s", "wall_s"])
def test_beyond_the_noise_is_slower_by_either_clock(clock: str) -> None:
    slow = times(1.2)
    old = measured(QUIET)
    new = measured(slow, wall=QUIET) if clock == "cpu_s" else measured(QUIET, wall=slow)
    (pair,) = compared([old], [new]).slower
    assert {"cpu_s": pair.cpu, "wall_s": pair.wall}[clock].verdict == "slower"
    assert {"cpu_s": pair.wall, "wall_s": pair.cpu}[clock].verdict == ""
    back = compared([new], [old])
    assert back.slower == []
    assert back.pairs[0].verdict == "faster"


def test_within_the_spread_of_either_file_is_not_slower() -> None:
    """1.3x, where one file's calls lie between 0.8 and 1.6 of their median."""
    spread = (0.8, 1.0, 1.0, 1.0, 1.6)
    assert compared([measured(spread)], [measured(times(1.3))]).slower == []
    assert compared([measured(QUIET)], [measured(times(1.3, (0.7, 1.0, 1.0, 1.0, 1.1)))]).slower == []
    assert len(compared([measured(spread)], [measured(times(2))]).slower) == 1


def test_one_call_among_many_is_no_noise() -> None:
    assert len(compared([measured([*QUIET * 4, 9.0])], [measured(times(1.2))]).slower) == 1


def test_four_in_a_hundred_say_nothing_even_without_a_spread() -> None:
    assert compared([measured([1.0])], [measured([1.04])]).slower == []
    assert len(compared([measured([1.0])], [measured([1.06])]).slower) == 1


def test_what_the_machine_did_to_the_peers_is_noise() -> None:
    old = [measured(QUIET), measured(QUIET, engine="polars"), measured(QUIET, engine="duckdb/range")]
    new = [measured(times(1.3)), measured(times(1.4), engine="polars"), measured(QUIET, engine="duckdb/range")]
    found = compared(old, new)
    assert found.slower == []
    assert found.machine == pytest.approx((1.4, 1.4))
    assert found.peers == 2
    assert len(compared(old, [measured(times(1.5)), *new[1:]]).slower) == 1


def test_a_peer_of_another_version_says_nothing_of_the_machine() -> None:
    old = figures(measured(QUIET), measured(QUIET, engine="polars-streaming/hops"))
    new = figures(measured(times(1.3)), measured(times(1.4), engine="polars-streaming/hops"))
    assert compare(old, new).slower == []
    found = compare(old, replace(new, versions={**new.versions, "polars": "3.0.0"}))
    assert [pair.row.engine for pair in found.slower] == ["gpu_ops"]


def test_a_peer_that_got_slower_does_not_count() -> None:
    found = compared([measured(QUIET, engine="duckdb")], [measured(times(9), engine="duckdb")])
    assert found.slower == []


def test_rows_that_one_file_lacks_are_named() -> None:
    both, one = measured(QUIET), measured(QUIET, engine=SERIAL)
    assert compared([both, one], [both]).gone == ["W2, keys 1,000, gpu_ops/1 thread, 1,000 events"]
    assert compared([both], [both, one]).fresh == ["W2, keys 1,000, gpu_ops/1 thread, 1,000 events"]


def test_files_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(ValueError, match="no row in common"):
        compared([measured(QUIET)], [measured(QUIET, workload="W3")])
    with pytest.raises(ValueError, match="1,000 events and the other over 2,000"):
        compare(figures(measured(QUIET)), replace(figures(measured(QUIET)), events=2000))


LINES = lines(figures(measured(QUIET)))


def line(**changed: object) -> str:
    return json.dumps({**json.loads(LINES[1]), **changed})


@pytest.mark.parametrize(
    ("damaged", "said"),
    [
        ([], "is empty"),
        ([LINES[0], LINES[1][:50]], "line 2: no JSON"),
        ([LINES[1]], "line 1: it does not begin with the format 'gpu_ops across keys, 1'"),
        ([LINES[0], "[1]"], "line 2: no object of JSON"),
        ([LINES[0], LINES[1], LINES[1]], "line 3: W2, 1,000, gpu_ops, 1000 was there before"),
        ([LINES[0], line(rows="many")], "line 2: rows is 'many', not of type int"),
        ([LINES[0], line(rows=True)], "line 2: rows is True, not of type int"),
        ([LINES[0], line(more=1)], "line 2: more means nothing here"),
        ([LINES[0], '{"workload": "W2"}'], "line 2: checks, cpu_s, engine"),
        ([LINES[0], line(cpu_s={"runs": []})], "line 2: a list of runs is missing or empty"),
        ([LINES[0], line(wall_s={"runs": [1, -1]})], r"line 2: the runs \[1, -1\] are not all positive numbers"),
        ([LINES[0], line(wall_s={"runs": [float("nan")]})], "not all positive numbers"),
        ([LINES[0], line(keys="a few")], "line 2: no events are spread over keys as 'a few'"),
        ([LINES[0], line(engine="polars/quick")], "line 2: W2 is not asked of 'polars/quick'"),
        ([LINES[0], line(events=0)], "line 2: events is 0"),
    ],
    ids=str,
)
def test_a_damaged_file_is_refused_with_its_line_and_what_to_do(tmp_path: Path, damaged: list[str], said: str) -> None:
    path = tmp_path / "figures"
    path.write_text("".join(f"{each}\n" for each in damaged))
    with pytest.raises(DamagedFileError, match=said) as caught:
        read(path)
    assert "python benchmarks/run.py across-keys --json FILE" in str(caught.value)


@pytest.mark.services
def test_the_command_says_it_by_its_exit_status(tmp_path: Path) -> None:
    files = {"old": QUIET, "same": times(1.01), "slow": times(1.5)}
    for name, runs in files.items():
        write(tmp_path / name, figures(measured(runs), measured(QUIET, engine="polars")))
    same = command(tmp_path / "old", tmp_path / "same")
    assert same.returncode == 0, same.stderr
    assert "slower in 0 of 1 rows, faster in 0, within the noise in 1" in same.stdout
    slow = command(tmp_path / "old", tmp_path / "slow")
    assert slow.returncode == 1, slow.stderr
    assert "1.50x" in slow.stdout
    assert "slower in 1 of 1 rows" in slow.stdout
    (tmp_path / "cut").write_text((tmp_path / "old").read_text()[:-30])
    cut = command(tmp_path / "old", tmp_path / "cut")
    assert cut.returncode == 2
    assert "line 3: no JSON" in cut.stderr
    assert "Traceback" not in cut.stderr
    gone = command(tmp_path / "old", tmp_path / "nowhere")
    assert gone.returncode == 2
    assert "cannot be read" in gone.stderr
