"""A disk below the package's own code: real files in memory, whose calls may fail and whose unsynced bytes may be lost.

The code runs as it is, down to `os.fsync` and `flock`; what is patched are the calls of the operating system, for paths
below one folder. A process may be killed at each call, and a power cut ends all processes and loses what was
not synced: of a file's bytes a part or all of them, of the names that were given or taken any of them.
"""

from __future__ import annotations

import builtins
import contextlib
import fcntl
import gc
import io
import os
import random
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pytest

from tests.support.faults import Fault

_CALLS = ("close", "fsync", "link", "listdir", "mkdir", "open", "remove", "rename", "replace", "scandir", "unlink")


class Killed(BaseException):
    """The process is no more."""


class PowerCut(Killed):
    """No process is any more, and what was not synced may be lost."""


class _Last:
    """The call's work is done, and then the process is killed."""

    def __init__(self, error: type[Killed]) -> None:
        self._error = error

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        raise self._error


_UNHARMED = contextlib.nullcontext()


@dataclass
class Process:
    """What runs on the machine until it ends or is killed.

    Attributes:
        name: What it is called in a trace.
        faults: What goes wrong while it runs.
        happened: The errors that it was given.
        dead: Whether it was killed; then no call of its has an effect.
        end: What killed it.
        handles: The handles that it has open, some of which may hold a lock.
    """

    name: str
    faults: list[Fault] = field(default_factory=list)
    happened: list[str] = field(default_factory=list)
    dead: bool = False
    end: type[Killed] = Killed
    handles: set[int] = field(default_factory=set)


class _File:
    """A file's bytes, and what of them lasts."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.synced = b""
        self.dirty = True
        self.spoilt = False  # after an fsync that failed the next says nothing: the pages count as clean
        self.content: bytes | None = None  # while it has no name

    def survivor(self, chance: random.Random) -> bytes:
        """The bytes after a power cut."""
        content = self.content or b""
        if not self.dirty:
            return content
        torn = content[: chance.randrange(len(content) + 1)]
        return chance.choice([self.synced, b"", torn, bytes(len(content)), content])


class _Folder:
    """A folder's names, and which of them last."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.names: dict[str, _File | _Folder] = {}
        self.durable: dict[str, _File | _Folder] = {}
        self.pending: list[tuple[str, str | None, _File | _Folder | None]] = []  # (given or taken, in place of, what)

    def give(self, name: str, node: _File | _Folder, instead_of: str | None = None) -> None:
        if instead_of is not None:
            del self.names[instead_of]
        self.names[name] = node
        self.pending.append((name, instead_of, node))

    def take(self, name: str) -> None:
        del self.names[name]
        self.pending.append((name, None, None))

    def sync(self) -> None:
        self.durable, self.pending = dict(self.names), []

    def survivors(self, chance: random.Random) -> dict[str, _File | _Folder]:
        """The names after a power cut: those that were synced, and any of what was done since."""
        numbers = range(len(self.pending))
        any_of_them = {number for number in numbers if chance.random() < 0.5}
        but_one = set(numbers) - {chance.randrange(len(numbers) + 1)}
        lasting = chance.choice([set(), any_of_them, any_of_them, but_one, set(numbers[-1:]), set(numbers)])
        state = dict(self.durable)
        for number in sorted(lasting):
            name, instead_of, node = self.pending[number]
            if node is None:
                state.pop(name, None)
                continue
            if instead_of is not None and state.get(instead_of) is node:
                del state[instead_of]
            state[name] = node
        return state


