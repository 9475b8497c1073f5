"""Wrong texts that are deployed: an error of ours at a place in the text, and a runtime that is as it was before."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from gpu_ops import epl
from gpu_ops.errors import ColumnError, PlanError, TextError

TYPES = {
    "Withdrawal": {
        "account": "string", "amount": "int", "fee": "double", "rate": "float", "late": "boolean", "at": "long",
        "tags": "string[]", "counts": "int[]", "place": pa.struct([("street", pa.string()), ("number", pa.int32())]),
        "due": "decimal", "big": "bigint",
    },
    "Deposit": {"account": "string", "amount": "int", "branch": "string"},
}  # fmt: skip
BESIDE = "create schema Other (a int); insert into Fresh select account from Deposit;\n"


def _cases(name: str) -> list[tuple[str, str]]:
    found = (Path(__file__).parent / name).read_text(encoding="utf-8")
    return [tuple(case.rstrip("\n").split("\n~~~~\n")) for case in found.split("\n----\n")]  # type: ignore[misc]


STATEMENTS = _cases("wrong_statements.txt")
# A stream alone is a column of its events where a runtime plans it.
EXPRESSIONS = [text for text, _ in _cases("wrong_expressions.txt") if text != "select w from Withdrawal as w"]
TEXTS = [text for text, _ in _cases("wrong_texts.txt")]


@pytest.fixture(scope="module")
def runtime() -> epl.Runtime:
    """A runtime with a statement that counts."""
    made = epl.Runtime(TYPES, start=1_000)
    made.deploy("@name('good') select count(*) as n from Deposit")
    return made


def refused(runtime: epl.Runtime, text: str) -> TextError:
    """The error of a text, behind which the runtime is as before."""
    before = runtime.statements, runtime.clock, runtime.active_filters()
    with pytest.raises(TextError) as raised:
        runtime.deploy(text)
    assert (runtime.statements, runtime.clock, runtime.active_filters()) == before
    return raised.value


def test_there_are_many() -> None:
    assert len({*TEXTS, *EXPRESSIONS, *(text for text, _ in STATEMENTS)}) > 400


@pytest.mark.parametrize(("text", "message"), STATEMENTS, ids=[text for text, _ in STATEMENTS])
def test_a_wrong_statement(text: str, message: str, runtime: epl.Runtime) -> None:
    found = refused(runtime, text)
    assert str(found) == message
    assert found.line >= 1
    assert found.character >= 1


@pytest.mark.parametrize("text", [*TEXTS, *EXPRESSIONS])
def test_a_text_that_is_wrong_by_itself(text: str, runtime: epl.Runtime) -> None:
    found = refused(runtime, text)
    assert 1 <= found.line <= text.count("\n") + 1
    assert 0 <= found.at <= len(text)


@pytest.mark.parametrize("text", [text for text, _ in STATEMENTS[::10]])
def test_a_wrong_statement_behind_good_ones(text: str, runtime: epl.Runtime) -> None:
    assert refused(runtime, BESIDE + text).line >= 2
    for made in ("Other", "Fresh"):
        with pytest.raises(PlanError, match="There is no type of events"):
            runtime.send(made, {})
    counted = runtime.rows("good")["n"].to_pylist()
    (delivery,) = runtime.send("Deposit", {"account": "a"})
    assert delivery.new is not None
    assert delivery.new["n"].to_pylist() == [counted[0] + 1]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"amount": 1}, {"amount": 1.5}], r"1\.5 is no int\. \[column 'amount', row 1\]"),
        ([{"counts": [1, 2.5]}], r"is no int\[\]\. \[column 'counts', row 0\]"),
        ([{"place": {"street": "a", "number": 0.5}}], r"is no event\. \[column 'place', row 0\]"),
        ([{"amount": float("nan")}], r"nan is no int\. \[column 'amount', row 0\]"),
    ],
)
def test_a_fraction_is_no_whole_number(rows: list[dict[str, object]], said: str, runtime: epl.Runtime) -> None:
    with pytest.raises(ColumnError, match=said):
        runtime.send("Withdrawal", rows)


def test_a_column_with_a_fraction_names_its_row(runtime: epl.Runtime) -> None:
    table = pa.table({"account": ["a"] * 3, "amount": [1.0, 2.0, 2.5], "branch": ["b"] * 3})
    with pytest.raises(ColumnError, match=r"2\.5 is no int\. \[column 'amount', row 2\]"):
        runtime.send("Deposit", table)
