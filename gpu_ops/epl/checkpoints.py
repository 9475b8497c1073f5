"""Checkpoints of runtimes: types, the clock, and the statements with what their operators hold.

The file is that of running queries (`gpu_ops.engines.live.checkpoints`). A statement is its text: its plan is made
anew, and has to be the one that it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from gpu_ops.core.bounds import Bounds
from gpu_ops.core.json_kinds import ANY, TEXT, TIME, TRUTH, Many, Maybe, Object, Whole
from gpu_ops.core.state_tables import OLDER
from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.core.turns import CLOCK, INSTANCE, PLACE, TURN
from gpu_ops.engines.live.checkpoints import read_checkpoint, write_checkpoint
from gpu_ops.engines.live.facts import check_facts
from gpu_ops.engines.live.restoring import check_plan, check_rows, ours, restore_node, split
from gpu_ops.epl.contexts import RunningContext
from gpu_ops.epl.deployments import Deployments
from gpu_ops.epl.groups import OWNER, STATE, StatementGroup
from gpu_ops.epl.kept_rows import BY, ENTER
from gpu_ops.epl.named_windows import RunningWindow
from gpu_ops.epl.parsing import parse
from gpu_ops.epl.planning.known_windows import SILENT
from gpu_ops.epl.planning.variables import KnownVariable
from gpu_ops.epl.running import RunningStatement
from gpu_ops.epl.service import Service, Turns
from gpu_ops.errors import ColumnError, QueryFailedError, SourceError, TextError
from gpu_ops.operators.runtime.steps import RunningNode
from gpu_ops.texts.placed_error import shown_in

_STATEMENT = Object(
    {
        "name": TEXT,
        "text": TEXT,
        "since": TIME,
        "plan": Many(TEXT),
        "failed": Maybe(TEXT),
        "keeps": TRUTH,
        "home": TEXT,
        "offset": Whole(MIN_TIME, MAX_TIME),
    },
    {"number": Whole(), "ctis": Many(TIME), "given": Many(Whole()), "part_of": TEXT},
)
_CONTEXT = Object(
    {"text": TEXT, "since": TIME, "plan": Many(TEXT), "on": TRUTH}, {"ctis": Many(TIME), "given": Many(Whole())}
)
_WINDOW = Object({"name": TEXT, "orphans": TRUTH, "ctis": Many(TIME), "given": Many(Whole())})
_CLOCK = Whole(MIN_TIME // 1000, MAX_TIME // 1000)
_RUNTIME = Object(
    {
        "clock": _CLOCK,
        "system": TRUTH,
        "isolated": Object(others=_CLOCK),
        "turn": Whole(0, MAX_TIME // TURN - 1),
        "count": Whole(),
        "irstream": TRUTH,
        "statements": Many(_STATEMENT),
        "expressions": Many(TEXT),
        "constants": Many(TEXT),
    },
    {
        "contexts": Many(_CONTEXT),
        "windows": Many(_WINDOW),
        "groups": Many(Object({"template": TEXT, "home": TEXT, "plan": Many(TEXT), "keeps": TRUTH})),
    },
    ANY,
)
_TYPE = "type/"
_VARIABLES = "variables"
_ALIVE = "instances "
_IN_INSTANCES = "in instances "
_WINDOWS = "kept in window "
_OWN = (CLOCK, PLACE, SILENT, ENTER, BY)


@dataclass(frozen=True)
class RuntimeFacts:
    """What a checkpoint says of a runtime beside what is deployed: its clock, its turns, and its isolated services."""

    clock: int
    system: bool
    turn: int
    isolated: Mapping[str, int]


def write_runtime(
    path: Path, deployments: Deployments, turns: Turns, services: Sequence[Service], keep: int | None
) -> None:
    """Write all that a runtime holds, but for listeners. A failed statement has no state.

    Args:
        path: The file.
        deployments: The types and the statements.
        turns: The turns.
        services: The runtime's own service, and the isolated ones.
        keep: How many checkpoints are kept.
    """
    own, *isolated = services
    types = {name: each for name, each in deployments.types.items() if name not in deployments.windows}
    tables = {f"{_TYPE}{name}": schema.empty_table() for name, schema in types.items()}
    statements = list(deployments.alone.values())
    for number, each in enumerate(statements):
        tables |= _tables(number, each)
    contexts = list(deployments.contexts.values())
    for number, context in enumerate(contexts):
        if context.is_on:
            tables |= _of_nodes(_context_prefixes(number, context.nodes), context.nodes)
            tables[f"{_ALIVE}{number}"] = context.table()
    in_instances = deployments.variables.of_contexts.tables()
    tables |= {f"{_IN_INSTANCES}{name}": table for name, table in in_instances.items() if len(table)}
    windows = list(deployments.windows.values())
    for number, window in enumerate(windows):
        tables |= _of_nodes(_window_prefixes(number, window.nodes), window.nodes)
        tables |= {f"{_WINDOWS}{number} {name}": table for name, table in window.tables().items() if len(table)}
    groups = list(deployments.groups.values())
    for number, group in enumerate(groups):
        state = zip(_group_tables(number), group.state(), strict=True)
        tables |= {name: table for name, table in state if table is not None}
    facts = {
        "clock": own.clock,
        "system": own.system,
        "isolated": {each.name: each.clock for each in isolated},
        "turn": turns.next,
        "count": deployments.count,
        "irstream": deployments.irstream,
        "statements": list(map(_facts, statements)),
        "contexts": list(map(_context_facts, contexts)),
        "windows": list(map(_window_facts, windows)),
        "groups": list(map(_group_facts, groups)),
        "constants": [name for name, each in deployments.variables.known.items() if each.constant],
        "expressions": [f"create {each.declaration}" for each in deployments.declared.values()],
    }
    if deployments.variables.known:
        tables[_VARIABLES] = deployments.variables.table([*deployments.variables.known])
    write_checkpoint(path, facts, tables, keep=keep)


def _group_facts(group: StatementGroup) -> dict[str, Any]:
    plan = group.explain().splitlines()
    return {"template": group.text, "home": group.home, "plan": plan, "keeps": group.kept is not None}


def _group_tables(number: int) -> tuple[str, str, str]:
    """The names of a group's tables: its statements, what they keep, and what it keeps."""
    return f"group {number}", f"group {number} kept", f"group {number} deliveries"


