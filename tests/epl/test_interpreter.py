"""The interpreter of statements gives what was recorded from Esper, and keeps rules that no record shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.epl_interpreter import Interpreter
from tests.support.epl_recorded import difference, recorded


@pytest.mark.slow
def test_recorded_cases(conformance: Path) -> None:
    outcomes: Counter[str] = Counter()
    wrong = []
    for case in recorded(conformance / "esper.jsonl.gz"):
        try:
            found = difference(case, Interpreter)
        except NotImplementedError as missing:
            outcomes[f"unsupported: {missing}"] += 1
            continue
        outcomes[f"passed, {case['tier']}" if found is None else "failed"] += 1
        if found is not None:
            wrong.append(f"{case['id']}: {found}")
    assert wrong == []
    unsupported = {reason for reason in outcomes if reason.startswith("unsupported")}
    assert unsupported <= {
        "unsupported: pattern",
        "unsupported: match_recognize",
        "unsupported: named window",
        "unsupported: table",
        "unsupported: name context",
        "unsupported: variable of a context",
    }
    assert outcomes["passed, core"] >= 406
    assert sum(count for outcome, count in outcomes.items() if outcome.startswith("passed")) >= 469


# Rules that no record shows. A picture has a step a line, and behind it what is delivered: `+` new rows, `-` old ones,
# `()` a delivery without rows.

_SCHEMA = {"T": {"k": "string", "v": "int", "ts": "long"}, "U": {"k": "string", "w": "int"}}


def _drawn(text: str, picture: str) -> str:
    """The picture, with what the interpreter delivers."""
    interpreter = Interpreter(_SCHEMA)
    interpreter.deploy(text)
    lines = []
    for line in filter(None, (line.strip() for line in picture.splitlines())):
        step, *words = line.partition("|")[0].split()
        if step in {"at", "walk"}:
            deliveries = (interpreter.advance if step == "at" else interpreter.advance_span)(int(words[0]))
        elif step == "rows":
            lines.append(f"{step} {_rows('', interpreter.rows('s'))}")
            continue
        else:
            names = _SCHEMA[step]
            values = (word if names[name] == "string" else int(word) for name, word in zip(names, words, strict=False))
            deliveries = interpreter.send(step, dict(zip(names, values, strict=False)))
        shown = [
            f"{_rows('+', each.new)} {_rows('-', each.old)}".strip() or "()"
            for each in deliveries
            if each.statement == "s"
        ]
        lines.append(" ".join([step, *words, "|", " | ".join(shown)]).strip())
    return "\n".join(lines)


def _rows(sign: str, rows: Sequence[Mapping[str, Any]] | None) -> str:
    return " ".join(sign + ",".join(map(str, row.values())) for row in rows or ())


def _same_picture(text: str, picture: str) -> None:
    wanted = [" ".join(line.split()).removesuffix(" |") for line in picture.strip().splitlines()]
    assert [line.removesuffix(" |") for line in _drawn(text, picture).splitlines()] == wanted


def test_an_output_condition_that_was_due_first_sees_what_expires_later() -> None:
    # The clock jumps over both: the snapshot at 1500 comes before the expiry at 4500, though it is 6000 already.
    text = "@name('s') select v from T#time(4 sec) output snapshot every 1 sec"
    _same_picture(
        text,
        """
        at 500
        T a 1
        at 6000  | +1
        at 6500  | ()
        """,
    )


def test_at_the_same_time_windows_expire_before_the_output() -> None:
    _same_picture(
        "@name('s') select v from T#time(1 sec) output snapshot every 1 sec",
        """
        at 500
        T a 1
        at 1500  | ()
        """,
    )


def test_windows_of_groups_expire_before_the_output_as_others_do() -> None:
    _same_picture(
        "@name('s') select v from T#groupwin(k)#time(1 sec) output snapshot every 1 sec",
        """
        at 500
        T a 1
        at 1500  | ()
        at 2500  | ()
        """,
    )


def test_all_that_a_statement_makes_at_one_advance_is_one_delivery() -> None:
    # Two groups have a timer each; in the second statement the window posts and the output rate outputs.
    _same_picture(
        "@name('s') select rstream v from T#groupwin(k)#time(1 sec)",
        """
        T a 1
        T b 2
        at 400
        T b 3
        at 2000  | +1 +2 +3
        """,
    )
    _same_picture(
        "@name('s') select irstream v from T#time_batch(1 sec)",
        """
        T a 1
        at 1000  | +1
        walk 4000 | -1
        """,
    )


def test_a_walk_delivers_at_each_time_and_a_jump_once() -> None:
    text = "@name('s') select sum(v) as s from T#time(2 sec) output every 1 sec"
    _same_picture(
        text,
        """
        T a 1
        walk 3000 | +1 | +None | +None
        """,
    )
    _same_picture(
        text,
        """
        T a 1
        at 3000  | +1
        at 3500
        at 4000  | +None
        """,
    )


def test_the_output_of_a_join_comes_before_what_expires_at_the_same_advance() -> None:
    # A join makes its rows when all timers of the statement have run, the output condition's among them.
    _same_picture(
        "@name('s') select rstream t.v as v, u.w as w from T#time(1 sec) as t, U#keepall as u where t.k = u.k "
        "output every 1 sec",
        """
        U a 7
        T a 1
        at 1000  | ()
        at 2000  | +1,7
        """,
    )


def test_batches_stay_on_their_grid_when_there_was_nothing() -> None:
    _same_picture(
        "@name('s') select irstream v from T#time_batch(1 sec)",
        """
        at 200
        T a 1
        at 1200  | +1
        at 2200  | -1
        at 9500
        T a 2
        at 10199
        at 10200 | +2
        """,
    )


def test_one_jump_over_several_ends_of_batches_completes_one() -> None:
    _same_picture(
        "@name('s') select irstream v from T#time_batch(1 sec)",
        """
        T a 1
        at 4500  | +1
        T a 2
        at 5000  | +2 -1
        """,
    )


def test_late_stamps_enter_and_let_none_leave_before_them() -> None:
    _same_picture(
        "@name('s') select irstream ts from T#ext_timed(ts, 10 msec)",
        """
        T a 1 100 | +100
        T a 1 95  | +95
        T a 1 105 | +105
        T a 1 110 | +110 -100 -95
        """,
    )


def test_of_equal_sort_keys_the_oldest_leaves() -> None:
    _same_picture(
        "@name('s') select irstream ts from T#sort(2, v)",
        """
        T a 5 1 | +1
        T a 5 2 | +2
        T a 5 3 | +3 -1
        T a 9 4 | +4 -4
        T a 1 5 | +5 -2
        """,
    )


def test_of_equal_ranks_the_oldest_stands_first_and_leaves_first() -> None:
    _same_picture(
        "@name('s') select irstream ts from T#rank(k, 2, v)",
        """
        T a 5 1 | +1
        T b 5 2 | +2
        rows 1 2
        T c 5 3 | +3 -1
        T b 5 4 | +4 -2
        rows 3 4
        T d 9 5 | +5 -5
        """,
    )


def test_an_event_that_one_window_refuses_takes_what_it_replaced_in_another_along() -> None:
    _same_picture(
        "@name('s') select irstream v from T#unique(k)#firstlength(2)",
        """
        T a 1 | +1
        T b 2 | +2
        T a 3 | -1
        T c 4 | +4
        """,
    )


def test_a_union_holds_what_any_window_holds() -> None:
    _same_picture(
        "@name('s') select irstream v from T#length(1)#time(1 sec) retain-union",
        """
        T a 1   | +1
        at 400
        T a 2   | +2
        at 1000 | -1
        at 1400
        T a 3   | +3 -2
        """,
    )


def test_a_group_that_all_have_left_forgets_what_it_has_ever_seen() -> None:
    # It does so as the next event comes to any group: until then the drained group says what it knew.
    _same_picture(
        "@name('s') select k, countever(*) as n, sum(v) as s from T#length(1) group by k",
        """
        T a 1 | +a,1,1
        T b 2 | +b,1,2 +a,1,None
        T a 3 | +a,1,3 +b,1,None
        """,
    )


def test_what_enters_counts_before_what_leaves() -> None:
    # The group has an event at any time, and so it is not drained.
    _same_picture(
        "@name('s') select k, countever(*) as n from T#length(1) group by k",
        """
        T a 1 | +a,1
        T a 2 | +a,2
        """,
    )


def test_prior_looks_at_what_windows_let_in() -> None:
    _same_picture(
        "@name('s') select v, prior(1, v) as p from T#firstunique(k)",
        """
        T a 1 | +1,None
        T a 2
        T b 3 | +3,1
        """,
    )


def test_rows_that_leave_see_no_previous_ones_but_the_same_prior_ones() -> None:
    _same_picture(
        "@name('s') select irstream v, prev(1, v) as p, prior(1, v) as r from T#length(2)",
        """
        T a 1 | +1,None,None
        T a 2 | +2,1,1
        T a 3 | +3,2,2 -1,None,None
        T a 4 | +4,3,3 -2,None,1
        """,
    )


def test_iterators_see_aggregates_of_the_last_output_where_rows_wait_and_up_to_date_ones_where_they_do_not() -> None:
    picture = """
        T a 1
        rows {before}
        at 1000 | +a,1
        rows a,1
        """
    text = "@name('s') select k, sum(v) as s from T#length(2) group by k output {} every 1 sec"
    _same_picture(text.format(""), picture.format(before="a,None"))
    _same_picture(text.format("last"), picture.format(before="a,1"))


def test_changes_before_the_first_output_count_as_events_only_if_they_have_rows() -> None:
    _same_picture(
        "@name('s') select v from T having v > 0 output first every 3 events",
        """
        T a 0
        T a 0
        T a 1 | +1
        T a 2
        T a 3
        T a 4 | +4
        """,
    )


def test_first_of_groups_slides_and_first_of_all_has_a_grid() -> None:
    _same_picture(
        "@name('s') select k, count(*) as n from T group by k output first every 1 sec",
        """
        T a 1   | +a,1
        at 900
        T b 1   | +b,1
        at 1000
        T a 1   | +a,2
        at 1899
        T b 1
        at 1900
        T b 1   | +b,3
        """,
    )
    _same_picture(
        "@name('s') select v from T output first every 1 sec",
        """
        at 100
        T a 1   | +1
        at 1099
        T a 2
        at 1100
        at 1900
        T a 3   | +3
        at 2000
        T a 4
        at 2100
        T a 5   | +5
        """,
    )


def test_output_after_a_time_or_a_number_of_events() -> None:
    _same_picture(
        "@name('s') select sum(v) as s from T output after 2 events every 2 events",
        """
        T a 1
        T a 2
        T a 3
        T a 4 | +1 +3 +6 +10
        """,
    )
    _same_picture(
        "@name('s') select v from T output after 1 sec",
        """
        T a 1
        at 1000
        T a 2 | +2
        """,
    )


def test_output_when_a_variable_says_so() -> None:
    # What an assignment makes true is output by the next advance of the clock.
    _same_picture(
        "create variable int n = 0; on U set n = w; @name('s') select v from T output when n > 0 then set n = 0",
        """
        T a 1
        U a 1
        T a 2
        at 10 | +1 +2
        T a 3
        at 20
        """,
    )


def test_output_at_the_times_of_a_crontab() -> None:
    _same_picture(
        "@name('s') select v from T output at (*/15, *, *, *, *)",
        """
        at 60000
        T a 1
        at 899999
        at 900000  | +1
        walk 2700000 | () | ()
        """,
    )


def test_an_expr_window_is_asked_again_when_its_variable_changes() -> None:
    _same_picture(
        "create variable int n = 3; on U set n = w; @name('s') select irstream v from T#expr(current_count <= n)",
        """
        T a 1 | +1
        T a 2 | +2
        T a 3 | +3
        U a 1
        at 1  | -1 -2
        """,
    )


def test_events_of_statements_come_one_after_another_behind_all_that_a_first_one_does() -> None:
    text = """
        insert into A select v from T;
        insert into A select v * 10 as v from T;
        insert into B select v + 1 as v from A;
        @name('s') select v, prior(1, v) as p from B
    """
    _same_picture(
        text,
        """
        T a 1 | +2,None | +11,2
        """,
    )


def test_a_statement_sees_nothing_of_what_was_before_it() -> None:
    interpreter = Interpreter(_SCHEMA)
    interpreter.send("T", {"k": "a", "v": 1})
    interpreter.deploy("@name('s') select sum(v) as s from T#keepall")
    assert [each.new for each in interpreter.send("T", {"k": "a", "v": 2})] == [[{"s": 2}]]
    interpreter.undeploy("s")
    assert interpreter.send("T", {"k": "a", "v": 3}) == []


def test_a_sub_query_of_the_same_events_sees_the_event_itself() -> None:
    _same_picture(
        "@name('s') select v, (select count(*) from T#keepall) as n from T",
        """
        T a 1 | +1,1
        T a 2 | +2,2
        """,
    )


def test_rows_of_outer_joins_are_not_taken_back() -> None:
    _same_picture(
        "@name('s') select irstream t.v as v, u.w as w "
        "from T#length(1) as t left outer join U#length(1) as u on t.k = u.k",
        """
        T a 1 | +1,None
        U a 7 | +1,7
        U b 8 | -1,7
        T a 2 | +2,None -1,None
        """,
    )


def test_a_self_join_makes_each_row_once() -> None:
    _same_picture(
        "@name('s') select a.v as x, b.v as y from T#keepall as a, T#keepall as b where a.k = b.k",
        """
        T a 1 | +1,1
        T a 2 | +2,1 +2,2 +1,2
        """,
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("select * from pattern [every T]", "pattern"),
        ("select * from T#no_such_window(1)", "view no_such_window"),
        ("create window W#keepall as T", "named window"),
        ("select nobody from T", "name nobody"),
    ],
)
def test_what_it_does_not_know_it_refuses_by_name(text: str, name: str) -> None:
    with pytest.raises(NotImplementedError, match=f"^{name}$"):
        _drawn(text, "T a 1")
