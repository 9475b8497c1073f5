"""Every statement of the recorded vectors is read, or refused by the name of what gpu_ops does not have."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from gpu_ops.epl import parse, unparse
from gpu_ops.errors import TextError
from tests.conformance.vectors import read


@pytest.fixture(scope="module")
def texts(conformance: Path) -> list[str]:
    lines = [vector.line for vector in read(conformance / "esper.jsonl.gz")]
    deployed = [step["deploy"] for line in lines for step in line["script"] if "deploy" in step]
    return [*(line["epl"] for line in lines), *deployed]


def _verdict(text: str) -> str:
    """That it is read and says the same when it is written again, or what it has that gpu_ops does not."""
    try:
        statements = parse(text)
    except TextError as error:
        return error.construct or f"{text}\n{error}"
    return "read" if parse(unparse(statements)) == statements else f"not the same again: {text}"


@pytest.mark.slow
def test_each_is_read_or_refused_by_name(texts: list[str]) -> None:
    # None is refused: the grammar has all that they use.
    assert Counter(_verdict(text) for text in texts) == {"read": len(texts)}
