"""Who a store is, and which follower writes there: the file ``store.json``. Nothing here knows batches."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, replace
from typing import Self

from gpu_ops.errors import SourceError
from gpu_ops.microbatches.batch_files import DamageError
from gpu_ops.microbatches.folders import Folder, reading, temporary, writing
from gpu_ops.microbatches.names import IDENTITY

_FORMAT = 1

_LARGEST = 1 << 16
"""How many bytes the file has at most: it says four things."""


@dataclass(frozen=True)
class StoreIdentity:
    """What ``store.json`` says.

    Attributes:
        name: A random name, which a copy of the folder keeps and a store that is made anew does not have.
        follower: The name of the follower whose results the store holds; None if no follower has written there.
        base: The number of the last batch that was there before the follower's first.
    """

    name: str
    follower: str | None = None
    base: int = 0

    @classmethod
    def new(cls) -> Self:
        """One that no other store has."""
        return cls(new_name())

    def claimed(self, follower: str, base: int) -> Self:
        """The same store, into which a follower writes."""
        return replace(self, follower=follower, base=base)


def new_name() -> str:
    """A random name that nothing else has."""
    return secrets.token_hex(16)


def read_identity(folder: Folder) -> StoreIdentity | None:
    """What the file says; None where there is none, since the last writer was of an older version.

    Raises:
        DamageError: The file is not what a store writes.
        SourceError: It cannot be read, or a newer version wrote it.
    """
    try:
        with reading(folder, IDENTITY):
            content = folder.read(IDENTITY, _LARGEST).to_pybytes()
    except FileNotFoundError:
        return None
    try:
        said = json.loads(content)
        version, name, follower, base = said["format"], said["id"], said.get("follower"), said.get("base", 0)
        sound = isinstance(name, str) and isinstance(follower, str | None) and isinstance(base, int)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(folder) from error
    if version != _FORMAT:
        raise SourceError(
            f"{folder.address(IDENTITY)} has format {version!r}, and this version of gpu_ops reads {_FORMAT}.",
            remedy="Use the version of gpu_ops that wrote it.",
        )
    if not sound:
        raise _damaged(folder)
    return StoreIdentity(name, follower, base)


def write_identity(folder: Folder, identity: StoreIdentity) -> None:
    """Write the file, whole or not at all; an older one is replaced.

    Raises:
        SourceError: The file system refuses.
    """
    said = {"format": _FORMAT, "id": identity.name}
    if identity.follower is not None:
        said |= {"follower": identity.follower, "base": identity.base}
    unfinished = temporary()
    with writing(folder):
        try:
            with folder.create(unfinished) as file:
                file.write(json.dumps(said, indent=1).encode())
            folder.rename(unfinished, IDENTITY)
        except BaseException:
            folder.remove([unfinished])
            raise
        folder.sync()


def _damaged(folder: Folder) -> DamageError:
    return DamageError(
        f"{folder.address(IDENTITY)} is damaged: it is not what a store writes.",
        remedy="Put it back from a copy. Or remove it: the next write gives the store another identity, and a follower "
        'goes on after follow(…, if_other_store="adopt").',
    )
