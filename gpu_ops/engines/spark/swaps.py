"""How an answer takes its place: it is written aside, then swapped, so that the old or the new one is always whole.

While somebody writes to ``answer.parquet``, the folder ``.answer.parquet.writing`` is beside it. Each writer has a
folder in there, with a name of its own (``T``):

    T/mark       there until another writer begins
    T/.new-T     the new answer, written by Spark's tasks
    T/swap.json  written before the swap: the files of the new and of the old answer
    T/.old-T     the old answer, between the two renames of the swap

A writer that begins takes over from all others. First it renames their folders, and each rename decides who has one.
Then it looks at the place: if the answer there is not whole, it puts the old one back. So after a write that was killed
it is enough to write again. If two writers run at once, the one that began last wins, and the other is refused.

Where a rename is not one step (an object store copies, then deletes), one of the two answers is whole at every step
too: ``swap.json`` says what whole is.
"""

from __future__ import annotations

import json
import logging
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from gpu_ops.errors import SourceError

_LOG = logging.getLogger("gpu_ops")

Sizes = dict[str, int]
"""The files of a folder by their names in it, with their bytes. A file has one entry with an empty name."""


class FileSystem(Protocol):
    """The required operations of a file system. Paths are text, with ``/`` between folders."""

    def sizes(self, path: str) -> Sizes | None:
        """The files there; None if nothing is there."""

    def exists(self, path: str) -> bool:
        """Whether anything is there."""

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none if the folder is missing."""

    def rename(self, path: str, to: str) -> bool:
        """Rename a folder; whether it was there. It may be moved into a folder that has the new name."""

    def delete(self, path: str) -> None:
        """Remove a file, or a folder with its contents, if it is there."""

    def delete_empty(self, folder: str) -> None:
        """Remove a folder if it is there and empty."""

    def write(self, path: str, text: str) -> None:
        """Write a new file; make its folder if it is missing."""

    def read(self, path: str) -> str | None:
        """A file's text; None if it is not there."""


@dataclass(frozen=True)
class AnswerPlace:
    """Where an answer belongs.

    Attributes:
        files: Its file system.
        path: The answer's path.
        aside: The folder of its writers.
    """

    files: FileSystem
    path: str
    aside: str

    @classmethod
    def at(cls, files: FileSystem, path: str) -> AnswerPlace:
        """The place of a path without a slash at its end."""
        folder, _, name = path.rpartition("/")
        return cls(files, path, f"{folder}/.{name}.writing")


@dataclass(frozen=True)
class Writing:
    """A writer of an answer. `begin` makes it; then the answer is written to `new`, and `swap` moves it to the place.

    Attributes:
        place: The place.
        replace: Whether an existing answer may be replaced.
        name: A name that no other writer has.
    """

    place: AnswerPlace
    replace: bool
    name: str = field(default_factory=lambda: secrets.token_hex(8))

    @classmethod
    def begin(cls, place: AnswerPlace, *, replace: bool) -> Writing:
        """Take the place over from its earlier writers.

        Raises:
            SourceError: Something is there that may not be replaced.
        """
        made = cls(place, replace)
        _take_over(place, made.name)
        made._refuse_existing(there=place.files.exists(place.path))
        place.files.write(f"{made._folder}/mark", "")
        return made

    @property
    def _folder(self) -> str:
        return f"{self.place.aside}/{self.name}"

    @property
    def new(self) -> str:
        """Where the new answer is written."""
        return f"{self._folder}/.new-{self.name}"

    @property
    def _old(self) -> str:
        return f"{self._folder}/.old-{self.name}"

    def lost(self) -> bool:
        """Whether another writer has begun."""
        return self.place.files.read(f"{self._folder}/mark") is None

    def swap(self, whole: Sizes) -> None:
        """Put the new answer in its place.

        Args:
            whole: The files of the new answer, as they were read back.

        Raises:
            SourceError: Another writer has begun; or something is there by now that may not be replaced.
        """
        files, place = self.place.files, self.place.path
        there = files.sizes(place)
        self._refuse_existing(there=there is not None)
        if self.lost() or files.sizes(self.new) != whole:
            raise self.taken()
        files.write(f"{self._folder}/swap.json", json.dumps({"new": whole, "old": there}))
        if there is not None and not _moved(files, place, self._old):
            raise self.taken()
        if not _moved(files, self.new, place) or files.sizes(place) != whole:
            raise self.taken()

    def done(self) -> None:
        """Remove what is left. If that fails, the answer is there all the same, and the next writer removes it."""
        try:
            self._clear()
        except SourceError as error:
            _LOG.warning("%s is written, but the answer before it could not be removed: %s", self.place.path, error)

    def give_up(self) -> None:
        """Leave the place as it was, with nothing beside it."""
        with suppress(SourceError):  # the error that stopped the write says more
            _restore(self.place, [self._folder])
            self._clear()

    def _clear(self) -> None:
        _remove(self.place.files, self._folder)
        self.place.files.delete_empty(self.place.aside)

    def _refuse_existing(self, *, there: bool) -> None:
        if there and not self.replace:
            raise SourceError(
                f"{self.place.path} exists.", remedy='Say if_exists="replace" (--if-exists replace), or another path.'
            )

    def taken(self) -> SourceError:
        """The error of a writer that has lost the place."""
        return SourceError(
            f"Another write to {self.place.path} began while this one ran, and has taken the place.",
            remedy="Let only one job at a time write there, or give each job its own path.",
        )


