"""The notebooks run from top to bottom and come to the facts that they tell."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.services

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def run(name: str) -> list[dict[str, Any]]:
    """A notebook's outputs, in order."""
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def test_flights(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLIGHTS", str(shared_data / "pnw_flights_2014.parquet"))
    outputs = run("flights.ipynb")
    texts = "\n".join(output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs)
    assert "2014-07-18 12:08:00" in texts, "the peak, in local time"
    assert "111" in texts
    assert "857" in texts, "the departures without a time"
    assert any("image/png" in output.get("data", {}) for output in outputs), "the picture"


def test_late_data(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARTHQUAKES", str(shared_data / "earthquakes.json"))
    outputs = run("late_data.ipynb")
    texts = "\n".join(output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs)
    assert "1295 of 1707 reports are late: 75.9%" in texts
    assert "643 in time + 1064 late = 1707 of 1707" in texts
    assert "1,707 events in" in texts
    assert any("image/png" in output.get("data", {}) for output in outputs), "the picture"


def test_gallery() -> None:
    outputs = run("gallery.ipynb")
    texts = "\n".join(output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs)
    assert re.search(r"(\d{4}) calls in the days, \1 in all", texts)
    assert "┆ 23    │" in texts, "the hours of the day on which clocks go forward"
    assert len([output for output in outputs if "image/png" in output.get("data", {})]) == 32, "the pictures"


def test_taxis() -> None:
    outputs = run("taxis.ipynb")
    texts = "\n".join(output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs)
    assert "40,000 requests, 59,872 deliveries, 72,050 rows" in texts
    assert "airport ┆ 14.16 ┆ 15.1" in texts, "the first alarm, in the strike"
    assert "Did you mean 'waited'?" in texts
    assert len([output for output in outputs if "image/png" in output.get("data", {})]) == 2, "the pictures"


def test_withdrawals() -> None:
    outputs = run("withdrawals.ipynb")
    texts = "\n".join(output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs)
    assert re.findall(r"^(\d+) filters?", texts, re.MULTILINE) == ["1", "2", "2", "3", "4"]
    assert "60,060 withdrawals, 58,060 of them followed by another; 2,001 filters" in texts, "one for each account"
    assert "46 matches of 21 accounts; of 12 thieves 12" in texts
    assert "26,955 sessions, 60,060 withdrawals in them" in texts
    assert len([output for output in outputs if "image/png" in output.get("data", {})]) == 2, "the pictures"


def test_shop() -> None:
    outputs = run("shop.ipynb")
    texts = "\n".join(output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs)
    assert "['10.6.6.6'] 300" in texts, "the attack, and nobody else"
    assert "3 and 20 of 200 pass" in texts
    assert "9 orders of customers with priority; 88 left the window, in 9 runs" in texts
    assert "588 cycles, 5 articles at most" in texts
    assert "[('All OK!', 156), ('Stage 2 missing!', 29), ('Stage 3 missing!', 29)]" in texts
    assert "21 pairs" in texts
    assert "Did you mean 'minutes'?" in texts
    assert len([output for output in outputs if "image/png" in output.get("data", {})]) == 3, "the pictures"


def test_notebooks_are_kept_without_outputs() -> None:
    for path in NOTEBOOKS.glob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
        assert all(not cell.get("outputs") for cell in notebook.cells), path.name
