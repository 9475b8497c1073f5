"""What a checkpoint holds is never believed: each table and each fact is held to what it should be."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.core.state_tables import Field, RowRule, StateTable, Tables, check
from gpu_ops.engines.live.checkpoints import read_checkpoint, write_checkpoint
from gpu_ops.engines.live.running_query import RunningQuery
from gpu_ops.errors import SourceError
from gpu_ops.operators.windows.incremental_window import IncrementalWindow
from tests.support.damage import QUERIES, WRONG, at_rest, events, go_on, outcomes, source

SAMPLED = ("sums on a grid", "extremes", "orders", "values", "outer join", "filled", "together", "edges")

# Tables


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_what_is_written_keeps_its_own_declaration(name: str) -> None:
    live = at_rest(QUERIES[name]())
    _check_own(live)
    go_on(live)
    _check_own(live)


def _check_own(live: RunningQuery) -> None:
    held = 0
    for each in live._running.walk():
        if each.own is not None:
            check(each.node.describe(), each.own.tables(), each.own.declared)
            held += len(each.own.tables())
    assert held


@pytest.mark.services
def test_a_damaged_table_is_refused_or_leads_to_an_answer_or_to_an_error_of_ours() -> None:
    found = outcomes(seed=3, count=6, names=SAMPLED, seconds=240)
    assert [each for each in found if each[1].startswith(WRONG)] == []
    assert len(found) == 6 * len(SAMPLED)
    assert sum(what.startswith("refused") for _, what in found) > len(found) // 3


@pytest.mark.deep
@pytest.mark.parametrize("name", QUERIES)
def test_each_damage_of_each_table(name: str) -> None:
    found = outcomes(seed=0, count=0, names=[name], seconds=3600)
    assert [each for each in found if each[1].startswith(WRONG)] == []
    assert len(found) > 100


def _read(path: Path) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """What `write_checkpoint` takes."""
    facts, tables = read_checkpoint(path)
    return {name: each for name, each in facts.items() if name != "tables"}, tables


def test_an_event_of_millions_of_windows_is_doubted_unless_the_checkpoint_is_trusted(tmp_path: Path) -> None:
    query = g.events(pa.schema([("at", pa.int64()), ("to", pa.int64())]).empty_table(), start="at", end="to", unit="us")
    counts = query.tumbling("1us").agg(n=g.count())
    live = counts.start(device="cpu")
    live.push({"at": [0], "to": [5_000_000]})
    live.advance(datetime(1970, 1, 1, 0, 0, 0, 1, UTC))
    live.checkpoint(tmp_path / "c")
    with pytest.raises(SourceError, match="4,194,304 windows away: only trust=True"):
        g.restore(tmp_path / "c", counts, device="cpu")
    again = g.restore(tmp_path / "c", counts, device="cpu", trust=True)
    again.close()
    assert again.results().num_rows == 5_000_000


@pytest.mark.parametrize("number", [-5, 10**6, 2**31 - 1])
def test_a_group_that_is_not_there_is_named(tmp_path: Path, number: int) -> None:
    query = QUERIES["extremes"]()
    at_rest(query).checkpoint(tmp_path / "c")
    facts, tables = _read(tmp_path / "c")
    for name in [each for each in tables if each.endswith(("/waiting", "/ending", "/extreme/max/v/"))]:
        table = tables[name]
        groups = pa.array([number, *table["group"].to_pylist()[1:]], pa.int32())
        damaged = {**tables, name: table.set_column(0, "group", groups)}
        write_checkpoint(tmp_path / "d", facts, damaged)
        with pytest.raises(SourceError, match="is not between 0 and 3") as raised:
            g.restore(tmp_path / "d", query, device="cpu")
        assert (raised.value.column, raised.value.row) == ("group", 0)
        said = str(raised.value)
        for part in (str(tmp_path / "d"), "node 3 (Window snapshot", repr(name.rpartition(")/")[2]), str(number)):
            assert part in said


@pytest.mark.parametrize("name", ["outer join", "anti join", "orders", "filled", "last"])
def test_columns_may_stand_in_another_order(tmp_path: Path, name: str) -> None:
    query = QUERIES[name]()
    live = at_rest(query)
    live.checkpoint(tmp_path / "c")
    facts, tables = _read(tmp_path / "c")
    turned = {each: table.select(table.column_names[::-1]) for each, table in tables.items()}
    write_checkpoint(tmp_path / "d", facts, turned)
    restored = g.restore(tmp_path / "d", query, device="cpu")
    assert _rest(restored).equals(_rest(live))


def _rest(live: RunningQuery) -> pa.Table:
    for number, name in enumerate(live.input_ctis()):
        live.push(events(number + 5, 6, 2, 20), input=name)
    live.close()
    found = live.results()
    return found.sort_by([(each.name, "ascending") for each in found.schema if not pa.types.is_nested(each.type)])


def test_a_table_of_nobody_is_refused(tmp_path: Path) -> None:
    query = QUERIES["sums"]()
    at_rest(query).checkpoint(tmp_path / "c")
    facts, tables = _read(tmp_path / "c")
    write_checkpoint(tmp_path / "c", facts, {**tables, "state/9 Window/groups": pa.table({"n": [1]})})
    with pytest.raises(SourceError, match="of no part of the query"):
        g.restore(tmp_path / "c", query, device="cpu")


@pytest.mark.parametrize("name", ["results", "late", "rejected/0 entrance"])
def test_rows_that_are_handed_on_are_the_querys(tmp_path: Path, name: str) -> None:
    query = source(on_invalid="divert").by("k").snapshot().agg(n=g.count())
    at_rest(query).checkpoint(tmp_path / "c")
    facts, tables = _read(tmp_path / "c")
    write_checkpoint(tmp_path / "c", facts, {**tables, name: pa.table({"n": [1]})})
    with pytest.raises(SourceError, match=f"its table '{name}' has the columns"):
        g.restore(tmp_path / "c", query, device="cpu")


def _some(**more: Any) -> Callable[[Tables], Iterator[StateTable]]:
    fields = {"n": Field(pa.int64(), least=0, most=9, besides=(99,)), "low": Field(pa.int64(), nullable=True)}
    fields["word"] = Field(pa.string(), words=("a", "b"), optional=True)

    def declared(tables: Tables) -> Iterator[StateTable]:
        yield StateTable("some", fields | {"high": Field(pa.int64(), above="low", from_="n", ascends=True)}, **more)

    return declared


@pytest.mark.parametrize(
    ("columns", "column", "row", "says"),
    [
        ({"n": [0, 10]}, "n", 1, "10 is not between 0 and 9"),
        ({"n": [0, 99]}, "n", None, None),
        ({"n": [None, 1]}, "n", 0, "null is not allowed"),
        ({"low": [None, 1]}, "low", None, None),
        ({"low": [-1, 200]}, "high", 1, "200 is not above 'low'"),
        ({"high": [50, 5]}, "high", 1, "5 is not above the one before"),
        ({"n": [9, 9], "high": [8, 20]}, "high", 0, "8 is not at or after 'n'"),
        ({"word": ["a", "c"]}, "word", 1, "'c' is not one of a, b"),
        ({"n": pa.array([0, 1], pa.int32())}, "n", None, "has the type int32, and not int64"),
        ({"strange": [0, 1]}, "strange", None, "a column too many"),
    ],
)
def test_what_a_column_is_held_to(columns: Mapping[str, Any], column: str, row: int | None, says: str | None) -> None:
    table = pa.table({"n": [0, 1], "low": [1, 2], "high": [100, 200], **columns})
    if says is None:
        check("It", {"some": table}, _some())
        return
    with pytest.raises(SourceError, match=says) as raised:
        check("It", {"some": table}, _some())
    assert (raised.value.column, raised.value.row) == (column, row)


def test_what_a_table_is_held_to() -> None:
    table = pa.table({"n": [1, 1], "low": [1, 1], "high": [100, 200]})
    never = RowRule("low", "is not right", lambda given: given["n"].to_numpy() > 1)
    for more, says in (
        ({"rows": 1}, "it has 2 rows, and not 1"),
        ({"unique": ("n", "low")}, "another row has the same values"),
        ({"rules": (never,)}, "1 is not right"),
    ):
        with pytest.raises(SourceError, match=says):
            check("It", {"some": table}, _some(**more))
    for given, says in (({}, "'some': it is missing"), ({"some": table, "more": table}, "'more': there is no such")):
        with pytest.raises(SourceError, match=says):
            check("It", given, _some(required=True))
    with pytest.raises(SourceError, match="a column is missing"):
        check("It", {"some": table.drop_columns(["low"])}, _some())


# Facts


def _counts() -> g.Stream:
    return source().by("k").snapshot().agg(n=g.count())


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoints") / "c"
    at_rest(_counts()).checkpoint(path)
    return path


def _with_facts(written: Path, path: Path, text: str) -> Path:
    """A checkpoint with another ``checkpoint.json``."""
    with zipfile.ZipFile(written) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, text if name == "checkpoint.json" else old.read(name))
    return path


def _facts(written: Path) -> dict[str, Any]:
    with zipfile.ZipFile(written) as archive:
        made: dict[str, Any] = json.loads(archive.read("checkpoint.json"))
    return made


@pytest.mark.slow
def test_a_bit_that_flips_anywhere_is_noticed(written: Path, tmp_path: Path) -> None:
    whole, query, path = written.read_bytes(), _counts(), tmp_path / "c"
    # Parts have checksums of their own; in front of them and behind them stands what nobody reads.
    places = [*range(0, len(whole), 29), *range(len(whole) - 40, len(whole))]
    for number, at in enumerate(places):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << number % 8
        path.write_bytes(damaged)
        with pytest.raises(SourceError):
            g.restore(path, query, device="cpu")


_STRANGE: tuple[Any, ...] = (None, -5, 2**70, float("nan"), "x", {}, [-5])


@pytest.mark.slow
def test_each_fact_is_held_to_what_it_should_be(written: Path, tmp_path: Path) -> None:
    query, facts = _counts(), _facts(written)
    known = facts["following"] | {"stores": {"store": {"store": None, "sequence": 1, "rows": 2, "crc": 3}}}
    facts["following"] = known | {"gone": {"store": [[1, 2]]}}
    g.restore(_with_facts(written, tmp_path / "c", json.dumps(facts)), query, device="cpu")
    refused = 0
    for number, place in enumerate(_places(facts)):
        for value in (_STRANGE[number % len(_STRANGE)], _STRANGE[(number + 3) % len(_STRANGE)], ...):
            changed = _put(facts, place, value)
            if changed == facts:
                continue
            path = _with_facts(written, tmp_path / "c", json.dumps(changed))
            said = _refused(path, query)
            refused += said is not None
            assert said is None or ("cannot be restored" not in said and str(path) in said), (place, value)
    assert refused > 80


def _refused(path: Path, query: g.Stream) -> str | None:
    """With what words a checkpoint is refused; None if it is taken."""
    try:
        g.restore(path, query, device="cpu")
    except SourceError as error:
        return str(error)
    return None


def _places(value: Any) -> Iterator[tuple[Any, ...]]:
    """Where something stands in facts."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inside:
        yield (name,)
        yield from ((name, *more) for more in _places(each))


