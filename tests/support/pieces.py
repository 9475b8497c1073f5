"""Batches in pieces of a few events, as those of much data are taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from hypothesis import strategies as st

from gpu_ops.engines.local import pieces as engine


@contextmanager
def in_pieces(size: int) -> Iterator[None]:
    """Batches take pieces of about so many events."""
    with mock.patch.object(engine, "PIECE", size):
        yield


sizes = st.sampled_from([engine.PIECE, 1, 3])
"""All events in one piece, or in several."""
