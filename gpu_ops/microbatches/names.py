"""The names of a store's files, and the log that they make up. Nothing here opens a file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.errors import SourceError

SUFFIX = ".arrow"

Range = tuple[int, int]
"""The first and the last number of some batches."""

IDENTITY = "store.json"
"""The name of the file with the store's identity."""

_NAME = re.compile(
    # No more digits than the sums of many such numbers have room for.
    r"(?P<first>\d{12,18})-(?P<last>\d{12,18})"
    r"(?:\.commit(?P<commit>\d{12,18}))?"
    r"\.(?:rows(?P<rows>\d{1,13})|expired)"
    r"(?:\.start(?P<start>-?\d+)\.end(?P<end>-?\d+))?"
    r"(?:\.cti(?P<cti>-?\d+))?"
    r"\.size(?P<size>\d{1,18})"
    r"\.crc(?P<crc>[0-9a-f]{8})\.arrow"
)


class UnsettledError(SourceError):
    """A listing is inconsistent. Files may have come and gone meanwhile: list again before you report it."""


@dataclass(frozen=True)
class Sealed:
    """A file of a store, as described by its name.

    Attributes:
        first: The sequence number of the first batch in it.
        last: The sequence number of the last batch.
        commit: The last sequence number of its commit: the file counts when that batch is there.
        rows: The number of events.
        start: The earliest start in ticks; None without events.
        end: The latest end in ticks; None without events.
        cti: The CTI after its last batch in ticks; None before there was any.
        size: The number of bytes.
        crc: The CRC-32 of the bytes.
        expired: Whether it replaces batches whose events were removed.

    Examples:
        >>> Sealed(1, 1, 1, 2, 0, 90, None, 1234, 0xC0FFEE).name
        '000000000001-000000000001.rows2.start0.end90.size1234.crc00c0ffee.arrow'
    """

    first: int
    last: int
    commit: int
    rows: int
    start: int | None
    end: int | None
    cti: int | None
    size: int
    crc: int
    expired: bool = False

    @property
    def name(self) -> str:
        """The file's name; names sort by their first batch."""
        parts = [f"{self.first:012d}-{self.last:012d}"]
        if self.commit != self.last:
            parts.append(f"commit{self.commit:012d}")
        parts.append("expired" if self.expired else f"rows{self.rows}")
        if self.start is not None:
            parts += [f"start{self.start}", f"end{self.end}"]
        if self.cti is not None:
            parts.append(f"cti{self.cti}")
        return ".".join([*parts, f"size{self.size}", f"crc{self.crc:08x}"]) + SUFFIX

    def overlaps(self, start: int | None, end: int | None) -> bool:
        """Whether an event in it may be alive within ``[start, end)``; None is without bound."""
        if self.start is None or self.end is None:
            return False
        return (start is None or self.end > start) and (end is None or self.start < end)


@lru_cache(maxsize=1 << 16)
def parse(name: str) -> Sealed | None:
    """Parse a file's name; None if no store gives such a name.

    A store is listed before each reading and writing, and most names are those of the last time.

    Examples:
        >>> parse("000000000002-000000000002.rows0.cti90.size700.crc00000001.arrow").cti
        90
        >>> parse("notes.txt") is None
        True
    """
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    number = {key: None if value is None else int(value) for key, value in found.groupdict().items() if key != "crc"}
    first, last, rows, size = (number[key] or 0 for key in ("first", "last", "rows", "size"))
    commit = last if number["commit"] is None else number["commit"]
    expired = number["rows"] is None
    crc = int(found["crc"], 16)
    made = Sealed(first, last, commit, rows, number["start"], number["end"], number["cti"], size, crc, expired)
    times = all(MIN_TIME <= each <= MAX_TIME for each in (made.start, made.end, made.cti) if each is not None)
    sound = times and made.name == name and 1 <= first <= last <= commit and (rows > 0) == (made.start is not None)
    return made if sound else None


@dataclass(frozen=True)
class Log:
    """The content of a store, from one listing of its folder.

    Attributes:
        files: The files with the batches, in order; each batch is in one file.
        leftovers: Names of files that a writer left behind: unfinished files, files of an unfinished commit, and files
            that were merged into another.
        foreign: Names of files that no store made.
    """

    files: tuple[Sealed, ...]
    leftovers: tuple[str, ...]
    foreign: tuple[str, ...]

    @property
    def sequence(self) -> int:
        """The sequence number of the last batch; 0 without one."""
        return self.files[-1].last if self.files else 0

    @property
    def cti(self) -> int | None:
        """The CTI after the last batch."""
        return self.files[-1].cti if self.files else None

    @property
    def gone(self) -> list[Range]:
        """The batches that have expired."""
        found: list[Range] = []
        for file in self.files:
            if file.expired and found and found[-1][1] == file.first - 1:
                found[-1] = (found[-1][0], file.last)
            elif file.expired:
                found.append((file.first, file.last))
        return found


def within(first: int, last: int, ranges: Iterable[Range]) -> bool:
    """Whether all of some batches are in one of the ranges."""
    return any(begin <= first and last <= end for begin, end in ranges)


def read_log(names: Iterable[str]) -> Log:
    """The log, from a folder's listing.

    Every batch has a file. Merged and expired batches have one with a wider range, which hides the narrower ones. So a
    batch without a file means that a file was lost.

    Args:
        names: The names of the files.

    Raises:
        UnsettledError: A batch has no file, or two.
    """
    sealed: list[Sealed] = []
    leftovers: list[str] = []
    foreign: list[str] = []
    for name in sorted(names):
        made = parse(name)
        if made is not None:
            sealed.append(made)
        elif name.startswith("."):
            leftovers += [name] if name.endswith(".tmp") else []
        elif name != IDENTITY:
            foreign.append(name)
    # The last file of a commit gets its name last: without it, none of them counts.
    whole = max((file.last for file in sealed if file.last >= file.commit), default=0)
    leftovers += [file.name for file in sealed if file.commit > whole]
    files: list[Sealed] = []
    counted = (file for file in sealed if file.commit <= whole)
    # What stands for an expired batch has the same range if that was one file.
    for file in sorted(counted, key=lambda file: (file.first, -file.last, not file.expired)):
        reached = files[-1].last if files else 0
        if file.first == reached + 1:
            files.append(file)
        elif file.first > reached + 1:
            raise UnsettledError(
                f"The store has no file for batch {reached + 1}, but one for batch {file.first}.",
                remedy="A file was removed: put it back from a copy.",
            )
        elif file.last > reached or _rivals(file, files[-1]):
            raise UnsettledError(
                f"Two files hold batch {min(file.first, reached)}: {files[-1].name} and {file.name}.",
                remedy="Two writers were at work at once: see which of the files is right, and move the other away.",
            )
        else:
            leftovers.append(file.name)
    return Log(tuple(files), tuple(leftovers), tuple(foreign))


def _rivals(file: Sealed, other: Sealed) -> bool:
    """Whether two files have one range, and neither replaces the other."""
    return (file.first, file.last) == (other.first, other.last) and not other.expired
