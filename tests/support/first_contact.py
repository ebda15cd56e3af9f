"""Errors that a client can avoid by waiting and asking again. At first contact, no client should get one."""

from __future__ import annotations

from protocol.errors import Error

MET_BY_WAITING = frozenset(
    {
        Error.BROKER_NOT_AVAILABLE,
        Error.CONCURRENT_TRANSACTIONS,
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.FENCED_LEADER_EPOCH,
        Error.KAFKA_STORAGE_ERROR,
        Error.LEADER_NOT_AVAILABLE,
        Error.LISTENER_NOT_FOUND,
        Error.NETWORK_EXCEPTION,
        Error.NOT_CONTROLLER,
        Error.NOT_COORDINATOR,
        Error.NOT_ENOUGH_REPLICAS,
        Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.OFFSET_NOT_AVAILABLE,
        Error.REPLICA_NOT_AVAILABLE,
        Error.REQUEST_TIMED_OUT,
        Error.UNKNOWN_LEADER_EPOCH,
        Error.UNKNOWN_SERVER_ERROR,
        Error.UNKNOWN_TOPIC_ID,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.UNSTABLE_OFFSET_COMMIT,
    }
)
