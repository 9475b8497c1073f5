"""The one broker of the tests of topics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.broker import Broker, broker


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker, in a folder whose name has a space."""
    with broker(tmp_path_factory.mktemp("kafka") / "the broker") as made:
        yield made
