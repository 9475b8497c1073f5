"""The ``gpu_ops rql`` command: a query in a file over files of events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

from gpu_ops.apps.cli import app

TEXT = (
    "select t.account, s, name from drawn (partition by account store last 2 with sum(amount) as s) as t, known "
    "where t.$row_status is new and t.account = known.account"
)


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["rql", *(str(argument) for argument in arguments)])


def files(folder: Path) -> list[object]:
    (folder / "query.rql").write_text(TEXT, encoding="utf-8")
    drawn = pa.table({"at": [0, 1_000, 2_000], "account": ["a", "b", "a"], "amount": [5, 7, 1]})
    pq.write_table(drawn, folder / "drawn.parquet")
    pq.write_table(pa.table({"account": ["a"], "name": ["Ada"]}), folder / "known.parquet")
    inputs = ["--input", f"drawn={folder / 'drawn.parquet'}", "--table", f"known={folder / 'known.parquet'}"]
    return [folder / "query.rql", *inputs, "--time", "at"]


def test_results_are_lines_of_json(tmp_path: Path) -> None:
    answer = run(*files(tmp_path))
    assert answer.exit_code == 0, answer.output
    rows = [json.loads(line) for line in answer.output.splitlines()]
    assert [(row["cycle"], row["account"], row["s"], row["name"]) for row in rows] == [
        (0, "a", 5, "Ada"),
        (2, "a", 6, "Ada"),
    ]


def test_results_are_written_to_a_file(tmp_path: Path) -> None:
    answer = run(*files(tmp_path), "--output", tmp_path / "out.parquet", "--until", "1500")
    assert answer.exit_code == 0, answer.output
    assert pq.read_table(tmp_path / "out.parquet")["cycle"].to_pylist() == [0]


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    query, *_, time, at = files(tmp_path)
    missing = run(query, time, at)
    assert missing.exit_code == 1
    assert "There are no events" in missing.output
    (tmp_path / "query.rql").write_text("select * form t", encoding="utf-8")
    wrong = run(query, "--input", f"drawn={tmp_path / 'drawn.parquet'}", time, at)
    assert wrong.exit_code == 1
    assert "form" in wrong.output
