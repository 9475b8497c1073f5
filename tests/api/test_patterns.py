"""Patterns by verbs: the same matches as those of the same patterns in EPL."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops import epl
from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.operators.patterns import cells, chains, machine
from tests.support.examples import examples
from tests.support.ticks import at_us

A = pa.table({"at": [0, 1, 2, 5, 9, 12], "seq": [1, 2, 3, 4, 5, 6], "k": list("xyxzxy"), "v": [1, 2, 3, 4, 1, 9]})
B = pa.table({"at": [1, 2, 6, 7, 12], "seq": [1, 2, 3, 4, 5], "k": list("xyxyx"), "v": [5, 1, 2, 3, 4]})
BEGIN, END = "1970-01-01T00:00:00Z", "1970-01-01T00:01:00Z"


def sources() -> list[g.Stream]:
    return [g.events(each, start="at", unit="s") for each in (A, B)]


col = g.col
TWINS: dict[str, Callable[[Any, Any], g.PatternStep]] = {
    "every a=A -> b=B(k = a.k, v > a.v)": lambda a, b: g.every("a", a) >> g.one("b", b, col("v") > col("a.v"), on="k"),
    "every a=A -> (timer:interval(3 sec) and not b=B(k = a.k))": lambda a, b: (
        g.every("a", a) >> g.none("b", b, on="k").within("3s")
    ),
    "every (a=A(v > 1) and b=B)": lambda a, b: g.every(g.one("a", a, col("v") > 1) & g.one("b", b)),
    "every (a=A or b=B)": lambda a, b: g.every(g.one("a", a) | g.one("b", b)),
    "every (a=A until b=B)": lambda a, b: g.every(g.one("a", a).times(0, until=g.one("b", b))),
    "every ([2] a=A) -> b=B(v > a[0].v)": lambda a, b: (
        g.every(g.one("a", a).times(2)) >> g.one("b", b, col("v") > col("a[0].v"))
    ),
    "every-distinct(a.k, 5 sec) a=A": lambda a, _: g.every("a", a, distinct=col("a.k"), forget="5s"),
    "(every a=A) where timer:within(6 sec)": lambda a, _: g.every("a", a).within("6s"),
    "(every a=A) where timer:withinmax(6 sec, 2)": lambda a, _: g.every("a", a).within("6s", most=2),
    "(every a=A) while (a.v < 4)": lambda a, _: g.every("a", a).while_(col("a.v") < 4),
    "every (a=A -> timer:interval(4 sec))": lambda a, _: g.every(g.one("a", a) >> g.after("4s")),
}


@pytest.mark.parametrize("text", TWINS)
@pytest.mark.parametrize("device", ["cpu", "array"])
def test_verbs_and_texts_match_the_same(text: str, device: str) -> None:
    one, other = sources()
    asked = epl.query(f"select * from pattern [{text}]", A=one, B=other, order="seq", until=60_000)
    a, b = g.arrivals(*sources(), order="seq", start=BEGIN, until=END)
    found = g.pattern(TWINS[text](a, b)).deliveries(*_names(a, b, text)).collect(device=device)
    wanted = asked.collect(device=device)
    assert _rows(found) == _rows(wanted)
    assert len(wanted) > 0


def _names(a: Any, b: Any, text: str) -> list[str]:
    return list(g.pattern(TWINS[text](a, b)).schema.names)


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows with the columns of records, `a.v`, and without those of records that are not there."""
    rows = []
    for row in table.drop_columns(["start", "end"]).to_pylist():
        flat: dict[str, Any] = {}
        for name, value in row.items():
            flat |= {f"{name}.{each}": of for each, of in value.items()} if isinstance(value, dict) else {name: value}
        rows.append({name: value for name, value in flat.items() if value is not None and not name.endswith(".at")})
    return rows


def test_a_live_pattern_gives_what_a_batch_gives() -> None:
    def asked(table: pa.Table) -> g.Stream:
        stream = g.arrivals(g.events(table, start="at", unit="s"), order="seq")
        return g.pattern(g.every("a", stream) >> g.one("b", stream, col("v") > col("a.v"), on="k")).deliveries()

    live = asked(A.schema.empty_table()).start()
    found = []
    for at in range(len(A)):
        live.push(A.slice(at, 1))
        found.append(live.results())
    live.close()
    found.append(live.results())
    assert pa.concat_tables(found).equals(asked(A).collect())
    assert sum(map(len, found)) == 2


