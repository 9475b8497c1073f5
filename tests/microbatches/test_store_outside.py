"""Stores and checkpoints from outside: what matches its checksum may still be made to do harm."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.errors import SourceError
from gpu_ops.microbatches.batch_files import METADATA, DamageError
from gpu_ops.microbatches.names import Sealed, parse
from tests.support.damaged_arrow import DAMAGE, sound, written

READ = """
import sys
import gpu_ops as g
from gpu_ops.errors import SourceError
for path in sys.argv[1:]:
    store = g.store(path)
    print(store.verify().sound)
    for read in (store.read, lambda: g.events(store).filter(g.col("number") > 1).collect(device="cpu")):
        try:
            read()
        except SourceError as error:
            print(error)
        else:
            print("was read")
"""


def batch() -> pa.Table:
    return g.events(sound(), start="at", unit="s").collect(device="cpu")


def made(folder: Path, harm: Callable[[bytes], bytes], change: Callable[[dict[str, Any]], Any] | None = None) -> Path:
    """A store of one batch whose file was made anew, harmed and sealed."""
    g.store(folder).append(batch())
    (name,) = (each.name for each in folder.glob("*.arrow"))
    known = parse(name)
    assert known is not None
    table = pa.ipc.open_file(folder / name).read_all()
    said = json.loads(table.schema.metadata[METADATA])
    said = change(said) if change else said
    table = table.replace_schema_metadata({METADATA: json.dumps(said)})
    data = harm(written(table))
    (folder / name).unlink()
    crc, size = zlib.crc32(data), len(data)
    sealed = Sealed(known.first, known.last, known.commit, known.rows, known.start, known.end, known.cti, size, crc)
    (folder / sealed.name).write_bytes(data)
    return folder


@pytest.mark.services
def test_damage_under_a_matching_checksum_is_damage(tmp_path: Path) -> None:
    paths = [made(tmp_path / str(number), harm) for number, harm in enumerate(DAMAGE.values())]
    paths.append(made(tmp_path / "sound", bytes))
    child = subprocess.run([sys.executable, "-c", READ, *paths], capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr[-2000:]
    answers = child.stdout.splitlines()
    for number, what in enumerate(DAMAGE):
        verified, read, asked = answers[3 * number : 3 * number + 3]
        assert verified == "False", what
        assert ".arrow is damaged" in read, what
        assert ".arrow is damaged" in asked, what
        assert "discard(1)" in read
    assert answers[-3:] == ["True", "was read", "was read"]


def test_trust_takes_what_a_store_holds_as_it_is(tmp_path: Path) -> None:
    made(tmp_path, DAMAGE["hour past midnight"])
    with pytest.raises(DamageError, match=r"its column 'hour' is not sound \(.*range"):
        g.store(tmp_path).read(columns=["hour"])
    trusted = g.store(tmp_path, trust=True)
    assert trusted.verify().sound
    assert trusted.read(columns=["hour", "number"])["number"].to_pylist() == [1, 2, 3, None]


def test_files_of_one_store_have_one_schema(tmp_path: Path) -> None:
    for name, given in (("one", sound()), ("two", sound().set_column(1, "number", pa.array(["1", "2", "3", "4"])))):
        store = g.store(tmp_path / name)
        for _ in range(2):
            store.append(g.events(given, start="at", unit="s").collect())
    first, other = (sorted((tmp_path / name).glob("*.arrow")) for name in ("one", "two"))
    first[1].unlink()
    other[1].rename(first[1].with_name(other[1].name))
    mixed = g.store(tmp_path / "one")
    for read in (mixed.read, lambda: list(mixed.batches()), lambda: g.events(mixed).collect()):
        with pytest.raises(DamageError, match="other columns than another file of the store"):
            read()
    with pytest.raises(DamageError, match="other columns than the store"):
        mixed.compact()
    # The smallest file says what the columns are: the others are held to it, also where it is not read itself.
    for since in (0, 1):
        with pytest.raises(DamageError, match="other columns than another file of the store"):
            g.store(tmp_path / "one").read(since=since)


@pytest.mark.parametrize(
    "change",
    [
        lambda said: [said],
        lambda said: None,
        lambda said: said | {"batches": [[4]]},
        lambda said: said | {"batches": [["4", None]]},
        lambda said: said | {"batches": [[4, "soon"]]},
        lambda said: said | {"batches": 4},
        lambda said: said | {"rows": None},
        lambda said: said | {"batches": None, "lost": {}},
    ],
)
def test_metadata_that_no_store_writes_is_damage(tmp_path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    made(tmp_path, bytes, change)
    with pytest.raises(DamageError, match="is damaged"):
        g.store(tmp_path).read()


def test_a_store_is_read_within_max_bytes(tmp_path: Path) -> None:
    g.store(tmp_path).append(
        g.events(pa.table({"at": [0] * 100_000, "v": [0.0] * 100_000}), start="at", unit="s").collect()
    )
    small = g.store(tmp_path, max_bytes=1 << 20)
    with pytest.raises(SourceError, match="max_bytes") as raised:
        small.read()
    assert not isinstance(raised.value, DamageError)
    assert "max_bytes" in small.verify().unreadable[0]
    assert small.verify().damaged == ()
    assert g.store(tmp_path, max_bytes=1 << 23).read().num_rows == 100_000


def test_a_file_larger_than_its_name_says_is_not_read_whole(tmp_path: Path) -> None:
    g.store(tmp_path).append(batch())
    (path,) = tmp_path.glob("*.arrow")
    with path.open("ab") as file:
        file.truncate(1 << 40)
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(DamageError, match=r"has more than [\d,]+ bytes"):
        g.store(tmp_path).read()
    assert pa.default_memory_pool().max_memory() - before < 1 << 28


def test_an_identity_that_is_too_deep_or_too_long_is_damage(tmp_path: Path) -> None:
    g.store(tmp_path).append(batch())
    for said in ("[" * 30_000, '{"format": 1, "id": "' + "x" * 100_000 + '"}', "1" * 5000):
        (tmp_path / "store.json").write_text(said)
        with pytest.raises(DamageError, match=r"store.json is damaged"):
            _ = g.store(tmp_path).identity


# Checkpoints


def query() -> g.Stream:
    return (
        g.events(sound().slice(0, 0), start="at", unit="s").filter(g.col("number") > 0).count_window(2).agg(n=g.count())
    )


def checkpoint(path: Path) -> dict[str, bytes]:
    """The parts of a checkpoint of a query that has rows in its state."""
    live = query().start(device="cpu")
    live.push(sound())
    live.checkpoint(path)
    live.close()
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(path: Path, parts: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


def test_a_table_of_a_checkpoint_is_validated(tmp_path: Path) -> None:
    path = tmp_path / "c"
    parts = checkpoint(path)
    packed(
        path,
        {
            name: DAMAGE["text past its end"](written(sound())) if name == "000.arrow" else data
            for name, data in parts.items()
        },
    )
    with pytest.raises(SourceError, match=r"c, 000.arrow is damaged, or was made to do harm.*\[column 'text'\]"):
        g.restore(path, query(), device="cpu")
    packed(path, parts)
    g.restore(path, query(), device="cpu", trust=True)
    with pytest.raises(SourceError, match="max_bytes"):
        g.restore(path, query(), device="cpu", max_bytes=100)


def test_a_checkpoint_that_is_packed_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "c"
    parts = checkpoint(path) | {"zeros": bytes(1 << 24)}
    for how in (zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA):
        packed(path, parts, how)
        with pytest.raises(SourceError, match="its parts are packed"):
            g.restore(path, query(), device="cpu")


def test_facts_that_no_query_writes_are_no_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "c"
    parts = checkpoint(path)
    said = json.loads(parts["checkpoint.json"])
    wrong: list[Any] = [
        [],
        None,
        4,
        said | {"tables": []},
        said | {"tables": {"no.arrow": "x"}},
        said | {"tables": 3},
        said | {"tables": {"000.arrow": 1.5}},
    ]
    for facts in wrong:
        packed(path, parts | {"checkpoint.json": json.dumps(facts).encode()})
        with pytest.raises(SourceError, match=r"c is (no checkpoint|damaged)"):
            g.restore(path, query(), device="cpu")
    for text in (b"[" * 100_000, b"\xff", b"1" * 5000):
        packed(path, parts | {"checkpoint.json": text})
        with pytest.raises(SourceError, match=r"c is (no checkpoint|damaged)"):
            g.restore(path, query(), device="cpu")
