"""NEXMark's questions in DuckDB's SQL, over ``persons``, ``auctions`` and ``bids`` whose times are microseconds.

Windows are arithmetic on whole numbers, so that no calendar of the database has a say. `ANSWERED` are the questions
that `gpu_ops.apps.nexmark.queries` answers, as it answers them; `OPEN` is the one that it does not yet, in the reading
that ``docs/nexmark.md`` gives.
"""

from __future__ import annotations

import duckdb
import pyarrow as pa

from gpu_ops.apps.nexmark import Tables, side_input
from gpu_ops.core.time import MAX_TIME

SECOND = 1_000_000
DAY = 86_400 * SECOND
TEN = 10 * SECOND

RANKS = (
    ("total", "true"),
    ("rank1", "price < 10000"),
    ("rank2", "price >= 10000 AND price < 1000000"),
    ("rank3", "price >= 1000000"),
)
_COUNTS = ", ".join(f"count(*) FILTER ({which}) AS {rank}_bids" for rank, which in RANKS)
_DISTINCT = ", ".join(
    f"count(DISTINCT {column}) FILTER ({which}) AS {rank}_{column}s"
    for column in ("bidder", "auction")
    for rank, which in RANKS
)

# Each bid in the five windows of ten seconds, one every two, that hold it.
_HOPS = f"""
    SELECT auction, unnest(range(t // {2 * SECOND} - 4, t // {2 * SECOND} + 1)) * {2 * SECOND} AS "start" FROM bids"""
_HOT = f"""
    SELECT "start", "start" + {TEN} AS "end", auction, count(*) AS num FROM ({_HOPS}) GROUP BY auction, "start" """

_SESSIONS = f"""
    WITH paused AS (
        SELECT bidder, t, coalesce(t - lag(t) OVER (PARTITION BY bidder ORDER BY t) > {TEN}, true) AS first FROM bids
    ),
    numbered AS (
        SELECT bidder, t, sum(first::INTEGER) OVER (PARTITION BY bidder ORDER BY t) AS number FROM paused
    )
    SELECT max(t) AS "start", max(t) + {TEN} AS "end", bidder, count(*) AS bid_count, min(t) AS began
    FROM numbered GROUP BY bidder, number"""

_WINDOW = f't // {TEN} * {TEN} AS "start", (t // {TEN} + 1) * {TEN} AS "end"'
_TODAY = f't // {DAY} * {DAY} AS "start", (t // {DAY} + 1) * {DAY} AS "end"'
_POINT = 'b.t AS "start", b.t + 1 AS "end"'

# The bids that an auction takes: those made while it is open.
_TAKEN = "auctions AS a JOIN bids AS b ON a.id = b.auction AND b.t >= a.t AND b.t < a.expires"

_CLOSED = f"""
    SELECT a.id, a.seller, a.category, a.expires AS t, max(b.price) AS final FROM {_TAKEN} GROUP BY ALL"""

