"""Fuzzing: children that read damaged files, and a parent that says what became of each.

``python -m tests.fuzz.harness FIRST COUNT`` reads so many, and shows what was bad with the numbers that make it again.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[2]

GOOD = ("answer", "error")

HANG = 8.0
"""Seconds after which a file that has been read before in milliseconds never will be."""

MEMORY = 512
"""MiB beyond what a child has held before: no file here is larger than some kilobytes."""

_START = 300.0
"""Seconds until a child has compiled what it needs, on a slow machine, the first time."""

_ONE_THREAD = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
_PLAIN_MEMORY = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""No pool keeps what was given back: reading it shows sooner."""


@dataclass(frozen=True)
class Outcome:
    """What became of a file.

    Attributes:
        seed: The number that makes it again.
        what: Its kind, and what was done to it.
        verdict: "answer", "error" (of ours), "defect" (one of ours that blames us), "foreign exception", "memory",
            "hang", or "signal" with its number.
        seen: The error or the traceback.
    """

    seed: int
    what: str
    verdict: str
    seen: str

    @property
    def good(self) -> bool:
        return self.verdict in GOOD

    def __str__(self) -> str:
        return f"{self.verdict}: file {self.seed}: {self.what}\npython -m tests.fuzz.harness {self.seed} 1\n{self.seen}"


class Child:
    """A process that reads files."""

    def __init__(self, drawing: str, folder: Path, memory: int) -> None:
        self._errors = (folder / "errors.txt").open("wb")
        self._errors_read = folder / "errors.txt"
        environment = os.environ | _ONE_THREAD | _PLAIN_MEMORY | {"PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.child", drawing, str(folder / "given"), str(memory)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._heard = b""
        if self._word(_START) is None:
            self.close()
            raise AssertionError(f"The child did not start:\n{self._tail()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                pipe.close()

    def read(self, seed: int, hang: float) -> Outcome:
        """Have it read the file of a number. Unless that went well, the child is not to be asked again."""
        assert self._process.stdin is not None
        self._errors.truncate(0)
        self._process.stdin.write(f"{seed}\n".encode())
        self._process.stdin.flush()
        made = self._word(_START)
        if made is None:
            return self._lost(seed, "its making")
        word = self._word(hang)
        return (
            self._lost(seed, made["what"])
            if word is None
            else Outcome(seed, made["what"], word["verdict"], word["seen"])
        )

    def _lost(self, seed: int, what: str) -> Outcome:
        hangs = self._process.poll() is None and not self._ended()
        if hangs:
            self._process.send_signal(signal.SIGABRT)  # faulthandler writes where it is
        try:
            code = self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return Outcome(seed, what, "hang" if hangs else f"signal {-code}" if code < 0 else f"exit {code}", self._tail())

    def _ended(self) -> bool:
        """Whether it has closed its side: what died may not have been waited for yet."""
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], 0)
        return bool(readable)

    def _word(self, patience: float) -> dict[str, Any] | None:
        """The next thing that it says; None if it says nothing, or never will."""
        assert self._process.stdout is not None
        handle = self._process.stdout.fileno()
        while b"\n" not in self._heard:
            readable, _, _ = select.select([handle], [], [], patience)
            more = os.read(handle, 1 << 16) if readable else b""
            if not more:
                return None
            self._heard += more
        line, _, self._heard = self._heard.partition(b"\n")
        word: dict[str, Any] = json.loads(line)
        return word

    def _tail(self) -> str:
        said = self._errors_read.read_bytes().decode(errors="replace").lstrip("\0")
        return said.partition("\nExtension modules: ")[0][-6000:]


def outcomes(
    seeds: Iterable[int], drawing: str = "tests.fuzz.cases:draw", *, hang: float = HANG, memory: int = MEMORY
) -> Iterator[Outcome]:
    """Have the files of these numbers read: by one child until it dies, then by another.

    Args:
        seeds: The numbers.
        drawing: What makes the file of a number, as MODULE:FUNCTION.
        hang: After how many seconds a file hangs.
        memory: How many MiB more than at its start a child may take.
    """
    child: Child | None = None
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        try:
            for seed in seeds:
                child = child or Child(drawing, Path(folder), memory)
                outcome = child.read(seed, hang)
                if outcome.verdict not in {*GOOD, "defect", "foreign exception"}:
                    child.close()
                    child = None
                if outcome.verdict == "hang":
                    # A machine may have been busy with something else.
                    child = Child(drawing, Path(folder), memory)
                    outcome = child.read(seed, hang)
                    if outcome.verdict == "hang":
                        child.close()
                        child = None
                yield outcome
        finally:
            if child is not None:
                child.close()


def show(found: Iterable[Outcome]) -> int:
    """Print what is bad as it comes, and counts; gives how many are bad."""
    counts: Counter[str] = Counter()
    for outcome in found:
        counts[outcome.verdict] += 1
        if not outcome.good:
            print(f"{outcome}\n", flush=True)
    print(dict(counts))
    return sum(count for verdict, count in counts.items() if verdict not in GOOD)


if __name__ == "__main__":
    first, count = (int(each) for each in sys.argv[1:])
    sys.exit(bool(show(outcomes(range(first, first + count)))))
