"""A state is written as what is new of it, and read back as it was; a byte that changed is found."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.checkpoints.cache import Cache
from gpu_ops.checkpoints.saved_states import SavedState, read_state, write_state
from gpu_ops.checkpoints.state_files import StateFile
from gpu_ops.core.state_parts import Beyond, NewerValues, Parts, StatePart, doubtful, whole
from gpu_ops.errors import SourceError
from gpu_ops.microbatches.folders import LocalFolder

LARGE = pa.table({"n": pa.array(range(200_000))})
SMALL = pa.table({"at": pa.array([3, 7, None, 9], pa.timestamp("us", "UTC")), "t": ["a", None, "c", "d"]})


def _never() -> pa.Table:
    raise AssertionError


def _state(folder: LocalFolder) -> tuple[Parts, SavedState]:
    gone = np.zeros(200_000, np.bool_)
    gone[[5, 9]] = True
    parts = {
        "rows": [
            StatePart(lambda: LARGE, "r-1", passed=3, gone=gone),
            StatePart(lambda: LARGE.slice(0, 9), "r-2", gone=gone[:9]),
        ],
        "timed": [StatePart(lambda: SMALL, "t-1", beyond=Beyond("at", 7))],
        "clock": [StatePart.of(pa.table({"n": [1]}))],
        "none": [],
    }
    return parts, write_state(folder, "000000000001-", parts, {"n": 1})


def test_it_is_read_back(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    parts, saved = _state(folder)
    again = SavedState.from_json("It", json.loads(json.dumps(saved.to_json())))
    assert again == saved
    assert {file.name for file in again.files} == {each.name for each in tmp_path.iterdir()}
    read = read_state(folder, again)
    assert [part.name for part in read["rows"]] == ["r-1", "r-2"]
    tables = whole(read)
    assert tables == whole(parts)
    assert list(tables) == ["rows", "timed", "clock"]
    assert tables["timed"]["t"].to_pylist() == ["c", "d"]
    assert tables["rows"]["n"].to_pylist()[:5] == [3, 4, 6, 7, 8]


def test_only_what_is_new_is_written(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    parts, saved = _state(folder)
    before = {each.name for each in tmp_path.iterdir()}
    more = np.zeros(200_000, np.bool_)
    more[:100_000] = True
    parts = {
        "rows": [
            StatePart(_never, "r-1", passed=4, gone=more),
            StatePart(_never, "r-2", gone=np.zeros(9, np.bool_)),
            StatePart(lambda: SMALL.select(["t"]), "r-3"),
        ],
        "timed": [StatePart(_never, "t-1", beyond=Beyond("at", 8))],
    }
    later = write_state(folder, "000000000002-", parts, {}, saved)
    (fresh,) = {each.name for each in tmp_path.iterdir()} - before
    assert (tmp_path / fresh).stat().st_size < 30_000
    read = read_state(folder, later)["rows"]
    assert (read[0].passed, read[1].gone) == (4, None)
    gone = read[0].gone
    assert gone is not None
    assert np.array_equal(gone, more)
    again = write_state(folder, "000000000003-", {"rows": [StatePart(_never, "r-1", gone=more)]}, {}, later)
    assert again.tables["rows"][0].gone == later.tables["rows"][0].gone
    assert {each.name for each in tmp_path.iterdir()} == before | {fresh}


def _newer(name: str, at: list[int], values: list[int]) -> NewerValues:
    return NewerValues(name, lambda: pa.table({"row": pa.array(at, pa.uint32()), "n": pa.array(values)}))


def test_newer_values_are_written_once_and_hold(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    rows = pa.table({"n": range(5), "t": list("abcde")})
    parts = {"rows": [StatePart(lambda: rows, "r", passed=1, changed=[_newer("c-1", [1, 3], [10, 30])])]}
    first = write_state(folder, "000000000001-", parts, {})
    again = [NewerValues("c-1", _never), _newer("c-2", [3, 4], [33, 44])]
    later = write_state(folder, "000000000002-", {"rows": [StatePart(_never, "r", changed=again)]}, {}, first)
    assert SavedState.from_json("It", json.loads(json.dumps(later.to_json()))) == later
    read = read_state(folder, later)
    assert whole(read)["rows"].to_pylist() == [
        {"n": 0, "t": "a"},
        {"n": 10, "t": "b"},
        {"n": 2, "t": "c"},
        {"n": 33, "t": "d"},
        {"n": 44, "t": "e"},
    ]
    assert whole(read_state(folder, first))["rows"]["n"].to_pylist() == [10, 2, 30, 4]
    known = read_state(folder, later, is_sound=lambda _: True)
    assert doubtful(known)["rows"].to_pylist() == [{"n": 10, "t": "b"}, {"n": 33, "t": "d"}, {"n": 44, "t": "e"}]


def test_newer_values_may_be_null_or_of_any_type(tmp_path: Path) -> None:
    rows = pa.table({"n": range(3), "t": list("abc")})
    newer = pa.table({"row": pa.array([0, 2], pa.uint32()), "n": pa.array([None, 5], pa.int64()), "t": ["z", None]})
    part = StatePart(lambda: rows, "r", changed=[NewerValues("c", lambda: newer)])
    folder = LocalFolder(tmp_path)
    read = read_state(folder, write_state(folder, "000000000001-", {"rows": [part]}, {}))
    assert whole(read)["rows"].to_pydict() == {"n": [None, 1, 5], "t": ["z", "b", None]}


@pytest.mark.parametrize(
    "wrong",
    [
        {"row": pa.array([5], pa.uint32()), "n": [1]},
        {"row": pa.array([3, 3], pa.uint32()), "n": [1, 2]},
        {"row": pa.array([3], pa.int64()), "n": [1]},
        {"row": pa.array([None], pa.uint32()), "n": [1]},
        {"row": pa.array([3], pa.uint32()), "t": [1]},
        {"row": pa.array([3], pa.uint32()), "m": [1]},
    ],
)
def test_newer_values_of_what_is_not_there_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    rows = pa.table({"n": range(5), "t": list("abcde")})
    changed = [NewerValues("c", lambda: pa.table(wrong))]
    folder = LocalFolder(tmp_path)
    saved = write_state(folder, "000000000001-", {"rows": [StatePart(lambda: rows, "r", changed=changed)]}, {})
    with pytest.raises(SourceError, match="newer values"):
        read_state(folder, saved)


@pytest.mark.parametrize("cached", [False, True])
def test_a_changed_byte_is_found_and_a_missing_file_is_named(tmp_path: Path, cached: bool) -> None:  # noqa: FBT001
    folder = LocalFolder(tmp_path / "saves")
    folder.make()
    _, saved = _state(folder)
    fetch = Cache(tmp_path / "cache").of(folder) if cached else None
    for file in saved.files:
        path = tmp_path / "saves" / file.name
        content = path.read_bytes()
        for at in (0, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:at] + bytes([content[at] ^ 64]) + content[at + 1 :])
            with pytest.raises(SourceError, match=f"{file.name} is damaged"):
                read_state(folder, saved, fetch=fetch)
        path.write_bytes(content + b"\0")
        with pytest.raises(SourceError, match=f"{file.name} is damaged"):
            read_state(folder, saved, fetch=fetch)
        path.unlink()
        with pytest.raises(SourceError, match=f"{file.name} is missing"):
            read_state(folder, saved, fetch=fetch)
        path.write_bytes(content)
    read_state(folder, saved, fetch=fetch)


def test_a_cache_reads_a_file_once_and_forgets_what_was_not_used_for_long(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "saves")
    folder.make()
    parts, saved = _state(folder)
    cache = Cache(tmp_path / "a" / "cache")
    read_state(folder, saved, fetch=cache.of(folder))
    for file in saved.files:
        (tmp_path / "saves" / file.name).unlink()
    read = read_state(folder, saved, fetch=cache.of(folder))
    assert whole({"rows": read["rows"]})["rows"].equals(whole({"rows": parts["rows"]})["rows"])
    assert (tmp_path / "a" / "cache").stat().st_mode & 0o077 == 0
    large = max(saved.files, key=lambda file: file.size)
    for at, name in enumerate(("old", "new")):
        write_state(folder, f"00000000000{at}-{name}-", {"rows": [StatePart(lambda: LARGE)]}, {})
    small = Cache(tmp_path / "small", most_bytes=large.size + 100)
    for path in sorted((tmp_path / "saves").iterdir()):
        written = next(each for each in _listed(folder) if each.name == path.name)
        small.fetch(folder, written)
    assert [each.name.split("-")[3] for each in (tmp_path / "small").iterdir()] == ["new"]


def test_a_file_that_was_found_sound_is_not_looked_at_again(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "saves")
    folder.make()
    parts = {
        "rows": [StatePart(lambda: LARGE, "r-1"), StatePart(lambda: LARGE.slice(0, 9), "r-2")],
        "passing": [StatePart(lambda: LARGE)],
        "broken": [StatePart(lambda: LARGE, "b-1", gone=np.arange(LARGE.num_rows) % 2 == 0)],
    }
    saved = write_state(folder, "000000000001-", parts, {})
    assert saved.lasting == {saved.tables[name][0].rows.file for name in ("rows", "broken")}
    cache = Cache(tmp_path / "cache")
    sound = saved.tables["rows"][0].rows.file
    assert not cache.is_sound(sound, "a")
    cache.note_sound(sound, "a")
    assert cache.is_sound(sound, "a")
    assert not cache.is_sound(sound, "b")
    assert not cache.is_sound(StateFile(sound.name, sound.size, sound.crc ^ 1), "a")
    read = read_state(folder, saved, fetch=cache.of(folder), is_sound=lambda file: cache.is_sound(file, "a"))
    assert [part.is_sound for part in read["rows"]] == [True, False]
    assert not read["passing"][0].is_sound
    known, every = doubtful(read), whole(read)
    assert known["rows"].equals(LARGE.slice(0, 9))
    assert known["broken"].equals(every["broken"])
    assert every["rows"].num_rows == LARGE.num_rows + 9


def _listed(folder: LocalFolder) -> list[StateFile]:
    return [
        StateFile(name, len(content), zlib.crc32(content))
        for name in sorted(folder.names())
        for content in [folder.read(name).to_pybytes()]
    ]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"files": []}, "no bytes of"),
        ({"tables": {"t": [{"rows": {"file": "x", "at": 0, "size": 1}}]}}, "no bytes of 'x' there"),
        ({"tables": {"t": [{"rows": {"file": "x", "at": 0}}]}}, "'tables.t.0..rows.size' is missing"),
    ],
)
def test_a_state_that_names_what_is_not_there_is_refused(tmp_path: Path, change: dict[str, object], says: str) -> None:
    _, saved = _state(LocalFolder(tmp_path))
    with pytest.raises(SourceError, match=f"It is damaged: .*{says}"):
        SavedState.from_json("It", saved.to_json() | change)


@given(st.data())
def test_parts_are_their_wanted_rows(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    places = data.draw(st.lists(st.one_of(st.none(), st.integers(-3, 3)), min_size=count, max_size=count))
    gone = data.draw(st.one_of(st.none(), st.lists(st.booleans(), min_size=count, max_size=count)))
    passed = data.draw(st.integers(0, count))
    limit = data.draw(st.one_of(st.none(), st.integers(-4, 4)))
    table = pa.table({"at": pa.array(places, pa.int64()), "row": range(count)})
    part = StatePart(
        lambda: table,
        passed=passed,
        beyond=None if limit is None else Beyond("at", limit),
        gone=None if gone is None else np.array(gone),
    )
    expected = [
        row
        for row, place in enumerate(places)
        if row >= passed and not (gone is not None and gone[row]) and (limit is None or place is None or place > limit)
    ]
    assert part.wanted()["row"].to_pylist() == expected