def test_what_is_wrong_is_said() -> None:
    a, b = g.arrivals(*sources(), order="seq")
    with pytest.raises(ColumnError, match="w"):
        g.pattern(g.every("a", a) >> g.one("b", b, col("w") > 1))
    with pytest.raises(ColumnError, match="z"):
        g.pattern(g.every("a", a) >> g.one("b", b, on="z"))
    with pytest.raises(PlanError, match="none has a name"):
        g.pattern(g.one("b", b, on="k"))
    with pytest.raises(PlanError, match="made of steps"):
        g.pattern(a)
    with pytest.raises(PlanError, match="different clocks"):
        g.pattern(g.one("a", a) >> g.one("b", g.arrivals(sources()[1], order="seq")))
    with pytest.raises(PlanError, match="needs an end"):
        g.one("a", a).times(1, 3)
    with pytest.raises(PlanError, match="a step of a stream"):
        g.pattern(g.after("1s"))


@pytest.mark.parametrize("shape", ["open starts", "the machine"])
def test_rows_that_nothing_waits_for_are_not_kept(shape: str) -> None:
    """Nothing ever begins: of 60,000 rows fewer are kept than come in two steps."""
    schema = pa.schema([("at", pa.int64()), ("v", pa.int64())])
    each = g.arrivals(g.events(schema.empty_table(), start="at", unit="us"))
    then = g.one("b", each, col("v") < -1)
    step = then if shape == "open starts" else then & g.one("c", each)
    live = g.pattern(g.every("a", each, col("v") == -1) >> step).deliveries("b.v").start(device="cpu")
    for first in range(0, 60_000, 10_000):
        live.push(pa.table({"at": range(first, first + 10_000), "v": range(10_000)}, schema))
        live.advance(at_us(first + 10_000))
        live.results()
        assert live.status().alive < 40_000
    assert live.status().alive < 20_000


@pytest.mark.parametrize("device", ["cpu", "array"])
@pytest.mark.parametrize("shape", ["then", "none", "the machine"])
@given(st.randoms(use_true_random=False))
@examples(dear=True)
def test_text_keys_whose_numbers_are_forgotten(shape: str, device: str, chance: random.Random) -> None:
    """Texts come and go; whatever is kept of them is looked at in each step, and saved and restored in between."""
    texts = [None, "", "a", "b", "ä", "a longer one"] + [f"{at}" for at in range(30)]
    count = chance.randrange(1, 120)
    rows = pa.table(
        {
            "at": pa.array(range(count), pa.int64()),
            "k": pa.array([chance.choice(texts[: chance.choice([4, 36])]) for _ in range(count)], pa.string()),
            "v": pa.array([chance.randrange(4) for _ in range(count)], pa.int64()),
        }
    )

    def asked(table: pa.Table) -> g.Stream:
        each = g.arrivals(g.events(table, start="at", unit="us"), start=BEGIN, until=END)
        first, then = g.every("a", each, col("v") == 0), g.one("b", each, col("v") > 1, on="k")
        step = {
            "then": lambda: first >> then,
            "none": lambda: first >> g.none("", each, col("v") > 1, on="k").within("9us"),
            "the machine": lambda: first >> (then.within("20us") | g.one("c", each, col("v") == 1, on="k").times(2)),
        }[shape]()
        return g.pattern(step).deliveries("a.k", "a.v")

    wanted = asked(rows).collect(device=device)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "_FEW", 0)
        patch.setattr(chains, "_ROWS", 2)
        patch.setattr(machine, "_ROWS", 2)
        patch.setattr(machine, "_SMALL", 2)
        live, at = asked(rows.slice(0, 0)).start(device=device), 0
        found = []
        while at < count:
            size = chance.randrange(1, 20)
            live.push(rows.slice(at, size))
            at += size
            live.advance(at_us(min(at, count)))
            found.append(live.results())
            if chance.random() < 0.4:
                with TemporaryDirectory() as folder:
                    # In parts there is also what is no longer needed; on either device.
                    saved, other = Path(folder) / "c", chance.choice(["cpu", "array"])
                    if chance.random() < 0.5:
                        live.checkpoint(saved)
                    else:
                        live.save(saved)
                        live.push(rows.slice(at, 1))
                        live.save(saved)
                        at += 1
                    live = g.restore(saved, asked(rows.slice(0, 0)), device=other)
        live.close()
        found.append(live.results())
    assert sorted(map(repr, _rows(pa.concat_tables(found)))) == sorted(map(repr, _rows(wanted)))
