"""What was found once: files with exactly the damage that once led to a crash, a foreign error, or too much memory."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast
from zlib import crc32

import pyarrow as pa

import gpu_ops as g
from gpu_ops.microbatches.names import parse
from tests.fuzz import readers, sound
from tests.fuzz.child import Case
from tests.fuzz.damage import packed
from tests.fuzz.framing import bodies, long, open_any, places

Read = Callable[[], Any]
Make = Callable[[Path], Read]


def _collected(path: Path, source: dict[str, Any]) -> None:
    events = g.events(str(path), **source)
    readers.look(events.collect(device="cpu"))
    readers.look(events.by("k").snapshot().agg(n=g.count(), v=g.count("v")).collect(device="cpu"))


def _file(data: bytes, name: str = "given.arrow", source: str = "text") -> Make:
    def make(folder: Path) -> Read:
        path = folder / name
        path.write_bytes(data)
        return partial(_collected, path, sound.SOURCES[source][1])

    return make


def _in_column(table: str, role: str, element: int, number: int) -> Make:
    """A plain Arrow file, one number of a buffer of whose column ``v`` is another."""
    data = sound.arrow(sound.TABLES[table], stream=False, compression=None)
    place = next(each for each in places(data) if each.role == role and each.column == "v")
    at = place.begin + place.width * element
    return _file(data[:at] + packed(number, place.width) + data[at + place.width :])


def _unpacked(size: int, *, stream: bool) -> Make:
    """A compressed Arrow file, a buffer of which says that it holds so many bytes."""
    data = sound.arrow(sound.TABLES["text"], stream=stream, compression="lz4")
    # What is compressed begins with its size: that of ten times is 80.
    begin = next(begin for begin, _ in bodies(data) if long(data, begin) == 80)
    return _file(data[:begin] + packed(size, 8) + data[begin + 8 :])


def _parquet(old: bytes, new: bytes) -> Make:
    """A Parquet file, in whose footer one run of bytes is another."""
    data = sound.parquet(sound.TABLES["int64"], random.Random(0))
    assert data.count(old) == 1
    return _file(data.replace(old, new), "given.parquet", "int64")


def _store(name: str, change: Callable[[pa.Table], pa.Table], ask: Callable[[g.Store], Any]) -> Make:
    """A store, the table of whose first batch is another under a name that tells of its bytes."""

    def make(folder: Path) -> Read:
        files = sound.store_files(name)
        for file, data in files.items():
            sealed, content = parse(file), data
            if sealed is not None and sealed.first == 1:
                content = sound.arrow(change(open_any(data).read_all()), stream=False, compression="zstd", rows=100)
                sealed = replace(sealed, size=len(content), crc=crc32(content))
            (folder / (file if sealed is None else sealed.name)).write_bytes(content)
        return lambda: ask(g.store(folder))

    return make


def _renamed(name: str, **said: int) -> Make:
    """A store, the name of whose first batch says something else."""

    def make(folder: Path) -> Read:
        for file, data in sound.store_files(name).items():
            sealed = parse(file)
            called = file if sealed is None or sealed.first != 1 else replace(sealed, **cast("Any", said)).name
            (folder / called).write_bytes(data)
        return lambda: (len(g.store(folder)), g.store(folder).read())

    return make


def _batches(said: Any) -> Callable[[pa.Table], pa.Table]:
    """The same table, whose metadata say this of its batches."""

    def change(table: pa.Table) -> pa.Table:
        ((key, text),) = table.schema.metadata.items()
        return table.replace_schema_metadata({key: json.dumps({**json.loads(text), "batches": said})})

    return change


def _restored(name: str, parts: dict[str, bytes], folder: Path) -> Read:
    path = folder / "query.checkpoint"
    path.write_bytes(sound.zipped(parts))
    return partial(readers.read_checkpoint, path, name, random.Random(0))


def _facts(path: str, value: Any) -> Make:
    """A checkpoint whose facts hold another value in a place."""

    def make(folder: Path) -> Read:
        parts = dict(sound.checkpoint_parts("snapshot"))
        facts = json.loads(parts["checkpoint.json"])
        *above, last = (int(each) if each.isdecimal() else each for each in path.split("/"))
        holder = facts
        for each in above:
            holder = holder[each]
        if value is GONE:
            del holder[last]
        else:
            holder[last] = value
        return _restored("snapshot", parts | {"checkpoint.json": json.dumps(facts).encode()}, folder)

    return make


GONE = object()
"""Instead of a value: the key is not there."""


def _no_facts(folder: Path) -> Read:
    return _restored("snapshot", dict(sound.checkpoint_parts("snapshot")) | {"checkpoint.json": b"1.5"}, folder)


def _state(name: str, table: str, change: Callable[[pa.Table], pa.Table]) -> Make:
    """A checkpoint, a table of whose state is another."""

    def make(folder: Path) -> Read:
        parts = dict(sound.checkpoint_parts(name))
        called = json.loads(parts["checkpoint.json"])["tables"]
        file = next(file for file, known in called.items() if known.endswith(table))
        changed = change(open_any(parts[file]).read_all())
        return _restored(name, parts | {file: sound.arrow(changed, stream=False, compression=None, rows=1000)}, folder)

    return make


def _in_state(column: str, number: int) -> Callable[[pa.Table], pa.Table]:
    """The same table, in whose last row of a column is another number."""

    def change(table: pa.Table) -> pa.Table:
        values = [*table[column].to_pylist()[:-1], number]
        changed = pa.array(values, table.field(column).type)
        return table.set_column(table.column_names.index(column), column, changed)

    return change


FOUND: dict[str, Make] = {
    "a text whose offsets pass its bytes": _in_column("text", "offsets", 4, 1 << 30),
    "a text whose offsets go back": _in_column("text", "offsets", 3, -5),
    "a text that is no UTF-8": _in_column("text", "text", 1, 255),
    "a list whose offsets pass its values": _in_column("lists", "offsets", 4, 1000),
    "a list whose offsets go back": _in_column("large lists", "offsets", 4, -1),
    "an index of a dictionary past its values": _in_column("dictionary", "indices", 2, 100),
    "an index of a dictionary below its values": _in_column("dictionary of numbers", "indices", 2, -1),
    "a view of bytes that are not there": _in_column("views", "views", 15, 1 << 30),
    "a view of a buffer that is not there": _in_column("views", "views", 14, 7),
    "a buffer that says that it unpacks to terabytes": _unpacked(1 << 47, stream=False),
    "a stream's buffer that says that it unpacks to terabytes": _unpacked(1 << 47, stream=True),
    # An optional INT64 called n becomes a required one: then its histograms of levels are too long.
    "a Parquet column whose statistics are of another": _parquet(b"\x15\x04%\x02\x18\x01n", b"\x15\x04%\x00\x18\x01n"),
    "a column of CSV whose name is no UTF-8": _file(b"start,end,\xff\n1,2,3\n", "given.csv"),
    "a column of CSV without a name": _file(b"start,end,k,,v\n1,2,x,3,4\n", "given.csv"),
    "a column of CSV whose name holds a U+0000": _file(b'start,end,k,"n\0v"\n1,2,x,3\n', "given.csv"),
    "a line of names that are a million": _file(sound.gzipped(b"start,end" + b"," * 1_000_000), "given.csv.gz"),
    "a line of names that are a million, after one of many lines": _file(
        sound.gzipped(b'start,end,"' + b"\n" * 100_000 + b'"' + b"," * 1_000_000), "given.csv.gz"
    ),
    "a store's name that counts more rows than there are numbers": _renamed("text", rows=1 << 64),
    "a store's batch that counts its rows in words": _store("text", _batches([["8", None]]), g.Store.read),
    "a checkpoint that is a number": _no_facts,
    "a checkpoint's counts that are nothing": _facts("ingest/0", None),
    "a checkpoint's counts that are no numbers": _facts("ingest/0/valid", "x"),
    "a checkpoint's counts of rules that are a number": _facts("ingest/0/invalid", 7),
    "a checkpoint without first rows": _facts("ingest/0/first", GONE),
    "a checkpoint of fewer nodes than there are": _facts("ctis", []),
    "a checkpoint whose CTI is past the end of time": _facts("ctis/1", (1 << 63) - 1),
    "a checkpoint whose promises are no times": _facts("promised/0/0", {}),
    "a checkpoint whose stores' gaps are no ranges": _facts("following/gone", 1.5),
    "a checkpoint whose tables have no names": _facts("tables/000.arrow", [[]]),
    "a column of state that is there twice": _state(
        "median", "/groups", lambda table: table.append_column("last", table["last"])
    ),
    "a group of a grid that has had no result for a million windows": _state("days", "/groups", _in_state("last", 0)),
    "an event that waits to be in too many windows": _state("squares", "/waiting", _in_state("high", 10**8)),
    "an event that ends after too many windows": _state("hopping", "/ending", _in_state("high", (1 << 31) - 1)),
    "an event that is kept for too many windows": _state("kept", "/alive", _in_state("high", 10**9)),
    "a table of state without columns": _state("snapshot", "/groups", lambda table: table.select([])),
}
"""By what is wrong with them."""


def draw(number: int, folder: Path) -> Case:
    """The file of a place in the table."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    what = list(FOUND)[number]
    return Case(what, FOUND[what](folder))
