"""What the clients did, as far as they know: what the broker is held to at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

Place = tuple[str, int]
"""A topic and a partition of it."""


class Outcome(Enum):
    UNKNOWN = "unknown"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass
class Transaction:
    """`values` are those that it sent, each of which only it has."""

    name: str
    values: dict[Place, list[bytes]] = field(default_factory=dict)
    acknowledged: set[bytes] = field(default_factory=set)
    offset: int | None = None
    """What it commits for its group."""
    outcome: Outcome = Outcome.UNKNOWN
    sent_commit: bool = False


@dataclass
class Sent:
    """Of an idempotent producer: a value, and the order in which it was sent to its partition."""

    value: bytes
    place: Place
    acknowledged: bool = False
    offset: int | None = None


@dataclass
class Work:
    sent: list[Sent] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    committed_offsets: dict[str, list[tuple[int, bool]]] = field(default_factory=dict)
    """By group: the offsets that were sent, in order, and whether each was acknowledged."""
    seen: dict[Place, dict[int, bytes]] = field(default_factory=dict)
    """By offset, what a read_committed reader was given."""
    anomalies: list[str] = field(default_factory=list)

    def complain(self, what: str) -> None:
        self.anomalies.append(what)
