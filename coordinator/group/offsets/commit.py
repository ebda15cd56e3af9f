"""What is committed, and by whom."""

from __future__ import annotations

from typing import NamedTuple

from protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


class Committer(NamedTuple):
    """Who commits. Without member id and instance id, and with generation −1, it isn't a member of a group."""

    group_id: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1

    @property
    def is_anonymous(self) -> bool:
        return self.generation < 0 and not self.member_id and self.instance_id is None


class NewOffset(NamedTuple):
    """One partition of a commit."""

    topic: str
    topic_id: bytes
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


class OffsetProducer(NamedTuple):
    """In whose transaction offsets are committed. `guard`: see `coordinator.ports.Runtime.append`."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    guard: object | None = None


NO_PRODUCER = OffsetProducer()
