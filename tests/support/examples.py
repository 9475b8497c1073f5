"""How many examples a property is tried with: one rule, for all tests.

A property is tried with its profile's number: 25 in an ordinary run, 3 in a fast one, 10,000 in a deep one. Where an
example is dear, an ordinary run draws `DEAR`, and `OF_EACH` where there is a test for each of ten kinds or more.
Without `CI` each run draws others, and the deep run has the rest.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings

_PROFILE = settings().max_examples
_DEFAULT = settings.get_profile("default").max_examples

DEAR = 8
"""So many examples in an ordinary run, where one costs some 20 ms of a processor or more."""

OF_EACH = 3
"""Of them, where one test is run for each of ten kinds or more: windows, aggregates, devices, one by the other."""


def examples(count: int | None = None, *, dear: bool = False, kinds: bool = False, **more: Any) -> settings:
    """`count` examples, in the deep profile too, but the fast profile's few in that; `more` are further settings.

    Args:
        count: How many, where the profile's own number does not fit.
        dear: Whether an example is dear: an ordinary run draws at most `DEAR`.
        kinds: Whether there is a test for each of ten kinds or more, and examples are dear: at most `OF_EACH` then.
        more: Further settings.
    """
    number = _PROFILE if count is None else count if _PROFILE >= _DEFAULT else min(count, _PROFILE)
    if _PROFILE == _DEFAULT and (dear or kinds):
        number = min(number, OF_EACH if kinds else DEAR)
    return settings(max_examples=number, **more)


def by_default(count: int, *, deep: int | None = None, **more: Any) -> settings:
    """`count` examples in the default profile, as an issue asks; the others have their own.

    Args:
        count: How many.
        deep: How many in the deep profile, where its own number does not do.
        more: As in `examples`.
    """
    number = count if _PROFILE == _DEFAULT else _PROFILE
    return settings(max_examples=deep if deep is not None and _PROFILE > _DEFAULT else number, **more)
