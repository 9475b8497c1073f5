"""What the kernels of runs, and those of groups that change turn by turn, must give."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.support.kernel_contracts import ANY_INT, Contract, codes_of, ints


@st.composite
def weighted_runs(draw: st.DrawFn) -> tuple[Any, ...]:
    """What `runs_between` takes: what comes in one run may go in a later one."""
    pair = st.tuples(st.integers(0, 3), st.integers(0, 4) | ANY_INT)
    runs: list[dict[Any, int]] = []
    there: dict[Any, int] = {}
    for _ in range(draw(st.integers(1, 4))):
        run: dict[Any, int] = {}
        for each in draw(st.lists(pair | st.sampled_from([*there, (0, 0)]), min_size=1, max_size=8)):
            weight = draw(st.integers(-there.get(each, 0), 3))
            there[each] = there.get(each, 0) + weight
            run[each] = run.get(each, 0) + weight
        runs.append(run)
    rows = [(code, value, run[code, value]) for run in runs for code, value in sorted(run)]
    sums = [total for run in runs for total in np.cumsum([run[each] for each in sorted(run)]).tolist()]
    bounds = np.cumsum([0, *map(len, runs)])
    queries = []
    for code in draw(st.lists(st.integers(0, 4), max_size=5)):
        count = sum(weight for (group, _), weight in there.items() if group == code)
        low = draw(st.integers(0, count))
        queries.append((code, low, draw(st.integers(0, count))))
    groups, low_ranks, high_ranks = zip(*queries, strict=True) if queries else [()] * 3
    codes, values, _ = zip(*rows, strict=True)
    return codes_of(codes), ints(values), ints(sums), ints(bounds), codes_of(groups), ints(low_ranks), ints(high_ranks)


def places_of_ranks(
    codes: Any, values: Any, sums: Any, bounds: Any, of_codes: Any, low: Any, high: Any
) -> tuple[Any, Any, Any]:
    begin, end, before = [], [], []
    weights = np.diff(sums, prepend=0)
    weights[bounds[:-1]] = sums[bounds[:-1]]
    for code, first, last in zip(of_codes, low, high, strict=True):
        here: dict[int, int] = {}
        for at in np.flatnonzero(codes == code):
            here[int(values[at])] = here.get(int(values[at]), 0) + int(weights[at])
        every = [value for value in sorted(here) for _ in range(here[value])]
        for opens, closes in pairwise(bounds):
            rows = range(opens, closes)
            if first >= last:
                begin.append(0)
                end.append(0)
                continue
            pairs = [(int(codes[at]), int(values[at])) for at in rows]
            begin.append(opens + sum(pair < (code, every[first]) for pair in pairs))
            end.append(opens + sum(pair <= (code, every[last - 1]) for pair in pairs))
        before.append(sum(value < every[first] for value in every) if first < last else 0)
    return ints(begin), ints(end), ints(before)


@st.composite
def touching(draw: st.DrawFn) -> tuple[Any, ...]:
    """What `touched_rows` takes."""
    edges = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=12))
    places = ints(sorted(place for place, _ in edges))
    return codes_of([group for _, group in edges]), places, draw(st.integers(4, 6))


def rows_of_groups(codes: Any, places: Any, groups: int) -> tuple[Any, Any, Any, Any]:
    del groups
    edges = list(zip(places.tolist(), codes.tolist(), strict=True))
    made = list(dict.fromkeys(edges))
    before = [max((at for at in range(row) if made[at][1] == made[row][1]), default=-1) for row in range(len(made))]
    first = [edges.index(each) for each in made]
    last = [max(at for at, edge in enumerate(edges) if edge == each) for each in made]
    return ints([made.index(each) for each in edges]), ints(first), ints(last), ints(before)


@st.composite
def walks(draw: st.DrawFn) -> tuple[Any, ...]:
    """What `walked_totals` takes."""
    groups = draw(st.integers(1, 4))
    group = draw(st.lists(st.integers(0, groups - 1), max_size=8))
    row = st.integers(0, len(group))
    events = draw(st.lists(st.tuples(st.integers(-9, 9), row, row), max_size=8))
    values, first, last = zip(*events, strict=True) if events else [()] * 3
    base = draw(st.lists(st.integers(-9, 9), min_size=groups, max_size=groups))
    return ints(values), ints(first), ints(last), codes_of(group), ints(base)


def totals_of_groups(values: Any, first: Any, last: Any, group: Any, base: Any) -> tuple[Any, Any]:
    totals, made = base.tolist(), []
    for row, code in enumerate(group):
        totals[code] += int(values[first == row].sum()) - int(values[last == row].sum())
        made.append(totals[code])
    return ints(made), ints(totals)


def order_of_both(first: Any, second: Any) -> tuple[Any, Any]:
    both = [*first.tolist(), *second.tolist()]
    order = sorted(range(len(both)), key=lambda at: both[at])
    return ints(order), ints([both[at] for at in order])


_ASCENDING = st.lists(st.integers(-3, 6) | ANY_INT, max_size=8).map(lambda values: ints(sorted(values)))

CONTRACTS = {
    "merged_order": Contract(st.tuples(_ASCENDING, _ASCENDING), order_of_both),
    "runs_between": Contract(weighted_runs(), places_of_ranks),
    "touched_rows": Contract(touching(), rows_of_groups),
    "walked_totals": Contract(walks(), totals_of_groups),
}
