"""What the demo asks two streams, NEXMark's question 4: what did the auctions of each category go for, on average?"""

from __future__ import annotations

from typing import Any

import gpu_ops as g
from gpu_ops.apps.nexmark import queries, streams


def query(auctions: Any, bids: Any) -> g.Stream:
    return queries.q4(streams.auctions(auctions), streams.bids(bids))
