"""Share sessions (KIP-932; Kafka: `ShareSession`, `ShareSessionCache`).

A session belongs to a member on this broker. It holds the partitions that the member fetches, and an epoch
that each request increments. It ends with its last request, or with the connection that opened it. (In Kafka,
a connection ends only the last session that it opened. If a client opens many, the others stay for good.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from broker.network.connection import Connection
    from protocol.messages.share_fetch import FetchedPartition

FINAL_EPOCH = -1
FIRST_EPOCH = 0
MAX_SHARE_SESSION_EPOCH = 2**31 - 1
MOST_SHARE_SESSION_PARTITIONS = 500_000
"""The most partitions in all sessions: a client may name any, whether they exist or not. Beyond that,
requests are answered with SHARE_SESSION_LIMIT_REACHED."""
MOST_PARTITIONS_OF_ONE = 5_000
"""The most partitions in one session. Each of its fetches looks at all of them, which takes some 60 ms, in
turns."""

ShareKey = tuple[bytes, int]
"""Topic id and number of a partition."""
SessionKey = tuple[str, str]
"""Group id and member id."""


def next_epoch(epoch: int) -> int:
    return 1 if epoch == MAX_SHARE_SESSION_EPOCH else epoch + 1


class OpenedSessions:
    """The sessions that one connection opened. Called when the connection ends (`Connection.when_lost`)."""

    __slots__ = ("_lost", "last_group", "sessions")

    def __init__(self, lost: Callable[[OpenedSessions], None]) -> None:
        self._lost = lost
        self.sessions: dict[SessionKey, ShareSession] = {}
        self.last_group = ""
        """The group of the session opened last, whether it has ended or not."""

    def __call__(self) -> None:
        self._lost(self)


class ShareSession:
    """A session. `partitions` are in the order of fetching; True means that the next answer has to list
    one."""

    __slots__ = ("epoch", "key", "opened_beside", "partitions")

    def __init__(
        self, key: SessionKey, partitions: Iterable[ShareKey], opened_beside: OpenedSessions
    ) -> None:
        self.key = key
        self.opened_beside = opened_beside
        self.epoch = next_epoch(FIRST_EPOCH)
        self.partitions: dict[ShareKey, bool] = dict.fromkeys(partitions, False)

    def tell(self, partition: ShareKey, answer: FetchedPartition) -> bool:
        """Return True if the answer lists the partition: it has records or an error, or is new. After an
        error it is listed once more."""
        must_list = self.partitions.get(partition)
        if must_list is None:
            return False
        has_records = bool(answer.records)
        if answer.error_code:
            self.partitions[partition] = True
        elif has_records:
            del self.partitions[partition]
            self.partitions[partition] = False
        else:
            self.partitions[partition] = False
        return must_list or has_records or answer.error_code != 0


class ShareSessionCache:
    """All sessions. When a connection ends, `ended` is called with its sessions, then `emptied` with the
    groups that have no session left."""

    def __init__(
        self,
        most: int,
        ended: Callable[[list[ShareSession]], None],
        emptied: Callable[[list[str]], None],
    ) -> None:
        self._most = most
        self._ended = ended
        self._emptied = emptied
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._members: dict[str, int] = {}
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, group_id: str, member_id: str) -> ShareSession:
        """Find a session. Raises KafkaError (SHARE_SESSION_NOT_FOUND)."""
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise KafkaError(Error.SHARE_SESSION_NOT_FOUND)
        return session

    def open(
        self, group_id: str, member_id: str, connection: Connection, partitions: Iterable[ShareKey]
    ) -> ShareSession:
        """Open a new session in place of the member's old one. The member keeps its records.

        Raises KafkaError (SHARE_SESSION_LIMIT_REACHED). The old one has ended then, too.
        """
        key = (group_id, member_id)
        self.remove(key)
        opened = connection.when_lost
        if not isinstance(opened, OpenedSessions):
            opened = OpenedSessions(self._lost)
        session = ShareSession(key, partitions, opened)
        if len(self._sessions) >= self._most:
            raise KafkaError(Error.SHARE_SESSION_LIMIT_REACHED)
        self._make_room(len(session.partitions), 0)
        self._sessions[key] = session
        self._members[group_id] = self._members.get(group_id, 0) + 1
        opened.sessions[key] = session
        opened.last_group = group_id
        connection.when_lost = opened
        return session

    def go_on(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """Accept a request that isn't the first, and use up its epoch.

        Raises KafkaError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        session = self.get(group_id, member_id)
        if session.epoch != epoch:
            raise KafkaError(Error.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = next_epoch(epoch)
        return session

    def update(
        self,
        group_id: str,
        member_id: str,
        epoch: int,
        added: Iterable[ShareKey],
        forgotten: Iterable[ShareKey],
    ) -> ShareSession:
        """Do the same as `go_on`, then add and remove partitions. SHARE_SESSION_LIMIT_REACHED if too many are
        added."""
        session = self.get(group_id, member_id)
        if session.epoch != epoch:
            raise KafkaError(Error.INVALID_SHARE_SESSION_EPOCH)
        partitions = session.partitions
        new = dict.fromkeys(key for key in added if key not in partitions)
        self._make_room(len(new), len(partitions))
        partitions.update(dict.fromkeys(new, True))
        for key in forgotten:
            if partitions.pop(key, None) is not None:
                self._partitions -= 1
        return self.go_on(group_id, member_id, epoch)

    def _make_room(self, count: int, present: int) -> None:
        """Make room for more partitions in a session that has `present` ones."""
        if (
            self._partitions + count > MOST_SHARE_SESSION_PARTITIONS
            or present + count > MOST_PARTITIONS_OF_ONE
        ):
            raise KafkaError(Error.SHARE_SESSION_LIMIT_REACHED)
        self._partitions += count

    def remove(self, key: SessionKey) -> ShareSession | None:
        """End a session. Returns it, or None if there is none."""
        session = self._sessions.pop(key, None)
        if session is not None:
            session.opened_beside.sessions.pop(key, None)
            self._partitions -= len(session.partitions)
            left = self._members.pop(key[0]) - 1
            if left:
                self._members[key[0]] = left
        return session

    def clear(self) -> None:
        """End all sessions. What they hold stays with their members until its locks expire."""
        for key in [*self._sessions]:
            self.remove(key)

    def has_any(self, group_id: str) -> bool:
        """True if any member of the group has a session."""
        return group_id in self._members

    def _lost(self, opened: OpenedSessions) -> None:
        """End the sessions of a connection that has ended."""
        group_ids = dict.fromkeys([opened.last_group])
        sessions = [*opened.sessions.values()]
        for session in sessions:
            self.remove(session.key)
            group_ids[session.key[0]] = None
        self._ended(sessions)
        self._emptied([group_id for group_id in group_ids if not self.has_any(group_id)])
