"""The fuzzer sees what is bad: readers that crash, hang, fill memory, raise what is not ours, or give nonsense."""

from __future__ import annotations

import pytest

from tests.fuzz.harness import outcomes
from tests.fuzz.misbehaving import READERS

pytestmark = pytest.mark.services


def test_the_fuzzer_sees_what_is_bad() -> None:
    found = list(outcomes(range(len(READERS)), "tests.fuzz.misbehaving:draw", hang=1.0, memory=30))
    assert [(each.what, each.verdict) for each in found] == [
        (f"a reader that {what}", verdict) for what, (_, verdict) in READERS.items()
    ]
    by_what = {each.what.removeprefix("a reader that "): each for each in found}
    # It says where: what died, too, and what hung.
    for what, where in (
        ("segfaults", "string_at"), ("aborts", "Aborted"), ("spins", "_spin"), ("sleeps", "misbehaving.py"),
        ("misses a key", "KeyError: 'key'"), ("panics", "PanicException"), ("refuses", "The file is damaged."),
    ):  # fmt: skip
        assert where in by_what[what].seen, what
