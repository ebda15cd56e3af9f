"""Kafka's error codes that the sink knows, and what each means for a batch."""

from __future__ import annotations

from typing import Any

from barnabas.spark.errors import (
    BrokerRefusedError,
    QueryFencedError,
    RecordTooLargeError,
    SinkError,
    TryFailedError,
)

UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
NOT_LEADER_OR_FOLLOWER = 6
MESSAGE_TOO_LARGE = 10
COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
INVALID_TOPIC_EXCEPTION = 17
RECORD_LIST_TOO_LARGE = 18
NOT_ENOUGH_REPLICAS = 19
UNKNOWN_MEMBER_ID = 25
TOPIC_AUTHORIZATION_FAILED = 29
GROUP_AUTHORIZATION_FAILED = 30
CLUSTER_AUTHORIZATION_FAILED = 31
UNSUPPORTED_SASL_MECHANISM = 33
ILLEGAL_SASL_STATE = 34
UNSUPPORTED_VERSION = 35
TOPIC_ALREADY_EXISTS = 36
NOT_CONTROLLER = 41
POLICY_VIOLATION = 44
INVALID_PRODUCER_EPOCH = 47
INVALID_TRANSACTION_TIMEOUT = 50
CONCURRENT_TRANSACTIONS = 51
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
OPERATION_NOT_ATTEMPTED = 55
SASL_AUTHENTICATION_FAILED = 58
INVALID_RECORD = 87
PRODUCER_FENCED = 90
TRANSACTIONAL_ID_NOT_FOUND = 105
TLS_HANDSHAKE_FAILED = -2  # none of Kafka's: Java's clients have SslAuthenticationException for it

COORDINATOR_MOVES = {COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR}
LEADER_MOVES = {UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER}
FENCED = {INVALID_PRODUCER_EPOCH, PRODUCER_FENCED}
TOO_LARGE = {MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE}
REFUSED = {
    INVALID_TOPIC_EXCEPTION,
    TOPIC_AUTHORIZATION_FAILED,
    GROUP_AUTHORIZATION_FAILED,
    CLUSTER_AUTHORIZATION_FAILED,
    UNSUPPORTED_SASL_MECHANISM,
    ILLEGAL_SASL_STATE,
    UNSUPPORTED_VERSION,
    POLICY_VIOLATION,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    SASL_AUTHENTICATION_FAILED,
    INVALID_RECORD,
    TLS_HANDSHAKE_FAILED,
}


class ResponseError(Exception):
    """A broker answered a request with an error code.

    name: the code's, as in Kafka's documents. what: the request, and what it was about.
    """

    def __init__(self, code: int, name: str, what: str) -> None:
        super().__init__(f"{what}: {name} ({code})")
        self.code = code
        self.name = name
        self.what = what

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, self.name, self.what)


class NoAnswerError(Exception):
    """A request went unanswered: no connection, or it was lost, or time ran out. It may have been carried out."""


def as_sink_error(error: ResponseError) -> SinkError:
    """What a broker's error code means for the batch."""
    if error.code in FENCED:
        return QueryFencedError(str(error))
    if error.code in TOO_LARGE:
        return RecordTooLargeError(str(error))
    if error.code in REFUSED:
        return BrokerRefusedError(str(error))
    return TryFailedError(str(error))
