"""The APIs of a Kafka 4.4 broker and controller: keys, names, versions, and the modules of their messages;
and the header by which a request names its API.

ApiVersions, the dispatcher and the documents all use this one table. Source: the list of
`kafka-broker-api-versions` for Kafka 4.4.0, with --bootstrap-server and --bootstrap-controller, and
org.apache.kafka.common.protocol.ApiKeys.
"""

from __future__ import annotations

import importlib
import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from protocol.errors import CodecError
from protocol.wire.codec import encode
from protocol.wire.primitives import Bytes, skip_tagged_fields
from protocol.wire.schema import LATEST, Message

NEVER_FLEXIBLE: Final = LATEST + 1
"""The first flexible version of an API that has none."""

API_VERSIONS_KEY: Final = 18


@dataclass(frozen=True, slots=True)
class Api:
    """One API. Kafka 4.4 lists the versions `min_version` to `max_version`.

    Versions below `first_decodable` are listed but refused (Produce 0 to 2, KAFKA-18659). APIs that aren't
    `advertised` are answered, but a plain Kafka doesn't list them: telemetry without a receiver. Those
    `of_controllers` are only served at a controller's listeners. `family` is the module in
    `protocol.messages`. It is imported when `request` or `response` is first used.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    first_flexible: int
    family: str
    first_decodable: int = 0
    advertised: bool = True
    of_controllers: bool = False

    @property
    def request(self) -> type[Message]:
        return self._message("Request")

    @property
    def response(self) -> type[Message]:
        return self._message("Response")

    def decodes(self, version: int) -> bool:
        """True if a request of this version can be served."""
        return self.min_version <= version <= self.max_version and version >= self.first_decodable

    def request_header_version(self, version: int) -> int:
        """2 with tagged fields, 1 without. It also answers for versions that we don't serve, as Kafka does."""
        return 2 if version >= self.first_flexible else 1

    def response_header_version(self, version: int) -> int:
        """1 with tagged fields, 0 without. ApiVersions stays at 0, as its reader doesn't know any version yet
        (KIP-511)."""
        return 1 if version >= self.first_flexible and self.key != API_VERSIONS_KEY else 0

    def _message(self, suffix: str) -> type[Message]:
        family = importlib.import_module(f"protocol.messages.{self.family}")
        message: type[Message] = getattr(family, self.name + suffix)
        return message


