"""Files of state: tables one behind the other as Arrow IPC files, which are written once and never change."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
import pyarrow.ipc

from gpu_ops.core.json_kinds import CRC, Object, Spelled, Whole
from gpu_ops.errors import SourceError
from gpu_ops.microbatches.folders import Folder, reading

_ALIGNED = 64
"""Each table begins at a multiple of so many bytes, so that what maps the file has its values aligned."""

SUFFIX = ".state"

NAME = rf"(\d{{12}})-[0-9A-Za-z-]*{re.escape(SUFFIX)}"
"""The names of state files: the number of the checkpoint that each was written for, and letters that lead nowhere."""

OLDER = "Restore an older checkpoint of the folder: number=."


@dataclass(frozen=True)
class StateFile:
    """A file of a checkpoint folder.

    Attributes:
        name: Its name in the folder.
        size: The number of bytes.
        crc: The CRC-32 of the bytes.
    """

    name: str
    size: int
    crc: int

    kind = Object({"name": Spelled(NAME, "the name of a state file"), "size": Whole(), "crc": CRC})
    """What `to_json` gives."""

    def to_json(self) -> dict[str, Any]:
        """It, as a manifest names it."""
        return {"name": self.name, "size": self.size, "crc": self.crc}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Self:
        """What `to_json` gave."""
        return cls(said["name"], said["size"], said["crc"])

    def checked(self, folder: Folder, content: pa.Buffer) -> pa.Buffer:
        """The bytes, if they are those that were written.

        Raises:
            SourceError: They are not.
        """
        if content.size != self.size or zlib.crc32(content) != self.crc:
            raise SourceError(f"{folder.address(self.name)} is damaged: it is not what was written.", remedy=OLDER)
        return content


class StateWriter:
    """A new file that tables are written to.

    Attributes:
        name: Its name.
        size: How many bytes there are so far.
    """

    def __init__(self, name: str, file: Any) -> None:
        self.name, self._file, self.size, self._crc = name, file, 0, 0
        self._begin = 0

    def add(self, table: pa.Table) -> tuple[int, int]:
        """(where the table begins, how many bytes it takes)."""
        self.write(bytes(-self.size % _ALIGNED))
        self._begin = begin = self.size
        with pa.PythonFile(self, "w") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        return begin, self.size - begin

    def made(self) -> StateFile:
        """The file that was written."""
        return StateFile(self.name, self.size, self._crc)

    # What Arrow asks of a file

    closed = False

    def write(self, data: Any) -> int:
        """More bytes."""
        view = memoryview(data)
        self._file.write(view)
        self._crc, self.size = zlib.crc32(view, self._crc), self.size + view.nbytes
        return view.nbytes

    def tell(self) -> int:
        """Where it is in the table: to a reader each is a file of its own."""
        return self.size - self._begin

    def flush(self) -> None:
        """Do nothing: the folder flushes it at its end."""

    def close(self) -> None:
        """Do nothing: other tables follow."""


@contextmanager
def writing_state(folder: Folder, name: str) -> Iterator[StateWriter]:
    """A new file in a folder. Its bytes are on disk when the block ends."""
    with folder.create(name) as file:
        yield StateWriter(name, file)


def read_file(folder: Folder, file: StateFile) -> pa.Buffer:
    """The bytes of a file, checked.

    Raises:
        SourceError: It is missing, damaged, or cannot be read.
    """
    try:
        with reading(folder, file.name):
            content = folder.read(file.name, file.size)
    except FileNotFoundError as error:
        raise SourceError(
            f"{folder.address(file.name)} is missing, which a checkpoint needs.",
            remedy=f"Put it back from a copy. {OLDER} If another query saves there now, restore its newest.",
        ) from error
    return file.checked(folder, content)
