"""Groups from outside: DescribeGroups (15), ListGroups (16) and DeleteGroups (42).

DescribeGroups: v3 authorized operations (KIP-430), v4 static members (KIP-345), v5 flexible, v6
GROUP_ID_NOT_FOUND (KIP-1043). ListGroups: v3 flexible, v4 states (KIP-518), v5 types (KIP-848).
DeleteGroups: v2 flexible.
"""

from protocol.wire.schema import Message, Struct, array, binary, boolean, int16, int32, string


class ListGroupsRequest(Message, api_key=16, versions="0-5", flexible="3+"):
    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


class ListedGroup(Struct):
    group_id: str = string("0+")
    protocol_type: str = string("0+")
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


class ListGroupsResponse(Message, api_key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    groups: list[ListedGroup] = array(ListedGroup, "0+")


class DescribeGroupsRequest(Message, api_key=15, versions="0-6", flexible="5+"):
    groups: list[str] = array(string, "0+")
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = string("4+", nullable="4+", default=None, ignorable=True)
    client_id: str = string("0+")
    client_host: str = string("0+")
    member_metadata: bytes = binary("0+")
    member_assignment: bytes = binary("0+")


class DescribedGroup(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = string("0+")
    group_state: str = string("0+")
    protocol_type: str = string("0+")
    protocol_data: str = string("0+")
    members: list[DescribedGroupMember] = array(DescribedGroupMember, "0+")
    authorized_operations: int = int32("3+", default=-(2**31))


class DescribeGroupsResponse(Message, api_key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")


class DeleteGroupsRequest(Message, api_key=42, versions="0-2", flexible="2+"):
    groups_names: list[str] = array(string, "0+")


class DeletableGroupResult(Struct):
    group_id: str = string("0+")
    error_code: int = int16("0+")


class DeleteGroupsResponse(Message, api_key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    results: list[DeletableGroupResult] = array(DeletableGroupResult, "0+")
