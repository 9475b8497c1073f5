"""Kinds of windows that this file alone declares work as the package's own, and what a kind leaves out is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.errors import ColumnError, PlanError, SourceError
from gpu_ops.extend import OUT, UNKNOWN, DataWindowKind, GridKind, Membership, NoHalo, RowHalo, WindowRows
from tests.support import data_window_reference as brute
from tests.support import reference
from tests.support.data_windows import ASKED, EVENTS, KEYS, pushed, source
from tests.support.examples import examples
from tests.support.reference import Aggregate, Event
from tests.support.rows import check, rows
from tests.support.squares import Squares
from tests.support.ticks import at_us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class LastOfEach(DataWindowKind):
    """The last ``count`` events of each value of a column."""

    count: int
    by: str

    enters = "at its start"
    leaves = "later"
    ties = "by payload"
    remains = "nothing"
    halo = "how far back the last events of a value lie has no bound"

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.by,)

    def memberships(self, held: WindowRows, device: Any) -> Membership:
        values, distinct, _ = device.columns.key_codes(held.frame, (self.by,))
        same = held.code.astype(np.int64) * distinct + values
        order = np.argsort(same, kind="stable")
        placed = same[order]
        follows = placed[self.count :] == placed[: -self.count]
        gone, by = order[: -self.count][follows], order[self.count :][follows]
        leave, left = np.full_like(held.start, UNKNOWN), np.full_like(held.start, -1)
        leave[gone], left[gone] = held.start[by], by
        return Membership(held.start, leave, np.arange(len(held), like=held.start), left)


@dataclass(frozen=True)
class UntilFlag(DataWindowKind):
    """Events are in until the next one of which a column is above zero; that one is never in."""

    flag: str

    enters = "at its start"
    leaves = "later"
    ties = "by payload"
    remains = "nothing"
    halo = "when the next flag comes has no bound"

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.flag,)

    def memberships(self, held: WindowRows, device: Any) -> Membership:
        values, valid = device.columns.values(held.frame, self.flag)
        raised = values > 0
        raised = raised if valid is None else raised & valid
        flags, rows = device.kernels.keep(raised), np.arange(len(held), like=held.start)
        at = np.searchsorted(flags, rows, side="right")
        after = np.concatenate([flags, np.full_like(held.bounds[:1], len(held))])[at]
        gone = after < held.bounds[held.code + 1]
        left = np.where(gone, after, -1)
        leave = np.where(gone, held.start[np.maximum(left, 0)], UNKNOWN)
        return Membership(np.where(raised, OUT, held.start), leave, rows, left)


@dataclass(frozen=True)
class UntilTheNth(DataWindowKind):
    """Each event is in until the ``count``-th one after it."""

    count: int

    enters = "at its start"
    leaves = "later"
    ties = "by place"
    remains = "nothing"
    stays_in_halo = True

    @property
    def halo(self) -> RowHalo:
        return RowHalo(self.count)

    def memberships(self, held: WindowRows, device: Any) -> Membership:
        del device
        rows = np.arange(len(held), like=held.start)
        known = rows + self.count < held.bounds[held.code + 1]
        left = np.where(known, rows + self.count, -1)
        leave = np.where(known, held.start[np.maximum(left, 0)], UNKNOWN)
        return Membership(held.start, leave, rows, left)


@dataclass(frozen=True)
class LongAfterTheNext(DataWindowKind):
    """Each event is in until ``more`` ticks after the next one: the next one decides, and many may come by then."""

    more: int

    enters = "at its start"
    leaves = "later"
    ties = "by place"
    remains = "nothing"
    halo = RowHalo(1)

    def memberships(self, held: WindowRows, device: Any) -> Membership:
        del device
        follows = held.code[1:] == held.code[:-1]
        leave, left = np.full_like(held.start, UNKNOWN), np.full_like(held.start, -1)
        leave[:-1] = np.where(follows, held.start[1:] + self.more, UNKNOWN)
        return Membership(held.start, leave, np.arange(len(held), like=held.start), left)


@dataclass(frozen=True)
class ForAWhile(DataWindowKind):
    """Each event is in for so many ticks; that it stays in its halo says nothing where it depends on no others."""

    ticks: int

    enters = "at its start"
    leaves = "known"
    ties = "alike"
    remains = "nothing"
    stays_in_halo = True
    halo = NoHalo()

    def memberships(self, held: WindowRows, device: Any) -> Membership:
        del device
        none = np.full_like(held.start, -1)
        return Membership(held.start, held.start + self.ticks, np.arange(len(held), like=held.start), none)


def last_of_each(count: int, by: str) -> brute.Window:
    def memberships(rows: list[Event]) -> list[brute.Stay]:
        found: list[brute.Stay] = []
        for at, row in enumerate(rows):
            later = [no for no in range(at + 1, len(rows)) if rows[no].payload[by] == row.payload[by]]
            gone = (rows[later[count - 1]].start, later[count - 1]) if len(later) >= count else None
            found.append(((row.start, at), gone))
        return found

    return memberships


def until_flag(name: str) -> brute.Window:
    def memberships(rows: list[Event]) -> list[brute.Stay]:
        flags = [at for at, row in enumerate(rows) if (row.payload[name] or 0) > 0]
        found: list[brute.Stay] = []
        for at, row in enumerate(rows):
            after = next((flag for flag in flags if flag > at), None)
            gone = None if after is None else (rows[after].start, after)
            found.append(None if at in flags else ((row.start, at), gone))
        return found

    return memberships


def long_after_the_next(more: int) -> brute.Window:
    def memberships(rows: list[Event]) -> list[brute.Stay]:
        nexts = [None if at + 1 == len(rows) else (rows[at + 1].start + more, -1) for at in range(len(rows))]
        return [((row.start, at), leave) for at, (row, leave) in enumerate(zip(rows, nexts, strict=True))]

    return memberships


def for_a_while(ticks: int) -> brute.Window:
    return lambda rows: [((row.start, at), (row.start + ticks, -1)) for at, row in enumerate(rows)]


KINDS: dict[str, tuple[DataWindowKind, brute.Window]] = {
    "last of each": (LastOfEach(2, "v"), last_of_each(2, "v")),
    "until flag": (UntilFlag("v"), until_flag("v")),
    "until the nth": (UntilTheNth(3), brute.last(3)),
    "long after the next": (LongAfterTheNext(40), long_after_the_next(40)),
    "for a while": (ForAWhile(40), for_a_while(40)),
}


@pytest.mark.parametrize("kind", KINDS)
@examples(10)
@given(events=EVENTS, key=KEYS)
def test_a_batch_holds_what_the_kind_says(
    device_name: Any, kind: str, events: list[Event], key: tuple[str, ...]
) -> None:
    declared, memberships = KINDS[kind]
    window = source(events).by(*key).data_window(declared)
    check(window.rows(), device_name, brute.rows(events, memberships, key))
    check(window.changes(), device_name, brute.changes(events, memberships, key))


@pytest.mark.parametrize("kind", KINDS)
@examples(10, dear=True)
@given(data=st.data())
def test_live_is_batch_in_any_cut(
    tmp_path_factory: pytest.TempPathFactory, device_name: Any, kind: str, data: st.DataObject
) -> None:
    events, key, chance = data.draw(EVENTS), data.draw(KEYS), data.draw(st.randoms(use_true_random=False))
    window = source(events).by(*key).data_window(KINDS[kind][0])
    query = ASKED[data.draw(st.sampled_from([*ASKED]))](window)
    expected = rows(query.collect(device=device_name))
    folder = tmp_path_factory.mktemp("live") if data.draw(st.booleans()) else None
    assert rows(pushed(query, device_name, events, chance, folder)) == expected


def test_groups_of_which_nothing_rests_are_forgotten() -> None:
    flags = g.events(pa.table({"at": [0], "k": [0], "flag": [0]}), start="at", unit="us").by("k")
    live = flags.data_window(UntilFlag("flag")).rows().start(device="cpu")
    for step in range(0, 30_000, 2_000):
        at = range(step, step + 2_000)
        live.push(pa.table({"at": at, "k": [each // 2 for each in at], "flag": [each % 2 for each in at]}))
        live.advance(at_us(step + 2_000))
    assert live.status().alive == 0
    (groups,) = (table for name, table in live.state().items() if name.endswith("groups"))
    assert len(groups) < 10_000


def test_spark_cuts_in_time_what_says_how_far_it_looks(spark: SparkSession) -> None:
    from tests.support.on_spark import PARTITIONS, SLICES, agree, drawn, setting

    def asked(kind: DataWindowKind, *key: str) -> Callable[[g.Stream, g.Stream], g.Stream]:
        return lambda s, _: s.by(*key).data_window(kind).agg(n=g.count(), total=g.sum("v"))

    queries = {name: asked(kind) for name, (kind, _) in KINDS.items()}
    queries["squares"] = lambda s, _: s.set_duration("5us").time_window(Squares(2)).agg(n=g.count(), total=g.sum("v"))
    queries |= {f"{name} by k": asked(kind, "k") for name, (kind, _) in KINDS.items()}
    tables = drawn(7, 50), drawn(8, 20)
    with setting(spark, PARTITIONS, "2"), setting(spark, SLICES, "5"):
        found = agree(spark, tables, queries)
        assert all(table.num_rows for table in found.values())
        from tests.support.on_spark import to_spark

        far = g.events(to_spark(spark, tables[0]), start="s", end="e")
        said = {name: asked(kind)(far, far).explain() for name, (kind, _) in KINDS.items()}
    assert "a slice is shown 3 events before it and after it" in said["until the nth"]
    assert "in the same mapInArrow" in said["until the nth"]  # for all that are in come with a slice
    assert "a slice is shown 1 events before it and after it" in said["long after the next"]
    assert "in the same mapInArrow" not in said["long after the next"]  # for more are in
    assert "not cut in time: when the next flag comes has no bound" in said["until flag"]


ENDING = EVENTS.map(lambda events: [each._replace(end=min(each.end, each.start + 30)) for each in events])


@examples(12, dear=True)
@given(data=st.data())
def test_a_grid_of_ones_own(tmp_path_factory: pytest.TempPathFactory, device_name: Any, data: st.DataObject) -> None:
    events, key, chance = data.draw(ENDING), data.draw(KEYS), data.draw(st.randoms(use_true_random=False))
    query = source(events).by(*key).time_window(Squares(2)).agg(n=g.count(), s=g.sum("v"), m=g.max("v"))
    windows = [(2 * k * k, 2 * (k + 1) ** 2) for k in range(8)]
    aggregates = {"n": Aggregate("count"), "s": Aggregate("sum", "v"), "m": Aggregate("max", "v")}
    expected = [
        Event(begin, end, {**of, **{name: reference.aggregate(each, inside) for name, each in aggregates.items()}})
        for begin, end in windows
        for of, members in reference.groups(events, key)
        if (inside := [each for each in members if each.start < end and each.end > begin])
    ]
    check(query, device_name, expected)
    folder = tmp_path_factory.mktemp("live") if data.draw(st.booleans()) else None
    assert rows(pushed(query, device_name, events, chance, folder)) == rows(query.collect(device=device_name))


@pytest.mark.parametrize("part", ["enters", "leaves", "ties", "remains", "halo", "memberships"])
def test_a_kind_that_leaves_a_part_out_is_not_made(part: str) -> None:
    whole = {
        "enters": "at its start",
        "leaves": "later",
        "ties": "alike",
        "remains": "nothing",
        "halo": "no bound",
        "memberships": UntilTheNth.memberships,
    }
    type("Whole", (DataWindowKind,), whole)
    with pytest.raises(PlanError, match=rf"The window kind Half does not say: {part}\."):
        type("Half", (DataWindowKind,), {name: said for name, said in whole.items() if name != part})


def test_a_grid_that_leaves_a_part_out_is_not_made() -> None:
    with pytest.raises(PlanError, match=r"The window kind Half does not say: around, finishes\."):
        type("Half", (GridKind,), {"begins": Squares.begins})


def test_a_memo_without_a_note_is_refused_before_it_is_lost() -> None:
    class Forgetful(UntilTheNth):
        def memberships(self, held: WindowRows, device: Any) -> Membership:
            stay = super().memberships(held, device)
            stay.memo = held.start
            return stay

    live = g.events(pa.table({"at": [0], "v": [1]}), start="at", unit="us").data_window(Forgetful(1)).rows().start()
    live.push(pa.table({"at": [0], "v": [1]}))
    with pytest.raises(PlanError, match="declares no note of it"):
        live.advance(at_us(5))


def test_a_checkpoint_is_not_taken_up_by_a_kind_that_does_something_else(tmp_path: Path) -> None:
    class Other(UntilTheNth):
        def memberships(self, held: WindowRows, device: Any) -> Membership:
            return UntilTheNth.memberships(replace(self, count=1), held, device)

        def __str__(self) -> str:
            return repr(UntilTheNth(self.count))

    one = g.events(pa.table({"at": [0], "v": [1]}), start="at", unit="us")
    live = one.data_window(UntilTheNth(2)).rows().start()
    live.push(pa.table({"at": [0], "v": [1]}))
    live.checkpoint(tmp_path / "checkpoint")
    g.restore(tmp_path / "checkpoint", one.data_window(UntilTheNth(2)).rows())
    with pytest.raises(SourceError, match=r"window\.memberships changed"):
        g.restore(tmp_path / "checkpoint", one.data_window(Other(2)).rows())


def test_what_is_no_kind_or_asks_for_no_column_is_refused() -> None:
    s = g.events(pa.table({"at": [0], "v": [1]}), start="at", unit="s")
    with pytest.raises(PlanError, match="data_window takes a kind of window, not int"):
        s.data_window(3)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="time_window takes a kind of window, not UntilFlag"):
        s.time_window(UntilFlag("v"))  # type: ignore[arg-type]
    with pytest.raises(ColumnError, match="w"):
        s.data_window(UntilFlag("w"))
    with pytest.raises(PlanError, match="intersect does not take this window"):
        s.last(2).intersect(s.data_window(UntilTheNth(2)))
