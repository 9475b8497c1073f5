"""What goes wrong on a machine: kills, cuts of the power, and errors of the operating system."""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass

_MOMENTS = ("rename", "fsync folder", "unlink", "fsync file", "create", "step")
"""Calls around which a kill is the most likely to do harm."""

_WRITING = ("rename", "fsync folder", "unlink")


@dataclass
class Fault:
    """What goes wrong at a call.

    Attributes:
        what: "kill", "power cut", or the number of the error that the operating system gives.
        calls: The kinds of calls that it may happen at.
        after: How many of these calls go well first.
        times: How many of these calls fail; a kill happens once.
        done: Whether the call's work is done before the process is killed.
    """

    what: str | int
    calls: tuple[str, ...]
    after: int
    times: int = 1
    done: bool = False

    @property
    def name(self) -> str:
        return self.what if isinstance(self.what, str) else errno.errorcode[self.what]


def draw_faults(chance: random.Random, *, writes: bool) -> list[Fault]:
    """What goes wrong in an action: mostly nothing.

    Args:
        chance: Draws it.
        writes: Whether the action is one write of a store, the steps of which are few.
    """
    cuts = 5 if writes else 2
    kind = chance.choice(
        ["kill", "kill", *["power cut"] * cuts, "full", "fsync file", "fsync folder", "read", *[""] * 7]
    )
    after = int(chance.expovariate(1 / 8))
    if kind in ("kill", "power cut"):
        done = chance.random() < 0.5
        if chance.random() < 0.7:
            moments = _WRITING if writes else _MOMENTS
            return [Fault(kind, (chance.choice(moments),), chance.choice([0, 0, 1, 1, 2, 3, 5]), done=done)]
        return [Fault(kind, (*_MOMENTS, "mkdir", "write", "read", "list", "open"), after * 2, done=done)]
    if kind == "full":
        return [Fault(errno.ENOSPC, ("create", "write", "mkdir"), after * 3, chance.choice([1, 1, 4]))]
    if kind == "read":
        return [Fault(chance.choice([errno.EIO, errno.EACCES]), ("read", "list"), after, chance.choice([1, 1, 4]))]
    return [Fault(errno.EIO, (kind,), after // 2, chance.choice([1, 1, 3]))] if kind else []
