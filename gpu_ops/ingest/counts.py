"""What reading a source counts: valid rows, invalid rows by rule, and rows kept aside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa

from gpu_ops.ingest.rules import IngestReport


@dataclass
class Counts:
    """What a read has counted so far.

    Attributes:
        rows: Rows that were read.
        valid: Rows that keep all rules.
        invalid: The number of rows that broke each rule.
        first: The first row that broke each rule.
        rejected: Rows that are kept aside.
        late: The number of late rows by their fate.

    Examples:
        >>> some, more = Counts(2, 1, Counter(null_end=1), {"null_end": "row 1: a=0, b=null"}), Counts(3, 3)
        >>> some.add(more)
        >>> some.report()
        IngestReport(rows=5, valid=4, invalid={'null_end': 1}, first={'null_end': 'row 1: a=0, b=null'}, late={})
    """

    rows: int = 0
    valid: int = 0
    invalid: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    rejected: list[pa.Table] = field(default_factory=list)
    late: Mapping[str, int] = field(default_factory=dict)

    def add(self, more: Counts) -> None:
        """Add the counts of later rows."""
        self.rows += more.rows
        self.valid += more.valid
        if more.invalid:
            self.invalid.update(more.invalid)
            self.first = more.first | self.first
            self.rejected += more.rejected

    def report(self) -> IngestReport:
        """The counts as users see them."""
        return IngestReport(self.rows, self.valid, dict(self.invalid), dict(self.first), dict(self.late))

    def facts(self) -> dict[str, Any]:
        """The counts for JSON, without the rows that are kept aside."""
        return {"rows": self.rows, "valid": self.valid, "invalid": dict(self.invalid), "first": self.first}

    @classmethod
    def restore(cls, facts: Mapping[str, Any], rejected: pa.Table | None) -> Self:
        """Counts from `facts` and the rows that were kept aside."""
        kept = [] if rejected is None else [rejected]
        return cls(facts["rows"], facts["valid"], Counter(facts["invalid"]), dict(facts["first"]), kept)
