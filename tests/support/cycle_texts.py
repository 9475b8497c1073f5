"""Random texts in RQL, and their answers by the interpreter of cycles and DuckDB.

The interpreter says what each partition has in each cycle; DuckDB is asked the query around the partitions of these
rows, cycle by cycle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import strategies as st

from tests.support.cycle_interpreter import Part, Row, alerts, together

EVENT = pa.schema([("id", pa.int64()), ("k", pa.string()), ("v", pa.int64())])
"""The columns of streams `s` and `r`, and of all partitions."""

TABLE = pa.table({"k": ["a", "a", "b", None], "n": [1, 3, 2, 2]})
"""The rows of a plain table `p`."""

_SHOWN = {"new": ("new",), "dead": ("dead",), "not dead": ("new", "old"), "": ("new", "old", "dead")}


@dataclass(frozen=True)
class Case:
    """A query and what it is asked of.

    Attributes:
        text: In RQL.
        sql: In SQL over tables of one cycle: of an alias `x` the table `x`, that of an alert is `fired`.
        chains: The partitions by their aliases.
        streams: The stream of each.
        statuses: The row status that is shown of each alias, and which partition it is.
        events: When each comes, its stream, and its columns.
        patterns: Those of an alert.
        columns: The columns of an alert: name, alias and column.
    """

    text: str
    sql: str
    chains: Mapping[str, Sequence[Part]]
    streams: Mapping[str, str]
    statuses: Mapping[str, tuple[str, str]]
    events: Sequence[tuple[int, str, Row]]
    patterns: Sequence[Mapping[str, bool]] = ()
    columns: Sequence[tuple[str, str, str]] = ()

    @property
    def frames(self) -> dict[str, pa.Table]:
        """The events of each stream."""
        schema = pa.schema([("at", pa.int64()), *EVENT])
        return {
            name: pa.Table.from_pylist([{"at": at, **row} for at, of, row in self.events if of == name], schema=schema)
            for name in ("s", "r")
        }

    def expected(self, database: duckdb.DuckDBPyConnection) -> Counter[tuple[Any, ...]]:
        """(cycle, values of a row), and how often."""
        found: Counter[tuple[Any, ...]] = Counter()
        for number, tables in self._cycles():
            for name, table in tables.items():
                database.register(name, table)
            found.update((number, *row) for row in database.execute(self.sql).fetchall())
        return found

    def _cycles(self) -> Iterator[tuple[int, dict[str, pa.Table]]]:
        # Events that a partition refuses make no cycle run.
        coming = [
            (at, alias, row)
            for at, of, row in self.events
            for alias, name in self.streams.items()
            if of == name and _passes(self.chains[alias][0], row)
        ]
        if not self.patterns:
            for number, (_, seen) in enumerate(together(self.chains, coming)):
                yield (
                    number,
                    {
                        alias: _table([row for word in _SHOWN[status] for row in seen[of][word]])
                        for alias, (of, status) in self.statuses.items()
                    },
                )
            return
        fired: dict[int, list[Row]] = {}
        for _, number, rows in alerts(self.chains, coming, "k", self.patterns):
            made = {name: rows[of][column] if of in rows else None for name, of, column in self.columns}
            fired.setdefault(number, []).append(made)
        types = pa.schema([(name, EVENT.field(column).type) for name, _, column in self.columns])
        for number, _ in enumerate(together(self.chains, coming)):
            yield number, {"fired": pa.Table.from_pylist(fired.get(number, []), schema=types)}


def _passes(part: Part, row: Row) -> bool:
    return part.above is None or (row[part.above[0]] is not None and row[part.above[0]] > part.above[1])


def _table(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist([{name: row[name] for name in EVENT.names} for row in rows], schema=EVENT)


# Partitions


@st.composite
def events(draw: st.DrawFn) -> list[tuple[int, str, Row]]:
    """Events of two streams, in their order, some at one instant."""
    now, made = 0, []
    for number, gap in enumerate(draw(st.lists(st.sampled_from([0, 0, 1, 2, 5]), min_size=2, max_size=10))):
        now += gap
        row = {
            "id": number,
            "k": draw(st.sampled_from(["a", "b", "ab", None])),
            "v": draw(st.sampled_from([1, 2, 3, 4, None])),
        }
        made.append((now, draw(st.sampled_from("ssr")), row))
    return made


@st.composite
def _parts(draw: st.DrawFn, *, behind: bool, counts: bool) -> Part:
    kind = draw(st.sampled_from(["last", "span", "most", "latest", "highest", "lowest"]))
    if behind and kind == "latest":
        kind = "last"
    functions: tuple[tuple[str, str, str], ...] = ()
    if counts and draw(st.integers(0, 2)) == 0:
        functions = (("id", "count", ""), ("v", draw(st.sampled_from(["max", "min"])), "v"))
    size, keyed = draw(st.integers(1, 3)), draw(st.booleans())
    return Part(
        "span" if kind == "most" else kind,
        None if kind == "span" else size,
        draw(st.integers(1, 5)),
        by=("k",) if functions or keyed else (),
        update=draw(st.sampled_from([(), ("k",)])) if kind in {"highest", "lowest"} else (),
        functions=functions,
        entrance=draw(st.sampled_from([frozenset[str](), frozenset({"id"})])) if functions else frozenset(),
        pinned=bool(functions) and draw(st.booleans()),
        takes=draw(st.sampled_from(["new", "new", "dead"])) if behind else "new",
        above=draw(st.sampled_from([None, ("v", 1), ("id", 1)])),
    )


@st.composite
def _chains(draw: st.DrawFn, *, counts: bool = True) -> list[Part]:
    first = draw(_parts(behind=False, counts=counts))
    if draw(st.integers(0, 3)):
        return [first]
    behind = draw(_parts(behind=True, counts=False))
    if first.kind == "latest" and (first.functions or behind.takes == "dead"):
        return [first]  # what is taken would depend on itself
    return [first, behind]


def _written(chain: Sequence[Part]) -> str:
    """A chain of partitions in RQL."""
    made = []
    for at, part in enumerate(chain):
        picks = {
            "last": f"last {part.size}",
            "latest": f"latest {part.size}",
            "span": f"last {part.span} milliseconds{'' if part.size is None else f' max {part.size}'}",
        }
        best = f"{part.kind} {part.size} using v{' with update group k' * bool(part.update)}"
        calls = [
            f"{function}({column or 'v'}){' entrance only' * (name in part.entrance)} as {name}"
            for name, function, column in part.functions
        ]
        conditions = [f"$row_status is {part.takes}"] * bool(at)
        conditions += [] if part.above is None else [f"{part.above[0]} > {part.above[1]}"]
        made.append(
            f"(partition {'by k ' * bool(part.by)}store {picks.get(part.kind, best)}"
            + (f" with {'pinned ' * part.pinned}{', '.join(calls)}" if calls else "")
            + (f" where {' and '.join(conditions)}" if conditions else "")
            + ")"
        )
    return " to ".join(made)


# The query around them

Terms = Sequence[tuple[str, str]]
"""Terms over the tables of a query, each with what it is: "number" or "text"."""


@st.composite
def _conditions(draw: st.DrawFn, terms: Terms, depth: int = 1) -> str:
    kind = draw(st.integers(0, 8 if depth else 5))
    numbers, texts = ([term for term, of in terms if of == wanted] for wanted in ("number", "text"))
    number, text = draw(st.sampled_from(numbers)), draw(st.sampled_from(texts))
    if kind == 0:
        return f"{number} {draw(st.sampled_from(['<', '>=', '=', '!=']))} {draw(st.integers(0, 4))}"
    if kind == 1:
        return f"{number} {draw(st.sampled_from(['<', '<=', '=']))} {draw(st.sampled_from(numbers))}"
    if kind == 2:
        return f"{text} {draw(st.sampled_from(['=', '!=']))} {draw(st.sampled_from(texts))}"
    if kind == 3:
        return f"{number} is {draw(st.sampled_from(['', 'not ']))}null"
    if kind == 4:
        return f"{text} {draw(st.sampled_from(['', 'not ']))}in ('a', 'b')"
    if kind == 5:
        return draw(st.sampled_from([f"{number} between 1 and 3", f"{text} like 'a%'", f"{number} not in (2, 3)"]))
    first, second = (draw(_conditions(terms, depth - 1)) for _ in range(2))
    return f"not ({first})" if kind == 6 else f"({first} {'or' if kind == 7 else 'and'} {second})"


@st.composite
def _values(draw: st.DrawFn, terms: Terms) -> str:
    numbers, texts = ([term for term, of in terms if of == wanted] for wanted in ("number", "text"))
    number, text = draw(st.sampled_from(numbers)), draw(st.sampled_from(texts))
    other = draw(st.sampled_from(numbers))
    condition = draw(_conditions(terms, 0))
    return draw(
        st.sampled_from(
            [
                number,
                number,
                text,
                f"{number} + 2 * {other}",
                f"coalesce({number}, -{other}, 0)",
                f"upper({text})",
                f"case when {condition} then {number} else -1 end",
                f"case {text} when 'a' then {number} when 'b' then 9 end",
                f"abs({number} - 3)",
                f"{text} || 'x'",
                f"length({text})",
            ]
        )
    )


@st.composite
def _aggregates(draw: st.DrawFn, terms: Terms) -> str:
    number = draw(st.sampled_from([term for term, of in terms if of == "number"]))
    call = st.sampled_from(["count(*)", f"count({number})", f"count(distinct {number})"])
    return draw(call | st.sampled_from([f"{name}({number})" for name in ("sum", "min", "max", "avg")]))


@st.composite
def _selects(draw: st.DrawFn, terms: Terms, inner: Sequence[str], *, items: int = 0) -> tuple[str, str, list[str]]:
    """(what is selected, what stands behind the conditions, the columns that rows can be ordered by)."""
    where = [draw(_conditions(terms)) for _ in range(draw(st.integers(0, 1)))]
    where += [draw(st.sampled_from(inner))] if inner and draw(st.integers(0, 2)) == 0 else []
    condition = " and ".join(where)
    count = items or draw(st.integers(1, 3))
    if draw(st.integers(0, 2)) or items:
        distinct = "distinct " * (draw(st.integers(0, 3)) == 0)
        made = [f"{draw(_values(terms))} as c{at}" for at in range(count)]
        return f"{distinct}{', '.join(made)}", condition, [f"c{at}" for at in range(count)]
    keys = draw(st.lists(st.sampled_from([term for term, _ in terms]), max_size=2, unique=True))
    calls = [draw(_aggregates(terms)) for _ in range(count)]
    made = [f"{each} as c{at}" for at, each in enumerate([*keys, *calls])]
    groups = f" group by {', '.join(keys)}" if keys else ""
    having = f" having {draw(_aggregates(terms))} > 1" if draw(st.booleans()) else ""
    return ", ".join(made), f"{condition}|{groups}{having}", [f"c{at}" for at in range(len(made))]


@st.composite
def _ordered(draw: st.DrawFn, columns: Sequence[str]) -> str:
    if draw(st.integers(0, 2)):
        return ""
    keys = []
    for each in draw(st.permutations(columns)):
        way, nulls = draw(st.sampled_from(["", " desc"])), draw(st.sampled_from(["first", "last"]))
        keys.append(f"{each}{way} nulls {nulls}")
    offset = draw(st.sampled_from(["", " offset 1"]))
    return f" order by {', '.join(keys)} limit {draw(st.integers(1, 3))}{offset}"


def _conditional(conditions: Sequence[str], rest: str) -> str:
    """A where clause of some conditions and of what a select says, and what stands behind it."""
    condition, _, groups = rest.partition("|")
    every = [each for each in (*conditions, condition) if each]
    return f"{' where ' + ' and '.join(every) if every else ''}{groups}"


@st.composite
def queries(draw: st.DrawFn) -> Case:
    """A query over one or two partitions, a table, or a partition with itself."""
    chains, streams, statuses = {}, {}, {}
    shape = draw(st.sampled_from(["one", "one", "two", "self", "table", "left", "sets"]))
    parts, tables = {}, {}
    for alias, stream in (("x", "s"), ("y", "r")):
        if alias == "y" and shape not in {"two", "sets"}:
            continue
        chains[alias], streams[alias] = draw(_chains()), stream
        statuses[alias] = alias, draw(st.sampled_from(list(_SHOWN)))
        parts[alias], tables[alias] = f"{stream} {_written(chains[alias])} as {alias}", f"{alias} as {alias}"
    if shape == "self":
        statuses["y"] = "x", draw(st.sampled_from(["new", "not dead", "dead"]))
        parts["y"], tables["y"] = "self#x as y", "y as y"
    terms = [(f"{alias}.{name}", kind) for alias in parts for name, kind in (("id", "number"), ("k", "text"))]
    terms += [(f"{alias}.v", "number") for alias in parts]
    asked = {alias: f"{alias}.$row_status is {status}" for alias, (_, status) in statuses.items() if status}
    inner = [
        "x.k in (select k from p where n > 1)",
        "x.v not in (select n from p)",
        "exists (select n from p where p.k = x.k and p.n >= x.v)",
        "not exists (select n from p where p.k = x.k)",
        "x.v > (select min(n) from p)",
    ]
    if shape == "sets":
        word = draw(st.sampled_from(["union", "union all", "intersect", "minus"]))
        texts, sqls = [], []
        for alias, part in parts.items():
            own = [(term, kind) for term, kind in terms if term.startswith(alias)]
            condition = draw(_conditions(own))
            numbers = [f"{alias}.id", f"{alias}.v", f"coalesce({alias}.v, {alias}.id)"]
            shown = f"select {draw(st.sampled_from(numbers))} as c0, {alias}.k as c1 from "
            texts.append(f"{shown}{part}{_conditional([asked.get(alias, '')], condition)}")
            sqls.append(f"{shown}{tables[alias]}{_conditional([], condition)}")
        order = draw(_ordered(["c0", "c1"]))
        text, sql = (f" {each} ".join(some) for each, some in ((word, texts), (word.replace("minus", "except"), sqls)))
        return Case(text + order, sql + order, chains, streams, statuses, draw(events()))
    meets, of_parts, of_tables = [], ", ".join(parts.values()), ", ".join(tables.values())
    if shape in {"two", "self"}:
        meets = [draw(st.sampled_from(["x.k = y.k", "x.id < y.id", "x.v = y.v and x.id != y.id"]))]
    if shape in {"table", "left"}:
        terms += [("p.n", "number"), ("p.k", "text")]
        join = ", p" if shape == "table" else f" left join p on x.k = p.k{draw(st.sampled_from(['', ' and p.n > 1']))}"
        meets = ["x.k = p.k"] if shape == "table" else []
        of_parts, of_tables = of_parts + join, of_tables + join
    selected, rest, columns = draw(_selects(terms, inner))
    order = draw(_ordered(columns))
    text = f"select {selected} from {of_parts}{_conditional([*asked.values(), *meets], rest)}{order}"
    sql = f"select {selected} from {of_tables}{_conditional(meets, rest)}{order}"
    return Case(text, sql, chains, streams, statuses, draw(events()))


_PATTERNS = [
    {"x": True, "y": True},
    {"x": True, "y": False},
    {"y": True, "x": False},
    {"x": True, "y": True, "z": True},
    {"x": True, "y": True, "z": False},
    {"x": True, "y": False, "z": False},
    {"z": True, "x": False},
]


@st.composite
def alerting(draw: st.DrawFn) -> Case:
    """A query over an alert of two or three partitions."""
    streams = {"x": "s", "y": "r"} | ({"z": draw(st.sampled_from("sr"))} if draw(st.booleans()) else {})
    chains = {alias: draw(_chains(counts=False)) for alias in streams}
    known = [each for each in _PATTERNS if {*each} <= {*streams}]
    patterns = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique_by=str))
    columns = [("xk", "x", "k"), *((f"{alias}v", alias, "v") for alias in streams), ("yid", "y", "id")]
    terms = [(name, "text" if column == "k" else "number") for name, _, column in columns]
    selected, rest, order = draw(_selects(terms, []))
    behind = f"{_conditional([], rest)}{draw(_ordered(order))}"
    shown = ", ".join(f"{alias}.{column} as {name}" for name, alias, column in columns)
    using = ", ".join(
        f"{stream} {_written(chains[alias])} as {alias} correlate on k" for alias, stream in streams.items()
    )
    when = " or ".join(
        f"present({' and '.join('not ' * (not there) + alias for alias, there in each.items())})" for each in patterns
    )
    return Case(
        f"select {selected} from alert {shown} using {using} when {when}{behind}",
        f"select {selected} from fired{behind}",
        chains,
        streams,
        {},
        draw(events()),
        patterns,
        columns,
    )
