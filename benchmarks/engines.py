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

``/sorted`` numbers the sessions of all keys at once, in (key, time) order. ``/hops`` of W3 sums each hop first, and
then twelve of these sums. ``/rolling`` and ``/range`` answer less than was asked (`at_events`): the libraries' own verb
for a moving window has a row for each event, and none for the time when one leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from benchmarks.workloads import EVEN, WORKLOADS, Spread

if TYPE_CHECKING:
    import polars as pl

    from gpu_ops import Stream

Run = Callable[[], pa.Table]

SLIDING = 180_000_000
INPUTS = ("left", "right")
"""The names of a workload's inputs, which a running query asks for if there are two."""

LAST, GAP = 100, 10_000_000
DAY = 86_400_000_000
HOP = 5_000_000
SIZE = 60_000_000
BUCKET = 180_000_000

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

FORMS = {
    "W2": {
        "polars": "sorted deltas",
        "polars-streaming": "sorted deltas, streaming",
        "polars/partitioned": "deltas by key",
        "polars-streaming/partitioned": "deltas by key, streaming",
        "polars/rolling": "`rolling`",
        "duckdb": "sorted deltas",
        "duckdb/partitioned": "deltas by key",
        "duckdb/range": "`RANGE`",
    },
    "W3": {
        "polars": "`group_by_dynamic`",
        "polars-streaming": "`group_by_dynamic`, streaming",
        "polars/hops": "sums of hops",
        "polars-streaming/hops": "sums of hops, streaming",
        "duckdb": "`GROUP BY`",
        "duckdb/hops": "sums of hops",
    },
    "W6": {
        "polars": "`rolling_max_by` over both ends",
        "polars-streaming": "`rolling_max_by` over both ends, streaming",
        "polars/rolling": "`rolling_max_by`",
        "duckdb": "`RANGE` over both ends",
        "duckdb/range": "`RANGE`",
    },
    "W7": {
        "polars": "`rolling_median_by` over both ends",
        "polars/rolling": "`rolling_median_by`",
        "duckdb": "`RANGE` over both ends",
        "duckdb/range": "`RANGE`",
    },
    "last": {"polars": "`rolling_mean`", "duckdb": "`ROWS`"},
    "session": {
        "polars": "gaps by key",
        "polars-streaming": "gaps by key, streaming",
        "polars/sorted": "gaps, sorted",
        "polars-streaming/sorted": "gaps, sorted, streaming",
        "duckdb": "gaps by key",
        "duckdb/sorted": "gaps, sorted",
    },
    "W5": {"polars": "buckets", "polars-streaming": "buckets, streaming", "duckdb": "buckets"},
    "as-of": {"polars": "`join_asof`", "polars-streaming": "`join_asof`, streaming", "duckdb": "`ASOF JOIN`"},
}
"""How peers are asked across keys, in words: which form is best depends on how many keys there are."""


def at_events(engine: str) -> bool:
    """Whether an engine's form has a row for each event alone, with the answer at its time and without an end."""
    return engine.partition("/")[2] in {"rolling", "range"}


def prepare(engine: str, workload: str, events: Sequence[pa.Table], *, device: str, spread: Spread = EVEN) -> Run:
    """The engine with its input in memory, ready to be timed.

    Args:
        engine: "gpu_ops", or one of `PEERS` or `FORMS`.
        workload: Its name.
        events: As `workloads.inputs` makes them.
        device: Where gpu_ops runs.
        spread: As the events were made.
    """
    library, _, form = engine.partition("/")
    name = f"{workload}/{form}" if form else workload
    bucket = BUCKET * (WORKLOADS[workload].spread or spread).thousandths // 1000
    if library == "gpu_ops":
        stream = ask_gpu_ops(workload, events)
        return lambda: stream.collect(device=device)
    if library == "duckdb":
        return _prepare_duckdb(name, events, bucket)
    return _prepare_polars(name, events, bucket, "streaming" if library == "polars-streaming" else "in-memory")