class _Writing:
    """A file that is open for writing: each write reaches it at once, and a full disk takes half of one."""

    def __init__(self, disk: Disk, file: Any, node: _File, path: str) -> None:
        self._disk, self._file, self._node, self._path = disk, file, node, path

    def write(self, data: Any) -> int:
        self._node.dirty = True
        try:
            with self._disk.call("write", self._path):
                written: int = self._file.write(data)
                self._file.flush()
                return written
        except OSError:
            self._file.write(data[: len(data) // 2])
            self._file.flush()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._disk.nodes.pop(-1 if self._file.closed else self._file.fileno(), None)
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class Disk:
    """A folder whose files live in memory, and what the operating system says to processes that use it.

    Attributes:
        root: The folder.
        processes: Those that run, the one whose turn it is last.
        interrupt: Called before each call, so that another process may have its turn there.
    """

    def __init__(self, chance: random.Random) -> None:
        memory = Path("/dev/shm")  # noqa: S108  (where Linux keeps files in memory)
        self.root = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None))
        self.processes: list[Process] = []
        self.interrupt: Callable[[str, str], None] | None = None
        self.nodes: dict[int, _File | _Folder] = {}
        self._chance = chance
        self._tree = _Folder(str(self.root))
        self._abandoned: set[int] = set()
        self._clock = 0.0
        self._away = False

    # Processes

    @contextmanager
    def process(self, process: Process) -> Iterator[None]:
        """Run a process's code in a block; a kill in it ends the block quietly, a power cut every block."""
        self.processes.append(process)
        try:
            yield
        except PowerCut:
            for each in self.processes:
                self._end(each)
            raise
        except Killed:
            self._end(process)
        finally:
            self.processes.pop()

    def _end(self, process: Process) -> None:
        """Free what it holds. The numbers of its handles stay taken until its objects are gone, which close them."""
        process.dead = True
        for handle in process.handles:
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_UN)
            self._abandoned.add(handle)
        process.handles.clear()

    def folder(self, name: str) -> Path:
        """A new folder that lasts, as an operator makes one."""
        (self.root / name).mkdir()
        self._tree.durable[name] = self._tree.names[name]
        return self.root / name

    @contextmanager
    def aside(self, process: Process) -> Iterator[None]:
        """Run another process's code amid a call of the one whose turn it is, with no third one amid that."""
        interrupt, self.interrupt = self.interrupt, None
        try:
            with self.process(process):
                yield
        finally:
            self.interrupt = interrupt

    def forget(self, process: Process) -> None:
        """End a process between two calls."""
        self._end(process)

    def call(self, kind: str, path: str) -> contextlib.AbstractContextManager[None]:
        """A call of the operating system, by the process whose turn it is; its work is done in the block."""
        process = self.processes[-1] if self.processes else None
        if process is None:
            return _UNHARMED
        if process.dead:
            raise process.end
        if self.interrupt is not None:
            self.interrupt(kind, path)
        last: contextlib.AbstractContextManager[None] = _UNHARMED
        for fault in [each for each in process.faults if kind in each.calls]:
            if fault.after > 0:
                fault.after -= 1
                continue
            fault.times -= 1
            if fault.times == 0:
                process.faults.remove(fault)
            process.happened.append(f"{fault.name} at {kind} {os.path.relpath(path, self.root)}")
            if isinstance(fault.what, int):
                raise OSError(fault.what, os.strerror(fault.what), path)
            process.dead, process.end = True, PowerCut if fault.what == "power cut" else Killed
            if not fault.done:
                raise process.end
            last = _Last(process.end)
        return last

    def power_cut(self) -> None:
        """Lose what was not synced; no process may be running."""
        assert not self.processes
        self._away = True
        self._fall(self._tree, self.root)
        self._away = False

    def _fall(self, folder: _Folder, path: Path) -> None:
        state = folder.survivors(self._chance)
        for name, node in folder.names.items():
            if isinstance(node, _File):
                node.content = (path / name).read_bytes()
            if state.get(name) is not node:
                (shutil.rmtree if isinstance(node, _Folder) else os.unlink)(path / name)
        for name, node in state.items():
            if isinstance(node, _Folder):
                (path / name).mkdir(exist_ok=True)
                self._fall(node, path / name)
                continue
            left = node.survivor(self._chance)
            if folder.names.get(name) is not node or left != node.content:
                (path / name).unlink(missing_ok=True)  # and not in place: what has it open keeps the old bytes
                (path / name).write_bytes(left)
            node.path, node.dirty, node.spoilt, node.synced = str(path / name), False, False, left
        folder.names, folder.durable, folder.pending = dict(state), dict(state), []

    # The operating system

    @contextmanager
    def mounted(self) -> Iterator[Disk]:
        """Let calls for paths below the folder come here, and time go by without waiting."""
        self._real = {name: getattr(os, name) for name in _CALLS}
        self._open_file, self._arrow_file = io.open, pa.OSFile
        try:
            with pytest.MonkeyPatch.context() as patch:
                for name in _CALLS:
                    patch.setattr(os, name, getattr(self, f"_{name}"))
                patch.setattr(io, "open", self._io_open)
                patch.setattr(builtins, "open", self._io_open)
                patch.setattr(pa, "OSFile", self._os_file)
                patch.setattr(secrets, "token_hex", lambda size=8: self._chance.randbytes(size).hex())
                patch.setattr(time, "monotonic", self._here(self._monotonic, time.monotonic))
                patch.setattr(time, "sleep", self._here(self._sleep, time.sleep))
                yield self
                gc.collect()  # what the processes held closes its handles
        finally:
            shutil.rmtree(self.root, ignore_errors=True)

    @staticmethod
    def _here(ours: Callable[..., Any], others: Callable[..., Any]) -> Callable[..., Any]:
        """For the thread that mounts this disk, ours: a thread of Py4J's that sleeps no more takes the interpreter."""
        mounting = threading.get_ident()

        def call(*arguments: Any) -> Any:
            return (ours if threading.get_ident() == mounting else others)(*arguments)

        return call

    def _monotonic(self) -> float:
        self._clock += 0.001
        return self._clock

    def _sleep(self, seconds: float) -> None:
        self._clock += seconds

    def _below(self, path: Any) -> str | None:
        """The path as text if it is below the folder."""
        if self._away or isinstance(path, int):
            return None
        text = os.path.abspath(os.fsdecode(path))  # noqa: PTH100  (Path would ask the patched calls)
        return text if f"{text}/".startswith(f"{self.root}/") else None

    def _folder(self, path: str) -> tuple[_Folder, str]:
        """The folder that a path's last name is in, and that name."""
        *above, name = os.path.relpath(path, self.root).split("/")
        found: _File | _Folder = self._tree
        for each in above:
            assert isinstance(found, _Folder)
            found = found.names[each]
        assert isinstance(found, _Folder)
        return found, name

    def _node(self, path: str) -> _File | _Folder:
        if path == str(self.root):
            return self._tree
        folder, name = self._folder(path)
        return folder.names[name]

    def _io_open(self, file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        path = self._below(file)
        if path is None:
            return self._open_file(file, mode, *arguments, **options)
        if not set(mode) & set("wxa+"):
            with self.call("read", path):
                pass
            return self._open_file(file, mode, *arguments, **options)
        opened: Any = None
        try:
            with self.call("create", path):
                opened = self._open_file(file, mode, *arguments, **options)
                node = self._created(path)
                self.nodes[opened.fileno()] = node
        except Killed:
            if opened is not None:
                opened.close()
            raise
        return _Writing(self, opened, node, path)

    def _created(self, path: str) -> _File:
        """The file that a path names from now on."""
        folder, name = self._folder(path)
        node = folder.names.get(name)
        if not isinstance(node, _File):
            node = _File(path)
            folder.give(name, node)
        node.dirty = True
        return node

    def _os_file(self, path: Any, *arguments: Any) -> Any:
        below = self._below(path)
        with _UNHARMED if below is None else self.call("read", below):
            pass
        return self._arrow_file(path, *arguments)

    def _open(self, path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        below = self._below(path)
        if below is None:
            return int(self._real["open"](path, flags, *arguments, **options))
        with self.call("open", below):
            pass
        handle = int(self._real["open"](path, flags, *arguments, **options))
        if below != str(self.root):
            folder, name = self._folder(below)
            if name not in folder.names:  # a lock, whose bytes nobody needs
                made = _File(below)
                made.dirty = False
                folder.give(name, made)
        self.nodes[handle] = self._node(below)
        if self.processes:
            self.processes[-1].handles.add(handle)
        return handle

    def _close(self, handle: int) -> None:
        self.nodes.pop(handle, None)
        self._abandoned.discard(handle)
        for process in self.processes:
            process.handles.discard(handle)
        self._real["close"](handle)

    def _fsync(self, handle: int) -> None:
        node = self.nodes.get(handle)
        if node is None:
            self._real["fsync"](handle)
            return
        kind = "fsync folder" if isinstance(node, _Folder) else "fsync file"
        try:
            with self.call(kind, node.path):
                if isinstance(node, _Folder):
                    node.sync()
                elif not node.spoilt:
                    node.dirty = False
                    node.synced = self._bytes(node.path)
        except OSError:
            if isinstance(node, _File):
                node.spoilt = True
            raise

    def _rename(self, source: Any, target: Any, **options: Any) -> None:
        paths = [self._below(each) for each in (source, target)]
        if paths[0] is None or paths[1] is None:
            self._real["rename"](source, target, **options)
            return
        with self.call("rename", paths[1]):
            folder, name = self._folder(paths[1])
            self._keep(paths[1])
            self._real["rename"](source, target, **options)
            before, old = self._folder(paths[0])
            assert before is folder, "files are renamed within a folder"
            node = before.names[old]
            folder.give(name, node, old)
            if isinstance(node, _File):
                node.path = paths[1]

    _replace = _rename

    def _keep(self, path: str) -> None:
        """Remember the bytes of a file that loses its name, which a power cut may give back."""
        folder, name = self._folder(path)
        node = folder.names.get(name)
        if isinstance(node, _File):
            node.content = self._bytes(path)

    def _bytes(self, path: str) -> bytes:
        with self._open_file(path, "rb") as file:
            return bytes(file.read())

    def _unlink(self, path: Any, **options: Any) -> None:
        below = self._below(path)
        if below is None:
            self._real["unlink"](path, **options)
            return
        with self.call("unlink", below):
            if os.path.lexists(below):
                self._keep(below)
            self._real["unlink"](path, **options)
            folder, name = self._folder(below)
            folder.take(name)

    _remove = _unlink

    def _link(self, source: Any, target: Any, **options: Any) -> None:
        paths = [self._below(each) for each in (source, target)]
        if paths[0] is None or paths[1] is None:
            self._real["link"](source, target, **options)
            return
        with self.call("create", paths[1]):
            self._real["link"](source, target, **options)
            folder, name = self._folder(paths[1])
            folder.give(name, self._node(paths[0]))

    def _mkdir(self, path: Any, *arguments: Any, **options: Any) -> None:
        below = self._below(path)
        if below is None:
            self._real["mkdir"](path, *arguments, **options)
            return
        with self.call("mkdir", below):
            self._real["mkdir"](path, *arguments, **options)
            folder, name = self._folder(below)
            folder.give(name, _Folder(below))

    def _scandir(self, path: Any = ".") -> Any:
        below = self._below(path)
        with _UNHARMED if below is None else self.call("list", below):
            pass
        return self._real["scandir"](path)

    def _listdir(self, path: Any = ".") -> Any:
        below = self._below(path)
        with _UNHARMED if below is None else self.call("list", below):
            pass
        return self._real["listdir"](path)
