"""From a number to a damaged file and what is asked of it: always the same."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import gpu_ops as g
from gpu_ops.microbatches.names import IDENTITY, Sealed, parse
from tests.fuzz import readers, runtimes, sound
from tests.fuzz.child import Case
from tests.fuzz.damage import damage_bytes, damage_json, damage_table
from tests.fuzz.framing import damage_framed, open_any


def _arrow_file(chance: random.Random, folder: Path, *, damaged: bool) -> Case:
    return _arrow(chance, folder, damaged=damaged, stream=False)


def _arrow_stream(chance: random.Random, folder: Path, *, damaged: bool) -> Case:
    return _arrow(chance, folder, damaged=damaged, stream=True)


def _arrow(chance: random.Random, folder: Path, *, damaged: bool, stream: bool) -> Case:
    names = list(sound.MORE if damaged else sound.SOURCES)
    name, compression = chance.choice(names), chance.choice([None, None, "zstd", "lz4"])
    data, other = (_arrow_bytes(each, compression, stream=stream) for each in (name, chance.choice(names)))
    said = "as it is"
    if damaged:
        said, data = damage_arrow(chance, data, other)
    return _file(folder, f"{name} {compression or 'plain'}: {said}", "given.arrow", data, name, chance)


@cache
def _arrow_bytes(name: str, compression: str | None, *, stream: bool) -> bytes:
    return sound.arrow(sound.MORE[name][0], stream=stream, compression=compression)


def damage_arrow(chance: random.Random, data: bytes, other: bytes) -> tuple[str, bytes]:
    """An Arrow file whose bytes are damaged anywhere, or whose framing is whole."""
    return damage_framed(chance, data) if chance.random() < 0.6 else damage_bytes(chance, data, [other])


_NOT_IN_PARQUET = {
    *("float16", "runs", "runs of numbers", "union", "dense union", "lists as views", "large lists as views"),
    *("interval", "empty structs", "dictionary of lists", "dictionary of dates"),
}
"""What pyarrow writes to no Parquet file, or reads from none."""


def _parquet(chance: random.Random, folder: Path, *, damaged: bool) -> Case:
    name = chance.choice([each for each in (sound.MORE if damaged else sound.SOURCES) if each not in _NOT_IN_PARQUET])
    table = sound.MORE[name][0]
    if damaged and chance.random() < 0.15:
        other = chance.choice(list(sound.TABLES))
        data = sound.parquet_of_another_schema(table, sound.TABLES[other].schema)
        return _file(folder, f"{name}: says that it is {other}", "given.parquet", data, name, chance)
    data, said = sound.parquet(table, chance), "as it is"
    if damaged:
        said, data = damage_bytes(chance, data, [sound.parquet(sound.TABLES["int64"], chance)])
    return _file(folder, f"{name}: {said}", "given.parquet", data, name, chance)


def _csv(chance: random.Random, folder: Path, *, damaged: bool) -> Case:
    name = chance.choice(sound.IN_TEXT)
    data, said = sound.csv(sound.SOURCES[name][0]), "as it is"
    if damaged:
        said, data = damage_bytes(chance, data, [sound.csv(sound.EDGED)])
    return _file(folder, f"{name}: {said}", "given.csv", data, name, chance)


def _csv_gz(chance: random.Random, folder: Path, *, damaged: bool) -> Case:
    name = chance.choice(sound.IN_TEXT)
    text, said = sound.csv(sound.SOURCES[name][0]), "as it is"
    inside = chance.random() < 0.5
    if damaged and inside:
        said, text = damage_bytes(chance, text, [sound.csv(sound.EDGED)])
    data = sound.gzipped(text)
    if damaged and not inside:
        said, data = damage_bytes(chance, data, [sound.gzipped(b"x" * 1000)])
    return _file(folder, f"{name} {'within' * inside}: {said}", "given.csv.gz", data, name, chance)


def _file(folder: Path, what: str, name: str, data: bytes, source: str, chance: random.Random) -> Case:
    path = folder / name
    path.write_bytes(data)
    return Case(what, partial(readers.read_file, path, source, chance))


def _store(chance: random.Random, folder: Path, *, damaged: bool) -> Case:
    name = chance.choice([each for each in sound.TABLES if each != "no row"])
    files = dict(sound.store_files(name))
    said = "as it is"
    if damaged:
        file = chance.choice([*(each for each in files if parse(each)), IDENTITY])
        said, changed = _damage_stored(chance, file, files[file])
        del files[file]
        files |= changed
    path = folder / "store"
    path.mkdir()
    for each, content in files.items():
        (path / each).write_bytes(content)
    return Case(f"{name}: {said}", partial(readers.read_store, path, name, chance))


def _damage_stored(chance: random.Random, file: str, data: bytes) -> tuple[str, dict[str, bytes]]:
    """A file of a store that is damaged as it lies there; or one whose name tells of the damaged bytes."""
    sealed = parse(file)
    if sealed is None:
        said, data = damage_json(chance, data) if chance.random() < 0.7 else damage_bytes(chance, data, [data])
        return f"{file}: {said}", {file: data}
    how = chance.random()
    if how < 0.15:
        said, data = damage_bytes(chance, data, [data])
        return f"batch {sealed.first}: {said}", {file: data}
    if how < 0.25:
        named = _other_name(chance, sealed)
        return f"batch {sealed.first} is called {named}", {named: data}
    if how < 0.45:
        said, data = _other_metadata(chance, data)
    elif how < 0.6:
        said, table = damage_table(chance, open_any(data).read_all())
        data = sound.arrow(table, stream=False, compression="zstd", rows=100)
    elif how < 0.85:
        plain = sound.arrow(open_any(data).read_all(), stream=False, compression=None, rows=100)
        said, data = damage_framed(chance, plain)
    else:
        said, data = damage_arrow(chance, data, data)
    mended = replace(sealed, size=len(data), crc=crc32(data))
    return f"batch {sealed.first}, and its CRC is mended: {said}", {mended.name: data}


def _other_name(chance: random.Random, sealed: Sealed) -> str:
    field = chance.choice(["first", "last", "commit", "rows", "start", "end", "cti", "size", "expired"])
    number = chance.choice([0, 1, 5, -1, 1 << 40, (1 << 63) - 1, 1 << 64, 10**30, None])
    try:
        changed: dict[str, Any] = {field: number if field != "expired" else True}
        return replace(sealed, **changed).name
    except (TypeError, ValueError):
        return f"x{sealed.name}"


def _other_metadata(chance: random.Random, data: bytes) -> tuple[str, bytes]:
    table = open_any(data).read_all()
    ((key, text),) = table.schema.metadata.items()
    said, changed = damage_json(chance, text)
    made = table.replace_schema_metadata({key: changed})
    return f"metadata: {said}", sound.arrow(made, stream=False, compression="zstd", rows=100)


def _checkpoint_facts(chance: random.Random, folder: Path, *, damaged: bool) -> Case:
    return _facts_of(chance, _query(chance), folder, damaged=damaged)


def _checkpoint_tables(chance: random.Random, folder: Path, *, damaged: bool) -> Case:
    return _tables_of(chance, _query(chance), folder, damaged=damaged)


def _runtime_facts(chance: random.Random, folder: Path, *, damaged: bool) -> Case:
    return _facts_of(chance, _runtime(chance), folder, damaged=damaged)


def _runtime_tables(chance: random.Random, folder: Path, *, damaged: bool) -> Case:
    return _tables_of(chance, _runtime(chance), folder, damaged=damaged)


class _Checkpoint(NamedTuple):
    """A sound checkpoint.

    Attributes:
        name: What it is of.
        parts: Its members.
        read: Goes on from a file.
    """

    name: str
    parts: dict[str, bytes]
    read: Callable[[Path], None]

    def case(self, folder: Path, said: str, data: bytes) -> Case:
        """A file that lies there."""
        path = folder / "some.checkpoint"
        path.write_bytes(data)
        return Case(f"{self.name}: {said}", partial(self.read, path))


def _query(chance: random.Random) -> _Checkpoint:
    name = chance.choice(list(sound.PLANS))
    return _Checkpoint(
        name, dict(sound.checkpoint_parts(name)), partial(readers.read_checkpoint, name=name, chance=chance)
    )


def _runtime(chance: random.Random) -> _Checkpoint:
    name = chance.choice(list(runtimes.TEXTS))
    return _Checkpoint(name, dict(runtimes.parts(name)), partial(runtimes.read, chance=chance))


def _facts_of(chance: random.Random, made: _Checkpoint, folder: Path, *, damaged: bool) -> Case:
    parts, said = made.parts, "as it is"
    if damaged and chance.random() < 0.8:
        said, parts["checkpoint.json"] = damage_json(chance, parts["checkpoint.json"])
    elif damaged:
        said, parts["checkpoint.json"] = damage_bytes(chance, parts["checkpoint.json"], [parts["checkpoint.json"]])
    return made.case(folder, said, sound.zipped(parts))


def _tables_of(chance: random.Random, made: _Checkpoint, folder: Path, *, damaged: bool) -> Case:
    parts, said = made.parts, "as it is"
    tables = [each for each in parts if each.endswith(".arrow")]
    how = chance.random()
    if damaged and how < 0.15:
        said, data = damage_bytes(chance, sound.zipped(parts), [sound.zipped(parts)])
        return made.case(folder, f"the archive: {said}", data)
    if damaged and tables:
        file = chance.choice(tables)
        if how < 0.6:
            said, table = damage_table(chance, open_any(parts[file]).read_all())
            parts[file] = sound.arrow(table, stream=False, compression=None, rows=1000)
        elif how < 0.95:
            said, parts[file] = damage_arrow(chance, parts[file], parts[chance.choice(tables)])
        else:
            other = chance.choice(tables)
            said, parts[file], parts[other] = f"swapped with {other}", parts[other], parts[file]
        said = f"{file} ({_called(parts, file)}): {said}"
    return made.case(folder, said, sound.zipped(parts))


def _called(parts: dict[str, bytes], file: str) -> str:
    return str(json.loads(parts["checkpoint.json"])["tables"][file])


KINDS: dict[str, Callable[..., Case]] = {
    "Arrow file": _arrow_file,
    "Arrow stream": _arrow_stream,
    "Parquet": _parquet,
    "CSV": _csv,
    "CSV, compressed": _csv_gz,
    "store": _store,
    "checkpoint's facts": _checkpoint_facts,
    "checkpoint's tables": _checkpoint_tables,
    "runtime's facts": _runtime_facts,
    "runtime's tables": _runtime_tables,
}


def draw(seed: int, folder: Path) -> Case:
    """The damaged file of a number; below zero, a file that is sound.

    Args:
        seed: The number; its kind is the one of its place in the round of kinds.
        folder: Where it is made; what was there before is removed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kind = list(KINDS)[seed % len(KINDS)]
    case = KINDS[kind](random.Random(seed), folder, damaged=seed >= 0)
    return Case(f"{kind}: {case.what}", case.read)


def warm(folder: Path) -> None:
    """Ask sound files everything once, so that nothing has to be compiled or imported later."""
    chance = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("int64", "float64", "text"):
        table, source = sound.SOURCES[name]
        path = folder / "given.arrow"
        path.write_bytes(sound.arrow(table, stream=False, compression=None))
        events = g.events(str(path), **source)
        for query in readers.QUERIES.values():
            query(events).collect(device="cpu")
    for number, name in enumerate(sound.PLANS):
        path = folder / f"{number}.checkpoint"
        path.write_bytes(sound.zipped(sound.checkpoint_parts(name)))
        readers.read_checkpoint(path, name, chance)
    for name in runtimes.TEXTS:
        path.write_bytes(sound.zipped(runtimes.parts(name)))
        runtimes.read(path, chance)
