"""States in files: what has not been written yet is written, and what has been is named."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from gpu_ops.checkpoints.state_files import OLDER, SUFFIX, StateFile, StateWriter, read_file, writing_state
from gpu_ops.core import arrow_files
from gpu_ops.core.arrow_buffers import booleans, integers, to_arrow
from gpu_ops.core.bounds import TRUSTLESS, Bounds, naming
from gpu_ops.core.json_kinds import ANY, TEXT, Many, Object, Whole, defect
from gpu_ops.core.state_parts import ROW, Beyond, NewerValues, Parts, StatePart
from gpu_ops.errors import SourceError
from gpu_ops.microbatches.folders import Folder, writing

_APART = 1 << 20
"""From how many bytes on rows get a file of their own; smaller ones share one, which costs less to write."""

_PLACE = Object({"file": TEXT, "at": Whole(), "size": Whole()})
_GONE = Object({"rows": _PLACE, "count": Whole()})
_BEYOND = Object({"column": TEXT, "limit": Whole(-(2**63), 2**63 - 1)})
_CHANGED = Object({"rows": _PLACE, "name": TEXT})
_PART = Object(
    {"rows": _PLACE}, {"name": TEXT, "passed": Whole(), "beyond": _BEYOND, "gone": _GONE, "changed": Many(_CHANGED)}
)
_STATE = Object({"files": Many(StateFile.kind), "tables": Object(others=Many(_PART)), "facts": Object(others=ANY)})

Fetch = Callable[[StateFile], pa.Buffer]


@dataclass(frozen=True)
class SavedRows:
    """Where a table is: its file, where it begins there, and how many bytes it takes."""

    file: StateFile
    at: int
    size: int

    def to_json(self) -> dict[str, Any]:
        """It, as a manifest names it."""
        return {"file": self.file.name, "at": self.at, "size": self.size}


@dataclass(frozen=True)
class SavedGone:
    """Which rows of a part are gone: as a table, and how many they are."""

    rows: SavedRows
    count: int


@dataclass(frozen=True)
class SavedNewerValues:
    """Newer values of rows of a part, under their name."""

    rows: SavedRows
    name: str


@dataclass(frozen=True)
class SavedPart:
    """A part of a table in files; see `gpu_ops.core.state_parts.StatePart`."""

    rows: SavedRows
    name: str | None = None
    passed: int = 0
    beyond: Beyond | None = None
    gone: SavedGone | None = None
    changed: tuple[SavedNewerValues, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """It, as a manifest names it; what says nothing is left out."""
        made: dict[str, Any] = {"rows": self.rows.to_json()}
        if self.name is not None:
            made["name"] = self.name
        if self.passed:
            made["passed"] = self.passed
        if self.beyond is not None:
            made["beyond"] = {"column": self.beyond.column, "limit": self.beyond.limit}
        if self.gone is not None:
            made["gone"] = {"rows": self.gone.rows.to_json(), "count": self.gone.count}
        if self.changed:
            made["changed"] = [{"rows": each.rows.to_json(), "name": each.name} for each in self.changed]
        return made


@dataclass(frozen=True)
class SavedState:
    """A whole state in files of one folder: all that is needed to go on from it.

    Attributes:
        tables: The parts of its tables, by the names of the tables.
        facts: The rest, as JSON values.
    """

    tables: Mapping[str, tuple[SavedPart, ...]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def files(self) -> tuple[StateFile, ...]:
        """The files that it needs, each once."""
        places = (place for parts in self.tables.values() for part in parts for place in _places(part))
        return tuple(dict.fromkeys(place.file for place in places))

    @property
    def lasting(self) -> frozenset[StateFile]:
        """The large files that hold rows with a name alone: later states are likely to need them again."""
        passing = (part.rows.file for parts in self.tables.values() for part in parts if part.name is None)
        gone = (part.gone.rows.file for parts in self.tables.values() for part in parts if part.gone is not None)
        return frozenset(file for file in self.files if file.size >= _APART) - {*passing, *gone}

    def to_json(self) -> dict[str, Any]:
        """It, as JSON values."""
        return {
            "files": [each.to_json() for each in self.files],
            "tables": {name: [part.to_json() for part in parts] for name, parts in self.tables.items()},
            "facts": dict(self.facts),
        }

    @classmethod
    def from_json(cls, of: str, said: Any) -> Self:
        """What `to_json` gave.

        Args:
            of: What it was read from, as the beginning of an error: "The checkpoint c".
            said: JSON values.

        Raises:
            SourceError: It is something else.
        """
        wrong = defect(said, _STATE)
        if wrong is not None:
            raise SourceError(f"{of} is damaged: {wrong}.", remedy=OLDER)
        files = {each["name"]: StateFile.from_json(each) for each in said["files"]}

        def place(there: Mapping[str, Any]) -> SavedRows:
            file = files.get(there["file"])
            if file is None or there["at"] + there["size"] > file.size:
                raise SourceError(f"{of} is damaged: it has no bytes of {there['file']!r} there.", remedy=OLDER)
            return SavedRows(file, there["at"], there["size"])

        def part(each: Mapping[str, Any]) -> SavedPart:
            beyond, gone = each.get("beyond"), each.get("gone")
            return SavedPart(
                place(each["rows"]),
                each.get("name"),
                each.get("passed", 0),
                None if beyond is None else Beyond(beyond["column"], beyond["limit"]),
                None if gone is None else SavedGone(place(gone["rows"]), gone["count"]),
                tuple(SavedNewerValues(place(newer["rows"]), newer["name"]) for newer in each.get("changed", ())),
            )

        tables = {name: tuple(map(part, parts)) for name, parts in said["tables"].items()}
        return cls(tables, said["facts"])


def _places(part: SavedPart) -> Iterator[SavedRows]:
    yield part.rows
    if part.gone is not None:
        yield part.gone.rows
    for each in part.changed:
        yield each.rows


def write_state(
    folder: Folder, prefix: str, parts: Parts, facts: Mapping[str, Any], before: SavedState | None = None
) -> SavedState:
    """Write what of a state is in no file yet.

    Its cost is what is new: parts with a name that ``before`` has are not read. When this returns, the bytes of all
    files are on disk, and `Folder.sync` makes their names last. Until a manifest names them they are garbage.

    Args:
        folder: The folder.
        prefix: What the names of new files begin with: `gpu_ops.checkpoints.manifests.prefix` makes one. A random end
            keeps the files of two attempts apart.
        parts: The state's tables, part by part.
        facts: The rest of the state, as JSON values.
        before: A state whose files are in the folder, and stay there.

    Raises:
        SourceError: The file system refuses.
    """
    saved = [] if before is None else [part for each in before.tables.values() for part in each]
    known = {part.name: part for part in saved if part.name is not None}
    with writing(folder), _Files(folder, f"{prefix}{secrets.token_hex(8)}") as files:
        tables = {name: [_write(files, known, part) for part in each] for name, each in parts.items()}
    return SavedState({name: tuple(map(files.whole, each)) for name, each in tables.items()}, facts)


def _write(files: _Files, saved: Mapping[str, SavedPart], part: StatePart) -> SavedPart:
    known = None if part.name is None else saved.get(part.name)
    rows = files.add(part.rows()) if known is None else known.rows
    gone = None
    if part.gone is not None and (count := int(np.count_nonzero(part.gone))):
        # Rows that are gone stay so: as many are the same ones.
        gone = known.gone if known is not None else None
        if gone is None or gone.count != count:
            gone = SavedGone(files.add(_gone_table(part.gone, count)), count)
    newer = {} if known is None else {each.name: each for each in known.changed}
    changed = tuple(
        newer.get(each.name) or SavedNewerValues(files.add(each.rows()), each.name) for each in part.changed
    )
    return SavedPart(rows, part.name, part.passed, part.beyond, gone, changed)


class _Files:
    """The new files of a state: a shared one, and one for each large table. Each is opened when it is needed."""

    def __init__(self, folder: Folder, stem: str) -> None:
        self._folder, self._stem = folder, stem
        self._shared: StateWriter | None = None
        self._apart = 0
        self._open = ExitStack()
        self._made: dict[str, StateFile] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)
        if self._shared is not None:
            self._add(self._shared)

    def _add(self, written: StateWriter) -> StateFile:
        file = written.made()
        self._made[file.name] = file
        return file

    def add(self, table: pa.Table) -> SavedRows:
        """Write a table."""
        if table.nbytes < _APART:
            if self._shared is None:
                name = f"{self._stem}{SUFFIX}"
                self._shared = self._open.enter_context(writing_state(self._folder, name))
            at, size = self._shared.add(table)
            # Its size and checksum are not known before its end.
            return SavedRows(StateFile(self._shared.name, 0, 0), at, size)
        self._apart += 1
        with writing_state(self._folder, f"{self._stem}-{self._apart}{SUFFIX}") as alone:
            at, size = alone.add(table)
        return SavedRows(self._add(alone), at, size)

    def whole(self, part: SavedPart) -> SavedPart:
        """A part whose files are described as they are now that they are whole."""
        gone = None if part.gone is None else replace(part.gone, rows=self._whole(part.gone.rows))
        changed = tuple(replace(each, rows=self._whole(each.rows)) for each in part.changed)
        return replace(part, rows=self._whole(part.rows), gone=gone, changed=changed)

    def _whole(self, rows: SavedRows) -> SavedRows:
        return replace(rows, file=self._made.get(rows.file.name, rows.file))


def _gone_table(gone: Any, count: int) -> pa.Table:
    """Rows that are gone: by their indices, or if that is shorter as bits."""
    if 4 * count < len(gone) // 8:
        return pa.table({"row": to_arrow(np.flatnonzero(gone).astype(np.uint32), pa.uint32())})
    return pa.table({"gone": to_arrow(gone, pa.bool_())})


def read_state(
    folder: Folder,
    state: SavedState,
    bounds: Bounds = TRUSTLESS,
    fetch: Fetch | None = None,
    is_sound: Callable[[StateFile], bool] = lambda _: False,
) -> Parts:
    """The parts of a state: every byte is compared with its checksum, every value is validated.

    Args:
        folder: Where its files are.
        state: What `write_state` gave.
        bounds: How far the files are trusted.
        fetch: Gives the checked bytes of a file, if not by reading it in the folder: `gpu_ops.checkpoints.cache`.
        is_sound: Whether the tables of a file were validated before, and found to be what their owner asks for.

    Raises:
        SourceError: A file is missing, damaged, too large, or cannot be read.
    """
    content = {each: read_file(folder, each) if fetch is None else fetch(each) for each in state.files}
    sound = {each for each in content if is_sound(each)}

    def table(rows: SavedRows) -> pa.Table:
        named = f"{folder.address(rows.file.name)}, byte {rows.at}"
        trusted = replace(bounds, trust=True) if rows.file in sound else bounds
        with naming(named):
            return arrow_files.read_table(content[rows.file].slice(rows.at, rows.size), None, named, trusted)

    def part(saved: SavedPart) -> StatePart:
        rows = table(saved.rows)
        of = f"{folder.address(saved.rows.file.name)} is damaged"
        _check_part(of, saved, rows)
        gone = None if saved.gone is None else _gone(of, table(saved.gone.rows), rows.num_rows)
        changed = [
            _changed(f"{folder.address(each.rows.file.name)} is damaged", each, table(each.rows), rows)
            for each in saved.changed
        ]
        is_known = saved.rows.file in sound and saved.name is not None
        return StatePart(lambda: rows, saved.name, saved.passed, saved.beyond, gone, is_known, changed)

    return {name: tuple(map(part, parts)) for name, parts in state.tables.items()}


def _check_part(of: str, saved: SavedPart, rows: pa.Table) -> None:
    if saved.passed > rows.num_rows:
        raise SourceError(f"{of}: time has passed more rows than it has.", remedy=OLDER)
    if saved.beyond is not None:
        column = saved.beyond.column
        kind = rows.schema.field(column).type if column in rows.column_names else None
        if kind is None or not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind)):
            raise SourceError(f"{of}: it has no places {column!r}.", remedy=OLDER)


def _changed(of: str, saved: SavedNewerValues, table: pa.Table, rows: pa.Table) -> NewerValues:
    """Newer values, of rows that are there, and of columns that the rows have."""
    first, *others = table.schema
    right = first.equals(pa.field(ROW, pa.uint32())) and not table.column(0).null_count
    right = right and all(each in rows.schema for each in others)
    at = integers(table.column(0).combine_chunks()).view(np.uint32).astype(np.int64) if right else None
    if at is None or (len(at) and (int(at[-1]) >= rows.num_rows or bool((np.diff(at) <= 0).any()))):
        raise SourceError(f"{of}: it has newer values of rows, and does not say of which.", remedy=OLDER)
    return NewerValues(saved.name, lambda: table)


def _gone(of: str, table: pa.Table, rows: int) -> Any:
    made = np.zeros(rows, np.bool_)
    if table.schema.equals(pa.schema([("gone", pa.bool_())])) and table.num_rows == rows:
        return booleans(table["gone"].combine_chunks())
    if table.schema.equals(pa.schema([("row", pa.uint32())])):
        at = integers(table["row"].combine_chunks()).view(np.uint32)
        if not len(at) or int(at.max()) < rows:
            made[at] = True
            return made
    raise SourceError(f"{of}: it tells of rows that are gone, and does not have them.", remedy=OLDER)
