"""Sealed means safe: whatever ends a write, wherever in it, what was sealed is there and nothing else is."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from gpu_ops.errors import SourceError
from gpu_ops.microbatches.folders import LocalFolder
from gpu_ops.microbatches.writer import Writer
from tests.support.dying_folder import FailingFolder, Killed
from tests.support.stores import held, table
from tests.support.ticks import at_us

pytestmark = pytest.mark.slow

State = list[tuple[int, list[int], int | None]]


WRITES: list[Callable[[Writer], object]] = [
    lambda writer: writer.append(table([(0, 5), (1, 20)])),
    lambda writer: writer.append(table([(2, 4)], 2), cti=at_us(2)),
    lambda writer: writer.extend([table([(3, 9)], 3), table([(2, 8)], 4), table([(4, 5)], 5)], cti=at_us(4)),
    lambda writer: writer.advance(at_us(6)),
    lambda writer: writer.compact(3),
    lambda writer: writer.append(table([(6, 30)], 6)),
    lambda writer: writer.expire(at_us(20)),
    lambda writer: writer.append(table([(7, 8)], 7)),
    lambda writer: writer.compact(),
    lambda writer: writer.discard(7),
]


def after_each(path: Path) -> list[State]:
    """What a reader finds before the first write and after each."""
    store = g.store(path)
    states: list[State] = [[]]
    with store.writer() as writer:
        for write in WRITES:
            write(writer)
            states.append(held(store))
    return states


def test_the_writes_do_what_is_tested(tmp_path: Path) -> None:
    states = after_each(tmp_path)
    assert states[4] == [(1, [0, 1], None), (2, [2], 2), (3, [3], 2), (4, [4], 2), (5, [5], 4), (6, [], 6)]
    assert states[5] == states[4]
    # The first two batches stay: they were merged, and n=1 lives until 20, which is no later than the bound.
    assert states[7] == [(6, [], 6), (7, [6], 6)]
    # Batches 7 and 8 were merged, and what has expired stands before them.
    assert states[-1] == [(8, [], 6)]


def failing(path: Path, at: int, *, killed: bool, times: int = 1) -> tuple[g.Store, FailingFolder]:
    store = g.store(path)
    folder = FailingFolder(path, at, killed=killed, times=times)
    store._folder = folder
    return store, folder


def test_a_kill_at_any_step_shows_the_state_before_or_after(tmp_path: Path) -> None:
    states = after_each(tmp_path / "whole")
    for at in itertools.count(1):
        path = tmp_path / f"killed at {at}"
        store, folder = failing(path, at, killed=True)
        done, writer = 0, None
        try:
            writer = store.writer()
            for write in WRITES:
                write(writer)
                done += 1
        except Killed:
            pass
        if writer is not None:
            writer._lock.release()  # as the operating system does
        if done == len(WRITES):
            break
        reader = g.store(path)
        before_kill = reader.identity
        assert before_kill is not None or done == 0
        assert held(reader) in allowed(states, done), (at, done)
        # What comes next is numbered on, and finds nothing left behind.
        before = reader.sequence
        with reader.writer() as writer:
            assert writer.append(table([(40, 41)], 99)) == before + 1
        assert reader.identity is not None
        assert before_kill in {None, reader.identity}
        report = reader.verify()
        assert (report.sound, report.foreign, report.leftovers) == (True, (), ()), (at, done)
        assert held(reader)[-1][:2] == (before + 1, [99])
        assert {each.name for each in path.iterdir()} == {
            ".writer.lock",
            "store.json",
            *(Path(file).name for file in reader.files()),
        }
    assert folder.steps > 100


def allowed(states: list[State], done: int) -> list[State]:
    """What may be found in the middle of a write: what was there before it, or what is there after.

    Expiring and merging go file by file, so that some may be done and some not.
    """
    before, after = states[done], states[done + 1]
    kept = [batch for batch in before if batch in after]
    between = [
        [batch for batch in before if batch in after or batch[0] > last] for last in (batch[0] for batch in before)
    ]
    return [before, after, kept, *between]


def opened(store: g.Store) -> Writer:
    """A writer: whatever stops one from being opened leaves the store to the next, which finds its identity whole."""
    while True:
        try:
            return store.writer()
        except SourceError as error:
            assert "No space left on device" in str(error)  # noqa: PT017  (each time but the last)


def test_a_full_disk_at_any_step_leaves_a_writer_that_goes_on(tmp_path: Path) -> None:
    states = after_each(tmp_path / "whole")
    for at in itertools.count(1):
        path = tmp_path / f"full at {at}"
        store, folder = failing(path, at, killed=False)
        done, error = 0, None
        with opened(store) as writer:
            for write in WRITES:
                try:
                    write(writer)
                except SourceError as caught:
                    error = caught
                    break
                done += 1
            if error is None:
                if folder.steps < at:
                    break
                continue  # it was the opening that failed
            assert "No space left on device" in str(error)
            assert "What it held before is whole" in str(error)
            found = held(g.store(path))
            assert found in allowed(states, done), (at, done)
            assert writer.sequence == g.store(path).sequence
            if found == states[done]:
                WRITES[done](writer)
            assert held(store) == states[done + 1]
        # What the writer that failed left behind, the next removes.
        store.writer().close()
        report = store.verify()
        assert (report.sound, report.foreign, report.leftovers) == (True, (), ()), (at, done)
    assert folder.steps > 100


def test_a_disk_that_is_full_for_some_steps_spoils_nothing_for_later_writes(tmp_path: Path) -> None:
    """Even what tidies up after an error fails, until it is tried again before the next write."""
    states = after_each(tmp_path / "whole")
    errors = 0
    for at in range(1, 100, 3):
        path = tmp_path / f"full from {at}"
        store, _ = failing(path, at, killed=False, times=4)
        with opened(store) as writer:
            for done, write in enumerate(WRITES):
                while held(g.store(path)) != states[done + 1] or states[done] == states[done + 1]:
                    try:
                        write(writer)
                    except SourceError:
                        errors += 1
                    else:
                        break
        assert held(store) == states[-1], at
        store.writer().close()
        report = store.verify()
        assert (report.sound, report.foreign, report.leftovers) == (True, (), ()), at
    assert errors > 50


def test_what_is_relied_on_is_on_the_disk_first(tmp_path: Path) -> None:
    """A loss of power may undo what was not synced, in any order. So no name is given or taken too early."""
    steps: list[str] = []

    class Traced(LocalFolder):
        def rename(self, source: str, target: str) -> None:
            steps.append("rename")
            super().rename(source, target)

        def remove(self, names: Iterable[str]) -> None:
            for name in names:
                steps.append("remove")
                super().remove([name])

        def sync(self) -> None:
            steps.append("sync")

    store = g.store(tmp_path)
    store._folder = Traced(tmp_path)
    with store.writer() as writer:
        # The store's identity, and what an earlier writer may not have synced.
        assert steps == ["rename", "sync", "sync"]
        steps.clear()
        writer.append(table([(0, 1)]))
        assert steps == ["rename", "sync"]
        steps.clear()
        writer.extend([table([(0, 1)]), table([(0, 1)]), table([(0, 1)])])
        assert steps == ["rename", "rename", "sync", "rename", "sync"]
        steps.clear()
        writer.compact()
        assert steps == ["rename", "sync", "remove", "remove", "remove", "remove", "sync"]


@pytest.mark.services
def test_a_file_that_may_not_grow_is_a_clear_error(tmp_path: Path) -> None:
    script = """
        import os, resource, sys
        import pyarrow as pa
        import gpu_ops as g
        utc = pa.timestamp("us", "UTC")
        def table(size):
            times = pa.array(range(size)).cast(utc), pa.array(range(1, size + 1)).cast(utc)
            return pa.table({"start": times[0], "end": times[1], "text": [os.urandom(1000) for _ in range(size)]})
        store = g.store(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
        with store.writer() as writer:
            assert writer.append(table(2)) == 1
            try:
                writer.append(table(100))
            except g.SourceError as error:
                print(error)
            assert len(store.read()) == 2
            assert writer.append(table(2)) == 2
        assert len(store.read()) == 4 and store.verify().sound and not store.verify().leftovers
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path} cannot be written to: [Errno 27] File too large" in done.stdout


