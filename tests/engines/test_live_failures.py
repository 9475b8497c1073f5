"""A call that fails: either nothing of it was taken in, or the query says at every later call that it has failed."""

from __future__ import annotations

import inspect
import logging
import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from gpu_ops.engines.live.calls import Calls
from gpu_ops.engines.live.running_query import RunningQuery
from gpu_ops.errors import FunctionError, PlanError, QueryFailedError, SumOverflowError, TimeError
from gpu_ops.microbatches.writer import Writer
from gpu_ops.operators.windows.incremental_window import IncrementalWindow
from tests.support import branches
from tests.support.devices import HERE
from tests.support.examples import examples
from tests.support.live_plans import EDGES, UTC, edge, sessions, told
from tests.support.rows import rows
from tests.support.ticks import at_us

BIDS = pa.schema([("at", pa.int64()), ("k", pa.string()), ("v", pa.int64())])
BIG = 1 << 62


def bids(**settings: Any) -> g.Stream:
    stream = g.events(BIDS.empty_table(), start="at", unit="us")
    return stream.advance_time(**settings) if settings else stream


def totals() -> g.Stream:
    return bids().by("k").tumbling("10us", align=at_us(0)).agg(t=g.sum("v"))


def bid(at: int, k: str = "good", v: int = 1) -> dict[str, Any]:
    return {"at": at, "k": k, "v": v}


def later_calls(live: RunningQuery, folder: Path) -> dict[str, Callable[[], object]]:
    return {
        "push": lambda: live.push([bid(90)]),
        "advance": lambda: live.advance(at_us(100)),
        "close": live.close,
        "results": live.results,
        "late": live.late,
        "state": live.state,
        "checkpoint": lambda: live.checkpoint(folder / "later"),
        "report": live.report,
        "rejected": live.rejected,
        "run": lambda: list(live.run([[bid(91)]])),
        "follow": lambda: live.follow(g.store(folder / "none"), timeout=0),
    }


def all_fail(live: RunningQuery, folder: Path, cause: BaseException, *said: str) -> None:
    """Every later call says what failed, and where."""
    for name, call in later_calls(live, folder).items():
        with pytest.raises(QueryFailedError) as raised:
            call()
        assert raised.value.__cause__ is cause, name
        assert all(each in str(raised.value) for each in said), (name, str(raised.value))
    assert not (folder / "later").exists()


# Failed


@pytest.mark.parametrize("device", HERE)
def test_an_overflow_leaves_the_query_failed_and_names_node_and_group(tmp_path: Path, device: str) -> None:
    live = totals().start(device=device)
    live.push([bid(1), bid(2)])
    live.advance(at_us(10))
    live.push([bid(11), bid(12, "bad", BIG), bid(13, "bad", BIG)])
    live.checkpoint(tmp_path / "c")
    with pytest.raises(SumOverflowError, match="k='bad'") as raised:
        live.advance(at_us(20))
    assert "Window tumbling" in "".join(raised.value.__notes__)
    # What was final before is given once.
    assert told(live.results()) == [(0, 10, "good", 2)]
    said = ["failed in advance", "k='bad'", "Window tumbling", f"g.restore({str(tmp_path / 'c')!r}"]
    all_fail(live, tmp_path, raised.value, *said)
    assert "failed" in repr(live)
    status = live.status()
    assert "does not fit int64" in str(status.failed)
    assert "does not fit int64" in repr(status)
    assert (status.events_in, status.events_out, status.cti_in, status.cti_out) == (5, 1, 10, 10)
    again = g.restore(tmp_path / "c", totals(), device=device)
    assert told(again.results()) == [(0, 10, "good", 2)]


def test_a_query_without_a_checkpoint_is_to_be_started_anew(tmp_path: Path) -> None:
    live = totals().start(device="cpu")
    live.push([bid(12, "bad", BIG), bid(13, "bad", BIG)])
    with pytest.raises(SumOverflowError) as raised:
        live.advance(at_us(20))
    all_fail(live, tmp_path, raised.value, "Start the query anew")


class Moody:
    """A function that fails at one of its calls."""

    def __init__(self, at: int, error: type[BaseException] = ValueError) -> None:
        self.calls, self.at, self.error = 0, at, error

    def __call__(self, window: pa.Table) -> int:
        self.calls += 1
        if self.calls == self.at:
            raise self.error("not today")
        return int(window["v"].length())


def counted(function: Callable[[pa.Table], int]) -> g.Stream:
    return bids().tumbling("10us", align=at_us(0)).agg(n=g.window_function(function, returns=pa.int64(), of="v"))


