"""What is kept on disk."""

from __future__ import annotations
