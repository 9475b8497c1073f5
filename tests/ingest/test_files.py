"""Files of every format, alone and in folders: the same events, streamed, and errors that name file, row and value."""

from __future__ import annotations

import datetime
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from gpu_ops.core.time import MAX_TIME
from gpu_ops.errors import ColumnError, SourceError, TimeError
from gpu_ops.ingest import CsvOptions, EventSource, open_source

INSTANT = pa.timestamp("us", "UTC")
SIZE = 500


def table(first: int = 0, size: int = SIZE) -> pa.Table:
    start = np.arange(first, first + size) * 1_000_000
    return pa.table(
        {
            "pickup": pa.array(start).view(INSTANT),
            "dropoff": pa.array(start + 60_000_000).view(INSTANT),
            "zone": [f"zone {n % 5}" for n in range(first, first + size)],
            "fare": np.arange(first, first + size) / 4 + 0.125,
            "n": np.arange(first, first + size),
        }
    )


def write_ipc(given: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(path, given.schema) as writer:
        writer.write_table(given, 100)


def write_stream(given: pa.Table, path: Path) -> None:
    with pa.ipc.new_stream(path, given.schema) as writer:
        writer.write_table(given, 100)


def write_feather(given: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(path, given.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(given, 100)


def write_gzip(given: pa.Table, path: Path) -> None:
    with gzip.open(path, "wb") as file:
        pacsv.write_csv(given, file)


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "rides.parquet": lambda given, path: pq.write_table(given, path, row_group_size=100),
    "rides.arrow": write_ipc,
    "rides.ipc": write_stream,
    "rides.feather": write_feather,
    "rides.csv": pacsv.write_csv,
    "rides.csv.gz": write_gzip,
}


def rides(path: Path | str, **options: Any) -> EventSource:
    return open_source(path, start="pickup", end="dropoff", **options)


def numbers(source: EventSource, **options: Any) -> list[int]:
    return [n for batch in source.read(**options) for n in batch.payload["n"].to_pylist()]


@pytest.fixture(params=WRITERS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    file = tmp_path / str(request.param)
    WRITERS[request.param](table(), file)
    return file


def test_every_format_gives_the_same_events(path: Path) -> None:
    source = rides(path)
    assert (source.origin, source.zone, source.replayable) == ("path", "UTC", True)
    assert source.rows == (SIZE if path.suffix == ".parquet" else None)
    for given in (source, rides(str(path))):
        batches = list(given.read())
        assert [tick for batch in batches for tick in batch.start.tolist()] == list(
            range(0, SIZE * 1_000_000, 1_000_000)
        )
        payload = pa.concat_tables([batch.payload for batch in batches])
        assert payload.schema == source.schema
        assert payload.equals(table().select(["zone", "fare", "n"]))


def test_every_format_reads_some_columns_in_any_order_in_batches(path: Path) -> None:
    batches = list(rides(path).read(columns=["n", "zone"], batch_rows=70))
    assert all(batch.payload.schema.names == ["n", "zone"] for batch in batches)
    assert max(len(batch.start) for batch in batches) == 70
    assert [n for batch in batches for n in batch.payload["n"].to_pylist()] == list(range(SIZE))
    assert sum(batch.payload.num_rows for batch in rides(path).read(columns=[])) == SIZE


def test_every_format_may_be_without_rows(path: Path) -> None:
    WRITERS[path.name](table(0, 0), path)
    (batch,) = rides(path).read()
    assert len(batch.start) == 0
    assert batch.payload.schema.names == ["zone", "fare", "n"]


def test_a_broken_file_is_named(path: Path) -> None:
    whole = path.read_bytes()
    for part in (b"", whole[: len(whole) // 3]):
        if path.suffix == ".csv" and part:
            continue  # what is left of a CSV file may well be one
        path.write_bytes(part)
        with pytest.raises(SourceError, match=path.name):
            numbers(rides(path))


def test_folders_and_globs_are_read_in_the_order_of_names(path: Path) -> None:
    ending = path.name.removeprefix("rides")
    path.unlink()
    for part in (2, 0, 1):
        WRITERS["rides" + ending](table(part * SIZE), path.with_name(f"{part}{ending}"))
    (path.parent / ".hidden").write_text("x")
    (path.parent / "_SUCCESS").touch()
    deeper = path.parent / "9"
    deeper.mkdir()
    WRITERS["rides" + ending](table(3 * SIZE), deeper / f"0{ending}")
    assert numbers(rides(path.parent)) == list(range(4 * SIZE))
    assert numbers(rides(f"{path.parent}/[01]{ending}")) == list(range(2 * SIZE))
    assert numbers(rides(f"{path.parent}/**/0{ending}"), batch_rows=33) == [*range(SIZE), *range(3 * SIZE, 4 * SIZE)]
    assert "(4 files)" in repr(rides(path.parent))


def test_a_row_of_several_files_is_named_in_its_own_too(path: Path) -> None:
    ending = path.name.removeprefix("rides")
    broken = table(SIZE).to_pydict()
    broken["dropoff"][7] = broken["pickup"][7]
    WRITERS[path.name](pa.table(broken, schema=table().schema), path.with_name(f"s{ending}"))
    with pytest.raises(TimeError, match=f"s{ending} row 7") as caught:
        numbers(rides(path.parent))
    assert caught.value.row == SIZE + 7


def test_a_file_of_another_schema_is_named(path: Path) -> None:
    other = path.with_name("s" + path.name.removeprefix("rides"))
    for given, column in (
        (table().drop_columns(["fare"]), "fare"),
        (table().append_column("more", table()["fare"]), "more"),
        (table().set_column(3, "fare", pa.array(["x"] * SIZE)), "fare"),
    ):
        WRITERS[path.name](given, other)
        with pytest.raises(SourceError, match=other.name) as caught:
            numbers(rides(path.parent))
        assert caught.value.column == column


def test_columns_of_another_order_are_no_other_schema(path: Path) -> None:
    other = path.with_name("s" + path.name.removeprefix("rides"))
    WRITERS[path.name](table(SIZE).select(["n", "fare", "dropoff", "zone", "pickup"]), other)
    batches = list(rides(path.parent).read())
    assert all(batch.payload.schema.names == ["zone", "fare", "n"] for batch in batches)
    assert numbers(rides(path.parent)) == list(range(2 * SIZE))


def test_formats_are_not_mixed(tmp_path: Path) -> None:
    pq.write_table(table(), tmp_path / "a.parquet")
    pacsv.write_csv(table(), tmp_path / "b.csv")
    with pytest.raises(SourceError, match=r"a.parquet is a parquet file and .*b.csv a csv file"):
        rides(tmp_path)


def test_names_that_say_nothing_need_a_format(tmp_path: Path) -> None:
    pq.write_table(table(), tmp_path / "rides")
    with pytest.raises(SourceError, match="does not tell its format"):
        rides(tmp_path / "rides")
    assert numbers(rides(tmp_path / "rides", format="parquet")) == list(range(SIZE))


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no file or folder .*nowhere.parquet.*Relative paths start in"):
        rides(tmp_path / "nowhere.parquet")
    with pytest.raises(SourceError, match="No file matches the glob"):
        rides(f"{tmp_path}/*.parquet")
    with pytest.raises(SourceError, match="holds no file"):
        rides(tmp_path)
    with pytest.raises(SourceError, match=r"pyarrow.dataset.dataset\('s3://"):
        rides("s3://bucket/rides.parquet")


def test_partitions_are_not_read_without_their_column(tmp_path: Path) -> None:
    (tmp_path / "day=1").mkdir()
    pq.write_table(table(), tmp_path / "day=1" / "rides.parquet")
    with pytest.raises(SourceError, match="partitioning='hive'"):
        rides(tmp_path)


# Parquet and Arrow


def test_sparks_old_timestamps_reach_to_the_end_of_time(tmp_path: Path) -> None:
    given = pa.table({"pickup": pa.array([0, MAX_TIME - 5], pa.timestamp("us")), "n": [1, 2]})
    pq.write_table(given, tmp_path / "old.parquet", use_deprecated_int96_timestamps=True)
    (batch,) = open_source(tmp_path / "old.parquet", start="pickup", zone="UTC").read()
    assert batch.start.tolist() == [0, MAX_TIME - 5]


def test_arrow_types_come_as_they_were_written(tmp_path: Path) -> None:
    given = table(0, 3).append_column("kind", pa.array(["a", None, "a"]).dictionary_encode())
    given = given.append_column("big", pa.array(["x", None, "z"], pa.large_string()))
    given = given.append_column("list", pa.array([[1], None, []], pa.list_(pa.time32("s"))))
    for name in ("rides.parquet", "rides.arrow", "rides.ipc"):
        WRITERS[name](given, tmp_path / name)
        (batch,) = rides(tmp_path / name).read()
        wanted = given.select(["kind", "big", "list"])
        if name == "rides.parquet":  # which has no seconds, and a name of its own for what is in a list
            wanted = wanted.set_column(2, "list", wanted["list"].cast(pa.list_(pa.field("element", pa.time32("ms")))))
        assert batch.payload.select(["kind", "big", "list"]).equals(wanted)


def test_of_an_arrow_file_the_columns_that_are_asked_for_are_read(tmp_path: Path) -> None:
    wide = table().append_column("text", pa.array(["x" * 1000] * SIZE))
    write_ipc(wide, tmp_path / "rides.arrow")
    before = pa.total_allocated_bytes()
    batches = list(rides(tmp_path / "rides.arrow").read(columns=["n"]))
    assert pa.total_allocated_bytes() - before < 100_000
    assert [n for batch in batches for n in batch.payload["n"].to_pylist()] == list(range(SIZE))


def test_an_arrow_file_that_is_cut_off_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    # Mapped, it would end the process.
    write_ipc(table(0, 100 * SIZE), tmp_path / "rides.arrow")
    batches = rides(tmp_path / "rides.arrow").read()
    first = next(batches)
    (tmp_path / "rides.arrow").write_bytes(b"")
    assert first.payload["n"].to_pylist() == list(range(100))
    with pytest.raises(SourceError, match=r"rides.arrow cannot be read"):
        list(batches)


# CSV


def csv(tmp_path: Path, text: str, **options: Any) -> EventSource:
    (tmp_path / "rides.csv").write_text(text)
    return open_source(tmp_path / "rides.csv", **({"start": "at"} | options))


def payload(source: EventSource) -> list[dict[str, Any]]:
    return [row for batch in source.read() for row in batch.payload.to_pylist()]


def test_csv_types_are_inferred_and_nothing_is_null(tmp_path: Path) -> None:
    source = csv(
        tmp_path,
        'at,i,f,s,d,b\n2020-01-01T00:00Z,1,1.5,x,2020-01-01,true\n2020-01-01T00:01Z,,,,,\n2020-01-01T00:02Z,2,2,"",,\n',
    )
    assert payload(source) == [
        {"i": 1, "f": 1.5, "s": "x", "d": datetime.date(2020, 1, 1), "b": True},
        {"i": None, "f": None, "s": None, "d": None, "b": None},
        {"i": 2, "f": 2.0, "s": "", "d": None, "b": None},
    ]


def test_csv_options(tmp_path: Path) -> None:
    options = CsvOptions(
        delimiter=";", quote="'", null_values=("", "NA"), types={"v": pa.decimal128(9, 2)}, names=["at", "v", "s"]
    )
    source = csv(tmp_path, "0;1.5;'a;b'\n1;NA;'NA'\n", unit="s", csv=options)
    assert [str(row["v"]) for row in payload(source)] == ["1.50", "None"]
    assert [row["s"] for row in payload(source)] == ["a;b", "NA"]


def test_csv_values_may_hold_line_ends(tmp_path: Path) -> None:
    assert payload(csv(tmp_path, 'at,s\n0,"a\nb"\n1,c\n', unit="s")) == [{"s": "a\nb"}, {"s": "c"}]


def test_csv_local_times_without_a_zone_are_refused_before_all_is_read(tmp_path: Path) -> None:
    with pytest.raises(TimeError, match="zone='UTC'") as caught:
        csv(tmp_path, "at,v\n2020-01-01T00:00Z,1\n2020-01-01 00:00,2\n")
    assert (caught.value.column, caught.value.row) == ("at", 1)
    assert "2020-01-01 00:00" in str(caught.value)
    dates = csv(tmp_path, "at,v\n2020-01-01,1\n")
    assert [batch.start.tolist() for batch in dates.read()] == [[1_577_836_800_000_000]]


def test_a_csv_time_that_cannot_be_read_is_its_rows_fault(tmp_path: Path) -> None:
    text = "at,v\n2020-01-01T00:00Z,1\nyesterday,2\n,3\n2020-01-01T00:00:00.0000001Z,4\n"
    with pytest.raises(TimeError, match="unreadable_start") as caught:
        payload(csv(tmp_path, text))
    assert (caught.value.row, caught.value.values) == (1, "at='yesterday'")
    source = csv(tmp_path, text, on_invalid="divert")
    assert payload(source) == [{"v": 1}]
    assert source.report().invalid == {"unreadable_start": 1, "null_start": 1, "too_fine_start": 1}
    assert source.rejected()["at"].to_pylist() == ["yesterday", None, "2020-01-01T00:00:00.0000001Z"]
    assert len(payload(csv(tmp_path, text, on_invalid="drop", round="floor"))) == 2


def test_csv_integers_with_a_unit_are_times(tmp_path: Path) -> None:
    source = csv(tmp_path, "at,v\n1,1\nx,2\n2,3\n", unit="ms", on_invalid="drop")
    assert [batch.start.tolist() for batch in source.read()] == [[1_000, 2_000]]
    with pytest.raises(TimeError, match="unreadable_start"):
        payload(csv(tmp_path, "at,v\n1,1\n"))


def test_csv_times_of_a_given_type_are_not_text(tmp_path: Path) -> None:
    options = CsvOptions(types={"at": pa.int64()})
    assert payload(csv(tmp_path, "at,v\n1,1\n", unit="ms", csv=options)) == [{"v": 1}]


MANY = 400_000
"""Rows of more than one block."""


@pytest.mark.slow
def test_a_csv_value_that_does_not_fit_its_column_is_named(tmp_path: Path) -> None:
    lines = [f"{n},{n},padding" for n in range(MANY)]
    lines[-3] = f"{MANY - 3},oops,padding"
    source = csv(tmp_path, "at,v,s\n" + "\n".join(lines), unit="s")
    with pytest.raises(SourceError, match=r"'oops'.*int64") as caught:
        payload(source)
    assert (caught.value.column, caught.value.row) == ("v", MANY - 3)
    assert "types={'v': pyarrow.string()}" in str(caught.value)
    options = CsvOptions(types={"v": pa.string()})
    assert payload(csv(tmp_path, "at,v,s\n" + "\n".join(lines), unit="s", csv=options))[-3]["v"] == "oops"
    names = CsvOptions(names=["at", "v", "s"])
    with pytest.raises(SourceError, match="'oops'") as caught:
        payload(csv(tmp_path, "\n".join(lines), unit="s", csv=names))
    assert caught.value.row == MANY - 3


def test_a_csv_column_that_begins_empty_is_text(tmp_path: Path) -> None:
    lines = [f"{n}," for n in range(MANY)]
    lines[-1] += "x"
    assert payload(csv(tmp_path, "at,late\n" + "\n".join(lines), unit="s"))[-1] == {"late": "x"}


def test_a_csv_row_of_another_length_is_named(tmp_path: Path) -> None:
    for ragged in ("1,2,3", "1"):
        with pytest.raises(SourceError, match="Expected 2 columns, got") as caught:
            payload(csv(tmp_path, f"at,v\n0,1\n5,6\n{ragged}\n", unit="s"))
        assert caught.value.row == 2


def test_csv_faults_of_later_files_are_counted_from_the_first(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_text("at,v\n0,1\n1,1\n")
    (tmp_path / "1.csv").write_text("at,v\n2,1\n3,x\n")
    with pytest.raises(SourceError, match=r"1\.csv") as caught:
        payload(open_source(tmp_path, start="at", unit="s", csv=CsvOptions(types={"v": pa.int64()})))
    assert (caught.value.row, caught.value.column) == (3, "v")


def test_csv_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ColumnError, match="Two columns have this name"):
        csv(tmp_path, "at,v,v\n0,1,2\n", unit="s")


def test_csv_time_columns_alone_stay_as_text(tmp_path: Path) -> None:
    assert payload(csv(tmp_path, "start,end\n2020-01-01T00:00Z,2020-01-02\n", start="start", end="end")) == [
        {"start_time": "2020-01-01T00:00Z", "end_time": "2020-01-02"}
    ]