APIS: Final[dict[int, Api]] = {
    api.key: api
    for api in (
        Api(0, "Produce", 0, 13, 9, "produce", first_decodable=3),
        Api(1, "Fetch", 4, 18, 12, "fetch"),
        Api(2, "ListOffsets", 1, 11, 6, "offsets"),
        Api(3, "Metadata", 0, 13, 9, "metadata"),
        Api(8, "OffsetCommit", 2, 10, 8, "groups"),
        Api(9, "OffsetFetch", 1, 10, 6, "groups"),
        Api(10, "FindCoordinator", 0, 6, 3, "metadata"),
        Api(11, "JoinGroup", 0, 9, 6, "groups"),
        Api(12, "Heartbeat", 0, 4, 4, "groups"),
        Api(13, "LeaveGroup", 0, 5, 4, "groups"),
        Api(14, "SyncGroup", 0, 5, 4, "groups"),
        Api(15, "DescribeGroups", 0, 6, 5, "groups"),
        Api(16, "ListGroups", 0, 5, 3, "groups"),
        Api(17, "SaslHandshake", 0, 1, NEVER_FLEXIBLE, "security"),
        Api(18, "ApiVersions", 0, 5, 3, "metadata"),
        Api(19, "CreateTopics", 2, 7, 5, "topics"),
        Api(20, "DeleteTopics", 1, 6, 4, "topics"),
        Api(21, "DeleteRecords", 0, 2, 2, "topics"),
        Api(22, "InitProducerId", 0, 5, 2, "produce"),
        Api(23, "OffsetForLeaderEpoch", 2, 4, 4, "offsets"),
        Api(24, "AddPartitionsToTxn", 0, 5, 3, "transactions"),
        Api(25, "AddOffsetsToTxn", 0, 4, 3, "transactions"),
        Api(26, "EndTxn", 0, 5, 3, "transactions"),
        Api(27, "WriteTxnMarkers", 1, 2, 1, "transactions"),
        Api(28, "TxnOffsetCommit", 0, 6, 3, "transactions"),
        Api(29, "DescribeAcls", 1, 3, 2, "security"),
        Api(30, "CreateAcls", 1, 3, 2, "security"),
        Api(31, "DeleteAcls", 1, 3, 2, "security"),
        Api(32, "DescribeConfigs", 1, 4, 4, "configs"),
        Api(33, "AlterConfigs", 0, 2, 2, "configs"),
        Api(34, "AlterReplicaLogDirs", 1, 2, 2, "cluster_admin"),
        Api(35, "DescribeLogDirs", 1, 5, 2, "cluster_admin"),
        Api(36, "SaslAuthenticate", 0, 2, 2, "security"),
        Api(37, "CreatePartitions", 0, 3, 2, "topics"),
        Api(38, "CreateDelegationToken", 1, 3, 2, "security"),
        Api(39, "RenewDelegationToken", 1, 2, 2, "security"),
        Api(40, "ExpireDelegationToken", 1, 2, 2, "security"),
        Api(41, "DescribeDelegationToken", 1, 3, 2, "security"),
        Api(42, "DeleteGroups", 0, 3, 2, "groups"),
        Api(43, "ElectLeaders", 0, 2, 2, "cluster_admin"),
        Api(44, "IncrementalAlterConfigs", 0, 1, 1, "configs"),
        Api(45, "AlterPartitionReassignments", 0, 1, 0, "cluster_admin"),
        Api(46, "ListPartitionReassignments", 0, 0, 0, "cluster_admin"),
        Api(47, "OffsetDelete", 0, 0, NEVER_FLEXIBLE, "groups"),
        Api(48, "DescribeClientQuotas", 0, 1, 1, "configs"),
        Api(49, "AlterClientQuotas", 0, 1, 1, "configs"),
        Api(50, "DescribeUserScramCredentials", 0, 0, 0, "security"),
        Api(51, "AlterUserScramCredentials", 0, 0, 0, "security"),
        Api(55, "DescribeQuorum", 0, 2, 0, "cluster_admin"),
        Api(56, "AlterPartition", 2, 3, 0, "broker_to_controller", of_controllers=True),
        Api(57, "UpdateFeatures", 0, 2, 0, "cluster_admin"),
        Api(58, "Envelope", 0, 0, 0, "broker_to_controller", of_controllers=True),
        Api(59, "FetchSnapshot", 0, 1, 0, "raft", of_controllers=True),
        Api(60, "DescribeCluster", 0, 2, 0, "metadata"),
        Api(61, "DescribeProducers", 0, 0, 0, "transactions"),
        Api(62, "BrokerRegistration", 0, 4, 0, "broker_to_controller", of_controllers=True),
        Api(63, "BrokerHeartbeat", 0, 2, 0, "broker_to_controller", of_controllers=True),
        Api(64, "UnregisterBroker", 0, 0, 0, "cluster_admin"),
        Api(65, "DescribeTransactions", 0, 0, 0, "transactions"),
        Api(66, "ListTransactions", 0, 2, 0, "transactions"),
        Api(67, "AllocateProducerIds", 0, 0, 0, "produce", of_controllers=True),
        Api(68, "ConsumerGroupHeartbeat", 0, 1, 0, "groups_consumer"),
        Api(69, "ConsumerGroupDescribe", 0, 1, 0, "groups_consumer"),
        Api(70, "ControllerRegistration", 0, 0, 0, "broker_to_controller", of_controllers=True),
        Api(71, "GetTelemetrySubscriptions", 0, 0, 0, "configs", advertised=False),
        Api(72, "PushTelemetry", 0, 0, 0, "configs", advertised=False),
        Api(73, "AssignReplicasToDirs", 0, 0, 0, "broker_to_controller", of_controllers=True),
        Api(74, "ListConfigResources", 0, 1, 0, "configs"),
        Api(75, "DescribeTopicPartitions", 0, 0, 0, "metadata"),
        Api(76, "ShareGroupHeartbeat", 1, 1, 0, "groups_share"),
        Api(77, "ShareGroupDescribe", 1, 1, 0, "groups_share"),
        Api(78, "ShareFetch", 1, 2, 0, "share_fetch"),
        Api(79, "ShareAcknowledge", 1, 2, 0, "share_fetch"),
        Api(80, "AddRaftVoter", 0, 1, 0, "raft"),
        Api(81, "RemoveRaftVoter", 0, 0, 0, "raft"),
        Api(83, "InitializeShareGroupState", 0, 0, 0, "share_state"),
        Api(84, "ReadShareGroupState", 0, 0, 0, "share_state"),
        Api(85, "WriteShareGroupState", 0, 1, 0, "share_state"),
        Api(86, "DeleteShareGroupState", 0, 0, 0, "share_state"),
        Api(87, "ReadShareGroupStateSummary", 0, 1, 0, "share_state"),
        Api(88, "StreamsGroupHeartbeat", 0, 1, 0, "groups_streams"),
        Api(89, "StreamsGroupDescribe", 0, 1, 0, "groups_streams"),
        Api(90, "DescribeShareGroupOffsets", 0, 1, 0, "groups_share"),
        Api(91, "AlterShareGroupOffsets", 0, 0, 0, "groups_share"),
        Api(92, "DeleteShareGroupOffsets", 0, 0, 0, "groups_share"),
        Api(93, "StreamsGroupTopologyDescriptionUpdate", 0, 0, 0, "groups_streams"),
        Api(94, "UnregisterController", 0, 0, 0, "cluster_admin"),
    )
}