def _facts(statement: RunningStatement) -> dict[str, Any]:
    facts = {
        "name": statement.name,
        "number": statement.number,
        "text": statement.text,
        "since": statement.since,
        "plan": [node.describe() for node in statement.plan.node.walk()],
        "failed": None if statement.failed is None else str(statement.failed),
        "keeps": statement.kept is not None,
        "home": statement.home,
        "offset": statement.offset,
    }
    if statement.part_of:
        facts["part_of"] = statement.part_of
    if statement.failed is None:
        facts["ctis"] = [each.cti for each in statement.nodes]
        facts["given"] = [each.given for each in statement.nodes]
    return facts


def _tables(number: int, statement: RunningStatement) -> dict[str, pa.Table]:
    made: dict[str, pa.Table] = {}
    if statement.failed is None:
        made |= _of_nodes(_prefixes(number, statement), statement.nodes)
    if statement.kept:
        made[f"kept {number}"] = pa.concat_tables(statement.kept)
    return made


def _of_nodes(prefixes: Sequence[str], nodes: Sequence[RunningNode]) -> dict[str, pa.Table]:
    """What nodes hold, under names that begin with their prefixes."""
    made: dict[str, pa.Table] = {}
    for prefix, node in zip(prefixes, nodes, strict=True):
        if node.own is not None:
            made |= {f"{prefix}{name}": table for name, table in node.own.tables().items()}
    return made


def _context_facts(context: RunningContext) -> dict[str, Any]:
    facts = {
        "text": context.text,
        "since": context.since,
        "plan": [node.describe() for node in context.known.node.walk()],
        "on": context.is_on,
    }
    if context.is_on:
        facts["ctis"] = [each.cti for each in context.nodes]
        facts["given"] = [each.given for each in context.nodes]
    return facts


def _context_prefixes(number: int, nodes: Sequence[RunningNode]) -> list[str]:
    return [f"context {number}/{at}/" for at in range(len(nodes))]


def _window_facts(window: RunningWindow) -> dict[str, Any]:
    ctis, given = [each.cti for each in window.nodes], [each.given for each in window.nodes]
    return {"name": window.known.name, "orphans": window.orphans, "ctis": ctis, "given": given}


def _window_prefixes(number: int, nodes: Sequence[RunningNode]) -> list[str]:
    return [f"window {number}/{at}/" for at in range(len(nodes))]


def _prefixes(number: int, statement: RunningStatement) -> list[str]:
    """What the names of the tables of each node begin with."""
    return [f"statement {number}/{at}/" for at in range(len(statement.nodes))]


