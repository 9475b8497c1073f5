"""The pages in docs/: their examples run, their pictures are of the examples, their tables name what there is."""

from __future__ import annotations

import inspect
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gpu_ops as g
from docs.draw import DOCS, draw, pages
from gpu_ops import epl, rql
from gpu_ops.api.row_windows import DataWindowing
from gpu_ops.api.stream import DataWindowed
from gpu_ops.api.time_windows import Windowing
from gpu_ops.api.window_sets import Combining

WINDOWS = [page for page in sorted((DOCS / "windows").glob("*.md")) if page.name != "README.md"]

ESPER = """keepall length length_batch time time_batch time_length_batch time_accum ext_timed ext_timed_batch time_order
timetolive unique firstunique lastevent firstevent firstlength firsttime sort rank groupwin expr expr_batch merge size
uni weighted_avg linest correl""".split()  # noqa: SIM905  (28 lines for 28 words)


def texts(picture: Path) -> list[str]:
    """What is written in a picture."""
    tree = ET.fromstring(picture.read_text(encoding="utf-8"))  # noqa: S314  (it is ours)
    return ["".join(text.itertext()) for text in tree.iter("{http://www.w3.org/2000/svg}text")]


def table(page: Path, first: str) -> list[list[str]]:
    """The rows of the table whose first column has a name."""
    lines = page.read_text(encoding="utf-8").splitlines()
    begins = next(at for at, line in enumerate(lines) if line.startswith(f"| {first} |"))
    rows = []
    for line in lines[begins + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_examples_run_and_the_picture_is_theirs(page: Path, tmp_path: Path) -> None:
    drawn = draw(page, tmp_path)
    if drawn is None:
        assert page not in WINDOWS
        return
    kept = page.with_suffix(".svg")
    assert f"]({kept.name})" in page.read_text(encoding="utf-8")
    assert kept.stat().st_size < 30_000
    assert texts(kept) == texts(drawn), "make pictures"


def test_a_picture_is_the_same_each_time(tmp_path: Path) -> None:
    page = DOCS / "windows" / "snapshot.md"
    first = draw(page, tmp_path)
    assert first is not None
    before = first.read_bytes()
    assert before == first.read_bytes()
    draw(page, tmp_path)
    assert first.read_bytes() == before


def test_each_window_has_an_example_and_a_place_in_the_table() -> None:
    overview = DOCS / "windows" / "README.md"
    assert set(WINDOWS) <= set(pages())
    said = overview.read_text(encoding="utf-8")
    for page in WINDOWS:
        assert f"]({page.name})" in said, page.name


def test_the_table_of_windows_names_espers_28_and_verbs_that_there_are() -> None:
    rows = table(DOCS / "windows" / "README.md", "Esper")
    assert [row[0] for row in rows][: len(ESPER)] == ESPER
    known = {*dir(g.Stream), *dir(DataWindowed)}
    for row in rows:
        assert len(row) == 6, row
        for verb in re.findall(r"`(\w+)\(", row[1]):
            assert verb in known, verb
        for name in re.findall(r"\bg\.(\w+)", row[1]):
            assert hasattr(g, name), name
        for link in re.findall(r"\]\(([\w./]+)\)", row[5]):
            assert (DOCS / "windows" / link).is_file(), link


def test_pages_are_of_verbs_that_there_are_and_of_all() -> None:
    named = set()
    for page in WINDOWS:
        (verbs,) = re.findall(r"^\| verb \| (.+) \|$", page.read_text(encoding="utf-8"), re.MULTILINE)
        found = set(re.findall(r"`(?:stream)?\.(\w+)\(|`(hopping|tumbling)`", verbs))
        assert found, page.name
        named |= {verb or other for verb, other in found}
    assert named <= {*dir(g.Stream), *dir(DataWindowed)}
    made = {
        verb
        for kind in (Windowing, DataWindowing, DataWindowed, Combining)
        for verb in vars(kind)
        if not verb.startswith("_")
    }
    assert made - named == {"agg"}


def test_the_table_of_aggregates_names_all_there_are() -> None:
    rows = table(DOCS / "aggregates.md", "aggregate")
    named = {name for row in rows for name in re.findall(r"`g\.(\w+)", row[0])}
    assert all(len(row) == 6 for row in rows)
    assert named == {name for name in g.__all__ if inspect.isfunction(made := getattr(g, name)) and _declares(made)}


@pytest.mark.parametrize("row", table(DOCS / "aggregates.md", "aggregate"), ids=lambda row: row[0])
def test_the_table_of_aggregates_says_types_and_costs(row: list[str]) -> None:
    call, _, _, gives, cost, _ = row
    made = _called(call.strip("`"))
    if made is None:
        return
    events = g.events(pa.table({"at": [0], "v": [1]}), start="at", unit="s")
    (given,) = events.tumbling("1min").agg(given=made).schema.types
    types = {"its type": pa.int64(), "a list of its type": pa.list_(pa.int64()), "boolean": pa.bool_()}
    said = [types.get(each) or pa.type_for_alias(each) for each in re.split(", |; | or ", gives) if each in _TYPES]
    assert given in said
    if isinstance(made, g.Aggregate):
        keeps = made.keeps(pa.schema([("v", pa.bool_() if gives == "boolean" else pa.int64())]))
        more = re.search("in order|each pair|keeps the (events|values)", cost)
        assert (keeps in {"values", "order", "events"}) == bool(more), cost
        assert (keeps == "extreme") == (cost == "extreme")


_TYPES = {"int64", "uint64", "float64", "its type", "a list of its type", "boolean"}


def _called(call: str) -> Any:
    """What the table shows, over a column of integers: its dots and names are columns, and its options are left out."""
    name, written = re.fullmatch(r"g\.(\w+)\((.*)\)", call).groups()  # type: ignore[union-attr]
    if name in {"incremental", "window_function"}:
        return None
    numbers: dict[str, Any] = {"q": 0.5, "n": 1, "k": 1, "per": "1s"}
    columns: dict[str, Any] = {"condition": g.col("v") > 0}
    given = [each for each in written.split(", ") if not each.endswith("=")]
    return getattr(g, name)(*(numbers.get(each, columns.get(each, "v")) for each in given))


def _declares(function: Any) -> bool:
    """Whether a function of the package makes an aggregate, and no stream or store."""
    return str(function.__module__).startswith("gpu_ops.plan.")


def test_the_files_that_internals_names_are_there() -> None:
    said = (DOCS / "internals.md").read_text(encoding="utf-8")
    named = re.findall(r"`(gpu_ops/[\w/]+(?:\.py)?)`", said)
    walked = re.findall(r"^ *((?:engines|ingest|operators|devices)/[\w/]+\.py)  ([\w.]+)", said, re.MULTILINE)
    assert len(named) > 10
    assert len(walked) > 10
    missing = [each for each in named if not (DOCS.parent / each).exists()]
    for file, name in walked:
        path = DOCS.parent / "gpu_ops" / file
        if not path.exists() or not re.search(
            rf"\b(def|class) {name.split('.')[-1]}\b", path.read_text(encoding="utf-8")
        ):
            missing.append(f"{file} {name}")
    assert not missing


def test_what_the_page_for_newcomers_writes_in_epl_can_be_deployed() -> None:
    page = (DOCS / "migrating.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| EPL \| (.*) \|$", page, re.MULTILINE)
    assert len(cells) == page.count("\n## ")
    sent = {"item": "string", "price": "int", "at": "long"}
    asked = [re.findall(r"`((?:select|insert) .*?)`", cell) for cell in cells]
    assert all(asked), "each question is a statement, or several"
    for texts in asked:
        epl.Runtime({"Bid": sent, "Sale": {**sent, "rebate": "int", "until": "long"}}).deploy("; ".join(texts))


def test_what_the_page_for_newcomers_writes_in_rql_can_be_registered() -> None:
    page = (DOCS / "migrating.md").read_text(encoding="utf-8")
    texts = re.findall(r"^\| RQL \| `(select [^`…]*;)`", page, re.MULTILINE)
    assert len(texts) >= 5
    sent = {"item": "string", "price": "int", "at": "long"}
    for text in texts:
        times = {"bids": "at", "sales": "at"}
        rql.Runtime({"bids": sent, "sales": {**sent, "rebate": "int"}}, times=times).register("asked", text)