def _take_over(place: AnswerPlace, name: str) -> None:
    """Stop all other writers of a place, restore it if it is not whole, and remove what they left."""
    files, taken = place.files, []
    for number, other in enumerate(sorted(files.names(place.aside))):
        # From here on no rename of the other's swap finds its folder.
        folder = f"{place.aside}/{name}-{number}"
        if files.rename(f"{place.aside}/{other}", folder):
            taken.append(folder)
    if taken:
        _restore(place, taken)
    for folder in taken:
        _remove(files, folder)
    files.delete_empty(place.aside)


def _remove(files: FileSystem, folder: str) -> None:
    """Remove a writer's folder; ``swap.json``, which says what whole is, goes last."""
    for name in files.names(folder):
        if name.startswith("."):
            files.delete(f"{folder}/{name}")
    files.delete(folder)


def _restore(place: AnswerPlace, folders: list[str]) -> None:
    """If the answer there is not whole, put the old one back, or the new one if there is no old one."""
    files = place.files
    known: dict[str, list[Sizes]] = {"new": [], "old": []}
    left: dict[str, list[tuple[str, Sizes]]] = {"new": [], "old": []}
    for folder in folders:
        for kind, sizes in _said(files.read(f"{folder}/swap.json")):
            known[kind].append(sizes)
        for name in files.names(folder):
            path, kind = f"{folder}/{name}", name[1:4]
            if name.startswith(".") and kind in left and (there := files.sizes(path)) is not None:
                left[kind].append((path, there))
    there = files.sizes(place.path)
    if there is not None:
        if any(there == whole for each in known.values() for whole in each) or not _torn(there, known):
            return
        files.delete(place.path)
    # An old answer in no swap.json was moved by a writer that lost the place in that moment: it is the other's.
    old = [path for path, sizes in left["old"] if not _torn(sizes, known)]
    new = [path for path, sizes in left["new"] if known["old"] and sizes in known["new"]]
    for path in [*old, *new]:
        if _moved(files, path, place.path):
            return


def _said(text: str | None) -> list[tuple[str, Sizes]]:
    """The files of the new and of the old answer, from a swap.json; nothing if it was not written whole."""
    with suppress(ValueError):
        return [(kind, sizes) for kind, sizes in json.loads(text or "{}").items() if sizes is not None]
    return []


def _torn(there: Sizes, known: dict[str, list[Sizes]]) -> bool:
    """Whether a part of an answer is there, as a rename leaves it that is not one step."""
    return any(there.items() < whole.items() for each in known.values() for whole in each)


def _moved(files: FileSystem, path: str, to: str) -> bool:
    """Rename if nothing has the new name; whether it was done."""
    if files.exists(to) or not files.rename(path, to):
        return False
    inside = f"{to}/{path.rpartition('/')[2]}"
    if not files.exists(inside):
        return True
    # A folder was put there in between, and many file systems rename into it.
    files.rename(inside, path)
    return False