def _put(facts: Any, place: tuple[Any, ...], value: Any) -> Any:
    """Facts with another value at a place; without it if that is ``...``."""
    changed = json.loads(json.dumps(facts))
    within = changed
    for name in place[:-1]:
        within = within[name]
    if value is ...:
        del within[place[-1]]
    else:
        within[place[-1]] = value
    return changed


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (("ctis",), [0], r"'ctis' is a list of 1, and should be a list of 4"),
        (("given", 1), -5, r"'given\[1\]' is -5, and should be a whole number from 0 to"),
        (("given", 1), True, r"'given\[1\]' is True"),
        (("given", 1), 10**60, r"'given\[1\]' is a number of many digits"),
        (("closed",), "x" * 100, r"'closed' is 'xxx.*\.\.\., and should be true or false"),
        (("promised", 0, 1), 2**62, r"'promised\[0\]\[1\]' is 4611686018427387904"),
        (("late",), {"dropped": 1.5}, r"'late.dropped' is 1.5"),
        (("positions",), {"cti": -5, "store": -5}, r"'positions.store' is -5"),
        (("ingest", 0, "rows"), ..., r"'ingest\[0\].rows' is missing"),
        (("ingest", 0, "more"), 1, r"'ingest\[0\].more' is a name too many"),
        (("functions",), None, r"'functions' is None, and should be an object"),
        (("plan",), "x", r"'plan' is 'x', and should be a list"),
        (("tables",), [], r"'tables' is a list of 0"),
        (("format",), "2", r"'format' is '2'"),
        (("format",), 3, r"has format 3, and this version of gpu_ops reads 2"),
    ],
)
def test_a_fact_that_is_wrong_is_named(
    written: Path, tmp_path: Path, place: tuple[Any, ...], value: Any, says: str
) -> None:
    facts = _facts(written)
    if place[-1] == "more":
        facts["ingest"][0]["more"] = value
    else:
        facts = _put(facts, place, value)
    with pytest.raises(SourceError, match=says):
        g.restore(_with_facts(written, tmp_path / "c", json.dumps(facts)), _counts(), device="cpu")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "1",
        "null",
        "{",
        "{}",
        "[" * 100_000,
        '{"a":' * 100_000,
        "9" * 10_000,
        "NaN",
        "\ud800",
        '{"format": 2}',
    ],
    ids=range(12),
)
def test_json_that_is_no_checkpoints_is_refused(written: Path, tmp_path: Path, text: str) -> None:
    path = tmp_path / "c"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("checkpoint.json", text.encode("utf-8", "surrogatepass"))
    with pytest.raises(SourceError, match=r"is no checkpoint|is damaged") as raised:
        g.restore(path, _counts(), device="cpu")
    assert "cannot be restored" not in str(raised.value)