def request_header_version(api_key: int, version: int) -> int:
    """The same as `Api.request_header_version`. Raises KeyError for a key that a broker doesn't have."""
    return APIS[api_key].request_header_version(version)


def response_header_version(api_key: int, version: int) -> int:
    """The same as `Api.response_header_version`. Raises KeyError for a key that a broker doesn't have."""
    return APIS[api_key].response_header_version(version)


# ---- request headers, between a frame's size and its message
#
#     api_key int16 | api_version int16 | correlation_id int32 | client_id nullable string | tagged fields
#
# From the API's first flexible version on there are tagged fields. The client id is never a compact string.
# Source: RequestHeader.json of Kafka; KIP-482.

_FIXED = struct.Struct(">hhih")
_CORRELATION_ID = struct.Struct(">i")
_new_tuple = tuple.__new__  # each request makes one: a call of the class is twice as slow


class RequestHeader(NamedTuple):
    """The header of a request. `body_pos` is where the message begins. `client_id` is None for any negative length."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_pos: int


def decode_request_header(data: Bytes, pos: int, end: int) -> RequestHeader:
    """Decode the header in [pos, end). The caller checks whether we serve the version.

    Raises CodecError if it is cut short, or if a broker has no such API. Kafka closes the connection in both cases.
    """
    if end - pos < _FIXED.size:
        raise CodecError(f"a request header cut short: {end - pos} bytes")
    api_key, api_version, correlation_id, length = _FIXED.unpack_from(data, pos)
    pos += _FIXED.size
    api = APIS.get(api_key)
    if api is None:
        raise CodecError(f"a broker has no API {api_key}")
    client_id = None
    if length >= 0:
        if length > end - pos:
            raise CodecError(f"a client id of {length} bytes in a header with {end - pos} left")
        client_id = str(data[pos : pos + length], "utf-8", "replace")
        pos += length
    if api_version >= api.first_flexible:
        pos = pos + 1 if pos < end and not data[pos] else skip_tagged_fields(data, pos, end)
    return _new_tuple(RequestHeader, (api_key, api_version, correlation_id, client_id, pos))


def encode_request_frame(request: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Encode a whole request as a client sends it, with its size in front.

    Raises CodecError if the version can't express it.
    """
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    body = encode(request, version)
    tags = b"\0" if APIS[request.API_KEY].request_header_version(version) == 2 else b""
    header = _FIXED.pack(request.API_KEY, version, correlation_id, length) + name + tags
    return b"".join(((len(header) + len(body)).to_bytes(4, "big"), header, body))


def response_body(data: Bytes, request: type[Message], version: int, correlation_id: int) -> int:
    """Where the response to a request begins, after its header. Raises CodecError if it answers another request."""
    if len(data) < _CORRELATION_ID.size:
        raise CodecError(f"a response header cut short: {len(data)} bytes")
    (found,) = _CORRELATION_ID.unpack_from(data)
    if found != correlation_id:
        raise CodecError(f"an answer to request {found}, but {correlation_id} was asked")
    if not APIS[request.API_KEY].response_header_version(version):
        return _CORRELATION_ID.size
    return skip_tagged_fields(data, _CORRELATION_ID.size, len(data))
