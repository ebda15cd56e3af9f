"""Groups according to the records of `__consumer_offsets` in a folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cli.client.groups import (
    CLASSIC,
    CONSUMER,
    ROLES_OF_TASKS,
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

    def described(self, name: str, topics: Mapping[str, str]) -> DescribedGroup | None:
        """Return the group with the members that it had, or None if there is no such group.

        `topics` maps topic ids, as text, to names.
        """
        if name not in self._records:
            return None
        held = [*self._records[name].values()]
        kind = next(
            (kind for prefix, kind in _KINDS if any(each.startswith(prefix) for each, _ in held)), SIMPLE
        )
        topology = next((fields for each, fields in held if each == "StreamsGroupTopology"), {})
        subtopologies = {
            each["subtopology_id"]: sorted(
                [*each["source_topics"], *(topic["name"] for topic in each["repartition_source_topics"])]
            )
            for each in topology.get("subtopologies") or []
        }
        current = {
            fields["member_id"]: fields for each, fields in held if each.endswith("CurrentMemberAssignment")
        }
        members = []
        for each, fields in held:
            if each.endswith("MemberMetadata"):
                given = current.get(fields["member_id"], {})
                members.append(
                    GroupMember(
                        fields["member_id"],
                        fields.get("instance_id"),
                        fields.get("client_id", ""),
                        fields.get("client_host", ""),
                        given.get("member_epoch"),
                        _partitions_of(given, topics, subtopologies),
                        _tasks_of(given),
                    )
                )
        protocol = ""
        for each, fields in held:
            if each == "GroupMetadata":
                protocol = str(fields.get("protocol_type", ""))
                members += [_classic_member(member) for member in fields.get("members", [])]
        listed = ListedGroup(name, kind, protocol, "", -1)
        epoch, assignment_epoch = (
            next((fields[which] for each, fields in held if each.endswith(ending) and which in fields), None)
            for ending, which in (
                ("GroupMetadata", "epoch"),
                ("TargetAssignmentMetadata", "assignment_epoch"),
            )
        )
        return DescribedGroup(
            listed, "", "", epoch, assignment_epoch, topology.get("epoch"), subtopologies, members
        )

    def committed(self, name: str) -> dict[Partition, int]:
        """Return the offsets that it has committed."""
        return {
            (fields["topic"], fields["partition"]): fields["offset"]
            for kind, fields in self._records.get(name, {}).values()
            if kind == "OffsetCommit" and "offset" in fields
        }


def _partitions_of(
    given: Mapping[str, Any], topics: Mapping[str, str], subtopologies: Mapping[str, list[str]]
) -> list[Partition]:
    """Return the partitions of a current assignment: its own, or those that its active tasks read."""
    assigned = [
        (topics.get(each["topic_id"], each["topic_id"]), index)
        for each in given.get("assigned_partitions") or []
        for index in each["partitions"]
    ]
    read_by_tasks = [
        (topic, index)
        for each in given.get("active_tasks") or []
        for topic in subtopologies.get(each["subtopology_id"], [])
        for index in each["partitions"]
    ]
    return sorted([*assigned, *read_by_tasks])


def _tasks_of(given: Mapping[str, Any]) -> list[str]:
    return [
        f"{role} {each['subtopology_id']}_{index}"
        for role in ROLES_OF_TASKS
        for each in given.get(f"{role.replace('-', '')}_tasks") or []
        for index in each["partitions"]
    ]


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
