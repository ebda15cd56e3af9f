"""Reassignments of partitions: as they are asked for (AlterPartitionReassignments), and those under way.

Versions 0 and 1 (v1: KIP-860, whether the number of replicas may change). A leader's AlterPartition completes them.
Source: `ReplicationControlManager.alterPartitionReassignments`, `listPartitionReassignments`; KIP-455.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from broker.controller.controller_result import ControllerResult
from broker.controller.partition_changes import Election, TopicIdPartition, Wish, partition_change
from broker.controller.partition_terms import OwnSettings, PartitionTerms, partition_named
from broker.controller.pause import Pause
from broker.controller.reassignment_replicas import is_under_way, reverted, towards
from broker.controller.record_bounds import MAX_RECORDS_PER_REQUEST
from protocol.errors import Error, KafkaError
from protocol.messages.cluster_admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from protocol.waiting import turn

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage, PartitionImage
    from broker.controller.partition_changes import Terms
    from protocol.messages.cluster_admin import ListPartitionReassignmentsTopics
    from protocol.wire.schema import Message


async def reassigned_partitions(
    image: ClusterImage, request: AlterPartitionReassignmentsRequest, own: OwnSettings
) -> ControllerResult[AlterPartitionReassignmentsResponse]:
    """Each partition is decided on by itself.

    Of too many records, Kafka's loop over the partitions catches what the bound throws: those past it are answered
    with UNKNOWN_SERVER_ERROR, the others are reassigned.
    """
    response = AlterPartitionReassignmentsResponse(
        error_message=None, allow_replication_factor_change=request.allow_replication_factor_change
    )
    all_terms = PartitionTerms(image, own)
    decided: list[Message] = []
    pause = Pause()
    for asked in request.topics:
        if pause.is_due():
            await turn()
        answers = ReassignableTopicResponse(name=asked.name)
        response.responses.append(answers)
        for wanted in asked.partitions:
            if pause.is_due(1 + min(len(wanted.replicas or ()), len(image.brokers))):
                await turn()
            answer = ReassignablePartitionResponse(partition_index=wanted.partition_index, error_message=None)
            answers.partitions.append(answer)
            try:
                topic, partition = partition_named(image, asked.name, wanted.partition_index)
                terms = all_terms.of(topic)
                if wanted.replicas is None:
                    wish = _cancelled(partition, terms)
                else:
                    _check_target(image, wanted.replicas)
                    if not request.allow_replication_factor_change:
                        _check_factor(partition, wanted.replicas)
                    wish = _reassigned(partition, wanted.replicas)
                key = TopicIdPartition(topic.topic_id, wanted.partition_index)
                record = partition_change(key, partition, wish, terms)
                if record is not None:
                    if len(decided) >= MAX_RECORDS_PER_REQUEST:
                        raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
                    decided.append(record)
            except KafkaError as refused:
                answer.error_code, answer.error_message = refused.error, refused.message

    def told(failure: KafkaError | None) -> AlterPartitionReassignmentsResponse:
        if failure is not None:
            for of_topic in response.responses:
                for result in of_topic.partitions:
                    result.error_code = result.error_code or failure.error
        return response

    return ControllerResult(decided, told)


async def ongoing_reassignments(
    image: ClusterImage,
    topics: Sequence[ListPartitionReassignmentsTopics] | None,
    admits: Callable[[tuple[str, int]], bool] = lambda named: True,
) -> list[OngoingTopicReassignment]:
    """Those of the partitions that are named, or all. `admits(topic and number)` is asked of each that is under way
    whether the answer is to have it: what a request names again and again needn't be answered as often. The image may
    change meanwhile."""
    asked: Iterable[tuple[str, Iterable[int]]]
    if topics is None:
        asked = [(name, topic.partitions) for name, topic in image.topics.items()]
    else:
        asked = ((each.name, each.partition_indexes) for each in topics)
    found = []
    pause = Pause()
    for name, indexes in asked:
        if pause.is_due():
            await turn()
        topic = image.topics.get(name)
        if topic is None:
            continue
        of_topic = OngoingTopicReassignment(name=name)
        for index in [*indexes]:
            if pause.is_due():
                await turn()
            partition = topic.partitions.get(index)
            if partition is not None and is_under_way(partition) and admits((name, index)):
                of_topic.partitions.append(
                    OngoingPartitionReassignment(
                        partition_index=index,
                        replicas=partition.replicas,
                        adding_replicas=partition.adding_replicas,
                        removing_replicas=partition.removing_replicas,
                    )
                )
        if of_topic.partitions:
            found.append(of_topic)
    return found


def _reassigned(partition: PartitionImage, target: list[int]) -> Wish:
    """Of an earlier reassignment what comes and goes is replaced where it is something now, and else stays, as in
    Kafka. No election is unclean for this."""
    reassignment = towards(target, partition.replicas)
    return Wish(
        replicas=reassignment.replicas,
        adding=reassignment.adding or None,
        removing=reassignment.removing or None,
    )


def _cancelled(partition: PartitionImage, terms: Terms) -> Wish:
    if not is_under_way(partition):
        raise KafkaError(Error.NO_REASSIGNMENT_IN_PROGRESS)
    before = reverted(partition)
    if before.unclean and terms.election is not Election.UNCLEAN:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            "None of the replicas from before is in sync, and the topic's settings allow no unclean election.",
        )
    return Wish(isr=before.isr, replicas=before.replicas, adding=[], removing=[], election=terms.election)


def _check_target(image: ClusterImage, replicas: Sequence[int]) -> None:
    """Of a list that is longer than there are brokers, so many show that it is wrong."""
    if not replicas:
        raise KafkaError(Error.INVALID_REPLICA_ASSIGNMENT, "The assignment has an empty replica list.")
    seen: set[int] = set()
    for broker_id in replicas[: len(image.brokers) + 1]:
        if broker_id not in image.brokers:
            raise KafkaError(
                Error.INVALID_REPLICA_ASSIGNMENT,
                f"The assignment has broker {broker_id}, which is not registered.",
            )
        if broker_id in seen:
            raise KafkaError(
                Error.INVALID_REPLICA_ASSIGNMENT, f"The assignment has broker {broker_id} more than once."
            )
        seen.add(broker_id)


def _check_factor(partition: PartitionImage, replicas: Sequence[int]) -> None:
    """As many as there are to be once what is under way is done."""
    present = {*partition.replicas, *partition.adding_replicas}.difference(partition.removing_replicas)
    if len(present) != len(replicas):
        raise KafkaError(
            Error.INVALID_REPLICATION_FACTOR,
            f"The partition has {len(present)} replica(s), and {len(replicas)} are wanted.",
        )
