"""How far a log is synced, and who waits for more."""

import logging
from collections.abc import Sequence
from contextlib import suppress

from protocol.errors import stops_the_broker
from storage.background import Lane, Then

logger = logging.getLogger(__name__)


class Flushing:
    """While a flush of a log runs, what is wanted is served by one more behind it.

    Who waits is told exactly once, whatever another one does with it; a broken invariant of one is raised behind the
    last of them.
    """

    __slots__ = (
        "_claimed",
        "_truncations",
        "_waiters",
        "lane",
        "last_ms",
        "made_anew",
        "recovery_point",
        "under_way",
        "wanted_to",
    )

    def __init__(self) -> None:
        self.lane = Lane.FLUSHING
        """Where it is synced."""
        self.recovery_point = 0
        """All before it is on the disk."""
        self.made_anew = False
        """Whether this start made indexes or a snapshot anew: a clean end syncs them, even beside synced records."""
        self.under_way = 0
        """How many flushes were begun and have not ended."""
        self.wanted_to = 0
        self.last_ms = 0
        """When a flush was last wanted."""
        self._waiters: list[tuple[int, Then]] | None = None  # most logs have none, ever
        self._claimed = 0
        """How far the checkpoint may say that it is synced: where that goes back, it is told in the background."""
        self._truncations = 0
        """How often the end was cut back: what was being synced then isn't what is there now."""

    @property
    def running(self) -> bool:
        """Whether a flush is under way."""
        return self.under_way > 0

    @property
    def has_waiters(self) -> bool:
        """Whether anybody waits for a flush."""
        return bool(self._waiters)

    def want(self, offset: int, now_ms: int) -> None:
        """All below the offset is to be synced."""
        self.last_ms = now_ms
        if offset > self.wanted_to:
            self.wanted_to = offset

    def start(self) -> int:
        """A flush runs. Returns what `end` is told, by which it knows of a truncation in between."""
        self.under_way += 1
        return self._truncations

    def begin_at(self, offset: int) -> None:
        """There is nothing below the offset to sync."""
        self._claimed = max(self._claimed, self.recovery_point)
        self.recovery_point = offset

    def begin_segment(self, base_offset: int) -> None:
        """The indexes and the snapshot of the segment before aren't synced, though all of its records may be: a start
        recovers it until they are."""
        self.recovery_point = min(self.recovery_point, base_offset - 1)

    def may_be_claimed(self, offset: int) -> bool:
        """Whether a start may take all below the offset for synced that isn't."""
        return self.recovery_point < offset <= self._claimed

    def stop(self) -> None:
        """A flush has ended."""
        self.under_way -= 1

    def end(self, begun: int, target: int) -> None:
        """A flush that has ended has synced all below `target`, unless the log was truncated meanwhile."""
        if begun == self._truncations:
            self.synced_to(max(self.recovery_point, target))
        else:
            self.tell_synced()

    def synced_to(self, offset: int) -> None:
        """All below the offset is on the disk; those who waited for it are told."""
        self.recovery_point = offset
        self.tell_synced()

    def cut_at(self, offset: int) -> None:
        """The log ends at the offset now. Who waits for more is to be told, with `tell_lost`."""
        self._claimed = max(self._claimed, self.recovery_point)
        self.recovery_point = min(self.recovery_point, offset)
        self.wanted_to = min(self.wanted_to, offset)
        self._truncations += 1

    def wait(self, offset: int, then: Then) -> None:
        """`then` is called once all below the offset is synced, or with the failure that prevents it."""
        if self._waiters is None:
            self._waiters = []
        self._waiters.append((offset, then))

    def take_over(self, other: "Flushing") -> None:
        """Those who wait for the other one, wait for this one; it isn't under way, and tells nobody yet."""
        self.last_ms = other.last_ms
        self._waiters, other._waiters = [*(self._waiters or ()), *(other._waiters or ())], None

    def tell_lost(self, failure: Exception, *, above: int = -1) -> None:
        """Tells those who wait for an offset above the given one that it is never going to be synced."""
        waiters = self._waiters
        if not waiters:
            return
        lost = [then for offset, then in waiters if offset > above]
        self._waiters = [waiter for waiter in waiters if waiter[0] <= above]
        _tell(lost, failure)

    def tell_synced(self) -> None:
        """Tells those who wait for what is synced."""
        if not self._waiters:
            return
        point = self.recovery_point
        due = [then for offset, then in self._waiters if offset <= point]
        self._waiters = [waiter for waiter in self._waiters if waiter[0] > point]
        _tell(due, None)


def _tell(waiters: Sequence[Then], failure: Exception | None) -> None:
    broken: Exception | None = None
    for then in waiters:
        try:
            then(failure)
        except Exception as error:
            with suppress(MemoryError):  # the others are told
                logger.exception("Somebody who waited for a flush can't be told")
            if broken is None and stops_the_broker(error):
                broken = error
    if broken is not None:
        raise broken
