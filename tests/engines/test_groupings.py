"""A grouping holds until a window or `distinct` has used it: that of every public verb, wherever a plan runs."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.api.stream import DataWindowed, Windowed
from gpu_ops.plan.data_windows import Last
from gpu_ops.plan.window_kinds import Hopping
from tests.support.cuts import in_any_cut, in_some_order
from tests.support.on_spark import SIDES, agree
from tests.support.reference import Event
from tests.support.rows import rows, to_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Verb = Callable[[Any], Any]

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


def events() -> g.Stream:
    chance = random.Random(5)
    drawn = [(chance.randrange(40), chance.randrange(1, 9), chance.choice("abc")) for _ in range(40)]
    payload = [Event(at, at + length, {"k": k, "v": number}) for number, (at, length, k) in enumerate(drawn)]
    return g.events(to_table(payload, SCHEMA), start="start", end="end")


def other() -> g.Stream:
    """Another stream, in other groups."""
    return events().by("v")


PASSES: Mapping[str, Verb] = {
    "advance_time": lambda s: s.advance_time(1, late="drop"),
    "alter_lifetime": lambda s: s.alter_lifetime(end=g.col("end")),
    "asof_join": lambda s: s.asof_join(other(), on="k"),
    "chop": lambda s: s.chop("3us"),
    "clip_by": lambda s: s.clip_by(other(), on="k"),
    "clip_duration": lambda s: s.clip_duration("3us"),
    "extend": lambda s: s.extend("3us"),
    "filter": lambda s: s.filter(g.col("v") > 3),
    "hop_lifetime": lambda s: s.hop_lifetime("4us", "2us"),
    "join": lambda s: s.join(other(), on="k", how="full"),
    "late": lambda s: s.advance_time(1, late="divert").late(),
    "point_at_end": lambda s: s.point_at_end(),
    "quantize": lambda s: s.quantize("4us", "2us"),
    "repeat": lambda s: s.repeat(g.col("v") % 3),
    "select": lambda s: s.select("k", "v"),
    "set_duration": lambda s: s.set_duration("5us"),
    "shift": lambda s: s.shift("2us"),
    "stitch": lambda s: s.stitch(on="k"),
    "to_point": lambda s: s.to_point(),
    "union": lambda s: s.union(other()),
    "with_columns": lambda s: s.with_columns(w=g.col("v") * 2),
    "with_prior": lambda s: s.with_prior(before="v"),
}
"""Verbs that hand events on: what groups the next window groups it behind them, too."""

USES: Mapping[str, Verb] = {
    "apply": lambda s: s.apply(lambda group: group.snapshot().agg(n=g.count())),
    "distinct": lambda s: s.distinct("k"),
    "one_clock": lambda s: s.advance_time(late="drop", per="k").one_clock(),
}
"""Verbs of a stream that use the grouping up, or group by columns of their own."""

WINDOWS: Mapping[str, Verb] = {
    "batches": lambda s: s.batches(2),
    "batches_until": lambda s: s.batches_until(g.window.sum("v") > 9),
    "count_window": lambda s: s.count_window(2),
    "first": lambda s: s.first(3),
    "first_span": lambda s: s.first_span("9us"),
    "first_unique": lambda s: s.first_unique("v"),
    "highest": lambda s: s.highest(2, "v"),
    "data_window": lambda s: s.data_window(Last(2)),
    "hopping": lambda s: s.hopping("6us", "3us"),
    "keep_all": lambda s: s.keep_all(),
    "keep_while": lambda s: s.keep_while(g.window.sum("v") < 50),
    "last": lambda s: s.last(2),
    "last_span": lambda s: s.last_span("5us"),
    "lowest": lambda s: s.lowest(2, "v"),
    "sample": lambda s: s.sample(2, seed=1),
    "session": lambda s: s.session("4us"),
    "sliding": lambda s: s.sliding("4us"),
    "snapshot": lambda s: s.snapshot(),
    "time_batches": lambda s: s.time_batches("6us"),
    "time_length_batches": lambda s: s.time_length_batches("6us", 3),
    "time_window": lambda s: s.time_window(Hopping(6, 3, align=0)),
    "tumbling": lambda s: s.tumbling("6us"),
    "unique": lambda s: s.unique("v"),
    "until": lambda s: s.until(g.col("end")),
}

RESULTS: Mapping[str, Verb] = {
    "agg": lambda w: w.agg(n=g.count(), k=g.max("k")) if not w._node.key else w.agg(n=g.count()),
    "apply": lambda w: w.apply(lambda table: [{"n": table.num_rows}], schema=pa.schema([("n", pa.int64())]), of=["v"]),
    "changes": lambda w: w.changes(),
    "each": lambda w: w.each(n=g.count()),
    "insert_stream": lambda w: w.insert_stream(),
    "remove_stream": lambda w: w.remove_stream(),
    "rows": lambda w: w.rows(),
    "top": lambda w: w.top(1, by="v"),
}
"""What is taken of a window."""

TOGETHER = ("intersect", "unite")


def verbs(owner: type) -> dict[str, str]:
    """The public verbs of a class and what they give."""
    found = {name: getattr(owner, name) for name in dir(owner) if not name.startswith("_")}
    return {name: str(inspect.signature(each).return_annotation) for name, each in found.items() if callable(each)}


def test_every_public_verb_is_in_a_table() -> None:
    of_stream = verbs(g.Stream)
    assert {name for name, made in of_stream.items() if made == "Stream"} == {*PASSES, *USES, "by"}
    assert {name for name, made in of_stream.items() if made.endswith("Windowed")} == {*WINDOWS}
    of_windows = verbs(Windowed) | verbs(DataWindowed)
    assert {name for name, made in of_windows.items() if made == "Stream"} == {*RESULTS}
    assert {name for name, made in of_windows.items() if made != "Stream"} == {*TOGETHER}


@pytest.mark.parametrize("verb", PASSES)
def test_a_verb_that_hands_events_on_hands_the_grouping_on(verb: str) -> None:
    assert PASSES[verb](events().by("k")).key == ("k",)
    assert PASSES[verb](events()).key == ()


@pytest.mark.parametrize("verb", USES)
def test_a_verb_that_groups_leaves_no_grouping(verb: str) -> None:
    assert USES[verb](events().by("k")).key == ()


def taken(window: str) -> list[str]:
    kept = verbs(DataWindowed if isinstance(WINDOWS[window](events()), DataWindowed) else Windowed)
    return [name for name in RESULTS if name in kept]


@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_uses_the_grouping_up_whatever_is_taken_of_it(window: str) -> None:
    for result in taken(window):
        assert RESULTS[result](WINDOWS[window](events().by("k"))).key == (), result
        assert RESULTS[result](WINDOWS[window](events())).key == (), result


@pytest.mark.parametrize("verb", TOGETHER)
def test_so_do_windows_taken_together(verb: str) -> None:
    s = events().by("k")
    for result in RESULTS:
        assert RESULTS[result](getattr(s.last(3), verb)(s.unique("v"))).key == (), result


@pytest.mark.parametrize("window", WINDOWS)
def test_within_apply_the_groups_of_apply_stay(window: str) -> None:
    def pipeline(s: g.Stream) -> g.Stream:
        for result in taken(window):
            assert RESULTS[result](WINDOWS[window](s)).key == ("k",), result
            finer = RESULTS[result](WINDOWS[window](s.with_columns(w=g.col("v") % 2).by("w")))
            assert finer.key == ("k",), result
        return s

    assert events().by("k").apply(pipeline).key == ()


def counted(made: g.Stream) -> g.Stream:
    return made.clip_duration("30us").tumbling("20us").agg(n=g.count())


# What it comes to: the next window is over all, unless one groups anew

CHAINS: Mapping[str, Verb] = {
    f"{result} of {window}": lambda s, window=window, result=result: RESULTS[result](WINDOWS[window](s))  # type: ignore[misc]
    for window in ("last", "session", "tumbling", "snapshot", "time_batches")
    for result in taken(window)
}


@pytest.mark.slow
@pytest.mark.parametrize("chain", CHAINS)
def test_the_next_window_is_over_all_groups(chain: str, device_name: str) -> None:
    made = CHAINS[chain](events().by("k"))
    answer = counted(made).collect(device=device_name)
    assert rows(answer) == rows(counted(made.by()).collect(device="cpu"))
    if "k" in made.schema.names:
        grouped = counted(made.by("k")).collect(device=device_name)
        assert sum(grouped["n"].to_pylist()) == sum(answer["n"].to_pylist())
        assert grouped.num_rows > answer.num_rows > 0


@pytest.mark.slow
@pytest.mark.parametrize("chain", CHAINS)
def test_a_running_query_holds_to_it(chain: str) -> None:
    chance = random.Random(3)
    arrived = in_some_order(events().collect(), chance)
    asked = CHAINS[chain](g.events(arrived, start="start", end="end").by("k")).last(2).agg(n=g.count())
    assert rows(in_any_cut(asked, arrived, "cpu", chance)) == rows(asked.collect(device="cpu"))


ON_SPARK = {"rows of last", "changes of last", "each of session", "insert_stream of time_batches", "top of snapshot"}


@pytest.mark.usefixtures("few_tasks")
def test_spark_holds_to_it(spark: SparkSession) -> None:
    queries: Mapping[str, Callable[[g.Stream, g.Stream], g.Stream]] = {
        name: lambda s, _, chain=chain: counted(chain(s.clip_duration("30us").by("k")))  # type: ignore[misc]
        for name, chain in CHAINS.items()
        if name in ON_SPARK
    }
    found = agree(spark, SIDES, queries)
    assert {*found} == ON_SPARK
    assert all(table.num_rows for table in found.values())
