"""Sub-queries in `on … delete`, `on … update` and `on … merge`: beside lists, in any cut, on each device, restored."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import epl
from gpu_ops.errors import TextError
from tests.support.examples import examples

TYPES = {"A": {"k": "string", "v": "int"}, "B": {"w": "int", "j": "string"}, "C": {"n": "int", "m": "string"}}
CREATED = "@name('w') create window W#keepall as A; insert into W select * from A;"

Rows = list[dict[str, Any]]


def _is_in(value: Any, found: list[Any]) -> bool | None:
    """SQL's: null where none is equal, and one of them is null."""
    if not found:
        return False
    return True if value is not None and value in found else None if value is None or None in found else False


def _without(holds: Callable[[Any, Any, Rows], Any]) -> Callable[[Rows, Any, Rows], Rows]:
    return lambda rows, event, seen: [row for row in rows if holds(row, event, seen) is not True]


def _less(one: Any, other: Any) -> bool:
    return one is not None and other is not None and one < other


def _greatest(seen: Rows) -> Any:
    return max((each["n"] for each in seen if each["n"] is not None), default=None)


def _merged(rows: Rows, event: Any, seen: Rows) -> Rows:
    met = [row for row in rows if event["j"] is not None and row["k"] == event["j"]]
    if not met and any(_less(event["w"], each["n"]) for each in seen):
        return [*rows, {"k": event["j"], "v": _greatest(seen)}]
    return [row for row in rows if row not in met or not _is_in(row["v"], [each["n"] for each in seen])]


CHANGES: dict[str, Callable[[Rows, Any, Rows], Rows]] = {
    "on B update W set v = (select max(n) from C#keepall)": lambda rows, _, seen: [
        {**row, "v": _greatest(seen)} for row in rows
    ],
    "on B delete from W where v = (select max(n) from C#keepall)": _without(
        lambda row, _, seen: row["v"] is not None and row["v"] == _greatest(seen)
    ),
    "on B delete from W where k in (select m from C#length(2))": _without(
        lambda row, _, seen: _is_in(row["k"], [each["m"] for each in seen[-2:]])
    ),
    "on B delete from W where not (k in (select m from C#length(2)))": _without(
        lambda row, _, seen: _is_in(row["k"], [each["m"] for each in seen[-2:]]) is False
    ),
    "on B as b delete from W as w where exists (select * from C#keepall where n = w.v and n > b.w)": _without(
        lambda row, event, seen: any(each["n"] == row["v"] and _less(event["w"], each["n"]) for each in seen)
    ),
    "on B as b delete from W as w where not exists (select * from C#keepall where w.v < n)": _without(
        lambda row, _, seen: not any(_less(row["v"], each["n"]) for each in seen)
    ),
    "on B as b merge W as w where w.k = b.j when not matched and exists (select * from C#keepall where n > b.w) then "
    "insert select b.j as k, (select max(n) from C#keepall) as v "
    "when matched and v in (select n from C#keepall) then delete": _merged,
}
WORDS, NUMBERS = st.sampled_from(["a", "b", None]), st.sampled_from([0, 1, 2, None])
EVENTS = st.lists(
    st.one_of(
        st.fixed_dictionaries({"k": WORDS, "v": NUMBERS}),
        st.fixed_dictionaries({"w": NUMBERS, "j": WORDS}),
        st.fixed_dictionaries({"n": NUMBERS, "m": WORDS}),
    ),
    max_size=14,
)


def _as_text(row: dict[str, Any]) -> str:
    return f"{row['k']} {row['v']}"


def _type_of(row: dict[str, Any]) -> str:
    return next(name for name, columns in TYPES.items() if columns.keys() == row.keys())


@pytest.mark.slow
@given(st.sampled_from([*CHANGES]), EVENTS, st.booleans(), st.sampled_from(["cpu", "array"]), st.integers(0, 6))
@examples(15, dear=True)
def test_beside_lists(
    tmp_path_factory: pytest.TempPathFactory,
    text: str,
    events: Rows,
    together: bool,  # noqa: FBT001
    device: str,
    kept: int,
) -> None:
    runtime = epl.Runtime(TYPES, start=0, device=device)
    runtime.deploy(CREATED + text)
    rows, seen = Rows(), Rows()
    for at, (name, some) in enumerate(groupby(events, _type_of)):
        if at == kept:
            path: Path = tmp_path_factory.mktemp("kept") / "runtime.checkpoint"
            runtime.checkpoint(path)
            runtime = epl.Runtime.restore(path)
        sent = list(some)
        for batch in [sent] if together else [[one] for one in sent]:
            runtime.send(name, batch)
        for each in sent:
            if name == "B":
                rows = CHANGES[text](rows, each, seen)
            (rows if name == "A" else seen if name == "C" else []).append(each)
        assert sorted(runtime.rows("w").to_pylist(), key=_as_text) == sorted(rows, key=_as_text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("on B delete from W where exists (select * from W)", "of named windows and tables"),
        (
            "on B delete from W as w where w.v > (select min(n) from C#keepall where n < w.v)",
            "values of sub-queries",
        ),
        ("on B delete from W as w where exists (select * from C#keepall where n < w.v and m = w.k)", "one comparison"),
    ],
)
def test_refused(text: str, said: str) -> None:
    with pytest.raises(TextError, match=said):
        epl.Runtime(TYPES).deploy(CREATED + text)
