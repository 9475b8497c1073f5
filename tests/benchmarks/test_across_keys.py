"""The table across keys times nothing that is not equal, and its tables and picture are those of its file."""

from __future__ import annotations

import contextlib
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks import across_keys
from benchmarks.across_keys import Asked, Server, row
from benchmarks.engines import FORMS
from benchmarks.figures import SERIAL, Figures, Measurement, Runs, project, projections, read, table
from docs.draw import DOCS, MEASURED, draw_benchmarks, tables, with_tables


class Fake:
    """A process that answers at once, with times and answers as it was told."""

    def __init__(self, seconds: dict[str, float] | None = None, wrong: str = "") -> None:
        self.seconds, self.wrong = seconds or {}, wrong
        self.calls: list[tuple[str, int]] = []

    def call(self, engine: str, events: int) -> dict[str, Any]:
        self.calls.append((engine, events))
        took = self.seconds.get(engine, 1e-9) * events
        checks = {"rows": 2 * events, "duration": 7, "value_duration": 9 if engine == self.wrong else 8}
        return {
            "cpu_s": took,
            "wall_s": took,
            "checks": checks,
            "checks_at_events": {**checks, "rows": events},
            "rows": events,
            "threads": 1,
            "peak_mib": 1.0,
            "input_mib": 1.0,
            "output_mib": 1.0,
        }

    def close(self) -> None:
        pass


def asked_of_peers(fake: Fake) -> list[Asked]:
    server = cast("Server", fake)
    ours = {size: Asked("gpu_ops", size, server, Fake().call("gpu_ops", size)) for size in (10, 100, 1000)}
    return list(across_keys.peers("W2", {"polars": server, "duckdb": server}, ours))


def test_the_quickest_form_of_each_peer_is_taken_on() -> None:
    fake = Fake({"polars": 1e-7, "polars-streaming": 5e-8, "polars/partitioned": 1e-7, "duckdb": 2e-9})
    chosen = {asked.engine for asked in asked_of_peers(fake)}
    assert "duckdb/partitioned" in chosen
    assert "polars-streaming/partitioned" in chosen
    assert {"polars/rolling", "duckdb/range"} < chosen
    assert [engine for engine, events in fake.calls if events == 1000 and engine not in chosen] == []


@pytest.mark.parametrize(("cost", "events"), [(1e-4, 1000), (4e-3, 100), (4e-2, 10)])
def test_a_form_that_takes_too_long_gets_fewer_events(cost: float, events: int) -> None:
    fake = Fake({engine: cost for engine in FORMS["W2"] if engine.startswith("duckdb")})
    for asked in asked_of_peers(fake):
        assert asked.events == (events if asked.engine.startswith("duckdb") else 1000)
        assert asked.first["cpu_s"] < across_keys.LIMIT


@pytest.mark.parametrize("wrong", ["polars/rolling", "duckdb"])
def test_an_answer_that_is_not_ours_is_not_timed(wrong: str) -> None:
    with pytest.raises(ValueError, match=f"but {wrong} gives .* of 10 events"):
        asked_of_peers(Fake(wrong=wrong))


def test_engines_are_called_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(dict.fromkeys(("gpu_ops", *FORMS["last"]), 1e-6))
    monkeypatch.setattr(across_keys, "Server", lambda *given: fake)
    measured = row("last", "1", events=200_000, repeats=4, device="cpu", cores=2, alone=True)
    assert [each.engine for each in measured] == ["gpu_ops", SERIAL, "polars", "duckdb"]
    assert {len(each.cpu_s.runs) for each in measured} == {4}
    timed = [engine for engine, events in fake.calls if events == 200_000][-16:]
    ours = ["gpu_ops", "gpu_ops", "polars", "duckdb"]
    assert timed == [ours[(at + turn) % 4] for turn in range(4) for at in range(4)]