def read_runtime(path: Path, bounds: Bounds, deployments: Deployments) -> RuntimeFacts:
    """Take over what a checkpoint has into deployments that are empty.

    Raises:
        SourceError: There is no checkpoint, or it is damaged, or it is none of a runtime.
    """
    with ours(path):
        facts, tables = read_checkpoint(path, bounds)
        if "statements" not in facts:
            raise SourceError(
                f"The checkpoint {path} is none of a runtime.", remedy="Restore a running query by gpu_ops.restore."
            )
        check_facts(path, facts, _RUNTIME)
        deployments.irstream = facts["irstream"]
        with _damaged(path):
            for name, table in tables.items():
                if name.startswith(_TYPE):
                    deployments.add_type(name.removeprefix(_TYPE), table.schema)
            if _VARIABLES in tables:
                _restore_variables(path, tables[_VARIABLES], facts["constants"], deployments)
            for text in facts["expressions"]:
                deployments.create(text)
            for each in facts.get("contexts", []):
                deployments.create(each["text"], each["since"])
        contexts = list(deployments.contexts.values())
        for context, said in zip(contexts, facts.get("contexts", []), strict=True):
            check_plan(path, said, [node.describe() for node in context.known.node.walk()])
            if said["on"]:
                context.begin()
        made = [_restored(path, each, at + 1, deployments) for at, each in enumerate(facts["statements"])]
        for number, group in enumerate(facts.get("groups", ())):
            _restore_group(path, group, number, facts, tables, deployments)
        deployments.renumber()
        deployments.count = facts["count"]
        _restore_states(path, facts, tables, made, contexts, deployments, trusted=bounds.trust)
    return RuntimeFacts(facts["clock"], facts["system"], facts["turn"], facts["isolated"])


def _restore_variables(path: Path, table: pa.Table, constants: list[str], deployments: Deployments) -> None:
    """The variables with their values."""
    if len(table) != 1:
        raise SourceError(f"The checkpoint {path} is damaged: its variables have {len(table)} values.", remedy=OLDER)
    for each in table.schema:
        value = table[each.name][0].as_py()
        deployments.variables.known[each.name] = KnownVariable(each.type, value, each.name in constants)


def _restore_group(
    path: Path,
    said: Mapping[str, Any],
    number: int,
    facts: Mapping[str, Any],
    tables: Mapping[str, pa.Table],
    deployments: Deployments,
) -> None:
    """The statements of a group, with what they keep."""
    whose, apart, together = _group_tables(number)
    _check_home(path, said["home"], facts)
    with _damaged(path), shown_in(said["template"]):
        (template,) = parse(said["template"])
        group = deployments.group(template, said["home"])
    if group is None or len(group):
        raise SourceError(f"The checkpoint {path} is damaged: {said['template']} is no group of its own.", remedy=OLDER)
    check_plan(path, said, group.explain().splitlines())
    check_rows(path, tables, whose, [pa.schema([*STATE, *group.asked.constants])], "statements of a group")
    check_rows(path, tables, apart, [group.own_kept_schema], "deliveries")
    check_rows(path, tables, together, [group.kept_schema], "deliveries")
    table = tables.get(whose)
    if table is None or not len(table) or any(table[name].null_count for name in STATE.names[:-1]):
        raise SourceError(f"The checkpoint {path} is damaged: a group lacks its statements.", remedy=OLDER)
    names = table["@name"].to_pylist()
    if len({*names, *deployments.statements}) < len(names) + len(deployments.statements):
        raise SourceError(f"The checkpoint {path} is damaged: it has two statements of one name.", remedy=OLDER)
    if apart in tables and not 0 <= min(tables[apart][OWNER].to_pylist()) <= max(
        tables[apart][OWNER].to_pylist()
    ) < len(table):
        raise SourceError(f"The checkpoint {path} is damaged: deliveries are of no statement.", remedy=OLDER)
    deployments.restore_group(group, table, tables.get(apart))
    if said["keeps"]:
        group.kept = [tables[together]] if together in tables else []


def _restored(path: Path, facts: Mapping[str, Any], at: int, deployments: Deployments) -> RunningStatement:
    """A statement of a checkpoint, without its state."""
    with _damaged(path):
        (statement,) = parse(facts["text"])
        if facts["name"] in deployments.alone:
            raise SourceError(
                f"The checkpoint {path} is damaged: it has two statements {facts['name']!r}.", remedy=OLDER
            )
        with shown_in(facts["text"]):
            plan = deployments.planned(statement, facts["since"])
            check_plan(path, facts, [node.describe() for node in plan.node.walk()])
            part_of = facts.get("part_of", "")
            made = deployments.add(facts["name"], statement, plan, facts["since"], part_of=part_of)
            made.number = facts.get("number", at)
            return made


