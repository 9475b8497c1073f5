"""Files are there whole or not at all, in row groups, with the types that were declared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.errors import PlanError, SourceError
from gpu_ops.microbatches.files import WriteReport, write

SCHEMA = pa.schema(
    {
        "start": pa.timestamp("us", "Europe/Vienna"),
        "n": pa.int32(),
        "text": pa.string(),
        "kind": pa.dictionary(pa.int8(), pa.string()),
        "list": pa.list_(pa.struct({"x": pa.time32("s")})),
        "id": pa.uuid(),
        "day": pa.date64(),
        "second": pa.timestamp("s"),
        "price": pa.decimal128(38, 3),
    }
)
ENDINGS = [".parquet", ".arrow", ".feather", ".ipc", ".PARQUET"]


def table(first: int, size: int) -> pa.Table:
    n = range(first, first + size)
    columns = {
        "start": pa.array(n, pa.int64()),
        "n": pa.array(n, pa.int32()),
        "text": pa.array([None if each % 3 == 0 else f"text {each}" for each in n], pa.string()),
        "kind": pa.array([f"kind {each % 4}" for each in n], pa.string()).dictionary_encode(),
        "list": pa.array([None if each % 5 == 0 else [{"x": each}, None] for each in n], SCHEMA.field("list").type),
        "id": pa.array([each.to_bytes(16, "big") for each in n], pa.binary(16)),
        "day": pa.array([each * 86_400_000 for each in n], pa.int64()),
        "second": pa.array(n, pa.int64()),
        "price": pa.array(n, pa.int64()),
    }
    return pa.Table.from_arrays([columns[field.name].cast(field.type) for field in SCHEMA], schema=SCHEMA)


def as_stored(given: pa.Table, path: Path) -> pa.Table:
    """Parquet has milliseconds for seconds and days for dates."""
    if path.suffix.lower() != ".parquet":
        return given
    stored = {
        "list": pa.list_(pa.field("element", pa.struct({"x": pa.time32("ms")}))),
        "day": pa.date32(),
        "second": pa.timestamp("ms"),
    }
    return given.cast(pa.schema([field.with_type(stored.get(field.name, field.type)) for field in given.schema]))


def assert_same(found: pa.Table, wanted: pa.Table) -> None:
    assert found.schema.equals(wanted.schema)
    assert found.to_pylist() == wanted.to_pylist()


def read(path: Path) -> pa.Table:
    if path.suffix.lower() == ".parquet":
        return pq.read_table(path)
    with pa.ipc.open_file(path) as reader:
        return reader.read_all()


def groups(path: Path) -> list[int]:
    if path.suffix.lower() == ".parquet":
        file = pq.ParquetFile(path)
        return [file.metadata.row_group(n).num_rows for n in range(file.metadata.num_row_groups)]
    with pa.ipc.open_file(path) as reader:
        return [reader.get_batch(n).num_rows for n in range(reader.num_record_batches)]


@pytest.fixture(params=ENDINGS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"answer{request.param}"


def test_what_was_written_is_read_back(path: Path) -> None:
    pieces = [table(0, 70), table(70, 0), table(70, 5), table(75, 25)]
    report = write(pieces, SCHEMA, path, row_group_rows=40)
    assert report == WriteReport(path, 100, 3, path.stat().st_size)
    assert groups(path) == [40, 40, 20]
    assert_same(read(path), as_stored(table(0, 100), path))
    assert list(path.parent.iterdir()) == [path]


def test_record_batches_are_taken_too(path: Path) -> None:
    batches = table(0, 10).to_batches()
    assert write(batches, SCHEMA, str(path)).rows == 10
    assert_same(read(path), as_stored(table(0, 10), path))


def test_nothing_is_a_file_too(path: Path) -> None:
    assert write([], SCHEMA, path) == WriteReport(path, 0, 0, path.stat().st_size)
    assert_same(read(path), as_stored(table(0, 0), path))
    assert read(path).num_rows == 0


@given(st.lists(st.integers(0, 30), max_size=8), st.integers(1, 20))
def test_row_groups_do_not_depend_on_the_batches(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], rows: int
) -> None:
    path = tmp_path_factory.mktemp("write") / "answer.arrow"
    schema = pa.schema({"n": pa.int64()})
    whole = np.arange(sum(sizes))
    pieces = [pa.table({"n": piece}) for piece in np.split(whole, np.cumsum(sizes)[:-1])] if sizes else []
    report = write(pieces, schema, path, row_group_rows=rows)
    assert report.row_groups == -(-len(whole) // rows)
    assert all(size == rows for size in groups(path)[:-1])
    assert read(path)["n"].to_pylist() == whole.tolist()


def test_others_read_it(path: Path) -> None:
    names = ["start", "n", "text", "kind"]
    pieces = [table(0, 4).select(names), table(4, 6).select(names)]
    assert pieces[0]["kind"].chunk(0).dictionary != pieces[1]["kind"].chunk(0).dictionary.slice(0, 3)
    write(pieces, pa.schema([SCHEMA.field(name) for name in names]), path, row_group_rows=4)
    frame = polars.read_parquet(path) if path.suffix.lower() == ".parquet" else polars.read_ipc(path)
    assert frame["n"].to_list() == list(range(10))
    assert frame["kind"].to_list() == [f"kind {n % 4}" for n in range(10)]


def test_dictionaries_of_batches_become_one(path: Path) -> None:
    kind = pa.dictionary(pa.int8(), pa.string())
    schema = pa.schema({"kind": kind, "deep": pa.list_(pa.struct({"kind": kind}))})
    texts: list[list[str | None]] = [["a", "b"], ["c", None], ["b", "d"]]
    pieces = [
        pa.table(
            {
                "kind": pa.array(words, pa.string()).dictionary_encode().cast(kind),
                "deep": pa.array([[{"kind": word}] for word in words], schema.field("deep").type),
            }
        )
        for words in texts
    ]
    write(pieces, schema, path, row_group_rows=2)
    assert read(path)["kind"].to_pylist() == [word for words in texts for word in words]
    assert read(path)["deep"].to_pylist() == [[{"kind": word}] for words in texts for word in words]
    many = [pa.table({"kind": pa.array([f"{n}"]).dictionary_encode().cast(kind)}) for n in range(200)]
    if path.suffix.lower() != ".parquet":
        with pytest.raises(SourceError, match="cannot hold a column"):
            write(many, pa.schema({"kind": kind}), path, row_group_rows=100, if_exists="replace")
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, GeneratorExit])
def test_whatever_stops_it_leaves_nothing(path: Path, error: type[BaseException]) -> None:
    def stops() -> Iterator[pa.Table]:
        yield table(0, 50)
        assert [each for each in path.parent.iterdir() if each != path]  # it is being written
        raise error

    with pytest.raises(error):
        write(stops(), SCHEMA, path, row_group_rows=10)
    assert list(path.parent.iterdir()) == []
    write([table(0, 1)], SCHEMA, path)
    with pytest.raises(error):
        write(stops(), SCHEMA, path, row_group_rows=10, if_exists="replace")
    assert list(path.parent.iterdir()) == [path]
    assert read(path).num_rows == 1


def test_an_existing_file_is_replaced_only_on_request(path: Path) -> None:
    write([table(0, 1)], SCHEMA, path)
    with pytest.raises(SourceError, match='if_exists="replace"'):
        write([table(0, 2)], SCHEMA, path)
    assert read(path).num_rows == 1
    write([table(0, 2)], SCHEMA, path, if_exists="replace")
    assert read(path).num_rows == 2
    with pytest.raises(PlanError, match="if_exists='append'"):
        write([], SCHEMA, path, if_exists="append")  # type: ignore[arg-type]


def test_a_file_that_came_meanwhile_is_not_overwritten(path: Path) -> None:
    def slow() -> Iterator[pa.Table]:
        yield table(0, 1)
        path.write_text("someone else's")

    with pytest.raises(SourceError, match="exists"):
        write(slow(), SCHEMA, path)
    assert path.read_text() == "someone else's"
    assert list(path.parent.iterdir()) == [path]


def test_a_source_may_be_replaced_by_its_answer(tmp_path: Path) -> None:
    from gpu_ops.ingest import open_source

    path = tmp_path / "events.arrow"
    write([table(0, 100)], SCHEMA, path)
    payloads = (batch.payload for batch in open_source(path, start="start").read())
    schema = pa.schema(list(SCHEMA)[1:])
    assert write(payloads, schema, path, if_exists="replace").rows == 100
    assert read(path).equals(table(0, 100).drop_columns(["start"]))


@pytest.mark.parametrize("name", ["answer", "answer.csv", "answer.parquet.gz"])
def test_endings_that_name_no_format_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SourceError, match="names no format"):
        write([], SCHEMA, tmp_path / name)


def test_places_where_no_file_can_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="There is no folder"):
        write([], SCHEMA, tmp_path / "missing" / "answer.parquet")
    (tmp_path / "folder.parquet").mkdir()
    for policy in ("raise", "replace"):
        with pytest.raises(SourceError, match="is a folder"):
            write([], SCHEMA, tmp_path / "folder.parquet", if_exists=policy)
    with pytest.raises(PlanError, match="at least one row"):
        write([], SCHEMA, tmp_path / "answer.parquet", row_group_rows=0)


def test_types_that_parquet_does_not_hold_are_refused(tmp_path: Path) -> None:
    schema = pa.schema({"nothing": pa.struct([])})
    with pytest.raises(SourceError, match="Arrow IPC"):
        write([], schema, tmp_path / "answer.parquet")
    assert list(tmp_path.iterdir()) == []
    assert (
        write([pa.table({"nothing": pa.array([{}, None], pa.struct([]))})], schema, tmp_path / "answer.arrow").rows == 2
    )


def test_the_file_may_be_read_by_whoever_may_read_others(tmp_path: Path) -> None:
    write([], SCHEMA, tmp_path / "answer.parquet")
    (tmp_path / "other").touch()
    assert (tmp_path / "answer.parquet").stat().st_mode == (tmp_path / "other").stat().st_mode
