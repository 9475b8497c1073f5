"""What is wrong with a text, before it is an error that shows its place."""

from __future__ import annotations


class PlacedError(Exception):
    """Why a text cannot be read, and from which character to which. Never seen by a user."""

    def __init__(self, start: int, end: int, problem: str, remedy: str = "", *, construct: str = "") -> None:
        super().__init__(problem)
        self.start, self.end = start, end
        self.problem, self.remedy, self.construct = problem, remedy, construct
