"""How each engine is asked: gpu_ops by its public API, Polars and DuckDB by the fastest form that we know.

Every answer has the same columns: start, end, k where the workload has keys, then the values. Peers get their times as
plain integers, which is faster for them, and DuckDB its own table.

W2 is asked of the peers in two forms. ``/partitioned`` is the usual one: merge the changes of equal key and time, then
running sums and the next time over each key's partition. The other needs no partitions: the changes of a key cancel
out, so running sums over all rows in (key, time) order start each key at zero; rows that share a time are dropped by
the end not being after the start. It takes half to a quarter of the time.

W5 is asked of the peers in the form that makes an equality of overlapping: each interval is listed in every bucket of
time that it touches, buckets are as long as all but the longest intervals, and a pair counts in the bucket in which it
begins. ``/plain`` is the predicate as one would write it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

if TYPE_CHECKING:
    import polars as pl

    from gpu_ops import Stream

Run = Callable[[], pa.Table]

SLIDING = 180_000_000
LAST, GAP = 100, 10_000_000
DAY = 86_400_000_000
HOP = 5_000_000
SIZE = 60_000_000
BUCKET = {"W5": 180_000_000, "W5-keys": 180_000_000 // 250, "W5-long": 180_000_000}

PEERS = {
    "W1": ("polars", "polars-streaming", "duckdb"),
    "W2": (
        "polars",
        "polars-streaming",
        "duckdb",
        "polars/partitioned",
        "polars-streaming/partitioned",
        "duckdb/partitioned",
    ),
    "W3": ("polars", "polars-streaming", "duckdb"),
    "W4": ("polars", "polars-streaming", "duckdb"),
    "W4b": ("polars", "polars-streaming", "duckdb"),
    "W6": ("polars", "polars-streaming", "duckdb"),
    "W7": ("polars", "duckdb"),
    "W8": ("duckdb",),
    "last": ("polars", "duckdb"),
    "session": ("polars", "polars-streaming", "duckdb"),
    "W5": ("polars", "polars-streaming", "duckdb", "duckdb/plain"),
    "W5-keys": ("polars", "polars-streaming", "duckdb"),
    "W5-long": ("polars", "polars-streaming", "duckdb"),
    "as-of": ("polars", "polars-streaming", "duckdb"),
    "union": ("polars", "polars-streaming", "duckdb"),
}


def prepare(engine: str, workload: str, events: Sequence[pa.Table], *, device: str) -> Run:
    """The engine with its input in memory, ready to be timed.

    Args:
        engine: "gpu_ops", or one of `PEERS`.
        workload: Its name.
        events: As `workloads.inputs` makes them.
        device: Where gpu_ops runs.
    """
    library, _, form = engine.partition("/")
    name = f"{workload}/{form}" if form else workload
    if library == "gpu_ops":
        stream = ask_gpu_ops(workload, events)
        return lambda: stream.collect(device=device)
    if library == "duckdb":
        return _prepare_duckdb(DUCKDB[name], events)
    return _prepare_polars(name, events, "streaming" if library == "polars-streaming" else "in-memory")


def ask_gpu_ops(workload: str, events: Sequence[pa.Table]) -> Stream:
    """The workload as a stream."""
    import gpu_ops as g

    stream, *others = (
        g.events(table, start="t") if "t" in table.column_names else g.events(table, start="start", end="end")
        for table in events
    )
    keyed = stream.by("k")
    epoch = "1970-01-01T00:00:00Z"
    match workload:
        case "W1":
            return stream.filter(g.col("v") < 500).select("k", value=g.col("v") * 2 + 1)
        case "W2":
            return keyed.sliding("3min").agg(n=g.count(), mean=g.mean("v"))
        case "W3":
            return keyed.hopping("60s", "5s", membership="start", align=epoch).agg(total=g.sum("v"))
        case "W4":
            return stream.tumbling("60s", membership="start", align=epoch).agg(n=g.count())
        case "W4b":
            return keyed.tumbling("60s", membership="start", align=epoch).agg(n=g.count())
        case "W6":
            return keyed.sliding("3min").agg(best=g.max("v"))
        case "W7":
            return keyed.sliding("3min").agg(median=g.median("v"))
        case "W8":
            return keyed.sliding("3min").agg(n=g.count_distinct("v"))
        case "last":
            return keyed.last(LAST).agg(mean=g.mean("v")).clip_duration(f"{DAY}us")
        case "session":
            return keyed.session(f"{GAP}us").agg(n=g.count())
        case "W5" | "W5-keys" | "W5-long":
            return stream.join(others[0], on="k")
        case "as-of":
            return stream.asof_join(others[0], on="k")
        case "union":
            return stream.union(others[0])
    raise ValueError(workload)


def _prepare_polars(name: str, events: Sequence[pa.Table], engine: Literal["streaming", "in-memory"]) -> Run:
    import polars as pl

    frames = [
        pl.DataFrame(pl.from_arrow(table)).with_columns(pl.selectors.temporal().to_physical()) for table in events
    ]
    query = ask_polars(name, *(frame.with_columns(frame.to_series(0).set_sorted()).lazy() for frame in frames))
    return lambda: query.collect(engine=engine).to_arrow()


def ask_polars(name: str, events: pl.LazyFrame, *others: pl.LazyFrame) -> pl.LazyFrame:
    """The workload as a Polars query; the first column of each frame is sorted."""
    import polars as pl

    key, time, value = pl.col("k"), pl.col("t"), pl.col("v")
    match name:
        case "W1":
            return events.filter(value < 500).select(start=time, end=time + 1, k=key, value=value * 2 + 1)
        case "W2" | "W2/partitioned":
            wide = value.cast(pl.Int64)
            changes = pl.concat(
                [
                    events.select(k=key, start=time, n=pl.lit(1, pl.Int64), total=wide),
                    events.select(k=key, start=time + SLIDING, n=pl.lit(-1, pl.Int64), total=-wide),
                ]
            )
            following, sums = pl.col("start").shift(-1), pl.col("n", "total").cum_sum()
            if name == "W2":
                running = changes.sort("k", "start").with_columns(sums, end=following)
            else:
                merged = changes.group_by("k", "start").agg(pl.sum("n", "total")).sort("k", "start")
                running = merged.with_columns(sums.over("k"), end=following.over("k"))
            alive = running.filter((pl.col("n") > 0) & (pl.col("end") > pl.col("start")))
            return alive.select("start", "end", "k", "n", mean=pl.col("total") / pl.col("n"))
        case "W3":
            windows = events.with_columns(value.cast(pl.Int64)).group_by_dynamic(
                # Without the offset a key's first windows, those that end before its first event is a window old, are
                # not there.
                "t",
                every=f"{HOP}i",
                period=f"{SIZE}i",
                offset=f"-{SIZE}i",
                closed="right",
                label="right",
                group_by="k",
            )
            return windows.agg(total=pl.sum("v")).select(start="t", end=time + HOP, k=key, total="total")
        case "W4":
            windows = events.group_by_dynamic("t", every=f"{SIZE}i", closed="right", label="right")
            return windows.agg(n=pl.len().cast(pl.Int64)).select(start="t", end=time + SIZE, n="n")
        case "W4b":
            counts = events.group_by(key, window=(time + SIZE - 1) // SIZE).agg(n=pl.len().cast(pl.Int64))
            start = pl.col("window") * SIZE
            return counts.select(start=start, end=start + SIZE, k=key, n="n")
        case "W6" | "W7":
            starts = events.select(k=key, start=time, v=value)
            ends = events.select(k=key, start=time + SLIDING, v=pl.lit(None, pl.Int32))
            answer = "best" if name == "W6" else "median"
            rolling = value.rolling_max_by if name == "W6" else value.rolling_median_by
            rolled = rolling("start", f"{SLIDING}i", closed="right", min_samples=1)
            running = (
                pl.concat([starts, ends])
                .sort("k", "start")
                .with_columns(rolled.over("k").alias(answer), end=pl.col("start").shift(-1).over("k"))
            )
            alive = running.filter(pl.col(answer).is_not_null() & (pl.col("end") > pl.col("start")))
            return alive.select("start", "end", "k", answer)
        case "last":
            rolled = value.cast(pl.Int64).rolling_mean(LAST, min_samples=1)
            following = pl.min_horizontal(time.shift(-1).over("k"), time + DAY)
            return events.select(start=time, end=following, k=key, mean=rolled.over("k"))
        case "session":
            fresh = (time - time.shift(1).over("k") >= GAP).fill_null(value=True)
            numbered = events.with_columns(session=fresh.cast(pl.Int64).cum_sum().over("k"))
            sessions = numbered.group_by("k", "session").agg(
                start=pl.col("t").min(), end=pl.col("t").max() + GAP, n=pl.len().cast(pl.Int64)
            )
            return sessions.select("start", "end", "k", "n")
        case "W5" | "W5-keys" | "W5-long":
            return _overlaps(events, others[0], BUCKET[name])
        case "as-of":
            found = events.join_asof(others[0], on="t", by="k", check_sortedness=False)
            return found.select("k", "v", "v_right", start=time, end=time + 1)
        case "union":
            return pl.concat([events, *others]).select("k", "v", start=time, end=time + 1)
    raise ValueError(name)


def _overlaps(left: pl.LazyFrame, right: pl.LazyFrame, size: int) -> pl.LazyFrame:
    import polars as pl

    start, end = pl.col("start"), pl.col("end")
    buckets = pl.int_ranges(start // size, (end - 1) // size + 1)
    listed = [frame.with_columns(bucket=buckets).explode("bucket") for frame in (left, right)]
    begins = pl.max_horizontal("start", "start_right")
    return (
        listed[0]
        .join(listed[1], on=["k", "bucket"])
        .filter((start < pl.col("end_right")) & (pl.col("start_right") < end) & (begins // size == pl.col("bucket")))
        .select("k", "v", "v_right", start=begins, end=pl.min_horizontal("end", "end_right"))
    )


def _prepare_duckdb(query: str, events: Sequence[pa.Table]) -> Run:
    import duckdb

    connection = duckdb.connect(config={"preserve_insertion_order": False})
    for name, table in zip("pr", events, strict=False):
        times = [f'epoch_us("{time}") AS "{time}"' for time in table.column_names if time not in {"k", "v"}]
        connection.register("arrow", table)
        connection.execute(f"CREATE TABLE {name} AS SELECT {', '.join(times)}, k, v FROM arrow")
        connection.unregister("arrow")
    return lambda: connection.sql(query).to_arrow_table()


_CHANGES = f"""
    SELECT k, t, 1 AS n, v FROM p UNION ALL SELECT k, t + {SLIDING}, -1, -v FROM p"""
_RUNNING = """
    SELECT k, t AS "start", lead(t) OVER w AS "end", sum(n) OVER w AS n, sum(v) OVER w AS total"""
_ALIVE = """
    SELECT "start", "end", k, n::BIGINT AS n, total / n AS mean FROM running WHERE n > 0 AND "end" > "start" """


def _bucketed(size: int) -> str:
    listed = f'unnest(range("start" // {size}, ("end" - 1) // {size} + 1)) AS bucket'
    return f"""
        WITH ps AS (SELECT *, {listed} FROM p), rs AS (SELECT *, {listed} FROM r)
        SELECT {_PAIR} FROM ps AS p JOIN rs AS r ON p.k = r.k AND p.bucket = r.bucket
            AND {_OVERLAP} AND p.bucket = greatest(p."start", r."start") // {size}"""


