"""Draws the pictures of these pages: `make pictures`.

A page's examples are run, and the figure that they leave is its picture, in a file of the page's name.
"""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOCS = Path(__file__).parent

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
    picture = folder / page.with_suffix(".svg").name
    with mpl.rc_context(_STYLE):
        drawn.savefig(picture, metadata=_METADATA)
    return picture


if __name__ == "__main__":
    for each in pages():
        draw(each, each.parent)
