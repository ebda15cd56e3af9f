"""A shard of consumer groups whose topics a test changes, and short methods for what members ask."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.member_memory import MemberMemory
from coordinator.group.ports import Client, Deferred, KnownTopic
from coordinator.group.shard import GroupShard
from coordinator.settings import ConsumerTimeouts, StreamsConfig
from protocol.errors import Error, KafkaError
from protocol.messages.groups_consumer import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.unit.coordinator.runtime import FakeRuntime, Groups, asker, share_ports

Owned = dict[str, Sequence[int]]


class FakeTopics:
    """The port `coordinator.group.ports.KnownTopics`. A topic's id is made from its name."""

    def __init__(self, **partitions: int) -> None:
        self.version = 1
        self.found: dict[str, KnownTopic] = {}
        for name, count in partitions.items():
            self.create(name, count)

    def create(self, name: str, partitions: int) -> None:
        topic_id = name.encode().ljust(16, b"\1")
        self.found[name] = KnownTopic(name, topic_id, ((),) * partitions)
        self.version += 1

    def by_name(self, name: str) -> KnownTopic | None:
        return self.found.get(name)

    def by_id(self, topic_id: bytes) -> KnownTopic | None:
        return next((topic for topic in self.found.values() if topic.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return [*self.found]


def heartbeat(
    shard: GroupShard, client: Client, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Return the answer to a heartbeat. It is decided at once, however long that takes."""
    answer = shard.consumer_heartbeat(client, request)
    while isinstance(answer, Deferred):
        answer.decide()
        settled = answer.settle()
        answer = shard.consumer_heartbeat(client, request) if settled is None else settled
    return answer


class Consumers(Groups):
    """A shard of consumer groups. By default the group is "g" and the only topic is `t`, with six partitions."""

    def __init__(
        self,
        topics: FakeTopics | None = None,
        *,
        timeouts: ConsumerTimeouts | None = None,
        runtime: FakeRuntime | None = None,
        memory: MemberMemory | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(runtime, **settings)
        self.topics = topics or FakeTopics(t=6)
        self.timeouts = timeouts or ConsumerTimeouts(assignment_interval_ms=0)
        self.memory = memory or MemberMemory()
        self.shard = GroupShard(
            self.runtime,
            self.settings,
            self.topics,
            lambda group_id: self.timeouts,
            self.memory,
            lambda group_id: StreamsConfig(),
            share_ports(),
        )

    @property
    def group(self) -> ConsumerGroup:
        return self.shard.groups.consumer["g"]

    @property
    def state(self) -> str:
        return self.group.state.value

    def beat(
        self,
        member: str,
        epoch: int,
        *names: str,
        owned: Owned | None = None,
        group: str = "g",
        regex: str | None = None,
        instance: str | None = None,
        rebalance_ms: int = -1,
        assignor: str | None = None,
        client: str = "c",
        rack: str | None = None,
    ) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat and return the answer. An error is in it, as in a handler's."""
        partitions = None
        if owned is not None:
            partitions = [
                TopicPartitions(topic_id=self.topic_id(name), partitions=[*indexes])
                for name, indexes in owned.items()
            ]
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            instance_id=instance,
            rack_id=rack,
            rebalance_timeout_ms=rebalance_ms,
            subscribed_topic_names=[*names] if names or epoch == 0 else None,
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=partitions,
        )
        try:
            return heartbeat(self.shard, asker(client), request)
        except KafkaError as error:
            return ConsumerGroupHeartbeatResponse(error_code=error.error, assignment=None)

    def enter(self, member: str, *names: str, **more: Any) -> ConsumerGroupHeartbeatResponse:
        """Join the group. By default the member subscribes to `t`."""
        return self.beat(member, 0, *(names or ("t",)), owned={}, **{"rebalance_ms": 60_000} | more)

    def refused(self, member: str, epoch: int, *names: str, **more: Any) -> Error:
        return Error(self.beat(member, epoch, *names, **more).error_code)

    def topic_id(self, name: str) -> bytes:
        return self.topics.found[name].topic_id

    def assigned(self, answer: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]] | None:
        """Return an answer's assignment by topic name, or None if it has none."""
        if answer.assignment is None:
            return None
        found = {}
        for each in answer.assignment.topic_partitions:
            topic = self.topics.by_id(each.topic_id)
            found["?" if topic is None else topic.name] = sorted(each.partitions)
        return found

    def target(self, member: str, topic: str = "t") -> list[int]:
        return sorted(self.group.target_of(member).get(self.topic_id(topic)) or ())

    def holds(self, member: str, topic: str = "t") -> list[int]:
        return sorted(self.group.members[member].assigned.get(self.topic_id(topic)) or ())

    def restarted(self, **settings: Any) -> Consumers:
        """Return a new shard with the same log, as after a restart."""
        runtime = FakeRuntime()
        runtime.elapsed_ms = self.runtime.elapsed_ms
        runtime.log = [*self.runtime.log]
        again = Consumers(self.topics, timeouts=self.timeouts, runtime=runtime)
        for offset, ((key, value), producer_id) in enumerate(runtime.log):
            again.shard.replay(key, value, offset, producer_id)
        again.shard.start()
        return again
