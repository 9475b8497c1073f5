"""The levels of groups that a group by clause names: rollups, cubes and grouping sets."""

from __future__ import annotations

from collections.abc import Sequence

from gpu_ops.epl import queries as q
from gpu_ops.texts import expressions as e


def levels_of(grouping: Sequence[q.Grouping]) -> list[tuple[e.Expression, ...]]:
    """The keys of each level of groups, the finest first."""
    levels: list[tuple[e.Expression, ...]] = [()]
    for each in grouping:
        some = _of_one(each)
        levels = [tuple(dict.fromkeys((*before, *level))) for before in levels for level in some]
    return list(dict.fromkeys(levels))


def _of_one(node: q.Grouping) -> list[tuple[e.Expression, ...]]:
    match node:
        case q.GroupingKeys(keys=keys):
            return [keys]
        case q.GroupingSets(kind="grouping sets", items=items):
            return [level for item in items for level in _of_one(item)]
        case q.GroupingSets(kind="rollup", items=items):
            parts = [_of_one(item)[0] for item in items]
            return [tuple(key for part in parts[:count] for key in part) for count in range(len(parts), -1, -1)]
        case q.GroupingSets(items=items):
            parts = [_of_one(item)[0] for item in items]
            chosen: list[tuple[e.Expression, ...]] = []
            for mask in range((1 << len(parts)) - 1, -1, -1):
                bits = [mask >> (len(parts) - 1 - at) & 1 for at in range(len(parts))]
                chosen.append(tuple(key for part, bit in zip(parts, bits, strict=True) if bit for key in part))
            return chosen
    return [(node,)]
