"""How a CSV file is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa


@dataclass(frozen=True)
class CsvOptions:
    """How a CSV file is written. Types that are not given are inferred from the first 4 MiB.

    Attributes:
        delimiter: What separates the columns.
        quote: What may stand around a value.
        null_values: Texts that mean null where they are not quoted. Only nothing at all does, unless said otherwise.
        types: Arrow types by column.
        names: The columns' names where the first line holds none.

    Examples:
        >>> CsvOptions(delimiter=";", null_values=("", "NA"), types={"fare": pa.float64()}).delimiter
        ';'
    """

    delimiter: str = ","
    quote: str = '"'
    null_values: Sequence[str] = ("",)
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    names: Sequence[str] | None = None
