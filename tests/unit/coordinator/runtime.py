"""A runtime for coordinators: a log in memory whose high watermark a test can hold back, a clock that a test moves,
uuids that count up, and disks that fail on demand."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from broker.environment.scheduler import TimerQueue
from coordinator.group.member_memory import MemberMemory
from coordinator.group.offsets.commit import Committer, NewOffset
from coordinator.group.ports import Client, KnownTopic
from coordinator.group.records import AnyRecord, decode_record
from coordinator.group.shard import GroupShard
from coordinator.group.shard_parts import SharePorts
from coordinator.ports import CoordinatorRecord, WhenCommitted
from coordinator.settings import ConsumerTimeouts, GroupSettings, ShareTimeouts, StreamsConfig
from protocol.errors import Error, KafkaError
from protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from protocol.waiting import Later, Waiting
from tests.support.staged_offsets import staged
from tests.support.wishes import drive, wishes

START_MS = 1_700_000_000_000


def asker(client_id: str = "c", version: int = 1) -> Client:
    """Return a client that may describe every topic."""
    return Client(client_id, "/host", version, may_describe=lambda name: True)


class FakeRuntime:
    """The port `coordinator.ports.Runtime`. The next appends raise `failing`.

    While it `lags`, only `commit` commits what is appended, and `fail_commits` loses it.
    """

    def __init__(self) -> None:
        self.elapsed_ms = 0
        self.log: list[tuple[CoordinatorRecord, int]] = []  # each record with its producer id
        self.failing: Error | None = None
        self.lags = False
        self._awaiting: list[tuple[int, WhenCommitted]] = []
        self._committed = 0
        self.timers = TimerQueue(lambda: self.elapsed_ms)
        self.holds = False
        self.held: list[Waiting[None]] = []
        self._uuids = 0

    def append(
        self,
        records: Sequence[CoordinatorRecord],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        guard: object | None = None,
    ) -> int:
        if self.failing is not None:
            raise KafkaError(self.failing)
        self.log += [(record, producer_id) for record in records]
        return len(self.log)

    def is_committed(self, end_offset: int) -> bool:
        return not self.lags or end_offset <= self._committed

    def when_committed(self, end_offset: int, then: WhenCommitted) -> None:
        if self.is_committed(end_offset):
            then(None)
        else:
            self._awaiting.append((end_offset, then))

    def commit(self, up_to: int | None = None) -> None:
        """Commit everything, or what is before an offset, and call those who wait for it."""
        self._committed = max(self._committed, len(self.log) if up_to is None else up_to)
        while self._awaiting and self._awaiting[0][0] <= self._committed:
            self._awaiting.pop(0)[1](None)

    def fail_commits(self, error: Error = Error.NOT_COORDINATOR) -> None:
        """Tell those who wait for commits that the outcome will stay unknown."""
        awaiting, self._awaiting = self._awaiting, []
        for _, then in awaiting:
            then(KafkaError(error))

    def now_ms(self) -> int:
        return START_MS + self.elapsed_ms

    def schedule(self, key: Hashable, delay_ms: int, callback: Callable[[], None]) -> None:
        self.timers.schedule(key, delay_ms, callback)

    def cancel(self, key: Hashable) -> None:
        self.timers.cancel(key)

    def carry_out(self, group_id: str, steps: Waiting[None]) -> None:
        """Carry out the steps at once. While it `holds`, keep them for the test."""
        if self.holds:
            self.held.append(steps)
            return
        for compute in wishes(steps):
            compute()

    def begin(self, steps: Waiting[None]) -> None:
        drive(steps, lambda _: None)

    def __del__(self) -> None:
        for steps in self.held:  # steps that a test hasn't finished
            steps.close()

    def new_uuid(self) -> bytes:
        self._uuids += 1
        return self._uuids.to_bytes(16, "big")

    def pass_ms(self, by_ms: int) -> None:
        """Let time pass, and fire each timer at its moment."""
        end_ms = self.elapsed_ms + by_ms
        while (next_ms := self.timers.next_ms) is not None and next_ms <= end_ms:
            self.elapsed_ms = max(self.elapsed_ms, next_ms)
            self.timers.fire_due()
        self.elapsed_ms = end_ms

    def written(self) -> list[AnyRecord]:
        found = [decode_record(key, value, offset) for offset, ((key, value), _) in enumerate(self.log)]
        return [record for record in found if record is not None]


class FakePersister:
    """The port `coordinator.persister.Persister` for those who only initialize and delete states. `asked` has the
    requests, and `failing` is the answer. While it `holds`, requests wait for `answer`."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.failing: Error | None = None
        self.holds = False
        self._held: list[Later[KafkaError | None]] = []

    def _say(self) -> Later[KafkaError | None]:
        later: Later[KafkaError | None] = Later()
        if self.holds:
            self._held.append(later)
        else:
            later.reply(None if self.failing is None else KafkaError(self.failing))
        return later

    def answer(self, count: int | None = None) -> None:
        """Answer the requests that wait, or so many of them."""
        held = self._held[:count]
        del self._held[:count]
        for later in held:
            later.reply(None if self.failing is None else KafkaError(self.failing))

    def initialize(
        self, group_id: str, topic_id: bytes, partition: int, state_epoch: int, start_offset: int
    ) -> Later[KafkaError | None]:
        self.asked.append(("initialize", group_id, topic_id, partition, state_epoch, start_offset))
        return self._say()

    def delete(self, group_id: str, topic_id: bytes, partition: int) -> Later[KafkaError | None]:
        self.asked.append(("delete", group_id, topic_id, partition))
        return self._say()

    def read(self, *asked: Any) -> Any:
        raise AssertionError("a group coordinator doesn't ask for it")

    def write(self, *asked: Any) -> Any:
        raise AssertionError("a group coordinator doesn't ask for it")

    def read_summary(self, *asked: Any) -> Any:
        raise AssertionError("a group coordinator doesn't ask for it")


