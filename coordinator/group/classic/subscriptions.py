"""Which topics the members of a classic group consume, as far as the coordinator can know.

Their metadata is the consumer protocol's only where the group's type says so; its version 0 is a prefix of all
others (Kafka: `ClassicGroup.computeSubscribedTopics`).
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from protocol.errors import CodecError
from protocol.messages.groups import ConsumerProtocolSubscription
from protocol.wire.codec import decode

CONSUMER_PROTOCOL_TYPE = "consumer"

_INT16 = Struct(">h")


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members' subscriptions; None where one of them can't be read."""
    topics: set[str] = set()
    for subscription in metadata:
        if len(subscription) < _INT16.size or _INT16.unpack_from(subscription)[0] < 0:
            return None
        try:
            topics.update(decode(ConsumerProtocolSubscription, 0, subscription, _INT16.size).topics)
        except CodecError:
            return None
    return frozenset(topics)
