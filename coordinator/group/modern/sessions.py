"""Sessions and time limits of the members of groups that the server assigns. Who is late is fenced, as if it had left.

A member that isn't there any more when a timer fires, or is another group's by then, is passed over. One that waits for
a heartbeat of its own to be decided isn't late before, see `undecided.py`. Who can't be fenced now is late once more
after a while, unless the timer has been put off or ended by then (Kafka: `CoordinatorTimerImpl`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Generic, Protocol, TypeVar

from coordinator.group.modern.group import AssignedGroup
from coordinator.ports import Runtime
from protocol.errors import KafkaError

log = logging.getLogger("barnabas.groups")

RETRY_MS = 500
"""After which a timer is looked at again that was due meanwhile, or whose member couldn't be fenced."""

Late = Callable[[str, str, str], None]
"""What is done with a member that is late: its group's id, its id, and why. Raises KafkaError where that can't be
recorded."""

_Key = tuple[str, str, str]
"""Of a timer: what it limits, the group, the member."""


class TimedMember(Protocol):
    """What a time limit needs to know of a member."""

    @property
    def member_id(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    @property
    def rebalance_timeout_ms(self) -> int: ...


M = TypeVar("M", bound=TimedMember)


class Sessions:
    """`session` begins the keys of its timers."""

    def __init__(
        self,
        runtime: Runtime,
        late: Late,
        *,
        is_undecided: Callable[[str, str], bool],
        session: str,
        timeout_ms_of: Callable[[str], int],
    ) -> None:
        """By ids: `is_undecided` says whether a request of the member waits, `timeout_ms_of` gives a group's session
        timeout."""
        self._runtime = runtime
        self._is_undecided = is_undecided
        self._late = late
        self._session = session
        self._timeout_ms_of = timeout_ms_of

    def _schedule(self, key: _Key, delay_ms: int, late: Callable[[], None]) -> None:
        self._runtime.schedule(key, delay_ms, partial(self._due, key, late))

    def _due(self, key: _Key, late: Callable[[], None]) -> None:
        _, group_id, member_id = key
        if self._is_undecided(group_id, member_id):
            self._schedule(key, RETRY_MS, late)  # what is decided may put it off, or end it
            return
        try:
            late()
        except KafkaError as error:
            log.warning("group %s: %s can't be fenced now: %s", group_id, member_id, error)
            self._schedule(key, RETRY_MS, late)

    def restart(self, group_id: str, member_id: str, timeout_ms: int | None = None) -> None:
        """The member was heard of. By default it has the group's session timeout."""
        self._schedule(
            (self._session, group_id, member_id),
            self._timeout_ms_of(group_id) if timeout_ms is None else timeout_ms,
            partial(self._late, group_id, member_id, "its session expired"),
        )

    def cancel_all(self, group_id: str, member_id: str) -> None:
        """The member isn't there any more."""
        self._runtime.cancel((self._session, group_id, member_id))


class MemberSessions(Sessions, Generic[M]):
    """Of members that have something to give up now and then, in a time limit of its own: `rebalance` begins the keys
    of those timers."""

    def __init__(
        self,
        runtime: Runtime,
        late: Late,
        groups: Mapping[str, AssignedGroup[M]],
        *,
        is_undecided: Callable[[str, str], bool],
        session: str,
        rebalance: str,
        timeout_ms_of: Callable[[str], int],
        gives_up: Callable[[M], bool],
    ) -> None:
        """See `Sessions`; `gives_up` says whether a member has something to give up."""
        super().__init__(
            runtime, late, is_undecided=is_undecided, session=session, timeout_ms_of=timeout_ms_of
        )
        self._rebalance = rebalance
        self._groups = groups
        self._gives_up = gives_up

    def restart_all(self) -> None:
        """After a start: everybody has a whole session, and its whole time to give up what it has to."""
        for group_id, group in self._groups.items():
            for member_id, member in group.members.items():
                self.restart(group_id, member_id)
                if self._gives_up(member):
                    self.limit_rebalance(group_id, member)

    def limit_rebalance(self, group_id: str, member: TimedMember) -> None:
        """It has to give up what it has to in time, unless its epoch changes before."""
        member_id, epoch = member.member_id, member.epoch

        def due() -> None:
            group = self._groups.get(group_id)
            found = None if group is None else group.members.get(member_id)
            if found is not None and found.epoch == epoch:
                self._late(group_id, member_id, f"it didn't get beyond epoch {epoch} in time")

        self._schedule((self._rebalance, group_id, member_id), member.rebalance_timeout_ms, due)

    def end_rebalance(self, group_id: str, member_id: str) -> None:
        self._runtime.cancel((self._rebalance, group_id, member_id))

    def cancel_all(self, group_id: str, member_id: str) -> None:
        super().cancel_all(group_id, member_id)
        self.end_rebalance(group_id, member_id)
