"""The quorum's own state: `quorum-state`, and the voters named by control records (KIP-595, KIP-853).

With `kraft.version` 0, the configuration names the voters, and `quorum-state` has data_version 0. From 1 on,
the log names them with their directory ids, and data_version is 1. Kafka refuses to start on a malformed
file, but does without a missing one. Source: FileQuorumStateStore.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from protocol.messages.raft import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    Voter,
    VotersRecord,
)
from protocol.records.batch import Record, build_batch, read_control_type
from protocol.wire.codec import decode, encode
from protocol.wire.primitives import uuid_to_text
from protocol.wire.schema import Message
from storage.files import Files

FILE = "quorum-state"

LEADER_CHANGE = 2  # ControlRecordType
SNAPSHOT_HEADER = 3
SNAPSHOT_FOOTER = 4
KRAFT_VERSION = 5
KRAFT_VOTERS = 6

KRAFT_VERSION_OF_VOTERS = 1
"""From this version on, the log names the voters (KIP-853)."""

NO_VOTED_ID = -1
_ZERO_ID = bytes(16)


def control_key(control_type: int) -> bytes:
    """The key of a control record: version 0, then its type."""
    return b"\x00\x00" + control_type.to_bytes(2, "big")


@dataclass(slots=True)
class Quorum:
    """kraft.version, and the voters that the log names if that is 1."""

    kraft_version: int = 0
    voters: VotersRecord | None = None

    def apply(self, record: Record) -> None:
        """Apply a control record. Other types than these two change nothing here."""
        control_type = read_control_type(record.key)
        if control_type == KRAFT_VERSION:
            self.kraft_version = decode(KRaftVersionRecord, 0, record.value or b"").kraft_version
        elif control_type == KRAFT_VOTERS:
            self.voters = decode(VotersRecord, 0, record.value or b"")

    def _named(self, voter: Voter, is_new: bool) -> list[tuple[int, Message]]:
        """Return (control type, message) of the records by which the log names this node as its only voter.
        None are needed if it already does."""
        voters = VotersRecord(version=0, voters=[voter])
        is_new = is_new or self.kraft_version == 0
        if not is_new and self.voters == voters:
            return []
        self.kraft_version, self.voters = KRAFT_VERSION_OF_VOTERS, voters
        return self.control_records() if is_new else [(KRAFT_VOTERS, voters)]

    def control_records(self) -> list[tuple[int, Message]]:
        """Return (control type, message) of the records that follow a snapshot's header."""
        if self.kraft_version == 0:
            return []
        found: list[tuple[int, Message]] = [
            (KRAFT_VERSION, KRaftVersionRecord(version=0, kraft_version=self.kraft_version))
        ]
        if self.voters is not None:
            found.append((KRAFT_VOTERS, self.voters))
        return found

    def begin_epoch(self, node_id: int, voter: Voter | None, *, is_new: bool, now_ms: int) -> bytearray:
        """Return the batch with which the node begins to lead.

        With `voter`, which is this node, the log names its voters from here on, and so does this object.
        `is_new` means that the log is empty. What is known of the quorum then comes from a file that
        followers don't get (`00000000000000000000-0000000000.checkpoint`).
        """
        values = [] if voter is None else self._named(voter, is_new)
        values = [(LEADER_CHANGE, self._leader_change(node_id)), *values]
        return _control_batch(values, now_ms)

    def move_voters(self, voter: Voter, now_ms: int) -> bytearray:
        """Return the batch by which the log names its only voter. From here on, this object names it, too
        (Kafka: `LeaderState.maybeAppendUpgradedKRaftVersion`)."""
        return _control_batch(self._named(voter, is_new=True), now_ms)

    def _leader_change(self, node_id: int) -> Message:
        """A LeaderChange message. Kafka reads only its version 0."""
        own = LeaderChangeVoter(voter_id=node_id)
        voters = [own]
        if self.voters is not None:
            voters = [LeaderChangeVoter(voter_id=voter.voter_id) for voter in self.voters.voters]
        return LeaderChangeMessage(version=0, leader_id=node_id, voters=voters, granting_voters=[own])

    def encode_state(self, node_id: int, leader_epoch: int) -> bytes:
        """The contents of `quorum-state` on the leader."""
        state: dict[str, object]
        if self.kraft_version == 0:
            state = {
                "clusterId": "",
                "leaderId": node_id,
                "leaderEpoch": leader_epoch,
                "votedId": NO_VOTED_ID,
                "appliedOffset": 0,
                "currentVoters": [{"voterId": node_id}],
                "data_version": 0,
            }
        else:
            state = {
                "leaderId": node_id,
                "leaderEpoch": leader_epoch,
                "votedId": NO_VOTED_ID,
                "votedDirectoryId": uuid_to_text(_ZERO_ID),
                "data_version": 1,
            }
        return json.dumps(state, separators=(",", ":")).encode()


def _control_batch(values: Iterable[tuple[int, Message]], now_ms: int) -> bytearray:
    return build_batch(
        [(now_ms, control_key(of), encode(value, 0), ()) for of, value in values], control=True
    )


def read_leader_epoch(files: Files, directory: str) -> int:
    """The epoch in the metadata log's `quorum-state`. 0 if the file is missing or has none."""
    try:
        found = json.loads(files.read_whole(f"{directory}/{FILE}"))
        return max(int(found["leaderEpoch"]), 0)
    except FileNotFoundError:
        return 0
    except (ValueError, KeyError, TypeError):
        return 0


def write_state(files: Files, directory: str, state: bytes) -> None:
    """Replace `quorum-state` atomically, and sync it. Raises OSError."""
    files.replace_whole(f"{directory}/{FILE}", state)
