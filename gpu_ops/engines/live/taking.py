"""What a running query does with what comes in: who lets it in, when a step is due, and what becomes of an error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pyarrow as pa

from gpu_ops.core.own_errors import theirs
from gpu_ops.devices import Device
from gpu_ops.engines.live.calls import Calls
from gpu_ops.engines.live.inputs import Input, inputs
from gpu_ops.engines.live.status import shown_cti
from gpu_ops.engines.local.engine import to_table
from gpu_ops.engines.local.shapes import Shape, in_shape
from gpu_ops.errors import GpuOpsError, PlanError, WaitingError
from gpu_ops.ingest.counts import Counts
from gpu_ops.ingest.ingress import Admitted
from gpu_ops.operators.runtime.steps import RunningNode, running
from gpu_ops.plan.nodes import Node

_WAITING_ROWS = 1 << 17
"""Events that wait at most for a CTI before a step takes them in."""


class Taking:
    """The steps of a running query, and what it knows between them. `RunningQuery` is what users see of it."""

    _node: Node
    _device: Device
    _on_results: Callable[[pa.Table], None] | None
    _shape: Shape
    _schema: pa.Schema
    _max_waiting: int | None
    _passes: bool
    _calls: Calls

    def _begin(self) -> None:
        """All that changes while it runs, as it is before anything has come in."""
        self._running: RunningNode = running(self._node, self._device)
        self._inputs = inputs([each for each in self._running.walk() if not each.below])
        self._own = [each for each in self._inputs if each.leaves]
        self._diverts = any(each.diverts for each in self._own)
        self._late: Counter[str] = Counter()
        self._late_rows: list[pa.Table] = []
        self._ready: list[pa.Table] = []
        self._closed = False
        self._calls.forgive()
        self._settle()

    def _settle(self) -> None:
        """A step is over: what it has led to is told from now on."""
        self._given, self._cti = self._running.given, self._running.cti

    def _go_on(self) -> None:
        """Before anything new: what was to be offered, and whether the input is open."""
        self._offer()
        self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise PlanError("The running query is closed.", remedy="Start another one, or restore a checkpoint.")

    def _check_waiting(self, into: Input, rows: int) -> None:
        """Refuse rows that would wait for another input; or that wait for a CTI of their own, and bring none."""
        if self._max_waiting is None:
            return
        waiting, ctis = self._waiting, {each.name: each.promises[0] for each in self._own}
        oldest = min(ctis.values())
        if not into.leaves or ctis[into.name] == oldest:
            # Everybody waits to hear from it; so it is asked for no more than a CTI now and then.
            mine = into.since_cti if len(self._own) > 1 else waiting
            if mine < self._max_waiting or into.says_ctis:
                return
        elif waiting + rows <= self._max_waiting:
            return
        silent = ", ".join(repr(name) for name, cti in ctis.items() if cti == oldest)
        raise WaitingError(
            f"{waiting:,} rows wait, and {rows:,} more have come; at most {self._max_waiting:,} may. The CTI that they "
            f"wait for is that of the input {silent}: {shown_cti(oldest)}.",
            remedy="Advance that input, let it go along with another (advance_with=), or allow more: max_waiting=.",
        )

    def _bring(
        self, into: Input, let_in: Callable[[], Admitted], counted: Counts | None = None, *, close: bool = False
    ) -> None:
        """Let something into an input and take the step that is due. An error on the way leaves the query failed."""
        ready, late_rows, late = len(self._ready), len(self._late_rows), self._late
        untouched = False
        try:
            try:
                self._calls.touches = True
                admitted = let_in()
            except GpuOpsError:
                # An entrance that refuses is as it was.
                self._calls.touches, untouched = False, True
                raise
            if close:
                self._take(into, admitted)
                for each in self._own[1:]:
                    self._take(each, each.entrance.close())
                self._step()
                self._closed = True
            else:
                self._let_in(into, admitted)
            if counted is not None:
                into.counts.add(counted)
            self._calls.changes += 1
        except BaseException as error:
            if not untouched:
                self._calls.fail(error)
                self._late = late
                del self._ready[ready:], self._late_rows[late_rows:]
            raise

    def _let_in(self, into: Input, admitted: Admitted) -> None:
        """Events go into the query; the CTIs of another input go where they are imported."""
        if into.leaves:
            self._take(into, admitted)
        for other in self._inputs:
            if other.follows is into:
                for cti in admitted.ctis.tolist():
                    self._let_in(other, other.entrance.advance(cti))
        self._step_if_due()

    def _take(self, into: Input, admitted: Admitted) -> None:
        if admitted.counts:
            self._late = self._late + Counter(admitted.counts)
        if admitted.late is not None and into.entrance.settings.late != "drop":
            self._late_rows.append(admitted.late)
        into.take(admitted, self._device)

    def _step_if_due(self) -> None:
        """A step, if a CTI has moved, or if too much waits, or if nothing needs to."""
        moved = any(each.moved for each in self._own)
        waits = 0 if moved else sum(each.waits for each in self._own)
        if moved or waits >= _WAITING_ROWS or (waits and self._passes):
            self._step()

    def _step(self) -> None:
        fed = {node: given for each in self._own for node, given in each.fed().items()}
        given, _ = self._running.step(fed)
        self._running.rest()
        tables = [to_table(events, self._schema, self._device) for events in given.events if len(events)]
        results = in_shape(pa.concat_tables(tables), self._shape) if tables else None
        for each in self._own:
            each.taken()
        self._settle()
        if results is not None:
            self._ready.append(results)

    @property
    def _offers(self) -> bool:
        return self._on_results is not None and bool(self._ready)

    def _offer(self) -> None:
        """Hand results over to whom they are for. The step that made them stands, whatever becomes of that."""
        while self._on_results is not None and self._ready:
            try:
                self._calls.offers, self._calls.touches = True, False
                theirs(self._on_results, self._ready[0])
            finally:
                self._calls.offers = False
            del self._ready[0]

    @property
    def _waiting(self) -> int:
        nodes = [each.own for each in self._running.walk() if each.own is not None]
        at_inputs = sum(each.waits + each.entrance.waiting for each in self._own)
        return at_inputs + sum(each.waiting for each in nodes)

    @property
    def rows_in(self) -> int:
        """How many rows have come in."""
        return sum(each.counts.rows for each in self._own)

    @property
    def is_ready(self) -> bool:
        """Whether there are results to be taken."""
        return bool(self._ready)
