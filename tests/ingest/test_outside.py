"""Files from outside: damage within whole framing, sizes that are claimed, and what unpacks to more than there is."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import gpu_ops as g
from gpu_ops.errors import PlanError, SourceError
from tests.support.damaged_arrow import DAMAGE, Form, bomb, claims, patched, sound, written

READ = """
import sys
import gpu_ops as g
from gpu_ops.errors import SourceError
for path in sys.argv[1:]:
    try:
        events = g.events(path, start="at", unit="s")
        events.filter(g.col("number") > 1).collect(device="cpu")
    except SourceError as error:
        print(error)
    else:
        print("was read")
"""
"""What a process of its own does, which damage may end."""


def answers(paths: list[Path]) -> list[str]:
    """What a child process says of each file."""
    child = subprocess.run([sys.executable, "-c", READ, *paths], capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr[-2000:]
    return child.stdout.splitlines()


@pytest.mark.services
@pytest.mark.parametrize("form", ["file", "stream"])
def test_damage_within_whole_framing_is_an_error_that_names_file_and_column(tmp_path: Path, form: Form) -> None:
    data = written(sound(), form)
    paths = []
    for number, harm in enumerate(DAMAGE.values()):
        paths.append(tmp_path / f"{number}.arrow")
        paths[-1].write_bytes(harm(data))
    (tmp_path / "sound.arrow").write_bytes(data)
    said = dict(zip(DAMAGE, answers([*paths, tmp_path / "sound.arrow"])[:-1], strict=True))
    for number, (what, answer) in enumerate(said.items()):
        assert f"{number}.arrow is damaged, or was made to do harm" in answer, (what, answer)
        assert "[column " in answer, (what, answer)
    assert answers([tmp_path / "sound.arrow"]) == ["was read"]


def test_damage_to_columns_that_are_not_read_is_nobodys_harm(tmp_path: Path) -> None:
    (tmp_path / "e.arrow").write_bytes(DAMAGE["text past its end"](written(sound())))
    events = g.events(tmp_path / "e.arrow", start="at", unit="s")
    assert events.select("number").collect()["number"].to_pylist() == [1, 2, 3, None]
    with pytest.raises(SourceError, match="made to do harm") as raised:
        events.collect()
    assert raised.value.column == "text"


def test_trust_takes_values_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "e.arrow").write_bytes(DAMAGE["hour past midnight"](written(sound())))
    trusting = g.events(tmp_path / "e.arrow", start="at", unit="s", trust=True)
    assert trusting.select("hour", "number").filter(g.col("number") > 1).collect()["number"].to_pylist() == [2, 3]


def test_readers_and_datasets_are_validated_and_frames_are_not(tmp_path: Path) -> None:
    data = DAMAGE["hour past midnight"](written(sound(), "stream"))
    dataset = pytest.importorskip("pyarrow.dataset")
    (tmp_path / "e.arrow").write_bytes(DAMAGE["hour past midnight"](written(sound())))
    for outside in (pa.ipc.open_stream(data), dataset.dataset(tmp_path / "e.arrow", format="ipc")):
        with pytest.raises(SourceError, match="made to do harm") as raised:
            g.events(outside, start="at", unit="s").collect()
        assert raised.value.column == "hour"
    for trusted in (pa.ipc.open_stream(data), pa.ipc.open_stream(data).read_all()):
        events = g.events(trusted, start="at", unit="s", trust=isinstance(trusted, pa.RecordBatchReader))
        assert events.select("number").collect().num_rows == 4


def test_a_reader_that_is_pushed_is_validated() -> None:
    live = g.events(sound().slice(0, 0), start="at", unit="s").filter(g.col("number") > 0).start(device="cpu")
    with pytest.raises(SourceError, match="made to do harm"):
        live.push(pa.ipc.open_stream(DAMAGE["text past its end"](written(sound(), "stream"))))
    live.push(pa.ipc.open_stream(written(sound(), "stream")))
    live.close()
    assert live.results()["number"].to_pylist() == [1, 2, 3]


@pytest.mark.services
def test_views_under_nulls_may_point_anywhere(tmp_path: Path) -> None:
    # Arrow calls that sound, and Polars follows them: without their mending the process ends.
    data = written(sound())
    wild = patched(data, "view", 1, {12: FAR_VIEW, 13: 1, 14: 77, 15: FAR_VIEW})
    assert wild != data
    (tmp_path / "e.arrow").write_bytes(wild)
    assert answers([tmp_path / "e.arrow"]) == ["was read"]
    read = g.events(tmp_path / "e.arrow", start="at", unit="s").collect()
    assert read["view"].to_pylist() == sound()["view"].to_pylist()


FAR_VIEW = 1 << 30


@pytest.mark.services
def test_null_keys_of_maps_are_refused_before_arrow_sees_them(tmp_path: Path) -> None:
    # Arrow ends the process where it makes an array of such a map.
    pairs = pa.array([[{"key": "k", "value": 1}], [{"key": None, "value": 2}]])
    given = pa.table({"at": [0, 1], "number": [1, 2], "map": pairs})
    kind = pa.map_(pa.string(), pa.int64())
    as_map = written(
        pa.table({"at": [0, 1], "number": [1, 2], "map": pa.array([[("k", 1)], [("l", 2)]], kind)}), "stream"
    )
    as_list = written(given, "stream")
    (tmp_path / "e.arrow").write_bytes(_schema_of(as_map) + _rest_of(as_list))
    (said,) = answers([tmp_path / "e.arrow"])
    assert "e.arrow cannot be read: a key of a map in column 'map' is null" in said


def _schema_of(stream: bytes) -> bytes:
    return stream[: 8 + int.from_bytes(stream[4:8], "little")]


def _rest_of(stream: bytes) -> bytes:
    return stream[8 + int.from_bytes(stream[4:8], "little") :]


# How much


@pytest.mark.slow
@pytest.mark.parametrize("name", ["given.csv", "given.csv.gz", "given.arrow", "given.parquet"])
def test_a_file_of_too_many_columns_is_refused_unless_it_is_trusted(tmp_path: Path, name: str) -> None:
    path, count = tmp_path / name, (1 << 15) + 1
    names = ["at", *(f"c{number}" for number in range(1, count))]
    table = pa.table([pa.array([1])] + [pa.array([2], pa.int8())] * (count - 1), names)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".arrow":
        path.write_bytes(written(table, "file", None))
    else:
        # A name may have lines and commas in it.
        text = f'"{names[0]}","\n\n,",{",".join(names[2:])}\n'.encode() + b"1" + b",2" * (count - 1) + b"\n"
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    with pytest.raises(SourceError, match=r"has 32,769 columns, more than the 32,768 .* trust=True"):
        g.events(path, start="at", unit="s")
    assert len(g.events(path, start="at", unit="s", trust=True).schema) == count - 1


@pytest.mark.parametrize("name", ["zeros.arrow", "zeros.arrows", "zeros.parquet", "zeros.csv.gz"])
def test_what_unpacks_to_more_than_max_bytes_is_an_error_that_names_it(tmp_path: Path, name: str) -> None:
    path, rows = tmp_path / name, 1 << 17
    table = bomb(rows)
    if path.suffix == ".parquet":
        pq.write_table(table, path, compression="zstd", row_group_size=rows)
    elif path.suffix == ".gz":
        with gzip.open(path, "wb") as file:
            pacsv.write_csv(table, file)
    else:
        path.write_bytes(written(table, "file" if path.suffix == ".arrow" else "stream", "zstd"))
    for most in (1 << 20, 1 << 16):
        with pytest.raises(SourceError, match=rf"{name} is not read: .*max_bytes.* say max_bytes=\d+"):
            g.events(path, start="at", unit="s", max_bytes=most).tumbling("1h").agg(n=g.count(), v=g.sum("v")).collect()
    counted = g.events(path, start="at", unit="s", max_bytes=1 << 22).tumbling("1h").agg(n=g.count(), v=g.sum("v"))
    assert counted.collect()["n"].to_pylist() == [rows]


def test_text_that_unpacks_to_lines_without_a_value_counts(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "e.csv.gz", "wb") as file:
        file.write(b"at,v\n" + b"\n" * (1 << 24) + b"1,2\n")
    with pytest.raises(SourceError, match=r"e.csv.gz is not read: .*max_bytes"):
        g.events(tmp_path / "e.csv.gz", start="at", unit="s", max_bytes=1 << 23).collect()
    assert g.events(tmp_path / "e.csv.gz", start="at", unit="s", max_bytes=1 << 25).collect().num_rows == 1


TEXT = "x" * (1 << 16)
ROWS = 1 << 12


def texts() -> pa.Array:
    return pa.array([TEXT] * ROWS)


def list_of_nulls() -> pa.Array:
    ends, missing = [1 << 25] * ROWS, pa.array([False] + [True] * (ROWS - 1))
    return pa.ListArray.from_arrays(pa.array([0, *ends], pa.int32()), pa.nulls(1 << 25, pa.int64()), mask=missing)


PARQUET_BOMBS: dict[str, tuple[Callable[[], pa.Array], dict[str, Any]]] = {
    "a text in a dictionary": (texts, {}),
    "texts that begin as the one before": (
        texts,
        {"use_dictionary": False, "column_encoding": {"at": "PLAIN", "s": "DELTA_BYTE_ARRAY"}},
    ),
    "a page of texts": (texts, {"use_dictionary": False}),
    "a list of a text in a dictionary": (lambda: pa.array([[TEXT] * ROWS] + [None] * (ROWS - 1)), {}),
    "a list of nulls": (list_of_nulls, {}),
    "wide nulls": (lambda: pa.nulls(ROWS, pa.binary(1 << 16)), {}),
}
"""A column of 256 MiB in some kilobytes, and how it is written."""


@pytest.mark.slow
@pytest.mark.parametrize("what", PARQUET_BOMBS)
def test_what_a_parquet_file_unpacks_to_is_known_before_it_is_unpacked(tmp_path: Path, what: str) -> None:
    column, options = PARQUET_BOMBS[what]
    pq.write_table(pa.table({"at": range(ROWS), "s": column()}), tmp_path / "e.parquet", compression="zstd", **options)
    assert (tmp_path / "e.parquet").stat().st_size < 1 << 17
    events = g.events(tmp_path / "e.parquet", start="at", unit="s", max_bytes=1 << 22)
    usual = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(counting)
    try:
        with pytest.raises(SourceError, match=r"e.parquet is not read: .*max_bytes"):
            events.collect()
    finally:
        pa.set_memory_pool(usual)
    assert counting.max_memory() < 1 << 25


def test_texts_of_a_dictionary_that_fit_are_read_as_they_are(tmp_path: Path) -> None:
    texts = pa.array([[str(at % 7) * 9000, None, "y"] if at % 3 else None for at in range(2000)])
    table = pa.table({"at": range(2000), "s": texts, "t": [str(at % 5) * 9000 for at in range(2000)]})
    pq.write_table(table, tmp_path / "e.parquet", row_group_size=900)
    # Each of the texts may be any, by what is known before they are read: that would be too much.
    read = g.events(tmp_path / "e.parquet", start="at", unit="s", max_bytes=1 << 26).collect()
    assert read.select(["s", "t"]).equals(table.select(["s", "t"]))


def test_max_bytes_is_one_or_more(tmp_path: Path) -> None:
    (tmp_path / "e.arrow").write_bytes(written(sound()))
    with pytest.raises(PlanError, match="max_bytes is 0, and not a whole number of at least 1"):
        g.events(tmp_path / "e.arrow", start="at", max_bytes=0)
    store = g.store(tmp_path / "store")
    with store.writer() as writer:
        writer.append(
            pa.table({name: pa.array([at], pa.timestamp("us", "UTC")) for at, name in enumerate(("start", "end"))})
        )
    with pytest.raises(PlanError, match="bounds of its own"):
        g.events(store, max_bytes=5)


@pytest.mark.parametrize("form", ["file", "stream"])
def test_claimed_terabytes_are_not_taken(tmp_path: Path, form: Form) -> None:
    # Of a compressed buffer the first eight bytes say how many it unpacks to.
    data = written(bomb(5000).select(["at", "v"]), form, "zstd")
    path = tmp_path / "e.arrow"
    path.write_bytes(claims(data, 40_000, 1 << 42))
    with pytest.raises(SourceError, match=r"e.arrow is not read: .* of 8,192.0 GiB, .* max_bytes"):
        g.events(path, start="at", unit="s").collect()
    path.write_bytes(claims(data, 40_000, -77))
    with pytest.raises(SourceError, match=r"e.arrow cannot be read: a buffer claims -77 bytes"):
        g.events(path, start="at", unit="s").collect()


def test_rows_of_nulls_alone_count_although_no_byte_stands_for_them(tmp_path: Path) -> None:
    rows = 3
    nulls = pa.LargeListArray.from_arrays(pa.array([0, 12345678, 12345678, 12345678]), pa.nulls(12345678))
    data = written(pa.table({"at": list(range(rows)), "l": nulls}))
    (tmp_path / "e.arrow").write_bytes(claims(data, 12345678, 1 << 40))
    with pytest.raises(SourceError, match="max_bytes"):
        g.events(tmp_path / "e.arrow", start="at", unit="s").collect()


def test_texts_that_rows_share_count_as_often_as_they_are_there(tmp_path: Path) -> None:
    word = pa.DictionaryArray.from_arrays(pa.array(np.zeros(4096, np.int32)), pa.array([b"x" * 65536]))
    view = _views_of_one(b"y" * 65536, 4096)
    for name, column in (("word", word), ("view", view)):
        path = tmp_path / f"{name}.arrow"
        path.write_bytes(written(pa.table({"at": np.arange(4096), name: column})))
        with pytest.raises(SourceError, match=r"a piece of 256.0 MiB, .* max_bytes"):
            g.events(path, start="at", unit="s", max_bytes=1 << 26).collect()
        assert path.stat().st_size < 1 << 20


def _views_of_one(text: bytes, rows: int) -> pa.Array:
    one = np.frombuffer(pa.array([text.decode()], pa.string_view()).buffers()[1], np.uint8, 16)
    return pa.Array.from_buffers(pa.string_view(), rows, [None, pa.py_buffer(np.tile(one, rows)), pa.py_buffer(text)])


# Whatever else is wrong


def test_a_file_without_rights_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "e.arrow"
    path.write_bytes(written(sound()))

    def refuses(*_: object, **__: object) -> None:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(pa, "OSFile", refuses)
    with pytest.raises(SourceError, match=r"e.arrow may not be read by this process: .*no sign of damage"):
        g.events(path, start="at")


def test_a_folder_that_may_not_be_listed_is_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "e.arrow").write_bytes(written(sound()))
    scandir = os.scandir

    def refuses(place: str) -> Any:
        if str(place).endswith("closed"):
            raise PermissionError(13, os.strerror(13), str(place))
        return scandir(place)

    monkeypatch.setattr(os, "scandir", refuses)
    with pytest.raises(SourceError, match=r"closed may not be read by this process: .*no sign of damage"):
        g.events(tmp_path, start="at")


def test_a_file_that_becomes_another_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "e.arrow"
    path.write_bytes(written(sound()))
    events = g.events(path, start="at", unit="s")
    path.write_bytes(written(sound().set_column(1, "number", pa.array(["1", "2", "3", "4"]))))
    with pytest.raises(SourceError, match=r"e.arrow has other columns than when it was opened"):
        events.collect()


def test_whatever_is_cut_or_flipped_is_read_or_an_error_of_ours(tmp_path: Path) -> None:
    data = written(sound().select(["at", "number", "text"]), "file", "lz4")
    path, chance, refused = tmp_path / "e.arrow", np.random.default_rng(1), 0
    for at in chance.choice(len(data), 150, replace=False):
        for harmed in (data[:at], data[:at] + bytes([data[at] ^ 0x81]) + data[at + 1 :]):
            path.write_bytes(harmed)
            try:
                g.events(path, start="at", unit="s", on_invalid="drop").collect()
            except g.GpuOpsError:
                refused += 1
    assert refused > 150
