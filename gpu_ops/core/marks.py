"""Marks in a field's metadata: the kind of frame that its column came from, so that results are of that kind too.

Plans hand on marks with fields: an unchanged column keeps its marks, and a computed column gets those of the columns
that it was computed from. So the kind of a column depends on the query alone, never on the data.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Literal

import pyarrow as pa

Family = Literal["nullable", "arrow"]
"""A column's family of pandas extension types: pandas' own nullable types, or Arrow's."""

_FAMILY = b"gpu_ops.pandas"
_CATEGORIES = b"gpu_ops.categories"


def marked(field: pa.Field, *, family: Family | None = None, categories: pa.Array | None = None) -> pa.Field:
    """A field with a mark.

    Args:
        field: Without or with other marks.
        family: Its column's family.
        categories: All categories of its column in their order, used or not.

    Examples:
        >>> field = marked(pa.field("v", pa.int64()), family="nullable")
        >>> family_of(field), family_of(pa.field("v", pa.int64()))
        ('nullable', None)
    """
    marks = dict(field.metadata or {})
    if family is not None:
        marks[_FAMILY] = family.encode()
    if categories is not None:
        batch = pa.record_batch([categories], ["category"])
        written = pa.schema([("category", categories.type)]).serialize().to_pybytes() + batch.serialize().to_pybytes()
        # As text: libraries in Rust need metadata in UTF-8.
        marks[_CATEGORIES] = base64.b64encode(written)
    return field.with_metadata(marks or None)


def family_of(field: pa.Field) -> Family | None:
    """The family that a field is marked with."""
    found = (field.metadata or {}).get(_FAMILY)
    return None if found is None else "arrow" if found == b"arrow" else "nullable"


def categories_of(field: pa.Field) -> pa.Array | None:
    """The categories that a field is marked with.

    Examples:
        >>> both = marked(pa.field("c", pa.string()), categories=pa.array(["b", "a"]))
        >>> categories_of(both).to_pylist()
        ['b', 'a']
    """
    found = (field.metadata or {}).get(_CATEGORIES)
    if found is None:
        return None
    reader = pa.BufferReader(base64.b64decode(found))
    schema = pa.ipc.read_schema(reader)
    return pa.ipc.read_record_batch(pa.ipc.read_message(reader), schema).column(0)


def computed(field: pa.Field, read: Iterable[pa.Field]) -> pa.Field:
    """The field of a column that is computed from others: of their family, where Arrow's wins, and without categories.

    Examples:
        >>> read = [marked(pa.field("v", pa.int64()), family="arrow"), pa.field("w", pa.int64())]
        >>> family_of(computed(pa.field("sum", pa.int64()), read))
        'arrow'
    """
    families = {family_of(each) for each in read}
    family: Family | None = "arrow" if "arrow" in families else "nullable" if "nullable" in families else None
    others = {name: value for name, value in (field.metadata or {}).items() if name not in {_FAMILY, _CATEGORIES}}
    return marked(field.with_metadata(others or None), family=family)
