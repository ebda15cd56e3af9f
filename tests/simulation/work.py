"""What the clients did, as far as they know: the reference for the final checks of the broker."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from tests.simulation.commits import Commit, Commits

Place = tuple[str, int]
"""A topic and a partition of it."""

PLACES: tuple[Place, ...] = (("orders", 0), ("orders", 1), ("bills", 0))
MOST_TRANSACTIONAL = 3
"""The most transactional producers."""


class Outcome(Enum):
    UNKNOWN = "unknown"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass
class Transaction:
    """`values` are those that it sent. No other transaction has them."""

    name: str
    values: dict[Place, list[bytes]] = field(default_factory=dict)
    acknowledged: set[bytes] = field(default_factory=set)
    commit: Commit | None = None
    """The commit of an offset for its group."""
    outcome: Outcome = Outcome.UNKNOWN
    sent_commit: bool = False


@dataclass
class Sent:
    """What an idempotent producer sent: a value, and its order among the values for its partition."""

    value: bytes
    place: Place
    acknowledged: bool = False
    offset: int | None = None


@dataclass
class Work:
    """`may_lose`: True if the broker's machine may lose what it acknowledged."""

    may_lose: bool = False
    is_refused_now_and_then: bool = False
    """True if writes are refused now and then, by a full disk or by brokers that can't reach each other."""
    synced_topics: set[str] = field(default_factory=set)
    """The topics whose records are on disk before they are acknowledged."""
    sent: list[Sent] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    commits: dict[tuple[str, Place], Commits] = field(default_factory=dict)
    """By group and partition."""
    seen: dict[Place, dict[int, bytes]] = field(default_factory=dict)
    """What a read_committed reader got, by offset."""
    seen_uncommitted: dict[Place, dict[int, bytes]] = field(default_factory=dict)
    """What a reader of uncommitted records got: below the high watermark it never changes."""
    anomalies: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """What was acknowledged and what happened, counted."""

    def may_lose_of(self, place: Place) -> bool:
        """Return True if an acknowledged record of the partition may be gone."""
        return self.may_lose and place[0] not in self.synced_topics

    def complain(self, what: str) -> None:
        self.anomalies.append(what)

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] += number

    def commits_of(self, group: str, place: Place) -> Commits:
        return self.commits.setdefault((group, place), Commits())
