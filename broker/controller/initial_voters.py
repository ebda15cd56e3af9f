"""The first voters of a quorum as they are given when a folder is formatted: `0@host:9093:DIRECTORY_ID,…` (KIP-853).

Source: `DynamicVoters`, `DynamicVoter`.
"""

from __future__ import annotations

from ipaddress import IPv6Address

from broker.controller.features import KRAFT_VERSION_RANGE
from protocol.messages.raft import Endpoint, KRaftVersionFeature, Voter, VotersRecord
from protocol.wire.primitives import uuid_from_text


def voters_of(text: str, listener_name: str) -> VotersRecord:
    """Each at a controller's listener of this name, in the order of their ids. Raises ValueError."""
    voters: dict[int, Voter] = {}
    for entry in text.strip().split(","):
        if entry:
            voter = _voter(entry.strip(), listener_name.upper())
            if voter.voter_id in voters:
                raise ValueError(f"Node id {voter.voter_id} was specified more than once.")
            voters[voter.voter_id] = voter
    if not voters:
        raise ValueError("No voters given.")
    return VotersRecord(version=0, voters=[voters[voter_id] for voter_id in sorted(voters)])


def _voter(entry: str, listener_name: str) -> Voter:
    node_id, at, rest = entry.partition("@")
    if not at:
        raise ValueError("No @ found in dynamic voter string.")
    if rest.startswith("["):
        host, bracket, rest = rest[1:].partition("]")
        if not bracket:
            raise ValueError("Hostname began with left bracket, but no right bracket was found.")
    else:
        host, colon, rest = rest.partition(":")
        rest = colon + rest
    if not host:
        raise ValueError("No hostname found after node id.")
    if not rest.startswith(":"):
        raise ValueError("Port section must start with a colon.")
    port, colon, directory_id = rest[1:].partition(":")
    if not colon:
        raise ValueError("No colon following port could be found.")
    if not (node_id.isascii() and node_id.isdigit() and int(node_id) < 1 << 31):
        raise ValueError("Failed to parse node id in dynamic voter string.")
    if not (port.isascii() and port.isdigit() and int(port) <= 65_535):
        raise ValueError(f"Invalid port {port} in dynamic voter string.")
    try:
        directory = uuid_from_text(directory_id)
    except ValueError:
        raise ValueError("Failed to parse directory ID in dynamic voter string.") from None
    if ":" in host:
        host = ":".join(
            f"{int(group, 16):x}" for group in IPv6Address(host).exploded.split(":")
        )  # as Java does
    low, high = KRAFT_VERSION_RANGE
    return Voter(
        voter_id=int(node_id),
        voter_directory_id=directory,
        endpoints=[Endpoint(name=listener_name, host=host, port=int(port))],
        kraft_version_feature=KRaftVersionFeature(min_supported_version=low, max_supported_version=high),
    )
