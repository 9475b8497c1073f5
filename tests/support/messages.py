"""Messages as Kafka's client gives them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Message:
    """A message that no broker has seen."""

    said: bytes | None
    at: int = 0
    where: int = 0
    when: int = 0
    named: bytes | None = None
    more: list[tuple[str, bytes]] = field(default_factory=list)

    def value(self) -> bytes | None:
        return self.said

    def offset(self) -> int:
        return self.at

    def partition(self) -> int:
        return self.where

    def timestamp(self) -> tuple[int, int]:
        return 1, self.when

    def key(self) -> bytes | None:
        return self.named

    def headers(self) -> list[tuple[str, bytes]]:
        return self.more
