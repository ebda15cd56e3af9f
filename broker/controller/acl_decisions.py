"""Creating and removing ACLs: pure functions that turn a request and the image into records, or into errors.

Source: Kafka's `AclControlManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from broker.controller.acls import (
    ANY_CODE,
    OPERATION_NAMES,
    RESOURCE_TYPE_NAMES,
    WILDCARD,
    Acl,
    AclFilter,
    PatternType,
    Permission,
    enum_text,
    host_range,
)
from broker.controller.controller import MAX_RECORDS_PER_REQUEST, check_records
from broker.controller.image import ClusterImage
from broker.controller.metadata_versions import CIDR_SINCE, METADATA_VERSION
from broker.security.authorizer import CLUSTER_NAME, ResourceType
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.waiting import Pause, turn
from protocol.wire.schema import Message

# --- Creation -----------------------------------------------------------------------------------------------


def _check(acl: Acl, metadata_version: int) -> None:
    """Check an ACL in Kafka's order: `AclApis.handleCreateAcls`, then `AclControlManager.validateNewAcl`.
    Raises KafkaError."""
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        raise _invalid("Invalid empty resource name")
    if acl.resource_type not in RESOURCE_TYPE_NAMES:
        raise _invalid(f"Invalid resourceType {enum_text(RESOURCE_TYPE_NAMES, acl.resource_type)}")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        name = {ANY_CODE: "ANY", PatternType.MATCH: "MATCH"}.get(acl.pattern_type, "UNKNOWN")
        raise _invalid(f"Invalid patternType {name}")
    if acl.operation not in OPERATION_NAMES:
        raise _invalid(f"Invalid operation {enum_text(OPERATION_NAMES, acl.operation)}")
    if acl.permission_type not in (Permission.DENY, Permission.ALLOW):
        raise _invalid(f"Invalid permissionType {'ANY' if acl.permission_type == ANY_CODE else 'UNKNOWN'}")
    if ":" not in acl.principal:
        raise _invalid(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type "
            "from the principal name)"
        )
    _check_host(acl.host, metadata_version)


def _check_host(host: str, metadata_version: int) -> None:
    if not host:
        raise _invalid("Host pattern cannot be null or empty")
    if host == WILDCARD or "/" not in host:
        return
    if metadata_version < CIDR_SINCE:
        raise KafkaError(
            Error.UNSUPPORTED_VERSION,
            "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher.",
        )
    try:
        host_range(host)
    except ValueError as error:
        raise _invalid(f"Invalid CIDR notation '{host}': {error}") from None


def _invalid(message: str) -> KafkaError:
    return KafkaError(Error.INVALID_REQUEST, message)


async def created(
    image: ClusterImage, wanted: Sequence[Acl], new_id: Callable[[], bytes]
) -> tuple[list[Message], list[KafkaError | None]]:
    """Return the records, and for each ACL its error or None. An ACL that already exists isn't created again.

    Raises KafkaError (POLICY_VIOLATION, see `check_records`) if the whole request makes too many records.
    """
    held = image.kept.acls
    metadata_version = image.features.get(METADATA_VERSION, 0)
    decided: dict[Acl, Message] = {}
    outcomes: list[KafkaError | None] = []
    pause = Pause()
    for acl in wanted:
        if pause.is_due():
            await turn()
        try:
            _check(acl, metadata_version)
        except KafkaError as error:
            outcomes.append(error.as_value())
            continue
        outcomes.append(None)
        if acl not in held and acl not in decided:
            decided[acl] = records.AccessControlEntryRecord(id=new_id(), **acl._asdict())
            check_records(decided)
    return [*decided.values()], outcomes


# --- Deletion -----------------------------------------------------------------------------------------------


class Deleted(NamedTuple):
    """The ACLs that one filter has removed, or the reason why it removed none."""

    acls: list[Acl]
    error: KafkaError | None = None


async def deleted(image: ClusterImage, filters: Sequence[AclFilter]) -> tuple[list[Message], list[Deleted]]:
    """Return the records, and for each filter the ACLs it matches. An ACL that several filters match appears
    in each.

    Raises KafkaError (INVALID_REQUEST) if all filters together match too many.
    """
    going: dict[bytes, Message] = {}
    outcomes: list[Deleted] = []
    pause = Pause()
    for each in filters:
        if each.has_unknown_pattern:
            outcomes.append(Deleted([], _invalid("Unknown patternFilter.")))
            continue
        if each.has_unknown_entry:
            outcomes.append(Deleted([], _invalid("Unknown entryFilter.")))
            continue
        found: list[Acl] = []
        for acl, acl_id in [*image.kept.acls.items()]:
            if pause.is_due():
                await turn()
            if not each.matches(acl):
                continue
            if len(going) >= MAX_RECORDS_PER_REQUEST:
                raise _invalid(
                    f"Cannot remove more than {MAX_RECORDS_PER_REQUEST} acls in a single delete operation."
                )
            found.append(acl)
            going[acl_id] = records.RemoveAccessControlEntryRecord(id=acl_id)
        outcomes.append(Deleted(found))
    return [*going.values()], outcomes
