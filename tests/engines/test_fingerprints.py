"""A function of the user's is known by what it does, not by where it stands."""

from __future__ import annotations

import functools
import operator
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.engines.live.fingerprints import fingerprint, functions_held
from gpu_ops.errors import PlanError, SourceError
from tests.support.following import facts_of, of_format_one, rewritten


def made(code: str, name: str = "f", **known: Any) -> Any:
    """A function from its text, in a module of its own."""
    module = types.ModuleType("users")
    module.__dict__.update(known)
    exec(compile(code, f"{hash(code)}.py", "exec"), module.__dict__)  # noqa: S102
    return module.__dict__[name]


SAME = {
    "lines": ("def f(x):\n    return x + 1", "\n\n# a comment\n\ndef f(x):\n\n    return (\n        x\n        + 1)"),
    "locals": ("def f(x):\n    y = x\n    return y", "def f(x):\n    other = x\n    return other"),
    "another name": ("def f(x): return x", "def h(x): return x\nf = h"),
    "a global that is not read": ("a = 1\ndef f(x): return x", "a = 2\ndef f(x): return x"),
    "a count that it keeps": (
        "a = 1\ndef f(x):\n    global a\n    a += 1\n    return x",
        "a = 2\ndef f(x):\n    global a\n    a += 1\n    return x",
    ),
    "recursion": ("def f(x): return f(x - 1) if x else 0",) * 2,
    "two that call each other": ("def f(x): return h(x)\ndef h(x): return f(x)",) * 2,
}
OTHER = {
    "an operator": ("def f(x): return x + 1", "def f(x): return x - 1"),
    "a number": ("def f(x): return x + 1", "def f(x): return x + 2"),
    "a number's type": ("def f(x): return x * 1", "def f(x): return x * 1.0"),
    "a truth": ("def f(x): return x == 1", "def f(x): return x == True"),
    "minus nought": ("def f(x): return 0.0", "def f(x): return -0.0"),
    "a text": ("def f(x): return x['a']", "def f(x): return x['b']"),
    "a method": ("def f(x): return x.min()", "def f(x): return x.max()"),
    "a default": ("def f(x, y=1): return x + y", "def f(x, y=2): return x + y"),
    "a default by name": ("def f(x, *, y=1): return x + y", "def f(x, *, y=2): return x + y"),
    "the order of arguments": ("def f(x, y): return x - y", "def f(y, x): return x - y"),
    "an inner function": ("def f(x): return [y + 1 for y in x]", "def f(x): return [y + 2 for y in x]"),
    "a lambda within": ("f = lambda x: max(x, key=lambda y: y)", "f = lambda x: max(x, key=lambda y: -y)"),
    "a closure": ("def h(n): return lambda x: x + n\nf = h(1)", "def h(n): return lambda x: x + n\nf = h(2)"),
    "a list in a closure": (
        "def h(n): return lambda x: x + n\nf = h([1])",
        "def h(n): return lambda x: x + n\nf = h([2])",
    ),
    "a function in a closure": (
        "def h(n): return lambda x: n(x)\nf = h(lambda x: 1)",
        "def h(n): return lambda x: n(x)\nf = h(lambda x: 2)",
    ),
    "a set": ("def f(x): return x in {1, 2}", "def f(x): return x in {1, 3}"),
    "a global number": ("a = 1\ndef f(x): return x + a", "a = 2\ndef f(x): return x + a"),
    "a global function": ("def h(x): return 1\ndef f(x): return h(x)", "def h(x): return 2\ndef f(x): return h(x)"),
    "a function that the global calls": (
        "def i(): return 1\ndef h(x): return i()\ndef f(x): return h(x)",
        "def i(): return 2\ndef h(x): return i()\ndef f(x): return h(x)",
    ),
    "what is imported": (
        "from math import floor as h\ndef f(x): return h(x)",
        "from math import ceil as h\ndef f(x): return h(x)",
    ),
    "what catches": (
        "def f(x):\n try: return 1/x\n except ValueError: return 0",
        "def f(x):\n try: return 1/x\n except OSError: return 0",
    ),
    "a partial": (
        "from functools import partial\nf = partial(max, 1)",
        "from functools import partial\nf = partial(max, 2)",
    ),
    "an array": (
        "import numpy\na = numpy.array([1])\ndef f(x, a=a): return a",
        "import numpy\na = numpy.array([2])\ndef f(x, a=a): return a",
    ),
    "an object that is called": (
        "class C:\n def __init__(self, n): self.n = n\n def __call__(self, x): return x\nf = C(1)",
        "class C:\n def __init__(self, n): self.n = n\n def __call__(self, x): return x\nf = C(2)",
    ),
    "what an object does": (
        "class C:\n def __call__(self, x): return x + 1\nf = C()",
        "class C:\n def __call__(self, x): return x + 2\nf = C()",
    ),
    "a bound method": (
        "class C:\n def h(self, x): return x + 1\nf = C().h",
        "class C:\n def h(self, x): return x + 2\nf = C().h",
    ),
    "a built-in": ("f = int", "f = float"),
}


