"""How an answer takes its place: written aside, then swapped, so that the old or the new one is always whole.

Beside a place ``answer.parquet`` is the folder ``.answer.parquet.writing`` while somebody writes, and in it one for
each who does, by a name of its own (``T``):

    T/mark       there for as long as nobody else has begun
    T/.new-T     the new answer, written by Spark's tasks
    T/swap.json  before the swap: which files the new and the old answer are
    T/.old-T     the old answer, between the two renames of the swap

Who begins takes over what others left or still do: first the folder T gets another name, which one rename decides; then
what stands at the place is looked at, and where it is not whole, the old answer is put back. So a write that was killed
needs no more than another one, and of two that run at once the one that began last wins, and the other is refused.

A file system whose renames are no single step (an object store: it copies, then deletes) has one of the two whole at
every step too: that is what ``swap.json`` is compared with.
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
"""The files of a folder, by their names in it, and how many bytes they have. A file has itself, by an empty name."""


class Files(Protocol):
    """What is asked of a file system. Paths are text; ``/`` parts them."""

    def sizes(self, path: str) -> Sizes | None:
        """What is there; None if nothing is."""

    def exists(self, path: str) -> bool:
        """Whether anything is there."""

    def names(self, folder: str) -> list[str]:
        """What stands in a folder; nothing if there is none."""

    def rename(self, path: str, to: str) -> bool:
        """Give a folder another name; whether there was one. Into a folder of that name it may go instead."""

    def delete(self, path: str) -> None:
        """Remove a file, or a folder with what is in it, if it is there."""

    def delete_empty(self, folder: str) -> None:
        """Remove a folder if it is there and nothing is in it."""

    def write(self, path: str, text: str) -> None:
        """A new file, in a new folder if need be."""

    def read(self, path: str) -> str | None:
        """A file's text; None if it is not there."""


@dataclass(frozen=True)
class Place:
    """Where an answer belongs.

    Attributes:
        files: Its file system.
        path: The answer's path.
        aside: The folder of those who write to it.
    """

    files: Files
    path: str
    aside: str

    @classmethod
    def at(cls, files: Files, path: str) -> Place:
        """The place of this path, which has no slash at its end."""
        folder, _, name = path.rpartition("/")
        return cls(files, path, f"{folder}/.{name}.writing")


@dataclass(frozen=True)
class Writing:
    """One who writes an answer to a place. `begin` makes it; then the answer goes to `new`, and `swap` puts it there.

    Attributes:
        place: The place.
        replace: Whether what is there may give way.
        name: What nobody else is called.
    """

    place: Place
    replace: bool
    name: str = field(default_factory=lambda: secrets.token_hex(8))

    @classmethod
    def begin(cls, place: Place, *, replace: bool) -> Writing:
        """Take the place over from those who wrote to it before.

        Raises:
            SourceError: Something is there, and nobody said that it may give way.
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
        """Where the new answer goes first."""
        return f"{self._folder}/.new-{self.name}"

    @property
    def _old(self) -> str:
        return f"{self._folder}/.old-{self.name}"

    def lost(self) -> bool:
        """Whether another has begun."""
        return self.place.files.read(f"{self._folder}/mark") is None

    def swap(self, whole: Sizes) -> None:
        """Put the new answer in its place.

        Args:
            whole: The files of the new answer, as they were read back.

        Raises:
            SourceError: Another has begun; or something is there by now that may not give way.
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
        """Clear away what is left; where that fails the answer is there all the same, and the next one clears it."""
        try:
            self._clear()
        except SourceError as error:
            _LOG.warning("%s is written, and what was there before could not be removed: %s", self.place.path, error)

    def give_up(self) -> None:
        """Leave the place as it was, and nothing beside it."""
        with suppress(SourceError):  # that which stopped the write says more
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
        """The error for who has lost the place."""
        return SourceError(
            f"Another write to {self.place.path} began while this one ran, and this one has given way to it.",
            remedy="See that only one job at a time writes there, or give each its own path.",
        )


def _take_over(place: Place, name: str) -> None:
    """Stop all others who write to a place, see that what is there is whole, and remove what they left."""
    files, taken = place.files, []
    for number, other in enumerate(sorted(files.names(place.aside))):
        # From here on none of the renames of the other's swap finds its folder.
        folder = f"{place.aside}/{name}-{number}"
        if files.rename(f"{place.aside}/{other}", folder):
            taken.append(folder)
    if taken:
        _restore(place, taken)
    for folder in taken:
        _remove(files, folder)
    files.delete_empty(place.aside)


def _remove(files: Files, folder: str) -> None:
    """Remove the folder of one who wrote; what says which files were whole goes last."""
    for name in files.names(folder):
        if name.startswith("."):
            files.delete(f"{folder}/{name}")
    files.delete(folder)


def _restore(place: Place, folders: list[str]) -> None:
    """Put the old answer back if what is there is not whole; the new one if the old one is not to be found."""
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
    # An old answer that nobody knows was moved by one who lost the place in that moment: it is the other's.
    old = [path for path, sizes in left["old"] if not _torn(sizes, known)]
    new = [path for path, sizes in left["new"] if known["old"] and sizes in known["new"]]
    for path in [*old, *new]:
        if _moved(files, path, place.path):
            return


def _said(text: str | None) -> list[tuple[str, Sizes]]:
    """What a swap was to be: the files by kind. A file that was not written whole says nothing."""
    with suppress(ValueError):
        return [(kind, sizes) for kind, sizes in json.loads(text or "{}").items() if sizes is not None]
    return []


def _torn(there: Sizes, known: dict[str, list[Sizes]]) -> bool:
    """Whether what is there is a part of an answer, as a rename leaves it that is no single step."""
    return any(there.items() < whole.items() for each in known.values() for whole in each)


def _moved(files: Files, path: str, to: str) -> bool:
    """Rename where nothing has the new name; whether it was done."""
    if files.exists(to) or not files.rename(path, to):
        return False
    inside = f"{to}/{path.rpartition('/')[2]}"
    if not files.exists(inside):
        return True
    # Somebody put a folder there in between, and many file systems rename into it.
    files.rename(inside, path)
    return False