def share_ports(persister: FakePersister | None = None, timeouts: ShareTimeouts | None = None) -> SharePorts:
    """Return the ports that share groups need."""
    return SharePorts(persister or FakePersister(), lambda group_id: timeouts or ShareTimeouts())


class Answer:
    """The answer to a join or a sync. It is None while the request is parked."""

    def __init__(self) -> None:
        self.join: JoinGroupResponse | None = None
        self.sync: SyncGroupResponse | None = None

    def on_join(self, response: JoinGroupResponse) -> None:
        assert self.join is None, "answered twice"
        self.join = response

    def on_sync(self, response: SyncGroupResponse) -> None:
        assert self.sync is None, "answered twice"
        self.sync = response

    @property
    def is_parked(self) -> bool:
        return self.join is None and self.sync is None

    @property
    def error(self) -> Error:
        response = self.join or self.sync
        assert response is not None, "not answered yet"
        return Error(response.error_code)


class NoTopics:
    """The port `coordinator.group.ports.KnownTopics` of a cluster without topics."""

    version = 0

    def by_name(self, name: str) -> KnownTopic | None:
        return None

    def by_id(self, topic_id: bytes) -> KnownTopic | None:
        return None

    def names(self) -> Iterable[str]:
        return ()


def _new_shard(runtime: FakeRuntime, settings: GroupSettings) -> GroupShard:
    return GroupShard(
        runtime,
        settings,
        NoTopics(),
        lambda group_id: ConsumerTimeouts(),
        MemberMemory(),
        lambda group_id: StreamsConfig(),
        share_ports(),
    )


