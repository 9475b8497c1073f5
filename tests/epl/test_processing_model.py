"""The statements of Esper's chapter on its processing model (3.1 to 3.9), and the deliveries that its text describes.

By the text, listeners get the remove stream too. That is so with `irstream`, or where it is the default, as it is here;
Esper's engine gives the insert stream alone unless a statement asks for more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gpu_ops import epl
from tests.support.epl_on_runtime import rows_of

_TYPES = {"Withdrawal": {"account": "string", "amount": "int"}}
_AMOUNTS = (500, 100, 200, 50, 150, 350)
"""Of the events W1 to W6; the text names none but 200, the amount that its filters ask for."""


class _Bank:
    """A statement, and what its listener is handed: (new amounts, old amounts) of each call."""

    def __init__(self, text: str, default_selector: str = "irstream") -> None:
        self.runtime = epl.Runtime(_TYPES, default_selector=default_selector)
        (self.statement,) = self.runtime.deploy(text)
        self.told: list[tuple[Any, Any]] = []
        self.statement.listen(lambda new, old, _: self.told.append((_amounts(new), _amounts(old))))

    def withdraw(self, *amounts: int, account: str = "a") -> list[tuple[Any, Any]]:
        """What is told of some events."""
        self.runtime.send("Withdrawal", [{"account": account, "amount": each} for each in amounts])
        return self._since()

    def advance(self, now: int) -> list[tuple[Any, Any]]:
        """What is told of a move of the clock."""
        self.runtime.advance(now)
        return self._since()

    def _since(self) -> list[tuple[Any, Any]]:
        told, self.told = self.told, []
        return told


def _amounts(table: Any) -> Any:
    rows = rows_of(table)
    if rows is None:
        return None
    return [row["amount"] if "amount" in row else next(iter(row.values())) for row in rows]


def test_3_2_every_event_is_posted_as_new_and_none_as_old() -> None:
    bank = _Bank("select * from Withdrawal")
    assert bank.withdraw(*_AMOUNTS) == [([amount], None) for amount in _AMOUNTS]


def test_3_3_w1_is_posted_as_old_when_w6_arrives() -> None:
    """W1 is in a window of five until W6 comes.

    W1  W2  W3  W4  W5  W6
    [-------------------)
    """
    bank = _Bank("select * from Withdrawal#length(5)")
    assert bank.withdraw(*_AMOUNTS[:5]) == [([amount], None) for amount in _AMOUNTS[:5]]
    assert bank.withdraw(_AMOUNTS[5]) == [([350], [500])]


def test_3_3_by_default_a_listener_gets_no_old_events() -> None:
    bank = _Bank("select * from Withdrawal#length(5)", default_selector="istream")
    assert bank.withdraw(*_AMOUNTS)[-1] == ([350], None)


def test_3_4_a_filter_stands_before_the_window() -> None:
    """W2, W4 and W5 are less than 200: they do not enter, so the window of five is not full."""
    bank = _Bank("select * from Withdrawal(amount>=200)#length(5)")
    assert bank.withdraw(*_AMOUNTS) == [([500], None), ([200], None), ([350], None)]
    assert bank.runtime.rows("statement 1")["amount"].to_pylist() == [500, 200, 350]
    assert bank.withdraw(210, 220, 230) == [([210], None), ([220], None), ([230], [500])]


def test_3_4_a_where_clause_stands_behind_the_window() -> None:
    """All enter; only what passes is posted, as new and as old: W6 comes and W1 goes, then W7 comes and W2 goes."""
    bank = _Bank("select * from Withdrawal#length(5) where amount >= 200")
    assert bank.withdraw(*_AMOUNTS) == [([500], None), ([200], None), ([350], [500])]
    assert bank.withdraw(10) == []
    assert bank.withdraw(20) == [(None, [200])]


def test_3_5_a_time_window_pushes_out_what_is_five_seconds_old() -> None:
    """A window of 5 seconds, as 3.3 describes it: what came at 1 s and at 2 s leaves at 6 s and at 7 s."""
    bank = _Bank("select * from Withdrawal#time(5 sec)")
    bank.advance(1_000)
    assert bank.withdraw(500) == [([500], None)]
    bank.advance(2_000)
    assert bank.withdraw(100, 200) == [([100], None), ([200], None)]
    assert bank.advance(5_999) == []
    assert bank.advance(6_000) == [(None, [500])]
    assert bank.advance(7_000) == [(None, [100, 200])]


def test_3_5_a_time_batch_posts_what_a_second_has_brought_and_then_posts_it_as_old() -> None:
    """The first batch ends one second after the first event, and the others a second after each other."""
    bank = _Bank("select account, amount from Withdrawal#time_batch(1 sec)")
    bank.advance(300)
    assert bank.withdraw(500, 100) == []
    assert bank.advance(1_299) == []
    assert bank.advance(1_300) == [([500, 100], None)]
    assert bank.withdraw(200) == []
    assert bank.advance(2_300) == [([200], [500, 100])]
    assert bank.advance(3_300) == [(None, [200])]


def test_3_6_a_length_batch_posts_so_many_at_once() -> None:
    """`win:length_batch` and `win:time_batch`, as the text calls them, are the same views."""
    for name in ("length_batch", "win:length_batch"):
        bank = _Bank(f"select * from Withdrawal#{name}(3)")
        assert bank.withdraw(*_AMOUNTS) == [([500, 100, 200], None), ([50, 150, 350], [500, 100, 200])]
    spoken = _Bank("select account, amount from Withdrawal.win:time_batch(1 sec)")
    spoken.withdraw(500)
    assert spoken.advance(1_000) == [([500], None)]


def test_3_7_aggregates_alone_are_one_row_for_a_batch_and_the_row_before_is_old() -> None:
    bank = _Bank("select sum(amount) as mysum from Withdrawal#time_batch(1 sec)")
    bank.withdraw(500, 100)
    assert bank.advance(1_000) == [([600], [None])]
    bank.withdraw(200)
    assert bank.advance(2_000) == [([200], [600])]


@pytest.mark.parametrize(
    ("text", "new", "old"),
    [
        ("select account, amount from Withdrawal#length_batch(3)", [("a", 1), ("b", 2), ("a", 4)], None),
        ("select sum(amount) as s from Withdrawal#length_batch(3)", [(7,)], [(None,)]),
        ("select account, sum(amount) as s from Withdrawal#length_batch(3)", [("a", 7), ("b", 7), ("a", 7)], None),
        (
            "select account, sum(amount) as s from Withdrawal#length_batch(3) group by account",
            [("a", 5), ("b", 2)],
            [("a", None), ("b", None)],
        ),
        (
            "select account, amount, sum(amount) as s from Withdrawal#length_batch(3) group by account",
            [("a", 1, 5), ("b", 2, 2), ("a", 4, 5)],
            None,
        ),
    ],
)
def test_3_7_2_what_is_selected_and_grouped_says_how_many_rows_there_are(
    text: str, new: Sequence[Any], old: Sequence[Any] | None
) -> None:
    """A row for each event, one for all, one for each event, one for each group, one for each event of groups."""
    runtime = epl.Runtime(_TYPES, default_selector="irstream")
    runtime.deploy(text)
    events = [{"account": account, "amount": amount} for account, amount in (("a", 1), ("b", 2), ("a", 4))]
    (delivery,) = runtime.send("Withdrawal", events)
    assert [tuple(row.values()) for row in rows_of(delivery.new) or ()] == new
    assert (None if delivery.old is None else [tuple(row.values()) for row in rows_of(delivery.old) or ()]) == old


def test_3_8_events_and_time_are_those_of_all_statements_but_for_isolated_ones() -> None:
    """Sent and generated events reach every statement, and one clock moves all; an isolated service has its own."""
    runtime = epl.Runtime(_TYPES)
    runtime.deploy(
        """
        @name('large') insert into Large select account, amount from Withdrawal(amount>=200);
        @name('seen') select account from Large;
        @name('apart') select rstream amount from Withdrawal#time(5 sec);
        @name('among') select rstream amount from Withdrawal#time(5 sec)
        """
    )
    assert [each.statement for each in runtime.send("Withdrawal", {"account": "a", "amount": 500})] == ["large", "seen"]
    aside = runtime.isolated()
    aside.add("apart")
    assert [each.statement for each in runtime.advance(5_000)] == ["among"]
    assert len(aside.send("Withdrawal", {"account": "a", "amount": 100})) == 0
    assert runtime.rows("large").num_rows == runtime.rows("among").num_rows == 0
    assert [(each.statement, _amounts(each.new)) for each in aside.advance(5_000)] == [("apart", [500, 100])]


def test_3_9_a_pattern_has_a_filter_for_each_event_that_waits_for_the_next_one_of_its_account() -> None:
    """The text says w for the tag w1, and counts the filter of Wa after Wb has met it: it is gone then."""
    runtime = epl.Runtime({"WithdrawalEvent": {"accountId": "long"}})
    (statement,) = runtime.deploy(
        "@name('P') select * from pattern [every w1=WithdrawalEvent -> w2=WithdrawalEvent(accountId = w1.accountId)]"
    )
    counts, told = [runtime.active_filters()], []
    statement.listen(lambda new, old, _: told.append((rows_of(new), old)))
    for account in (1, 1, 2):  # Wa, Wb, Wc
        runtime.send("WithdrawalEvent", {"accountId": account})
        counts.append(runtime.active_filters())
    assert counts == [1, 2, 2, 3]
    assert told == [([{"w1": {"accountId": 1}, "w2": {"accountId": 1}}], None)]


def test_3_9_a_context_has_a_filter_for_each_instance_of_its_statement() -> None:
    runtime = epl.Runtime({"LoginEvent": {"accountId": "long"}, "WithdrawalEvent": {"accountId": "long"}})
    runtime.deploy("@name('A') create context UserSession initiated by LoginEvent as loginEvent")
    (statement,) = runtime.deploy(
        "@name('B') context UserSession select count(*) from WithdrawalEvent(accountId = context.loginEvent.accountId)"
    )
    counts, told = [runtime.active_filters()], []
    statement.listen(lambda new, old, _: told.append(rows_of(new)))
    for account in (1, 1, 2):  # La, Lb, Lc
        runtime.send("LoginEvent", {"accountId": account})
        counts.append(runtime.active_filters())
    assert counts == [1, 2, 3, 4]
    runtime.send("WithdrawalEvent", [{"accountId": 1}, {"accountId": 3}, {"accountId": 2}])
    assert told == [[{"count(*)": 1}, {"count(*)": 1}], [{"count(*)": 1}]]
