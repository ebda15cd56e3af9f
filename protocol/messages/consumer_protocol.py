"""What consumers tell each other inside the classic protocol: subscriptions and assignments.

Both begin with their version (int16). Subscription: v1 owned partitions (KIP-429), v2 generation
(KIP-792), v3 rack (KIP-881).
"""

from protocol.wire.schema import Message, Struct, array, binary, int32, string


class TopicPartition(Struct):
    topic: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: list[TopicPartition] = array(TopicPartition, "0+")
    user_data: bytes | None = binary("0+", nullable="0+", default=None)


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics: list[str] = array(string, "0+")
    user_data: bytes | None = binary("0+", nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
