"""How a CSV file is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa


@dataclass(frozen=True)
class CsvOptions:
    """How a CSV file is written. Other types are inferred from the first 4 MiB.

    Attributes:
        delimiter: What separates the columns.
        quote: The quotation mark around values.
        null_values: Unquoted texts that mean null; by default only the empty text.
        types: Arrow types by column.
        names: The names of the columns if the first line has none.

    Examples:
        >>> CsvOptions(delimiter=";", null_values=("", "NA"), types={"fare": pa.float64()}).delimiter
        ';'
    """

    delimiter: str = ","
    quote: str = '"'
    null_values: Sequence[str] = ("",)
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    names: Sequence[str] | None = None
