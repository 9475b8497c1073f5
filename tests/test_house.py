"""The rules of CONTRIBUTING.md and docs/internals.md that no linter holds."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE, TESTS = ROOT / "gpu_ops", ROOT / "tests"


def _imported(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return names | {
        f"{node.module}.{alias.name}" for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names
    }


def test_no_test_file_imports_another() -> None:
    """What several test files share stands in tests/support, where it is no test."""
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in TESTS.rglob("*.py")
        for name in _imported(path)
        if name.startswith("tests.") and any(part.startswith("test_") for part in name.split(".")[:-1])
    }
    assert not found


def test_no_two_classes_of_the_package_share_a_name() -> None:
    places = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(str(path.relative_to(PACKAGE)))
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_the_root_of_the_package_holds_at_most_five_modules() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= 5


def test_the_harness_of_epl_reads_feeds_and_compares() -> None:
    """What Esper's vectors ask is planned and computed by the package: the harness is small, and makes no plan."""
    folder, support = TESTS / "conformance", TESTS / "support"
    harness = [*folder.glob("epl*.py"), *folder.glob("esper*.py"), support / "epl_recorded.py"]
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in harness) <= 250
    imported = {name for path in [*harness, support / "epl_on_runtime.py"] for name in _imported(path)}
    assert "gpu_ops.epl.runtime.Runtime" in imported
    assert not {name for name in imported if name.startswith(("gpu_ops.plan", "gpu_ops.operators"))}


def test_the_harness_of_streamcruncher_sends_and_compares() -> None:
    """What StreamCruncher's vectors ask is planned and computed by the package."""
    harness = [*(TESTS / "conformance").glob("streamcruncher*.py"), *(TESTS / "conformance").glob("rql*.py")]
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in harness) <= 150
    imported = {name for path in harness for name in _imported(path)}
    assert not {name for name in imported if name.startswith(("gpu_ops.plan", "gpu_ops.operators", "gpu_ops.api"))}


def test_no_kernel_indexes_by_the_member_of_an_enum() -> None:
    """Numba before 0.65, which cuDF wants, does not compile that; the suite runs a later one."""
    for path in [*(PACKAGE / "devices" / "cpu").glob("*.py"), PACKAGE / "ingest" / "arrival_kernel.py"]:
        text = path.read_text(encoding="utf-8")
        enums = {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef) and _is_enum(node)}
        indices = [node.slice for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Subscript)]
        parts = [each for index in indices for each in (index.elts if isinstance(index, ast.Tuple) else [index])]
        members = [each for each in parts if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name)]
        assert not [f"{path.name}:{each.lineno}" for each in members if ast.unparse(each.value) in enums]


def _is_enum(node: ast.ClassDef) -> bool:
    return any("Enum" in ast.unparse(base) for base in node.bases)