# Real processes, really killed. One process starts them by forking, which is quicker than as many interpreters.
KILLING = """
    import json, os, random, signal, sys, time
    import numpy as np
    import pyarrow as pa
    import gpu_ops as g

    path, rounds, chance = sys.argv[1], int(sys.argv[2]), random.Random(int(sys.argv[3]))
    utc = pa.timestamp("us", "UTC")

    def batch(number):
        size = number * 37 % 200
        times = pa.array([number] * size, pa.int64()), pa.array([number + 9] * size, pa.int64())
        texts = pa.array([f"{number} {row}" for row in range(size)], pa.string())
        return pa.table({"start": times[0].cast(utc), "end": times[1].cast(utc), "text": texts})

    def write(done):
        with g.store(path).writer() as writer:
            while True:
                number = writer.sequence + 1
                cti = np.datetime64(number, "us")
                if number % 6 == 0:
                    writer.extend([batch(number), batch(number + 1), batch(number + 2)], cti=cti)
                else:
                    writer.append(batch(number), cti=cti)
                os.write(done, b"%d " % writer.sequence)
                if chance.random() < 0.3:
                    writer.compact(500)

    def check(sealed):
        store = g.store(path)
        assert store.verify().sound
        found = list(store.batches())
        assert [each.sequence for each in found] == list(range(1, len(found) + 1))
        for each in found:
            assert each.events.equals(batch(each.sequence)), each.sequence
        assert sealed <= store.sequence <= sealed + 3, (sealed, store.sequence)
        whole = store.sequence
        assert whole < 6 or whole % 6 > 1, whole  # 6, 7 and 8 come at once, as do 12, 13 and 14
        return len(store.verify().leftovers)

    batch(1)
    g.store(path).append(batch(1), cti=np.datetime64(1, "us"))
    sealed, writes, leftovers = 1, 0, 0
    for _ in range(rounds):
        heard, done = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(heard)
            chance.seed(os.getpid())
            write(done)
        os.close(done)
        time.sleep(chance.random() * 0.12)
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        told = b""
        while piece := os.read(heard, 1 << 16):
            told += piece
        os.close(heard)
        writes += len(told.split())
        sealed = int(told.split()[-1]) if told else sealed
        leftovers += check(sealed)
        sealed = g.store(path).sequence
    with g.store(path).writer() as writer:
        writer.append(batch(writer.sequence + 1))
    assert not g.store(path).verify().leftovers
    print(json.dumps({"writes": writes, "left behind": leftovers}))
"""


