"""Manifests: a checkpoint is one file that names all that it needs, and is there whole or not at all.

A checkpoint is made in four steps. Files of state are written, and their bytes synced; the folder is synced, so that
their names last; the manifest gets its name, which only one writer can give; what no kept manifest names is removed.
A writer that is killed in between leaves garbage, and the last checkpoint as it was.
"""

from __future__ import annotations

import json
import re
import secrets
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from gpu_ops.checkpoints.state_files import NAME, OLDER, StateFile
from gpu_ops.core.json_kinds import ANY, TEXT, Many, Object, Whole, defect
from gpu_ops.core.version import VERSION
from gpu_ops.errors import PlanError, SourceError
from gpu_ops.microbatches.folders import Folder, reading, writing

_FORMAT = 1

_NAME = re.compile(r"(\d{12})\.manifest")
_STATE = re.compile(NAME)
_UNFINISHED = re.compile(r"\.(\d{12})\.manifest\.[0-9a-f]{16}\.tmp")

_SEAL = "\ncrc32:"
"""What ends a manifest: this, and eight digits of the CRC-32 of all before it."""

_LARGEST = 1 << 30
"""The largest size of a manifest in bytes."""

_KIND = Object(
    {
        "format": Whole(),
        "version": TEXT,
        "folder": TEXT,
        "number": Whole(),
        "made": TEXT,
        "files": Many(StateFile.kind),
    },
    {"content": Object(others=ANY)},
    ANY,
)


class TakenError(SourceError):
    """Another writer has made the checkpoint of this number, or a later one."""


@dataclass(frozen=True)
class Manifest:
    """A checkpoint.

    Attributes:
        number: Its number; the first is 1.
        folder: A random name that all checkpoints of a folder have in common.
        files: All files that it needs. They are kept as long as it is.
        content: What it says of them, as JSON values.
        version: The version of this package that wrote it.
        made: A random name of its own, by which a writer knows it.
    """

    number: int
    folder: str
    files: Sequence[StateFile]
    content: Mapping[str, Any] = field(default_factory=dict)
    version: str = VERSION
    made: str = field(default_factory=lambda: secrets.token_hex(8))


def prefix(number: int, writer: str = "") -> str:
    """What the names of the state files of a checkpoint begin with, so that their age is known.

    Args:
        number: The checkpoint's number.
        writer: Who writes them: letters, digits, and ``-``.

    Examples:
        >>> prefix(7, "part-3-")
        '000000000007-part-3-'
    """
    return f"{number:012d}-{writer}"


def manifest_name(number: int) -> str:
    """The name of a manifest's file."""
    return f"{number:012d}.manifest"


def new_folder() -> str:
    """A random name for a folder of checkpoints."""
    return secrets.token_hex(16)


