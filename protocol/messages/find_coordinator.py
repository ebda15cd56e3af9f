"""FindCoordinator (10): which broker looks after a group or a transactional id.

v1 key type (KIP-98): 0 group, 1 transaction, 2 share; v3 flexible, v4 several keys at once (KIP-699), v5
TRANSACTION_ABORTABLE (KIP-890), v6 share groups (KIP-932).
"""

from protocol.wire.schema import Message, Struct, array, int8, int16, int32, string


class FindCoordinatorRequest(Message, api_key=10, versions="0-6", flexible="3+"):
    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(string, "4+")


class Coordinator(Struct):
    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+", ignorable=True)


class FindCoordinatorResponse(Message, api_key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
