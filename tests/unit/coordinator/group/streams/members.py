"""A shard with short methods for what members of streams groups ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coordinator.group.member_memory import MemberMemory
from coordinator.group.ports import Deferred
from coordinator.group.records import StreamsGroupRecord
from coordinator.group.shard import GroupShard
from coordinator.group.streams.group import StreamsGroup
from coordinator.group.streams.heartbeats import StreamsAnswer
from coordinator.settings import ConsumerTimeouts, StreamsConfig
from protocol.errors import Error, KafkaError
from protocol.messages.groups_streams import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from tests.unit.coordinator.group.consumer.consumers import FakeTopics
from tests.unit.coordinator.runtime import FakeRuntime, Groups, asker, share_ports

Tasks = Mapping[str, Sequence[int]]


def subtopology(
    subtopology_id: str = "0",
    *sources: str,
    changelogs: Sequence[str] = (),
    sinks: Sequence[str] = (),
    repartitions: Mapping[str, int] | None = None,
    copartitioned: Sequence[tuple[Sequence[int], Sequence[int]]] = (),
) -> Subtopology:
    """Return a subtopology. `copartitioned` has the indexes of source and repartition topics of each
    copartition group."""
    return Subtopology(
        subtopology_id=subtopology_id,
        source_topics=[*sources],
        state_changelog_topics=[TopicInfo(name=name) for name in changelogs],
        repartition_sink_topics=[*sinks],
        repartition_source_topics=[
            TopicInfo(name=name, partitions=count) for name, count in (repartitions or {}).items()
        ],
        copartition_groups=[
            CopartitionGroup(source_topics=[*some], repartition_source_topics=[*others])
            for some, others in copartitioned
        ],
    )


def topology(*subtopologies: Subtopology, epoch: int = 0) -> Topology:
    return Topology(epoch=epoch, subtopologies=[*subtopologies])


def task_ids(tasks: Tasks) -> list[TaskIds]:
    return [
        TaskIds(subtopology_id=subtopology_id, partitions=[*partitions])
        for subtopology_id, partitions in tasks.items()
    ]


def told(tasks: Sequence[TaskIds] | None) -> dict[str, list[int]] | None:
    return None if tasks is None else {each.subtopology_id: each.partitions for each in tasks}


class StreamsMembers(Groups):
    """A shard of streams groups. By default the group is "g", and its topology reads `t` with six partitions in one
    subtopology."""

    def __init__(
        self,
        topics: FakeTopics | None = None,
        *,
        of: Topology | None = None,
        config: StreamsConfig | None = None,
        runtime: FakeRuntime | None = None,
        memory: MemberMemory | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(runtime, **settings)
        self.topics = topics or FakeTopics(t=6)
        self.of = of or topology(subtopology("0", "t"))
        self.config = config or StreamsConfig(assignment_interval_ms=0, initial_rebalance_delay_ms=0)
        self.memory = memory or MemberMemory()
        self.shard = GroupShard(
            self.runtime,
            self.settings,
            self.topics,
            lambda group_id: ConsumerTimeouts(),
            self.memory,
            lambda group_id: self.config,
            share_ports(),
        )

    @property
    def group(self) -> StreamsGroup:
        return self.shard.groups.streams["g"]

    @property
    def state(self) -> str:
        return self.group.state.value

    def create(self, name: str, partitions: int) -> None:
        """Create a topic, and tell the shard."""
        self.topics.create(name, partitions)
        self.shard.topics_changed({name}, created=True)

    def answer(
        self,
        member: str,
        epoch: int,
        *,
        active: Tasks | None = None,
        standby: Tasks | None = None,
        of: Topology | None = None,
        process: str | None = None,
        port: int | None = None,
        tags: Mapping[str, str] | None = None,
        endpoint_epoch: int = 0,
        shutdown: bool = False,
        rebalance_ms: int = -1,
        group: str = "g",
        client: str = "c",
        instance: str | None = None,
        rack: str | None = None,
        offsets: Sequence[TaskOffset] | None = None,
        end_offsets: Sequence[TaskOffset] | None = None,
        version: int = 1,
    ) -> StreamsAnswer:
        """Send a heartbeat and return the answer. Raises KafkaError."""
        says = active is not None or standby is not None
        request = StreamsGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            endpoint_information_epoch=endpoint_epoch,
            rebalance_timeout_ms=rebalance_ms,
            topology=of,
            active_tasks=task_ids(active or {}) if says else None,
            standby_tasks=task_ids(standby or {}) if says else None,
            warmup_tasks=[] if says else None,
            process_id=process,
            user_endpoint=None if port is None else Endpoint(host="h", port=port),
            client_tags=None if tags is None else [KeyValue(key=key, value=tags[key]) for key in tags],
            shutdown_application=shutdown,
            instance_id=instance,
            rack_id=rack,
            task_offsets=None if offsets is None else [*offsets],
            task_end_offsets=None if end_offsets is None else [*end_offsets],
        )
        asking = asker(client, version)
        answer = self.shard.streams_heartbeat(asking, request)
        while isinstance(answer, Deferred):
            answer.decide()
            settled = answer.settle()
            answer = self.shard.streams_heartbeat(asking, request) if settled is None else settled
        return answer

    def beat(self, member: str, epoch: int, **more: Any) -> StreamsGroupHeartbeatResponse:
        """Send a heartbeat and return the answer. An error is in it, as in a handler's."""
        try:
            return self.answer(member, epoch, **more).response
        except KafkaError as error:
            return StreamsGroupHeartbeatResponse(error_code=error.error, error_message=error.message)

    def enter(self, member: str, process: str = "p", **more: Any) -> StreamsGroupHeartbeatResponse:
        said = {"active": {}, "of": self.of, "process": process, "rebalance_ms": 60_000}
        return self.beat(member, 0, **said | more)

    def refused(self, member: str, epoch: int, **more: Any) -> Error:
        return Error(self.beat(member, epoch, **more).error_code)

    def report(self, member: str) -> StreamsGroupHeartbeatResponse:
        """Send a heartbeat that says what the member has."""
        known = self.group.members[member]
        return self.beat(member, known.epoch, active=self.holds(member), standby=self.copies(member))

    def settle(self) -> None:
        """Have everybody report until nothing changes any more."""
        while True:
            before = self.group.changes
            for member in [*self.group.members]:
                self.report(member)
            if self.group.changes == before:
                return

    def holds(self, member: str) -> dict[str, list[int]]:
        assigned = self.group.members[member].assigned.active
        return {subtopology_id: sorted(partitions) for subtopology_id, partitions in assigned.items()}

    def copies(self, member: str) -> dict[str, list[int]]:
        assigned = self.group.members[member].assigned.standby
        return {subtopology_id: sorted(partitions) for subtopology_id, partitions in assigned.items()}

    def target(self, member: str) -> dict[str, list[int]]:
        target = self.group.target_of(member).active
        return {subtopology_id: sorted(partitions) for subtopology_id, partitions in target.items()}

    def keys(self, since: int = 0) -> list[int]:
        """Return the keys of the streams groups' records from record `since` on. A tombstone's is negative."""
        return [
            type(record.key).API_KEY * (-1 if record.value is None else 1)
            for record in self.runtime.written()[since:]
            if isinstance(record, StreamsGroupRecord)
        ]

    def restarted(self, **settings: Any) -> StreamsMembers:
        """Return a new shard with the same log, as after a restart."""
        runtime = FakeRuntime()
        runtime.elapsed_ms = self.runtime.elapsed_ms
        runtime.log = [*self.runtime.log]
        again = StreamsMembers(self.topics, of=self.of, config=self.config, runtime=runtime)
        for offset, ((key, value), producer_id) in enumerate(runtime.log):
            again.shard.replay(key, value, offset, producer_id)
        again.shard.start()
        return again


def statuses(answer: StreamsGroupHeartbeatResponse) -> list[int]:
    return [each.status_code for each in answer.status or ()]
