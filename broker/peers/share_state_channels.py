"""What is asked of the share coordinators on other nodes: of each one request at a time, about one group, with all
share partitions of it that are asked for in a row.

Source: `PersisterStateManager`; KIP-932.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.errors import Error, KafkaError, tell_each

if TYPE_CHECKING:
    from broker.coordination.share_state_asks import ShareStateAsk
    from broker.peers.broker_channels import BrokerChannels
    from protocol.wire.schema import Message, Struct


log = logging.getLogger("barnabas.peers")


class _Said(NamedTuple):
    asked: ShareStateAsk[Any]
    answered: Callable[[Any], None]


class ShareStateChannels:
    """To the share coordinators."""

    def __init__(self, channels: Callable[..., BrokerChannels[_Said]]) -> None:
        self._channels = channels(request_of=_request_of, answered=_answered, together=_together)

    def ask(self, node_id: int, asked: ShareStateAsk[Any], answered: Callable[[Any], None]) -> None:
        """See `AskShareStates`."""
        self._channels.say(node_id, _Said(asked, answered))

    def stop(self) -> None:
        """Nobody is told of anything any more."""
        self._channels.stop()


def _together(said: Sequence[_Said]) -> int:
    """How many of the first go in one request: the same question, about one group, and no share partition twice."""
    first = said[0].asked
    seen = set()
    for count, (asked, _) in enumerate(said):
        if asked.kind is not first.kind or asked.key.group_id != first.key.group_id or asked.key in seen:
            return count
        seen.add(asked.key)
    return len(said)


def _request_of(said: Sequence[_Said]) -> Message:
    by_topic: dict[bytes, list[Struct]] = {}
    for asked, _ in said:
        by_topic.setdefault(asked.key.topic_id, []).append(asked.part())
    first = said[0].asked
    kind = first.kind
    topics = [kind.of_topic(topic_id=topic_id, partitions=parts) for topic_id, parts in by_topic.items()]
    return kind.request(group_id=first.key.group_id, topics=topics)


def _answered(said: Sequence[_Said], answer: Any) -> None:
    if isinstance(answer, KafkaError):
        if answer.error is Error.UNSUPPORTED_VERSION:  # of that node, which is nothing that passes
            answer = KafkaError(Error.UNKNOWN_SERVER_ERROR, answer.message)
        _tell(said, lambda _: answer)
        return
    results = {
        (topic.topic_id, result.partition): result for topic in answer.results for result in topic.partitions
    }
    _tell(said, lambda asked: asked.answer_in(results))


def _tell(said: Sequence[_Said], answer_to: Callable[[ShareStateAsk[Any]], Any]) -> None:
    tell_each(
        said,
        lambda each: each.answered(answer_to(each.asked)),
        log,
        "somebody can't be told what the share coordinator said",
    )
