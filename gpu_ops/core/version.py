"""The version of the package, which checkpoints and Spark's workers are told."""

from __future__ import annotations

VERSION = "0.1.0"
