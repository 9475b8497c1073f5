"""The process that reads damaged files: it is told numbers, and says what became of each, until it dies of one.

``python -m tests.fuzz.child MODULE:FUNCTION FOLDER MIB``: the function draws the file of a number in the folder; so
many MiB of memory more than ever before are too many.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import resource
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

_GUARD = 3 << 30
"""Bytes of addresses beyond those of the start, at which the system refuses: before a machine swaps."""


def _status(key: str) -> int:
    """Bytes of a line of what Linux tells of this process."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) << 10
    raise AssertionError(key)


def _peak() -> int:
    """The most memory that this process has held so far, in bytes."""
    if sys.platform == "linux":  # getrusage would tell of the process that this one was forked from
        return _status("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        size = _status("VmSize") + _GUARD
        resource.setrlimit(resource.RLIMIT_AS, (size, size))


def judge(read: Callable[[], Any]) -> tuple[str, str]:
    """What becomes of a reading: a verdict, and what there is to see."""
    try:
        read()
    except MemoryError:
        return "memory", traceback.format_exc()
    except BaseException as error:  # noqa: BLE001  (a panic of Polars is no Exception)
        ours = [each.__name__ for each in type(error).__mro__ if each.__module__ == "gpu_ops.errors"]
        verdict = next((_NO_ANSWERS[name] for name in ours if name in _NO_ANSWERS), "error" if ours else None)
        if verdict == "memory" and error.__cause__ is None:
            verdict = "error"  # it was refused before any memory was taken; whether it was is looked at besides
        if verdict == "error":
            return verdict, f"{type(error).__name__}: {error}"
        return verdict or "foreign exception", traceback.format_exc()
    return "answer", ""


_NO_ANSWERS = {"DefectError": "defect", "OutOfMemoryError": "memory"}
"""Errors of ours that do not say what is wrong with a file: that we were wrong, or that so much was asked for."""


class Case(NamedTuple):
    """A file that lies there, and what is asked of it.

    Attributes:
        what: Its kind, what it was made from, and what was done to it.
        read: Asks.
    """

    what: str
    read: Callable[[], Any]


def main(drawing: str, folder: Path, mebibytes: int) -> None:
    """Read what is asked for on standard input, number by number."""
    faulthandler.enable()
    # What is printed by what is tried, by Polars' panics for instance, is no word to the parent.
    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module, _, function = drawing.partition(":")
    imported = importlib.import_module(module)
    draw = getattr(imported, function)
    getattr(imported, "warm", lambda _: None)(folder)

    def say(**words: Any) -> None:
        print(json.dumps(words), file=said, flush=True)

    _limit()
    say(ready=True)
    for line in sys.stdin:
        case = draw(int(line), folder)
        say(what=case.what)
        allowed = _peak() + (mebibytes << 20)
        verdict, seen = judge(case.read)
        if _peak() > allowed:
            verdict, seen = "memory", f"{(_peak() - allowed >> 20) + mebibytes:,} MiB at once, then: {verdict}\n{seen}"
        say(verdict=verdict, seen=seen)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
