"""A follower goes on only in its own stores, and only where all that it needs is there: else it says what is not."""

from __future__ import annotations

import functools
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from gpu_ops.errors import SourceError
from tests.support.dying_folder import FailingFolder
from tests.support.dying_folder import Killed as Dead
from tests.support.following import (
    TICKS,
    batch,
    facts_of,
    fill,
    follow_killed,
    of_format_one,
    query,
    rewritten,
)
from tests.support.rows import rows
from tests.support.ticks import at_us

pytestmark = pytest.mark.slow

NUMBERS = itertools.count()


@pytest.fixture(params=["local", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A place for stores, here or not, with a space and an umlaut in its name."""
    if request.param == "local":
        yield str(tmp_path / "a plåce for störes")
        return
    made = f"memory://a plåce for störes {next(NUMBERS)}"
    yield made
    memory = fsspec.filesystem("memory")
    if memory.exists(made):
        memory.rm(made, recursive=True)


@functools.cache
def expected_of(batches: int) -> list[Any]:
    """What the query makes of the first batches."""
    return rows(query(pa.concat_tables([batch(number) for number in range(batches)])).collect(device="cpu"))


class Setting:
    """A source, a query, a store for its results, and its checkpoint."""

    def __init__(self, root: str, tmp_path: Path, batches: int = 60) -> None:
        self.root = root
        self.source = fill(g.store(f"{root}/in"), batches)
        self.out = g.store(f"{root}/out")
        self.checkpoint = tmp_path / "check pöint"
        self.expected = expected_of(batches)
        self.plan = query(batch(0).slice(0, 0))

    def start(self) -> Any:
        return self.plan.start(device="cpu")

    def restored(self) -> Any:
        return g.restore(self.checkpoint, self.plan, device="cpu")

    def killed(self, after: int, every: int = 1000) -> None:
        follow_killed(self.start(), self.source, after, into=self.out, checkpoint=self.checkpoint, every=every)

    def go_on(self, live: Any = None, **options: Any) -> None:
        given = {"into": self.out, "checkpoint": self.checkpoint, "timeout": 0, "store": self.source} | options
        (self.restored() if live is None else live).follow(given.pop("store"), **given)

    def check(self) -> None:
        """All of the results are there, once."""
        assert rows(self.out.read()) == self.expected
        assert self.out.cti == MAX_TIME


@pytest.fixture
def setting(root: str, tmp_path: Path) -> Setting:
    return Setting(root, tmp_path)


# Batches that have expired


@pytest.mark.parametrize("every", [1000, 20])
def test_what_expired_before_it_was_read_again_is_missed_aloud(setting: Setting, every: int) -> None:
    setting.killed(50, every)
    before = setting.out.read()
    setting.source.expire(at_us(45 * TICKS))
    with pytest.raises(SourceError, match=r"after number (0|40), which the query had come to, have expired"):
        setting.go_on()
    assert setting.out.read().equals(before)
    # Nor does a run without the checkpoint begin with what is left.
    for policy in ("raise", "adopt"):
        with pytest.raises(SourceError, match=r"holds the results of another run|have expired"):
            setting.go_on(setting.start(), if_other_store=policy)
    assert setting.out.read().equals(before)


def test_what_expired_after_it_was_read_is_not_missed(setting: Setting) -> None:
    setting.killed(50, 20)
    setting.source.expire(at_us(30 * TICKS))
    setting.source.compact(50)
    setting.go_on()
    setting.check()


def test_a_cti_that_went_with_expired_batches_is_not_missed(setting: Setting) -> None:
    """A batch that is a CTI alone is merged with expired ones before it. Who has read these goes on after it."""
    source = fill(g.store(f"{setting.root}/open"), 20, closed=False)
    setting.go_on(setting.start(), store=source)
    source.advance(at_us(300))
    source.advance(at_us(400))
    source.expire(at_us(20 * TICKS))
    assert [(each.sequence, each.expired, each.lost) for each in source.batches()] == [(22, True, 20)]
    fill(source, 20, first=40)
    setting.go_on(store=source)
    assert rows(setting.out.read()) == rows(
        query(pa.concat_tables([batch(n) for n in [*range(20), *range(40, 60)]])).collect(device="cpu")
    )


def test_a_first_start_reads_what_has_not_expired(setting: Setting) -> None:
    setting.source.expire(at_us(40 * TICKS))
    setting.expected = rows(query(setting.source.read()).collect(device="cpu"))
    setting.killed(5)
    setting.go_on()
    setting.check()
    assert len(setting.expected) > 0


def test_more_that_expires_after_the_first_start_is_missed(setting: Setting) -> None:
    setting.source.expire(at_us(40 * TICKS))
    setting.killed(5)
    setting.source.expire(at_us(50 * TICKS))
    with pytest.raises(SourceError, match="after number 0, which the query had come to, have expired"):
        setting.go_on()


def test_a_query_that_was_started_misses_what_expires_before_its_first_batch(setting: Setting) -> None:
    setting.go_on(setting.start(), store=g.store(f"{setting.root}/nothing yet"), into=None)
    fill(g.store(f"{setting.root}/nothing yet"), 20)
    g.store(f"{setting.root}/nothing yet").expire(at_us(10 * TICKS))
    with pytest.raises(SourceError, match="after number 0, which the query had come to, have expired"):
        setting.go_on(store=g.store(f"{setting.root}/nothing yet"), into=None)


def test_a_first_start_from_what_is_left_needs_an_empty_store_for_its_results(setting: Setting) -> None:
    setting.source.expire(at_us(40 * TICKS))
    setting.out.append(query(setting.source.read()).collect(device="cpu").slice(0, 1))
    with pytest.raises(SourceError, match="have expired"):
        setting.go_on(setting.start())


# Another store, or one that was made anew


@pytest.mark.parametrize("which", ["store", "into"])
def test_another_store_is_refused(setting: Setting, which: str) -> None:
    setting.killed(50, 20)
    other = g.store(f"{setting.root}/other")
    fill(other, 70, first=1)
    with pytest.raises(SourceError, match=r"other is another store than the one of the checkpoint.*adopt"):
        setting.go_on(**{which: other})
    # Nor is it adopted where its batches are others.
    with pytest.raises(SourceError, match="is not the one that the query knows"):
        setting.go_on(**{which: other}, if_other_store="adopt")
    setting.go_on()
    setting.check()


def test_stores_with_the_same_batches_are_adopted_on_request(setting: Setting, tmp_path: Path) -> None:
    setting.killed(50, 20)
    again = Setting(f"{setting.root}/again", tmp_path)
    # The same batches in another store, as a backup that was read in again.
    with again.out.writer() as writer:
        for each in setting.out.batches():
            writer.append(each.events, at_us(each.cti))
    with pytest.raises(SourceError, match="another store"):
        again.go_on()
    again.go_on(if_other_store="adopt")
    again.check()
    again.go_on()  # they are its own now
    with pytest.raises(SourceError, match="another store"):
        setting.go_on()


def test_a_copy_is_no_other_store(tmp_path: Path) -> None:
    setting = Setting(str(tmp_path / "one"), tmp_path)
    setting.killed(50, 20)
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    setting.go_on(store=g.store(tmp_path / "copy" / "in"), into=g.store(tmp_path / "copy" / "out"))
    assert rows(g.store(tmp_path / "copy" / "out").read()) == setting.expected


def remove(path: str) -> None:
    files, place = fsspec.core.url_to_fs(path)
    files.rm(place, recursive=True)


@pytest.mark.parametrize("batches", [10, 60, 90])
def test_a_source_that_was_made_anew_is_refused(setting: Setting, batches: int) -> None:
    setting.killed(50, 20)
    remove(f"{setting.root}/in")
    fill(setting.source, batches)
    with pytest.raises(SourceError, match=r"ends with batch 11, and the checkpoint|is another store than the one"):
        setting.go_on()
    if batches == 10:
        with pytest.raises(SourceError, match="It is another store: its identity"):
            setting.go_on(if_other_store="adopt")


@pytest.mark.parametrize("gone", ["in", "out"])
def test_a_store_that_is_gone_is_refused(setting: Setting, gone: str) -> None:
    setting.killed(50, 20)
    remove(f"{setting.root}/{gone}")
    for policy in ("raise", "adopt"):
        with pytest.raises(SourceError, match="ends with batch 0, and the checkpoint was made after batch 40"):
            setting.go_on(if_other_store=policy)


def test_a_source_of_the_same_identity_with_other_batches_is_refused(tmp_path: Path) -> None:
    setting = Setting(str(tmp_path), tmp_path)
    setting.killed(50, 20)
    identity = (tmp_path / "in" / "store.json").read_bytes()
    shutil.rmtree(tmp_path / "in")
    fill(setting.source, 60, first=1)
    (tmp_path / "in" / "store.json").write_bytes(identity)
    for policy in ("raise", "adopt"):
        with pytest.raises(SourceError, match=r"Batch 40 of .*in is not the one that the query knows: it has 3 rows"):
            setting.go_on(if_other_store=policy)


@pytest.mark.parametrize("batches", [1, 7])
def test_a_source_that_is_made_anew_while_it_is_followed_is_noticed(setting: Setting, batches: int) -> None:
    source = fill(g.store(f"{setting.root}/open"), 3, closed=False)

    def step(live: Any) -> None:
        if live.positions["store"] == 3:
            remove(f"{setting.root}/open")
            fill(source, batches, first=3, closed=False)

    with pytest.raises(SourceError, match=r"ends with batch 1, and batch 3 of it was read|made anew while it was"):
        setting.start().follow(source, timeout="5s", on_step=step)


# A sink into which somebody else wrote


def test_what_somebody_else_wrote_is_not_taken_for_the_querys(setting: Setting) -> None:
    setting.killed(50)
    setting.out.append(query(batch(70)).collect(device="cpu"), cti=at_us(80 * TICKS))
    with pytest.raises(SourceError, match=r"Batch 51 of .*out is not the one that the query knows: it has \d rows"):
        setting.go_on()


def test_what_somebody_else_wrote_last_is_noticed_at_the_end(setting: Setting) -> None:
    setting.go_on(setting.start(), store=fill(g.store(f"{setting.root}/open"), 9, closed=False))
    setting.out.append(query(batch(70)).collect(device="cpu"))
    with pytest.raises(SourceError, match=r"Batch 10 of .*the query gives no such batch"):
        setting.go_on(store=g.store(f"{setting.root}/open"))


@pytest.mark.parametrize("what", ["rows", "values", "cti"])
def test_what_is_skipped_is_compared(setting: Setting, what: str) -> None:
    setting.killed(10)
    files, place = fsspec.core.url_to_fs(f"{setting.root}/out")
    # The same identity, follower and number of batches, and one batch of them another.
    identity = files.cat_file(f"{place}/store.json")
    batches = list(setting.out.batches())
    remove(f"{setting.root}/out")
    with setting.out.writer() as writer:
        for each in batches:
            events, cti = each.events, each.cti
            if each.sequence == 7:
                if what == "rows":
                    events = events.slice(1)
                elif what == "values":
                    at = events.schema.get_field_index("v")
                    events = events.set_column(at, "v", pa.array([0] * len(events), pa.int64()))
                else:
                    assert cti is not None
                    cti -= 1
            writer.append(events, at_us(cti))
    files.pipe_file(f"{place}/store.json", identity)
    expected = "its CTI is not" if what == "cti" else "rows with the CRC"
    with pytest.raises(SourceError, match=f"Batch 7 of .*{expected}"):
        setting.go_on()
    assert setting.out.sequence == 10


def test_a_second_run_without_its_checkpoint_is_refused(setting: Setting) -> None:
    setting.killed(30, 20)
    with pytest.raises(
        SourceError, match=r"out holds the results of another run, from batch 1 on\. Restore that run's"
    ):
        setting.go_on(setting.start())
    setting.go_on()
    setting.check()
    # Nor without any checkpoint.
    with pytest.raises(SourceError, match="holds the results of another run"):
        setting.go_on(setting.start(), checkpoint=None)


def test_a_run_whose_checkpoint_is_lost_compares_what_it_gives_again(setting: Setting) -> None:
    setting.out.append(query(batch(0)).collect(device="cpu").slice(0, 1))  # somebody's, before the first run
    setting.killed(30, 20)
    setting.checkpoint.unlink()
    setting.go_on(setting.start(), if_other_store="adopt")
    assert rows(setting.out.read(since=1)) == setting.expected
    with pytest.raises(SourceError, match="is not the one that the query knows"):
        setting.go_on(
            g.events(setting.source).by("k").snapshot().agg(n=g.sum("v"), v=g.count()).start(device="cpu"),
            if_other_store="adopt",
        )


def test_an_empty_store_that_another_run_began_with_is_free(setting: Setting) -> None:
    nothing = g.store(f"{setting.root}/nothing")
    setting.go_on(setting.start(), store=nothing)
    with setting.out.writer() as writer:
        assert writer.identity.follower is not None
    first = setting.checkpoint.read_bytes()
    setting.go_on(setting.start())
    setting.check()
    # And the first run finds that it is no more.
    setting.checkpoint.write_bytes(first)
    with pytest.raises(SourceError, match="holds the results of another run"):
        setting.go_on(store=nothing)


def test_a_run_goes_on_in_one_process_without_a_checkpoint(setting: Setting) -> None:
    live = setting.start()
    source = fill(g.store(f"{setting.root}/open"), 9, closed=False)
    setting.go_on(live, store=source, checkpoint=None)
    fill(source, 51, first=9)
    setting.go_on(live, store=source, checkpoint=None)
    setting.check()


def test_the_stores_must_be_given_as_before(setting: Setting) -> None:
    setting.killed(30, 20)
    [name] = setting.restored().input_ctis()
    with pytest.raises(SourceError, match=f"has read the only input, and now it is to read '{name}'"):
        setting.go_on(store={name: setting.source})
    with pytest.raises(SourceError, match="has written to a store into=, and now there is none"):
        setting.go_on(into=None)
    with pytest.raises(g.PlanError, match="is no policy"):
        setting.go_on(if_other_store="take")


# Checkpoints and stores of older versions


def test_a_checkpoint_of_the_older_format_is_taken_once(setting: Setting) -> None:
    setting.killed(50, 20)
    for store in (setting.source, setting.out):
        files, place = fsspec.core.url_to_fs(store.path)
        files.rm(f"{place}/store.json")
    rewritten(setting.checkpoint, of_format_one)
    old = setting.checkpoint.read_bytes()
    setting.go_on()
    setting.check()
    assert facts_of(setting.checkpoint)["format"] == 2
    assert setting.out.identity == facts_of(setting.checkpoint)["following"]["stores"]["into"]["store"]
    setting.checkpoint.write_bytes(old)
    with pytest.raises(SourceError, match="holds the results of another run"):
        setting.go_on()


def test_a_checkpoint_of_the_older_format_does_not_take_what_somebody_else_wrote(setting: Setting) -> None:
    setting.killed(50, 20)
    setting.out.append(query(batch(70)).collect(device="cpu"), cti=at_us(80 * TICKS))
    for store in (setting.source, setting.out):
        files, place = fsspec.core.url_to_fs(store.path)
        files.rm(f"{place}/store.json")
    rewritten(setting.checkpoint, of_format_one)
    with pytest.raises(SourceError, match=r"Batch 51 of .*out is not the one that the query knows"):
        setting.go_on()


def test_a_source_that_gets_its_identity_later_is_known_by_it_then(setting: Setting) -> None:
    files, place = fsspec.core.url_to_fs(setting.source.path)
    files.rm(f"{place}/store.json")
    setting.killed(30, 20)
    assert facts_of(setting.checkpoint)["following"]["stores"]["store"]["store"] is None
    setting.source.compact()
    setting.go_on()
    setting.check()
    assert facts_of(setting.checkpoint)["following"]["stores"]["store"]["store"] == setting.source.identity
    files.rm(f"{place}/store.json")
    with pytest.raises(SourceError, match="its identity is not there"):
        setting.go_on()


# Two things at once


def test_merged_and_expired_results_are_compared_as_far_as_they_are_there(setting: Setting) -> None:
    setting.killed(50, 20)
    setting.out.compact(40)
    setting.out.expire(at_us(25 * TICKS))
    setting.out.compact()
    left = rows(setting.out.read())
    setting.go_on()
    assert len(left) < len(rows(setting.out.read())) < len(setting.expected)
    assert [row for row in rows(setting.out.read()) if row not in setting.expected] == []
    assert setting.out.cti == MAX_TIME


@pytest.mark.parametrize("killed", [True, False])
def test_an_end_at_any_step_of_a_write_loses_nothing(tmp_path: Path, killed: bool) -> None:  # noqa: FBT001
    """Killed, or on a disk that is full for a while: also while the store gets its identity and learns who writes."""
    setting = Setting(str(tmp_path), tmp_path, 3)
    ends = 0
    for at in itertools.count(1):
        out, setting.checkpoint = g.store(tmp_path / f"out {at}"), tmp_path / f"checkpoint {at}"
        folder = FailingFolder(tmp_path / f"out {at}", at, killed=killed, times=3)
        out._folder = folder
        try:
            setting.go_on(setting.start(), into=out, every=2)
        except (Dead, SourceError):
            ends += 1
        else:
            break
        setting.out = g.store(tmp_path / f"out {at}")
        live = setting.restored() if setting.checkpoint.exists() else setting.start()
        setting.go_on(live)
        setting.check()
        assert setting.out.verify().leftovers == ()
    assert ends > 30


def test_a_store_for_late_rows_is_one_of_its_own_too(setting: Setting) -> None:
    late, other = g.store(f"{setting.root}/late"), g.store(f"{setting.root}/other")
    source = g.store(f"{setting.root}/open")
    with source.writer() as writer:
        for number in range(10):
            writer.append(batch(number))
            writer.append(batch(max(0, number - 2)))
    plan = g.events(batch(0).slice(0, 0), start="start", end="end").advance_time("5us", late="divert")
    plan = plan.snapshot().agg(n=g.count())
    expected = rows(
        g.events(source).advance_time("5us", late="divert").late().collect(device="cpu").select(["start", "end"])
    )
    options: dict[str, Any] = {"into": setting.out, "late_into": late, "checkpoint": setting.checkpoint}
    follow_killed(plan.start(device="cpu"), source, 13, every=4, **options)

    def go_on(**changed: Any) -> None:
        g.restore(setting.checkpoint, plan, device="cpu").follow(source, timeout=0, **(options | changed))

    with pytest.raises(SourceError, match="has written to a store late_into=, and now there is none"):
        go_on(late_into=None)
    with pytest.raises(SourceError, match="It is another store"):
        go_on(late_into=other)
    with pytest.raises(SourceError, match=r"late is another store|out is another store|was made after batch"):
        go_on(into=late, late_into=setting.out)
    with pytest.raises(SourceError, match="has a writer"):
        go_on(into=late)
    go_on()
    assert rows(late.read().select(["start", "end"])) == expected
    assert len(expected) > 5
