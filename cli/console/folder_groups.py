"""Groups according to the records of `__consumer_offsets` in a folder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cli.client.groups import (
    CLASSIC,
    CONSUMER,
    SHARE_KIND,
    SIMPLE,
    STREAMS,
    DescribedGroup,
    GroupMember,
    ListedGroup,
)
from cli.client.offsets import Partition
from cli.console.pieces import readable
from cli.inspecting.decoding import OFFSETS, UndecodedError, decoded, decoder_of
from protocol.records.fates import COMMITTED, WalkedBatch

_KINDS = (
    ("ConsumerGroup", CONSUMER),
    ("ShareGroup", SHARE_KIND),
    ("StreamsGroup", STREAMS),
    ("GroupMetadata", CLASSIC),
)


class FolderGroups:
    """The state of each group at the end of the log, by name."""

    def __init__(self) -> None:
        self._records: dict[str, dict[bytes, tuple[str, dict[str, Any]]]] = {}

    def read(self, batches: Iterable[WalkedBatch]) -> None:
        """Read the batches of a partition of `__consumer_offsets`, in their order. Commits in a transaction count if
        the transaction is committed."""
        decoder = decoder_of(OFFSETS)
        assert decoder is not None
        counted = (each for each in batches if not each.header.is_control and each.fate in ("", COMMITTED))
        for _, records in readable(counted):
            for record in records:
                try:
                    said = decoded(decoder, record)
                except UndecodedError:
                    continue
                fields = said.value if isinstance(said.value, dict) else {}
                name = fields.get("group", fields.get("group_id"))
                if isinstance(name, str):
                    self._put(name, bytes(record.key or b""), said.type, fields, is_gone=record.value is None)

    def _put(self, name: str, key: bytes, kind: str, fields: dict[str, Any], *, is_gone: bool) -> None:
        held = self._records.setdefault(name, {})
        if is_gone:
            held.pop(key, None)
            if not held:
                del self._records[name]
        else:
            held[key] = (kind, fields)

    @property
    def names(self) -> list[str]:
        """The names of all groups that are left."""
        return sorted(self._records)

    def described(self, name: str) -> DescribedGroup | None:
        """Return the group with the members that it had, or None if there is no such group."""
        if name not in self._records:
            return None
        held = [*self._records[name].values()]
        kind = next(
            (kind for prefix, kind in _KINDS if any(each.startswith(prefix) for each, _ in held)), SIMPLE
        )
        epoch = next((fields["epoch"] for _, fields in held if "epoch" in fields), None)
        members = [
            GroupMember(
                fields["member_id"], fields.get("instance_id"), fields.get("client_id", ""), "", None, []
            )
            for each, fields in held
            if each.endswith("MemberMetadata")
        ]
        protocol = ""
        for each, fields in held:
            if each == "GroupMetadata":
                protocol = str(fields.get("protocol_type", ""))
                members += [_classic_member(member) for member in fields.get("members", [])]
        listed = ListedGroup(name, kind, protocol, "", -1)
        return DescribedGroup(listed, "", "", epoch, None, None, {}, members)

    def committed(self, name: str) -> dict[Partition, int]:
        """Return the offsets that it has committed."""
        return {
            (fields["topic"], fields["partition"]): fields["offset"]
            for kind, fields in self._records.get(name, {}).values()
            if kind == "OffsetCommit" and "offset" in fields
        }


def _classic_member(member: dict[str, Any]) -> GroupMember:
    assignment = member.get("assignment")
    given = assignment.get("assigned_partitions", []) if isinstance(assignment, dict) else []
    partitions = sorted((each["topic"], index) for each in given for index in each["partitions"])
    return GroupMember(
        member["member_id"],
        member.get("group_instance_id"),
        member.get("client_id", ""),
        member.get("client_host", ""),
        None,
        partitions,
    )
