"""A shard of share groups whose topics a test changes, and short methods for what members ask."""

from __future__ import annotations

from typing import Any

from coordinator.group.member_memory import MemberMemory
from coordinator.group.ports import Deferred
from coordinator.group.shard import GroupShard
from coordinator.group.share.group import ShareGroup
from coordinator.settings import ShareTimeouts, StreamsConfig
from protocol.errors import Error, KafkaError
from protocol.messages.groups_share import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.unit.coordinator.group.consumer.consumers import FakeTopics
from tests.unit.coordinator.runtime import FakePersister, FakeRuntime, Groups, asker, share_ports


class Sharers(Groups):
    """A shard of share groups. By default the group is "g" and the only topic is `t`, with three partitions."""

    def __init__(
        self,
        topics: FakeTopics | None = None,
        *,
        timeouts: ShareTimeouts | None = None,
        runtime: FakeRuntime | None = None,
        memory: MemberMemory | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(runtime, **settings)
        self.topics = topics or FakeTopics(t=3)
        self.timeouts = timeouts or ShareTimeouts(assignment_interval_ms=0)
        self.persister = FakePersister()
        self.memory = memory or MemberMemory()
        self.shard = GroupShard(
            self.runtime,
            self.settings,
            self.topics,
            lambda group_id: None,  # type: ignore[arg-type, return-value]
            self.memory,
            lambda group_id: StreamsConfig(),
            share_ports(self.persister, self.timeouts),
        )

    @property
    def group(self) -> ShareGroup:
        return self.shard.groups.share["g"]

    def beat(
        self,
        member: str,
        epoch: int,
        *names: str,
        group: str = "g",
        client: str = "c",
        rack: str | None = None,
    ) -> ShareGroupHeartbeatResponse:
        """Send a heartbeat and return the answer. An error is in it, as in a handler's."""
        request = ShareGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            rack_id=rack,
            subscribed_topic_names=[*names] if names or epoch == 0 else None,
        )
        try:
            return self.answer(request, client)
        except KafkaError as error:
            return ShareGroupHeartbeatResponse(error_code=error.error, assignment=None)

    def answer(self, request: ShareGroupHeartbeatRequest, client: str = "c") -> ShareGroupHeartbeatResponse:
        """Return the answer, deferred or not. Raises KafkaError."""
        answer = self.shard.share_groups.heartbeat(asker(client), request)
        while isinstance(answer, Deferred):
            answer.decide()
            settled = answer.settle()
            if settled is not None:
                return settled
            answer = self.shard.share_groups.heartbeat(asker(client), request)
        return answer

    def enter(self, member: str, *names: str, **more: Any) -> ShareGroupHeartbeatResponse:
        """Join the group. By default the member subscribes to `t`."""
        return self.beat(member, 0, *(names or ("t",)), **more)

    def refused(self, member: str, epoch: int, *names: str, **more: Any) -> Error:
        return Error(self.beat(member, epoch, *names, **more).error_code)

    def settle(self, *members: str) -> None:
        """Have each member send heartbeats until nothing changes any more."""
        for _ in range(3):
            for member in members:
                answer = self.beat(member, self.group.members[member].epoch)
                assert answer.error_code == 0, Error(answer.error_code)

    def topic_id(self, name: str = "t") -> bytes:
        return self.topics.found[name].topic_id

    def assigned(self, answer: ShareGroupHeartbeatResponse) -> dict[str, list[int]] | None:
        """Return an answer's assignment by topic name, or None if it has none."""
        if answer.assignment is None:
            return None
        found = {}
        for each in answer.assignment.topic_partitions:
            topic = self.topics.by_id(each.topic_id)
            found["?" if topic is None else topic.name] = sorted(each.partitions)
        return found

    def holds(self, member: str, topic: str = "t") -> list[int]:
        return sorted(self.group.members[member].assigned.get(self.topic_id(topic)) or ())

    def keys_since(self, first: int) -> list[int]:
        """Return the types of the records from `first` on. A tombstone's type is negative."""
        return [
            -int.from_bytes(key[:2], "big") if value is None else int.from_bytes(key[:2], "big")
            for (key, value), _ in self.runtime.log[first:]
        ]

    def state_partitions(self) -> tuple[dict[str, list[int]], dict[str, list[int]], list[bytes]]:
        """Return what is initializing, initialized and deleting."""
        state = self.group.state_partitions
        assert state is not None
        return (
            {topic.name: sorted(topic.partitions) for topic in state.initializing.values()},
            {topic.name: sorted(topic.partitions) for topic in state.initialized.values()},
            sorted(state.deleting),
        )

    def restarted(self, **settings: Any) -> Sharers:
        """Return a new shard with the same log, as after a restart."""
        runtime = FakeRuntime()
        runtime.elapsed_ms = self.runtime.elapsed_ms
        runtime.log = [*self.runtime.log]
        again = Sharers(self.topics, timeouts=self.timeouts, runtime=runtime, **settings)
        for offset, ((key, value), producer_id) in enumerate(runtime.log):
            again.shard.replay(key, value, offset, producer_id)
        again.shard.start()
        return again
