"""Columns that say what rows are: events or CTIs, and of edges, which end."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpu_ops.core.arrow_buffers import integers
from gpu_ops.core.arrow_types import is_text
from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.ingest.arrivals import ArrivalKind
from gpu_ops.ingest.rules import UNKNOWN_EDGE, UNKNOWN_KIND, Shape, TimeRule
from gpu_ops.ingest.zones import Mask

_IS = pa.types
_UNKNOWN = -1
_KIND_WORDS = {"insert": ArrivalKind.INSERT, "cti": ArrivalKind.CTI}
_EDGE_WORDS = {"start": ArrivalKind.START, "end": ArrivalKind.END, "interval": ArrivalKind.INSERT}


@dataclass(frozen=True)
class Kinds:
    """What each row is.

    Attributes:
        kinds: int8, a `ArrivalKind` for each row.
        faults: The rows whose word is unknown or missing, as a mask for each rule; such a row counts as an insert.
    """

    kinds: npt.NDArray[np.int8]
    faults: dict[TimeRule, Mask] = field(default_factory=dict)

    @property
    def ctis(self) -> Mask:
        """The rows that are CTIs."""
        return np.asarray(self.kinds == ArrivalKind.CTI, np.bool_)

    @property
    def without_end(self) -> Mask:
        """The rows whose start alone is read."""
        return np.asarray((self.kinds == ArrivalKind.START) | (self.kinds == ArrivalKind.CTI), np.bool_)


@dataclass(frozen=True)
class KindColumns:
    """The columns that say it.

    Args:
        kind: The column of "insert" and "cti", if there is one.
        edge: The column of "start", "end" and "interval", if there is one.
    """

    kind: str | None = None
    edge: str | None = None

    @property
    def names(self) -> list[str]:
        """The columns that there are."""
        return [name for name in (self.kind, self.edge) if name is not None]

    def check(self, schema: pa.Schema) -> None:
        """Refuse columns that hold no words.

        Raises:
            ColumnError: One does.
        """
        for name in self.names:
            kind = schema.field(name).type
            if not is_text(kind.value_type if _IS.is_dictionary(kind) else kind):
                raise ColumnError(
                    f"What rows are is said in words, and this is {kind}.",
                    column=name,
                    remedy='Make it text: "insert" or "cti"; of edges, "start", "end" or "interval".',
                )

    def read(self, table: pa.Table) -> Kinds | None:
        """What the rows of a table are; None when all are inserts."""
        faults: dict[TimeRule, Mask] = {}
        kinds = np.zeros(table.num_rows, np.int8)
        if self.edge is not None:
            kinds = _read(table[self.edge], _EDGE_WORDS)
        if self.kind is not None:
            said = _read(table[self.kind], _KIND_WORDS)
            # What stands in the other columns of a CTI says nothing.
            kinds = np.where(said == ArrivalKind.INSERT, kinds, said)
            if (said == _UNKNOWN).any():
                faults[UNKNOWN_KIND] = said == _UNKNOWN
        unknown = kinds == _UNKNOWN
        if UNKNOWN_KIND in faults:
            unknown &= ~faults[UNKNOWN_KIND]
        if unknown.any():
            faults[UNKNOWN_EDGE] = unknown
        kinds[kinds == _UNKNOWN] = ArrivalKind.INSERT
        return Kinds(kinds, faults) if faults or kinds.any() else None


def kind_columns(kind: str | None, shape: Shape | None, edge: str | None, end: str | None) -> KindColumns:
    """The columns that options of `gpu_ops.events` name.

    Raises:
        PlanError: The options do not fit together.
    """
    if (shape == "edge") != (edge is not None):
        raise PlanError(
            'shape="edge" and edge= go together.', remedy='Say which column tells start from end: edge="edge", for one.'
        )
    if edge is not None and end is None:
        raise PlanError(
            "An end edge has two times: when its event started and when it ends.",
            remedy="Say which column has the end.",
        )
    return KindColumns(kind, edge)


def _read(column: pa.ChunkedArray, words: dict[str, ArrivalKind]) -> npt.NDArray[np.int8]:
    coded = column.combine_chunks()
    if not len(coded):
        return np.empty(0, np.int8)
    if not _IS.is_dictionary(coded.type):
        coded = coded.cast(pa.large_string()).dictionary_encode()
    # Words are few: each is looked at once.
    known = [_UNKNOWN if word is None else words.get(word.lower(), _UNKNOWN) for word in coded.dictionary.to_pylist()]
    positions = integers(coded.indices.cast(pa.int64()).fill_null(len(known)))
    return np.array([*known, _UNKNOWN], np.int8).take(positions)


def judged_start(start: npt.NDArray[np.int64], ctis: Mask, highest: int, infinity: int) -> npt.NDArray[np.int64]:
    """Starts as the rules of lifetimes take them: a CTI may be as late as infinity, where no event may start."""
    return np.where(ctis & (start > highest) & (start <= infinity), highest, start)
