"""What follows from a leader's answer to a marker: it is done, it is sent again, or it is given up.

Source: `TransactionMarkerRequestCompletionHandler`.
"""

from enum import Enum

from protocol.errors import Error


class Reaction(Enum):
    """What the answer of a partition's leader means."""

    DONE = "the partition awaits no marker any more"
    RETRY = "ask again"
    GIVE_UP = "somebody else has taken over producer or coordinator: no more is sent for this transaction"


DONE, RETRY, GIVE_UP = Reaction

MARKER_REACTIONS: dict[Error | None, Reaction] = {
    Error.NONE: DONE,
    None: DONE,  # the partition was deleted
    Error.UNSUPPORTED_FOR_MESSAGE_FORMAT: DONE,  # no transaction can have written there
    Error.UNSUPPORTED_VERSION: DONE,
    Error.UNKNOWN_TOPIC_OR_PARTITION: RETRY,
    Error.NOT_LEADER_OR_FOLLOWER: RETRY,
    Error.NOT_ENOUGH_REPLICAS: RETRY,
    Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND: RETRY,
    Error.REQUEST_TIMED_OUT: RETRY,
    Error.KAFKA_STORAGE_ERROR: RETRY,
    Error.INVALID_PRODUCER_EPOCH: GIVE_UP,
    Error.TRANSACTION_COORDINATOR_FENCED: GIVE_UP,
}
"""Any other error must not happen (Kafka: IllegalStateException) and is given up too, with a louder word in the log."""