@pytest.mark.parametrize("what", SAME)
def test_it_stays_the_same(what: str) -> None:
    one, other = SAME[what]
    assert fingerprint(made(one)) == fingerprint(made(other))


@pytest.mark.parametrize("what", OTHER)
def test_it_is_another(what: str) -> None:
    one, other = OTHER[what]
    assert fingerprint(made(one)) == fingerprint(made(one))
    assert fingerprint(made(one)) != fingerprint(made(other))


@pytest.mark.services
def test_it_is_the_same_in_every_process() -> None:
    code = """
from gpu_ops.engines.live.fingerprints import fingerprint
import datetime, re, decimal
def f(x, names={"b", "a", "c"}, *, day=datetime.date(2026, 1, 2), form=re.compile("a+")):
    return x in {"one", "two", "three"} and {"one": 1, "two": decimal.Decimal(1)}
print(fingerprint(f))
"""
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1


def test_a_compiled_function_is_known_by_its_python() -> None:
    import numba

    assert fingerprint(numba.njit(made("def f(x): return x + 1"))) != fingerprint(
        numba.njit(made("def f(x): return x + 2"))
    )


def test_things_without_a_value_count_by_their_type() -> None:
    def holding(thing: object) -> Callable[[], object]:
        return lambda: thing

    assert fingerprint(holding(object())) == fingerprint(holding(object()))
    assert fingerprint(holding(pa.table({}))) != fingerprint(holding(object()))
    assert fingerprint(np.add) != fingerprint(np.multiply)
    assert fingerprint(operator.add) != fingerprint(operator.mul)
    assert fingerprint(functools.partial(max, a=1)) != fingerprint(functools.partial(max, a=2))


# In a plan

EMPTY = pa.schema([("at", pa.int64()), ("v", pa.int64())]).empty_table()


def plans(step: int) -> dict[str, g.Stream]:
    """A plan for each place where a function of the user's may stand."""
    bids = g.events(EMPTY, start="at", unit="s")
    window = bids.tumbling("1min")
    own = g.incremental(
        zero=lambda: 0,
        add=lambda s, v: s + v * step,
        remove=lambda s, v: s - v * step,
        result=lambda s: s,
        returns=pa.int64(),
        of="v",
    )
    rows = pa.schema([("n", pa.int64())])
    return {
        "incremental": window.agg(own=own),
        "window_function": window.agg(own=g.window_function(lambda t: t.num_rows * step, returns=pa.int64(), of="v")),
        "in arithmetic": window.agg(
            own=g.count() + g.window_function(lambda t: t.num_rows * step, returns=pa.int64(), of="v")
        ),
        "apply": window.apply(lambda t: pa.table({"n": [t.num_rows * step]}), schema=rows),
        "of a data window": bids.last(3).agg(
            own=g.window_function(lambda t: t.num_rows * step, returns=pa.int64(), of="v")
        ),
    }


@pytest.mark.parametrize("kind", plans(1))
def test_functions_are_found_wherever_a_plan_holds_them(kind: str) -> None:
    one, same, other = (functions_held(plans(step)[kind]._node) for step in (1, 1, 2))
    assert one == same
    assert one
    assert one.keys() == other.keys()
    assert one != other


