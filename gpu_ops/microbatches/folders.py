"""Folders of stores: on this machine, or on any fsspec file system. Nothing here knows events."""

from __future__ import annotations

import errno
import importlib
import os
import secrets
import shutil
import socket
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from gpu_ops.core.bounds import refuse_pipes
from gpu_ops.errors import SourceError
from gpu_ops.microbatches.files import keep_mode, make_folder, sync_folder

LOCK = ".writer.lock"
"""The name of the lock file."""


class BusyError(SourceError):
    """A store has a writer already."""


class Lock(Protocol):
    """A writer's lock."""

    def check(self) -> None:
        """Raise an error if another writer took the lock over."""

    def release(self) -> None:
        """Release the lock."""


class Folder(Protocol):
    """The file operations that a store needs."""

    @property
    def path(self) -> str:
        """The path, as it was given."""

    def names(self) -> set[str]:
        """The names of its files, without subfolders; empty if the folder is missing."""

    def folders(self) -> list[str]:
        """The names of its subfolders."""

    def make(self, name: str = "") -> None:
        """Make the folder or a subfolder."""

    def create(self, name: str) -> AbstractContextManager[Any]:
        """A new file to write to. Its bytes are durable when the block ends without an error; else it may remain."""

    def publish(self, name: str, content: bytes) -> None:
        """Make a file, whole and lasting, of a name that none has: of two who try at once, one succeeds.

        Raises:
            FileExistsError: There is such a file.
            SourceError: The file system has no way to do that.
        """

    def rename(self, source: str, target: str) -> None:
        """Rename a file atomically."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; missing files are no error."""

    def remove_folder(self, name: str) -> None:
        """Remove a subfolder and its content."""

    def sync(self) -> None:
        """Make renames and removals durable."""

    def read(self, name: str, at_most: int | None = None) -> pa.Buffer:
        """A file's bytes, but at most one byte more than ``at_most``.

        Raises:
            FileNotFoundError: There is no such file.
        """

    def address(self, name: str) -> str:
        """A file's path or URL for other programs."""

    def lock(self, take_over: str | None) -> Lock:
        """Become the only writer.

        Raises:
            BusyError: The store has another writer.
        """


def open_folder(path: str | os.PathLike[str], filesystem: Any) -> Folder:
    """The folder at a path; it may be missing.

    Args:
        path: A path of this machine, or a URL of a file system that fsspec knows.
        filesystem: An fsspec file system that the path is of, if the path alone does not say so.

    Raises:
        SourceError: fsspec is needed and not installed, or does not know the URL; or the path is a file's.
    """
    where = os.fspath(path)
    if filesystem is None and "://" in where and not where.startswith("file://"):
        filesystem, where = _url_to_filesystem(where)
    if filesystem is not None and "file" not in _protocols(filesystem):
        return RemoteFolder(filesystem, where)
    local = Path(where.removeprefix("file://")).expanduser()
    with reading(LocalFolder(local)):
        is_file = local.exists() and not local.is_dir()
    if is_file:
        raise SourceError(f"{local} is a file.", remedy="A store is a folder: give the path of one, or of none yet.")
    return LocalFolder(local)


def _protocols(filesystem: Any) -> tuple[str, ...]:
    protocol = getattr(filesystem, "protocol", None)
    if protocol is None or not hasattr(filesystem, "pipe_file"):
        raise SourceError(
            f"A {type(filesystem).__name__} is no fsspec file system.",
            remedy="Give one of fsspec's; fsspec.implementations.arrow.ArrowFSWrapper makes one of pyarrow's.",
        )
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _url_to_filesystem(url: str) -> tuple[Any, str]:
    try:
        core: Any = importlib.import_module("fsspec.core")
    except ImportError:
        raise SourceError(
            f"{url} is not on this machine, and fsspec is not installed.",
            remedy="Install it with what it needs for this protocol: pip install 'fsspec[s3]', for instance.",
        ) from None
    try:
        filesystem, root = core.url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise SourceError(f"{url} cannot be opened: {error}", remedy="See fsspec's list of protocols.") from error
    return filesystem, str(root)


@contextmanager
def writing(folder: Folder) -> Iterator[None]:
    """Turn errors of the file system during a write into errors of gpu_ops."""
    try:
        yield
    except OSError as error:
        raise SourceError(
            f"{folder.path} cannot be written to: {error}. What it held before is whole.",
            remedy="See that there is room and permission.",
        ) from error