def _restore_states(
    path: Path,
    facts: Mapping[str, Any],
    tables: Mapping[str, pa.Table],
    statements: list[RunningStatement],
    contexts: list[RunningContext],
    deployments: Deployments,
    *,
    trusted: bool,
) -> None:
    kept = {f"kept {number}" for number in range(len(statements))}
    kept |= {f"{_ALIVE}{number}" for number in range(len(contexts))}
    state = {
        name: table
        for name, table in tables.items()
        if not name.startswith((_TYPE, _WINDOWS, _IN_INSTANCES, "group ")) and name not in {*kept, _VARIABLES}
    }
    prefixes = [prefix for number, each in enumerate(statements) for prefix in _prefixes(number, each)]
    running = [(number, each) for number, each in enumerate(contexts) if each.is_on]
    prefixes += [prefix for number, each in running for prefix in _context_prefixes(number, each.nodes)]
    windows = list(deployments.windows.values())
    prefixes += [prefix for number, each in enumerate(windows) for prefix in _window_prefixes(number, each.nodes)]
    parts = split(path, state, prefixes)
    _restore_windows(path, facts, tables, windows, parts, trusted=trusted)
    for name, known in deployments.variables.of_contexts.known.items():
        schema = pa.schema([(INSTANCE, pa.int64()), ("value", known.type)])
        check_rows(path, tables, f"{_IN_INSTANCES}{name}", [schema], "values in instances")
        if f"{_IN_INSTANCES}{name}" in tables:
            deployments.variables.of_contexts.restored(name, tables[f"{_IN_INSTANCES}{name}"].sort_by(INSTANCE))
    for number, context in running:
        name = f"{_ALIVE}{number}"
        check_rows(path, tables, name, [context.known.node.schema], "instances")
        if name in tables:
            context.restored(tables[name])
        said = facts["contexts"][number]
        named = _context_prefixes(number, context.nodes)
        _restore_nodes(path, facts, said, context.nodes, named, parts, trusted=trusted)
    for number, (statement, said) in enumerate(zip(statements, facts["statements"], strict=True)):
        _check_home(path, said["home"], facts)
        statement.home, statement.offset = said["home"], said["offset"]
        check_rows(path, tables, f"kept {number}", [statement.kept_schema], "deliveries")
        if said["keeps"]:
            statement.kept = [tables[f"kept {number}"]] if f"kept {number}" in tables else []
        if said["failed"] is not None:
            statement.failed = QueryFailedError(said["failed"], remedy="Undeploy it, and deploy it again.")
            continue
        statement.begun = statement.plan.context is not None
        named = _prefixes(number, statement)
        _restore_nodes(path, facts, said, statement.nodes, named, parts, trusted=trusted)


def _restore_windows(
    path: Path,
    facts: Mapping[str, Any],
    tables: Mapping[str, pa.Table],
    windows: Sequence[RunningWindow],
    parts: Mapping[str, Mapping[str, pa.Table]],
    *,
    trusted: bool,
) -> None:
    """The rows of named windows, and what their data windows hold."""
    if [each.known.name for each in windows] != [each["name"] for each in facts.get("windows", [])]:
        raise SourceError(f"The checkpoint {path} is damaged: it has other named windows.", remedy=OLDER)
    for number, (window, said) in enumerate(zip(windows, facts.get("windows", []), strict=True)):
        rows = {part: f"{_WINDOWS}{number} {part}" for part in window.tables()}
        for part, schema in window.schemas().items():
            check_rows(path, tables, rows[part], [schema], "rows of a named window")
        found = {part: tables[name] for part, name in rows.items() if name in tables}
        for part in ("rows", "waiting"):
            numbers = found[part][PLACE].to_pylist() if part in found else []
            if any(found[part][each].null_count for each in _OWN if part in found) or len({*numbers}) < len(numbers):
                raise SourceError(f"The checkpoint {path} is damaged: rows of a named window are one.", remedy=OLDER)
        window.restored(found, facts["turn"] * TURN, orphans=said["orphans"])
        prefixes_of = _window_prefixes(number, window.nodes)
        _restore_nodes(path, facts, said, window.nodes, prefixes_of, parts, trusted=trusted)


def _restore_nodes(
    path: Path,
    facts: Mapping[str, Any],
    said: Mapping[str, Any],
    nodes: Sequence[RunningNode],
    prefixes: Sequence[str],
    parts: Mapping[str, Mapping[str, pa.Table]],
    *,
    trusted: bool,
) -> None:
    """Restore what nodes held."""
    count = len(nodes)
    places = Many(Whole(MIN_TIME, facts["turn"] * TURN), count)
    check_facts(path, said, Object({"ctis": places, "given": Many(Whole(), count)}, others=ANY))
    for at, (prefix, node) in enumerate(zip(prefixes, nodes, strict=True)):
        node.cti, node.given = said["ctis"][at], said["given"][at]
        restore_node(path, at, node, parts[prefix], trusted=trusted)


def _check_home(path: Path, home: str, facts: Mapping[str, Any]) -> None:
    if home and home not in facts["isolated"]:
        raise SourceError(f"The checkpoint {path} is damaged: there is no isolated service {home!r}.", remedy=OLDER)


@contextmanager
def _damaged(path: Path) -> Iterator[None]:
    """What a text or a type is refused for is damage to the checkpoint."""
    try:
        yield
    except (TextError, ColumnError) as error:
        raise SourceError(f"The checkpoint {path} is damaged: {error}", remedy=OLDER) from error
