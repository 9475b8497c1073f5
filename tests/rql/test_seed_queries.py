"""The nine queries of StreamCruncher's page on its basics, on generated data, beside plain Python.

The page has lost words that stood alone in a line, and has slips. Put back: in the fifth query `from`, `to`, `where`
and `and`; in the sixth `to` and `as order_events`, without the comma before `store`; in the seventh `case`, `from`,
`alert`, `using` and `when`. The second one spells `$row_staus`. Columns and sizes that it leaves out are filled in.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from gpu_ops import rql

Row = dict[str, Any]


def answered(
    text: str, types: dict[str, dict[str, str]], sent: list[tuple[int, str, Row]], until: int, **more: Any
) -> list[tuple[int, list[Row]]]:
    """What a query gives in each cycle; events have their times in `ts`."""
    tables = more.pop("tables", {})
    runtime = rql.Runtime(
        {name: {**columns, "ts": "timestamp"} for name, columns in types.items()},
        times=dict.fromkeys(types, "ts"),
        tables={name: columns for name, (columns, _) in tables.items()},
    )
    for name, (_, rows) in tables.items():
        runtime.insert(name, rows)
    found: list[tuple[int, list[Row]]] = []
    runtime.register("q", text, **more).listen(lambda result: found.append((result.at, result.rows.to_pylist())))
    for at, stream, row in sorted(sent, key=lambda each: each[0]):
        runtime.send(stream, {**row, "ts": at}, at=[at])
    runtime.advance(until)
    assert not runtime.errors
    return found


def minutes(count: int) -> int:
    return count * 60_000


def test_1_denial_attack_check() -> None:
    text = """
        select src_ip_address, recent_requests, total_requests
        from request_events (partition by src_ip_address
                             store last 30 minutes
                             with pinned
                             count(id) as recent_requests,
                             count(id) entrance only as total_requests)
                             as denial_attack_check
        where denial_attack_check.$row_status is new
        and recent_requests > 75;
    """
    chance = random.Random(1)
    times = sorted(chance.sample(range(minutes(90)), 400))
    sent: list[tuple[int, str, Row]] = [
        (at, "request_events", {"id": n, "src_ip_address": chance.choice("aab")}) for n, at in enumerate(times)
    ]
    found = answered(text, {"request_events": {"id": "int", "src_ip_address": "string"}}, sent, minutes(200))
    changes = sorted([(at, row["src_ip_address"], 1) for at, _, row in sent]
                     + [(at + minutes(30), row["src_ip_address"], -1) for at, _, row in sent])  # fmt: skip
    recent: Counter[str] = Counter()
    total: Counter[str] = Counter()
    expected = []
    for at, ip, change in changes:
        recent[ip] += change
        total[ip] += change > 0
        if recent[ip] > 75:
            expected.append((at, [{"src_ip_address": ip, "recent_requests": recent[ip], "total_requests": total[ip]}]))
    assert found == expected != []


def numbers(seed: int, size: int = 60) -> list[tuple[int, str, Row]]:
    chance = random.Random(seed)
    rows: list[Row] = [{"id": n, **{name: chance.randint(5, 30) for name in "abc"}} for n in range(size)]
    return [(n * 20_000, "stream1", row) for n, row in enumerate(rows)]


NUMBERS = {"stream1": {"id": "int", "a": "int", "b": "int", "c": "int"}}


def test_2_events_are_filtered_before_and_behind_a_partition() -> None:
    text = """
        select id
        from stream1 (partition by a, b, c
                      store last 30 minutes
                      where a > 10 and b = c)
                      as filtered_stream
        where a > 15 and filtered_stream.$row_status is not dead;
    """
    sent: list[tuple[int, str, Row]] = [
        (at, stream, {**row, "c": row["b"] + row["id"] % 2}) for at, stream, row in numbers(2)
    ]
    found = answered(text, NUMBERS, sent, minutes(20))
    taken = [(at, row) for at, _, row in sent if row["a"] > 10 and row["b"] == row["c"]]
    expected = [(at, sorted(row["id"] for time, row in taken if time <= at and row["a"] > 15)) for at, _ in taken]
    assert (
        [(at, sorted(row["id"] for row in rows)) for at, rows in found] == [each for each in expected if each[1]] != []
    )


def test_3_a_list_of_values() -> None:
    text = """
        select id
        from stream1 (partition store last 30 minutes
                      where a > b and b in (10, 12, 14))
                      as filtered_stream
        where filtered_stream.$row_status is new;
    """
    found = answered(text, NUMBERS, numbers(3), minutes(60))
    expected = [row["id"] for _, _, row in numbers(3) if row["a"] > row["b"] and row["b"] in {10, 12, 14}]
    assert [row["id"] for _, rows in found for row in rows] == expected != []


def test_4_priority_customers() -> None:
    text = """
        select id
        from stream1 (partition store last 30 minutes
                      where customer_id
                      in (select customer_id from priority_customers))
                      as filtered_stream
        where filtered_stream.$row_status is new;
    """
    sent: list[tuple[int, str, Row]] = [(n * 100, "stream1", {"id": n, "customer_id": n % 7}) for n in range(30)]
    table = ({"customer_id": "int"}, [{"customer_id": 2}, {"customer_id": 5}])
    types = {"stream1": {"id": "int", "customer_id": "int"}}
    found = answered(text, types, sent, minutes(60), tables={"priority_customers": table})
    assert [row["id"] for _, rows in found for row in rows] == [n for n in range(30) if n % 7 in {2, 5}]


def test_5_aggregates_of_a_chain() -> None:
    text = """
        select country, num_skus, avg_qty
        from
        test (partition by country store last 5 seconds
              with count(item_sku) as num_skus, avg(item_qty) as avg_qty)
        to
            (partition by store last 5 seconds
             where $row_status is new
             and (num_skus >= 10 and num_skus <= 30))
            as testStr
        where testStr.$row_status is new;
    """
    chance = random.Random(5)
    sent: list[tuple[int, str, Row]] = [
        (n * 250, "test", {"country": chance.choice("uv"), "item_sku": n, "item_qty": chance.randint(1, 9)})
        for n in range(80)
    ]
    types = {"test": {"country": "string", "item_sku": "int", "item_qty": "int"}}
    found = answered(text, types, sent, 30_000)
    issued: dict[str, tuple[int, float] | None] = {}
    expected = []
    for at in range(0, 30_000, 250):
        now = []
        for country in "uv":
            own = [row["item_qty"] for time, _, row in sent if at - 5_000 < time <= at and row["country"] == country]
            value = (len(own), sum(own) / len(own)) if own else None
            if value is not None and value != issued.get(country) and 10 <= value[0] <= 30:
                now.append((country, *value))
            issued[country] = value
        if now:
            expected.append((at, sorted(now)))
    shown = [(at, sorted((row["country"], row["num_skus"], row["avg_qty"]) for row in rows)) for at, rows in found]
    assert shown == expected != []


def test_6_the_five_that_sell_best() -> None:
    text = """
        select order_country, order_state, order_category,
               order_item_sku, order_total_qty
        from order_events
        (partition by order_country, order_state,
                      order_category, order_item_sku
                      store last 30 days with sum(order_quantity) as order_total_qty)
        to
        (partition by order_country, order_state
                      store highest 5 using order_total_qty
                      with update group order_country, order_state,
                      order_category, order_item_sku where $row_status is new)
        as order_events
        where order_events.$row_status is not dead;
    """
    chance = random.Random(6)
    keys = ("order_country", "order_state", "order_category", "order_item_sku")
    types = {"order_events": {**dict.fromkeys(keys, "string"), "order_quantity": "int"}}
    sent: list[tuple[int, str, Row]] = [
        (n * 1_000, "order_events", {"order_country": "c", "order_state": chance.choice("st"), "order_category": "k",
                                     "order_item_sku": chance.choice("abcdefgh"),
                                     "order_quantity": chance.randint(1, 9)})
        for n in range(60)
    ]  # fmt: skip
    found = answered(text, types, sent, minutes(10))
    sums: dict[tuple[str, str], int] = {}
    kept: list[tuple[int, int, str, str]] = []
    for number, (_, _, row) in enumerate(sent):
        state, sku = row["order_state"], row["order_item_sku"]
        sums[state, sku] = sums.get((state, sku), 0) + row["order_quantity"]
        kept = [each for each in kept if each[2:] != (state, sku)]
        kept.append((sums[state, sku], number, state, sku))
        own = sorted((each for each in kept if each[2] == state), reverse=True)
        kept = [each for each in kept if each[2] != state] + own[:5]
        shown = sorted(
            (each["order_state"], each["order_item_sku"], each["order_total_qty"]) for each in found[number][1]
        )
        assert shown == sorted((each[2], each[3], float(each[0])) for each in kept)


def test_7_stages_that_are_missing() -> None:
    text = """
        select stg1_id, stg2_id, stg3_id, priority,
             case
                  when stg2_id is null and stg3_id is not null
                      then 'Stage 2 missing!'
                  when stg2_id is not null and stg3_id is null
                      then 'Stage 3 missing!'
                  when stg2_id is null and stg3_id is null
                      then 'Stage 2 & 3 missing!'
                  else 'All OK!'
                  end as comment
        from
        alert
                one_event.event_1_id as stg1_id,
                two_event.event_2_id as stg2_id,
                three_event.event_3_id as stg3_id,
                one_event.event_priority as priority
        using
                stg1_event (partition store last 5 seconds where priority > 5)
                            as one_event correlate on event_1_id,
                stg2_event (partition store last 5 seconds where priority > 5)
                            as two_event correlate on event_2_id,
                stg3_event (partition store last 5 seconds where priority > 5)
                            as three_event correlate on event_3_id
        when
                present(one_event and two_event and not three_event) or
                present(one_event and not two_event and three_event) or
                present(one_event and two_event and three_event)

        where priority < 7.5;
    """
    types = {
        f"stg{n}_event": {
            f"event_{n}_id": "int",
            "priority": "double",
            **({"event_priority": "double"} if n == 1 else {}),
        }
        for n in (1, 2, 3)
    }
    sent: list[tuple[int, str, Row]] = []
    for number in range(16):
        for stage in (1, 2, 3):
            if stage == 1 or number >> (stage - 2) & 1:
                own = {"event_priority": 6.0 + number % 4 / 2} if stage == 1 else {}
                row = {f"event_{stage}_id": number, "priority": 6.0, **own}
                sent.append((number * 10_000 + stage * 100, f"stg{stage}_event", row))
    found = answered(text, types, sent, 200_000)
    expected = []
    for number in range(16):
        two, three = bool(number & 1), bool(number & 2)
        if (two or three) and 6.0 + number % 4 / 2 < 7.5:
            comment = "All OK!" if two and three else "Stage 3 missing!" if two else "Stage 2 missing!"
            at = number * 10_000 + (300 if two and three else 5_100)
            ids = {"stg1_id": number, "stg2_id": number if two else None, "stg3_id": number if three else None}
            expected.append((at, [{**ids, "priority": 6.0 + number % 4 / 2, "comment": comment}]))
    assert found == expected != []


def test_8_weights_of_what_passes() -> None:
    text = """
        select order_id from orders
        (partition by store last 2
               where item_sku in (select item_sku from priority_item))
               as order_events
        where order_events.$row_status is dead;
    """
    table = ({"item_sku": "int"}, [{"item_sku": 1}])
    sent: list[tuple[int, str, Row]] = [(n * 100, "orders", {"order_id": n, "item_sku": n % 2}) for n in range(40)]
    types = {"orders": {"order_id": "int", "item_sku": "int"}}
    found = answered(text, types, sent, minutes(1), tables={"priority_item": table}, weights={"orders": 0.1})
    # Ten that pass make it run; a full window then goes on by one row in each cycle.
    assert [at for at, _ in found] == [1_900] * 8 + [3_900] * 10
    assert [row["order_id"] for _, rows in found for row in rows] == [2 * n + 1 for n in range(18)]


def test_9_vehicles_that_cross_counties() -> None:
    text = """
        select veh_events.state, veh_events.county,
               previous_veh_events.state, previous_veh_events.county,
               veh_events.veh_make, veh_events.id, previous_veh_events.id
        from veh_report (partition by state, county store last
             30 minutes) as veh_events,
             self#veh_events as previous_veh_events
        where veh_events.$row_status is new
                 and previous_veh_events.$row_status is not dead
                 and veh_events.county != previous_veh_events.county
                 and veh_events.veh_make = previous_veh_events.veh_make
                 and veh_events.veh_year = previous_veh_events.veh_year
                 and veh_events.veh_color = previous_veh_events.veh_color
        order by previous_veh_events.report_time desc;
    """
    chance = random.Random(9)
    types = {"veh_report": {"id": "int", "state": "string", "county": "string", "veh_make": "string", "veh_year": "int",
                            "veh_color": "string", "report_time": "timestamp"}}  # fmt: skip
    rows: list[Row] = [
        {"id": n, "state": "s", "county": chance.choice("xyz"), "veh_make": chance.choice("mn"), "veh_year": 2000,
         "veh_color": chance.choice("rg"), "report_time": minutes(n * 3)}
        for n in range(60)
    ]  # fmt: skip
    found = answered(text, types, [(row["report_time"], "veh_report", row) for row in rows], minutes(300))
    expected = []
    for row in rows:
        seen = [
            other["id"] for other in reversed(rows[: row["id"]])
            if row["report_time"] - other["report_time"] < minutes(30) and row["county"] != other["county"]
            and row["veh_make"] == other["veh_make"] and row["veh_color"] == other["veh_color"]
        ]  # fmt: skip
        if seen:
            expected.append((row["report_time"], [(row["id"], other) for other in seen]))
    shown = [(at, [(row["veh_events.id"], row["previous_veh_events.id"]) for row in rows]) for at, rows in found]
    assert shown == expected != []
