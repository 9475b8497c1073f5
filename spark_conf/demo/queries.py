"""What the demo asks about its own event log, in one job: a query file may give several streams, by name."""

from __future__ import annotations

from typing import Any

import gpu_ops as g
from gpu_ops.apps.queries import idle_cores, running_tasks, shuffled_bytes

# The job is short, and so are its windows.
SIZE, EVERY = "2s", "500ms"


def query(tasks: Any, cores: Any) -> dict[str, g.Stream]:
    return {
        "running_tasks": running_tasks.query(tasks),
        "idle_cores": idle_cores.query(cores),
        "shuffled_bytes": shuffled_bytes.query(tasks, size=SIZE, every=EVERY),
    }
