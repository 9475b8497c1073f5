"""StreamCruncher's types of columns, and the Arrow types that they are here."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from gpu_ops.core.arguments import by_names
from gpu_ops.texts.binding.types import event_type


def column_types(fields: Mapping[str, str | pa.DataType] | pa.Schema) -> pa.Schema:
    """The columns of a stream or a table.

    Args:
        fields: For each column the name of its type (`int`, `long`, `float`, `double`, `string`, `boolean`, or
            `timestamp`, which is a long of milliseconds since 1970), or an Arrow type.

    Raises:
        ColumnError: There is no such type.

    Examples:
        >>> column_types({"id": "int", "seen": "Timestamp"})
        id: int32
        seen: int64
    """
    if isinstance(fields, pa.Schema):
        return fields
    fields = by_names(fields, name="The columns", holds="types")
    given = {
        name: "long" if isinstance(each, str) and each.lower() == "timestamp" else each for name, each in fields.items()
    }
    return event_type(given)