def test_what_is_quick_is_called_more_and_what_is_slow_less(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake({"gpu_ops": 1e-8, "polars": 5e-6, "duckdb": 1e-7})
    monkeypatch.setattr(across_keys, "Server", lambda *given: fake)
    measured = row("last", "1", events=200_000, repeats=5, device="cpu", cores=2, alone=False)
    assert {each.engine: len(each.wall_s.runs) for each in measured} == {"gpu_ops": 25, "polars": 3, "duckdb": 25}


@pytest.mark.services
def test_a_row_is_measured_in_processes_and_a_failure_says_why() -> None:
    measured = row("W2", "half on one", events=20_000, repeats=2, device="cpu", cores=1, alone=True)
    assert [each.library for each in measured] == [
        "gpu_ops",
        SERIAL,
        "Polars",
        "Polars, at events",
        "DuckDB",
        "DuckDB, at events",
    ]
    assert [each.rows for each in measured if each.fewer_rows] == [20_000, 20_000]
    assert len({each.rows for each in measured if not each.fewer_rows}) == 1
    assert all(each.peak_mib > 0 and min(each.wall_s.runs) > 0 for each in measured)
    with (
        contextlib.closing(Server("W2", "1", "cpu", 1)) as server,
        pytest.raises(RuntimeError, match=r"(?s)polars/nothing over 1,000 events failed.*ValueError"),
    ):
        server.call("polars/nothing", 1000)


def measured(engine: str, wall: float, *, threads: int = 1, events: int = 1_000_000, peak: float = 0) -> Measurement:
    runs = Runs.of([wall])
    return Measurement("W2", "1", engine, events, 1, "", threads, runs, runs, peak, 1, 1, {})


def figures(*found: Measurement) -> Figures:
    return Figures(1_000_000, "2026-11-23 12:00", 2, "any", [0.1], {}, "2", {"1": 10.0, "2": 20.0}, [*found])


@pytest.mark.parametrize(("all_", "serial"), [(0.5, 0), (1, 1), (0.6, 0.2), (0.4, 0), (1.3, 1)])
def test_the_serial_share_is_amdahls(all_: float, serial: float) -> None:
    found = project(measured(SERIAL, 1), measured("gpu_ops", all_, threads=2), {"1": 10}, [1, 16])
    assert found.serial == pytest.approx((serial, serial))
    assert found.seconds == pytest.approx({1: 1, 16: serial + (1 - serial) / 16})
    assert found.bound[16] == ("serial" if serial >= 0.2 else "parallel")


def test_memory_is_no_faster_than_so_many_cores_and_than_a_socket() -> None:
    """100 GiB at 10 GB/s for each core, and 200 at most."""
    one, two = measured(SERIAL, 10, peak=50 * 1024), measured("gpu_ops", 5, threads=2)
    found = project(one, two, {"1": 15, "2": 20}, [1, 16, 64])
    assert found.seconds == pytest.approx({1: 10.737, 16: 107.37 / 160, 64: 107.37 / 200}, rel=1e-3)
    assert found.bound == {1: "memory", 16: "memory", 64: "memory"}


def test_the_table_says_over_how_many_events() -> None:
    found = figures(
        measured("gpu_ops", 0.05),
        replace(measured("gpu_ops", 0.1), keys="1,000"),
        measured("polars", 0.2, events=100_000),
        measured("duckdb", 0.2, events=10_000),
        measured("polars/rolling", 0.002),
    )
    assert table(found) == [
        ["", "", "1", "1,000", "1 / 1,000"],
        ["W2", "gpu_ops", "50 / 50", "100 / 100", "0.50 / 0.50"],
        ["", "Polars: sorted deltas", "2,000 / 2,000*", "", ""],
        ["", "DuckDB: sorted deltas", "20,000 / 20,000**", "", ""],
        ["", "Polars, at events: `rolling`", "2.0 / 2.0", "", ""],
    ]
    assert len(projections(found)) == 1
    more = figures(measured("gpu_ops", 0.05, threads=2), measured(SERIAL, 0.1))
    assert projections(more)[1:] == [["W2", "1", "0% / 0%", "10", "20", "160 (parallel)", "640 (parallel)"]]


def texts(picture: Path) -> list[str]:
    tree = ET.fromstring(picture.read_text(encoding="utf-8"))  # noqa: S314  (it is ours)
    return ["".join(text.itertext()) for text in tree.iter("{http://www.w3.org/2000/svg}text")]


def test_the_page_and_its_picture_are_of_the_file(tmp_path: Path) -> None:
    found = read(MEASURED)
    said = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    assert with_tables(said, tables(found)) == said, "make pictures"
    assert "](benchmarks.svg)" in said
    kept = DOCS / "benchmarks.svg"
    assert texts(kept) == texts(draw_benchmarks(found, tmp_path)), "make pictures"
    assert kept.stat().st_size < 100_000
