"""A module imports from its own room and those below, in no circle, late or for types too; exceptions are listed."""

from __future__ import annotations

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "gpu_ops"
ROOMS = ["errors", "core", "devices", "ingest", "microbatches", "plan", "operators", "engines", "api", "plot", "apps"]
FLOORS = {name: number for number, name in enumerate(ROOMS)} | {
    "__init__": ROOMS.index("api"),
    "extend": ROOMS.index("api"),
}
UPWARD = {("engines.spark.sending", "__init__")}  # in a worker, whose gpu_ops may be any, or none
CIRCULAR: set[tuple[str, str]] = set()


@cache
def imports() -> set[tuple[str, str]]:
    paths = {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}
    found = set()
    for name, path in paths.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [f"{getattr(node, 'module', '')}.{each.name}".lstrip(".") for each in node.names]
                for _, *parts in (each.split(".") for each in names if each.startswith("gpu_ops")):
                    ways = (parts, [*parts, "__init__"], parts[:-1], [*parts[:-1], "__init__"])
                    found.add((name, next(way for way in map(".".join, ways) if way in paths)))
    return found


def circle(edges: set[tuple[str, str]]) -> list[str]:
    below = TopologicalSorter[str]()
    for name, there in edges:
        below.add(name, there)
    try:
        below.prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_a_module_imports_from_its_own_room_and_from_those_below() -> None:
    assert {(a, b) for a, b in imports() if FLOORS[a.split(".")[0]] < FLOORS[b.split(".")[0]]} == UPWARD


def test_no_modules_import_each_other_in_a_circle() -> None:
    edges = imports() - UPWARD
    assert circle(edges - CIRCULAR) == []
    assert [each for each in CIRCULAR if each not in edges or not circle(edges - CIRCULAR | {each})] == []
