"""Queries on demand: what named windows and tables hold now, and changes of them that no event triggers."""

from __future__ import annotations

import re

import pyarrow as pa

from gpu_ops.core.turns import HELD, ROW
from gpu_ops.engines.local.placing import place
from gpu_ops.epl.kept_rows import WindowMoves
from gpu_ops.epl.parsing import parse
from gpu_ops.epl.planning.parts import parts
from gpu_ops.epl.queries import Query, StreamTerm
from gpu_ops.epl.running import placed_table
from gpu_ops.epl.service import Service
from gpu_ops.errors import PlanError, TextError
from gpu_ops.operators.runtime.steps import running
from gpu_ops.plan.nodes import Feed
from gpu_ops.texts.feeding import leaves_of, stepped_node
from gpu_ops.texts.placed_error import failure_at, shown_in, unsupported

_ASKED = "@asked"
"""The type of the event that stands for the one which is not there."""

_CHANGES = re.compile(r"\s*(?:(delete|update)\b|insert\s+into\s+(`[^`]*`|\w+))", re.IGNORECASE)


def queried(service: Service, text: str) -> pa.Table:
    """What a query on demand gives. See `gpu_ops.epl.calls.ServiceCalls.query`."""
    changes = _CHANGES.match(text)
    if changes is None:
        return _selected(service, text)
    before = f"on `{_ASKED}` " + ("" if changes[1] else f"merge {changes[2]} ")
    return _changed(service, text, before)


def _selected(service: Service, text: str) -> pa.Table:
    """The rows of a query over what is there."""
    deployments = service.deployments
    (statement, *more) = parse(text)
    with shown_in(text):
        query = statement.body
        if more or not isinstance(query, Query):
            raise failure_at(
                more[0] if more else statement, "A query on demand is one select, insert, update or delete."
            )
        for each in (query.output, query.insert, query.recognize):
            if each is not None:
                raise unsupported(each, "outputs, inserts and match_recognize in queries on demand")
        for part in parts(query):
            if isinstance(part, StreamTerm) and getattr(part.source, "type_name", "") not in deployments.windows:
                raise failure_at(part, f"{part.source} is no named window and no table.", "Keep its events in one.")
        plan = deployments.planned(statement, service.clock * 1000)
        device = place(plan.node, deployments.device)
    held: dict[Feed, WindowMoves] = {}
    for name in plan.reads:
        held |= deployments.windows[name].whole()
    ticks = service.tick_rows(ask=True)
    node, until = running(plan.node, device), int(ticks.places[0]) + 1
    made = placed_table(
        stepped_node(node, device, leaves_of(plan.node), held, (deployments.ticks, ticks), until),
        plan.node.schema,
        device,
    )
    names = [f"@column {at}" for at in range(len(plan.columns))]
    rows = made.filter(pa.array(made[ROW].to_numpy() == HELD))
    return rows.select(names).rename_columns(plan.columns.names)


def _changed(service: Service, text: str, before: str) -> pa.Table:
    """The rows that a change brings in, or takes out."""
    deployments = service.deployments
    if _ASKED not in deployments.types:
        deployments.add_type(_ASKED, pa.schema([]))
    count = deployments.count
    try:
        (statement, *more) = service.deploy(before + text)
    except TextError as error:
        at = max(error.at - len(before), 0)
        raise TextError(error.problem, text=text, at=at, remedy=error.remedy, construct=error.construct) from None
    try:
        if more:
            raise PlanError("The text has several statements.", remedy="Ask one at a time.")
        sent = service.send(_ASKED, {})
    finally:
        for each in (statement, *more):
            deployments.undeploy(each.name)
        deployments.count = count
    found = [each for each in sent if each.statement == statement.name]
    rows = [each.new if each.new is not None else each.old for each in found]
    return pa.concat_tables([statement.schema.empty_table(), *(each for each in rows if each is not None)])
