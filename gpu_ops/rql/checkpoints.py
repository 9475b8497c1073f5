"""Checkpoints of runtimes: streams, tables, the clock, and the queries with what their operators hold.

The file is that of running queries (`gpu_ops.engines.live.checkpoints`). A query is its text and its settings: its plan
is made anew, and has to be the one that it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from gpu_ops.core.bounds import Bounds
from gpu_ops.core.json_kinds import ANY, TEXT, TIME, TRUTH, Many, Maybe, Object, Whole
from gpu_ops.core.state_tables import OLDER
from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.core.turns import TURN
from gpu_ops.engines.live.checkpoints import read_checkpoint, write_checkpoint
from gpu_ops.engines.live.facts import check_facts
from gpu_ops.engines.live.fingerprints import functions_held
from gpu_ops.engines.live.restoring import check_plan, check_rows, ours, restore_node, split
from gpu_ops.errors import QueryFailedError, SourceError
from gpu_ops.rql.running import RunningCycles

_CLOCK = Whole(MIN_TIME // 1000, MAX_TIME // 1000)
_QUERY = Object(
    {
        "name": TEXT,
        "text": TEXT,
        "settings": Object(others=ANY),
        "plan": Many(TEXT),
        "failed": Maybe(TEXT),
        "keeps": TRUTH,
    },
    {"ctis": Many(TIME), "given": Many(Whole()), "functions": Object(others=TEXT)},
)
_FACTS = Object(
    {
        "clock": _CLOCK,
        "begun": _CLOCK,
        "turn": Whole(0, MAX_TIME // TURN - 1),
        "refresh": Whole(1),
        "times": Object(others=TEXT),
        "cycles": Many(_QUERY),
    },
    {},
    ANY,
)
_STREAM, _TABLE = "stream/", "table/"
EPOCH = "@epoch"
"""The column of a table's rows with the milliseconds at which partitions' conditions see them."""


@dataclass(frozen=True)
class WrittenRuntime:
    """What a checkpoint says of a runtime.

    Attributes:
        facts: Its clock, its turns, and its queries.
        tables: All tables of the file.
        streams: The columns of streams, by their names.
        contents: The rows of plain tables, by their names, with the column `EPOCH`.
    """

    facts: Mapping[str, Any]
    tables: Mapping[str, pa.Table]
    streams: Mapping[str, pa.Schema]
    contents: Mapping[str, pa.Table]


def write_cycles(
    path: Path,
    facts: Mapping[str, Any],
    streams: Mapping[str, pa.Schema],
    contents: Mapping[str, pa.Table],
    queries: Sequence[RunningCycles],
    keep: int | None,
) -> None:
    """Write all that a runtime holds, but for listeners. A failed query has no state.

    Args:
        path: The file.
        facts: The clock, the turns, and so on.
        streams: The columns of streams.
        contents: The rows of plain tables.
        queries: The queries.
        keep: How many checkpoints are kept.
    """
    tables = {f"{_STREAM}{name}": schema.empty_table() for name, schema in streams.items()}
    tables |= {f"{_TABLE}{name}": table for name, table in contents.items()}
    for number, query in enumerate(queries):
        if query.failed is None:
            for prefix, node in zip(_prefixes(number, query), query.nodes, strict=True):
                if node.own is not None:
                    tables |= {f"{prefix}{name}": table for name, table in node.own.tables().items()}
        if query.kept:
            tables[f"kept {number}"] = pa.concat_tables(query.kept)
    write_checkpoint(path, {**facts, "cycles": list(map(_facts, queries))}, tables, keep=keep)


def _facts(query: RunningCycles) -> dict[str, Any]:
    facts = {
        "name": query.name,
        "text": query.text,
        "settings": query.settings,
        "plan": query.explain().splitlines(),
        "failed": None if query.failed is None else str(query.failed),
        "keeps": query.kept is not None,
        "functions": functions_held(query.plan.node),
    }
    if query.failed is None:
        return {**facts, "ctis": [each.cti for each in query.nodes], "given": [each.given for each in query.nodes]}
    return facts


def _prefixes(number: int, query: RunningCycles) -> list[str]:
    """What the names of the tables of each node begin with."""
    return [f"query {number}/{at}/" for at in range(len(query.nodes))]


def read_cycles(path: Path, bounds: Bounds) -> WrittenRuntime:
    """What a checkpoint has, before its queries are made.

    Raises:
        SourceError: There is no checkpoint, or it is damaged, or it is none of a runtime of queries in cycles.
    """
    with ours(path):
        facts, tables = read_checkpoint(path, bounds)
        if "cycles" not in facts:
            raise SourceError(
                f"The checkpoint {path} is none of a runtime of queries in cycles.",
                remedy="Restore it with what wrote it: gpu_ops.restore, or epl.Runtime.restore.",
            )
        check_facts(path, facts, _FACTS)
        streams = {name.removeprefix(_STREAM): each.schema for name, each in tables.items() if name.startswith(_STREAM)}
        contents = {name.removeprefix(_TABLE): each for name, each in tables.items() if name.startswith(_TABLE)}
        for name, each in contents.items():
            known = each.schema.names[-1:] == [EPOCH] and each.schema.field(EPOCH).type == pa.int64()
            if not known or each[EPOCH].null_count:
                raise SourceError(f"The checkpoint {path} is damaged: the table {name!r}.", remedy=OLDER)
    return WrittenRuntime(facts, tables, streams, contents)


def restore_cycles(path: Path, written: WrittenRuntime, queries: Sequence[RunningCycles], *, trusted: bool) -> None:
    """Have queries that were made anew hold what they held.

    Raises:
        SourceError: The checkpoint is damaged, or this version of gpu_ops plans a query otherwise than the one that
            wrote it.
    """
    facts, tables = written.facts, written.tables
    with ours(path):
        own = {name: table for name, table in tables.items() if name.startswith("query ")}
        alive = [(at, each) for at, each in enumerate(queries) if facts["cycles"][at]["failed"] is None]
        parts = split(path, own, [prefix for at, each in alive for prefix in _prefixes(at, each)])
        for number, (query, said) in enumerate(zip(queries, facts["cycles"], strict=True)):
            check_plan(path, said, query.explain().splitlines())
            now = functions_held(query.plan.node)
            then = said.get("functions", now)
            if changed := sorted(name for name in {*then, *now} if then.get(name) != now.get(name)):
                raise SourceError(
                    f"The checkpoint {path} was made with other functions: {', '.join(changed)} changed.",
                    remedy="Restore it with the functions as they were: aggregates={…}.",
                )
            check_rows(path, tables, f"kept {number}", [query.result_schema], "results")
            if said["keeps"]:
                query.kept = [tables[f"kept {number}"]] if f"kept {number}" in tables else []
            if said["failed"] is not None:
                query.failed = QueryFailedError(said["failed"], remedy="Unregister it, and register it again.")
                continue
            count = len(query.nodes)
            places = Many(Whole(MIN_TIME, MAX_TIME), count)
            check_facts(path, said, Object({"ctis": places, "given": Many(Whole(), count)}, others=ANY))
            for at, (prefix, node) in enumerate(zip(_prefixes(number, query), query.nodes, strict=True)):
                node.cti, node.given = said["ctis"][at], said["given"][at]
                restore_node(path, at, node, parts[prefix], trusted=trusted)
