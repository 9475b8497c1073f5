"""Names that pandas, Polars, SQL, PySpark and Flink use, and what to write here instead.

An unknown name is looked up in one table. If it is not there, the error offers the nearest known name.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn

from gpu_ops.errors import UnknownNameError

Owner = Literal["stream", "windows", "live", "store", "aggregate", "condition", "module"]
"""Of what a name is asked."""

_WHAT: dict[Owner, str] = {
    "stream": "A stream",
    "windows": "A windowed stream",
    "live": "A running query",
    "store": "A store",
    "aggregate": "An aggregate",
    "condition": "g.window",
    "module": "gpu_ops",
}

_ANSWERS: dict[Owner, str] = {"stream": ".collect()", "live": ".results()", "store": ".read()"}
"""What gives a pyarrow Table."""

_AGGREGATES = {
    "n=g.count()": "len size rowcount",
    'total=g.sum("v")': "",
    'mean=g.mean("v")': "avg average",
    'least=g.min("v")': "",
    'most=g.max("v")': "",
    'median=g.median("v")': "",
    'high=g.quantile("v", 0.9)': "percentile percentileapprox percentilecont approxquantile",
    'spread=g.standard_deviation("v")': "",
    'spread=g.variance("v")': "",
    'items=g.count_distinct("item")': "nunique approxcountdistinct approxnunique",
    'first=g.first("v")': "firstvalue",
    'last=g.last("v")': "lastvalue latest",
    'best=g.arg_max("item", "price")': "idxmax maxby",
    'least=g.arg_min("item", "price")': "idxmin minby",
    'all=g.collect_list("v")': "arrayagg implode tolist",
    'r=g.correlation("x", "y")': "corr",
    'c=g.covariance("x", "y")': "cov covarsamp covarpop",
    's=g.skewness("v")': "skew",
    'k=g.kurtosis("v")': "kurt",
    'p=g.product("v")': "prod",
}
"""Our aggregates as `agg` takes them, and what others call them."""

# Names in lower case, without underscores.
_TABLE: dict[str, dict[Owner, str]] = {
    # Which events, which columns
    "groupby partitionby keyby groupbykey": {
        "stream": 'Group with .by("item"), then a window: .by("item").tumbling("1min").agg(n=g.count()).',
        "windows": 'Group before the window: .by("item").tumbling("1min").agg(n=g.count()).',
    },
    "where query": {
        "stream": 'Write .filter(g.col("v") > 1).',
        "aggregate": 'Say it in the aggregate: g.sum("v", where=g.col("v") > 1).',
    },
    "withcolumn assign mutate withfields eval": {"stream": 'Write .with_columns(twice=g.col("v") * 2).'},
    "drop dropcolumns": {"stream": 'Name the columns that stay: .select("item", "price").'},
    "rename renamecolumns withcolumnrenamed todf": {"stream": 'Write .select("item", cost=g.col("price")).'},
    "dropna dropnulls dropnans na": {"stream": 'Write .filter(~g.col("v").is_null()).'},
    "fillna fillnull fillnan": {
        "stream": 'Write .with_columns(v=g.col("v").fill_null(0)).',
        "windows": 'Say it of the window: .tumbling("1min", fill="zero").',
    },
    "selectexpr sql": {"stream": 'Write expressions: .select("item", twice=g.col("price") * 2).'},
    "dropduplicates uniquerows": {"stream": 'Write .distinct("item").'},
    "explode flatmap selectmany": {"stream": 'Write .repeat("n") for each event n times.'},
    "lag prev previous": {"stream": 'Write .with_prior(1, before="price").'},
    "unionall unionbyname concat vstack": {"stream": "Write .union(other)."},
    "pipe": {"stream": 'Call the function: clean(stream). For each group by itself: .by("item").apply(clean).'},
    "map foreach transform applyinpandas mapinpandas mapinarrow": {
        "stream": 'Write expressions: .with_columns(…); or a function of a window: .tumbling("1min").apply(…).'
    },
    # Joins
    "merge innerjoin leftjoin joinwhere crossjoin coalescejoin lookupjoin": {
        "stream": 'Write .join(other, on="item"): events match where their lifetimes overlap.'
    },
    "joinasof mergeasof asof": {"stream": 'Write .asof_join(other, on="item", tolerance="5s").'},
    # Windows
    "rolling rollingby groupbyrolling over": {
        "stream": 'Write .sliding("5min").agg(mean=g.mean("v")) for a span, .last(10).agg(…) for a number of rows.',
        "aggregate": 'Windows go before aggregates: .by("item").last(10).agg(total=g.sum("v")).',
    },
    "expanding cumsum cumcount cummax cummin": {"stream": 'Write .keep_all().agg(total=g.sum("v")).'},
    "window": {"stream": 'Write .tumbling("1min").agg(n=g.count()).'},
    "resample groupbydynamic tumble tumblewindow tumblingwindow truncate": {
        "stream": 'Write .tumbling("1min").agg(n=g.count()).'
    },
    "hop hopwindow hoppingwindow slidingwindow": {"stream": 'Write .hopping("10min", every="1min").agg(n=g.count()).'},
    "sessionwindow sessionize sessionwith": {"stream": 'Write .session("10min").agg(n=g.count()).'},
    "watermark withwatermark assigntimestampsandwatermarks allowedlateness": {
        "stream": 'Write .advance_time("10s", delay="5s", late="drop").',
        "windows": 'Say it behind the source: g.events(…).advance_time("10s", delay="5s", late="drop").',
        "live": 'Write .advance("2026-01-31T12:00:00Z"); or CTIs of the events themselves: stream.advance_time(…).',
        "store": 'Write .advance("2026-01-31T12:00:00Z").',
    },
    # Aggregates
    "aggregate reduce summarize summarise": {
        "stream": 'Say over which windows: .tumbling("1min").agg(n=g.count()).',
        "windows": "Write .agg(n=g.count()).",
    },
    "std stddev stdev stddevsamp stddevpop": {
        "windows": 'Write .agg(spread=g.standard_deviation("v")).',
        "module": 'Write g.standard_deviation("v"); of="population" for all there are.',
    },
    "var varsamp varpop": {
        "windows": 'Write .agg(spread=g.variance("v")).',
        "module": 'Write g.variance("v"); of="population" for all there are.',
    },
    "nlargest topk": {
        "stream": 'Of each window: .tumbling("1min").top(3, by="v"); so far: .highest(3, "v").',
        "windows": 'Write .top(3, by="v").',
        "module": 'Write g.top("v", 3).',
    },
    "alias as label named": {"aggregate": 'Name it where it is asked for: .agg(total=g.sum("v")).'},
    "cast astype round fillnull fillna abs": {
        "aggregate": 'Change the result behind the window: .agg(t=g.sum("v")).with_columns(t=g.col("t").round(2)).'
    },
    # What comes out
    "head": {
        "live": "Take rows of the results: .results().slice(0, 5).",
        "store": "Take rows of what is read: .read().slice(0, 5).",
    },
    "limit take fetch tail slice": {
        "stream": "Write .head(5) for some rows of the answer. Each group's first five events: .first(5).rows().",
        "live": "Take rows of the results: .results().slice(0, 5).",
        "store": "Take rows of what is read: .read().slice(0, 5).",
    },
    "sort orderby sortby sortvalues sortwithinpartitions": {
        "stream": 'Sort the answer: .collect().sort_by("v"). Of each window the best: .tumbling("1min").top(3, "v").',
        "windows": 'Sort the answer, .agg(…).collect().sort_by("n"); the best of each window are .top(3, by="v").',
    },
    "collectschema dtypes printschema": {"stream": "It is the property .schema."},
    "columns names colnames": {"stream": "Write .schema.names.", "store": "Write .schema.names."},
    "shape height width numrows numcolumns": {
        "stream": "It is not computed yet: .collect().num_rows; the columns are .schema.names."
    },
    "topandas": {owner: f"Write {answer}.to_pandas()." for owner, answer in _ANSWERS.items()},
    "topolars": {owner: f"Write pl.from_arrow({owner}{answer})." for owner, answer in _ANSWERS.items()},
    "toarrow totable toarrowtable": {
        owner: f"Write {answer}, which gives a pyarrow Table." for owner, answer in _ANSWERS.items()
    },
    "show": {"windows": "Say what to compute first: .agg(n=g.count()).show()."},
    "display print": {
        "stream": "Write .show() for some rows; .explain() shows the plan.",
        "windows": "Say what to compute first: .agg(n=g.count()).show().",
    },
    "execute compute run fetchall": {
        "stream": "Write .collect(); .explain() shows the plan.",
        "windows": "Say what to compute, then collect: .agg(n=g.count()).collect().",
    },
    "collect": {
        "windows": "Say what to compute first: .agg(n=g.count()).collect().",
        "live": "Write .results().",
        "store": "Write .read(); or ask about it: g.events(store).",
    },
    "lazy": {"stream": "A stream is lazy already: nothing is computed before .collect()."},
    "cache persist checkpoint": {"stream": 'Write the answer, .write("answer.parquet"), and go on from there.'},
    "writeparquet toparquet sinkparquet tocsv writecsv sinkcsv writearrow sinkipc": {
        "stream": 'Write .write("answer.parquet").',
        "store": "Write pq.write_table(store.read(), …); a store's own files are Arrow IPC.",
    },
    "writestream foreachbatch execstream": {
        "stream": "Run it live: live = stream.start(); live.push(batch); or live.follow(store, into=other)."
    },
    # Running queries and stores
    "append write": {"live": "Write .push(batch)."},
    "add send insert ingest process feed put": {
        "live": "Write .push(batch).",
        "store": 'Write .append(table, cti="2026-01-31T12:00:00Z").',
    },
    "push": {"store": "Write .append(table)."},
    "poll get read drain output": {"live": "Write .results()."},
    "stop finish end awaittermination shutdown flush": {"live": "Write .close()."},
    "dump": {"live": 'Write .checkpoint("counts.checkpoint"), or .save("counts").'},
    "load restore": {"live": 'Write g.restore("counts.checkpoint", stream).'},
    "scan load open toreader": {"store": "Write .read(); or ask about it: g.events(store)."},
    "delete vacuum purge truncate retain": {"store": 'Write .expire("2026-01-31T12:00:00Z").'},
    "optimize mergefiles": {"store": "Write .compact()."},
    "subscribe listen stream watch": {
        "store": 'Write .follow(timeout="10s"), which gives batch after batch.',
        "live": "Say it at the start: .start(on_results=…); or put a query behind it: g.events(live).filter(…).",
    },
    # How a query begins
    "readparquet scanparquet readcsv scancsv readipc scanipc read scan": {
        "module": 'Write g.events("trips.parquet", start="ts").'
    },
    "dataframe lazyframe table fromarrow frompandas frompolars fromnative fromtable datastream source": {
        "module": 'Write g.events(table, start="ts").'
    },
    "column c field": {"module": 'Write g.col("v").'},
    "literal": {"module": "Write g.lit(1)."},
    "case casewhen ifelse iff": {"module": 'Write g.when(g.col("v") > 1).then(2).otherwise(3).'},
    "session tumbling hopping sliding snapshot filter select join": {
        "module": 'It is a verb of a stream: g.events(table, start="ts").tumbling("1min") …'
    },
    "timedelta seconds minutes": {"module": "Write spans as text, '5min', or as datetime.timedelta."},
    "version": {"module": "It is g.__version__."},
}

for _written, _others in _AGGREGATES.items():
    _call = _written.partition("=")[2]
    _own = _call.removeprefix("g.").partition("(")[0].replace("_", "")
    _TABLE[_own] = {"windows": f"Write .agg({_written})."}
    _TABLE[_others] = {"windows": f"Write .agg({_written}).", "module": f"Write {_call}."}

_TABLE_OF: dict[str, dict[Owner, str]] = {}
for _names, _hints in _TABLE.items():
    for _name in _names.split():
        _TABLE_OF[_name] = _TABLE_OF.get(_name, {}) | _hints

_CLASSES: dict[Owner, tuple[str, str]] = {
    "stream": ("gpu_ops.api.stream", "Stream"),
    "windows": ("gpu_ops.api.stream", "DataWindowed"),
    "live": ("gpu_ops.engines.live.running_query", "RunningQuery"),
    "store": ("gpu_ops.microbatches.stores", "Store"),
}

# Hints for a name that another owner has: (who was asked, who has it).
_ELSEWHERE: dict[tuple[Owner, Owner], str] = {
    ("stream", "windows"): 'It is about windows: say which first, .tumbling("1min").{name}(…).',
    ("stream", "live"): "A running query has it: live = stream.start(), then live.{name}(…).",
    ("stream", "store"): "A store has it: g.store(folder).{name}(…).",
    ("windows", "stream"): "Say it before the window, or behind what it computes: .agg(n=g.count()).{name}(…).",
    ("live", "stream"): "It is a verb of the stream: say it before .start(), or of g.events(live).",
    ("store", "stream"): "Ask about it as a stream: g.events(store).{name}(…).",
}

# What precedes the hint for a stream.
_FIRST: dict[Owner, str] = {
    "windows": "Say what to compute first, .agg(n=g.count()), and then, of that stream:",
    "live": "Say it of the stream, before .start(), or of what this query gives, g.events(live):",
    "store": "Ask about it as a stream, g.events(store):",
}


class OtherNames:
    """An object whose error for an unknown name says what to write instead."""

    _known_as: ClassVar[Owner]

    if not TYPE_CHECKING:  # a checker would take every name for known

        def __getattr__(self, name: str) -> NoReturn:
            """Python calls it for names that were not found."""
            if not name.startswith("_") and hasattr(type(self), name):
                # One of our properties raised AttributeError: show that error.
                object.__getattribute__(self, name)
            owner = type(self)._known_as  # noqa: SLF001  (its own)
            refuse(name, owner, of=type(self).__name__, known=dir(type(self)))


def refuse(name: str, owner: Owner, *, of: str, known: Iterable[str]) -> NoReturn:
    """Raise the error for a name that is not there.

    Args:
        name: The name.
        owner: Of what it was asked.
        of: The name that Python has for that.
        known: The names that it has.

    Raises:
        AttributeError: The name begins with an underscore: libraries and editors probe objects by such names.
        UnknownNameError: Any other name; the error says what to write.

    Examples:
        >>> import gpu_ops as g
        >>> g.avg
        Traceback (most recent call last):
        gpu_ops.errors.UnknownNameError: gpu_ops has no 'avg'. Write g.mean("v").
    """
    if name.startswith("_"):
        raise AttributeError(f"{of!r} object has no attribute {name!r}", name=name)
    public = [each for each in known if not each.startswith("_")]
    raise UnknownNameError(f"{_WHAT[owner]} has no {name!r}.", remedy=_remedy(name, owner, public))


def _remedy(name: str, owner: Owner, public: list[str]) -> str:
    plain = name.replace("_", "").lower()
    same = [each for each in public if each.replace("_", "").lower() == plain]
    if same:
        return f"Did you mean {same[0]!r}?"
    hints = _TABLE_OF.get(plain, {})
    if owner in hints:
        return hints[owner]
    for other in _CLASSES:
        said = _ELSEWHERE.get((owner, other))
        if said is not None and name in _verbs(other):
            return said.format(name=name)
    if owner == "stream" and "windows" in hints:
        return hints["windows"].replace("Write .", 'Write .tumbling("1min").', 1)
    if owner == "module" and hints.get("stream", "").startswith("Write ."):
        return hints["stream"].replace("Write .", "Write stream.", 1)
    if "stream" in hints and owner in _FIRST:
        return f"{_FIRST[owner]} {hints['stream']}"
    near = difflib.get_close_matches(name.lower(), public, n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    return f"It has: {', '.join(public)}." if len(public) < 12 else "dir(…) lists what it has."


@cache
def _verbs(owner: Owner) -> frozenset[str]:
    module, name = _CLASSES[owner]
    found: Any = getattr(import_module(module), name)
    return frozenset(each for each in dir(found) if not each.startswith("_"))