class Groups:
    """A shard with short methods for what members ask. By default the group is "g"."""

    def __init__(self, runtime: FakeRuntime | None = None, **settings: Any) -> None:
        self.runtime = runtime or FakeRuntime()
        self.settings = GroupSettings(**{"initial_rebalance_delay_ms": 0} | settings)
        self.shard = _new_shard(self.runtime, self.settings)

    @property
    def state(self) -> str:
        return self.shard.groups.classic["g"].state.value

    def join(
        self,
        member_id: str = "",
        *,
        version: int = 5,
        group: str = "g",
        client: str = "c",
        instance: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = (("range", b"r"),),
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
    ) -> Answer:
        answer = Answer()
        request = JoinGroupRequest(
            group_id=group,
            member_id=member_id,
            group_instance_id=instance,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols
            ],
        )
        joined = self.shard.join(asker(client, version), request)
        if isinstance(joined, Later):
            joined.when_answered(lambda: answer.on_join(joined.result()))
        return answer

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> Answer:
        answer = Answer()
        request = SyncGroupRequest(
            group_id=group,
            member_id=member_id,
            generation_id=generation,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=assignment)
                for each, assignment in (assignments or {}).items()
            ],
        )
        synced = self.shard.sync(request)
        if isinstance(synced, Later):
            synced.when_answered(lambda: answer.on_sync(synced.result()))
        else:
            answer.on_sync(synced)
        return answer

    def heartbeat(
        self, member_id: str, generation: int, instance: str | None = None, *, group: str = "g"
    ) -> Error:
        return self.shard.classic_heartbeat(
            HeartbeatRequest(
                group_id=group, member_id=member_id, generation_id=generation, group_instance_id=instance
            )
        )

    def leave(self, *members: str | tuple[str, str | None], group: str = "g") -> list[Error]:
        _, answers = self.leave_answers(*members, group=group)
        return [Error(answer.error_code) for answer in answers]

    def leave_answers(
        self, *members: str | tuple[str, str | None], group: str = "g"
    ) -> tuple[Error, list[MemberResponse]]:
        pairs = [(each, None) if isinstance(each, str) else each for each in members]
        identities = [MemberIdentity(member_id=each, group_instance_id=instance) for each, instance in pairs]
        return self.shard.leave(LeaveGroupRequest(group_id=group, members=identities))

    def commit(
        self,
        *parts: tuple[str, int, int],
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        group: str = "g",
        version: int = 9,
        metadata: str | None = "",
        topic_id: bytes = bytes(16),
        retention_ms: int = -1,
    ) -> list[Error]:
        """Commit offsets of (topic, partition, offset), and return the error of each. An error of the whole commit is
        in each of them."""
        offsets = [
            NewOffset(topic, topic_id, partition, offset, -1, metadata) for topic, partition, offset in parts
        ]
        try:
            return self.shard.commit_offsets(
                Committer(group, member_id, instance, generation),
                staged(self.shard, group, offsets, retention_ms=retention_ms),
                api_version=version,
            )
        except KafkaError as error:
            return [error.error] * len(parts)

    def committed(self, topic: str = "t", partition: int = 0, *, group: str = "g") -> int:
        """Return the committed offset, or −1 if there is none."""
        found = self.shard.offsets.of_group(group).get(topic, {}).get(partition)
        return -1 if found is None else found.offset

    # --- whole rebalances -----------------------------------------------------------------------------------

    def stable(self, count: int = 1, **fields: Any) -> list[str]:
        """Return the ids of a stable group of so many dynamic members. With several it is in its second generation. The
        first id leads."""
        answers = [self.join(version=3, **fields)]
        self.runtime.pass_ms(0)
        first = answers[0].join
        assert first is not None
        ids = [first.member_id]
        if count > 1:
            answers = [self.join(version=3, **fields) for _ in range(count - 1)]
            answers.insert(0, self.join(ids[0], **fields))
            ids = [answer.join.member_id for answer in answers if answer.join is not None]
            assert len(ids) == count
        self.share(ids)
        return ids

    def share(self, ids: Sequence[str]) -> None:
        """Have everybody sync. Each member is assigned its own id."""
        group = self.shard.groups.classic["g"]
        assert group.leader_id is not None
        others = [self.sync(each, group.generation) for each in ids if each != group.leader_id]
        leader = self.sync(group.leader_id, group.generation, {each: each.encode() for each in ids})
        assert all(answer.error is Error.NONE for answer in [*others, leader])

    def restarted(self, **settings: Any) -> Groups:
        """Return a new shard with the same log, as after a restart, and with other settings if given."""
        runtime = FakeRuntime()
        runtime.elapsed_ms = self.runtime.elapsed_ms
        runtime.log = [*self.runtime.log]
        again = Groups(runtime)
        again.settings = self.settings._replace(**settings)
        again.shard = _new_shard(runtime, again.settings)
        for offset, ((key, value), producer_id) in enumerate(runtime.log):
            again.shard.replay(key, value, offset, producer_id)
        again.shard.start()
        return again