def ask_gpu_ops(workload: str, events: Sequence[pa.Table]) -> Stream:
    """The workload as a stream."""
    import gpu_ops as g

    stream, *others = (
        g.events(table, start="t", name=name)
        if "t" in table.column_names
        else g.events(table, start="start", end="end", name=name)
        for name, table in zip(INPUTS, events, strict=False)
    )
    key = "k" if "k" in events[0].column_names else None
    keyed = stream.by(key) if key else stream
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
            return stream.join(others[0], on=key)
        case "as-of":
            return stream.asof_join(others[0], on=key)
        case "union":
            return stream.union(others[0])
    raise ValueError(workload)


def _prepare_polars(
    name: str, events: Sequence[pa.Table], bucket: int, engine: Literal["streaming", "in-memory"]
) -> Run:
    import polars as pl

    frames = [
        pl.DataFrame(pl.from_arrow(table)).with_columns(pl.selectors.temporal().to_physical()) for table in events
    ]
    lazy = [frame.with_columns(frame.to_series(0).set_sorted()).lazy() for frame in frames]
    by = ("k",) if "k" in events[0].column_names else ()
    query = _rolling(name, lazy[0], by) if at_events(name) else ask_polars(name, *lazy, by=by, bucket=bucket)
    return lambda: query.collect(engine=engine).to_arrow()


