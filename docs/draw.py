"""Draws the pictures of these pages: `make pictures`.

A page's examples are run, and the figure that they leave is its picture, in a file of the page's name. The picture and
the tables of `benchmarks.md` are made from `benchmarks.jsonl`, which `benchmarks/run.py across-keys` writes.
"""

from __future__ import annotations

import doctest
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOCS = Path(__file__).parent
# As a script this file sees its own folder only.
sys.path.insert(0, str(DOCS.parent))

from benchmarks.figures import Figures, projections, read, table, used  # noqa: E402
from benchmarks.workloads import Spread  # noqa: E402

HALF = Spread(shape="half").name

MEASURED = DOCS / "benchmarks.jsonl"

# Text stays text, which is small; no date and no random names, so that a picture changes only if what it shows does.
_STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "gpu_ops", "font.sans-serif": ["DejaVu Sans"]}
_METADATA = {"Date": None, "Creator": None}


def pages() -> list[Path]:
    """The pages with examples."""
    return [page for page in sorted(DOCS.rglob("*.md")) if ">>> " in page.read_text(encoding="utf-8")]


def examples(page: Path) -> doctest.DocTest:
    """A page's examples, as one session."""
    # The line that closes a block of code is no output.
    text = re.sub(r"^```.*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)


def figure(page: Path) -> Figure | None:
    """The picture that a page's examples leave under the name ``figure``, if they do.

    Raises:
        RuntimeError: An example gives something else than the page says.
    """
    session = examples(page)
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    if runner.run(session, clear_globs=False).failed:
        raise RuntimeError(f"The examples of {page.relative_to(DOCS)} give something else than it says.")
    drawn: Figure | None = session.globs.get("figure")
    return drawn


def draw(page: Path, folder: Path) -> Path | None:
    """Draws a page's picture into a folder, and gives its path."""
    drawn = figure(page)
    if drawn is None:
        return None
    return _save(drawn, folder / page.with_suffix(".svg").name)


def _save(drawn: Figure, picture: Path) -> Path:
    with mpl.rc_context(_STYLE):
        drawn.savefig(picture, metadata=_METADATA)
    return picture


# The benchmarks

_LINES = {
    "gpu_ops": ("C0", "-"),
    "Polars": ("C1", "-"),
    "DuckDB": ("C2", "-"),
    "Polars, at events": ("C1", ":"),
    "DuckDB, at events": ("C2", ":"),
}


def draw_benchmarks(figures: Figures, folder: Path) -> Path:
    """Draws the wall time of an event over keys, a panel for each workload, and gives the picture's path."""
    from matplotlib.figure import Figure as Drawing
    from matplotlib.ticker import FuncFormatter

    workloads, keys = used(figures)
    columns = min(4, len(workloads))
    rows = -(-len(workloads) // columns)
    with mpl.rc_context(_STYLE):
        drawing = Drawing(figsize=(3 * columns, 2.4 * rows + 0.5), layout="constrained")
        panels = drawing.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for panel, workload in zip(panels.flat, workloads, strict=False):
            for library, (color, style) in _LINES.items():
                found = [(at, figures.find(workload, name, library)) for at, name in enumerate(keys)]
                points = [(at, each.wall_s.median / each.events * 1e9) for at, each in found if each]
                # Half on one is no number of keys: no line leads there.
                even = [point for point in points if keys[point[0]] != HALF]
                for part, label in ((even, library), ([point for point in points if point not in even], None)):
                    if part:
                        panel.plot(*zip(*part, strict=True), color=color, linestyle=style, marker=".", label=label)
            panel.set_title(workload, fontsize="medium")
            panel.set_yscale("log")
            panel.yaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.0f}"))
            panel.minorticks_off()
            panel.set_xticks(range(len(keys)), keys, rotation=60, fontsize="small")
            panel.grid(axis="y", linewidth=0.4)
        named = {
            label: line for panel in panels.flat for line, label in zip(*panel.get_legend_handles_labels(), strict=True)
        }
        drawing.supylabel("ms for a million events (wall, all cores)", fontsize="medium")
        drawing.supxlabel("keys", fontsize="medium")
        drawing.legend(named.values(), named.keys(), loc="outside upper center", ncols=len(named), fontsize="small")
        return _save(drawing, folder / "benchmarks.svg")


def tables(figures: Figures) -> dict[str, str]:
    """The parts of `benchmarks.md` that are made from the file, by their names."""
    versions = ", ".join(f"{name} {version}" for name, version in figures.versions.items() if name != "gpu_ops")
    load = " to ".join(f"{each:g}" for each in figures.load)
    copies = ", ".join(f"{speed:.3g} GB/s with {threads}" for threads, speed in figures.copies_gb_s.items())
    taken = (
        f"Taken on {figures.date[:10]} over {figures.events:,} events, on {figures.cores} cores ({figures.processor}), "
        f"load {load}; {versions}."
    )
    if max(figures.load) > figures.cores:
        taken += " Beside such a load wall times say little, and CPU times are up to twice what they are alone."
    more = projections(figures)
    projected = (
        f"Copying memory, threads: {copies}. Million events per second:\n\n{_markdown(more)}"
        if len(more) > 1
        else f"gpu_ops took as many threads with `GPU_OPS_THREADS=1` as with {figures.cores}, so that no serial share "
        "was measured."
    )
    return {"across keys": f"{taken}\n\n{_markdown(table(figures))}", "more cores": projected}


def _markdown(lines: list[list[str]]) -> str:
    heading, *rows = ["| " + " | ".join(cell.replace("*", "\\*") for cell in line) + " |" for line in lines]
    return "\n".join([heading, "| " + " | ".join("---" for _ in lines[0]) + " |", *rows])


def with_tables(page: str, parts: dict[str, str]) -> str:
    """A page with its parts between ``<!-- name -->`` and ``<!-- end of name -->`` made anew."""
    for name, part in parts.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        page = f"{page[: page.index(begin) + len(begin)]}{part}\n{page[page.index(end) :]}"
    return page


if __name__ == "__main__":
    for each in pages():
        draw(each, each.parent)
    measured = read(MEASURED)
    draw_benchmarks(measured, DOCS)
    told = DOCS / "benchmarks.md"
    told.write_text(with_tables(told.read_text(encoding="utf-8"), tables(measured)), encoding="utf-8")