@pytest.mark.parametrize("error", [ValueError, MemoryError, KeyboardInterrupt, SystemExit])
def test_a_function_that_fails_once_loses_nothing_silently(tmp_path: Path, error: type[BaseException]) -> None:
    live = counted(Moody(2, error)).start(device="cpu")
    live.push([bid(1), bid(11), bid(21)])
    live.advance(at_us(10))
    with pytest.raises((FunctionError, error)) as raised:
        live.advance(at_us(20))
    assert told(live.results()) == [(0, 10, 1)]
    all_fail(live, tmp_path, raised.value, "Window tumbling")


def test_an_interrupt_in_mid_push(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = totals().start(device="cpu")
    live.push([bid(1)])
    live.advance(at_us(10))
    step = IncrementalWindow.step

    def interrupted(*given: Any) -> Any:
        made = step(*given)
        signal.raise_signal(signal.SIGINT)
        return made

    monkeypatch.setattr(IncrementalWindow, "step", interrupted)
    with pytest.raises(KeyboardInterrupt) as raised:
        live.advance(at_us(20))
    monkeypatch.undo()
    assert told(live.results()) == [(0, 10, "good", 1)]
    all_fail(live, tmp_path, raised.value, "KeyboardInterrupt")


def test_a_second_interrupt_while_the_first_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def again(*_: object) -> None:
        raise KeyboardInterrupt

    live = counted(Moody(1)).start(device="cpu")
    live.push([bid(1)])
    monkeypatch.setattr(Calls, "fail", again)
    with pytest.raises(KeyboardInterrupt):
        live.advance(at_us(10))
    monkeypatch.undo()
    with pytest.raises(QueryFailedError, match="interrupted") as raised:
        live.push([bid(11)])
    assert raised.value.__cause__ is not None
    all_fail(live, tmp_path, raised.value.__cause__)


def test_a_close_that_fails_does_not_close(tmp_path: Path) -> None:
    live = counted(Moody(1)).start(device="cpu")
    live.push([bid(1)])
    with pytest.raises(FunctionError) as raised:
        live.close()
    assert not live.closed
    assert "closed" not in repr(live)
    all_fail(live, tmp_path, raised.value, "failed in close")
    with pytest.raises(QueryFailedError), live:
        pass  # the end of the block closes it


def test_the_imported_cti_that_fails_elsewhere_fails_the_query(tmp_path: Path) -> None:
    # An end edge waits for its turn, and nobody has started what it ends: that is found when the other's CTI comes.
    fast = g.events(BIDS.empty_table(), start="at", unit="us", name="fast")
    slow = g.events(EDGES.empty_table(), start="at", end="until", unit="us", shape="edge", edge="kind", name="slow")
    live = slow.advance_time(reorder="5us", advance_with=fast).union(fast.select(who="k")).start(device="cpu")
    live.push([edge("end", 2, 4, "a")], input="slow")
    with pytest.raises(TimeError, match="has not started") as raised:
        live.advance(at_us(20), input="fast")
    all_fail(live, tmp_path, raised.value, "has not started")


# Refused: nothing was taken in


def test_a_refused_batch_leaves_the_query_as_it_was() -> None:
    live, other = (totals().start(device="cpu") for _ in range(2))
    for each in (live, other):
        each.push([bid(1), bid(12)])
        each.advance(at_us(11))
    for wrong, error in (
        ([bid(13), {"at": None, "k": "x", "v": 1}], TimeError),  # a null start
        ([bid(14), bid(3)], TimeError),  # late
        ([{"at": "x", "k": 1, "v": 1}], g.SourceError),
        ({"at": [15], "k": ["a"]}, g.ColumnError),
    ):
        with pytest.raises(error):
            live.push(wrong)
    with pytest.raises(TimeError):
        live.advance(at_us(MAX_TIME + 5))
    with pytest.raises(PlanError):
        live.push([bid(20)], input="nobody")
    assert live.status() == other.status()
    assert live.report() == other.report()
    assert live.state() == other.state()
    for each in (live, other):
        each.push([bid(15)])
        each.close()
    assert rows(live.results()) == rows(other.results())


def test_refused_edges_leave_the_query_as_it_was() -> None:
    live = sessions().advance_time(reorder="2us").snapshot().agg(n=g.count()).start(device="cpu")
    live.push([edge("start", 2, None, "a")])
    live.advance(at_us(5))
    for wrong in ([edge("start", 6, None, "b"), edge("end", 3, 9, "nobody"), edge("start", 20, None, "c")],
                  [edge("start", 7, None, "b"), edge("start", 1, None, "c")]):  # fmt: skip
        with pytest.raises(TimeError):
            live.push(wrong)
    live.push([edge("end", 2, 8, "a")])
    live.close()
    assert told(live.results()) == [(2, 8, 1)]


# on_results


def test_results_that_nobody_took_are_offered_again() -> None:
    taken, fails = list[tuple[Any, ...]](), [True]

    def sink(results: pa.Table) -> None:
        if fails[0]:
            raise OSError("the network is down")
        taken.extend(told(results))

    live = totals().start(device="cpu", on_results=sink)
    live.push([bid(1), bid(11)])
    with pytest.raises(OSError, match="network"):
        live.advance(at_us(10))
    before = live.status()
    with pytest.raises(OSError, match="network"):
        live.push([bid(12)])  # before anything new
    assert live.status() == before
    assert (before.failed, before.events_out, before.cti_out) == (None, 1, 10)
    fails[0] = False
    live.push([bid(12)])
    assert taken == [(0, 10, "good", 1)]
    fails[0] = True
    with pytest.raises(OSError, match="network"):
        live.close()
    assert live.closed
    fails[0] = False
    live.close()  # offers the last ones
    assert taken == [(0, 10, "good", 1), (10, 20, "good", 2)]
    with pytest.raises(PlanError, match="closed"):
        live.close()


def test_results_that_nobody_took_are_in_the_checkpoint(tmp_path: Path) -> None:
    def broken(_: pa.Table) -> None:
        raise OSError("the network is down")

    live = totals().start(device="cpu", on_results=broken)
    live.push([bid(1)])
    with pytest.raises(OSError, match="network"):
        live.advance(at_us(10))
    live.checkpoint(tmp_path / "c")
    taken = list[pa.Table]()
    again = g.restore(tmp_path / "c", totals(), device="cpu", on_results=taken.append)
    again.advance(at_us(20))
    assert told(pa.concat_tables(taken)) == [(0, 10, "good", 1)]
    assert told(live.results()) == [(0, 10, "good", 1)]  # or whoever asks


def test_on_results_may_look_and_not_push() -> None:
    seen = list[Any]()

    def look(results: pa.Table) -> None:
        seen.append((results.num_rows, live.status().events_out, live.results().num_rows, live.cti, len(live.state())))
        calls: dict[str, Callable[[], object]] = {"push": lambda: live.push([bid(30)]), "close": live.close}
        for name, call in calls.items():
            with pytest.raises(PlanError, match=f"{name} was called from within on_results, in advance"):
                call()

    live = totals().start(device="cpu", on_results=look)
    live.push([bid(1)])
    live.advance(at_us(10))
    assert seen == [(1, 1, 0, 10, len(live.state()))]
    live.close()


def test_a_function_in_a_window_may_not_look() -> None:
    def look(window: pa.Table) -> int:
        live.status()
        return int(window["v"].length())

    live = counted(look).start(device="cpu")
    live.push([bid(1)])
    with pytest.raises(FunctionError, match="status was called from within advance"):
        live.advance(at_us(10))


# following


REFUSED: dict[str, int | None] = {"value": None}


def picky(window: pa.Table) -> int:
    if REFUSED["value"] in window["v"].to_pylist():
        raise ValueError("not that one")
    return int(window["v"].length())


def stored(folder: Path, batches: int = 12) -> g.Store:
    store = g.store(folder / "in")
    with store.writer() as writer:
        for number in range(batches):
            at = [10 * number + each for each in range(3)]
            times = {
                name: pa.array(each, pa.int64()).cast(UTC)
                for name, each in (("start", at), ("end", [x + 1 for x in at]))
            }
            writer.append(pa.table({**times, "v": at}), at_us(MAX_TIME) if number == batches - 1 else at_us(at[-1]))
    return store


def followed(store: g.Store, function: Callable[[pa.Table], int]) -> g.Stream:
    made = g.window_function(function, returns=pa.int64(), of="v")
    return g.events(store).tumbling("10us", align=at_us(0)).agg(n=made)


def test_a_step_that_fails_once_is_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, out = stored(tmp_path), g.store(tmp_path / "out")
    live = followed(store, Moody(6)).start(device="cpu")
    with caplog.at_level(logging.WARNING, "gpu_ops"):
        live.follow(store, into=out, checkpoint=tmp_path / "c", every=4, timeout=0)
    (record,) = caplog.records
    assert "failed in advance, at batch 7" in record.getMessage()
    assert str(tmp_path / "c") in record.getMessage()
    assert rows(out.read()) == rows(followed(store, picky).collect(device="cpu"))
    assert (live.closed, live.status().failed, out.cti) == (True, None, MAX_TIME)


def test_the_same_error_at_the_same_batch_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, out = stored(tmp_path), g.store(tmp_path / "out")
    monkeypatch.setitem(REFUSED, "value", 50)
    live = followed(store, picky).start(device="cpu")
    with pytest.raises(QueryFailedError, match=r"failed again in advance, at batch 7: FunctionError") as raised:
        live.follow(store, into=out, checkpoint=tmp_path / "c", every=4, timeout=0)
    assert isinstance(raised.value.__cause__, FunctionError)
    assert "in the node Window tumbling" in str(raised.value)
    assert "start=1970-01-01T00:00:00.000050Z" in str(raised.value)
    # What was written before stands, and the query goes on once it is mended.
    monkeypatch.undo()
    again = g.restore(tmp_path / "c", followed(store, picky), device="cpu")
    assert again.positions["store"] == 4
    again.follow(store, into=out, checkpoint=tmp_path / "c", timeout=0)
    assert rows(out.read()) == rows(followed(store, picky).collect(device="cpu"))


def test_without_a_checkpoint_a_failed_step_ends_it(tmp_path: Path) -> None:
    store = stored(tmp_path)
    live = followed(store, Moody(3)).start(device="cpu")
    with pytest.raises(FunctionError):
        live.follow(store, timeout=0)
    with pytest.raises(QueryFailedError, match="at batch 4"):
        live.follow(store, timeout=0)


def test_an_interrupt_ends_it(tmp_path: Path) -> None:
    store = stored(tmp_path)
    live = followed(store, Moody(3, KeyboardInterrupt)).start(device="cpu")
    with pytest.raises(KeyboardInterrupt):
        live.follow(store, checkpoint=tmp_path / "c", timeout=0)
    assert live.status().failed is not None


def test_results_that_cannot_be_written_fail_the_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, out = stored(tmp_path), g.store(tmp_path / "out")
    live = followed(store, picky).start(device="cpu")

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Writer, "append", full)
    with pytest.raises(OSError, match="no space"):
        live.follow(store, into=out, checkpoint=tmp_path / "c", timeout=0)
    monkeypatch.undo()
    with pytest.raises(QueryFailedError, match="no space"):
        live.follow(store, into=out, checkpoint=tmp_path / "c", timeout=0)
    again = g.restore(tmp_path / "c", followed(store, picky), device="cpu")
    again.follow(store, into=out, checkpoint=tmp_path / "c", timeout=0)
    assert rows(out.read()) == rows(followed(store, picky).collect(device="cpu"))


