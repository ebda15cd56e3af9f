"""Heartbeats of streams groups that are much to decide: of thousands of tasks or topics, or of a large group."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.group.deferred import DeferredHeartbeat
from coordinator.group.known_topics import KnownTopics
from coordinator.group.streams.decision import StreamsDecision
from coordinator.group.streams.group import StreamsGroup
from coordinator.group.streams.heartbeat_answer import StreamsAnswer
from protocol.messages.groups_streams import StreamsGroupHeartbeatRequest

MOST_DECIDED_IN_PASSING = 10_000
"""What is decided in passing: some 10 ms, the unit being about a microsecond."""

_PER_TASK, _PER_TOPIC, _PER_MEMBER = 50, 80, 30
_PER_SETTING = 5
"""Of a topic that the application has for itself."""
_PER_TAG, _CHARACTERS = 10, 10
"""Of a tag: itself, and so many characters of its key, which is hashed."""


def has_many_tags(request: StreamsGroupHeartbeatRequest) -> bool:
    """Whether what the member says of itself is long to look at, even."""
    tags = request.client_tags or ()
    work = len(tags) * _PER_TAG
    if work <= MOST_DECIDED_IN_PASSING:
        work += sum([len(tag.key) for tag in tags]) // _CHARACTERS
    return work > MOST_DECIDED_IN_PASSING


def is_little(decision: StreamsDecision, request: StreamsGroupHeartbeatRequest, topics: KnownTopics) -> bool:
    """Whether it is decided in passing: by what the group and the request hold, at a cost far below that."""
    group = decision.group
    work = (len(group.members) + 1) * _PER_MEMBER
    sent = request.topology
    if sent is not None:
        for subtopology in sent.subtopologies:
            repartitions = subtopology.repartition_source_topics
            work += _PER_TOPIC * (1 + len(subtopology.source_topics) + len(repartitions))
            work += _PER_TOPIC * (
                len(subtopology.state_changelog_topics) + len(subtopology.repartition_sink_topics)
            )
            for topics_of in (repartitions, subtopology.state_changelog_topics):
                work += _PER_SETTING * sum([len(topic.topic_configs) for topic in topics_of])
    return (
        work <= MOST_DECIDED_IN_PASSING
        and work + task_count(group, request, topics) * _PER_TASK <= MOST_DECIDED_IN_PASSING
    )


def task_count(group: StreamsGroup, request: StreamsGroupHeartbeatRequest, topics: KnownTopics) -> int:
    """Roughly, where the topology hasn't been looked at yet: each subtopology has as many as the largest source of
    all."""
    if group.configured is not None and group.configured.subtopologies:
        return sum(each.task_count for each in group.configured.subtopologies.values())
    sources: Iterable[str] = ()
    count = 0
    if group.topology is not None:
        sources, count = group.topology.sources, len(group.topology.subtopologies)
    elif request.topology is not None:
        subtopologies = request.topology.subtopologies
        sources, count = [name for each in subtopologies for name in each.source_topics], len(subtopologies)
    found = [topics.by_name(name) for name in sources]
    return count * max((topic.partition_count for topic in found if topic is not None), default=0)


class LongStreamsHeartbeat(DeferredHeartbeat[StreamsAnswer]):
    """One that waits to be decided."""
