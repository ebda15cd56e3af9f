"""Requests that change existing partitions: a request and the image become records and the answer.

AlterPartition: leaders change the ISR. ElectLeaders: an admin or the clock starts elections.
AlterPartitionReassignments: an admin moves replicas. AssignReplicasToDirs: brokers report directories.
`partition_changes` decides about each partition. The checks are in Kafka's order.

Source: `ReplicationControlManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from broker.controller.broker_records import BrokerIncarnation, check_broker_epoch
from broker.controller.controller import MAX_RECORDS_PER_REQUEST, ControllerResult, check_records
from broker.controller.image import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERED,
    RECOVERING,
    ClusterImage,
    TopicImage,
)
from broker.controller.metadata_versions import DIRECTORIES_SINCE, METADATA_VERSION
from broker.controller.partition_changes import (
    BrokerChange,
    Election,
    LeaderAndIsrUpdates,
    OwnSettings,
    PartitionTerms,
    Terms,
    TopicIdPartition,
    Wish,
    is_under_way,
    partition_change,
    partition_named,
    reverted,
    towards,
)
from broker.controller.replica_directories import has_online
from broker.controller.replica_placer import has_room
from protocol.errors import Error, KafkaError
from protocol.messages.broker_to_controller import (
    AlteredPartition,
    AlteredPartitionTopic,
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AssignedDirectoryResult,
    AssignedPartitionResult,
    AssignedTopicResult,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    BrokerState,
)
from protocol.messages.cluster_admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    PartitionElectionResult,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)
from protocol.waiting import Pause, Waiting, turn

if TYPE_CHECKING:
    from broker.controller.image import PartitionImage
    from protocol.messages.cluster_admin import ListPartitionReassignmentsTopics
    from protocol.messages.metadata_records import PartitionChangeRecord
    from protocol.wire.schema import Message


MEMBERS_HAVE_EPOCHS_SINCE = 3
ANY_EPOCH = -1  # the leader doesn't know the member's epoch


async def altered_partitions(
    image: ClusterImage, request: AlterPartitionRequest, version: int, own: OwnSettings
) -> ControllerResult[AlterPartitionResponse]:
    """Decide about each partition by itself, by its state before the request.

    A request for the current state is answered with that state. If a change completes a reassignment, another
    broker may become the leader. Then the change is made, and the answer is NEW_LEADER_ELECTED.

    Raises KafkaError (STALE_BROKER_EPOCH) to refuse the whole request.
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
    """The members of the wanted ISR, at most so many: a longer list is invalid anyway."""
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
    """Raises KafkaError unless the request comes from the leader and knows the current epochs.

    A leader with a newer epoch learned it from a later controller, so NOT_CONTROLLER sends it there.
    """
    if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
        raise KafkaError(Error.NOT_CONTROLLER)
    if wanted.leader_epoch < partition.leader_epoch:
        raise KafkaError(Error.FENCED_LEADER_EPOCH)
    if broker_id != partition.leader:
        raise KafkaError(Error.INVALID_REQUEST)
    if wanted.partition_epoch < partition.partition_epoch:
        raise KafkaError(Error.INVALID_UPDATE_VERSION)


def _check_isr(partition: PartitionImage, isr: Sequence[BrokerState], leader_recovery_state: int) -> None:
    """Raises KafkaError if the ISR or the recovery state is invalid. For an unknown recovery state, Kafka's
    controller would fail as a whole."""
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
    """Fill in the partition's state after the change. If it has a new leader, the old one gets only the
    error."""
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


# --- Leader elections, by request and by the clock ----------------------------------------------------------
#
# Source: `electLeaders`, `maybeBalancePartitionLeaders`, `maybeElectUncleanLeaders`; KIP-460.

MOST_ELECTIONS = 1_000
"""The most elections that the controller starts by itself in one batch
(`ReplicationControlManager.MAX_ELECTIONS_PER_IMBALANCE`)."""

PREFERRED, UNCLEAN = 0, 1
ELECTION_TYPES: Mapping[int, Election] = {PREFERRED: Election.PREFERRED, UNCLEAN: Election.UNCLEAN}
"""By the type's number in requests."""

