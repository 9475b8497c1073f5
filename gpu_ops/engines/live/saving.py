"""Running queries in checkpoint folders: a state is written as what is new of it, and read back.

Three things serve whoever keeps states in folders, here or on a cluster: `save_state` writes a query's state,
`gpu_ops.engines.live.restored.restored_state` makes a query of one, and `gpu_ops.checkpoints.manifests.Manifests`
commits what was written. A `gpu_ops.checkpoints.saved_states.SavedState` goes from one to the other, as JSON too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from gpu_ops.checkpoints.cache import Cache
from gpu_ops.checkpoints.manifests import Manifest, Manifests, check_keep, new_folder, prefix
from gpu_ops.checkpoints.saved_states import SavedState, read_state, write_state
from gpu_ops.checkpoints.state_files import StateFile, read_file
from gpu_ops.core.bounds import TRUSTLESS, Bounds
from gpu_ops.core.state_parts import Parts
from gpu_ops.engines.live.checkpoints import FORMAT, made_by
from gpu_ops.errors import SourceError
from gpu_ops.microbatches.folders import Folder, open_folder

_STATE = "state"


class Saved(Protocol):
    """The part of `RunningQuery` that saving needs."""

    def state_parts(self) -> Parts:
        """The whole state, part by part."""

    def state_facts(self) -> dict[str, Any]:
        """The rest of the state, as JSON values."""


def save_state(live: Saved, folder: Folder, names: str, before: SavedState | None = None) -> SavedState:
    """Write what of a running query's state is in no file of a folder yet.

    Nothing is committed: `SavedState.to_json` goes into a manifest, whose files are `SavedState.files`.

    Args:
        live: The query, between two calls.
        folder: The folder.
        names: What the names of new files begin with (`gpu_ops.checkpoints.manifests.prefix`).
        before: What was saved or restored last, if its files stay: they are named again, and not written.

    Raises:
        SourceError: The file system refuses.
    """
    return write_state(folder, names, live.state_parts(), {"format": FORMAT, **made_by(), **live.state_facts()}, before)


def load_state(
    folder: Folder, saved: SavedState, bounds: Bounds = TRUSTLESS, cache: Cache | None = None, by: str = ""
) -> tuple[Mapping[str, Any], Parts]:
    """The facts and the tables of a saved state, these in parts.

    Args:
        folder: The folder with its files.
        saved: What `save_state` gave.
        bounds: How far the files are trusted.
        cache: Lasting files that are on this machine already are taken from there.
        by: Whose declarations tables in the cache may be known to fulfil (`Cache.is_sound`).

    Raises:
        SourceError: A file is missing, damaged, too large, or cannot be read.
    """
    if cache is None:
        return saved.facts, read_state(folder, saved, bounds)
    lasting = saved.lasting

    def fetch(file: StateFile) -> pa.Buffer:
        return cache.fetch(folder, file) if file in lasting else read_file(folder, file)

    return saved.facts, read_state(folder, saved, bounds, fetch, lambda file: cache.is_sound(file, by))


@dataclass
class Saving:
    """A folder that a running query saves to.

    Attributes:
        manifests: Its checkpoints.
        folder: The name that they have in common.
        number: The number of the newest one that this query knows of.
        state: What it saved last, or was restored from; None if nothing, or if its files may go.
        tried: A checkpoint of which is not known whether it was made, and its state.
    """

    manifests: Manifests
    folder: str = field(default_factory=new_folder)
    number: int = 0
    state: SavedState | None = None
    tried: tuple[Manifest, SavedState] | None = None

    @classmethod
    def begin(cls, path: str) -> Saving:
        """Save to a folder that has no checkpoint yet; it may be missing.

        Raises:
            SourceError: It has one.
        """
        manifests = Manifests(open_folder(path, None))
        if numbers := manifests.numbers():
            raise SourceError(
                f"{path} has checkpoints already, the newest is {numbers[-1]}, and this query was not restored from "
                "there.",
                remedy="Save to a folder of its own; or restore the query from there, and go on.",
            )
        return cls(manifests)

    def save(self, live: Saved, keep: int, *, again: bool = False) -> int:
        """Save a query, and remove what is older than the newest ``keep`` checkpoints.

        Args:
            live: The query.
            keep: How many stay.
            again: Whether it has taken nothing in since the last one, which goes then, and no older one.

        Returns:
            The checkpoint's number.

        Raises:
            TakenError: Another query saves there.
            SourceError: The file system refuses.
            PlanError: ``keep`` is less than 1.
        """
        check_keep(keep)
        self._settle()
        folder, number = self.manifests.folder, self.number + 1
        folder.make()
        state = save_state(live, folder, prefix(number), self.state)
        manifest = Manifest(number, self.folder, state.files, {_STATE: state.to_json()})
        self.tried = manifest, state
        self.manifests.commit(manifest)
        before, self.number, self.state, self.tried = self.number, number, state, None
        self.manifests.clean(keep, before if again else None)
        return number

    def _settle(self) -> None:
        """Find out whether the last checkpoint was made, if an error came while it was."""
        if self.tried is None:
            return
        manifest, state = self.tried
        if manifest.number in self.manifests.numbers() and self.manifests.read(manifest.number).made == manifest.made:
            self.number, self.state = manifest.number, state
        self.tried = None


def at(folder: str | Path) -> str:
    """A folder's path or URL, spelled in one way."""
    return str(folder).rstrip("/") if "://" in str(folder) else str(Path(folder).absolute())


def is_kept(path: Path) -> bool:
    """Whether there is a checkpoint at a path: a file, or a folder that has one."""
    return bool(Manifests(open_folder(path, None)).numbers()) if path.is_dir() else path.exists()


def opened(path: str | Path, number: int | None) -> tuple[Saving, SavedState]:
    """A checkpoint of a folder, and the folder to go on saving to; the newest one without a number.

    Raises:
        SourceError: There is none, or it is damaged.
    """
    manifests = Manifests(open_folder(path, None))
    manifest = manifests.read(number)
    name = manifests.folder.address(f"{manifest.number}")
    if set(manifest.content) != {_STATE}:
        raise SourceError(
            f"{path} has no checkpoints of one running query: {', '.join(manifest.content) or 'nothing'} is in them.",
            remedy="Restore it by what made it.",
        )
    state = SavedState.from_json(f"The checkpoint {name}", manifest.content[_STATE])
    newest = manifests.numbers()[-1]
    # Files of an older checkpoint may be removed before the next one names them again: it writes its own.
    return Saving(manifests, manifest.folder, newest, state if manifest.number == newest else None), state
