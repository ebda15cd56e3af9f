"""The state of offsets in a row that are in flight: of a whole batch, or of a run of it (Kafka: `InFlightState`).

What an acknowledgement says is the state at once, and can be taken back until its write has succeeded: meanwhile
the change is *pending*, and nobody else may make one.
"""

from __future__ import annotations

from coordinator.share_partition.locks import Lock
from coordinator.share_partition.states import (
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    ENTERED_FROM,
    TERMINAL,
    RecordState,
)

NO_MEMBER = ""
"""As the owner of what isn't acquired: no member has an empty id."""


class InFlightState:
    """State, number of deliveries, owner and lock."""

    __slots__ = (
        "_before",
        "_is_archived_for_good",
        "_parted",
        "delivery_count",
        "lock",
        "member_id",
        "state",
    )

    def __init__(
        self, state: RecordState, delivery_count: int, member_id: str = NO_MEMBER, lock: Lock | None = None
    ) -> None:
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.lock = None if lock is None else lock.hold()
        self._before: tuple[RecordState, str, int] | None = None  # state, owner, delivery limit then
        self._is_archived_for_good = False
        self._parted: tuple[int, InFlightState] | None = None  # while a change is pending: see `parts`

    @property
    def is_pending(self) -> bool:
        """Whether a change waits for its write."""
        return self._before is not None

    @property
    def is_available(self) -> bool:
        """Whether it may be acquired."""
        return self.state is AVAILABLE and self._before is None

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    def relock(self, lock: Lock | None) -> None:
        """From now on it is held by this lock, or by none."""
        before, self.lock = self.lock, None if lock is None else lock.hold()
        if before is not None:
            before.drop()

    def parted(self, offset: int) -> InFlightState:
        """From this offset on they have a state of their own, which is the same so far, with the change that is
        pending."""
        behind = InFlightState(self.state, self.delivery_count, self.member_id, self.lock)
        behind._before, behind._is_archived_for_good = self._before, self._is_archived_for_good
        if self._before is not None:
            behind._parted, self._parted = self._parted, (offset, behind)
        return behind

    def parts(self, first_offset: int, last_offset: int) -> list[tuple[int, int, InFlightState]]:
        """What has become of the offsets that it was the state of when the change was begun: first, last, and state of
        each part that they have been told apart into since."""
        found: list[tuple[int, int, InFlightState]] = []
        part, first = self, first_offset
        while part._parted is not None:
            behind, following = part._parted
            found.append((first, behind - 1, part))
            part, first = following, behind
        found.append((first, last_offset, part))
        return found

    def move(self, to: RecordState, delivery_limit: int, member_id: str = NO_MEMBER) -> bool:
        """Change the state where that is legal; whether it was. What has been delivered as often as it may be is
        archived instead of made available."""
        if self._before is not None:
            return False
        if to is AVAILABLE and self.delivery_count >= delivery_limit:
            to = ARCHIVED
        if self.state not in ENTERED_FROM[to]:
            return False
        self.state = to
        self.member_id = member_id
        if to is ACQUIRED:
            self.delivery_count += 1
        return True

    def begin(self, to: RecordState, delivery_limit: int) -> bool:
        """As `move`; it is pending until `complete`."""
        before = (self.state, self.member_id, delivery_limit)
        if not self.move(to, delivery_limit):
            return False
        self._before = before
        return True

    def complete(self, *, is_written: bool) -> None:
        """End what was begun: it holds, or all is as it was. What is taken back isn't its member's any more where its
        lock's time is over meanwhile."""
        assert self._before is not None, "nothing was begun"
        (state, member_id, limit), self._before = self._before, None
        self._parted = None
        if is_written or self._is_archived_for_good:
            self.relock(None)
        elif self.lock is not None and self.lock.has_expired:
            self.state = ARCHIVED if self.delivery_count >= limit else AVAILABLE
            self.member_id = NO_MEMBER
            self.relock(None)
        else:
            self.state = state
            self.member_id = member_id

    def archive(self) -> None:
        """It is out of reach: the log begins later, it was compacted away, or its transaction was aborted. A pending
        change doesn't undo that."""
        self._is_archived_for_good = True
        self.state = ARCHIVED
        self.member_id = NO_MEMBER
        self.relock(None)
