"""OffsetCommit (8), versions 2 to 10.

v2 to v4: a retention time, for records of the older format that expire by themselves; v6: leader epochs; v7: static
members; v8: flexible; v9: GROUP_ID_NOT_FOUND; v10: topic ids instead of names.

Topics and partitions that don't exist are answered without asking the coordinator; where nothing else is left, group
and member aren't looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.network.later import Later
from broker.security.authorizer import Operation, ResourceType
from coordinator.group.offsets.commit import Committer, NewOffset
from protocol.errors import Error, KafkaError
from protocol.messages.groups_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage, TopicImage
    from broker.controller.metadata_log import MetadataLog
    from broker.coordination.groups import Groups
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer
    from coordinator.group.shard import GroupShard

TOPIC_ID_VERSION = 10


class _Answers:
    """The answer as it grows.

    Kafka puts what it refuses by itself together by topic and merges the coordinator's answer into that; where it
    refuses nothing, the coordinator's answer goes out as it is, a topic that was named twice in it twice.
    """

    def __init__(self, *, by_id: bool) -> None:
        self.topics: list[OffsetCommitResponseTopic] = []
        self._by_id = by_id
        self._found: dict[str | bytes, OffsetCommitResponseTopic] = {}

    def refuse(self, asked: OffsetCommitRequestTopic, index: int, error: Error) -> None:
        topic = self._found.get(self._key(asked))
        if topic is None:
            topic = OffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id)
            self.topics.append(topic)
            self._found[self._key(asked)] = topic
        topic.partitions.append(OffsetCommitResponsePartition(partition_index=index, error_code=error))

    def add(self, asked: OffsetCommitRequestTopic, partitions: list[OffsetCommitResponsePartition]) -> None:
        topic = self._found.get(self._key(asked))
        if topic is None:
            self.topics.append(
                OffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id, partitions=partitions)
            )
            if self._found:
                self._found[self._key(asked)] = self.topics[-1]
        else:
            topic.partitions += partitions

    def _key(self, asked: OffsetCommitRequestTopic) -> str | bytes:
        return asked.topic_id if self._by_id else asked.name


def handle(
    groups: Groups,
    metadata: MetadataLog,
    authorizer: Authorizer,
    context: RequestContext,
    request: OffsetCommitRequest,
) -> OffsetCommitResponse | Later[OffsetCommitResponse]:
    if not authorizer.allows(context, Operation.READ, ResourceType.GROUP, request.group_id):
        return _all_refused(request, Error.GROUP_AUTHORIZATION_FAILED)
    by_id = context.api_version >= TOPIC_ID_VERSION
    commit = _Commit(_Answers(by_id=by_id), _known_topics(metadata.image, authorizer, context, request))
    for asked in request.topics:
        commit.take(asked, asked.topic_id if by_id else asked.name)
    if not commit.offsets:
        return OffsetCommitResponse(topics=commit.answers.topics)
    committer = Committer(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
    )
    later: Later[OffsetCommitResponse] = Later()

    def reply(found: list[Error] | KafkaError) -> None:
        errors = [found.error] * len(commit.offsets) if isinstance(found, KafkaError) else found
        later.reply(OffsetCommitResponse(topics=commit.answered(errors)))

    def question(shard: GroupShard) -> list[Error]:
        return shard.commit_offsets(
            committer,
            commit.offsets,
            api_version=context.api_version,
            retention_ms=request.retention_time_ms,
        )

    groups.ask(request.group_id, question, reply)
    return later.answer()


def _all_refused(request: OffsetCommitRequest, error: Error) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _known_topics(
    image: ClusterImage, authorizer: Authorizer, context: RequestContext, request: OffsetCommitRequest
) -> dict[str | bytes, TopicImage | Error]:
    """Each topic by what it is named by, or why nothing can be committed for it.

    Who may not read a topic isn't told whether it is there; but who knows an id is told that it isn't known.
    """
    known: dict[str | bytes, TopicImage | Error] = {}
    for asked in request.topics:
        topic: TopicImage | None
        if context.api_version >= TOPIC_ID_VERSION:
            key: str | bytes = asked.topic_id
            topic, unknown = image.topics_by_id.get(asked.topic_id), Error.UNKNOWN_TOPIC_ID
        else:
            key = asked.name
            topic, unknown = image.topics.get(asked.name), Error.UNKNOWN_TOPIC_OR_PARTITION
        if key in known:
            continue
        name = asked.name if topic is None else topic.name
        if topic is None and unknown is Error.UNKNOWN_TOPIC_ID:
            known[key] = unknown
        elif not authorizer.allows(context, Operation.READ, ResourceType.TOPIC, name):
            known[key] = Error.TOPIC_AUTHORIZATION_FAILED
        else:
            known[key] = unknown if topic is None else topic
    return known


class _Commit:
    """What goes to the coordinator, and what is refused before."""

    def __init__(self, answers: _Answers, topics: dict[str | bytes, TopicImage | Error]) -> None:
        self.answers = answers
        self.offsets: list[NewOffset] = []
        self._topics = topics
        self._asked: list[tuple[OffsetCommitRequestTopic, list[int]]] = []
        """The partitions of each topic that go to the coordinator, in the order of `offsets`."""

    def take(self, asked: OffsetCommitRequestTopic, key: str | bytes) -> None:
        topic = self._topics[key]
        known: list[int] = []
        for wanted in asked.partitions:
            index = wanted.partition_index
            if isinstance(topic, Error):
                self.answers.refuse(asked, index, topic)
            elif index not in topic.partitions:
                self.answers.refuse(asked, index, Error.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                known.append(index)
                self.offsets.append(
                    NewOffset(
                        topic.name,
                        topic.topic_id,
                        index,
                        wanted.committed_offset,
                        leader_epoch=wanted.committed_leader_epoch,
                        metadata=wanted.committed_metadata,
                    )
                )
        if known:
            self._asked.append((asked, known))

    def answered(self, errors: Sequence[Error]) -> list[OffsetCommitResponseTopic]:
        """The whole answer, with the coordinator's error of each offset."""
        remaining = iter(errors)
        for asked, known in self._asked:
            self.answers.add(
                asked,
                [
                    OffsetCommitResponsePartition(partition_index=index, error_code=next(remaining))
                    for index in known
                ],
            )
        return self.answers.topics
