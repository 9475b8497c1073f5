"""What the kernels of runs, and those of groups that change turn by turn, must give."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gpu_ops.core.turns import LEFT_FIRST, TURN
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


def merged(codes: Any, places: Any, groups: int) -> tuple[Any, Any, Any]:
    row, first, _, _ = rows_of_groups(codes, places, groups)
    return row, first, ints([row.tolist().count(at) for at in range(len(first))])


@st.composite
def in_rows(draw: st.DrawFn) -> tuple[Any, ...]:
    """What `row_sums` takes."""
    count = draw(st.integers(1, 4))
    events = draw(st.lists(st.tuples(ANY_INT, st.integers(0, count - 1)), max_size=8))
    return ints([value for value, _ in events]), ints([row for _, row in events]), count


def sums_of_rows(values: Any, row: Any, count: int) -> Any:
    return np.array([values[row == at].sum() for at in range(count)], np.int64)


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


@st.composite
def moving(draw: st.DrawFn) -> tuple[Any, ...]:
    """Groups of events, where each of the last ones enters, and where each of the first ones leaves."""
    groups = draw(st.lists(st.integers(0, 3), max_size=9))
    enters, leaves = (draw(st.integers(0, len(groups))) for _ in range(2))
    places = st.integers(0, 6).map(lambda each: 2 * each)
    enter = sorted(draw(st.lists(places, min_size=enters, max_size=enters)))
    leave = sorted(draw(st.lists(places, min_size=leaves, max_size=leaves)))
    old = len(groups) - enters
    leave = [place if at < old else max(place, enter[at - old]) for at, place in enumerate(leave)]
    return codes_of(groups), ints(enter), ints([max(leave[: at + 1]) for at in range(len(leave))])


def _edges(codes: Any, enter: Any, leave: Any) -> list[tuple[int, bool, int]]:
    """(place, whether it leaves, event) of what happens, in order."""
    old = len(codes) - len(enter)
    come = [(int(place), False, old + at) for at, place in enumerate(enter)]
    return sorted([*come, *((int(place), True, at) for at, place in enumerate(leave))])


def _rows_of(codes: Any, edges: Any, moments: Any, based: int, touched: Any = ()) -> tuple[Any, ...]:
    """(rows as (group, moment), the row at which each event enters, that at which it leaves)."""
    made = dict.fromkeys(
        [*((int(of), 0) for of in touched), *((int(codes[e]), m) for (_, _, e), m in zip(edges, moments, strict=True))]
    )
    rows, begin = list(made), 4 * based
    first, last = ([begin + len(rows)] * len(codes) for _ in range(2))
    for (_, leaves, event), moment in zip(edges, moments, strict=True):
        (last if leaves else first)[event] = begin + rows.index((int(codes[event]), moment))
    earlier = [max((at for at in range(row) if rows[at][0] == rows[row][0]), default=-1) for row in range(len(rows))]
    group = codes_of([*range(begin), *(of for of, _ in rows)])
    return rows, ints(first), ints(last), group, ints([moment for _, moment in rows]), ints(earlier)


def rows_of_turns(codes: Any, came: Any, enter: Any, leave: Any, groups: int, based: int) -> tuple[Any, ...]:
    del groups
    edges = _edges(codes, enter, leave)
    rows, first, last, group, place, earlier = _rows_of(codes, edges, [each[0] for each in edges], based)
    of = {(int(codes[event]), at): int(came[event]) + LEFT_FIRST * goes for at, goes, event in reversed(edges)}
    return first, last, group, place, ints([of[row] for row in rows]), earlier


def rows_of_outputs(
    codes: Any, enter: Any, leave: Any, limits: Any, touched: Any, groups: int, based: int
) -> tuple[Any, ...]:
    del groups
    edges = _edges(codes, enter, leave)
    moments = [sum(limit <= place for limit in limits.tolist()) for place, _, _ in edges]
    rows, first, last, group, moment, earlier = _rows_of(codes, edges, moments, based, touched)
    when = {row: at - len(rows) for at, row in enumerate(rows)}
    when |= {
        (int(codes[event]), at): number for number, ((_, _, event), at) in enumerate(zip(edges, moments, strict=True))
    }
    return first, last, group, moment, earlier, ints(sorted(range(len(rows)), key=lambda row: when[rows[row]]))


def places_due(due: Any, places: Any, clocks: Any) -> Any:
    found = [next((place for place, clock in zip(places, clocks, strict=True) if clock >= time), None) for time in due]
    return ints([place for place in found if place is not None])


@st.composite
def ticking(draw: st.DrawFn) -> tuple[Any, ...]:
    """What `due_places` takes."""
    clocks = sorted(draw(st.lists(st.integers(0, 9), max_size=6)))
    due = sorted(draw(st.lists(st.integers(-1, 11), max_size=8)))
    return ints(due), ints([10 * at for at in range(len(clocks))]), ints(clocks)


@st.composite
def at_ticks(draw: st.DrawFn) -> tuple[Any, ...]:
    """What `clocks_at` takes."""
    places = sorted(draw(st.lists(st.integers(0, 9), max_size=8)))
    clocks = draw(st.lists(ANY_INT, min_size=len(places), max_size=len(places)))
    at = draw(st.lists(st.integers(-1, 11), max_size=8))
    return ints(draw(st.sampled_from([at, sorted(at)]))), ints(places), ints(clocks), ints([draw(ANY_INT)])


def clocks_of_ticks(at: Any, places: Any, clocks: Any, before: Any) -> Any:
    every = [*before.tolist(), *clocks.tolist()]
    return ints([every[sum(place <= each for place in places.tolist())] for each in at.tolist()])


def ranks_of_values(values: Any, among: Any) -> tuple[Any, int]:
    distinct = {value for each in among for value in each.tolist()}
    return ints([sum(each < value for each in distinct) for value in values.tolist()]), len(distinct)


def counts_of_both(first: Any, second: Any) -> tuple[Any, Any, Any]:
    values = sorted({*first.tolist(), *second.tolist()})
    return ints(values), *(ints([run.tolist().count(value) for value in values]) for run in (first, second))


def pairs_of_stretches(order: Any, own: Any, first: Any, count: Any, place: Any, lefts: int) -> tuple[Any, ...]:
    found = [(int(row), int(first[row]) + at) for row in order for at in range(count[row])]
    pairs = [(own[row], other) if row < lefts else (other, own[row]) for row, other in found]
    where = [int(place[row]) for row, _ in found]
    begins = [at for at in range(len(where)) if not at or where[at] != where[at - 1]]
    number = [at - max(begin for begin in begins if begin <= at) for at in range(len(where))]
    return ints([left for left, _ in pairs]), ints([right for _, right in pairs]), ints(where), ints(number)


def rows_there(codes: Any, places: Any, of_codes: Any, came: Any, goes: Any, gone: int, late: int) -> tuple[Any, Any]:
    queries = [*zip(codes.tolist(), places.tolist(), strict=True)]
    first = [sum(pair <= (code, at - gone) for pair in zip(of_codes, goes, strict=True)) for code, at in queries]
    last = [sum(pair <= (code, at - late) for pair in zip(of_codes, came, strict=True)) for code, at in queries]
    return ints(first), ints(last)


@st.composite
def in_groups(draw: st.DrawFn) -> tuple[Any, ...]:
    """What `met_stretches` takes."""
    queries = sorted(draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=6)))
    rows = sorted(draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=6)))
    span = draw(st.integers(1, 9))
    of_codes, came = codes_of([code for code, _ in rows]), ints([at for _, at in rows])
    places = codes_of([code for code, _ in queries]), ints([at for _, at in queries])
    return *places, of_codes, came, came + span, draw(st.integers(0, 1)), draw(st.integers(0, 1))


@st.composite
def meeting(draw: st.DrawFn) -> tuple[Any, ...]:
    """What `pairs_in_turn` takes."""
    rows = draw(st.lists(st.tuples(*[st.integers(0, 6)] * 2, st.integers(0, 3), st.integers(-1, 3)), max_size=6))
    own, first, count, place = (ints([row[at] for row in rows]) for at in range(4))
    order = sorted(range(len(rows)), key=lambda row: place[row])
    return ints(order), own, first, count, place, draw(st.integers(0, len(rows)))


_BASED = st.tuples(st.just(4), st.integers(0, 1))


@st.composite
def numbered_runs(draw: st.DrawFn) -> tuple[Any, ...]:
    """What `numbered_turns` takes."""
    event = st.tuples(st.integers(0, 4), st.integers(0, 3))
    runs = [sorted(draw(st.lists(event, max_size=5, unique=True))) for _ in range(draw(st.integers(1, 3)))]
    rows = [row for run in runs for row in run]
    begins = np.cumsum([0, *map(len, runs)])
    starts, keys = (ints([row[at] for row in rows]) for at in range(2))
    return starts, keys, ints(begins), draw(st.integers(-1, 2)), draw(st.integers(0, 5))


def turns_in_order(starts: Any, keys: Any, begins: Any, clock: int, turn: int) -> tuple[Any, ...]:
    run = np.searchsorted(begins, np.arange(len(starts)), side="right") - 1
    found = dict[int, tuple[int, int]]()
    moved = []
    for at in sorted(range(len(starts)), key=lambda at: (starts[at], keys[at], run[at])):
        if starts[at] > clock:
            clock = int(starts[at])
            moved.append((turn * TURN, clock))
            turn += 1
        found[at] = turn * TURN, clock
        turn += 1
    every = [found[at] for at in range(len(starts))]
    return tuple(ints([each[at] for each in made]) for made in (every, moved) for at in range(2))


_ASCENDING = st.lists(st.integers(-3, 6) | ANY_INT, max_size=8).map(lambda values: ints(sorted(values)))

_PLACES = st.integers(0, 40).map(lambda step: step << 16)
_ANY = st.lists(_PLACES | st.integers(-3, 6), max_size=8).map(ints) | st.lists(_PLACES | ANY_INT, max_size=8).map(ints)
_LIMITS = st.lists(st.integers(0, 14), max_size=4).map(lambda limits: ints(sorted(limits)))
_TOUCHED = st.lists(st.integers(0, 3), max_size=3, unique=True).map(codes_of)

CONTRACTS = {
    "clocks_at": Contract(at_ticks(), clocks_of_ticks),
    "due_places": Contract(ticking(), places_due),
    "edge_counts": Contract(st.tuples(_ASCENDING, _ASCENDING), counts_of_both),
    "merged_order": Contract(st.tuples(_ASCENDING, _ASCENDING), order_of_both),
    "merged_rows": Contract(touching(), merged),
    "met_stretches": Contract(in_groups(), rows_there),
    "numbered_turns": Contract(numbered_runs(), turns_in_order),
    "ranks_among": Contract(st.tuples(_ANY, st.lists(_ANY, max_size=3)), ranks_of_values),
    "row_sums": Contract(in_rows(), sums_of_rows),
    "runs_between": Contract(weighted_runs(), places_of_ranks),
    "output_rows": Contract(
        st.tuples(moving(), _LIMITS, _TOUCHED, _BASED).map(lambda each: (*each[0], *each[1:3], *each[3])),
        rows_of_outputs,
    ),
    "pairs_in_turn": Contract(meeting(), pairs_of_stretches),
    "touched_rows": Contract(touching(), rows_of_groups),
    "turn_rows": Contract(
        st.tuples(moving(), _BASED).map(
            lambda each: (each[0][0], ints(range(len(each[0][0]))), *each[0][1:], *each[1])
        ),
        rows_of_turns,
    ),
    "walked_totals": Contract(walks(), totals_of_groups),
}
