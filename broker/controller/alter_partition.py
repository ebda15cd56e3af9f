"""AlterPartition: what leaders say of who is in sync, from the request and the image to records and the answer.

Versions 2 and 3 (v3: members with their broker epochs). The checks stand in Kafka's order.
Source: `ReplicationControlManager.alterPartition`, `validateAlterPartitionData`; KIP-497, KIP-841, KIP-903.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.controller.broker_epochs import check_broker_epoch
from broker.controller.controller_result import ControllerResult
from broker.controller.image import NO_LEADER_CHANGE
from broker.controller.partition_changes import (
    RECOVERED,
    RECOVERING,
    TopicIdPartition,
    Wish,
    partition_change,
)
from broker.controller.partition_terms import OwnSettings, PartitionTerms
from broker.controller.pause import Pause
from broker.controller.registration import BrokerIncarnation
from protocol.errors import Error, KafkaError
from protocol.messages.broker_to_controller import (
    AlteredPartition,
    AlteredPartitionTopic,
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
)
from protocol.waiting import turn

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage, PartitionImage
    from protocol.messages.metadata_records import PartitionChangeRecord
    from protocol.wire.schema import Message

MEMBERS_HAVE_EPOCHS_SINCE = 3
ANY_EPOCH = -1  # the leader doesn't know which one the member has


async def altered_partitions(
    image: ClusterImage, request: AlterPartitionRequest, version: int, own: OwnSettings
) -> ControllerResult[AlterPartitionResponse]:
    """Each partition is decided on by itself, by how it was before the request.

    Who asks for what is there already is told how things stand. Where a change completes a reassignment, another
    broker may lead then: the change is made, and NEW_LEADER_ELECTED answered.

    Raises KafkaError (STALE_BROKER_EPOCH) where the whole of it is refused.
    """
    response = AlterPartitionResponse()
    decided: list[Message] = []
    if request.topics:
        check_broker_epoch(image, BrokerIncarnation(request.broker_id, request.broker_epoch))
    all_terms = PartitionTerms(image, own)
    pause = Pause()
    for asked in request.topics:
        if pause.is_due():
            await turn()
        answers = AlteredPartitionTopic(topic_id=asked.topic_id)
        response.topics.append(answers)
        for wanted in asked.partitions:
            if pause.is_due():
                await turn()
            answer = AlteredPartition(partition_index=wanted.partition_index)
            answers.partitions.append(answer)
            try:
                partition = _partition(image, asked.topic_id, wanted.partition_index)
                _check_leader(partition, request.broker_id, wanted)
                isr = _members(wanted, version, 1 + len(partition.replicas))
                _check_isr(partition, isr, wanted.leader_recovery_state)
                _check_members(image, isr)
            except KafkaError as refused:
                answer.error_code = refused.error
                continue
            terms = all_terms.of(image.topics_by_id[asked.topic_id])
            wish = Wish(
                isr=[member.broker_id for member in isr],
                leader_recovery_state=wanted.leader_recovery_state,
                election=terms.election,
            )
            key = TopicIdPartition(asked.topic_id, wanted.partition_index)
            record = partition_change(key, partition, wish, terms)
            if record is not None:
                decided.append(record)
            _tell(answer, partition, record, request.broker_id)

    def told(error: KafkaError | None) -> AlterPartitionResponse:
        return response if error is None else AlterPartitionResponse(error_code=error.error)

    return ControllerResult(decided, told, may_split=True)


def _members(wanted: AlterPartitionPartition, version: int, most: int) -> Sequence[BrokerState]:
    """At most so many: a list that is longer is wrong, however long it is."""
    if version >= MEMBERS_HAVE_EPOCHS_SINCE:
        return wanted.new_isr_with_epochs[:most]
    return [BrokerState(broker_id=broker_id, broker_epoch=ANY_EPOCH) for broker_id in wanted.new_isr[:most]]


def _partition(image: ClusterImage, topic_id: bytes, index: int) -> PartitionImage:
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_ID)
    partition = topic.partitions.get(index)
    if partition is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
    return partition


def _check_leader(partition: PartitionImage, broker_id: int, wanted: AlterPartitionPartition) -> None:
    """Who knows more than is here has heard it from a later controller, and is to look for that."""
    if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
        raise KafkaError(Error.NOT_CONTROLLER)
    if wanted.leader_epoch < partition.leader_epoch:
        raise KafkaError(Error.FENCED_LEADER_EPOCH)
    if broker_id != partition.leader:
        raise KafkaError(Error.INVALID_REQUEST)
    if wanted.partition_epoch < partition.partition_epoch:
        raise KafkaError(Error.INVALID_UPDATE_VERSION)


def _check_isr(partition: PartitionImage, isr: Sequence[BrokerState], leader_recovery_state: int) -> None:
    """Of a recovery state that there isn't Kafka's controller would fail as a whole."""
    members = {member.broker_id for member in isr}
    if (
        len(members) < len(isr)
        or not members.issubset(partition.replicas)
        or partition.leader not in members
        or leader_recovery_state not in (RECOVERED, RECOVERING)
    ):
        raise KafkaError(Error.INVALID_REQUEST)
    if leader_recovery_state == RECOVERING and (
        len(members) > 1 or partition.leader_recovery_state == RECOVERED
    ):
        raise KafkaError(Error.INVALID_REQUEST)


def _check_members(image: ClusterImage, isr: Sequence[BrokerState]) -> None:
    for member in isr:
        broker = image.brokers.get(member.broker_id)
        if (
            broker is None
            or not broker.is_active
            or member.broker_epoch not in (ANY_EPOCH, broker.broker_epoch)
        ):
            raise KafkaError(Error.INELIGIBLE_REPLICA)


def _tell(
    answer: AlteredPartition,
    partition: PartitionImage,
    record: PartitionChangeRecord | None,
    leader: int,
) -> None:
    """How the partition is once it is altered; that it has a new leader is all that the old one is told."""
    if record is not None:
        if record.leader not in (leader, NO_LEADER_CHANGE):
            answer.error_code = Error.NEW_LEADER_ELECTED
            return
        partition = partition.copy()
        partition.change(record)
    answer.leader_id = partition.leader
    answer.leader_epoch = partition.leader_epoch
    answer.isr = partition.isr
    answer.leader_recovery_state = partition.leader_recovery_state
    answer.partition_epoch = partition.partition_epoch