def kill(path: Path, rounds: int, seed: int) -> dict[str, int]:
    arguments = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(KILLING), str(path), str(rounds), str(seed)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    told: dict[str, int] = json.loads(done.stdout)
    return told


@pytest.mark.services
def test_a_killed_writer_loses_nothing_that_was_sealed(tmp_path: Path) -> None:
    told = kill(tmp_path, 20, 1)
    assert told["writes"] + told["left behind"] > 0


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(10))
def test_a_writer_killed_often_loses_nothing_that_was_sealed(tmp_path: Path, seed: int) -> None:
    told = kill(tmp_path, 20, seed)
    assert told["writes"] + told["left behind"] > 0


@pytest.mark.services
def test_a_killed_writer_frees_the_store(tmp_path: Path) -> None:
    script = "import sys, gpu_ops as g; w = g.store(sys.argv[1]).writer(); print('open', flush=True); sys.stdin.read()"
    arguments = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        with pytest.raises(SourceError, match=f"has a writer: process {process.pid} on "):
            g.store(tmp_path).writer()
        process.kill()
    g.store(tmp_path).append(table([(0, 1)]), cti=at_us(MAX_TIME))


# Bytes that are not those that were sealed


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> g.Store:
    """Two small batches, whose files are read again and again."""
    store = g.store(tmp_path_factory.mktemp("sound"))
    store.append(table([(0, 5), (1, 20)]))
    store.append(table([(2, 5), (3, 20)], 2))
    return store


