"""Histories of a few brokers by a seed: they register, run, fall silent, stop and come back, and the controller
changes.

A model beside it knows only the log: which offsets brokers reported, when, and since which record.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from broker.controller.broker_heartbeats import BrokerControlState
from broker.controller.broker_records import BrokerIncarnation
from broker.controller.image import NO_LEADER, ClusterImage
from broker.controller.partition_changes import BrokerChange
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.waiting import turn
from protocol.wire.schema import Message
from tests.unit.controller.active_controller import ActiveController, beat, registration

BROKERS = range(1, 5)
TIMEOUT_MS = 10
STEPS = 400


async def without_elr(image: ClusterImage, change: BrokerChange) -> list[Message]:
    """Decide partitions' changes without ELR: the last replica in sync stays in sync, and leads when it comes back."""
    changes: list[Message] = []
    for topic in image.topics.values():
        await turn()
        for index, partition in topic.partitions.items():
            isr = [each for each in partition.isr if each != change.removed] or partition.isr
            may_lead = [
                each
                for each in partition.replicas
                if each in isr and each != change.removed and (each == change.added or is_active(image, each))
            ]
            leader = may_lead[0] if may_lead else NO_LEADER
            if partition.leader in may_lead:
                leader = partition.leader
            if (isr, leader) != (partition.isr, partition.leader):
                changes.append(
                    records.PartitionChangeRecord(
                        topic_id=topic.topic_id, partition_id=index, isr=isr, leader=leader
                    )
                )
    return changes


