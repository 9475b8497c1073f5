"""A loss of power takes what was not synced: nothing that was acknowledged, and nothing that others rely on."""

from __future__ import annotations

import errno
import random
from contextlib import suppress

import pytest

import gpu_ops as g
from gpu_ops.errors import SourceError
from tests.support.disk import Disk, PowerCut, Process
from tests.support.faults import Fault
from tests.support.followed import batch

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(8))
def test_what_the_next_writer_finds_lasts(seed: int) -> None:
    """A writer was killed after it gave a name and before it synced it; the next counts the batch, and so do others."""
    disk = Disk(random.Random(seed))
    with disk.mounted():
        path = disk.folder("stores") / "store"
        g.store(path).append(batch([(0, 1, 2, 3)]))
        killed = Process("killed", [Fault("kill", ("rename",), 0, done=True)])
        with disk.process(killed):
            g.store(path).append(batch([(1, 2, 2, 3)]))
        assert killed.dead
        with g.store(path).writer() as writer:
            assert writer.sequence == 2
        disk.power_cut()
        assert g.store(path).sequence == 2


@pytest.mark.parametrize("seed", range(8))
def test_what_a_wider_file_hides_goes_when_the_wider_one_lasts(seed: int) -> None:
    """A writer was killed after it gave the merged file its name; the power is cut while the next one tidies up."""
    disk = Disk(random.Random(seed))
    with disk.mounted():
        path = disk.folder("stores") / "store"
        for at in range(3):
            g.store(path).append(batch([(at, at + 1, 2, 3)]))
        with disk.process(Process("killed", [Fault("kill", ("rename",), 0, done=True)])):
            g.store(path).compact()
        with suppress(PowerCut), disk.process(Process("next", [Fault("power cut", ("unlink",), 1)])):
            g.store(path).writer()
        disk.power_cut()
        assert g.store(path).read()["v"].to_pylist() == [3, 3, 3]


def test_a_staged_file_that_cannot_be_read_is_an_error_of_ours() -> None:
    disk = Disk(random.Random(1))
    with disk.mounted():
        path = disk.folder("stores") / "store"
        denied = Process("denied", [Fault(errno.EACCES, ("read",), 0)])
        with disk.process(denied), g.store(path).writer() as writer:
            with pytest.raises(SourceError, match="cannot be read"):
                writer.extend([batch([(0, 1, 2, 3)])])
            assert writer.extend([batch([(0, 1, 2, 3)])]) == 1
