"""What Produce answers, made of what became of each partition."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from broker.network.answers import CloseConnectionError
from broker.replicas.append_records import Answers, Key, refused
from protocol.errors import Error
from protocol.messages.produce import ProduceRequest, ProduceResponse, TopicProduceResponse

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from protocol.records.checks import RequestFailedError

FIRST_VERSION_WITH_IDS = 13
MOST_TOLD = 100  # partitions of a refused request that the log's line names

ProduceAnswer = ProduceResponse | None


def response_of(acks: int, answers: Answers) -> ProduceAnswer:
    """The answer; with acks=0 none, and an error closes the connection, being all that the client can be told."""
    if acks == 0:
        failures = (
            f"{key[1]}: {Error(answer.error_code).name}"
            for key, answer in answers.items()
            if answer.error_code
        )
        if failed := [*islice(failures, MOST_TOLD)]:
            raise CloseConnectionError(f"Produce with acks=0 failed on partition {', '.join(failed)}")
        return None
    topics: dict[str | bytes, TopicProduceResponse] = {}
    for (name, _), answer in answers.items():
        if name in topics:
            topics[name].partition_responses.append(answer)
        elif isinstance(name, bytes):
            topics[name] = TopicProduceResponse.of(topic_id=name, partition_responses=[answer])
        else:
            topics[name] = TopicProduceResponse.of(name=name, partition_responses=[answer])
    return ProduceResponse.of(responses=[*topics.values()])


def fail_all(request: ProduceRequest, failure: RequestFailedError, context: RequestContext) -> ProduceAnswer:
    """The whole request fails: each of its partitions is answered with the error."""
    return response_of(request.acks, failures(request, failure, context))


def failures(request: ProduceRequest, failure: RequestFailedError, context: RequestContext) -> Answers:
    by_id = context.api_version >= FIRST_VERSION_WITH_IDS
    answers: Answers = {}
    for topic in request.topic_data:
        for data in topic.partition_data:
            key: Key = (topic.topic_id if by_id else topic.name, data.index)
            answers[key] = refused(data.index, failure.error, failure.message)
    return answers


def put_behind(whole: ProduceResponse, part: ProduceResponse, topics: dict[str | bytes, int]) -> None:
    """`topics`: where each stands in the whole."""
    for topic in part.responses:
        place = topics.setdefault(topic.name or topic.topic_id, len(whole.responses))
        if place == len(whole.responses):
            whole.responses.append(topic)
        else:
            whole.responses[place].partition_responses += topic.partition_responses
    known = {each.node_id for each in whole.node_endpoints}
    whole.node_endpoints += [each for each in part.node_endpoints if each.node_id not in known]
