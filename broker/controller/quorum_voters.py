"""What becomes of a wish to add a voter to the quorum, or to remove one: it is refused, since a quorum is one voter
here, with what Kafka's leader of a quorum of one says as far as there is such a thing.

Source: `KafkaRaftClient.handleAddVoterRequest`, `handleRemoveVoterRequest`, `AddVoterHandler`, `RemoveVoterHandler`;
KIP-853.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from protocol.errors import Error, KafkaError
from protocol.wire.primitives import uuid_to_text
from protocol.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from broker.controller.metadata_log import MetadataLog
    from protocol.messages.raft import AddRaftVoterRequest, RemoveRaftVoterRequest, Voter


def refusal_to_add(
    metadata: MetadataLog, cluster_id: str, listener_name: str, request: AddRaftVoterRequest
) -> KafkaError:
    """`listener_name`: by which controllers speak to each other."""
    refused = _not_asked_well(metadata, cluster_id, request, "Add")
    if refused is not None:
        return refused
    if all(each.name != listener_name for each in request.listeners):
        endpoints = ", ".join(f"{each.name}={each.host}:{each.port}" for each in request.listeners)
        return KafkaError(
            Error.INVALID_REQUEST,
            f"Add voter request didn't include the endpoint (Endpoints(endpoints={{{endpoints}}})) for the "
            f"default listener ListenerName({listener_name})",
        )
    refused = _not_dynamic(metadata, "adding")
    if refused is not None:
        return refused
    voters = _voters(metadata)
    if request.voter_id in [voter.voter_id for voter in voters]:
        return KafkaError(
            Error.DUPLICATE_VOTER,
            f"The voter id for {_key(request.voter_id, request.voter_directory_id)} is already part of the "
            f"set of voters {_keys(voters)}.",
        )
    return KafkaError(
        Error.UNSUPPORTED_VERSION, "The quorum of a cluster that barnabas controls has one voter."
    )


def refusal_to_remove(metadata: MetadataLog, cluster_id: str, request: RemoveRaftVoterRequest) -> KafkaError:
    """The only voter can't be removed, in Kafka either."""
    refused = _not_asked_well(metadata, cluster_id, request, "Remove") or _not_dynamic(metadata, "removing")
    if refused is not None:
        return refused
    key = _key(request.voter_id, request.voter_directory_id)
    return KafkaError(
        Error.VOTER_NOT_FOUND, f"Cannot remove voter {key} from the set of voters {_keys(_voters(metadata))}"
    )


def _not_asked_well(
    metadata: MetadataLog, cluster_id: str, request: AddRaftVoterRequest | RemoveRaftVoterRequest, verb: str
) -> KafkaError | None:
    if request.cluster_id is not None and request.cluster_id != cluster_id:
        return KafkaError(
            Error.INCONSISTENT_CLUSTER_ID,
            f'The given id "{request.cluster_id}" doesn\'t match the cluster id "{cluster_id}"',
        )
    if not metadata.is_leader:
        return KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
    if request.voter_id < 0 or request.voter_directory_id == ZERO_UUID:
        return KafkaError(Error.INVALID_REQUEST, f"{verb} voter request didn't include a valid voter")
    return None


def _not_dynamic(metadata: MetadataLog, doing: str) -> KafkaError | None:
    if metadata.quorum.kraft_version > 0:
        return None
    return KafkaError(
        Error.UNSUPPORTED_VERSION,
        f"Cluster doesn't support {doing} voter because the kraft.version feature is 0",
    )


def _voters(metadata: MetadataLog) -> Collection[Voter]:
    named = metadata.quorum.voters
    return () if named is None else named.voters


def _keys(voters: Collection[Voter]) -> str:
    return f"[{', '.join(_key(voter.voter_id, voter.voter_directory_id) for voter in voters)}]"


def _key(voter_id: int, directory_id: bytes) -> str:
    return f"ReplicaKey(id={voter_id}, directoryId={uuid_to_text(directory_id)})"
