"""Writes `cupy_facts.json`: what CuPy takes, asked of the wheel itself. It needs CuPy, but no GPU.

In an environment of its own, since CuPy is no part of the lock: ``pip install cupy-cuda13x==14.2.0``, then
``python tests/support/record_cupy_facts.py``.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

METHODS = ("accumulate", "at", "reduce", "reduceat")


def signature(function: Any) -> str | None:
    """The names of a function's parameters, without defaults and types; None where the wheel does not tell."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    plain = [each.replace(default=inspect.Parameter.empty, annotation=inspect.Parameter.empty) for each in parameters]
    return str(inspect.Signature(plain))[1:-1]


def method_signature(name: str) -> str | None:
    """The names of an array method's parameters, which its docstring begins with; None for what is no method."""
    import cupy

    found = re.match(r"[_a-z]*\.\w+\(self(?:, )?(.*?)\)", getattr(cupy.ndarray, name).__doc__ or "")
    return None if found is None else ", ".join(re.sub("=.*|.* ", "", each) for each in found[1].split(", "))


def has(ufunc: Any, method: str) -> bool:
    """Whether a ufunc has a method: where it has none, that is said before an argument is looked at."""
    try:
        getattr(ufunc, method)(None, None)
    except NotImplementedError:
        return False
    except Exception:  # noqa: BLE001  (no array was given: how it fails is of no interest)
        return True
    return True


def main() -> None:
    import cupy
    import numpy as np

    ufuncs, functions = {}, {}
    for name in sorted(set(dir(cupy)) & set(dir(np))):
        found = getattr(cupy, name)
        if isinstance(found, cupy.ufunc):
            ufuncs[name] = {"loops": " ".join(found.types), "methods": [each for each in METHODS if has(found, each)]}
        elif callable(found) and not isinstance(found, type) and not name.startswith("_"):
            parameters = signature(found)
            if parameters is not None:
                functions[name] = parameters
    facts = {
        "source": f"the wheel cupy-cuda13x {cupy.__version__}",
        "array": {name: method_signature(name) for name in dir(cupy.ndarray) if not name.startswith("_")},
        "functions": functions,
        "ufuncs": ufuncs,
    }
    # A line for each entry, so that a change can be read.
    text = json.dumps(facts, indent=1, sort_keys=True)
    Path(__file__).with_name("cupy_facts.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
