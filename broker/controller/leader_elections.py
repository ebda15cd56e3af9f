"""Leader elections: those that are asked for (ElectLeaders), and those that the controller holds by the clock.

Source: `ReplicationControlManager.electLeaders`, `maybeBalancePartitionLeaders`, `maybeElectUncleanLeaders`; KIP-460.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from broker.controller.controller_result import ControllerResult
from broker.controller.image import NO_LEADER
from broker.controller.partition_changes import Election, Terms, TopicIdPartition, Wish, partition_change
from broker.controller.partition_terms import OwnSettings, PartitionTerms, partition_named
from broker.controller.pause import Pause
from broker.controller.record_bounds import check_records
from protocol.errors import Error, KafkaError
from protocol.messages.cluster_admin import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionElectionResult,
    ReplicaElectionResult,
)
from protocol.waiting import Waiting, turn

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage, PartitionImage
    from protocol.messages.metadata_records import PartitionChangeRecord
    from protocol.waiting import Waiting
    from protocol.wire.schema import Message

MOST_ELECTIONS = 1_000
"""That the controller holds by itself in one batch (`ReplicationControlManager.MAX_ELECTIONS_PER_IMBALANCE`)."""

PREFERRED, UNCLEAN = 0, 1
ELECTION_TYPES: Mapping[int, Election] = {PREFERRED: Election.PREFERRED, UNCLEAN: Election.UNCLEAN}
"""By the number that stands in a request."""

_IN_VAIN = {
    Election.PREFERRED: (Error.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred replica can't lead now."),
    Election.UNCLEAN: (Error.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica can lead now."),
}


def election_of_type(number: int) -> Election:
    """Raises KafkaError (INVALID_REQUEST) where there is no such type."""
    if number not in ELECTION_TYPES:
        raise KafkaError(Error.INVALID_REQUEST, f"Unknown election type {number}")
    return ELECTION_TYPES[number]


async def elected_leaders(
    image: ClusterImage, request: ElectLeadersRequest, own: OwnSettings
) -> ControllerResult[ElectLeadersResponse]:
    """What is asked for by name, or all partitions, those that need no election being left out of the answer then.

    Raises KafkaError: INVALID_REQUEST for a type that there isn't, POLICY_VIOLATION for too many records.
    """
    election = election_of_type(request.election_type)
    named = request.topic_partitions
    asked: Iterable[tuple[str, Iterable[int]]]
    if named is None:
        asked = ((name, topic.partitions) for name, topic in image.topics.items())
    else:
        asked = ((each.topic, each.partitions) for each in named)
    all_terms = PartitionTerms(image, own)
    decided: list[Message] = []
    response = ElectLeadersResponse()
    pause = Pause()
    for name, indexes in asked:
        if pause.is_due():
            await turn()
        of_topic = ReplicaElectionResult(topic=name)
        response.replica_election_results.append(of_topic)
        for index in indexes:
            if pause.is_due():
                await turn()
            result = PartitionElectionResult(partition_id=index, error_message=None)
            try:
                topic, partition = partition_named(image, name, index)
                key = TopicIdPartition(topic.topic_id, index)
                decided.append(elected(key, partition, election, all_terms.of(topic)))
            except KafkaError as refused:
                if refused.error is Error.ELECTION_NOT_NEEDED and named is None:
                    continue
                result.error_code, result.error_message = refused.error, refused.message
            of_topic.partition_result.append(result)
            check_records(decided)

    def answer(failure: KafkaError | None) -> ElectLeadersResponse:
        if failure is not None:
            for each in response.replica_election_results:
                for result in each.partition_result:
                    result.error_code = result.error_code or failure.error
        return response

    return ControllerResult(decided, answer)


def elected(
    key: TopicIdPartition, partition: PartitionImage, election: Election, terms: Terms
) -> PartitionChangeRecord:
    """The record of an election, PREFERRED or UNCLEAN.

    A preferred one may end with another leader than the preferred replica, where that can't lead and nobody does.

    Raises KafkaError: ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE.
    """
    is_done = (
        has_preferred_leader(partition) if election is Election.PREFERRED else partition.leader != NO_LEADER
    )
    if is_done:
        raise KafkaError(Error.ELECTION_NOT_NEEDED, "The leader is the one that there should be.")
    record = partition_change(key, partition, Wish(election=election), terms)
    if record is None:
        raise KafkaError(*_IN_VAIN[election])
    return record


def balanced_leaders(image: ClusterImage, own: OwnSettings) -> Waiting[ControllerResult[bool | KafkaError]]:
    """Preferred elections where somebody else leads, each `leader.imbalance.check.interval.seconds` where
    `auto.leader.rebalance.enable` is set. The answer: whether there may be more to do, at once then."""

    def is_unbalanced(partition: PartitionImage, terms: Terms) -> bool:
        return not has_preferred_leader(partition)

    return _held_by_clock(image, own, Election.PREFERRED, is_unbalanced)


def unclean_leaders(image: ClusterImage, own: OwnSettings) -> Waiting[ControllerResult[bool | KafkaError]]:
    """Unclean elections of partitions that nobody leads, where their topics allow it, each
    `unclean.leader.election.interval.ms`. The answer: whether there may be more to do, at once then."""

    def is_given_up(partition: PartitionImage, terms: Terms) -> bool:
        return partition.leader == NO_LEADER and terms.election is Election.UNCLEAN

    return _held_by_clock(image, own, Election.UNCLEAN, is_given_up)


def has_preferred_leader(partition: PartitionImage) -> bool:
    """Whether its first replica leads."""
    return partition.leader == (partition.replicas[0] if partition.replicas else NO_LEADER)


async def _held_by_clock(
    image: ClusterImage,
    own: OwnSettings,
    election: Election,
    is_needed: Callable[[PartitionImage, Terms], bool],
) -> ControllerResult[bool | KafkaError]:
    wish = Wish(election=election)
    all_terms = PartitionTerms(image, own)
    decided: list[Message] = []
    pause = Pause()
    for topic in image.topics.values():
        terms = all_terms.of(topic)
        for partition_id, partition in topic.partitions.items():
            if pause.is_due():
                await turn()
            if not is_needed(partition, terms):
                continue
            record = partition_change(TopicIdPartition(topic.topic_id, partition_id), partition, wish, terms)
            if record is None:
                continue
            decided.append(record)
            if len(decided) >= MOST_ELECTIONS:
                return ControllerResult(decided, lambda error: error is None)
    return ControllerResult(decided, lambda error: False)
