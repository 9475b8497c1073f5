"""The state of a running query: how rows and CTIs enter it, when a step is due, and what an error does to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pyarrow as pa

from gpu_ops.core.arguments import callback, whole
from gpu_ops.core.own_errors import theirs
from gpu_ops.engines.live.attached import Attached
from gpu_ops.engines.live.calls import Calls
from gpu_ops.engines.live.fingerprints import functions_held
from gpu_ops.engines.live.inputs import Input, inputs
from gpu_ops.engines.live.places import Following
from gpu_ops.engines.live.saving import Saving
from gpu_ops.engines.live.status import shown_cti
from gpu_ops.engines.local.engine import output_schema, to_table
from gpu_ops.engines.local.placing import place
from gpu_ops.engines.local.shapes import Shape, in_shape, shape_schema
from gpu_ops.errors import GpuOpsError, PlanError, WaitingError
from gpu_ops.ingest.counts import Counts
from gpu_ops.ingest.ingress import Admitted
from gpu_ops.operators.runtime.released import EndedInstances
from gpu_ops.operators.runtime.steps import RunningNode, running
from gpu_ops.plan.nodes import Node

_WAITING_ROWS = 1 << 17
"""How many events may wait for a CTI before a step takes them in anyway."""


class QueryState:
    """The state of a running query, and the steps that change it. `RunningQuery` is what users see of it."""

    def __init__(
        self,
        node: Node,
        device: str,
        on_results: Callable[[pa.Table], None] | None = None,
        shape: Shape = "interval",
        max_waiting: int | None = None,
    ) -> None:
        self._node = node
        self._device = place(node, device)
        self._on_results = on_results
        self._shape = shape
        callback(on_results, name="on_results", takes="a table")
        self._max_waiting = None if max_waiting is None else whole(max_waiting, name="max_waiting")
        self._schema = output_schema(node)
        self._given_schema = shape_schema(self._schema, shape)
        # Whether every event is final by itself.
        self._passes = all(each.stateless or each.comes_in for each in node.walk())
        self._calls = Calls()
        self._attached: list[Attached] = []
        # For each input that another query feeds: how many results that one had given before this one was behind it.
        self._given_before: dict[str, int] = {}
        self._begin()
        self.positions: dict[str, int] = {}
        self.following = Following()
        # Hashed now, and not when a checkpoint is made: values in closures may change while the query runs.
        self._functions = functions_held(node)
        self._saves: dict[str, Saving] = {}

    def _begin(self) -> None:
        """Set all that changes while the query runs to what it is before the first row."""
        self._running: RunningNode = running(self._node, self._device)
        self._ended = EndedInstances(self._running, self._device)
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
        """Publish the result count and the CTI of the step that has just ended."""
        self._given, self._cti = self._running.given, self._running.cti

    def _begin_call(self) -> None:
        """Offer the results of earlier calls, then refuse new input to a closed query."""
        self._offer()
        self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise PlanError("The running query is closed.", remedy="Start another one, or restore a checkpoint.")

    def _check_waiting(self, into: Input, rows: int) -> None:
        """Refuse rows beyond `max_waiting`, unless their input is the one that the others wait for and brings CTIs."""
        if self._max_waiting is None:
            return
        waiting, ctis = self._waiting, {each.name: each.promises[0] for each in self._own}
        oldest = min(ctis.values())
        if not into.leaves or ctis[into.name] == oldest:
            # All others wait for this input, so it need only bring a CTI now and then.
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

    def _ingest(
        self,
        into: Input,
        admitting: Callable[[], Admitted],
        counted: Counts | None = None,
        *,
        besides: Sequence[tuple[Input, Callable[[], Admitted]]] = (),
        close: bool = False,
    ) -> None:
        """Admit something to an input, then take a step if one is due. An error after admission fails the query.

        Args:
            into: The input.
            admitting: What its ingress does.
            counted: The counts of the rows.
            besides: Likewise of further inputs: all share a step.
            close: Whether the input of the query ends.
        """
        ready, late_rows, late = len(self._ready), len(self._late_rows), self._late
        try:
            try:
                self._calls.touches = True
                admitted = admitting()
            except GpuOpsError:
                # An ingress that refuses its input has not changed.
                self._calls.touches = False
                raise
            take = self._admit if close else self._route
            take(into, admitted)
            for other, others in besides:
                take(other, others())
            if close:
                self._step()
                self._closed = True
            else:
                self._step_if_due()
            if counted is not None:
                into.counts.add(counted)
            self._calls.changes += 1
        except BaseException as error:
            if self._calls.touches:
                self._calls.fail(error)
                self._late = late
                del self._ready[ready:], self._late_rows[late_rows:]
            raise

    def _route(self, into: Input, admitted: Admitted) -> None:
        """Pass admitted events to the query, and their CTIs to the inputs that import them."""
        if into.leaves:
            self._admit(into, admitted)
        for other in self._inputs:
            if other.follows is into:
                for cti in admitted.ctis.tolist():
                    self._route(other, other.ingress.advance(cti))

    def _admit(self, into: Input, admitted: Admitted) -> None:
        if admitted.counts:
            self._late = self._late + Counter(admitted.counts)
        if admitted.late is not None and into.ingress.settings.late != "drop":
            self._late_rows.append(admitted.late)
        into.take(admitted, self._device)

    def _step_if_due(self) -> None:
        """Take a step if a CTI has moved, if too many events wait, or if the query needs no CTI at all."""
        moved = any(each.moved for each in self._own)
        waits = 0 if moved else sum(each.waits for each in self._own)
        if moved or waits >= _WAITING_ROWS or (waits and self._passes):
            self._step()

    def _step(self) -> None:
        fed = {node: given for each in self._own for node, given in each.fed().items()}
        given, _ = self._running.step(fed)
        self._running.rest()
        self._ended.release()
        tables = [to_table(events, self._schema, self._device) for events in given.events if len(events)]
        results = in_shape(pa.concat_tables(tables), self._shape) if tables else None
        for each in self._own:
            each.taken()
        self._settle()
        if results is not None:
            self._ready.append(results)
        for other in self._attached:
            other.give(results, self._given, self._cti)

    @property
    def _offers(self) -> bool:
        return (self._on_results is not None and bool(self._ready)) or bool(self._attached and self._closed)

    def _offer(self) -> None:
        """Pass results to `on_results` and attached queries. If that raises, the step that made them still stands."""
        while self._on_results is not None and self._ready:
            try:
                self._calls.offers, self._calls.touches = True, False
                theirs(self._on_results, self._ready[0])
            finally:
                self._calls.offers = False
            del self._ready[0]
        self._hand_on()

    def _hand_on(self) -> None:
        """Pass results to attached queries; those that are over are attached no more."""
        for other in list(self._attached):
            try:
                self._calls.offers, self._calls.touches = True, False
                other.hand_on(ends=self._closed)
            finally:
                self._calls.offers = False
                if other.is_over:
                    self._attached.remove(other)

    @property
    def _waiting(self) -> int:
        nodes = [each.own for each in self._running.walk() if each.own is not None]
        at_inputs = sum(each.waits + each.ingress.waiting for each in self._own)
        return at_inputs + sum(each.waiting for each in nodes)

    @property
    def rows_in(self) -> int:
        """How many rows were pushed."""
        return sum(each.counts.rows for each in self._own)

    @property
    def failed(self) -> bool:
        """Whether a call of it has failed."""
        return self._calls.what is not None

    @property
    def is_ready(self) -> bool:
        """Whether `results` has any rows to give."""
        return bool(self._ready)

    @property
    def has_untaken(self) -> bool:
        """Whether results or late rows wait to be taken."""
        return bool(self._ready or self._late_rows)
