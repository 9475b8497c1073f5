"""What comes from outside this process: how much of it is unpacked, and what other libraries say against it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpu_ops.errors import GpuOpsError, PlanError, SourceError

_FOLD = 64
"""How many times its own size a file may unpack to, all in all, unless it is told."""

_CGROUP = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True)
class Bounds:
    """How far bytes from outside are trusted.

    Attributes:
        trust: Whether the values in them are taken as they are. Else all that are read are validated.
        max_bytes: How many bytes a file may unpack to, and so how many a piece of it may. None for half of this
            machine's memory; of a file as a whole, which is read piece by piece, for 64 times its size where that is
            more.

    Raises:
        PlanError: The bound is less than a byte.

    Examples:
        >>> Bounds(max_bytes=1 << 20).meter("rides.arrow", 4096).total
        1048576
    """

    trust: bool = False
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.max_bytes is not None and self.max_bytes < 1:
            raise PlanError("max_bytes must be at least 1.", remedy="Leave it out for what this machine's memory lets.")

    def meter(self, path: str, size: int) -> Meter:
        """What counts the bytes of one reading of a file of so many bytes."""
        piece = self.max_bytes or memory() // 2
        return Meter(path, piece, self.max_bytes or max(piece, _FOLD * size))


TRUSTLESS = Bounds()
"""What holds unless it is told otherwise."""


class Meter:
    """Counts what one reading of a file unpacks to.

    Attributes:
        path: The file.
        piece: How many bytes may be unpacked at a time.
        total: How many in all.
    """

    def __init__(self, path: str, piece: int, total: int) -> None:
        self.path, self.piece, self.total = path, piece, total
        self._count = 0

    def take(self, size: int) -> None:
        """Count a piece.

        Raises:
            SourceError: It is too large, or with it the file is.
        """
        self.check(size)
        self._count += size
        if self._count > self.total:
            raise self._too_large(f"It unpacks to more than the {_shown(self.total)}", self._count)

    def check(self, size: int) -> None:
        """Look at a piece's size, and do not count it.

        Raises:
            SourceError: It is too large.
        """
        if size > self.piece:
            raise self._too_large(f"It has a piece of {_shown(size)}, more than the {_shown(self.piece)}", size)

    def _too_large(self, what: str, size: int) -> SourceError:
        return SourceError(
            f"{self.path} is not read: {what} that max_bytes lets through.",
            remedy=f"If you know whom it is from, and there is memory for it, say max_bytes={1 << size.bit_length()}.",
        )


@cache
def memory() -> int:
    """The bytes of memory that this process may come to have: the machine's, or its container's."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # there is no container, or it has no limit ("max")
        found = min(found, int(_CGROUP.read_text()))
    return found


def _shown(size: int) -> str:
    for unit, width in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << width:
            return f"{size / (1 << width):,.1f} {unit}"
    return f"{size} bytes"


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Turn whatever another library raises while a file is read into an error that names the file.

    Raises:
        SourceError: Something was raised that is no error of ours.
    """
    try:
        yield
    except GpuOpsError:
        raise
    except Exception as error:
        raise unreadable(path, error) from error


def unreadable(path: str, error: Exception) -> SourceError:
    """The error of ours for what another library raised while it read a file."""
    if isinstance(error, MemoryError):
        return SourceError(
            f"There is no memory to read {path}: {error}",
            remedy="See that it is whole: what it says of its own size may be wrong. Else read fewer columns.",
        )
    if isinstance(error, PermissionError):
        return SourceError(
            f"{path} may not be read by this process: {error}. That is no sign of damage.",
            remedy="Give the user that runs it the right to read the file and to enter the folders above it.",
        )
    if isinstance(error, FileNotFoundError):
        return SourceError(f"{path} is gone: {error}", remedy="Put it back, or make the stream anew without it.")
    if isinstance(error, OSError) and error.errno is not None:
        return SourceError(
            f"{path} cannot be read: {error}. That is no sign of damage.",
            remedy="See that the disk and the connection work; then try again.",
        )
    said = f"{error}" or "without a word"
    if not isinstance(error, (ValueError, OSError)):
        said = f"{type(error).__name__}: {said}"
    return SourceError(f"{path} cannot be read: {said}", remedy="See that it is whole, and of the format that it says.")
