"""Names that users bring from elsewhere, and bare truth values and texts where an expression belongs: what is said."""

from __future__ import annotations

import copy
import pickle
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.core import other_names
from gpu_ops.errors import ColumnError, GpuOpsError, PlanError, TimeError, UnknownNameError

TABLE = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "v": [1, 2], "w": [3, 4], "k": ["a", "b"]})


def bids() -> g.Stream:
    return g.events(TABLE, start="at")


def asked(kind: str, folder: Path) -> Any:
    """One of each kind that names are asked of."""
    made: dict[str, Callable[[], Any]] = {
        "stream": bids,
        "windows": lambda: bids().tumbling("1min"),
        "live": lambda: bids().start(device="cpu"),
        "store": lambda: g.store(folder),
        "aggregate": lambda: g.sum("v") / g.count(),
        "condition": lambda: g.window,
        "module": lambda: g,
    }
    return made[kind]()


SAID = {
    ("stream", "group_by"): "A stream has no 'group_by'. Group with .by(\"item\")",
    ("stream", "groupBy"): '.by("item")',
    ("stream", "limit"): ".head(5)",
    ("stream", "where"): '.filter(g.col("v") > 1)',
    ("stream", "withColumn"): '.with_columns(twice=g.col("v") * 2)',
    ("stream", "withColumns"): "Did you mean 'with_columns'?",
    ("stream", "orderBy"): '.sort_by("v")',
    ("stream", "merge"): '.join(other, on="item")',
    ("stream", "rolling"): '.sliding("5min")',
    ("stream", "TUMBLE"): '.tumbling("1min")',
    ("stream", "merge_asof"): ".asof_join(",
    ("stream", "watermark"): ".advance_time(",
    ("stream", "shape"): ".collect().num_rows",
    ("stream", "mean"): 'Write .tumbling("1min").agg(mean=g.mean("v")).',
    ("stream", "agg"): 'say which first, .tumbling("1min").agg(',
    ("stream", "push"): "live = stream.start()",
    ("stream", "fliter"): "Did you mean 'filter'?",
    ("windows", "count"): "Write .agg(n=g.count()).",
    ("windows", "sum"): 'Write .agg(total=g.sum("v")).',
    ("windows", "filter"): ".agg(n=g.count()).filter(",
    ("windows", "rename"): "Say what to compute first",
    ("windows", "nonsense"): "It has: agg, apply, rows, top.",
    ("live", "poll"): "Write .results().",
    ("live", "tumbling"): "before .start()",
    ("store", "put"): "Write .append(table",
    ("store", "tumbling"): "g.events(store).tumbling(",
    ("aggregate", "alias"): '.agg(total=g.sum("v"))',
    ("condition", "mean"): "It has: count, newest",
    ("module", "avg"): "gpu_ops has no 'avg'. Write g.mean(\"v\").",
    ("module", "n_unique"): 'Write g.count_distinct("item").',
    ("module", "medain"): "Did you mean 'median'?",
}


