"""Restoring a running query from a checkpoint, which is a file and is checked before it is believed."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa

from gpu_ops.core.state_parts import Parts, doubtful, in_parts
from gpu_ops.core.state_tables import OLDER, Field, StateTable, Tables, check
from gpu_ops.devices import Device
from gpu_ops.engines.live.facts import PLAN, check_facts
from gpu_ops.engines.live.inputs import Input
from gpu_ops.engines.local.engine import from_table, output_schema
from gpu_ops.errors import GpuOpsError, SourceError
from gpu_ops.ingest import ingress_state
from gpu_ops.ingest.ingress import Ingress
from gpu_ops.operators.runtime.steps import RunningNode
from gpu_ops.operators.state.fields import TIME

T = TypeVar("T")


@contextmanager
def ours(path: Path | str) -> Iterator[None]:
    """Turn any library's error within the block into `SourceError`: the checkpoint cannot be restored.

    The checkpoint was checked before; this catches what the checks have missed.
    """
    try:
        yield
    except GpuOpsError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:
        raise SourceError(
            f"The checkpoint {path} cannot be restored, and is likely to be damaged: {type(error).__name__}: {error}.",
            remedy=OLDER,
        ) from error


def check_plan(path: Path | str, facts: Mapping[str, Any], now: Sequence[str]) -> None:
    """Refuse a checkpoint of another plan.

    Raises:
        SourceError: The plans differ; the error shows how.
    """
    check_facts(path, facts, PLAN)
    if facts["plan"] != now:
        shown = "\n".join(line for line in difflib.ndiff(facts["plan"], now) if line[:1] in "+-")
        raise SourceError(
            f"The checkpoint {path} is of another plan (- then, + now):\n{shown}",
            remedy="Restore it with the query that wrote it, or start the new one afresh.",
        )


def split(path: Path | str, state: Mapping[str, T], prefixes: Sequence[str]) -> dict[str, dict[str, T]]:
    """The tables of a state, or their parts, by their owner, a node or an input.

    Args:
        path: The checkpoint.
        state: All of them.
        prefixes: The prefix of each owner's table names.

    Raises:
        SourceError: A table has no owner.
    """
    made: dict[str, dict[str, T]] = {prefix: {} for prefix in prefixes}
    for name, table in state.items():
        owner = max((prefix for prefix in prefixes if name.startswith(prefix)), key=len, default=None)
        if owner is None:
            raise SourceError(
                f"The checkpoint {path} is damaged: its table {name!r} is of no part of the query.", remedy=OLDER
            )
        made[owner][name.removeprefix(owner)] = table
    return made


def restore_node(path: Path | str, number: int, node: RunningNode, tables: Tables, *, trusted: bool) -> None:
    """Check a node's tables, and restore the node from them.

    Raises:
        SourceError: The tables do not fit the node's declaration.
    """
    put_node_back(path, number, node, in_parts(tables), trusted=trusted)


def put_node_back(path: Path | str, number: int, node: RunningNode, parts: Parts, *, trusted: bool) -> None:
    """The same for tables in parts: those with a name keep it.

    Raises:
        SourceError: As `restore_node`.
    """
    if node.own is None:
        return
    of = f"The checkpoint {path} is damaged: node {number} ({node.node.describe()})"
    check(of, doubtful(parts, node.own.entire_tables), node.own.declared, trusted=trusted)
    node.own.put_back(parts)


def restore_input(path: Path | str, known: Input, tables: Tables, device: Device) -> None:
    """Check an input's tables, and restore its ingress and its waiting events from them.

    Raises:
        SourceError: The tables do not fit the input's declaration.
    """
    before = known.ingress

    def declared(given: Tables) -> Iterator[StateTable]:
        yield from ingress_state.declared(known.source.schema, before.settings.per, given)
        yield from waiting_declared(known)

    check(f"The checkpoint {path} is damaged: input {known.name!r}", tables, declared)
    known.restored(Ingress.restore(before.settings, known.source.schema, tables, hands_out_open=before.hands_out_open))
    for name, pieces in known.waiting().items():
        if name in tables:
            pieces.append(from_table(tables[name], device))


def waiting_declared(known: Input) -> Iterator[StateTable]:
    """The tables of the events that wait for a step."""
    late = known.diverts
    for name in known.waiting() if known.leaves else ():
        if late if name == "late" else not known.late_alone:
            start, end, *payload = output_schema(known.leaf(late=name == "late"))
            columns = {
                "start": Field(start.type, least=TIME.least, most=TIME.most),
                "end": Field(end.type, least=TIME.least, most=TIME.most, above="start"),
            }
            yield StateTable(name, columns | {each.name: Field(each.type, nullable=True) for each in payload})


def check_rows(
    path: Path | str, tables: Mapping[str, pa.Table], name: str, schemas: Sequence[pa.Schema], what: str
) -> None:
    """Check the columns of rows that are passed on unread: they have one of some schemas.

    Raises:
        SourceError: They have none of them.
    """
    if name not in tables:
        return
    found = tables[name].schema
    if not any(found.names == each.names and found.types == each.types for each in schemas):
        raise SourceError(
            f"The checkpoint {path} does not go with the query: its table {name!r} has the columns "
            f"{', '.join(map(str, found))}, and {what} have {', '.join(map(str, schemas[0]))}.",
            remedy="Restore it with the query and the shape= that it was made with, or restore an older one.",
        )