@contextmanager
def reading(folder: Folder, name: str = "") -> Iterator[None]:
    """Turn errors of the file system during a read into errors of gpu_ops. They are no sign of damage.

    Raises:
        FileNotFoundError: The file is missing; a new listing of the folder may show another one in its place.
        SourceError: The file system refuses.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SourceError(
            f"{folder.address(name) if name else folder.path} cannot be read: {error}. That is no sign of damage.",
            remedy="See that you may read it, and that the disk and the connection work; then try again.",
        ) from error


class LocalFolder:
    """A folder on this machine, or a mounted one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def path(self) -> str:
        """The path."""
        return str(self._path)

    def names(self) -> set[str]:
        """The names of its files, without subfolders; empty if the folder is missing."""
        try:
            with os.scandir(self._path) as listing:
                return {entry.name for entry in listing if entry.is_file()}
        except FileNotFoundError:
            return set()

    def folders(self) -> list[str]:
        """The names of its subfolders."""
        return sorted(each.name for each in self._path.iterdir() if each.is_dir()) if self._path.is_dir() else []

    def make(self, name: str = "") -> None:
        """Make the folder or a subfolder."""
        make_folder(self._path / name)

    @contextmanager
    def create(self, name: str) -> Iterator[Any]:
        """A new file; its bytes are on disk when the block ends."""
        with (self._path / name).open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())

    def publish(self, name: str, content: bytes) -> None:
        """Make a file of a name that none has: it is written under another one, and linked."""
        unfinished = f".{name}{temporary()}"
        try:
            with self.create(unfinished) as file:
                file.write(content)
            try:
                os.link(self._path / unfinished, self._path / name)
            except FileExistsError:
                # Over a network an answer may get lost, and the call be made again.
                if not (self._path / name).samefile(self._path / unfinished):
                    raise
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                raise SourceError(
                    f"The file system of {self._path} has no hard links, by which one of two writers is told that it "
                    "came second.",
                    remedy="Give a folder on another one, or write whole checkpoints: .checkpoint(file).",
                ) from error
            sync_folder(self._path)
        finally:
            with suppress(FileNotFoundError):
                (self._path / unfinished).unlink()

    def rename(self, source: str, target: str) -> None:
        """Rename a file; a file that it replaces gives it its mode."""
        keep_mode(self._path / source, self._path / target)
        (self._path / source).rename(self._path / target)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files."""
        for name in names:
            (self._path / name).unlink(missing_ok=True)

    def remove_folder(self, name: str) -> None:
        """Remove a subfolder."""
        shutil.rmtree(self._path / name, ignore_errors=True)

    def sync(self) -> None:
        """Make renames and removals durable."""
        sync_folder(self._path)

    def read(self, name: str, at_most: int | None = None) -> pa.Buffer:
        """A file's bytes. They are not mapped: truncating a mapped file would end the process."""
        size = refuse_pipes(self._path / name).st_size
        with pa.OSFile(self.address(name)) as file:
            return file.read_buffer(size if at_most is None else min(size, at_most + 1))

    def address(self, name: str) -> str:
        """The file's path."""
        return str(self._path / name)

    def lock(self, take_over: str | None) -> Lock:
        """A lock of the operating system, which ends with the process that holds it.

        So there is nothing to take over: a dead writer holds no lock.
        """
        return _LocalLock(self._path / LOCK)


_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
"""The errors of file systems that cannot give a file a second name."""


