"""When a follower writes its checkpoints, how many are kept, and how it stops."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from gpu_ops.engines.live.pace import Pace, stopping
from gpu_ops.errors import PlanError, SourceError
from tests.support.followers import follow_until_stopped, forked
from tests.support.following import Killed, batch, facts_of, fill, killed_after, query
from tests.support.rows import rows
from tests.support.ticks import at_us

pytestmark = pytest.mark.slow


def position(path: Path) -> int:
    """How many batches of the source a checkpoint has taken in."""
    taken: int = facts_of(path)["positions"]["store"]
    return taken


def plan() -> g.Stream:
    return query(batch(0).slice(0, 0))


# When


def test_checkpoints_are_written_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, path = fill(g.store(tmp_path / "in"), 30), tmp_path / "checkpoint"
    now = itertools.count()  # each look at the clock takes a second
    monkeypatch.setattr("gpu_ops.engines.live.pace.time.monotonic", lambda: float(next(now)))
    found: list[int] = []
    plan().start(device="cpu").follow(
        source,
        into=g.store(tmp_path / "out"),
        checkpoint=path,
        every="10s",
        on_step=lambda _: found.append(position(path)),
    )
    written = sorted(set(found))
    assert written[0] == 0
    assert 2 < len(written) < 8
    assert position(path) == 31


def test_a_checkpoint_is_written_while_no_batch_comes(tmp_path: Path) -> None:
    source, path = fill(g.store(tmp_path / "in"), 3, closed=False), tmp_path / "checkpoint"
    found: list[int] = []

    def look() -> None:
        until = time.monotonic() + 20
        while time.monotonic() < until and (not path.exists() or position(path) < 3):
            time.sleep(0.02)
        found.append(position(path))
        source.advance(at_us(MAX_TIME))

    looking = threading.Thread(target=look)
    looking.start()
    plan().start(device="cpu").follow(source, checkpoint=path, every="300ms", timeout="60s")
    looking.join()
    assert found == [3]


def test_what_is_no_pace_is_refused(tmp_path: Path) -> None:
    source = fill(g.store(tmp_path / "in"), 3)
    for every, message in ((0, "after one batch or more"), ("0s", "longer than zero"), ("soon", "every")):
        with pytest.raises(PlanError, match=message):
            plan().start(device="cpu").follow(source, every=every)
    with pytest.raises(PlanError, match="One checkpoint is kept, or more"):
        plan().start(device="cpu").follow(source, checkpoint=tmp_path / "c", keep=0)
    pace = Pace("1h")
    assert not pace.due()
    pace.step()
    assert not pace.due()


# How many


def test_the_last_checkpoints_are_kept_and_each_is_good(tmp_path: Path) -> None:
    source, path = fill(g.store(tmp_path / "in"), 30), tmp_path / "a chéckpoint"
    expected = rows(query(source.read()).collect(device="cpu"))
    out = g.store(tmp_path / "out")
    with pytest.raises(Killed):
        plan().start(device="cpu").follow(source, into=out, checkpoint=path, every=5, keep=3, on_step=killed_after(22))
    names = ["a chéckpoint", "a chéckpoint.1", "a chéckpoint.2"]
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_file()) == names
    assert [position(tmp_path / name) for name in names] == [20, 15, 10]
    live = g.restore(tmp_path / names[2], plan(), device="cpu")
    live.follow(source, into=out, checkpoint=path, every=5, keep=2)
    assert rows(out.read()) == expected
    assert [position(tmp_path / name) for name in names[:2]] == [31, 30]
    assert not (tmp_path / names[2]).exists()  # it was of the time of keep=3


def test_a_process_that_is_killed_again_and_again_pushes_no_checkpoint_out(tmp_path: Path) -> None:
    source, path, out = fill(g.store(tmp_path / "in"), 30), tmp_path / "checkpoint", g.store(tmp_path / "out")
    with pytest.raises(Killed):
        plan().start(device="cpu").follow(source, into=out, checkpoint=path, every=5, keep=3, on_step=killed_after(16))
    names = ("checkpoint", "checkpoint.1", "checkpoint.2")
    for _ in range(5):
        with pytest.raises(Killed):
            g.restore(path, plan(), device="cpu").follow(
                source, into=out, checkpoint=path, every=5, keep=3, on_step=killed_after(2)
            )
        assert [position(tmp_path / name) for name in names] == [15, 10, 5]
    # A run that goes on from another checkpoint keeps the newest one of the run before.
    with pytest.raises(Killed):
        g.restore(tmp_path / names[2], plan(), device="cpu").follow(
            source, into=out, checkpoint=path, every=5, keep=3, on_step=killed_after(2)
        )
    assert [position(tmp_path / name) for name in names] == [5, 15, 10]


def test_checkpoints_that_fail_push_no_good_ones_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live, path = plan().start(device="cpu"), tmp_path / "checkpoint"
    for number in range(3):
        live.positions["store"] = number
        live.checkpoint(path, keep=3)
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}

    def refuses(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for function in ("os.fsync", "pathlib.Path.replace", "zipfile.ZipFile.writestr"):
        for _ in range(4):
            with monkeypatch.context() as patch:
                patch.setattr(function, refuses)
                with pytest.raises(SourceError, match="No space left"):
                    live.checkpoint(path, keep=3)
        now = {each.name: position(each) for each in tmp_path.iterdir()}
        # The name next to the newest may be a second one of the newest: none older than it was lost for that.
        assert now["checkpoint"] == 2
        assert {0, 1, 2} >= set(now.values()) >= {1, 2}, function
    assert len(before) == 3
    live.positions["store"] = 3
    live.checkpoint(path, keep=3)
    assert [position(tmp_path / name) for name in ("checkpoint", "checkpoint.1", "checkpoint.2")] == [3, 2, 1]


def test_without_second_names_a_copy_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.link", refuses)
    live, path = plan().start(device="cpu"), tmp_path / "checkpoint"
    for number in range(4):
        live.positions["store"] = number
        live.checkpoint(path, keep=2)
    assert {each.name: position(each) for each in tmp_path.iterdir()} == {"checkpoint": 3, "checkpoint.1": 2}


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO])
def test_a_checkpoint_that_cannot_be_read_is_not_called_damaged(
    tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, path = plan().start(device="cpu"), tmp_path / "checkpoint"
    live.checkpoint(path)

    def refuses(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "open", refuses)
    with pytest.raises(
        SourceError, match=f"(cannot be read|may not be read by this process): .*{os.strerror(code)}.*no sign of damage"
    ):
        g.restore(path, plan())


# How it stops


@pytest.mark.services
def test_a_signal_ends_the_batch_and_writes_the_checkpoint(tmp_path: Path) -> None:
    source = fill(g.store(tmp_path / "in"), 12, closed=False)
    for number, taken in ((signal.SIGTERM, 7), (signal.SIGINT, 12)):
        with forked(follow_until_stopped, tmp_path) as process:
            assert process.pid is not None
            os.kill(process.pid, number)
            process.join(60)
            assert process.exitcode == 128 + number
        assert position(tmp_path / "checkpoint") == taken
    # While it waits too: all is read, and the checkpoint says so.
    out = g.store(tmp_path / "out")
    fill(source, 1, first=12, closed=False)
    with forked(follow_until_stopped, tmp_path) as process:
        time.sleep(1)
        process.terminate()
        process.join(60)
        assert process.exitcode == 128 + signal.SIGTERM
    assert position(tmp_path / "checkpoint") == 13
    fill(source, 2, first=13)
    g.restore(tmp_path / "checkpoint", plan(), device="cpu").follow(source, into=out)
    assert rows(out.read()) == rows(query(source.read()).collect(device="cpu"))


def test_a_second_signal_does_what_it_did_before() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stopping((signal.SIGINT,)) as stopped:
        assert stopped() is None
        signal.raise_signal(signal.SIGINT)
        assert stopped() == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_handlers_are_given_back(tmp_path: Path) -> None:
    source = fill(g.store(tmp_path / "in"), 3)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Killed):
        plan().start(device="cpu").follow(source, on_step=killed_after(2), stop_on=[signal.SIGTERM])
    assert signal.getsignal(signal.SIGTERM) is before
    with pytest.raises(SystemExit) as raised:
        plan().start(device="cpu").follow(
            source, on_step=lambda _: signal.raise_signal(signal.SIGTERM), stop_on=[signal.SIGTERM]
        )
    assert raised.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_signals_are_for_the_main_thread(tmp_path: Path) -> None:
    source = fill(g.store(tmp_path / "in"), 3)
    raised: list[Exception] = []

    def run() -> None:
        try:
            plan().start(device="cpu").follow(source, stop_on=[signal.SIGTERM])
        except PlanError as error:
            raised.append(error)
        plan().start(device="cpu").follow(source)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert "Only the main thread gets signals" in str(raised[0])
