"""A folder whose writer fails or dies at a chosen call."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpu_ops.microbatches.folders import LocalFolder


class Killed(BaseException):
    """The process is no more."""


class FailingFolder(LocalFolder):
    """A folder whose n-th step fails half done: the disk is full, or the process is killed and does nothing after."""

    def __init__(self, path: Path, fails_at: int, *, killed: bool, times: int = 1) -> None:
        super().__init__(path)
        self.steps = 0
        self._fails_at, self._killed, self._times = fails_at, killed, times

    def _step(self) -> bool:
        """Whether this step fails."""
        self.steps += 1
        if self._killed and self.steps > self._fails_at:
            raise Killed
        return self._fails_at <= self.steps < self._fails_at + self._times

    def _fail(self) -> None:
        raise Killed if self._killed else OSError(errno.ENOSPC, "No space left on device")

    @contextmanager
    def create(self, name: str) -> Iterator[Any]:
        if self._step():
            self._fail()
        with super().create(name) as file:
            yield _FailingFile(file, self)
            if self._step():
                self._fail()

    def rename(self, source: str, target: str) -> None:
        fails = self._step()
        if not (fails and self.steps % 2):  # a step that fails may have been done
            super().rename(source, target)
        if fails:
            self._fail()

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            if self._step():
                self._fail()
            super().remove([name])

    def sync(self) -> None:
        if self._step():
            self._fail()
        super().sync()


class _FailingFile:
    def __init__(self, file: Any, folder: FailingFolder) -> None:
        self._file, self._folder = file, folder

    def write(self, data: memoryview) -> None:
        fails = self._folder._step()
        self._file.write(data[: len(data) // 2] if fails else data)
        if fails:
            self._file.flush()
            self._folder._fail()

    def flush(self) -> None:
        self._file.flush()