def ask_polars(
    name: str, events: pl.LazyFrame, *others: pl.LazyFrame, by: tuple[str, ...], bucket: int
) -> pl.LazyFrame:
    """The workload as a Polars query; the first column of each frame is sorted, ``by`` is the key, if there is one."""
    import polars as pl

    def over(expression: pl.Expr) -> pl.Expr:
        return expression.over(by) if by else expression

    time, value = pl.col("t"), pl.col("v")
    following = over(pl.col("start").shift(-1))
    match name:
        case "W1":
            return events.filter(value < 500).select(*by, start=time, end=time + 1, value=value * 2 + 1)
        case "W2" | "W2/partitioned":
            wide = value.cast(pl.Int64)
            changes = pl.concat(
                [
                    events.select(*by, start=time, n=pl.lit(1, pl.Int64), total=wide),
                    events.select(*by, start=time + SLIDING, n=pl.lit(-1, pl.Int64), total=-wide),
                ]
            )
            sums = pl.col("n", "total").cum_sum()
            if name == "W2":
                running = changes.sort(*by, "start").with_columns(sums, end=pl.col("start").shift(-1))
            else:
                merged = changes.group_by(*by, "start").agg(pl.sum("n", "total")).sort(*by, "start")
                running = merged.with_columns(over(sums), end=following)
            alive = running.filter((pl.col("n") > 0) & (pl.col("end") > pl.col("start")))
            return alive.select(*by, "start", "end", "n", mean=pl.col("total") / pl.col("n"))
        case "W3" | "W3/hops":
            return _hopping(name, events, by)
        case "W4":
            windows = events.group_by_dynamic("t", every=f"{SIZE}i", closed="right", label="right")
            return windows.agg(n=pl.len().cast(pl.Int64)).select(start="t", end=time + SIZE, n="n")
        case "W4b":
            counts = events.group_by(*by, window=(time + SIZE - 1) // SIZE).agg(n=pl.len().cast(pl.Int64))
            start = pl.col("window") * SIZE
            return counts.select(*by, "n", start=start, end=start + SIZE)
        case "W6" | "W7":
            starts = events.select(*by, start=time, v=value)
            ends = events.select(*by, start=time + SLIDING, v=pl.lit(None, pl.Int32))
            answer = "best" if name == "W6" else "median"
            rolling = value.rolling_max_by if name == "W6" else value.rolling_median_by
            rolled = rolling("start", f"{SLIDING}i", closed="right", min_samples=1)
            running = (
                pl.concat([starts, ends]).sort(*by, "start").with_columns(over(rolled).alias(answer), end=following)
            )
            alive = running.filter(pl.col(answer).is_not_null() & (pl.col("end") > pl.col("start")))
            return alive.select(*by, "start", "end", answer)
        case "last":
            rolled = value.cast(pl.Int64).rolling_mean(LAST, min_samples=1)
            until = pl.min_horizontal(over(time.shift(-1)), time + DAY)
            return events.select(*by, start=time, end=until, mean=over(rolled))
        case "session":
            fresh = (time - over(time.shift(1)) >= GAP).fill_null(value=True)
            numbered = events.with_columns(session=over(fresh.cast(pl.Int64).cum_sum()))
            sessions = numbered.group_by(*by, "session").agg(
                start=pl.col("t").min(), end=pl.col("t").max() + GAP, n=pl.len().cast(pl.Int64)
            )
            return sessions.select(*by, "start", "end", "n")
        case "session/sorted":
            keys = [pl.col(key) != pl.col(key).shift(1) for key in by]
            fresh = pl.any_horizontal(time - time.shift(1) >= GAP, *keys).fill_null(value=True)
            numbered = events.sort(*by, "t").with_columns(session=fresh.cast(pl.Int64).cum_sum())
            sessions = numbered.group_by("session").agg(
                *(pl.first(key) for key in by), start=pl.min("t"), end=pl.max("t") + GAP, n=pl.len().cast(pl.Int64)
            )
            return sessions.select(*by, "start", "end", "n")
        case "W5" | "W5-keys" | "W5-long":
            return _overlaps(events, others[0], by, bucket)
        case "as-of":
            found = events.join_asof(others[0], on="t", by=by or None, check_sortedness=False)
            return found.select(*by, "v", "v_right", start=time, end=time + 1)
        case "union":
            return pl.concat([events, *others]).select(*by, "v", start=time, end=time + 1)
    raise ValueError(name)


def _rolling(name: str, events: pl.LazyFrame, by: tuple[str, ...]) -> pl.LazyFrame:
    """The windows of W2 at the time of each event."""
    import polars as pl

    if name == "W2/rolling":
        windows = events.rolling("t", period=f"{SLIDING}i", group_by=by or None)
        return windows.agg(n=pl.len().cast(pl.Int64), mean=pl.mean("v")).rename({"t": "start"})
    value = pl.col("v")
    rolling, answer = (value.rolling_max_by, "best") if name == "W6/rolling" else (value.rolling_median_by, "median")
    rolled = rolling("t", f"{SLIDING}i")
    return events.select(*by, (rolled.over(by) if by else rolled).alias(answer), start=pl.col("t"))


def _hopping(name: str, events: pl.LazyFrame, by: tuple[str, ...]) -> pl.LazyFrame:
    import polars as pl

    wide = events.with_columns(pl.col("v").cast(pl.Int64))
    if name == "W3":
        windows = wide.group_by_dynamic(
            # Without the offset a key's first windows, those that end before its first event is a window old, are not
            # there.
            "t",
            every=f"{HOP}i",
            period=f"{SIZE}i",
            offset=f"-{SIZE}i",
            closed="right",
            label="right",
            group_by=by or None,
        )
        totals = windows.agg(total=pl.sum("v")).rename({"t": "start"})
    else:
        hops = wide.group_by(*by, hop=(pl.col("t") + HOP - 1) // HOP).agg(total=pl.sum("v"))
        listed = hops.with_columns(hop=pl.int_ranges("hop", pl.col("hop") + SIZE // HOP)).explode("hop")
        totals = listed.group_by(*by, start=pl.col("hop") * HOP).agg(pl.sum("total"))
    return totals.select(*by, "total", "start", end=pl.col("start") + HOP)


def _overlaps(left: pl.LazyFrame, right: pl.LazyFrame, by: tuple[str, ...], size: int) -> pl.LazyFrame:
    import polars as pl

    start, end = pl.col("start"), pl.col("end")
    buckets = pl.int_ranges(start // size, (end - 1) // size + 1)
    listed = [frame.with_columns(bucket=buckets).explode("bucket") for frame in (left, right)]
    begins = pl.max_horizontal("start", "start_right")
    return (
        listed[0]
        .join(listed[1], on=[*by, "bucket"])
        .filter((start < pl.col("end_right")) & (pl.col("start_right") < end) & (begins // size == pl.col("bucket")))
        .select(*by, "v", "v_right", start=begins, end=pl.min_horizontal("end", "end_right"))
    )


def _prepare_duckdb(name: str, events: Sequence[pa.Table], bucket: int) -> Run:
    import duckdb

    connection = duckdb.connect(config={"preserve_insertion_order": False})
    for each, table in zip("pr", events, strict=False):
        columns = [
            column if column in {"k", "v"} else f'epoch_us("{column}") AS "{column}"' for column in table.column_names
        ]
        connection.register("arrow", table)
        connection.execute(f"CREATE TABLE {each} AS SELECT {', '.join(columns)} FROM arrow")
        connection.unregister("arrow")
    query = ask_duckdb(name, keyed="k" in events[0].column_names, bucket=bucket)
    return lambda: connection.sql(query).to_arrow_table()


def ask_duckdb(name: str, *, keyed: bool, bucket: int) -> str:
    """The workload in SQL."""
    keys = {"k": "k, ", "pk": "p.k, ", "partition": "PARTITION BY k ", "same_k": "p.k = r.k AND "}
    return DUCKDB[name].format(**keys if keyed else dict.fromkeys(keys, ""), bucket=bucket)


_CHANGES = f"""
    SELECT {{k}}t, 1 AS n, v FROM p UNION ALL SELECT {{k}}t + {SLIDING}, -1, -v FROM p"""
_RUNNING = """
    SELECT {k}t AS "start", lead(t) OVER w AS "end", sum(n) OVER w AS n, sum(v) OVER w AS total"""
_ALIVE = """
    SELECT "start", "end", {k}n::BIGINT AS n, total / n AS mean FROM running WHERE n > 0 AND "end" > "start" """

_HOPS = f"unnest(range(hop, hop + {SIZE // HOP})) AS hop"

_PAIR = """
    greatest(p."start", r."start") AS "start", least(p."end", r."end") AS "end", {pk}p.v, r.v AS v_right"""
_OVERLAP = 'p."start" < r."end" AND r."start" < p."end"'
_LISTED = 'unnest(range("start" // {bucket}, ("end" - 1) // {bucket} + 1)) AS bucket'
_BUCKETED = f"""
    WITH ps AS (SELECT *, {_LISTED} FROM p), rs AS (SELECT *, {_LISTED} FROM r)
    SELECT {_PAIR} FROM ps AS p JOIN rs AS r ON {{same_k}}p.bucket = r.bucket
        AND {_OVERLAP} AND p.bucket = greatest(p."start", r."start") // {{bucket}}"""

_MOVING = f"({{partition}}ORDER BY t RANGE BETWEEN {SLIDING - 1} PRECEDING AND CURRENT ROW)"


def _rolled(aggregate: str, name: str) -> str:
    """An aggregate over the windows of W2, whenever one changes."""
    return f"""
        WITH bounds AS (SELECT {{k}}t, v FROM p UNION ALL SELECT {{k}}t + {SLIDING}, NULL FROM p),
        running AS (
            SELECT {{k}}t AS "start", lead(t) OVER ({{partition}}ORDER BY t) AS "end", count(v) OVER w AS held,
                {aggregate} OVER w AS {name}
            FROM bounds
            WINDOW w AS {_MOVING}
        )
        SELECT "start", "end", {{k}}{name} FROM running WHERE held > 0 AND "end" > "start" """


ROLLED = {"W6": ("max(v)", "best"), "W7": ("median(v)", "median"), "W8": ("count(DISTINCT v)", "n")}

DUCKDB = {
    "W1": 'SELECT t AS "start", t + 1 AS "end", {k}(v * 2 + 1)::INTEGER AS value FROM p WHERE v < 500',
    "W2": f"""
        WITH changes AS ({_CHANGES}),
        running AS ({_RUNNING} FROM changes WINDOW w AS (ORDER BY {{k}}t))
        {_ALIVE}""",
    "W2/partitioned": f"""
        WITH changes AS ({_CHANGES}),
        running AS ({_RUNNING} FROM changes WINDOW w AS ({{partition}}ORDER BY t))
        {_ALIVE}""",
    "W2/range": f'SELECT {{k}}t AS "start", count(*) OVER w AS n, avg(v) OVER w AS mean FROM p WINDOW w AS {_MOVING}',
    "W3": f"""
        WITH counted AS (
            SELECT {{k}}v, unnest(range((t + {HOP - 1}) // {HOP}, (t + {HOP - 1}) // {HOP} + {SIZE // HOP})) AS hop
            FROM p
        )
        SELECT hop * {HOP} AS "start", (hop + 1) * {HOP} AS "end", {{k}}sum(v)::BIGINT AS total
        FROM counted GROUP BY {{k}}hop""",
    "W3/hops": f"""
        WITH hops AS (SELECT {{k}}(t + {HOP - 1}) // {HOP} AS hop, sum(v) AS total FROM p GROUP BY ALL),
        listed AS (SELECT {{k}}total, {_HOPS} FROM hops)
        SELECT hop * {HOP} AS "start", (hop + 1) * {HOP} AS "end", {{k}}sum(total)::BIGINT AS total
        FROM listed GROUP BY {{k}}hop""",
    "W4": f"""
        SELECT hop * {SIZE} AS "start", (hop + 1) * {SIZE} AS "end", count(*) AS n
        FROM (SELECT (t + {SIZE - 1}) // {SIZE} AS hop FROM p) GROUP BY hop""",
    "W4b": f"""
        SELECT hop * {SIZE} AS "start", (hop + 1) * {SIZE} AS "end", {{k}}count(*) AS n
        FROM (SELECT {{k}}(t + {SIZE - 1}) // {SIZE} AS hop FROM p) GROUP BY {{k}}hop""",
    "last": f"""
        SELECT t AS "start", least(lead(t) OVER ({{partition}}ORDER BY t), t + {DAY}) AS "end", {{k}}avg(v) OVER (
            {{partition}}ORDER BY t ROWS {LAST - 1} PRECEDING
        ) AS mean FROM p""",
    "session": f"""
        WITH begun AS (
            SELECT {{k}}t, coalesce(t - lag(t) OVER ({{partition}}ORDER BY t) >= {GAP}, true)::INTEGER AS fresh FROM p
        ),
        numbered AS (SELECT {{k}}t, sum(fresh) OVER ({{partition}}ORDER BY t) AS session FROM begun)
        SELECT min(t) AS "start", max(t) + {GAP} AS "end", {{k}}count(*) AS n FROM numbered GROUP BY {{k}}session""",
    "session/sorted": f"""
        WITH begun AS (
            SELECT {{k}}t, coalesce(t - lag(t) OVER ({{partition}}ORDER BY t) >= {GAP}, true)::INTEGER AS fresh FROM p
        ),
        numbered AS (SELECT {{k}}t, sum(fresh) OVER (ORDER BY {{k}}t) AS session FROM begun)
        SELECT min(t) AS "start", max(t) + {GAP} AS "end", {{k}}count(*) AS n FROM numbered GROUP BY {{k}}session""",
    **{name: _rolled(*asked) for name, asked in ROLLED.items()},
    **{
        f"{name}/range": f'SELECT {{k}}t AS "start", {aggregate} OVER w AS {answer} FROM p WINDOW w AS {_MOVING}'
        for name, (aggregate, answer) in ROLLED.items()
    },
    **dict.fromkeys(("W5", "W5-keys", "W5-long"), _BUCKETED),
    "W5/plain": f"SELECT {_PAIR} FROM p JOIN r ON {{same_k}}{_OVERLAP}",
    "as-of": """
        SELECT p.t AS "start", p.t + 1 AS "end", {pk}p.v, r.v AS v_right
        FROM p ASOF LEFT JOIN r ON {same_k}p.t >= r.t""",
    "union": 'SELECT t AS "start", t + 1 AS "end", {k}v FROM (FROM p UNION ALL FROM r)',
}
