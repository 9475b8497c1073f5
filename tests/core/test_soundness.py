"""Texts are checked together, and the verdict is the one of Arrow's check of each text."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, reject
from hypothesis import strategies as st

from gpu_ops.core.bounds import Bounds
from gpu_ops.core.soundness import UnsoundError, sound
from tests.support.examples import examples

TEXTS = st.lists(st.none() | st.text(max_size=4) | st.sampled_from(["", "a", "é", "日", "𝄞"]), max_size=8)
PLACES = st.integers(0, 40)


@st.composite
def damaged(draw: st.DrawFn) -> pa.RecordBatch:
    """Texts as they are, or with other bytes or offsets; a part of them, with more or fewer rows said to be null."""
    kind, width = draw(st.sampled_from([(pa.string(), np.int32), (pa.large_string(), np.int64)]))
    array = pa.array(draw(TEXTS), kind)
    validity, places, text = array.buffers()
    offsets = np.frombuffer(places, width, len(array) + 1).copy() if places else np.zeros(1, width)
    letters = np.frombuffer(text, np.uint8).copy() if text else np.zeros(0, np.uint8)
    for _ in range(draw(st.integers(0, 2))):
        if len(letters) and draw(st.booleans()):
            letters[draw(PLACES) % len(letters)] = draw(st.integers(0, 255))
        else:
            offsets[draw(PLACES) % len(offsets)] += draw(st.sampled_from([-1, 1, 2, 1 << 29]))
    count = array.null_count + draw(st.sampled_from([0, 0, 0, 1]))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(letters)]
    try:
        made = pa.Array.from_buffers(kind, len(array), buffers, null_count=count)
        return pa.record_batch([made.slice(draw(st.integers(0, 3)))], ["text"])
    except pa.ArrowInvalid:  # the sizes of its buffers tell
        reject()


def _texts(letters: bytes, offsets: list[int]) -> pa.RecordBatch:
    buffers = [None, pa.py_buffer(np.array(offsets, np.int32)), pa.py_buffer(letters)]
    return pa.record_batch([pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)], ["text"])


@examples(dear=True)
@given(damaged())
@example(_texts("é".encode(), [0, 1, 2]))  # sound together, and none of the two by itself
@example(_texts("aé".encode(), [0, 1, 3, 3]))
@example(_texts(b"a\xff", [0, 1, 2]))
@example(_texts(b"abc", [0, 2, 1, 3]))
def test_texts_are_sound_together_where_each_is(rows: pa.RecordBatch) -> None:
    meter = Bounds().meter("texts", 1000)
    try:
        rows.validate(full=True)
    except (pa.ArrowException, IndexError):
        with pytest.raises(UnsoundError, match="texts is damaged"):
            sound(rows, meter)
    else:
        assert sound(rows, meter) is rows