# How many are kept


def test_fewer_checkpoints_are_kept_once_fewer_are_asked_for(tmp_path: Path) -> None:
    def there() -> list[str]:
        return sorted(each.name for each in tmp_path.iterdir())

    path = tmp_path / "c"
    for number in range(5):
        write_checkpoint(path, {"n": number}, {}, keep=4)
    assert there() == ["c", "c.1", "c.2", "c.3"]
    write_checkpoint(path, {"n": 5}, {})
    assert there() == ["c", "c.1", "c.2", "c.3"]
    (tmp_path / "c.3").write_text("no checkpoint")
    write_checkpoint(path, {"n": 6}, {}, keep=2)
    assert there() == ["c", "c.1", "c.3"]
    assert [read_checkpoint(tmp_path / each)[0]["n"] for each in ("c", "c.1")] == [6, 5]


# What is not known of


@pytest.mark.parametrize(
    "error", [IndexError("far"), pl.exceptions.PanicException("panic"), MemoryError(), KeyError(1)]
)
def test_no_error_of_another_library_comes_out(written: Path, monkeypatch: pytest.MonkeyPatch, error: Any) -> None:
    monkeypatch.setattr(IncrementalWindow, "restore", _raising(error))
    with pytest.raises(SourceError, match=rf"cannot be restored.*: {type(error).__name__}: ") as raised:
        g.restore(written, _counts(), device="cpu")
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), g.DeviceError("ours")])
def test_what_is_no_fault_of_the_checkpoint_goes_through(
    written: Path, monkeypatch: pytest.MonkeyPatch, error: Any
) -> None:
    monkeypatch.setattr(IncrementalWindow, "restore", _raising(error))
    with pytest.raises(type(error)) as raised:
        g.restore(written, _counts(), device="cpu")
    assert raised.value is error


def _raising(error: BaseException) -> Callable[..., None]:
    def restore(*_: object) -> None:
        raise error

    return restore
