"""What transactions came to, for whoever watches: counts that only go up, and the last durations.

All shards of a node share one object, so that nothing is lost when a partition is led elsewhere. Each transaction costs
some additions, whether anybody looks or not.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

SAMPLES = 1_024
"""The last so many durations are kept."""


class EndedBy(Enum):
    """Why a transaction was committed or aborted."""

    COMMITTED = "asked to commit"
    ABORTED = "asked to abort"
    FENCED = "aborted for a new producer with the same transactional id"
    TIMED_OUT = "aborted past its timeout"


class Durations:
    """Of one kind, in milliseconds: how many there were, their sum, and the last ones."""

    __slots__ = ("count", "last", "sum_ms")

    def __init__(self) -> None:
        self.count = 0
        self.sum_ms = 0.0
        self.last: deque[float] = deque(maxlen=SAMPLES)

    def add(self, took_ms: float) -> None:
        self.count += 1
        self.sum_ms += took_ms
        self.last.append(took_ms)


class TransactionStatistics:
    """Of all transactions whose coordinator is this node."""

    __slots__ = (
        "durations",
        "ended",
        "fan_outs",
        "given_up",
        "retried_markers",
        "verification_failures",
        "verifications",
    )

    def __init__(self) -> None:
        self.ended: dict[EndedBy, int] = dict.fromkeys(EndedBy, 0)
        """Whose Prepare* is committed."""
        self.durations = Durations()
        """From a transaction's first partition to its Complete*."""
        self.fan_outs = Durations()
        """From Prepare* to Complete*: the time that the markers take."""
        self.retried_markers = 0
        """Markers that were sent again."""
        self.given_up = 0
        """Completions that ended at a leader's word that somebody else is in charge."""
        self.verifications = Durations()
        """Questions of those who append here, whoever the coordinator is: from each to its answer."""
        self.verification_failures = 0
        """Partitions that the coordinator has refused."""