_PAIR = """
    greatest(p."start", r."start") AS "start", least(p."end", r."end") AS "end", p.k, p.v, r.v AS v_right"""
_OVERLAP = 'p."start" < r."end" AND r."start" < p."end"'


def _rolled(aggregate: str, name: str) -> str:
    """An aggregate over the windows of W2, whenever one changes."""
    return f"""
        WITH bounds AS (SELECT k, t, v FROM p UNION ALL SELECT k, t + {SLIDING}, NULL FROM p),
        running AS (
            SELECT k, t AS "start", lead(t) OVER (PARTITION BY k ORDER BY t) AS "end", count(v) OVER w AS held,
                {aggregate} OVER w AS {name}
            FROM bounds
            WINDOW w AS (PARTITION BY k ORDER BY t RANGE BETWEEN {SLIDING - 1} PRECEDING AND CURRENT ROW)
        )
        SELECT "start", "end", k, {name} FROM running WHERE held > 0 AND "end" > "start" """


ROLLED = {"W6": ("max(v)", "best"), "W7": ("median(v)", "median"), "W8": ("count(DISTINCT v)", "n")}

DUCKDB = {
    "W1": 'SELECT t AS "start", t + 1 AS "end", k, (v * 2 + 1)::INTEGER AS value FROM p WHERE v < 500',
    "W2": f"""
        WITH changes AS ({_CHANGES}),
        running AS ({_RUNNING} FROM changes WINDOW w AS (ORDER BY k, t))
        {_ALIVE}""",
    "W2/partitioned": f"""
        WITH changes AS ({_CHANGES}),
        running AS ({_RUNNING} FROM changes WINDOW w AS (PARTITION BY k ORDER BY t))
        {_ALIVE}""",
    "W3": f"""
        WITH counted AS (
            SELECT k, v, unnest(range((t + {HOP - 1}) // {HOP}, (t + {HOP - 1}) // {HOP} + {SIZE // HOP})) AS hop FROM p
        )
        SELECT hop * {HOP} AS "start", (hop + 1) * {HOP} AS "end", k, sum(v)::BIGINT AS total
        FROM counted GROUP BY k, hop""",
    "W4": f"""
        SELECT hop * {SIZE} AS "start", (hop + 1) * {SIZE} AS "end", count(*) AS n
        FROM (SELECT (t + {SIZE - 1}) // {SIZE} AS hop FROM p) GROUP BY hop""",
    "W4b": f"""
        SELECT hop * {SIZE} AS "start", (hop + 1) * {SIZE} AS "end", k, count(*) AS n
        FROM (SELECT k, (t + {SIZE - 1}) // {SIZE} AS hop FROM p) GROUP BY k, hop""",
    "last": f"""
        SELECT t AS "start", least(lead(t) OVER (PARTITION BY k ORDER BY t), t + {DAY}) AS "end", k, avg(v) OVER (
            PARTITION BY k ORDER BY t ROWS {LAST - 1} PRECEDING
        ) AS mean FROM p""",
    "session": f"""
        WITH begun AS (
            SELECT k, t, coalesce(t - lag(t) OVER (PARTITION BY k ORDER BY t) >= {GAP}, true)::INTEGER AS fresh FROM p
        ),
        numbered AS (SELECT k, t, sum(fresh) OVER (PARTITION BY k ORDER BY t) AS session FROM begun)
        SELECT min(t) AS "start", max(t) + {GAP} AS "end", k, count(*) AS n FROM numbered GROUP BY k, session""",
    **{name: _rolled(*asked) for name, asked in ROLLED.items()},
    **{name: _bucketed(size) for name, size in BUCKET.items()},
    "W5/plain": f"SELECT {_PAIR} FROM p JOIN r ON p.k = r.k AND {_OVERLAP}",
    "as-of": """
        SELECT p.t AS "start", p.t + 1 AS "end", p.k, p.v, r.v AS v_right
        FROM p ASOF LEFT JOIN r ON p.k = r.k AND p.t >= r.t""",
    "union": 'SELECT t AS "start", t + 1 AS "end", k, v FROM (FROM p UNION ALL FROM r)',
}
