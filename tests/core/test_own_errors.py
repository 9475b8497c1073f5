"""No other library's error reaches the user bare: what is wrong is refused by an error of ours, what is right works."""

from __future__ import annotations

import asyncio
import datetime
import importlib.metadata
import inspect
import operator
import queue
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import gpu_ops as g
from gpu_ops import epl, plot, rql
from gpu_ops.apps.cli import app
from gpu_ops.core.own_errors import own_errors
from tests.support.ticks import us

TABLE = pa.table({"at": [0, 1, 5], "v": [1, 2, 3], "s": ["1", "x", None]})


def events(table: Any = TABLE, **options: Any) -> g.Stream:
    return g.events(table, start="at", unit="s", **options)


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


WRONG: list[Any] = [
    *(
        -1,
        0,
        2**64,
        1j,
        float("nan"),
        float("inf"),
        "",
        " ",
        "x" * 10**4,
        "a\0b",
        b"v",
        [],
        {},
        object(),
        Unprintable(),
    ),
    *(lambda: 1, ..., int, True, np.int64(3), np.array([1, 2]), np.datetime64("2020-01-01"), {"v"}, range(2)),
    *(pl.Series([1]), pd.Series([1]), TABLE, pl.col("v"), g.col("v"), g.lit(1), g.count(), g.Int64, pa.int64()),
    *(datetime.timedelta(-1), datetime.timedelta.max, datetime.datetime(2020, 1, 1), datetime.date(2020, 1, 1)),  # noqa: DTZ001
]

PRINTED = [value for value in WRONG if not isinstance(value, Unprintable)]


def is_ours(call: Callable[[], object]) -> bool:
    try:
        call()
    except g.GpuOpsError as error:
        return not isinstance(error, g.DefectError)
    return True


@pytest.mark.parametrize(
    "name", [n for n in inspect.signature(g.events).parameters if n not in {"source", "format", "csv"}]
)
def test_wrong_argument_of_events(name: str) -> None:
    given = {"source": TABLE, "start": "at", "unit": "s"}
    assert [value for value in WRONG if not is_ours(lambda: g.events(**(given | {name: value})))] == []  # noqa: B023


def test_wrong_source() -> None:
    texts = [value for value in WRONG if not isinstance(value, str)]
    assert [value for value in texts if not is_ours(lambda: g.events(value, start="at", unit="s"))] == []  # noqa: B023


@pytest.mark.parametrize("condition", [g.lit(1) == g.lit(1), g.lit(value=True), g.lit(1) == g.lit(2)])
def test_constant_condition(condition: nw.Expr) -> None:
    kept = 0 if "2" in repr(condition) else 3
    assert events().filter(condition).collect(device="cpu").num_rows == kept


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["filter", "with_columns", "shift", "mixed"])
def test_long_chain(verb: str) -> None:
    stream = events()
    for number in range(steps := 1_500 if verb == "mixed" else 600):
        if verb == "with_columns":
            stream = stream.with_columns(v=g.col("v") + 1)
        else:
            shifts = verb == "shift" or (verb == "mixed" and number % 2)
            stream = stream.shift("1s") if shifts else stream.filter(g.col("v") > 0)
    assert stream.collect(device="cpu").num_rows == 3
    assert stream.tumbling("1d").agg(n=g.count()).explain(device="cpu").count("gives:") == steps + 2
    live = stream.start(device="cpu")
    live.push(TABLE)
    live.close()
    assert live.results().num_rows == 3


def test_chain_that_is_too_long() -> None:
    stream = events()
    for _ in range(1_700):
        stream = stream.shift("1s")
    with pytest.raises(g.PlanError, match=r"chains .* steps"):
        stream.collect(device="cpu")


def test_bad_text() -> None:
    with pytest.raises(g.ColumnError, match="conversion from `str` to `i64` failed"):
        events().with_columns(n=g.col("s").cast(g.Int64)).collect(device="cpu")


@pytest.mark.parametrize("kind", [pl.Int128, pl.UInt128])
@pytest.mark.parametrize("lazy", [False, True])
def test_polars_type_that_arrow_lacks(kind: Any, lazy: bool) -> None:  # noqa: FBT001
    frame = pl.DataFrame({"at": [0], "big": [1]}).cast({"big": kind})
    with pytest.raises(g.SourceError, match=rf"{kind.__name__}.*column 'big'"):
        events(frame.lazy() if lazy else frame)


def test_sparse_pandas() -> None:
    frame = pd.DataFrame({"at": [0, 1], "v": pd.arrays.SparseArray([0, 7])})
    assert events(frame).collect(device="cpu")["v"].tolist() == [0, 7]


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_name_that_no_column_can_have(name: str) -> None:
    with pytest.raises(g.ColumnError, match=r"has no name|holds a U.0000"):
        events(TABLE.rename_columns(["at", name, "s"]))
    with pytest.raises(g.ColumnError, match=r"has no name|holds a U.0000"):
        events().tumbling("1s").agg(**{name: g.count()})


