"""How answers take their places: killed at each step, and two at once, step by step. No Spark.

A file system is a dict here, and each of its steps is a point where a writer may be killed or made to wait.
Some rename in one step, and some copy and then delete.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from gpu_ops.engines.spark.swaps import AnswerPlace, Sizes, Writing
from gpu_ops.errors import SourceError

PLACE = "/data/answer.parquet"
OLD = {"part-0-old": 5, "part-1-old": 7, "_SUCCESS": 0}


def answer(name: str) -> Sizes:
    return {f"part-0-{name}": 3, f"part-1-{name}": 4, "part-2-" + name: 0, "_SUCCESS": 0}


class Killed(BaseException):
    """Kill -9: nothing of the writer runs any more, whatever it would do about it."""


class Disk:
    """What is on the disk: text by path.

    Args:
        atomic: Whether a rename is one step; else it copies file by file and then deletes file by file.
    """

    def __init__(self, *, atomic: bool) -> None:
        self.atomic = atomic
        self.content: dict[str, str] = {}

    def put(self, path: str, sizes: Sizes) -> None:
        self.content |= {f"{path}/{name}": "x" * size for name, size in sizes.items()}

    def below(self, path: str) -> list[str]:
        return sorted(each for each in self.content if each == path or each.startswith(f"{path}/"))

    def sizes(self, path: str) -> Sizes | None:
        found = {each[len(path) + 1 :]: len(self.content[each]) for each in self.below(path)}
        return found or None


class View:
    """One writer's view of a disk."""

    def __init__(self, disk: Disk, before: Callable[[], None] = lambda: None) -> None:
        self.disk, self.before = disk, before

    def sizes(self, path: str) -> Sizes | None:
        self.before()
        return self.disk.sizes(path)

    def exists(self, path: str) -> bool:
        return self.sizes(path) is not None

    def names(self, folder: str) -> list[str]:
        self.before()
        inside = [each[len(folder) + 1 :] for each in self.disk.below(folder) if each != folder]
        return sorted({each.split("/")[0] for each in inside})

    def rename(self, path: str, to: str) -> bool:
        self.before()
        disk = self.disk
        moved = disk.below(path)
        if not moved:
            return False
        if disk.below(to):
            to = f"{to}/{path.rpartition('/')[2]}"
        for at, each in enumerate(moved):
            if at and not disk.atomic:
                self.before()
            disk.content[to + each[len(path) :]] = disk.content[each]
        for each in moved:
            if not disk.atomic:
                self.before()
            disk.content.pop(each, None)
        return True

    def delete(self, path: str) -> None:
        for each in self.disk.below(path):
            self.before()
            self.disk.content.pop(each, None)

    def delete_empty(self, folder: str) -> None:
        self.before()
        assert isinstance(folder, str)  # a folder is there for as long as something is in it

    def write(self, path: str, text: str) -> None:
        self.before()
        self.disk.content[path] = text

    def read(self, path: str) -> str | None:
        self.before()
        return self.disk.content.get(path)


def write(view: View, name: str, *, replace: bool = True, fails: bool = False) -> None:
    """As the engine does: begin, let tasks write, swap, clear."""
    writing = Writing.begin(AnswerPlace.at(view, PLACE), replace=replace)
    try:
        for file, size in answer(name).items():
            view.write(f"{writing.new}/{file}", "x" * size)
        assert not fails, "a worker has failed"
        writing.swap(answer(name))
    except Exception:
        writing.give_up()
        raise
    writing.done()


@contextmanager
def killed_after(steps: int) -> Iterator[Callable[[], None]]:
    left = [steps]

    def before() -> None:
        if left[0] <= 0:
            raise Killed
        left[0] -= 1

    with suppress(Killed):
        yield before


def steps_of(disk: Disk, *, replace: bool) -> int:
    count = [0]

    def before() -> None:
        count[0] += 1

    write(View(disk, before), "counted", replace=replace)
    return count[0]


def disk(*, atomic: bool, old: bool) -> Disk:
    made = Disk(atomic=atomic)
    if old:
        made.put(PLACE, OLD)
    return made


def clean(found: Disk) -> bool:
    return all(path.startswith(f"{PLACE}/") for path in found.content)


