"""From a user's data to batches of valid events, and back to the kind of frame that came in."""

from __future__ import annotations

from gpu_ops.ingest.arrivals import ArrivalKind, Arrivals
from gpu_ops.ingest.csv_options import CsvOptions
from gpu_ops.ingest.opening import open_source
from gpu_ops.ingest.origin import to_origin
from gpu_ops.ingest.rules import IngestReport
from gpu_ops.ingest.sources import EventSource

__all__ = ["ArrivalKind", "Arrivals", "CsvOptions", "EventSource", "IngestReport", "open_source", "to_origin"]