def test_wrong_signature_is_shown() -> None:
    with pytest.raises(
        g.PlanError, match=r"unexpected keyword argument 'length'.*It is tumbling\(size, \*, align=None"
    ):
        events().tumbling(length="1s")  # type: ignore[call-arg]


@pytest.mark.defects
def test_net_names_the_defect_and_lets_the_users_errors_pass() -> None:
    with pytest.raises(g.DefectError, match=r"did not expect an? .*PackageNotFoundError") as caught:
        own_errors(importlib.metadata.version)("no such package")
    assert isinstance(caught.value.__cause__, importlib.metadata.PackageNotFoundError)
    with pytest.raises(ZeroDivisionError):
        events().by("s").apply(lambda s: s.shift(us(1 // 0)))


def test_memory_says_what_to_do() -> None:
    def full() -> None:
        raise MemoryError("8 TiB")

    full.__code__ = full.__code__.replace(co_filename=own_errors.__code__.co_filename)  # as if it were ours
    with pytest.raises(g.OutOfMemoryError, match=r"8 TiB.*coarser windows"):
        own_errors(full)()


def test_what_comes_out_of_a_callback_passes_though_no_line_of_it_is_the_users() -> None:
    full: queue.Queue[pa.Table] = queue.Queue(1)
    live = events().start(device="cpu", on_results=full.put_nowait)
    live.push(TABLE)
    with pytest.raises(queue.Full):
        live.push(TABLE)
    with pytest.raises(ZeroDivisionError):
        events().by("s").apply(lambda s: 1 // 0)  # type: ignore[arg-type,return-value]
    with pytest.raises(TypeError):
        events().by("s").apply(operator.add)  # type: ignore[arg-type]


@pytest.mark.parametrize("batches", [5, None, object()])
def test_batches_that_are_none(batches: Any) -> None:
    async def pushed() -> None:
        async for _ in events().start(device="cpu").arun(batches):
            pass

    with pytest.raises(g.PlanError, match="arun takes batches that come asynchronously"):
        asyncio.run(pushed())
    if batches is not None:
        with pytest.raises(g.PlanError, match="run takes batches, not"):
            list(events().start(device="cpu").run(batches))


@pytest.mark.parametrize("name", ["on_results", "max_waiting"])
def test_wrong_argument_of_start(name: str) -> None:
    assert [value for value in WRONG if not is_ours(lambda: events().start(device="cpu", **{name: value}))] == []  # noqa: B023


def test_plots_say_what_they_cannot_draw() -> None:
    assert [value for value in WRONG if not is_ours(lambda: plot.timeline(value))] == []  # noqa: B023


@pytest.mark.parametrize("fault", ["[][0]", "1 // 0", "g.events(inp, start=3)", "inp.nothing", "exit"])
def test_the_command_gives_one_line_and_no_traceback(fault: str, tmp_path: Path) -> None:
    (tmp_path / "q.py").write_text(f"import gpu_ops as g\ndef query(inp): return {fault}")
    pq.write_table(TABLE, tmp_path / "t.parquet")
    given = [
        str(tmp_path / "q.py"),
        "--input",
        f"inp={tmp_path / 't.parquet'}",
        "--output",
        str(tmp_path / "o.parquet"),
    ]
    found = CliRunner().invoke(app, ["run", *given])
    assert found.exit_code == 1
    assert isinstance(found.exception, SystemExit)
    assert found.output.startswith("error: ")
    assert found.output.count("\n") == 1


@pytest.mark.defects
def test_the_command_tells_of_a_defect_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_ops.apps.places.parse_inputs", importlib.metadata.version)
    found = CliRunner().invoke(app, ["explain", str(tmp_path / "q.py"), "--input", "no=package"])
    assert (found.exit_code, found.output.count("\n")) == (1, 1)
    assert "error: The command" in found.output


def _advanced(name: str, value: Any) -> None:
    given: dict[str, Any] = {"every": 1} | {name: value}
    events().advance_time(**given).collect(device="cpu")


def _arrivals_joined(suffix: Any) -> object:
    one, two = g.arrivals(events(), events(), order="v")
    return one.last(1).join(two.last(1), suffix=suffix).deliveries("v")


VERBS: dict[str, Callable[[Any], object]] = {
    "join how": lambda x: events().join(events(), how=x),
    "join strategy": lambda x: events().join(events(), strategy=x),
    "join suffix": lambda x: events().join(events(), suffix=x),
    "asof_join how": lambda x: events().asof_join(events(), how=x),
    "asof_join suffix": lambda x: events().asof_join(events(), suffix=x),
    "distinct": lambda x: events().distinct(x),
    "stitch": lambda x: events().stitch(on=x),
    "with_prior": lambda x: events().with_prior(p=x),
    "collect device": lambda x: events().collect(device=x),
    "collect shape": lambda x: events().collect(shape=x),
    "collect exact": lambda x: events().collect(exact=x),
    "explain device": lambda x: events().explain(device=x),
    "restore": lambda x: g.restore("nowhere", x),
    "hopping fill": lambda x: events().hopping("2s", "1s", fill=x).agg(n=g.count()),
    "keep_while": lambda x: events().keep_while(x),
    "batches_until": lambda x: events().batches_until(x),
    "arrivals by": lambda x: g.arrivals(events()).by(x),
    "arrivals unique": lambda x: g.arrivals(events()).unique(x),
    "arrivals first_unique": lambda x: g.arrivals(events()).first_unique(x),
    "arrivals events": lambda x: g.arrivals(events()).events(x),
    "deliveries by": lambda x: g.arrivals(events()).last(1).deliveries(by=x, n=g.count()),
    "deliveries descending": lambda x: g.arrivals(events()).last(1).deliveries("v", order_by="v", descending=x),
    "deliveries join suffix": _arrivals_joined,
    "push input": lambda x: events().start(device="cpu").push(TABLE, input=x),
    "advance input": lambda x: events().start(device="cpu").advance("1970-01-01T00:00:01Z", input=x),
    **{
        f"advance_time {name}": partial(_advanced, name)
        for name in ("every", "final", "late", "late_ends", "snapped", "advance_with")
    },
}


@pytest.mark.parametrize("name", VERBS)
def test_wrong_argument_of_a_verb(name: str) -> None:
    assert [value for value in PRINTED if not is_ours(lambda: VERBS[name](value))] == []  # noqa: B023


@pytest.mark.parametrize("name", ["sum", "mean", "median", "variance", "standard_deviation", "mean_absolute_deviation"])
def test_numbers_that_are_a_dictionary_are_refused_by_what_computes_with_them(name: str) -> None:
    table = TABLE.append_column("d", TABLE["v"].dictionary_encode())
    made = getattr(g, name)("d")
    with pytest.raises(g.ColumnError, match=r"does not take dictionary.*column 'd'.*cast"):
        events(table).snapshot().agg(x=made)
    numbers = events(table).with_columns(d=g.col("d").cast(g.Float64)).snapshot().agg(x=made)
    assert numbers.collect(device="cpu").num_rows == 3


@pytest.mark.parametrize("ask", [list, lambda s: s.to_reader().read_all()], ids=["iterate", "to_reader"])
def test_what_an_answer_raises_while_it_is_read_is_ours(ask: Callable[[g.Stream], object]) -> None:
    with pytest.raises(g.ColumnError, match="conversion from"):
        ask(events().with_columns(n=g.col("s").cast(g.Int64)))


def test_an_expression_of_a_type_that_arrow_does_not_have_is_refused() -> None:
    with pytest.raises(g.ColumnError, match=r"Arrow has no type: Polars' Int128. \[column 'n'\] Cast it"):
        events().with_columns(n=g.col("v").cast(nw.Int128))


@pytest.mark.parametrize("ask", [lambda path: g.store(path).read(), lambda path: events().write(path)])
def test_a_path_with_a_zero_in_it_is_refused_as_the_system_does(ask: Callable[[str], object]) -> None:
    with pytest.raises(g.SourceError, match=r"system refuses .*embedded null"):
        ask("a\0b.parquet")


@pytest.mark.parametrize("path", ["", ".", "/"])
def test_a_checkpoint_at_a_path_without_a_name_is_refused(path: str) -> None:
    live = events().start(device="cpu")
    with pytest.raises(g.SourceError, match="names a folder, and no file"):
        live.checkpoint(path)


def test_however_many_checkpoints_are_to_be_kept_writing_one_is_quick(tmp_path: Path) -> None:
    live = events().start(device="cpu")
    for _ in range(4):
        live.checkpoint(tmp_path / "c", keep=2**63)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["c", "c.1", "c.2", "c.3"]
    live.checkpoint(tmp_path / "c", keep=3)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["c", "c.1", "c.2"]


def test_a_sum_of_starts_in_a_window_is_refused() -> None:
    with pytest.raises(g.ColumnError, match=r"no sum of timestamp.*column 'start'"):
        events().keep_while(g.window.sum("start") > 1)


METHODS = [g.Stream, g.DeliveredStream, g.Windowed, g.DataWindowed, g.ArrivalStream, g.ArrivalWindow, g.CycleStream]
CALLED = [g.CyclePartition, g.CyclePartitions, g.CycleTables, g.Store, g.Epochs, epl.Runtime, rql.Runtime]


@pytest.mark.parametrize("kind", [*METHODS, *CALLED, epl.IsolatedService], ids=lambda kind: kind.__qualname__)
def test_each_public_method_has_the_net(kind: type) -> None:
    methods = {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")}
    methods = {name: each.__func__ if isinstance(each, classmethod) else each for name, each in methods.items()}
    bare = [
        name for name, each in methods.items() if isinstance(each, FunctionType) and not hasattr(each, "__wrapped__")
    ]
    assert bare == []


AGGREGATES = [
    each
    for name in g.__all__
    if isinstance(each := getattr(g, name), FunctionType) and each.__module__.startswith("gpu_ops.plan.")
]


@pytest.mark.parametrize("aggregate", AGGREGATES, ids=lambda each: each.__name__)
def test_wrong_argument_of_an_aggregate(aggregate: Callable[..., Any]) -> None:
    parameters = inspect.signature(aggregate).parameters
    sound: dict[str, Any] = {"n": 1, "k": 1, "q": 0.5, "unit": "1s", "schema": pa.schema([("x", pa.int64())])}
    given = {name: sound.get(name, "v") for name, each in parameters.items() if each.default is each.empty}

    def asked(name: str, value: object) -> object:
        return events().snapshot().agg(x=aggregate(**(given | {name: value})))

    for name, parameter in parameters.items():
        if parameter.kind not in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            assert [value for value in PRINTED if not is_ours(lambda: asked(name, value))] == [], name  # noqa: B023


def _runtime() -> epl.Runtime:
    runtime = epl.Runtime({"E": {"v": "int"}})
    runtime.deploy("@name('s') select sum(v) as t from E#time(10 sec)")
    return runtime


def _cycles() -> rql.Runtime:
    runtime = rql.Runtime({"S": {"v": "int"}})
    runtime.register("q", "select v from S (partition store last 3) as t where t.$row_status is new")
    return runtime


TEXTS: dict[str, Callable[[Any], object]] = {
    "epl types": epl.Runtime,
    "epl properties": lambda x: epl.Runtime({"E": x}),
    "epl start": lambda x: epl.Runtime(start=x),
    "epl clock": lambda x: epl.Runtime(clock=x),
    "epl default_selector": lambda x: epl.Runtime(default_selector=x),
    "epl type": lambda x: _runtime().send(x, [{"v": 1}]),
    "epl rows": lambda x: _runtime().send("E", x),
    "epl at": lambda x: _runtime().send("E", [{"v": 1}], at=x),
    "epl advance": lambda x: _runtime().advance(x),
    "epl advance_span": lambda x: _runtime().advance_span(1, x),
    "epl replay": lambda x: _runtime().replay(x, time="v"),
    "epl deploy": lambda x: _runtime().deploy(x),
    "epl undeploy": lambda x: _runtime().undeploy(x),
    "epl statement": lambda x: _runtime()[x],
    "epl isolated": lambda x: _runtime().isolated(x),
    "epl checkpoint": lambda x: _runtime().checkpoint(x) if not isinstance(x, str) else None,
    "epl restore": epl.Runtime.restore,
    "epl parse": epl.parse,
    "epl unparse": epl.unparse,
    "rql types": rql.Runtime,
    "rql columns": lambda x: rql.Runtime({"S": x}),
    "rql times": lambda x: rql.Runtime({"S": {"v": "int"}}, times=x),
    "rql tables": lambda x: rql.Runtime({"S": {"v": "int"}}, tables=x),
    "rql stream": lambda x: _cycles().send(x, [{"v": 1}]),
    "rql rows": lambda x: _cycles().send("S", x),
    "rql at": lambda x: _cycles().send("S", [{"v": 1}], at=x),
    "rql insert": lambda x: _cycles().insert(x, [{"v": 1}]),
    "rql advance": lambda x: _cycles().advance(x),
    "rql name": lambda x: _cycles().register(x, "select v from S (partition store last 3)"),
    **{
        f"rql {name}": partial(
            lambda x, name: _cycles().register("p", "select v from S (partition store last 3)", **{name: x}), name=name
        )
        for name in ("weights", "every", "waiting", "sizes", "baselines", "seed")
    },
    "rql query": lambda x: _cycles()[x],
    "rql unregister": lambda x: _cycles().unregister(x),
    "rql restore": rql.Runtime.restore,
    "rql parse": rql.parse,
}


@pytest.mark.parametrize("name", TEXTS)
def test_wrong_argument_of_a_runtime_of_texts(name: str) -> None:
    assert [value for value in PRINTED if not is_ours(lambda: TEXTS[name](value))] == []  # noqa: B023


def test_a_duration_that_is_too_long_for_its_unit_is_an_error_of_ours() -> None:
    longest = events().alter_lifetime(duration=g.lit(datetime.timedelta.max))
    with pytest.raises(g.ColumnError, match="cannot become what an expression"):
        longest.collect(device="cpu")