def test_one_thread_alone_changes_a_query_that_follows(tmp_path: Path) -> None:
    store = stored(tmp_path, 3)
    live = followed(store, picky).start(device="cpu")
    errors = list[str]()

    def others() -> None:
        for call in (lambda: live.advance(at_us(99)), lambda: live.follow(store, timeout=0)):
            with pytest.raises(PlanError, match="follow") as raised:
                call()
            errors.append(str(raised.value))
        errors.append(str(live.status().events_in))

    def step(_: Any) -> None:
        if not errors:
            thread = threading.Thread(target=others)
            thread.start()
            thread.join()

    live.follow(store, timeout=0, on_step=step)
    assert len(errors) == 3
    assert live.status().events_in == 9


# Anywhere


class StoppedError(BaseException):
    """What comes up in the midst of a call, as Ctrl-C does."""


def stopped(call: Callable[[], object], after: int) -> None:
    """Make a call that is stopped where so many functions of ours have begun."""
    left = [after]

    def began(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and f"{os.sep}gpu_ops{os.sep}" in frame.f_code.co_filename:
            left[0] -= 1
            # What a generator that is being closed raises is lost.
            if left[0] < 0 and not frame.f_code.co_flags & inspect.CO_GENERATOR:
                sys.setprofile(None)
                raise StoppedError

    before = sys.getprofile()
    sys.setprofile(began)
    try:
        call()
    finally:
        sys.setprofile(before)


@pytest.mark.slow
@examples(dear=True)
@given(st.integers(0, 1 << 40))
def test_a_call_that_is_stopped_anywhere_has_taken_nothing_in_or_failed_the_query(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    chance = random.Random(seed)
    asked = branches.Asked(chance)
    try:
        expected = asked.query(asked.tables).collect(device="cpu")
    except g.GpuOpsError:
        return
    path = tmp_path_factory.mktemp("stopped") / "checkpoint"
    live, found = asked.live().start(device="cpu"), list[pa.Table]()
    left = {name: table for name, table in asked.tables.items() if name in live.input_ctis()}

    def make(call: Callable[[RunningQuery], object]) -> RunningQuery:
        live.checkpoint(path)
        try:
            stopped(lambda: call(live), chance.randrange(120))
        except StoppedError:
            again = live if live.status().failed is None else g.restore(path, asked.live(), device="cpu")
            call(again)
            return again
        return live

    while any(table.num_rows for table in left.values()):
        name = chance.choice([name for name, table in left.items() if table.num_rows])
        piece, left[name] = left[name].slice(0, 5), left[name].slice(5)
        live = make(partial(RunningQuery.push, batch=piece, input=name))
        found.append(live.results())
    live = make(RunningQuery.close)
    found.append(live.results())
    assert rows(pa.concat_tables(found)) == rows(expected)
