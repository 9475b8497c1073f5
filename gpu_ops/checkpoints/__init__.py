"""Checkpoint folders: files of state that never change, and manifests that name them. Nothing here knows queries."""
