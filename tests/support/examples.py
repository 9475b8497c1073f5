"""How many examples a property is tried with, where that is not the profile's own number."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

_PROFILE = settings().max_examples
_DEFAULT = settings.get_profile("default").max_examples


def examples(count: int, **more: Any) -> settings:
    """`count` examples, in the deep profile too, but the fast profile's few in that; `more` are further settings."""
    return settings(max_examples=count if _PROFILE >= _DEFAULT else min(count, _PROFILE), **more)


def by_default(count: int, **more: Any) -> settings:
    """`count` examples in the default profile; the others have their own. `more` are further settings."""
    return settings(max_examples=count if _PROFILE == _DEFAULT else _PROFILE, **more)
