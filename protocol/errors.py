"""Errors: Kafka's error codes, the three ways in which a request fails, and what stops the broker.

A client's mistake is a `KafkaError`, and the answer has its code. Bytes that make no sense are a `CodecError`, and
close the connection. Anything else is a fault of ours. If going on would make things worse, it is a
`BrokenInvariantError`. Source of codes and names: org.apache.kafka.common.protocol.Errors of Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from logging import Logger

T = TypeVar("T")


class Error(IntEnum):
    """An error code, as on the wire (int16)."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133
    GROUP_DELETION_FAILED = 134
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135
    CONTROLLER_ID_NOT_REGISTERED = 136


NO_ERROR = Error.NONE
"""A constant, because each request uses it: in Python 3.11 `Error.NONE` is a call."""


def error_name(code: int) -> str:
    """The name of a code that somebody else has sent, or its number if we don't know it."""
    try:
        return Error(code).name
    except ValueError:
        return str(code)


def error_of(code: int) -> Error:
    """The error for a code that somebody else has sent; UNKNOWN_SERVER_ERROR if we don't know it (Kafka:
    `forCode`)."""
    try:
        return Error(code)
    except ValueError:
        return Error.UNKNOWN_SERVER_ERROR


MOST_MESSAGE_CHARACTERS = 8_000
"""The limit for a text in an answer: a string on the wire has 32,767 bytes, and a character takes up to four."""


def answered_text(text: str) -> str:
    """Shorten a text that quotes the request, so that it fits in an answer."""
    return text if len(text) <= MOST_MESSAGE_CHARACTERS else text[: MOST_MESSAGE_CHARACTERS - 1] + "…"


class KafkaError(Exception):
    """A client's mistake. The answer has `error`, and `message` if it has room for a text.

    A message that quotes the request ends at `MOST_MESSAGE_CHARACTERS`.
    """

    def __init__(self, error: Error, message: str | None = None) -> None:
        if message is not None:
            message = answered_text(message)
        super().__init__(error, message)
        self.error = error
        self.message = message

    def __str__(self) -> str:
        return self.error.name if self.message is None else f"{self.error.name}: {self.message}"

    def as_value(self) -> KafkaError:
        """This error without its traceback, to keep as an answer.

        The frames of the traceback hold the request and everything made for it. If one of them holds the
        error, they hold each other until the garbage collector finds them.
        """
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)


class CodecError(Exception):
    """Bytes that don't have the expected form, or a value that can't be encoded."""


class BrokenInvariantError(Exception):
    """Something impossible has happened. The broker stops, because going on would be wrong."""


def cannot_apply(error: Exception) -> BrokenInvariantError:
    """The error for a record that is in the log but can't be applied, maybe for lack of memory.

    If the broker went on, it might append records that no start could replay, or give answers that contradict
    the next start's.
    """
    return BrokenInvariantError(f"a written record can't be applied: {error}")


def stops_the_broker(error: BaseException) -> bool:
    return isinstance(error, AssertionError | BrokenInvariantError)


# ---- telling several parties the same, each independent of the others


def tell_each(whom: Iterable[T], tell: Callable[[T], object], log: Logger, failed: str) -> None:
    """Call `tell` with each. A failure of one doesn't affect the others: it is raised once all have been called.

    If several fail, the first failure is raised, but a broken invariant takes precedence. The others are
    logged as `failed`.
    """
    first: Exception | None = None
    for each in whom:
        try:
            tell(each)
        except Exception as failure:
            if first is None:
                first = failure
                continue
            if stops_the_broker(failure) and not stops_the_broker(first):
                first, failure = failure, first
            log.error("%s: %s", failed, failure, exc_info=failure)
    if first is not None:
        try:
            raise first
        finally:
            del first  # else it would hold this frame, which holds it
