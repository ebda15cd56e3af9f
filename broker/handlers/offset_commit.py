"""OffsetCommit (8), versions 2 to 10.

v2 to v4: a retention time, for records of the older format, which expire by themselves; v6: leader epochs; v7: static
members; v8: flexible; v9: GROUP_ID_NOT_FOUND; v10: topic ids instead of names.

The coordinator isn't asked about topics and partitions that don't exist. If a request has no others, group and member
aren't checked.

All offsets of a request are one batch, as in Kafka. Many are checked and prepared in several turns of the loop; they
are written and applied in one turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from broker.network.turns import runs_to_its_end
from broker.security.authorizer import GROUP, READ, TOPIC
from coordinator.group.offsets.commit import STAGED_PER_TURN, Committer, NewOffset, StagedOffsets
from protocol.errors import NO_ERROR, Error, KafkaError
from protocol.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.waiting import Pause, turn

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.handlers.node_ports import GroupPorts
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer
    from coordinator.group.shard import GroupShard
    from protocol.messages.transactions import TxnOffsetCommitRequest

    OffsetsRequest = OffsetCommitRequest | TxnOffsetCommitRequest

R = TypeVar("R")

TOPIC_ID_VERSION = 10


class CommitAnswer(Generic[R]):
    """Builds the answer to an OffsetCommit or a TxnOffsetCommit: the partitions that are refused at once, and those
    that the group's coordinator has to decide.

    Kafka groups the refused partitions by topic and merges the coordinator's answer into them. If none is refused, it
    sends the coordinator's answer as it is: a topic that was named twice is in it twice.
    """

    def __init__(
        self, staged: StagedOffsets, response: type[R], topic: Any, partition: Any, *, by_id: bool
    ) -> None:
        """`response`, `topic` and `partition` are the message classes of the API."""
        self.staged = staged
        self.awaited: list[tuple[Any, list[int]]] = []
        """The partitions that the coordinator decides, by topic of the request."""
        self._topics: list[Any] = []
        self._by_id = by_id
        self._found: dict[str | bytes, Any] = {}
        self._response: Any = response
        self._topic = topic
        self._partition = partition
        self._pause = Pause(STAGED_PER_TURN)

    async def check(
        self, request: OffsetsRequest, image: ClusterImage, authorizer: Authorizer, context: RequestContext
    ) -> None:
        """Stage the offsets of partitions that exist, and refuse the rest."""
        by_id, may_all, pause = self._by_id, authorizer.allows_everything, self._pause
        for asked in request.topics:
            topic = image.topics_by_id.get(asked.topic_id) if by_id else image.topics.get(asked.name)
            if topic is None and by_id:
                error = Error.UNKNOWN_TOPIC_ID
            elif not (
                may_all
                or authorizer.allows(context, READ, TOPIC, asked.name if topic is None else topic.name)
            ):
                error = Error.TOPIC_AUTHORIZATION_FAILED
            else:
                error = NO_ERROR if topic is not None else Error.UNKNOWN_TOPIC_OR_PARTITION
            if error:
                self._told_of(asked)  # the answer lists it even if it names no partition
            known: list[int] = []
            for wanted in asked.partitions:
                if pause.is_due():
                    await turn()
                index = wanted.partition_index
                if error or topic is None:
                    self._refuse(asked, index, error)
                elif index not in topic.partitions:
                    self._refuse(asked, index, Error.UNKNOWN_TOPIC_OR_PARTITION)
                else:
                    known.append(index)
                    self.staged.add(
                        NewOffset(
                            topic.name,
                            topic.topic_id,
                            index,
                            wanted.committed_offset,
                            wanted.committed_leader_epoch,
                            wanted.committed_metadata,
                        )
                    )
            if known:
                self.awaited.append((asked, known))

    def _refuse(self, asked: Any, index: int, error: Error) -> None:
        self._told_of(asked).partitions.append(self._partition(partition_index=index, error_code=error))

    def _told_of(self, asked: Any) -> Any:
        """The topic in the answer; added if it isn't there."""
        key = asked.topic_id if self._by_id else asked.name
        topic = self._found.get(key)
        if topic is None:
            topic = self._found[key] = self._topic(name=asked.name, topic_id=asked.topic_id)
            self._topics.append(topic)
        return topic

    async def refused(self, request: OffsetsRequest, error: Error) -> R:
        """The answer with one error for all partitions."""
        self.awaited = [
            (asked, [each.partition_index for each in asked.partitions]) for asked in request.topics
        ]
        return await self.response(KafkaError(error))

    async def response(self, found: Sequence[Error] | KafkaError) -> R:
        """The answer. `found` is the coordinator's: an error for each of `awaited`, or one for all."""
        errors = repeat(found.error) if isinstance(found, KafkaError) else iter(found)
        pause, new_partition = self._pause, self._partition.of
        for asked, indexes in self.awaited:
            key = asked.topic_id if self._by_id else asked.name
            topic = self._found.get(key) if self._found else None
            if topic is None:
                topic = self._topic.of(name=asked.name, topic_id=asked.topic_id, partitions=[])
                self._topics.append(topic)
                if self._found:
                    self._found[key] = topic
            partitions = topic.partitions
            for index in indexes:
                partitions.append(new_partition(partition_index=index, error_code=next(errors)))
                if pause.is_due():
                    await turn()
        response: R = self._response.of(topics=self._topics)
        return response


@runs_to_its_end
async def handle(
    node: GroupPorts,
    context: RequestContext,
    request: OffsetCommitRequest,
) -> OffsetCommitResponse:
    staged = StagedOffsets(
        request.group_id,
        node.clock.now_ms(),
        max_metadata=node.groups.max_offset_metadata,
        retention_ms=request.retention_time_ms,
    )
    answer = CommitAnswer(
        staged,
        OffsetCommitResponse,
        OffsetCommitResponseTopic,
        OffsetCommitResponsePartition,
        by_id=context.api_version >= TOPIC_ID_VERSION,
    )
    authorizer = node.authorizer
    if not (authorizer.allows_everything or authorizer.allows(context, READ, GROUP, request.group_id)):
        return await answer.refused(request, Error.GROUP_AUTHORIZATION_FAILED)
    await answer.check(request, node.metadata.image, authorizer, context)
    if not answer.awaited:
        return await answer.response(())
    committer = Committer(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
    )

    def question(shard: GroupShard) -> list[Error]:
        return shard.commit_offsets(committer, staged, api_version=context.api_version)

    return await answer.response(await node.groups.ask(request.group_id, question))
