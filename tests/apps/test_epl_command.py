"""The gpu_ops epl command: what it prints and writes, live too, and that its errors are one message and exit code 1."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import gpu_ops as g
from gpu_ops.apps.cli import app

_STATEMENTS = """
@name('total') select account, sum(amount) as total from Withdrawal#time(10 sec) group by account;
@name('by bank') select w.amount as amount, b.bank as bank from Withdrawal as w unidirectional,
    Bank#unique(account) as b where w.account = b.account;
"""


@pytest.fixture(autouse=True)
def _a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Withdrawals as CSV, not in order of time; banks as Parquet, with timestamps of microseconds; statements."""
    (tmp_path / "withdrawals.csv").write_text("account,amount,at\nb,7,4000\na,5,0\na,1,9000\n", encoding="utf-8")
    at = pa.array([1_500_700], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"account": ["b"], "bank": ["north"], "at": at}), tmp_path / "banks.parquet")
    (tmp_path / "bank.epl").write_text(_STATEMENTS, encoding="utf-8")
    return {each.stem: each for each in tmp_path.iterdir()}


def _epl(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["epl", *(str(argument) for argument in arguments)])


def _inputs(files: dict[str, Path]) -> tuple[str, ...]:
    return "--input", f"Withdrawal={files['withdrawals']}", "--input", f"Bank={files['banks']}"


def test_deliveries_are_printed_as_lines_in_order_of_turns(files: dict[str, Path]) -> None:
    """W(a, 5) at 0 s, a bank at 1.5 s, W(b, 7) at 4 s, W(a, 1) at 9 s; the first leaves at 10 s."""
    result = _epl(files["bank"], *_inputs(files), "--time", "at", "--until", "1970-01-01T00:00:10Z", "--irstream")
    assert result.exit_code == 0, result.output
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"turn": 2, "statement": "total", "row": "new", "account": "a", "total": 5},
        {"turn": 2, "statement": "total", "row": "old", "account": "a", "total": None},
        {"turn": 6, "statement": "total", "row": "new", "account": "b", "total": 7},
        {"turn": 6, "statement": "total", "row": "old", "account": "b", "total": None},
        {"turn": 6, "statement": "by bank", "row": "new", "amount": 7, "bank": "north"},
        {"turn": 8, "statement": "total", "row": "new", "account": "a", "total": 6},
        {"turn": 8, "statement": "total", "row": "old", "account": "a", "total": 5},
        {"turn": 9, "statement": "total", "row": "new", "account": "a", "total": 1},
        {"turn": 9, "statement": "total", "row": "old", "account": "a", "total": 6},
    ]


def test_without_a_time_the_clock_stays_and_inputs_come_one_after_another(files: dict[str, Path]) -> None:
    result = _epl(files["bank"], *_inputs(files), "--start", "5000")
    assert [json.loads(line)["total"] for line in result.stdout.splitlines()] == [7, 5, 6]


def test_deliveries_are_written_to_a_file_for_each_statement(files: dict[str, Path], tmp_path: Path) -> None:
    output = tmp_path / "out"
    arguments: tuple[str | Path, ...] = (files["bank"], *_inputs(files), "--time", "at", "--output", output)
    result = _epl(*arguments)
    assert result.exit_code == 0, result.output
    assert "3 rows" in result.output
    assert pq.read_table(output / "total.parquet")["total"].to_pylist() == [5, 7, 6]
    assert pq.read_table(output / "by bank.parquet")["bank"].to_pylist() == ["north"]
    again = _epl(*arguments)
    assert (again.exit_code, "exists" in again.output) == (1, True)
    assert _epl(*arguments, "--if-exists", "replace").exit_code == 0


def test_the_last_statement_runs_live_over_a_store(files: dict[str, Path], tmp_path: Path) -> None:
    """The command is run again when the store has grown: it goes on where it was."""
    files["bank"].write_text("select account, sum(amount) as total from W#length(2) group by account", encoding="utf-8")
    stores = "--follow", f"W={tmp_path / 'in'}", "--output", str(tmp_path / "out")
    arguments = *stores, "--checkpoint", str(tmp_path / "kept")
    for account, amount, at in (("a", 5, 0), ("a", 7, 4), ("b", 1, 9)):
        rows = pa.table({"account": [account], "amount": [amount], "at": [at]})
        with g.store(tmp_path / "in").writer() as writer:
            until = dt.datetime.fromtimestamp(at + 2, dt.UTC)
            writer.append(g.events(rows, start="at", unit="s").collect(), cti=until)
        result = _epl(files["bank"], *arguments, "--timeout", "0s")
        assert result.exit_code == 0, result.output
    found = g.store(tmp_path / "out").read().select(["row", "account", "total"]).to_pylist()
    first, second, *third = [tuple(row.values()) for row in found]
    assert (first, second) == (("new", "a", 5), ("new", "a", 12))
    assert sorted(third) == [("new", "a", 7), ("new", "b", 1)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--input", "Withdrawal=FOLDER/withdrawals.csv", "--time", "when"), "no such column"),
        (("--input", "Withdrawal=FOLDER/withdrawals.csv", "--start", "noon"), "--start is 'noon'"),
        (("--input", "Withdrawal=FOLDER/withdrawals.csv"), "no type of events 'Bank'. [line 4, column 5]"),
        (("--input", "Withdrawal=FOLDER/withdrawals.csv", "--if-exists", "replace"), "--if-exists needs --output"),
        (("--input", "Withdrawal=FOLDER/withdrawals.csv", "--timeout", "1s"), "--timeout needs --follow"),
        (("--follow", "W=in"), "--follow needs --output"),
        (("--follow", "W=in", "--output", "FOLDER/o", "--time", "at"), "--time needs data at rest"),
        ((), "no events"),
    ],
)
def test_wrong_calls_are_one_message(files: dict[str, Path], arguments: tuple[str, ...], says: str) -> None:
    result = _epl(files["bank"], *(each.replace("FOLDER", str(files["bank"].parent)) for each in arguments))
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    assert says in " ".join(result.output.split())


def test_a_wrong_text_and_columns_with_one_name_are_one_message(files: dict[str, Path]) -> None:
    for text, says in (
        ("select ammount from Withdrawal", "Did you mean 'amount'?"),
        ("select amount as turn from Withdrawal", "two columns of this name"),
        ("@name('a/b') select amount from Withdrawal", "no name of a file"),
    ):
        files["bank"].write_text(text, encoding="utf-8")
        output: tuple[str | Path, ...] = ("--output", files["bank"].parent / "out") if "a/b" in text else ()
        result = _epl(files["bank"], *_inputs(files), "--time", "at", *output)
        assert (result.exit_code, says in " ".join(result.output.split())) == (1, True), result.output
    result = _epl(files["bank"].parent / "none.epl", *_inputs(files))
    assert (result.exit_code, "cannot be read" in result.output) == (1, True)
