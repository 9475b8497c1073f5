"""Damaged files of every kind, read as users do: each gives an answer or an error of ours, soon and in little memory.

A file is made again from its number: ``python -m tests.fuzz.harness NUMBER 1``.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.fuzz.cases import KINDS, draw
from tests.fuzz.found import FOUND
from tests.fuzz.harness import Outcome, outcomes

pytestmark = pytest.mark.services

FILES = 500
"""The same ones each time, so that they judge nothing but the change."""


def bad(found: Iterable[Outcome]) -> str:
    """Those that are bad, in words."""
    return "\n\n".join(str(each) for each in found if not each.good)


def test_sound_files_give_answers_and_damaged_ones_answers_or_errors_of_ours(tmp_path: Path) -> None:
    found = list(outcomes(range(-10 * len(KINDS), FILES)))
    assert not bad(found), bad(found)
    assert {each.verdict for each in found if each.seed < 0} == {"answer"}
    # Damage that is always refused at the door, or never noticed, tries nothing.
    verdicts = defaultdict(list)
    for each in found:
        if each.seed >= 0:
            verdicts[each.what.partition(":")[0]].append(each.verdict)
    assert set(verdicts) == set(KINDS)
    for kind, given in verdicts.items():
        assert {"answer", "error"} <= set(given), kind
    # From its number a file is made again, in any process, whatever was made before.
    for each in found[:: len(found) // 20]:
        assert draw(each.seed, tmp_path / "again").what == each.what


def test_what_was_found_once_is_mended() -> None:
    found = list(outcomes(range(len(FOUND)), "tests.fuzz.found:draw"))
    assert not bad(found), bad(found)


@pytest.mark.deep
def test_many_more_damaged_files() -> None:
    first = random.randrange(1 << 30)
    found = [each for each in outcomes(range(first, first + 20_000)) if not each.good]
    assert not bad(found), bad(found)
