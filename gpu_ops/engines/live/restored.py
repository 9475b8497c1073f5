"""Running queries made of checkpoints: of a file, of a folder, or of a state whose manifest somebody else keeps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from gpu_ops.checkpoints.cache import Cache
from gpu_ops.checkpoints.saved_states import SavedState
from gpu_ops.core.bounds import TRUSTLESS, Bounds
from gpu_ops.core.state_parts import Parts, in_parts
from gpu_ops.core.version import VERSION
from gpu_ops.engines.live.checkpoints import read_checkpoint
from gpu_ops.engines.live.fingerprints import IfFunctionsChanged
from gpu_ops.engines.live.restoring import ours
from gpu_ops.engines.live.running_query import RunningQuery
from gpu_ops.engines.live.saving import load_state, opened
from gpu_ops.engines.local.shapes import Shape
from gpu_ops.errors import PlanError
from gpu_ops.microbatches.folders import Folder
from gpu_ops.plan.nodes import Node, merged

Read = Callable[[], tuple[Mapping[str, Any], Parts]]


@dataclass(frozen=True)
class Start:
    """How a query is started; as in `gpu_ops.api.execution.Execution.start`, and `gpu_ops.restore`.

    Attributes:
        node: The plan.
        device: Where it runs.
        on_results: Who is given its results.
        shape: The shape of these.
        max_waiting: How many rows may wait.
        if_functions_changed: Whether a function that has changed is an error.
    """

    node: Node
    device: str = "auto"
    on_results: Callable[[pa.Table], None] | None = None
    shape: Shape = "interval"
    max_waiting: int | None = None
    if_functions_changed: IfFunctionsChanged = "raise"

    def made(self, node: Node) -> RunningQuery:
        """A new query."""
        return RunningQuery(node, self.device, self.on_results, self.shape, self.max_waiting)


def restored(path: str | Path, start: Start, bounds: Bounds, number: int | None = None) -> RunningQuery:
    """A running query in the state of a checkpoint: of a file, or of a folder, and there the newest without a number.

    Raises:
        SourceError: There is no such checkpoint, it is damaged, or it is of another query.
        PlanError: A file has no numbers.
    """
    if "://" in str(path) or Path(path).is_dir():
        with ours(path):
            saving, state = opened(path, number)
        made = restored_state(path, saving.manifests.folder, state, start, bounds)
        made.saves_to(path, saving)
        return made
    if number is not None:
        raise PlanError(
            f"{path} is no folder, and has one checkpoint.",
            remedy="Leave number= out; those before it are PATH.1 and on.",
        )
    file = Path(path)

    def read() -> tuple[Mapping[str, Any], Parts]:
        facts, tables = read_checkpoint(file, bounds)
        return facts, in_parts(tables)

    return _restored(file, read, start, trusted=bounds.trust)


def restored_state(
    path: str | Path,
    folder: Folder,
    state: SavedState,
    start: Start,
    bounds: Bounds = TRUSTLESS,
    cache: Cache | None = None,
) -> RunningQuery:
    """A running query in a state that `gpu_ops.engines.live.saving.save_state` wrote.

    What it saves next names the files of that state again: ``save_state(live, folder, names, before=state)``.

    Args:
        path: What errors call the checkpoint.
        folder: Where the files are.
        state: The state.
        start: The query.
        bounds: How far the files are trusted.
        cache: Lasting files that are on this machine already are mapped from there; those that this plan was restored
            from before are not validated again.

    Raises:
        SourceError: A file is missing or damaged, or the state is of another query.
    """
    by = _declarations(state)
    made = _restored(path, lambda: load_state(folder, state, bounds, cache, by), start, trusted=bounds.trust)
    if cache is not None:
        _note_sound(cache, state, made, by)
    return made


def _declarations(state: SavedState) -> str:
    """A name for what this version asks of the tables of a plan."""
    return hashlib.sha256(json.dumps([VERSION, state.facts.get("plan")]).encode()).hexdigest()[:16]


def _note_sound(cache: Cache, state: SavedState, made: RunningQuery, by: str) -> None:
    """Note which files a query has taken as they are: of rows that were not in order it has made others."""
    fresh = {file for file in state.lasting if not cache.is_sound(file, by)}
    if fresh:
        taken = {part.name for parts in made.state_parts().values() for part in parts}
        parts = [part for each in state.tables.values() for part in each]
        for file in fresh - {part.rows.file for part in parts if part.name not in taken}:
            cache.note_sound(file, by)


def _restored(path: str | Path, read: Read, start: Start, *, trusted: bool) -> RunningQuery:
    """In a checkpoint of an older version, repeated parts of a plan run twice."""
    made = start.made(merged(start.node))
    with ours(path):
        facts, parts = read()
        if facts.get("plan") != made.plan_lines():
            with suppress(PlanError):
                older = start.made(start.node)
                made = older if facts.get("plan") == older.plan_lines() else made
        made.restore_from(path, facts, parts, start.if_functions_changed, trusted=trusted)
    return made
