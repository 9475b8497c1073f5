"""Limits: the bytes that files unpack to, the rows that fit into memory; and errors of libraries that read files."""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from gpu_ops.core.arguments import flag
from gpu_ops.errors import GpuOpsError, OutOfMemoryError, PlanError, SourceError, shown

_FOLD = 64
"""How many times its own size a file may unpack to by default."""

_CGROUP = Path("/sys/fs/cgroup/memory.max")
_STATM = Path("/proc/self/statm")

_COLUMNS = 1 << 15

_OFTEN = 1 << 22
"""Rows between two looks at how much memory is left."""

S = TypeVar("S", bound=Sized)


@dataclass(frozen=True)
class Bounds:
    """How far a file or stream is trusted.

    Attributes:
        trust: Whether its values are used unchecked. Else all values that are read are validated.
        max_bytes: How many bytes a file, and so a piece of it, may unpack to. None allows a piece half of this
            machine's memory, and a file, which is read piece by piece, that or 64 times its size if that is more.

    Raises:
        PlanError: The bound is less than a byte, or no whole number; ``trust`` is neither True nor False.

    Examples:
        >>> Bounds(max_bytes=1 << 20).meter("rides.arrow", 4096).total
        1048576
    """

    trust: bool = False
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        flag(self.trust, name="trust")
        most: object = self.max_bytes
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
            raise PlanError(
                f"max_bytes is {shown(most)}, and not a whole number of at least 1.",
                remedy="Leave it out for what this machine's memory lets.",
            )

    def refuse_columns(self, path: str, count: int) -> None:
        """Refuse a file of absurdly many columns: each takes kilobytes of memory, and few bytes in the file.

        Raises:
            SourceError: It has more than 32,768, and is not trusted.
        """
        if count > _COLUMNS and not self.trust:
            raise SourceError(
                f"{path} has {count:,} columns, more than the {_COLUMNS:,} that a file has which is not trusted.",
                remedy="See that it is whole, and what separates its columns. If you know whom it is from: trust=True.",
            )

    def meter(self, path: str, size: int) -> Meter:
        """A counter for one read of a file of known size."""
        piece = self.max_bytes or memory() // 2
        return Meter(path, piece, self.max_bytes or max(piece, _FOLD * size))


TRUSTLESS = Bounds()
"""The default."""


class Meter:
    """Counts the bytes that one read of a file unpacks.

    Attributes:
        path: The file.
        piece: The most bytes at a time.
        total: The most bytes in all.
    """

    def __init__(self, path: str, piece: int, total: int) -> None:
        self.path, self.piece, self.total = path, piece, total
        self._count = 0

    def take(self, size: int) -> None:
        """Count a piece.

        Raises:
            SourceError: The piece is too large, or makes the file too large.
        """
        self.check(size)
        self._count += size
        if self._count > self.total:
            raise self._too_large(f"It unpacks to more than the {_shown(self.total)}", self._count)

    def check(self, size: int) -> None:
        """Check a piece's size without counting it.

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


def memory() -> int:
    """The bytes of memory that this process may use: the machine's, its container's, or its own limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return _machine() if limit == resource.RLIM_INFINITY else min(_machine(), limit)


@cache
def _machine() -> int:
    """The bytes of memory of the machine, or of its container."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # there is no container, or it has no limit ("max")
        found = min(found, int(_CGROUP.read_text()))
    return found


def used() -> int:
    """The bytes of memory that this process holds, without mapped files; 0 if the system does not tell."""
    with suppress(OSError, ValueError):
        _, resident, files, *_ = _STATM.read_text().split()
        return (int(resident) - int(files)) * os.sysconf("SC_PAGE_SIZE")
    return 0


def refuse_rows(rows: float, *, what: str, remedy: str, width: int = 16) -> None:
    """Refuse to make more rows than this machine has memory for.

    Args:
        rows: The number of rows.
        what: What makes them, as the beginning of the error.
        remedy: What to do instead.
        width: The least bytes of a row.

    Raises:
        OutOfMemoryError: The rows do not fit, even into empty memory.

    Examples:
        >>> refuse_rows(1 << 60, what="chop", remedy="Choose a longer period.")
        Traceback (most recent call last):
        gpu_ops.errors.OutOfMemoryError: chop would make 1,152,921,504,606,846,976 rows: they take 17,179,869,184.0 ...
    """
    if rows * width > memory():
        raise OutOfMemoryError(
            f"{what} would make {int(rows):,} rows: they take {_shown(int(rows) * width)} at least, and this machine "
            f"has {_shown(memory())} of memory.",
            remedy=remedy,
        )


def gathered(pieces: Iterable[S], what: str) -> Iterator[S]:
    """The same pieces, for a caller that keeps them all; an error comes before the system ends the process.

    Raises:
        OutOfMemoryError: The memory is almost full.
    """
    rows = looked = 0
    for piece in pieces:
        rows += len(piece)
        if rows - looked >= _OFTEN:
            looked = rows
            # The rest is needed to join the pieces and to make results.
            if used() > memory() - memory() // 32:
                raise OutOfMemoryError(
                    f"{what} has {rows:,} rows so far, and with them this process holds {_shown(used())} of the "
                    f"{_shown(memory())} that this machine has.",
                    remedy="Filter first, choose fewer columns or longer windows; or stream the answer to a file, "
                    "piece by piece: .write(…).",
                )
        yield piece


def _shown(size: int) -> str:
    for unit, width in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << width:
            return f"{size / (1 << width):,.1f} {unit}"
    return f"{size} bytes"


def refuse_pipes(path: str | Path) -> os.stat_result:
    """The status of a path, which must not be a pipe or a device: a read of these may wait or never end.

    Raises:
        SourceError: It is one.
        OSError: The path does not exist or may not be read.
    """
    found = os.stat(path)  # noqa: PTH116  (a text or a path)
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise SourceError(f"{path} is a pipe or a device, not a file.", remedy="Write its content to a file.")
    return found


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Turn another library's error during a read into an error of ours that names the file.

    Raises:
        SourceError: Another library raised an error.
    """
    try:
        yield
    except GpuOpsError:
        raise
    except Exception as error:
        raise unreadable(path, error) from error


def unreadable(path: str, error: Exception) -> SourceError:
    """The error of ours for another library's error during a read."""
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
