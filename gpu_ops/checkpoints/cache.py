"""State files on the machine that uses them: fetched and checked once, then mapped."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from gpu_ops.checkpoints.state_files import StateFile, read_file
from gpu_ops.errors import SourceError
from gpu_ops.microbatches.files import make_folder
from gpu_ops.microbatches.folders import Folder

MOST_BYTES = 8 << 30
"""How many bytes a cache has at most by default."""


class Cache:
    """A directory of this machine with copies of state files, by their names, sizes and checksums.

    Several processes may use one. A file is compared with its checksum when it comes in, and is not written to after
    that; so a file in it is mapped as it is. The directory is the user's own: nobody else may write there.

    Args:
        directory: The directory. It is made if it is missing.
        most_bytes: How many bytes it may hold. What was not used for the longest time goes first.

    Raises:
        SourceError: The directory cannot be made.
    """

    def __init__(self, directory: Path, most_bytes: int = MOST_BYTES) -> None:
        self._directory, self._most = directory, most_bytes
        try:
            make_folder(directory.parent)
            with suppress(FileExistsError):
                directory.mkdir(mode=0o700)
        except OSError as error:
            raise SourceError(f"{directory} cannot be made: {error}", remedy="Give another directory.") from error

    def fetch(self, folder: Folder, file: StateFile) -> pa.Buffer:
        """The bytes of a file of a folder, checked.

        Raises:
            SourceError: It is missing, damaged, or cannot be read.
        """
        path = self._path(file)
        found = _mapped(path, file.size)
        if found is not None:
            return found
        content = read_file(folder, file)
        # Without it the file is read again: a full disk is no reason to stop.
        with suppress(OSError):
            self._put(path, content)
            self._make_room()
        return content

    def of(self, folder: Folder) -> Callable[[StateFile], pa.Buffer]:
        """`fetch` for a folder."""
        return lambda file: self.fetch(folder, file)

    def is_sound(self, file: StateFile, by: str) -> bool:
        """Whether somebody on this machine has found a file's tables to be what a declaration asks for.

        Args:
            file: The file.
            by: What `note_sound` was told.
        """
        return self._note(file, by).exists()

    def note_sound(self, file: StateFile, by: str) -> None:
        """Note that a file's tables are what a declaration asks for.

        Args:
            file: The file. What it holds never changes, so that need not be found out again.
            by: A name for whose declaration it is, of letters and digits.
        """
        with suppress(OSError):  # it is found out again
            self._note(file, by).touch()

    def _path(self, file: StateFile) -> Path:
        return self._directory / f"{file.crc:08x}-{file.size}-{file.name}"

    def _note(self, file: StateFile, by: str) -> Path:
        return self._path(file).with_suffix(f".{by}.sound")

    def _put(self, path: Path, content: pa.Buffer) -> None:
        unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        try:
            with unfinished.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        finally:
            with suppress(FileNotFoundError):
                unfinished.unlink()

    def _make_room(self) -> None:
        found = []
        with os.scandir(self._directory) as listing:
            for entry in listing:
                with suppress(FileNotFoundError):
                    known = entry.stat()
                    found.append((known.st_mtime, known.st_size, entry.path))
        held = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if held <= self._most:
                return
            Path(path).unlink(missing_ok=True)
            held -= size


def _mapped(path: Path, size: int) -> pa.Buffer | None:
    """A file's bytes, mapped; None if it is not there."""
    try:
        os.utime(path)
        with pa.memory_map(str(path)) as file:
            content = file.read_buffer()
    except FileNotFoundError:
        return None
    return content if content.size == size else None
