"""What the driver tells the tasks: the transaction's identity, where records may go, and which task writes where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from barnabas.spark.arrow_batches import Batch

SEQUENCES = 1 << 31
"""Of a producer in a partition, before they begin at 0 again."""


class Target(NamedTuple):
    """A partition to write to."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a task needs to know.

    targets: every partition of every topic, topic by topic; a target's number is its place here.
    leaders: of each target, the node id.
    max_message_bytes: by topic.
    owners: how many tasks write. Target number t belongs to task `owner_of(t)`.
    """

    bootstrap: str
    client: dict[str, Any]
    request_timeout_ms: int
    transactional_id: str
    producer_id: int
    epoch: int
    batch_id: int
    topic: str | None
    compression: str
    max_batch_bytes: int
    targets: tuple[Target, ...]
    leaders: tuple[int, ...]
    max_message_bytes: dict[str, int]
    owners: int

    def owner_of(self, target: int) -> int:
        # By the partition's number and not the target's, so that every task owns some of every topic; shifted from
        # batch to batch, so that none is left out where there are fewer tasks than owners.
        return (self.targets[target].partition + self.batch_id) % self.owners

    @property
    def batch_bytes(self) -> int:
        """The largest record batch, before compression, unless it holds a single record."""
        return min([self.max_batch_bytes, *self.max_message_bytes.values()])

    def targets_of(self, topic: str) -> range:
        return self.ranges()[topic]

    def ranges(self) -> dict[str, range]:
        """Each topic's targets, by one look at all of them: there may be thousands of topics."""
        found: dict[str, range] = {}
        for number, (topic, _) in enumerate(self.targets):
            found[topic] = range(found[topic].start if topic in found else number, number + 1)
        return found


class Blob(NamedTuple):
    """A record batch and where it goes."""

    target: int
    batch: Batch
