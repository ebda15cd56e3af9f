"""A shard of the share coordinator, with short methods for its requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from coordinator.persister import StateBatch
from coordinator.settings import ShareCoordinatorSettings
from coordinator.share.shard import ShareShard
from coordinator.share.share_partition_key import SharePartitionKey
from coordinator.share.share_partitions import ShareRecord, Write, decode_record
from protocol.errors import Error, KafkaError
from tests.support.wishes import drive
from tests.unit.coordinator.runtime import FakeRuntime

A = TypeVar("A")

TOPIC = b"t" * 16
OTHER_TOPIC = b"o" * 16


def key_of(partition: int = 0, topic_id: bytes = TOPIC, group_id: str = "g") -> SharePartitionKey:
    return SharePartitionKey(group_id, topic_id, partition)


class ShareShards:
    """One shard and its log. Both topics have three partitions."""

    def __init__(self, runtime: FakeRuntime | None = None, **settings: Any) -> None:
        self.runtime = runtime or FakeRuntime()
        self.topics = {TOPIC: 3, OTHER_TOPIC: 3}
        self.deleted_before: list[int] = []
        self.settings = settings
        self.is_served = True
        self.shard = ShareShard(
            self.runtime,
            ShareCoordinatorSettings(**settings),
            lambda topic_id: self.topics.get(topic_id, 0),
            self.deleted_before.append,
            lambda: self.is_served,
        )

    def ask(self, question: Callable[[ShareShard], A]) -> A | Error:
        """Return the answer, which has to come at once. An error is returned as its code."""
        answers: list[A | KafkaError] = []
        drive(self.shard.ask(question), answers.append)
        (answer,) = answers
        return answer.error if isinstance(answer, KafkaError) else answer

    def initialize(self, state_epoch: int = 1, start_offset: int = -1, **key: Any) -> Error | None:
        return self.ask(lambda shard: shard.initialize(key_of(**key), state_epoch, start_offset))

    def write(
        self,
        *batches: tuple[int, int, int, int],
        state_epoch: int = 1,
        leader_epoch: int = 0,
        start: int = -1,
        count: int = 0,
        **key: Any,
    ) -> Error | None:
        write = Write(state_epoch, leader_epoch, start, count, [StateBatch(*each) for each in batches])
        return self.ask(lambda shard: shard.write(key_of(**key), write))

    def read(self, leader_epoch: int = 0, **key: Any) -> Any:
        """Return the state epoch, the start offset and the batches, or the error."""
        found = self.ask(lambda shard: shard.read(key_of(**key), leader_epoch))
        if isinstance(found, Error):
            return found
        return found.state_epoch, found.start_offset, [tuple(each) for each in found.batches]

    def summary(self, **key: Any) -> Any:
        """Return the state epoch, the leader epoch, the start offset and the count, or the error."""
        found = self.ask(lambda shard: shard.summarize(key_of(**key)))
        return found if isinstance(found, Error) else tuple(found)

    def delete(self, **key: Any) -> Error | None:
        return self.ask(lambda shard: shard.delete(key_of(**key)))

    def written(self) -> list[ShareRecord]:
        found = [decode_record(key, value) for (key, value), _ in self.runtime.log]
        return [record for record in found if record is not None]

    def restarted(self) -> ShareShards:
        """Return a new shard with the same log, as after a restart."""
        runtime = FakeRuntime()
        runtime.elapsed_ms = self.runtime.elapsed_ms
        runtime.log = [*self.runtime.log]
        again = ShareShards(runtime, **self.settings)
        again.is_served = self.is_served
        for offset, ((key, value), producer_id) in enumerate(runtime.log):
            again.shard.replay(key, value, offset, producer_id)
        again.shard.start(len(runtime.log))
        return again