def test_a_flipped_byte_is_found_wherever_it_is(sound: g.Store) -> None:
    path = Path(sound.files()[1])
    whole = path.read_bytes()
    assert whole[:6] == whole[-6:] == b"ARROW1"
    try:
        for at in range(len(whole)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :])
            with pytest.raises(SourceError, match=r"is damaged: the CRC-32 of its bytes is not"):
                sound.read(since=1)
    finally:
        path.write_bytes(whole)
    assert sound.verify().sound


def test_a_torn_file_is_found_wherever_it_ends(sound: g.Store) -> None:
    path = Path(sound.files()[1])
    whole = path.read_bytes()
    try:
        for size in range(len(whole)):
            path.write_bytes(whole[:size])
            with pytest.raises(SourceError, match=f"is damaged: it has {size:,} bytes of {len(whole):,}"):
                sound.read(since=1)
        path.write_bytes(whole + b"\0")
        with pytest.raises(SourceError, match="damaged"):
            sound.read(since=1)
    finally:
        path.write_bytes(whole)
    assert sound.verify().sound


def test_a_damaged_batch_is_named_and_may_be_given_up(tmp_path: Path) -> None:
    store = g.store(tmp_path)
    for n in range(3):
        store.append(table([(n, n + 1)], n))
    path = Path(store.files()[1])
    path.write_bytes(path.read_bytes()[:-1])
    assert store.schema.names == ["start", "end", "n"]
    assert store.verify().damaged == (
        (
            f"{path} is damaged: it has {path.stat().st_size:,} bytes of {path.stat().st_size + 1:,}. "
            "Put it back from a copy, or give up batch 2: .writer() has discard(2)."
        ),
    )
    with pytest.raises(SourceError, match="damaged"):
        store.compact()
    assert store.append(table([(9, 10)], 9)) == 4
    with store.writer() as writer:
        assert writer.discard(2) == 1
        assert writer.discard(2) == 0
    assert held(store) == [(1, [0], None), (2, [], None), (3, [2], None), (4, [9], None)]
    assert store.verify().sound


def test_a_file_under_another_name_is_refused(sound: g.Store, tmp_path: Path) -> None:
    content = Path(sound.files()[0]).read_bytes()
    name = Path(sound.files()[0]).name
    (tmp_path / name.replace("rows2", "rows3")).write_bytes(content)
    with pytest.raises(SourceError, match="its name and its schema's metadata differ"):
        g.store(tmp_path).read()


def test_foreign_files_are_named_and_left_alone(tmp_path: Path) -> None:
    store = g.store(tmp_path)
    store.append(table([(0, 1)]))
    others = ["notes.txt", "0001.arrow", Path(store.files()[0]).name.replace("rows1", "rows01"), ".hidden"]
    for name in others:
        (tmp_path / name).write_text("not ours")
    (tmp_path / ".0123456789abcdef.tmp").write_bytes(b"ARROW1 half a ba")
    (tmp_path / "folder.arrow").mkdir()
    report = store.verify()
    assert report.foreign == tuple(sorted(others[:3]))
    assert report.leftovers == (".0123456789abcdef.tmp",)
    assert len(store.read()) == 1
    assert store.append(table([(1, 2)])) == 2
    assert store.verify().leftovers == ()
    assert all((tmp_path / name).exists() for name in others)