ANSWERED = {
    "q0": f"SELECT {_POINT}, auction, bidder, price, extra FROM bids AS b",
    "q1": f"SELECT {_POINT}, auction, bidder, extra, price * 0.908::DOUBLE AS price FROM bids AS b",
    "q2": f"SELECT {_POINT}, auction, price FROM bids AS b WHERE auction % 123 = 0",
    "q3": """
        SELECT greatest(a.t, p.t) AS "start", a.expires AS "end", p.name, p.city, p.state, a.id
        FROM auctions AS a JOIN persons AS p ON a.seller = p.id AND p.t < a.expires
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": f"""
        WITH closed AS ({_CLOSED}),
        running AS (
            SELECT category, t, lead(t) OVER w AS following, sum(sum(final)) OVER w AS total, sum(count(*)) OVER w AS n
            FROM closed GROUP BY category, t WINDOW w AS (PARTITION BY category ORDER BY t)
        )
        SELECT t AS "start", coalesce(following, {MAX_TIME}) AS "end", category, total::DOUBLE / n AS final
        FROM running""",
    "q5": f"""
        WITH hot AS ({_HOT})
        SELECT * FROM hot QUALIFY num = max(num) OVER (PARTITION BY "start")""",
    "q7": f"""
        SELECT {_POINT}, auction, bidder, price, extra FROM bids AS b
        QUALIFY price = max(price) OVER (PARTITION BY t // {TEN})""",
    "q8": f"""
        SELECT DISTINCT p.t // {TEN} * {TEN} AS "start", (p.t // {TEN} + 1) * {TEN} AS "end", p.id, p.name
        FROM persons AS p JOIN auctions AS a ON p.id = a.seller AND p.t // {TEN} = a.t // {TEN}""",
    "q9": f"""
        SELECT expires AS "start", expires + 1 AS "end",
            a.id, item_name, description, initial_bid, reserve, a.t AS opened, seller, category, a.extra,
            auction, bidder, price, b.t AS bid_time, b.extra AS bid_extra
        FROM {_TAKEN} QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY price DESC, b.t) = 1""",
    "q11": _SESSIONS,
    "q12": f"SELECT {_WINDOW}, bidder, count(*) AS bid_count FROM bids GROUP BY ALL",
    "q13": f"""
        SELECT {_POINT}, auction, bidder, price, value FROM bids AS b JOIN side ON auction % 10000 = side.key""",
    "q14": f"""
        SELECT {_POINT}, auction, bidder, extra, price * 0.908::DOUBLE AS price,
            CASE
                WHEN t // {3600 * SECOND} % 24 BETWEEN 8 AND 18 THEN 'dayTime'
                WHEN t // {3600 * SECOND} % 24 <= 6 OR t // {3600 * SECOND} % 24 >= 20 THEN 'nightTime'
                ELSE 'otherTime'
            END AS bid_time_type,
            len(regexp_extract_all(extra, 'c')) AS c_counts
        FROM bids AS b WHERE price * 0.908::DOUBLE > 1000000 AND price * 0.908::DOUBLE < 50000000""",
    "q15": f"SELECT {_TODAY}, {_COUNTS}, {_DISTINCT} FROM bids GROUP BY ALL",
    "q16": f"""
        SELECT {_TODAY}, channel, max(t // {60 * SECOND} * {60 * SECOND}) AS minute, {_COUNTS}, {_DISTINCT}
        FROM bids GROUP BY ALL""",
    "q17": f"""
        SELECT {_TODAY}, auction, {_COUNTS}, min(price) AS min_price, max(price) AS max_price,
            sum(price)::DOUBLE / count(*) AS avg_price, sum(price)::BIGINT AS sum_price
        FROM bids GROUP BY ALL""",
    "q18": f"""
        SELECT t AS "start", coalesce(lead(t) OVER (PARTITION BY bidder, auction ORDER BY t), {MAX_TIME}) AS "end",
            auction, bidder, price, channel, url, extra
        FROM bids""",
    "q19": f"""
        SELECT {_TODAY}, auction, bidder, price, channel, url, extra, t AS bid_time,
            dense_rank() OVER (PARTITION BY auction, t // {DAY} ORDER BY price DESC) AS rank_number
        FROM bids QUALIFY rank_number <= 10""",
    "q20": f"""
        SELECT {_POINT}, auction, bidder, price, channel, url, b.extra AS bid_extra,
            item_name, description, initial_bid, reserve, a.t AS opened, expires, seller, category, a.extra
        FROM {_TAKEN} WHERE category = 10""",
    "q21": f"""
        SELECT {_POINT}, auction, bidder, price, channel,
            CASE lower(channel)
                WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
                ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)
            END AS channel_id
        FROM bids AS b
        WHERE lower(channel) IN ('apple', 'google', 'facebook', 'baidu') OR regexp_matches(url, '(&|^)channel_id=')""",
    "q22": f"""
        SELECT {_POINT}, auction, bidder, price, channel,
            split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
        FROM bids AS b""",
    "q23": f"""
        SELECT {_POINT}, bidder, price, channel, url, name, email_address, credit_card, city, state,
            item_name, description, initial_bid, reserve, a.t AS opened, expires, seller, category
        FROM bids AS b JOIN persons AS p ON p.id = b.bidder JOIN auctions AS a ON a.seller = b.bidder
        WHERE a.t <= b.t AND b.t < a.expires AND p.t <= b.t""",
}

OPEN = {
    "q6": f"""
        WITH closed AS ({_CLOSED}),
        running AS (
            SELECT seller, t, lead(t) OVER w AS following, sum(final) OVER ten AS total, count(*) OVER ten AS n
            FROM closed
            WINDOW w AS (PARTITION BY seller ORDER BY t, id),
                ten AS (PARTITION BY seller ORDER BY t, id ROWS 9 PRECEDING)
        )
        SELECT t AS "start", coalesce(following, {MAX_TIME}) AS "end", seller, total::DOUBLE / n AS avg_price
        FROM running WHERE following IS NULL OR following > t""",
}


def connect(tables: Tables) -> duckdb.DuckDBPyConnection:
    """A connection in which the streams are tables."""
    connection = duckdb.connect()
    for name in ("persons", "auctions", "bids"):
        table: pa.Table = getattr(tables, name)
        table = table.rename_columns(["t" if column == "date_time" else column for column in table.column_names])
        for number, field in enumerate(table.schema):
            if pa.types.is_timestamp(field.type):
                table = table.set_column(number, field.name, table[number].cast(pa.int64()))
        connection.register("arrow", table)
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM arrow")
        connection.unregister("arrow")
    connection.register("arrow", side_input().select(["key", "value"]))
    connection.execute("CREATE TABLE side AS SELECT * FROM arrow")
    connection.unregister("arrow")
    return connection


def ask(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    """What DuckDB answers, its lifetimes as timestamps; other times are numbers, as in the tables."""
    answer = connection.sql(sql).to_arrow_table()
    for number, name in enumerate(("start", "end")):
        times = answer[name].cast(pa.int64()).cast(pa.timestamp("us", "UTC"))
        answer = answer.set_column(answer.column_names.index(name), name, times)
        assert answer.column_names[number] == name
    return answer