def whole_somewhere(found: Disk, answers: list[Sizes]) -> bool:
    places = {path.rpartition("/")[0] for path in found.content}
    return any(found.sizes(path) in answers for path in places)


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("old", [True, False])
def test_a_write_that_is_killed_leaves_the_old_answer_or_the_new_one(*, atomic: bool, old: bool) -> None:
    for steps in range(steps_of(disk(atomic=atomic, old=old), replace=old)):
        found = disk(atomic=atomic, old=old)
        with killed_after(steps) as before:
            write(View(found, before), "new", replace=old)
        assert not old or whole_somewhere(found, [OLD, answer("new")])
        if atomic:
            assert found.sizes(PLACE) in [None, OLD, answer("new")]
        # Who comes next and gives up finds one of the two, and leaves nothing beside it.
        with pytest.raises((AssertionError, SourceError)):
            write(View(found), "next", replace=old, fails=True)
        assert found.sizes(PLACE) in [OLD if old else None, answer("new")], steps
        assert clean(found), steps
        write(View(found), "last")
        assert found.sizes(PLACE) == answer("last")
        assert clean(found)


@pytest.mark.parametrize("atomic", [True, False])
def test_who_mends_may_be_killed_too(*, atomic: bool) -> None:
    most = steps_of(disk(atomic=atomic, old=True), replace=True)
    for first in range(0, most, 1 if atomic else 2):
        for second in range(0, most + 20, 1 if atomic else 3):
            found = disk(atomic=atomic, old=True)
            for name, steps in (("one", first), ("two", second)):
                with killed_after(steps) as before:
                    write(View(found, before), name)
                assert whole_somewhere(found, [OLD, answer("one"), answer("two")]), (first, second)
            with pytest.raises(SourceError, match="exists"):
                write(View(found), "next", replace=False)
            assert found.sizes(PLACE) in [OLD, answer("one"), answer("two")], (first, second)
            assert clean(found), (first, second)


@pytest.mark.parametrize("old", [True, False])
def test_a_worker_that_fails_changes_nothing(*, old: bool) -> None:
    found = disk(atomic=True, old=old)
    with pytest.raises(AssertionError):
        write(View(found), "new", replace=old, fails=True)
    assert found.sizes(PLACE) == (OLD if old else None)
    assert clean(found)


class Turns:
    """Two writers, one of which moves at a time.

    Args:
        switches: After how many steps of the one who moves it is the other's turn, again and again.
    """

    def __init__(self, switches: list[int]) -> None:
        self._switches = switches
        self._turn = 0
        self._steps = 0
        self._over: set[int] = set()
        self._change = threading.Condition()

    def before(self, writer: int) -> None:
        with self._change:
            if self._turn == writer and self._switches and self._steps >= self._switches[0]:
                self._pass_on(writer)
            self._change.wait_for(lambda: self._turn == writer)
            self._steps += 1

    def over(self, writer: int) -> None:
        with self._change:
            self._over.add(writer)
            self._pass_on(writer)

    def _pass_on(self, writer: int) -> None:
        del self._switches[:1]
        self._steps = 0
        if 1 - writer not in self._over:
            self._turn = 1 - writer
            self._change.notify_all()


def two_at_once(found: Disk, switches: list[int], *, replace: bool) -> list[str]:
    """What two writers who take turns come to: "" for one that has written, else why not."""
    turns, ends = Turns(switches), ["", ""]

    def run(writer: int) -> None:
        try:
            write(View(found, lambda: turns.before(writer)), "ab"[writer], replace=replace)
        except SourceError as error:
            ends[writer] = str(error)
        finally:
            turns.over(writer)

    threads = [threading.Thread(target=run, args=(writer,)) for writer in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return ends


@pytest.mark.slow
@pytest.mark.parametrize("old", [True, False])
def test_of_two_at_once_one_wins_or_is_refused(*, old: bool) -> None:
    most = steps_of(disk(atomic=True, old=old), replace=old)
    for first in range(most):
        for second in range(1, most + 10):
            found = disk(atomic=True, old=old)
            ends = two_at_once(found, [first, second], replace=old)
            there = found.sizes(PLACE)
            won = [answer(name) for name, end in zip("ab", ends, strict=True) if not end]
            assert there in won, (first, second, ends, found.content)
            assert clean(found), (first, second, ends, found.content)
            assert old or len(won) == 1, (first, second)
