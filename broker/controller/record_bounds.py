"""How many records a request may make: they are one batch, and all in force or none (Kafka: `BoundedList`)."""

from __future__ import annotations

from collections.abc import Sized

from protocol.errors import Error, KafkaError

MAX_RECORDS_PER_REQUEST = 10_000  # QuorumController.MAX_RECORDS_PER_USER_OP


def check_records(decided: Sized) -> None:
    """Raises KafkaError (POLICY_VIOLATION) where a request has come to too many."""
    if len(decided) > MAX_RECORDS_PER_REQUEST:
        raise too_many_records()


def too_many_records() -> KafkaError:
    """What those are told whose whole request is given up past the bound (Kafka: `EventHandlerExceptionInfo`)."""
    return KafkaError(Error.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
