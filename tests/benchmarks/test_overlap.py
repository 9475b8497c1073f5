"""What is timed at several overlaps is what windows are defined to hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import overlap
from gpu_ops.core.time import MAX_TIME


@pytest.mark.parametrize("kind", overlap.KINDS)
def test_every_form_gives_what_is_defined(kind: str) -> None:
    for windows, asked in zip((1, 3, 10, 100), ("distinct values", "median", "sum of floats", "mode"), strict=True):
        overlap.check_small(kind, asked, windows)


@pytest.mark.parametrize("kind", overlap.KINDS)
def test_sums_add_up(kind: str) -> None:
    given = overlap.events(2000)
    assert all(overlap.check_full(kind, given, windows) for windows in (1, 10))


def test_what_is_not_as_defined_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(overlap.ASKED, "sum", replace(overlap.ASKED["sum"], literal=len))
    with pytest.raises(ValueError, match="sum over last, 3 windows for an event: cpu gives something else"):
        overlap.check_small("last", "sum", 3)
    monkeypatch.setitem(overlap.KINDS, "last", replace(overlap.KINDS["last"], total=lambda given, windows: 1))
    with pytest.raises(ValueError, match="do not add up with 3 windows"):
        overlap.check_full("last", overlap.events(100), 3)


def test_definitions_are_read_from_a_timeline() -> None:
    """Events of one key at 1, 3 and 24 tenths of a second.

    hopping by 1 s, size 2 s   [-1 s, 1 s) ab   [0 s, 2 s) ab   [1 s, 3 s) c   [2 s, 4 s) c
    last two                   [1, 3) a         [3, 24) ab      [24, ) bc
    sliding over 5 tenths      [1, 3) a         [3, 6) ab       [6, 8) b       [24, 29) c
    """
    a, b, c = ((tenths * overlap.GAP, 0, value, 0.0) for tenths, value in ((1, 1), (3, 2), (24, 3)))
    expected: dict[tuple[str, int], list[tuple[int, int | None, list[overlap.Event]]]] = {
        ("hopping", 2): [(-10, 10, [a, b]), (0, 20, [a, b]), (10, 30, [c]), (20, 40, [c])],
        ("last", 2): [(1, 3, [a]), (3, 24, [a, b]), (24, None, [b, c])],
        ("sliding", 5): [(1, 3, [a]), (3, 6, [a, b]), (6, 8, [b]), (24, 29, [c])],
    }
    for (kind, windows), spans in expected.items():
        assert [*overlap.KINDS[kind].literal([a, b, c], windows)] == [
            (start * overlap.GAP, MAX_TIME if end is None else end * overlap.GAP, 0, held) for start, end, held in spans
        ]