class Manifests:
    """The checkpoints of a folder.

    Args:
        folder: The folder; it may be missing.

    Examples:
        >>> import tempfile
        >>> from gpu_ops.microbatches.folders import open_folder
        >>> made = Manifests(open_folder(tempfile.mkdtemp(), None))
        >>> made.commit(Manifest(1, new_folder(), [], {"n": 5}))
        >>> made.numbers(), made.read().content
        ([1], {'n': 5})
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def numbers(self) -> list[int]:
        """The numbers of the checkpoints, ascending.

        Raises:
            SourceError: The file system refuses.
        """
        with reading(self.folder):
            return _numbers(self.folder.names())

    def read(self, number: int | None = None) -> Manifest:
        """A checkpoint; the newest without a number.

        Raises:
            SourceError: There is none, it is damaged, or a newer version wrote it.
        """
        known = self.numbers()
        number = max(known, default=None) if number is None else number
        if number is None or number not in known:
            have = f"it has {', '.join(map(str, known))}" if known else "it has none"
            what = "no checkpoint" if number is None else f"no checkpoint {number}"
            raise SourceError(
                f"{self.folder.path} has {what}: {have}.",
                remedy="Start the query instead." if not known else "Restore one that it has.",
            )
        return self._read(number)

    def _read(self, number: int) -> Manifest:
        name = manifest_name(number)
        try:
            with reading(self.folder, name):
                content = self.folder.read(name, _LARGEST).to_pybytes()
        except FileNotFoundError as error:
            raise SourceError(
                f"{self.folder.address(name)} has been removed: a query saves newer checkpoints there.",
                remedy="Restore the newest one.",
            ) from error
        body, seal, crc = content.rpartition(_SEAL.encode())
        if not seal or crc != f"{zlib.crc32(body):08x}".encode():
            raise self._damaged(name, "it is not what was written")
        try:
            said = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise self._damaged(name, str(error)) from error
        found = said.get("format") if isinstance(said, dict) else None
        if isinstance(found, int) and found > _FORMAT:
            raise SourceError(
                f"{self.folder.address(name)} has format {found}, and this version of gpu_ops reads {_FORMAT}.",
                remedy=f"Restore it with the version of gpu_ops that wrote it: {said.get('version', 'unknown')}.",
            )
        wrong = defect(said, _KIND)
        if wrong is None and said["number"] != number:
            wrong = f"it is of checkpoint {said['number']}"
        if wrong is not None:
            raise self._damaged(name, wrong)
        files = tuple(map(StateFile.from_json, said["files"]))
        return Manifest(number, said["folder"], files, said.get("content", {}), said["version"], said["made"])

    def _damaged(self, name: str, what: str) -> SourceError:
        return SourceError(f"{self.folder.address(name)} is damaged: {what}.", remedy=OLDER)

    def commit(self, manifest: Manifest) -> None:
        """Make a checkpoint, of which no other writer has made one of this number or a later one.

        Its files are in the folder, and their bytes on disk. When this returns, the checkpoint lasts.

        Raises:
            TakenError: Another writer has made this checkpoint, or a later one.
            SourceError: The file system refuses, or has no way to make a file only if it is absent. Whether the
                checkpoint was made, `numbers` tells.
        """
        said = {"format": _FORMAT, "version": manifest.version, "folder": manifest.folder, "number": manifest.number}
        said |= {
            "made": manifest.made,
            "files": [each.to_json() for each in manifest.files],
            "content": manifest.content,
        }
        body = json.dumps(said, separators=(",", ":")).encode()
        self._refuse_later(manifest.number - 1)
        with writing(self.folder):
            self.folder.sync()
            try:
                name = manifest_name(manifest.number)
                self.folder.publish(name, body + f"{_SEAL}{zlib.crc32(body):08x}".encode())
            except FileExistsError as error:
                raise self._taken(manifest.number) from error
        # Of manifests that are removed the numbers are free again: a writer that is late may have taken one.
        self._refuse_later(manifest.number)

    def _refuse_later(self, number: int) -> None:
        latest = max(self.numbers(), default=0)
        if latest > number:
            raise self._taken(latest)

    def _taken(self, number: int) -> TakenError:
        return TakenError(
            f"Another query saves in {self.folder.path}: checkpoint {number} is not of this one.",
            remedy="A folder has one writer at a time. If the other one is right, end this one; else end that one, "
            "restore its newest checkpoint, and go on from there.",
        )

    def clean(self, keep: int, instead_of: int | None = None) -> None:
        """Remove all checkpoints but the newest ones, and the files that none of those needs.

        Files of checkpoints after the newest one stay: someone may be writing them. Files that nobody here has made
        stay too. A file that cannot be removed stays until the next time.

        Args:
            keep: How many checkpoints stay.
            instead_of: A checkpoint that goes in any case: the newest stands for it.

        Raises:
            PlanError: That is less than 1.
            SourceError: A checkpoint that stays cannot be read. Then nothing is removed.
        """
        check_keep(keep)
        with reading(self.folder):
            names = self.folder.names()
        numbers = _numbers(names)
        kept = [number for number in numbers if number != instead_of][-keep:]
        needed = {file.name for number in kept for file in self._read(number).files}
        old = [manifest_name(number) for number in numbers if number not in kept]
        unneeded = [name for name in sorted(names - needed) if _age(name) <= max(numbers, default=0)]
        with suppress(OSError):
            # First what names the files: a checkpoint is whole as long as it can be seen.
            self.folder.remove(old)
            if old:
                self.folder.sync()
            self.folder.remove(unneeded)


def check_keep(keep: object) -> None:
    """Refuse to keep no checkpoint."""
    if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:
        raise PlanError("One checkpoint is kept, or more.", remedy="Give keep=1 or more.")


def _numbers(names: set[str]) -> list[int]:
    return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))


def _age(name: str) -> float:
    """The number of the checkpoint that a state file, or an unfinished manifest, was written for; else infinity."""
    found = _STATE.fullmatch(name) or _UNFINISHED.fullmatch(name)
    return int(found[1]) if found else float("inf")