_IN_VAIN = {
    Election.PREFERRED: (Error.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred replica can't lead now."),
    Election.UNCLEAN: (Error.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica can lead now."),
}


def election_of_type(number: int) -> Election:
    """Raises KafkaError (INVALID_REQUEST) if there is no such type."""
    if number not in ELECTION_TYPES:
        raise KafkaError(Error.INVALID_REQUEST, f"Unknown election type {number}")
    return ELECTION_TYPES[number]


async def elected_leaders(
    image: ClusterImage, request: ElectLeadersRequest, own: OwnSettings
) -> ControllerResult[ElectLeadersResponse]:
    """Elect leaders for the named partitions, or for all. In the latter case the answer omits partitions that
    need no election.

    Raises KafkaError: INVALID_REQUEST for an unknown type, POLICY_VIOLATION for too many records.
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
    """Return the record of an election, PREFERRED or UNCLEAN.

    If a partition has no leader and its preferred replica can't lead, a preferred election may elect another
    replica.

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
    """Hold preferred elections where another replica leads.

    This runs every `leader.imbalance.check.interval.seconds` if `auto.leader.rebalance.enable` is set. The
    answer is True if there may be more to do at once.
    """

    def is_unbalanced(partition: PartitionImage, terms: Terms) -> bool:
        return not has_preferred_leader(partition)

    return _held_by_clock(image, own, Election.PREFERRED, is_unbalanced)


def unclean_leaders(image: ClusterImage, own: OwnSettings) -> Waiting[ControllerResult[bool | KafkaError]]:
    """Hold unclean elections for partitions without a leader, if their topics allow that.

    This runs every `unclean.leader.election.interval.ms`. The answer is True if there may be more to do at
    once.
    """

    def is_given_up(partition: PartitionImage, terms: Terms) -> bool:
        return partition.leader == NO_LEADER and terms.election is Election.UNCLEAN

    return _held_by_clock(image, own, Election.UNCLEAN, is_given_up)


def has_preferred_leader(partition: PartitionImage) -> bool:
    """True if the partition's first replica leads it."""
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


# --- Reassignments: requests for them, and those under way --------------------------------------------------
# Versions 0 and 1 (v1: KIP-860, a request may forbid changing the number of replicas). A leader's
# AlterPartition completes a reassignment. Source: `alterPartitionReassignments`,
# `listPartitionReassignments`; KIP-455.


async def reassigned_partitions(
    image: ClusterImage,
    request: AlterPartitionReassignmentsRequest,
    own: OwnSettings,
    can_be_given: Callable[[ClusterImage, int], bool] = has_room,
) -> ControllerResult[AlterPartitionReassignmentsResponse]:
    """Decide about each partition by itself. `can_be_given` is True if a registered broker can get a
    partition.

    If there are too many records, Kafka's loop catches the exception of the bound: partitions past it are
    answered with UNKNOWN_SERVER_ERROR, and the others are reassigned.
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
                    _check_target(image, wanted.replicas, can_be_given)
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
    """Return the reassignments under way of the named partitions, or of all.

    `admits(topic and number)` decides whether the answer includes one: it needn't repeat a partition that the
    request names repeatedly. The image may change meanwhile.
    """
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
    """Return the wish for a reassignment. New additions and removals replace those of an earlier one; empty
    ones keep them, as in Kafka. It never causes an unclean election."""
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


def _check_target(
    image: ClusterImage, replicas: Sequence[int], can_be_given: Callable[[ClusterImage, int], bool]
) -> None:
    """Raises KafkaError if the replicas are invalid. Of a list longer than the number of brokers, only its
    start is checked: that is enough to find the fault."""
    if not replicas:
        raise KafkaError(Error.INVALID_REPLICA_ASSIGNMENT, "The assignment has an empty replica list.")
    seen: set[int] = set()
    for broker_id in replicas[: len(image.brokers) + 1]:
        if broker_id not in image.brokers:
            raise KafkaError(
                Error.INVALID_REPLICA_ASSIGNMENT,
                f"The assignment has broker {broker_id}, which is not registered.",
            )
        if not can_be_given(image, broker_id):
            raise KafkaError(
                Error.INVALID_REPLICA_ASSIGNMENT,
                f"The assignment has broker {broker_id}, all of whose log directories are cordoned.",
            )
        if broker_id in seen:
            raise KafkaError(
                Error.INVALID_REPLICA_ASSIGNMENT, f"The assignment has broker {broker_id} more than once."
            )
        seen.add(broker_id)


def _check_factor(partition: PartitionImage, replicas: Sequence[int]) -> None:
    """Raises KafkaError unless the number of replicas stays what it will be once the current reassignment is
    done."""
    present = {*partition.replicas, *partition.adding_replicas}.difference(partition.removing_replicas)
    if len(present) != len(replicas):
        raise KafkaError(
            Error.INVALID_REPLICATION_FACTOR,
            f"The partition has {len(present)} replica(s), and {len(replicas)} are wanted.",
        )


# --- Directories of replicas, as their brokers choose or change them ----------------------------------------
#
# Source: `handleAssignReplicasToDirs`; KIP-858.


class ReplicaDirectory(NamedTuple):
    """The directory in which a broker has a replica."""

    topic_id: bytes
    partition_index: int
    broker_id: int
    directory_id: bytes


DirectoryChange: TypeAlias = Callable[[ClusterImage, ReplicaDirectory], "Message | None"]
"""Returns the record that changes a replica's directory and whatever else follows (Kafka:
`PartitionChangeBuilder.setDirectory`), or None if nothing changes."""


async def assign_replicas(
    image: ClusterImage,
    request: AssignReplicasToDirsRequest,
    change: DirectoryChange,
    updates: LeaderAndIsrUpdates,
) -> ControllerResult[AssignReplicasToDirsResponse | KafkaError]:
    """Assign replicas to directories.

    Each partition gets its own result: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, or
    NOT_LEADER_OR_FOLLOWER if the broker has no replica of it. A replica in an offline directory leaves its
    ISR.

    Raises KafkaError: UNSUPPORTED_VERSION if the metadata.version doesn't support directories,
    STALE_BROKER_EPOCH.
    """
    if image.features.get(METADATA_VERSION, 0) < DIRECTORIES_SINCE:
        raise KafkaError(Error.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    broker_id = request.broker_id
    directories = {*check_broker_epoch(image, BrokerIncarnation(broker_id, request.broker_epoch)).log_dirs}
    decided: list[Message] = []
    offline: set[bytes] = set()  # offline directories with replicas assigned to them
    response = AssignReplicasToDirsResponse()
    pause = Pause()
    for directory in request.directories:
        if pause.is_due():
            await turn()
        is_online = has_online(directories, directory.id)
        directory_result = AssignedDirectoryResult(id=directory.id)
        response.directories.append(directory_result)
        for asked in directory.topics:
            if pause.is_due():
                await turn()
            topic = image.topics_by_id.get(asked.topic_id)
            topic_result = AssignedTopicResult(topic_id=asked.topic_id)
            directory_result.topics.append(topic_result)
            for index in (each.partition_index for each in asked.partitions):
                if pause.is_due():
                    await turn()
                error = _refusal(topic, index, broker_id)
                topic_result.partitions.append(
                    AssignedPartitionResult(partition_index=index, error_code=error)
                )
                if error is Error.NONE:
                    record = change(image, ReplicaDirectory(asked.topic_id, index, broker_id, directory.id))
                    decided += () if record is None else (record,)
                    if not is_online:
                        offline.add(directory.id)
    if offline:
        as_said = await _with(image, decided)
        decided += await updates(as_said, BrokerChange(removed=broker_id, directories=offline))
    return ControllerResult(decided, lambda error: response if error is None else error, may_split=True)


def _refusal(topic: TopicImage | None, index: int, broker_id: int) -> Error:
    if topic is None:
        return Error.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(index)
    if partition is None:
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    return Error.NONE if broker_id in partition.replicas else Error.NOT_LEADER_OR_FOLLOWER


async def _with(image: ClusterImage, decided: list[Message]) -> ClusterImage:
    """Return the image as it will be, in which partitions are found by their new directories. (Kafka has the
    partitions at hand, and uses their old directories.)"""
    if not decided:
        return image
    after = image.copy()
    pause = Pause()
    for record in decided:
        if pause.is_due():
            await turn()
        after.apply(record)
    return after