def is_active(image: ClusterImage, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


class History:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.controller = ActiveController(session_timeout_ms=TIMEOUT_MS)
        self.controller.updates = without_elr  # type: ignore[assignment]
        self.run = 0
        self.runs: dict[int, int] = {}
        self.must_know: dict[int, int] = {}
        """Broker → the offset that it has to reach before it is unfenced."""
        self.said: dict[int, int] = {}
        """Broker → the offset that it has reported since its registration last changed."""
        self.heard: dict[BrokerIncarnation, int] = {}
        """Runs that have a session that hasn't ended yet → since when."""
        self.stopping: set[BrokerIncarnation] = set()
        """Runs that want to shut down. A real broker's run never goes back from that."""
        self.shutdown: dict[int, int] = {}
        """Broker → the last offset when its controlled shutdown began."""
        self.seen: set[str] = set()

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    def go(self) -> None:
        for number in range(8):
            self.controller.lead(NO_LEADER, topic_id=number.to_bytes(16, "big"))
            replicas = self.chance.sample([*BROKERS], 3)
            self.controller.write(
                [
                    records.PartitionChangeRecord(
                        topic_id=number.to_bytes(16, "big"), partition_id=0, replicas=replicas, isr=replicas
                    )
                ]
            )
        for _ in range(STEPS):
            event, weight = [*EVENTS], [*EVENTS.values()]
            (chosen,) = self.chance.choices(event, weight)
            chosen(self, self.chance.choice(BROKERS))
            self.look()

    def look(self) -> None:
        heartbeats = self.controller.heartbeats
        for topic in self.image.topics.values():
            leader = topic.partitions[0].leader
            assert leader == NO_LEADER or is_active(self.image, leader)
        active = [
            each for each in self.image.brokers if heartbeats.state_of(each) is BrokerControlState.UNFENCED
        ]
        lowest = min((self.said.get(each, -1) for each in active), default=1 << 62)
        for broker_id, broker in self.image.brokers.items():
            state = heartbeats.state_of(broker_id)
            assert (state is BrokerControlState.FENCED) is broker.fenced
            if state is BrokerControlState.CONTROLLED_SHUTDOWN:
                assert broker.in_controlled_shutdown
                assert heartbeats.others_have_passed(broker_id) is (self.shutdown[broker_id] <= lowest)
            if not broker.fenced:
                assert BrokerIncarnation(broker_id, broker.broker_epoch) in self.heard

    # --- what happens ---------------------------------------------------------------------------------------

    def time_passes(self, broker_id: int) -> None:
        self.controller.now_ms += self.chance.randrange(4)

    def another_run_registers(self, broker_id: int) -> None:
        self.run = self.run % 250 + 1
        self._register(broker_id, self.run)

    def the_same_run_registers(self, broker_id: int) -> None:
        if broker_id in self.runs:
            self._register(broker_id, self.runs[broker_id])

    def _register(self, broker_id: int, run: int) -> None:
        before = self.image.brokers.get(broker_id)
        is_live = before is not None and self._has_session(BrokerIncarnation(broker_id, before.broker_epoch))
        if is_live and run != self.runs[broker_id]:
            with pytest.raises(KafkaError) as refusal:
                self.controller.register(registration(broker_id, run))
            assert refusal.value.error is Error.DUPLICATE_BROKER_REGISTRATION
            self.seen.add("held up")
            return
        next_offset = self.controller.next_offset
        _, epoch = self.controller.register(registration(broker_id, run))
        if before is not None and run == self.runs[broker_id]:
            assert epoch == before.broker_epoch
        else:
            assert epoch == next_offset
            self._forget(broker_id)
        self.runs[broker_id] = run
        self.must_know[broker_id] = self.controller.next_offset - 1
        self.said.pop(broker_id, None)

    def heartbeat(self, broker_id: int) -> None:
        registered = self.image.brokers.get(broker_id)
        if registered is None:
            return
        broker = BrokerIncarnation(broker_id, registered.broker_epoch)
        offset = max(0, self.controller.next_offset - 1 - self.chance.choice((0, 0, 0, 1, 5, 20)))
        want_fence = self.chance.random() < 0.15
        if self.chance.random() < 0.15:
            self.stopping.add(broker)
        want_shut_down = broker in self.stopping
        before = self.controller.heartbeats.state_of(broker_id)
        led_before = self.led_by(broker_id)
        others = self.controller.heartbeats.others_have_passed(broker_id)
        request = beat(broker, offset, want_fence=want_fence, want_shut_down=want_shut_down)
        decided, reply = self.controller.heartbeat(request)
        self.heard.pop(broker, None)
        self.heard[broker] = self.controller.now_ms
        self.said[broker_id] = offset
        if any(isinstance(each, records.BrokerRegistrationChangeRecord) for each in decided):
            del self.said[broker_id]

        assert reply.is_caught_up is (offset >= self.must_know[broker_id])
        assert reply.is_fenced is registered.fenced
        if before is BrokerControlState.FENCED and not registered.fenced:
            assert offset >= self.must_know[broker_id]
            assert not want_fence
            self.seen.add("unfenced")
        if reply.should_shut_down:
            assert registered.fenced
            if before is BrokerControlState.CONTROLLED_SHUTDOWN:
                assert not led_before
                assert others
                self.seen.add("let go")
        if reply.in_controlled_shutdown and before is BrokerControlState.UNFENCED:
            self.shutdown[broker_id] = self.controller.next_offset - 1
            self.seen.add("shutting down")
        assert (
            before is not BrokerControlState.CONTROLLED_SHUTDOWN
            or reply.in_controlled_shutdown
            or not led_before
        )

    def somebody_else_says_so(self, broker_id: int) -> None:
        """Send a heartbeat of a run that isn't registered. It changes nothing."""
        registered = self.image.brokers.get(broker_id)
        epoch = self.chance.randrange(10_000) if registered is None else registered.broker_epoch - 1
        with pytest.raises(KafkaError, match="STALE_BROKER_EPOCH"):
            self.controller.heartbeat(beat(BrokerIncarnation(broker_id, epoch), 1 << 40))

    def one_session_is_ended(self, broker_id: int) -> None:
        late = [each for each in self.heard if self.controller.now_ms - self.heard[each] > TIMEOUT_MS]
        decided, found = self.controller.fence_stale()
        assert found is bool(late)
        if found:
            fence = decided[-1]
            assert isinstance(fence, records.BrokerRegistrationChangeRecord)
            assert BrokerIncarnation(fence.broker_id, fence.broker_epoch) == late[0]
            assert self.image.brokers[fence.broker_id].fenced
            del self.heard[late[0]]
            self.said.pop(fence.broker_id, None)
            self.seen.add("fenced")

    def it_is_unregistered(self, broker_id: int) -> None:
        if broker_id in self.image.brokers:
            self.controller.unregister(broker_id)
            self._forget(broker_id)
            del self.runs[broker_id]

    def another_controller_takes_over(self, broker_id: int) -> None:
        last_offset = self.controller.next_offset - 1
        self.controller.heartbeats.become_active(self.image, last_offset, self.controller.now_ms)
        self.said.clear()
        self.must_know = dict.fromkeys(self.image.brokers, last_offset)
        self.heard = {
            BrokerIncarnation(each, broker.broker_epoch): self.controller.now_ms
            for each, broker in self.image.brokers.items()
            if not broker.fenced
        }

    def _has_session(self, broker: BrokerIncarnation) -> bool:
        return broker in self.heard and self.controller.now_ms - self.heard[broker] <= TIMEOUT_MS

    def led_by(self, broker_id: int) -> bool:
        return any(topic.partitions[0].leader == broker_id for topic in self.image.topics.values())

    def _forget(self, broker_id: int) -> None:
        self.heard = {each: since for each, since in self.heard.items() if each.node_id != broker_id}
        self.said.pop(broker_id, None)


EVENTS: dict[Callable[[History, int], None], int] = {
    History.time_passes: 30,
    History.heartbeat: 60,
    History.one_session_is_ended: 15,
    History.another_run_registers: 6,
    History.the_same_run_registers: 2,
    History.somebody_else_says_so: 4,
    History.it_is_unregistered: 1,
    History.another_controller_takes_over: 1,
}


def history(seed: int) -> History:
    lived = History(seed)
    lived.go()
    return lived


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_to_brokers_the_controller_agrees_with_its_log(seed: int) -> None:
    history(seed)


@pytest.mark.parametrize("seed", range(5))
def test_when_all_fall_silent_each_session_ends_once_and_nothing_is_left(seed: int) -> None:
    lived = history(seed)
    lived.controller.now_ms += TIMEOUT_MS + 1
    with_session = len(lived.heard)
    ends = 0
    while lived.controller.fence_stale()[1]:
        ends += 1
    assert ends == with_session <= len(lived.image.brokers)
    assert all(broker.fenced for broker in lived.image.brokers.values())
    assert not any(lived.led_by(broker_id) for broker_id in BROKERS)


def test_the_histories_cover_all_that_matters() -> None:
    seen = set().union(*(history(seed).seen for seed in range(10)))
    assert seen == {"unfenced", "fenced", "held up", "shutting down", "let go"}