class _LocalLock:
    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            # A link would have the name of the owner written over whatever it leads to.
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise SourceError(
                f"{path} is a link, and a store's lock is a file.", remedy="Remove it: no store makes links."
            ) from error
        try:
            self._take()
        except BaseException:
            self.release()
            raise

    def _take(self) -> None:
        fcntl: Any = importlib.import_module("fcntl")
        try:
            # flock and not lockf: its locks are of the open file, so that two writers of one process meet too.
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.read(self._handle, 1000).decode(errors="replace").strip()
            raise BusyError(
                f"{self._path.parent} has a writer: {owner or 'one that has just begun'}.",
                remedy="A store has one writer at a time: close that one, or end its process, which frees the store.",
            ) from error
        self.check()
        # Whom the error names is a courtesy: on a full disk the lock holds without it.
        with suppress(OSError):
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, _owner().encode(), 0)

    def check(self) -> None:
        """Raise an error if another file has the lock's name, since a second writer may hold that file.

        Raises:
            SourceError: The lock's file was removed or replaced.
        """
        held = os.fstat(self._handle)
        try:
            there = self._path.stat()
        except FileNotFoundError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (held.st_dev, held.st_ino):
            raise SourceError(
                f"{self._path}, which the writer holds, was {'removed' if there is None else 'replaced'}; "
                "another writer may have begun.",
                remedy="Leave the file alone. Open another writer, and append what this one had not.",
            )

    def release(self) -> None:
        """Release the lock; the file stays, since another writer may have it open."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def _owner() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


_CONDITIONAL = {"memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"}
"""Protocols whose `pipe_file(mode="create")` is refused by the store itself if there is a file. fsspec's own looks for
one first, which two may do at once."""


class RemoteFolder:
    """A folder of an fsspec file system.

    The file system must show files only complete, when they are closed or moved; a listing must show earlier writes;
    and `pipe_file(mode="create")` refuses an existing file. Object stores and HDFS do that.
    """

    def __init__(self, filesystem: Any, root: str) -> None:
        self._files = filesystem
        self._root = root.rstrip("/")
        self.path = str(filesystem.unstrip_protocol(self._root))

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _list(self) -> list[dict[str, Any]]:
        self._files.invalidate_cache(self._root)
        try:
            return list(self._files.ls(self._root, detail=True))
        except FileNotFoundError:
            return []

    def names(self) -> set[str]:
        """The names of its files, without subfolders."""
        return {str(each["name"]).rpartition("/")[2] for each in self._list() if each["type"] == "file"}

    def folders(self) -> list[str]:
        """The names of its subfolders."""
        found = (str(each["name"]).rstrip("/") for each in self._list() if each["type"] == "directory")
        return sorted(name.rpartition("/")[2] for name in found if name != self._root)

    def make(self, name: str = "") -> None:
        """Make the folder; object stores have no folders, and do nothing."""
        self._files.makedirs(self._at(name), exist_ok=True)

    @contextmanager
    def create(self, name: str) -> Iterator[Any]:
        """A new file."""
        with self._files.open(self._at(name), "wb") as file:
            yield file

    def publish(self, name: str, content: bytes) -> None:
        """Make a file of a name that none has: by a conditional put, on HDFS by a rename, which does not overwrite."""
        unfinished = f".{name}{temporary()}"
        try:
            if self._renames:
                self._files.pipe_file(self._at(unfinished), content)
                self._files.mv(self._at(unfinished), self._at(name))
            elif set(_protocols(self._files)) & _CONDITIONAL:
                self._files.pipe_file(self._at(name), content, mode="create")
            else:
                raise SourceError(
                    f"{self.path} is of a file system of which is not known that it can make a file only if there is "
                    "none: of two writers both might succeed.",
                    remedy=f"Give a folder of this machine, of HDFS, or of {', '.join(sorted(_CONDITIONAL))}.",
                )
        except OSError as error:
            # An answer that got lost is asked for again, and then the file is there: it may be this one.
            found = self._content(name)
            if found is None:
                raise
            if found != content:
                raise FileExistsError(f"{self.address(name)} exists") from error
        finally:
            if self._renames:
                self.remove([unfinished])

    def _content(self, name: str) -> bytes | None:
        try:
            return bytes(self._files.cat_file(self._at(name)))
        except FileNotFoundError:
            return None

    @property
    def _renames(self) -> bool:
        """Whether it is HDFS, through pyarrow."""
        return getattr(getattr(self._files, "fs", None), "type_name", None) == "hdfs"

    def rename(self, source: str, target: str) -> None:
        """Rename a file."""
        self._files.mv(self._at(source), self._at(target))

    def remove(self, names: Iterable[str]) -> None:
        """Remove files."""
        for name in names:
            with suppress(FileNotFoundError):
                self._files.rm_file(self._at(name))

    def remove_folder(self, name: str) -> None:
        """Remove a subfolder."""
        with suppress(FileNotFoundError):
            self._files.rm(self._at(name), recursive=True)

    def sync(self) -> None:
        """Do nothing: writes are durable."""

    def read(self, name: str, at_most: int | None = None) -> pa.Buffer:
        """A file's bytes."""
        return pa.py_buffer(self._files.cat_file(self._at(name), end=None if at_most is None else at_most + 1))

    def address(self, name: str) -> str:
        """The file's URL."""
        return str(self._files.unstrip_protocol(self._at(name)))

    def lock(self, take_over: str | None) -> Lock:
        """An object that names the writer. It stays when the writer is killed, until it is taken over by name."""
        return _RemoteLock(self._files, self._at(LOCK), self.path, take_over)


class _RemoteLock:
    def __init__(self, filesystem: Any, at: str, path: str, take_over: str | None) -> None:
        self._files, self._at, self._path = filesystem, at, path
        self._owner = f"{_owner()}, {secrets.token_hex(4)}"
        for _ in range(2):
            with suppress(FileExistsError):
                filesystem.pipe_file(at, self._owner.encode(), mode="create")
                break
            held = self._holder()
            if held is None:
                continue
            if take_over != held:
                raise BusyError(
                    f"{path} has a writer: {held}.",
                    remedy="A store has one writer at a time: close that one. If it was killed, take its place: "
                    f".writer(take_over={held!r}).",
                )
            filesystem.rm_file(at)
        self._process = os.getpid()
        try:
            self.check()
        except BaseException:
            with suppress(OSError):
                self.release()
            raise

    def _holder(self) -> str | None:
        try:
            return str(self._files.cat_file(self._at).decode(errors="replace"))
        except FileNotFoundError:
            return None

    def check(self) -> None:
        """Raise an error if another writer took the lock over.

        Raises:
            SourceError: Another writer did.
        """
        held = self._holder()
        if held != self._owner:
            raise SourceError(
                f"{self._path} has been taken over by {held or 'a writer that is done'}.",
                remedy="Open another writer, and append what this one had not.",
            )

    def release(self) -> None:
        """Release the lock, unless this process was forked from the writer's."""
        if os.getpid() == self._process and self._holder() == self._owner:
            self._files.rm_file(self._at)


def temporary() -> str:
    """A new temporary name, which readers ignore."""
    return f".{secrets.token_hex(8)}.tmp"
