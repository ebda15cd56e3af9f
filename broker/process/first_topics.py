"""Creates the topics in `KAFKA_CREATE_TOPICS`, before the node reports that it has started.

In a cluster they may need brokers that start later than this one, so it tries again for a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from broker.config.given_settings import CREATE_TOPICS
from protocol.errors import Error, KafkaError, stops_the_broker
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig

if TYPE_CHECKING:
    from broker.config.given_settings import FirstTopic
    from broker.controller.topic_requests import Created
    from broker.server import Server

log = logging.getLogger("barnabas.topics")

RETRY_S = 1.0
MOST_TIMES_ASKED = 120

_ENDS_BY_ITSELF = (
    Error.BROKER_NOT_AVAILABLE,
    Error.NETWORK_EXCEPTION,
    Error.NOT_CONTROLLER,
    Error.REQUEST_TIMED_OUT,
)


async def create_first_topics(
    server: Server,
    topics: Sequence[FirstTopic],
    tried: asyncio.Event,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Create the topics. Returns once each exists or can't be created, which is logged.

    `tried` is set once all have been tried once, or this has failed: an error of the broker doesn't keep a node from
    reporting that it has started, unless the node has to stop."""
    try:
        await _create(server, topics, tried, sleep)
    except Exception as error:
        log.error("%s: the topics can't be created: %s", CREATE_TOPICS, error)
        if stops_the_broker(error):
            server.stop_on_failure(error)
    finally:
        tried.set()


async def _create(
    server: Server,
    topics: Sequence[FirstTopic],
    tried: asyncio.Event,
    sleep: Callable[[float], Awaitable[object]],
) -> None:
    has_others = server.config.joins or bool(server.config.controller_listeners)
    wanted = [_creatable(topic) for topic in topics]
    for tries in range(1, MOST_TIMES_ASKED + 1):
        outcome = await _asked_for(server, wanted)
        wanted = []
        for topic, result in outcome:
            if not isinstance(result, KafkaError):
                log.info("%s: created topic %s", CREATE_TOPICS, topic.name)
            elif _may_end(result.error, has_others=has_others) and tries < MOST_TIMES_ASKED:
                wanted.append(topic)
                if tries == 1:
                    log.info("%s: topic %s has to wait: %s", CREATE_TOPICS, topic.name, result)
            elif result.error is not Error.TOPIC_ALREADY_EXISTS:
                log.error("%s: topic %s can't be created: %s", CREATE_TOPICS, topic.name, result)
        tried.set()
        if not wanted:
            return
        await sleep(RETRY_S)


async def _asked_for(server: Server, wanted: Sequence[CreatableTopic]) -> Created:
    answered: asyncio.Future[Created | KafkaError] = asyncio.get_running_loop().create_future()

    async def ask() -> None:
        try:
            outcome = await server.topics.create_automatically(wanted)
        except Exception as error:
            if answered.cancelled():
                raise
            answered.set_exception(error)
        else:
            if not answered.cancelled():
                answered.set_result(outcome)

    server.controller.begin(ask())
    outcome = await answered
    return [(topic, outcome) for topic in wanted] if isinstance(outcome, KafkaError) else outcome


def _may_end(error: Error, *, has_others: bool) -> bool:
    return error in _ENDS_BY_ITSELF or (has_others and error is Error.INVALID_REPLICATION_FACTOR)


def _creatable(topic: FirstTopic) -> CreatableTopic:
    policy = topic.cleanup_policy
    configs = [] if policy is None else [CreatableTopicConfig(name="cleanup.policy", value=policy)]
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replicas,
        configs=configs,
    )