@pytest.mark.parametrize(("kind", "name"), SAID)
def test_a_name_from_elsewhere_is_answered_with_ours(kind: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=re.escape(SAID[kind, name])) as caught:
        getattr(asked(kind, tmp_path), name)
    assert isinstance(caught.value, GpuOpsError)
    assert isinstance(caught.value, AttributeError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301  (our own)


def test_every_name_of_the_table_is_one_that_is_not_there(tmp_path: Path) -> None:
    """Else its line would never be shown; and each has one line alone."""
    lines = [(name, kind) for names, hints in other_names._TABLE.items() for name in names.split() for kind in hints]
    assert [line for line, times in Counter(lines).items() if times > 1] == []
    given = {kind: asked(kind, tmp_path) for kind in dict.fromkeys(kind for _, kind in lines)}
    for name, kind in lines:
        assert name == name.replace("_", "").lower()
        with pytest.raises(UnknownNameError) as caught:
            getattr(given[kind], name)
        assert caught.value.remedy == other_names._TABLE_OF[name][kind], (name, kind)


def test_what_is_written_to_say_is_there(tmp_path: Path) -> None:
    """A verb that a remedy names, right after the dot of what was asked, is one; and so is each of ours after g."""
    for name, hints in other_names._TABLE_OF.items():
        for kind, remedy in hints.items():
            for verb in re.findall(r"(?:Write|Say) \.(\w+)", remedy):
                assert verb in dir(asked(kind, tmp_path)), (name, kind, verb)
            for function in re.findall(r"\bg\.(\w+)", remedy):
                assert function in (*g.__all__, "__version__"), (name, kind, function)


@pytest.mark.parametrize("kind", ["stream", "windows", "live", "store", "aggregate", "condition", "module"])
def test_what_libraries_look_for_is_plainly_not_there(kind: str, tmp_path: Path) -> None:
    given = asked(kind, tmp_path)
    # A stream has an __array__, which says that it is a plan.
    arrays = () if kind == "stream" else ("__array__",)
    for name in (*arrays, "_repr_html_", "__narwhals_dataframe__", "_ipython_display_", "__dataframe__"):
        with pytest.raises(AttributeError) as caught:
            getattr(given, name)
        assert not isinstance(caught.value, GpuOpsError)
    assert not hasattr(given, "to_dicts")


def test_copies_are_made_as_before() -> None:
    stream = copy.copy(bids())
    assert stream.schema == bids().schema
    assert str(copy.deepcopy(g.sum("v"))) == str(g.sum("v"))
    assert pickle.loads(pickle.dumps(g.window)).count is not None  # noqa: S301  (our own)


def test_an_error_within_a_property_is_the_one_that_is_seen() -> None:
    class Broken(g.Stream):
        @property
        def broken(self) -> int:
            return cast("Any", None).nothing  # type: ignore[no-any-return]

    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'nothing'"):
        _ = Broken(bids()._node).broken


def test_the_module_shows_its_public_names_alone() -> None:
    assert sorted(name for name in dir(g) if not name.startswith("_")) == sorted(g.__all__)
    with pytest.raises(ImportError):
        exec("from gpu_ops import avg")  # noqa: S102  (what Python makes of the module's answer)
    from gpu_ops.apps import nexmark  # a submodule is found all the same

    assert nexmark.__name__ == "gpu_ops.apps.nexmark"


def test_a_stream_shows_its_verbs_alone() -> None:
    shown = [name for name in dir(bids()) if not name.startswith("_")]
    assert {"filter", "tumbling", "collect"} < set(shown)
    assert all(getattr(g.Stream, name).__doc__ for name in shown)


CONDITIONS: dict[str, tuple[Any, str]] = {
    "a text": ("v > 1", 'Write g.col("v") > 1.'),
    "SQL's equal": ("k = 'a'", "Write g.col(\"k\") == 'a'."),
    "a longer text": ("v > 1 and v < 3", "& | ~ between conditions"),
    "True": (True, 'g.col("v").is_in([1, 2]), g.col("v").is_between(1, 3)'),
    "a list": ([g.col("v") > 1], "one by one"),
    "a number": (1, "A constant is g.lit(1)."),
    "another case": ("V", "Did you mean 'v'?"),
}


@pytest.mark.parametrize("what", CONDITIONS)
def test_what_is_no_condition_is_answered_with_one(what: str) -> None:
    given, says = CONDITIONS[what]
    with pytest.raises(PlanError, match=re.escape(says)):
        bids().filter(given)


def test_narwhals_refuses_the_truth_of_an_expression() -> None:
    """Ours is Narwhals' own col: these never reach us, and its error says what to write."""
    v = g.col("v")
    for truth in (lambda: v > 1 and v < 3, lambda: not v, lambda: 1 < v < 3):
        with pytest.raises(TypeError, match=r"use `nw.col\('a'\) & nw.col\('b'\)`"):
            truth()


def test_a_unit_of_what_is_a_time_by_itself_is_refused() -> None:
    with pytest.raises(TimeError, match=r"unit='s' is the unit of integers, and the start is timestamp.* Leave unit="):
        g.events(TABLE, start="at", unit="s")
    mixed = TABLE.append_column("till", pa.array([7, 8]))
    assert g.events(mixed, start="at", end="till", unit="s").collect()["v"].to_pylist() == [1, 2]


def test_another_case_of_a_source_s_column_is_found() -> None:
    with pytest.raises(ColumnError, match="Did you mean 'at'"):
        g.events(TABLE, start="At")


@pytest.mark.parametrize(
    ("fill", "says"),
    [(0, 'Write fill="zero"'), (7, "fill_null"), ("nul", '"null", "zero" or "last"'), ({"n": 0}, 'fill="zero"')],
)
def test_a_fill_that_cannot_be_is_refused_where_it_is_written(fill: Any, says: str) -> None:
    with pytest.raises(PlanError, match=re.escape(says)):
        bids().tumbling("1min", fill=fill)


def test_aggregates_without_a_name_keep_their_column_s() -> None:
    windows = bids().by("k").tumbling("1min")
    made = windows.agg(g.count(), g.sum("v"), g.max(g.col("w") * 2), least=g.min("v"))
    assert made.schema.names == ["k", "count", "v", "w", "least"]
    assert windows.agg(g.sum("v") / g.count()).schema.names == ["k", "v"]
    assert bids().last(2).each(g.count()).schema.names == ["v", "w", "k", "count"]
    assert sorted(made.collect()["w"].to_pylist()) == [6, 8]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((g.min("v"), g.max("v")), r"would have this name. \[column 'v'\] Name them: .agg\(least_v="),
        ((g.max("k"),), "two columns of one name"),
        (("v",), r"takes aggregates of gpu_ops, not str. Write for instance .agg\(total="),
        (([g.count()],), "not list"),
        ((g.col("v").sum(),), "not Expr"),
    ],
)
def test_aggregates_that_cannot_be_named_are_refused(given: tuple[Any, ...], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        bids().by("k").tumbling("1min").agg(*given)
