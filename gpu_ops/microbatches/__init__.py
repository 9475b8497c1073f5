"""Micro-batch stores and result files on disk."""

from __future__ import annotations
