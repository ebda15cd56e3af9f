"""What always holds for partitions, whatever happens to their brokers, and in any order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from broker.controller.image import NO_LEADER, NO_LEADER_CHANGE, PartitionImage
from broker.controller.partition_changes import RECOVERING, BrokerChange, eligible_updates
from broker.controller.partition_requests import (
    altered_partitions,
    balanced_leaders,
    elected_leaders,
    reassigned_partitions,
    unclean_leaders,
)
from protocol.messages import metadata_records as records
from protocol.messages.broker_to_controller import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionTopic,
    BrokerState,
)
from protocol.messages.cluster_admin import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.waiting import Waiting, at_once
from protocol.wire.schema import Message
from tests.unit.controller.partitions import OWN, Cluster, directory, topic_id

BROKERS = range(1, 6)
STEPS = 120


class History(Cluster):
    """A cluster that compares a partition before and after each change."""

    def __init__(self, random: Random, *, elr: bool, level: int) -> None:
        self.random = random
        self.elr = elr
        self.speaks = self.takes_back = False
        super().__init__(*BROKERS, elr=elr, level=level)
        for name in ("t", "u"):
            self.topic(name, *(self.some_brokers() for _ in range(2)))

    def some_brokers(self) -> list[int]:
        return self.random.sample(BROKERS, self.random.randint(1, 3))

    def active(self) -> list[int]:
        return [broker_id for broker_id in BROKERS if self._is_active(broker_id)]

    def apply(self, *decided: Message) -> None:
        for record in decided:
            if isinstance(record, records.PartitionChangeRecord):
                self.apply_change(record)
            else:
                super().apply(record)

    def apply_change(self, record: records.PartitionChangeRecord) -> None:
        before = self.image.topics_by_id[record.topic_id].partitions[record.partition_id].copy()
        super().apply(record)
        after = self.image.topics_by_id[record.topic_id].partitions[record.partition_id]
        assert after.partition_epoch == before.partition_epoch + 1
        renewed = record.leader != NO_LEADER_CHANGE
        assert after.leader_epoch == before.leader_epoch + renewed
        assert renewed or after.leader == before.leader
        assert renewed or {*before.replicas} <= {*after.replicas}
        if self.image.features["metadata.version"] < 12:
            assert renewed or {*before.isr} <= {*after.isr}
        self.check_leader(before, after)
        self.check_members(after)

    def check_leader(self, before: PartitionImage, after: PartitionImage) -> None:
        """Check that the leader is in sync. A new leader was in sync or eligible before, or its election was
        unclean."""
        if after.leader == NO_LEADER:
            assert self.elr or after.isr
            return
        assert after.leader in after.isr
        assert after.leader in after.replicas
        assert after.last_known_elr == []
        if after.leader == before.leader:
            return
        if after.leader in before.elr:
            assert after.isr == [after.leader]
        has_all = after.leader in before.isr or after.leader in before.elr or self.speaks
        assert has_all or after.leader_recovery_state == RECOVERING or self.takes_back

    def check_members(self, after: PartitionImage) -> None:
        for members in (after.replicas, after.isr, after.elr, after.adding_replicas, after.removing_replicas):
            assert len({*members}) == len(members)
        assert {*after.isr, *after.adding_replicas, *after.removing_replicas} <= {*after.replicas}
        assert not {*after.isr} & {*after.elr}
        assert len(after.last_known_elr) <= 1
        assert len(after.directories) in (0, len(after.replicas))
        if not self.elr:
            assert after.isr
            assert after.elr == after.last_known_elr == []

    # --- what happens -----------------------------------------------------------------------------------------

    def step(self) -> None:
        happens = self.random.choice(HAPPENINGS)
        happens(self)

    def a_broker_goes(self) -> None:
        if self.active():
            broker_id = self.random.choice(self.active())
            self.random.choice([self.fence, self.shut_down])(broker_id)
            self.check_gone(broker_id)

    def check_gone(self, broker_id: int) -> None:
        for topic in self.image.topics.values():
            for partition in topic.partitions.values():
                assert partition.leader != broker_id
                assert broker_id not in partition.isr or (not self.elr and partition.isr == [broker_id])

    def a_broker_comes(self) -> None:
        away = [broker_id for broker_id in BROKERS if broker_id not in self.active()]
        if away:
            broker_id = self.random.choice(away)
            if self.elr and self.random.random() < 0.4:
                self.come_back_unclean(broker_id)
                for topic in self.image.topics.values():
                    for partition in topic.partitions.values():
                        assert broker_id not in (*partition.isr, *partition.elr)
            else:
                self.updates(broker_id)
                self.register(broker_id, epoch=self.image.brokers[broker_id].broker_epoch + 1000)
            self.unfence(broker_id)

    def a_broker_is_given_up(self) -> None:
        broker_id = self.random.choice(BROKERS)
        self.updates(broker_id)
        self.do(eligible_updates(self.image, BrokerChange(broker_id, None, None, None)))
        self.register(broker_id, epoch=self.image.brokers[broker_id].broker_epoch + 1000)
        self.check_gone(broker_id)

    def a_directory_is_lost(self) -> None:
        broker_id = self.random.choice(BROKERS)
        self.updates(broker_id, directories=[directory(broker_id)])
        for topic in self.image.topics.values():
            for partition in topic.partitions.values():
                assert not partition.directories or partition.leader != broker_id

    def a_leader_speaks(self) -> None:
        name, index = self.random.choice("tu"), self.random.randrange(2)
        partition = self.partition(name, index)
        if partition.leader == NO_LEADER:
            return
        leader = self.image.brokers[partition.leader]
        others = [each for each in self.active() if each in partition.replicas and each != partition.leader]
        isr = [partition.leader, *self.random.sample(others, self.random.randint(0, len(others)))]
        self.random.shuffle(isr)
        wanted = AlterPartitionPartition(
            partition_index=index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=each, broker_epoch=self.image.brokers[each].broker_epoch)
                for each in isr
            ],
        )
        request = AlterPartitionRequest(
            broker_id=partition.leader,
            broker_epoch=leader.broker_epoch,
            topics=[AlterPartitionTopic(topic_id=topic_id(name), partitions=[wanted])],
        )
        result = at_once(altered_partitions(self.image, request, 3, OWN))
        self.speaks = True
        self.apply(*result.records)
        self.speaks = False
        answer = result.answer(None).topics[0].partitions[0]
        if answer.error_code == 0:
            after = self.partition(name, index)
            assert (answer.isr, answer.leader_id) == (after.isr, after.leader)
            assert (answer.leader_epoch, answer.partition_epoch) == (
                after.leader_epoch,
                after.partition_epoch,
            )

    def replicas_are_wanted_elsewhere(self) -> None:
        wanted = None if self.random.random() < 0.3 else self.some_brokers()
        partition = ReassignablePartition(partition_index=self.random.randrange(2), replicas=wanted)
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=self.random.choice("tu"), partitions=[partition])]
        )
        self.takes_back = wanted is None
        self.done(reassigned_partitions(self.image, request, OWN))
        self.takes_back = False

    def leaders_are_elected(self) -> None:
        def of_type(election_type: int) -> Waiting[Any]:
            request = ElectLeadersRequest(election_type=election_type, topic_partitions=None)
            return elected_leaders(self.image, request, OWN)

        elect = self.random.choice(
            [
                partial(of_type, 0),
                partial(of_type, 1),
                partial(balanced_leaders, self.image, OWN),
                partial(unclean_leaders, self.image, OWN),
            ]
        )
        self.done(elect())

    def settings_change(self) -> None:
        name = self.random.choice("tu")
        if self.random.random() < 0.5:
            self.configure("unclean.leader.election.enable", self.random.choice(["true", "false"]), name)
        else:
            self.configure("min.insync.replicas", self.random.choice("123"), name)
            self.apply(records.ClearElrRecord(topic_name=name))


HAPPENINGS: list[Callable[[History], None]] = [
    History.a_broker_goes,
    History.a_broker_comes,
    History.a_broker_is_given_up,
    History.a_directory_is_lost,
    History.a_leader_speaks,
    History.a_leader_speaks,
    History.a_leader_speaks,
    History.replicas_are_wanted_elsewhere,
    History.leaders_are_elected,
    History.settings_change,
]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("elr", "level"), [(True, 30), (False, 30), (False, 11)])
def test_a_history(seed: int, elr: bool, level: int) -> None:
    history = History(Random(seed), elr=elr, level=level)
    for _ in range(STEPS):
        history.step()
