"""Creating and deleting topics, and the broker's answers."""

from __future__ import annotations

from collections.abc import Sequence

from cli.client.cluster import KafkaCluster
from protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

Outcomes = dict[str, tuple[int, str | None]]
"""The error code and the broker's message for each name."""
TIMEOUT_MS = 60_000
FIRST_BY_STATES = 6
"""DeleteTopics before this version only takes a list of names."""


def create_topics(cluster: KafkaCluster, topics: Sequence[CreatableTopic]) -> Outcomes:
    """Create topics. Raises CommandError if nobody answers."""
    answer = cluster.ask(CreateTopicsRequest(topics=[*topics], timeout_ms=TIMEOUT_MS), CreateTopicsResponse)
    return {each.name: (each.error_code, each.error_message) for each in answer.topics}


def delete_topics(cluster: KafkaCluster, names: Sequence[str]) -> Outcomes:
    """Delete topics. Raises CommandError if nobody answers."""
    states = [DeleteTopicState(name=name) for name in names]
    request = DeleteTopicsRequest(topics=states, topic_names=[*names], timeout_ms=TIMEOUT_MS)
    if cluster.version_of(DeleteTopicsRequest) < FIRST_BY_STATES:
        request.topics = []
    answer = cluster.ask(request, DeleteTopicsResponse)
    return {each.name or "": (each.error_code, each.error_message) for each in answer.responses}
