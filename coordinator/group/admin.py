"""Administration of groups: ListGroups, DescribeGroups, DeleteGroups (Kafka: `GroupMetadataManager`,
`ClassicGroup`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from coordinator.group.classic.rebalancing import Rebalancing
from coordinator.group.classic.states import DEAD, STABLE
from coordinator.group.consumer.description import describe_consumer_group
from coordinator.group.kinds import Group
from coordinator.group.offsets.commit import Tombstones
from coordinator.group.shard_parts import ShardParts
from coordinator.group.streams.description import describe_streams_group
from coordinator.group.streams.states import FILTERED_AS
from protocol.errors import Error, KafkaError
from protocol.messages import groups_consumer, groups_streams
from protocol.messages.groups import DescribedGroup, DescribedGroupMember, ListedGroup

GROUP_ID_NOT_FOUND_VERSION = 6  # of DescribeGroups (KIP-1043)


class Administration:
    """Lists, describes and deletes groups, for clients that aren't members."""

    def __init__(self, parts: ShardParts, rebalancing: Rebalancing) -> None:
        self._store = parts.store
        self._journal = parts.journal
        self._topics = parts.topics
        self._default_assignor = parts.settings.consumer_assignors[0]
        self._rebalancing = rebalancing

    def list_groups(
        self, states: Collection[str], types: Collection[str], group_ids: Sequence[str] | None = None
    ) -> list[ListedGroup]:
        """List the groups in any of the states and of any of the types. An empty filter lets all through.
        Case doesn't matter.

        `group_ids`: only list these, as far as they exist.
        """
        wanted_states = {state.strip().lower() for state in states}
        wanted_types = {group_type.lower() for group_type in types}
        groups: Iterable[Group]
        if group_ids is None:
            groups = self._store.all()
        else:  # one portion of many: don't go over all groups for it
            groups = [group for group in map(self._store.find, group_ids) if group is not None]
        return [
            listed
            for listed in (group.listed() for group in groups)
            if (not wanted_states or _filtered_as(listed.group_state) in wanted_states)
            and (not wanted_types or listed.group_type in wanted_types)
        ]

    def describe_group(self, group_id: str, *, api_version: int) -> DescribedGroup:
        """Describe a classic group. It has the protocol and the members' metadata only while it is Stable.

        A group that doesn't exist is Dead.
        """
        group = self._store.classic.get(group_id)
        if group is None:
            described = DescribedGroup(group_id=group_id, group_state=DEAD.value)
            if api_version >= GROUP_ID_NOT_FOUND_VERSION:
                refused = self._store.is_no("classic", group_id)
                described.error_code, described.error_message = refused.error, refused.message
            return described
        protocol = group.protocol if group.state is STABLE else None
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=protocol or "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=b"" if protocol is None else member.metadata(protocol),
                    member_assignment=member.assignment,
                )
                for member in group.members.values()
            ],
        )

    def describe_consumer_group(self, group_id: str) -> groups_consumer.DescribedGroup:
        """Raises KafkaError (GROUP_ID_NOT_FOUND)."""
        group = self._store.consumer_group(group_id)
        return describe_consumer_group(group, self._topics, self._default_assignor)

    def describe_streams_group(self, group_id: str) -> groups_streams.DescribedGroup:
        """Raises KafkaError (GROUP_ID_NOT_FOUND)."""
        return describe_streams_group(self._store.streams_group(group_id))

    def delete_groups(self, group_ids: Sequence[str]) -> list[Error]:
        """Delete groups, their offsets first. Returns each group's error, in order. Raises KafkaError if it
        can't be recorded."""
        errors = []
        tombstones = Tombstones()
        for group_id in group_ids:
            group = self._store.find(group_id)
            if group is None:
                errors.append(Error.GROUP_ID_NOT_FOUND)
                continue
            try:
                group.check_deletion()
            except KafkaError as refused:
                errors.append(refused.error)
                continue
            errors.append(Error.NONE)
            tombstones.add_offsets(group_id, self._store.offsets.places_of_group(group_id))
            tombstones.add_others(group.tombstones())
            self._rebalancing.forget(group_id)
        self._journal.write_tombstones(tombstones)
        return errors


def _filtered_as(state: str) -> str:
    return FILTERED_AS.get(state) or state.lower()
