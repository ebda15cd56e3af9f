"""What a test asks a node of its cluster: who leads, what is in sync; and what it has the controller do.

Of anything that the metadata says any node may be asked, and answers by what it knows itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from broker.controller.image import NO_LEADER
from broker.controller.leader_elections import PREFERRED, elected_leaders
from broker.controller.reassignments import reassigned_partitions
from broker.coordination.groups import OFFSETS_TOPIC
from broker.coordination.transactions import TRANSACTION_TOPIC
from broker.process.question import Question, QuestionError, TellAnswer
from coordinator.java.maps import partition_of_key
from protocol.errors import Error, KafkaError, error_of
from protocol.messages.cluster_admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopic,
    ReassignablePartition,
    ReassignableTopic,
)

if TYPE_CHECKING:
    from broker.controller.image import PartitionImage
    from broker.quorum.controller_node import ControllerNode
    from broker.server import Server

    AnyNode = Server | ControllerNode

_SOME = 5  # partitions that are named, where there are many


def _partition(node: AnyNode, question: Question, reply: TellAnswer) -> None:
    """`topic`, `partition` → `leader` (-1: none), `replicas`, `isr`, ids of brokers; whether it `is_moving`."""
    partition = _found(node, question)
    reply(
        {
            "leader": partition.leader,
            "replicas": [*partition.replicas],
            "isr": [*partition.isr],
            "is_moving": bool(partition.adding_replicas or partition.removing_replicas),
        }
    )


def _coordinator(node: AnyNode, question: Question, reply: TellAnswer) -> None:
    """`group` or `transactional_id` → `topic`, `partition`: the one whose leader is the coordinator. The topic is made
    where somebody first asks for a coordinator: until then there is none."""
    name, key = (OFFSETS_TOPIC, "group") if "group" in question else (TRANSACTION_TOPIC, "transactional_id")
    topic = node.metadata.image.topics.get(name)
    if topic is None:
        raise QuestionError(f"there is no coordinator yet: {name} isn't there")
    reply({"topic": name, "partition": partition_of_key(question[key], len(topic.partitions))})


def _brokers(node: AnyNode, question: Question, reply: TellAnswer) -> None:
    """→ ids of the brokers that are registered and not fenced."""
    reply(sorted(each for each, broker in node.metadata.image.brokers.items() if not broker.fenced))


def _out_of_sync(node: AnyNode, question: Question, reply: TellAnswer) -> None:
    """→ how many partitions (`count`) have no leader, or not all of their replicas in sync, and `some` of them. Nothing
    that is on the brokers in `absent` is in sync, though the metadata may not have heard of that yet."""
    found = [*_lagging(node, {*map(int, question.get("absent", ()))})]
    reply({"count": len(found), "some": found[:_SOME]})


def _lagging(node: AnyNode, absent: set[int]) -> Iterator[str]:
    for name, topic in node.metadata.image.topics.items():
        for index, partition in topic.partitions.items():
            if partition.leader == NO_LEADER or {*partition.isr} - absent != {*partition.replicas}:
                yield f"{name}-{index}"


def _reassign(node: AnyNode, question: Question, reply: TellAnswer) -> None:
    """`topic`, `partition`, `replicas`: begin to have the partition on these brokers, the preferred leader first. Of
    the controller."""
    _found(node, question)
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=question["topic"],
                partitions=[
                    ReassignablePartition(
                        partition_index=question["partition"], replicas=[*map(int, question["replicas"])]
                    )
                ],
            )
        ]
    )

    def decided(answer: AlterPartitionReassignmentsResponse | KafkaError) -> None:
        if isinstance(answer, KafkaError):
            reply(_refusal(answer.error, answer.message))
            return
        result = answer.responses[0].partitions[0]
        reply(_outcome(result.error_code, result.error_message))

    _controller(node).submit_own(
        lambda image: reassigned_partitions(image, request, node.own_settings()), decided, _failed(reply)
    )


def _elect(node: AnyNode, question: Question, reply: TellAnswer) -> None:
    """`topic`, `partition`: the preferred leader is to lead, if it doesn't. Of the controller."""
    _found(node, question)
    request = ElectLeadersRequest(
        election_type=PREFERRED,
        topic_partitions=[ElectLeadersTopic(topic=question["topic"], partitions=[question["partition"]])],
    )

    def decided(answer: ElectLeadersResponse | KafkaError) -> None:
        if isinstance(answer, KafkaError):
            reply(_refusal(answer.error, answer.message))
            return
        result = answer.replica_election_results[0].partition_result[0]
        needless = result.error_code == Error.ELECTION_NOT_NEEDED
        reply(True if needless else _outcome(result.error_code, result.error_message))

    _controller(node).submit_own(
        lambda image: elected_leaders(image, request, node.own_settings()), decided, _failed(reply)
    )


def _found(node: AnyNode, question: Question) -> PartitionImage:
    topic = node.metadata.image.topics.get(question["topic"])
    partition = None if topic is None else topic.partitions.get(question["partition"])
    if partition is None:
        raise QuestionError(f"there is no partition {question['topic']}-{question['partition']}")
    return partition


def _controller(node: AnyNode) -> Any:
    if not node.metadata.is_leader:
        raise QuestionError("this node isn't the controller")
    return node.controller


def _outcome(code: int, message: str | None) -> Any:
    return True if code == Error.NONE else _refusal(error_of(code), message)


def _refusal(error: Error, message: str | None) -> QuestionError:
    return QuestionError(f"{error.name}: {message}" if message else error.name)


def _failed(reply: TellAnswer) -> Callable[[BaseException], None]:
    return lambda error: reply(QuestionError(repr(error)))


CLUSTER_QUESTIONS: Mapping[str, Callable[[AnyNode, Question, TellAnswer], None]] = {
    "brokers": _brokers,
    "coordinator": _coordinator,
    "elect": _elect,
    "out_of_sync": _out_of_sync,
    "partition": _partition,
    "reassign": _reassign,
}
"""By name. Each raises QuestionError, KeyError where something isn't said, and TypeError where it makes no sense."""
