"""The pool of threads: order, errors, bounds, nested work, forks, and how many threads there are."""

from __future__ import annotations

import _thread
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.core import threads
from gpu_ops.core.threads import in_parallel, ordered_map, parts, set_threads
from gpu_ops.devices import choose
from tests.support.threads import with_threads


@given(count=st.integers(1, 5), items=st.lists(st.integers(), max_size=30))
def test_results_are_in_the_order_of_the_items(count: int, items: list[int]) -> None:
    def slow(item: int) -> int:
        time.sleep(item % 3 / 10_000)
        return item * 2

    assert list(ordered_map(count, slow, items)) == [item * 2 for item in items]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_first_error_in_order_is_raised_after_the_results_before_it(count: int) -> None:
    def fails(item: int) -> int:
        if item >= 4:
            time.sleep(0.02 if item == 4 else 0)  # later ones fail first
            raise ValueError(item)
        return item

    made = ordered_map(count, fails, range(10))
    assert [next(made) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match=r"^4$"):
        next(made)


@pytest.mark.parametrize("count", [2, 3])
def test_at_most_twice_as_many_items_as_threads_are_taken_ahead(count: int) -> None:
    taken = []

    def items() -> Iterator[int]:
        for item in range(50):
            taken.append(item)
            yield item

    for given_back, item in enumerate(ordered_map(count, lambda item: item, items())):
        assert item == given_back
        assert len(taken) <= given_back + 2 * count


@pytest.mark.parametrize("count", [2, 3])
def test_no_more_calls_run_at_a_time_than_threads_were_asked_for(count: int) -> None:
    running, most, lock = 0, 0, threading.Lock()

    def counted(item: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.002)
        with lock:
            running -= 1
        return item

    list(ordered_map(count, counted, range(40)))
    assert most == count


@pytest.mark.parametrize("count", [2, 3, 5])
def test_as_many_items_as_threads_run_at_the_same_time(count: int) -> None:
    """The last item is handed to no other thread, so the caller runs it and leaves the first one to the pool."""
    for _ in range(20):
        barrier = threading.Barrier(count)

        def met(_: int, barrier: threading.Barrier = barrier) -> int:
            return barrier.wait(timeout=10)

        with with_threads(count):
            assert sorted(in_parallel(met, range(count))) == [*range(count)]


def test_work_within_work_is_serial_and_ends() -> None:
    def outer(item: int) -> list[int]:
        assert threads.threads() == 1
        return list(ordered_map(threads.threads(), lambda inner: inner + item, range(5)))

    with with_threads(3):
        assert threads.threads() == 3
        found = list(ordered_map(3, outer, range(20)))
        assert threads.threads() == 3
    assert found == [[inner + item for inner in range(5)] for item in range(20)]


def test_work_ends_even_if_it_asks_for_the_pool_again() -> None:
    """No call waits for a thread of the pool: whoever waits runs what has not begun."""
    found = ordered_map(2, lambda item: sum(ordered_map(2, lambda inner: inner, range(item))), range(20))
    assert list(found) == [sum(range(item)) for item in range(20)]


def test_several_threads_may_ask_at_a_time() -> None:
    with ThreadPoolExecutor(4) as pool:
        sums = list(pool.map(lambda count: sum(ordered_map(count, lambda item: item, range(200))), [2, 3, 2, 4] * 5))
    assert sums == [sum(range(200))] * 20


@pytest.mark.parametrize("count", [2, 3])
def test_an_interrupt_ends_the_rest(count: int) -> None:
    begun = []

    def slow(item: int) -> None:
        begun.append(item)
        time.sleep(0.01)

    threading.Timer(0.1, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        list(ordered_map(count, slow, range(10_000)))
    time.sleep(0.05)
    after = len(begun)
    time.sleep(0.1)
    assert len(begun) == after < 1000


def test_a_map_that_is_not_read_to_its_end_leaves_out_what_has_not_begun() -> None:
    begun: list[int] = []
    made = ordered_map(2, begun.append, range(100))
    next(made)
    made.close()  # type: ignore[attr-defined]
    time.sleep(0.05)
    assert len(begun) <= 5


def test_where_no_thread_can_be_started_the_caller_works_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with with_threads(7):  # another pool
        monkeypatch.setattr(threading.Thread, "start", refuse)
        assert list(ordered_map(7, lambda item: item, range(50))) == list(range(50))


ROOT = Path(__file__).parents[2]

FORKS = """
import os
from gpu_ops.core.threads import ordered_map

assert list(ordered_map(3, str, range(20))) == [str(each) for each in range(20)]
child = os.fork()
if child == 0:
    print(list(ordered_map(3, str, range(5))), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.services
def test_a_forked_process_makes_a_pool_of_its_own() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKS]
    done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=60, cwd=ROOT)
    assert done.stdout == "['0', '1', '2', '3', '4']\n"


@given(size=st.integers(0, 100), least=st.integers(1, 20), count=st.integers(1, 9))
def test_parts_cover_all_rows_in_order(size: int, least: int, count: int) -> None:
    with with_threads(count, part=2):
        made = parts(size, least)
    assert [at for low, upto in made for at in range(low, upto)] == list(range(size))
    assert 1 <= len(made) <= count
    assert len(made) == 1 or min(upto - low for low, upto in made) >= max(least, 2)


# How many threads


@pytest.mark.parametrize("count", [0, -1, 1025, 2.0, "2", True])
def test_a_number_of_threads_that_cannot_be_is_refused(count: object) -> None:
    with pytest.raises(g.PlanError, match=r"The number of threads is .* Give a whole number from 1 to 1,024"):
        g.set_threads(count)  # type: ignore[arg-type]


@pytest.mark.parametrize("said", ["0", "two", "-1", "1.5", "99999", "²", "9" * 5000])
def test_the_environment_is_checked_before_anything_is_read(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_OPS_THREADS", said)
    with with_threads(None), pytest.raises(g.PlanError, match=r"GPU_OPS_THREADS is .* Give a whole number from 1 to"):
        choose("cpu")


def test_what_says_how_many_threads_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads._Workers, "usual", None)
    monkeypatch.delenv("GPU_OPS_THREADS", raising=False)
    with with_threads(None):
        assert 1 <= choose("cpu").threads <= 16
        threads.usual_threads(1)
        assert choose("cpu").threads == 1
        monkeypatch.setenv("GPU_OPS_THREADS", "3")
        assert choose("cpu").threads == 3
        set_threads(5)
        assert (choose("cpu").threads, choose("array").threads) == (5, 1)
        set_threads(None)
        assert choose("cpu").threads == 3
        monkeypatch.setenv("GPU_OPS_THREADS", "")
        assert choose("cpu").threads == 1


@pytest.mark.parametrize(("quota", "cores"), [("max 100000", 8), ("150000 100000", 2), ("50000 100000", 1), ("", 8)])
def test_the_cores_of_a_container_are_its_quota(
    quota: str, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr(threads, "_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(8), raising=False)
    assert threads.cores.__wrapped__() == cores
