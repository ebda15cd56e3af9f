"""Topics that are made and deleted, and what the broker says to each."""

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
"""For each name the error code, and the broker's words."""
TIMEOUT_MS = 60_000
FIRST_BY_STATES = 6
"""Of DeleteTopics: versions before know a list of names alone."""


def create_topics(cluster: KafkaCluster, topics: Sequence[CreatableTopic]) -> Outcomes:
    """Raises CommandError where nobody answers."""
    answer = cluster.ask(CreateTopicsRequest(topics=[*topics], timeout_ms=TIMEOUT_MS), CreateTopicsResponse)
    return {each.name: (each.error_code, each.error_message) for each in answer.topics}


def delete_topics(cluster: KafkaCluster, names: Sequence[str]) -> Outcomes:
    """Raises CommandError where nobody answers."""
    states = [DeleteTopicState(name=name) for name in names]
    request = DeleteTopicsRequest(topics=states, topic_names=[*names], timeout_ms=TIMEOUT_MS)
    if cluster.version_of(DeleteTopicsRequest) < FIRST_BY_STATES:
        request.topics = []
    answer = cluster.ask(request, DeleteTopicsResponse)
    return {each.name or "": (each.error_code, each.error_message) for each in answer.responses}
