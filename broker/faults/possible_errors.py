"""The errors that an API can give: a test that arms another one would show what never happens.

Most errors belong to a subject, and to the APIs of that subject: Metadata never says that a producer is fenced. Any API
may give errors that aren't in the table, since they can come from any code: UNKNOWN_SERVER_ERROR, REQUEST_TIMED_OUT,
authorization errors, those of a leader or a controller that is elsewhere.

Source: the comments of Kafka's response classes, and what Kafka was recorded to answer (`tests/unit/faults`).
"""

from __future__ import annotations

from typing import Final

from protocol.apis import APIS
from protocol.errors import Error

_IN_GROUP: Final = ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup")
_HEARTBEATS: Final = ("ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat")
_OFFSETS: Final = ("OffsetCommit", "OffsetFetch", "OffsetDelete", "TxnOffsetCommit")
_TRANSACTIONS: Final = (
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "TxnOffsetCommit",
    "WriteTxnMarkers",
)
_SHARE: Final = ("ShareFetch", "ShareAcknowledge")
_SHARE_STATES: Final = tuple(api.name for api in APIS.values() if "ShareGroupState" in api.name)
_OF_GROUPS: Final = tuple(
    api.name for api in APIS.values() if "Group" in api.name and api.name not in _SHARE_STATES
)
_TOKENS: Final = tuple(api.name for api in APIS.values() if "DelegationToken" in api.name)
_SIGNING_IN: Final = ("SaslHandshake", "SaslAuthenticate")
_OF_RAFT: Final = tuple(
    api.name
    for api in APIS.values()
    if api.name.endswith("RaftVoter")
    or api.name in ("Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "DescribeQuorum", "FetchSnapshot")
)
_REGISTERING: Final = tuple(
    api.name for api in APIS.values() if "Broker" in api.name or api.name == "ControllerRegistration"
)
_CHANGING_TOPICS: Final = ("CreateTopics", "DeleteTopics", "CreatePartitions")

_ONLY_OF: Final[tuple[tuple[tuple[Error, ...], tuple[str, ...]], ...]] = (
    (
        (
            Error.PRODUCER_FENCED,
            Error.INVALID_PRODUCER_EPOCH,
            Error.INVALID_TXN_STATE,
            Error.INVALID_PRODUCER_ID_MAPPING,
            Error.CONCURRENT_TRANSACTIONS,
            Error.TRANSACTION_ABORTABLE,
            Error.TRANSACTION_COORDINATOR_FENCED,
        ),
        (*_TRANSACTIONS, "Produce"),
    ),
    ((Error.INVALID_TRANSACTION_TIMEOUT,), ("InitProducerId",)),
    ((Error.TRANSACTIONAL_ID_NOT_FOUND,), ("DescribeTransactions",)),
    (
        (Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,),
        (*_TRANSACTIONS, "Produce", "FindCoordinator", "DescribeTransactions", "ListTransactions"),
    ),
    (
        (
            Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
            Error.DUPLICATE_SEQUENCE_NUMBER,
            Error.UNKNOWN_PRODUCER_ID,
            Error.INVALID_REQUIRED_ACKS,
            Error.RECORD_LIST_TOO_LARGE,
            Error.UNSUPPORTED_COMPRESSION_TYPE,
        ),
        ("Produce", *_SHARE, "PushTelemetry"),
    ),
    (
        (
            Error.FETCH_SESSION_ID_NOT_FOUND,
            Error.INVALID_FETCH_SESSION_EPOCH,
            Error.FETCH_SESSION_TOPIC_ID_ERROR,
        ),
        ("Fetch",),
    ),
    ((Error.OFFSET_MOVED_TO_TIERED_STORAGE,), ("Fetch", "ListOffsets")),
    (
        (Error.SHARE_SESSION_NOT_FOUND, Error.INVALID_SHARE_SESSION_EPOCH, Error.SHARE_SESSION_LIMIT_REACHED),
        _SHARE,
    ),
    ((Error.INVALID_RECORD_STATE,), _SHARE),
    ((Error.FENCED_STATE_EPOCH,), (*_SHARE, *_SHARE_STATES)),
    ((Error.INCONSISTENT_GROUP_PROTOCOL, Error.MEMBER_ID_REQUIRED), ("JoinGroup", "SyncGroup")),
    ((Error.INVALID_SESSION_TIMEOUT,), ("JoinGroup", *_HEARTBEATS)),
    ((Error.GROUP_MAX_SIZE_REACHED,), ("JoinGroup", *_HEARTBEATS)),
    ((Error.ILLEGAL_GENERATION, Error.REBALANCE_IN_PROGRESS), (*_IN_GROUP, *_OFFSETS)),
    ((Error.FENCED_INSTANCE_ID,), (*_IN_GROUP, *_OFFSETS, *_HEARTBEATS)),
    ((Error.UNRELEASED_INSTANCE_ID, Error.UNSUPPORTED_ASSIGNOR), _HEARTBEATS),
    ((Error.FENCED_MEMBER_EPOCH, Error.STALE_MEMBER_EPOCH), (*_HEARTBEATS, *_OFFSETS)),
    ((Error.UNKNOWN_MEMBER_ID,), (*_IN_GROUP, *_HEARTBEATS, *_OFFSETS)),
    ((Error.INVALID_REGULAR_EXPRESSION,), ("ConsumerGroupHeartbeat", "ListTransactions")),
    (
        (Error.STREAMS_INVALID_TOPOLOGY, Error.STREAMS_INVALID_TOPOLOGY_EPOCH, Error.STREAMS_TOPOLOGY_FENCED),
        tuple(api.name for api in APIS.values() if "Streams" in api.name),
    ),
    (
        (Error.OFFSET_METADATA_TOO_LARGE, Error.INVALID_COMMIT_OFFSET_SIZE),
        ("OffsetCommit", "TxnOffsetCommit"),
    ),
    ((Error.UNSTABLE_OFFSET_COMMIT,), ("OffsetFetch",)),
    ((Error.GROUP_SUBSCRIBED_TO_TOPIC,), ("OffsetDelete", "DeleteShareGroupOffsets")),
    ((Error.NON_EMPTY_GROUP,), (*_OF_GROUPS, "OffsetDelete")),
    ((Error.TOPIC_ALREADY_EXISTS, Error.INVALID_PARTITIONS), (*_CHANGING_TOPICS, "Metadata")),
    ((Error.TOPIC_DELETION_DISABLED,), ("DeleteTopics",)),
    (
        (Error.POLICY_VIOLATION,),
        (*_CHANGING_TOPICS, "AlterConfigs", "IncrementalAlterConfigs", "DeleteRecords"),
    ),
    (
        (
            Error.PREFERRED_LEADER_NOT_AVAILABLE,
            Error.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            Error.ELECTION_NOT_NEEDED,
        ),
        ("ElectLeaders",),
    ),
    ((Error.NO_REASSIGNMENT_IN_PROGRESS,), ("AlterPartitionReassignments",)),
    ((Error.LOG_DIR_NOT_FOUND,), ("AlterReplicaLogDirs", "AssignReplicasToDirs")),
    (
        (
            Error.DELEGATION_TOKEN_AUTH_DISABLED,
            Error.DELEGATION_TOKEN_NOT_FOUND,
            Error.DELEGATION_TOKEN_OWNER_MISMATCH,
            Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
            Error.DELEGATION_TOKEN_EXPIRED,
            Error.INVALID_PRINCIPAL_TYPE,
        ),
        _TOKENS,
    ),
    ((Error.UNSUPPORTED_SASL_MECHANISM,), (*_SIGNING_IN, "AlterUserScramCredentials")),
    ((Error.ILLEGAL_SASL_STATE, Error.SASL_AUTHENTICATION_FAILED), _SIGNING_IN),
    ((Error.UNACCEPTABLE_CREDENTIAL,), ("AlterUserScramCredentials",)),
    ((Error.UNKNOWN_SUBSCRIPTION_ID, Error.TELEMETRY_TOO_LARGE), ("PushTelemetry",)),
    ((Error.FEATURE_UPDATE_FAILED,), ("UpdateFeatures", "BrokerHeartbeat")),
    (
        (Error.INVALID_VOTER_KEY, Error.DUPLICATE_VOTER, Error.VOTER_NOT_FOUND, Error.INCONSISTENT_VOTER_SET),
        _OF_RAFT,
    ),
    ((Error.SNAPSHOT_NOT_FOUND, Error.POSITION_OUT_OF_RANGE), ("FetchSnapshot",)),
    ((Error.DUPLICATE_BROKER_REGISTRATION, Error.INVALID_REGISTRATION), _REGISTERING),
)

_ONLY: Final = {error: frozenset(names) for errors, names in _ONLY_OF for error in errors}


def can_give(api_name: str, error: Error) -> bool:
    """True if a broker or a controller may answer this API with the error."""
    only = _ONLY.get(error)
    return only is None or api_name in only


def possible_errors(api_name: str) -> list[str]:
    """The names of all errors that the API can give."""
    return [error.name for error in Error if error is not Error.NONE and can_give(api_name, error)]