def test_functions_beside_the_package_are_the_users() -> None:
    code = compile("def f(t): return t.num_rows", f"{Path(g.__file__).parent}_queries/mine.py", "exec")
    module = types.ModuleType("gpu_ops")
    exec(code, module.__dict__)  # noqa: S102
    window = g.events(EMPTY, start="at", unit="s").tumbling("1min")
    assert functions_held(window.agg(n=g.window_function(module.f, returns=pa.int64(), of="v"))._node)


@pytest.mark.parametrize("aggregate", [g.first("v"), g.last("v"), g.arg_min("v", by="v"), g.arg_max("v", by="v")])
def test_functions_of_the_package_are_not_the_users(aggregate: Any) -> None:
    """Such a kind of aggregate has a partial function of the package: a checkpoint outlives a change of its code."""
    assert functions_held(g.events(EMPTY, start="at", unit="s").snapshot().agg(x=aggregate)._node) == {}


def test_a_plan_without_functions_holds_none() -> None:
    bids = g.events(EMPTY, start="at", unit="s").filter(g.col("v") > 1)
    plan = bids.by("v").sliding("1min").agg(n=g.count(), m=g.median("v"), q=g.quantile("v", 0.2))
    assert functions_held(plan._node) == {}
    assert functions_held(bids.last(3).rows()._node) == {}
    assert functions_held(bids.with_columns(x=g.col("v").cast(nw.Int8))._node) == {}
    with pytest.raises(PlanError, match="looks at other rows"):  # so expressions hold no functions
        bids.tumbling("1min").agg(n=g.sum(g.col("v").map_batches(lambda values: values)))
    assert functions_held(bids.by("v").hopping("1min", "5s").agg(n=g.count()).join(bids, on="v")._node) == {}


def test_a_changed_function_is_refused_unless_told_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    live = plans(1)["incremental"].start(device="cpu")
    live.push({"at": [1, 2], "v": [3, 4]})
    live.checkpoint(path)
    facts = facts_of(path)
    assert facts["version"] == g.__version__
    assert facts["python"] == f"{sys.version_info.major}.{sys.version_info.minor}"
    g.restore(path, plans(1)["incremental"], device="cpu")
    changed = plans(2)["incremental"]
    with pytest.raises(
        SourceError, match=r"with other functions: .*options\.add, .*options\.remove changed\. Restore it"
    ):
        g.restore(path, changed, device="cpu")
    again = g.restore(path, changed, device="cpu", if_functions_changed="accept")
    again.push({"at": [3], "v": [5]})
    again.close()
    assert again.results()["own"].to_pylist() == [2 * (3 + 4 + 5)]
    with pytest.raises(PlanError, match="is no policy"):
        g.restore(path, changed, if_functions_changed="ignore")  # type: ignore[arg-type]
    rewritten(path, lambda facts: facts.update(python="3.8", version="0.0.1"))
    with pytest.raises(
        SourceError, match=r"made by gpu_ops 0\.0\.1, and this is .*made by Python 3\.8, and this is 3\."
    ):
        g.restore(path, changed, device="cpu")
    rewritten(path, of_format_one)  # which says nothing of functions
    g.restore(path, changed, device="cpu")


def test_what_a_closure_holds_may_change_while_the_query_runs(tmp_path: Path) -> None:
    def plan() -> g.Stream:
        seen: list[int] = []

        def count(t: pa.Table) -> int:
            seen.append(t.num_rows)
            return len(seen)

        window = g.events(EMPTY, start="at", unit="s").tumbling("1min")
        return window.agg(n=g.window_function(count, returns=pa.int64(), of="v"))

    live = plan().start(device="cpu")
    live.push({"at": [1], "v": [3]})
    live.advance("1970-01-01T00:02:00Z")
    assert live.results()["n"].to_pylist() == [1]
    live.checkpoint(tmp_path / "checkpoint")
    g.restore(tmp_path / "checkpoint", plan(), device="cpu")
