"""What the clients did, as far as they know: what the broker is held to at the end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from tests.simulation.commits import Commit, Commits

Place = tuple[str, int]
"""A topic and a partition of it."""

PLACES: tuple[Place, ...] = (("orders", 0), ("orders", 1), ("bills", 0))
MOST_TRANSACTIONAL = 3
"""Producers."""


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
    commit: Commit | None = None
    """Of an offset, for its group."""
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
    """`may_lose`: whether the broker's machine may lose what it acknowledged."""

    may_lose: bool = False
    is_refused_now_and_then: bool = False
    """Whether what is to be written is, by a disk that is full, or by brokers that can't reach each other."""
    synced_topics: set[str] = field(default_factory=set)
    """Of which each record is on the disk before it is acknowledged."""
    sent: list[Sent] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    commits: dict[tuple[str, Place], Commits] = field(default_factory=dict)
    """By group and partition."""
    seen: dict[Place, dict[int, bytes]] = field(default_factory=dict)
    """By offset, what a read_committed reader was given."""
    seen_uncommitted: dict[Place, dict[int, bytes]] = field(default_factory=dict)
    """What one was given that reads uncommitted records: below the high watermark they stay what they are."""
    anomalies: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """What was acknowledged, and what happened: so many of each."""

    def may_lose_of(self, place: Place) -> bool:
        """Whether an acknowledged record of the partition may be gone."""
        return self.may_lose and place[0] not in self.synced_topics

    def complain(self, what: str) -> None:
        self.anomalies.append(what)

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] += number

    def commits_of(self, group: str, place: Place) -> Commits:
        return self.commits.setdefault((group, place), Commits())
