"""Spark's daemon of Python workers, which leaves those that have ended to be counted.

Spark's own lets the system forget them, and their CPU time with them. Here the process table keeps both until the
daemon ends: some workers of Spark end with each task.
"""

from __future__ import annotations

import signal
from typing import Any

from pyspark import daemon


def main() -> None:
    given = signal.signal

    def kept(number: int, handler: Any) -> Any:
        return given(number, signal.SIG_DFL if number == signal.SIGCHLD else handler)

    signal.signal = kept  # type: ignore[assignment]
    daemon.manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
