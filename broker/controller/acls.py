"""ACLs. An ACL allows or denies a principal, from a host, an operation on the resources with a name or a
prefix.

Sources: `StandardAcl`, `AclBinding`, `AclBindingFilter` and `CidrUtils` (KIP-1276).
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

    from protocol.messages.metadata_records import AccessControlEntryRecord
    from protocol.messages.security import AclCreation, DeleteAclsFilter, DescribeAclsRequest

UNKNOWN, ANY_CODE = 0, 1
"""In all four enumerations, the codes for "unknown" and for a filter's "any"."""

WILDCARD = "*"
"""Every resource of the type if it is a literal resource name, every host if it is a host."""
WILDCARD_PRINCIPAL = "User:*"


class PatternType(IntEnum):
    """How to read a resource's name. Only filters use MATCH."""

    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """Kafka: `AclPermissionType`."""

    DENY = 2
    ALLOW = 3


ALL_OPERATIONS = 2

RESOURCE_TYPE_NAMES = {
    2: "TOPIC",
    3: "GROUP",
    4: "CLUSTER",
    5: "TRANSACTIONAL_ID",
    6: "DELEGATION_TOKEN",
    7: "USER",
}
OPERATION_NAMES = {
    ALL_OPERATIONS: "ALL",
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
    13: "CREATE_TOKENS",
    14: "DESCRIBE_TOKENS",
    15: "TWO_PHASE_COMMIT",
}
"""The operations of ACLs, code → name."""


def enum_text(names: dict[int, str], code: int) -> str:
    """A code's name in Java, as error texts show it."""
    return names.get(code) or ("ANY" if code == ANY_CODE else "UNKNOWN")


class Acl(NamedTuple):
    """One entry. `principal` is `Type:name`; the codes are those of the wire format."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    @classmethod
    def of_record(cls, record: AccessControlEntryRecord) -> Acl:
        return cls(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )

    @classmethod
    def of_creation(cls, wanted: AclCreation) -> Acl:
        return cls(
            wanted.resource_type,
            wanted.resource_name,
            wanted.resource_pattern_type,
            wanted.principal,
            wanted.host,
            wanted.operation,
            wanted.permission_type,
        )

    def __str__(self) -> str:
        """The text that Kafka logs when it denies an operation."""
        return (
            f"StandardAcl[resourceType={enum_text(RESOURCE_TYPE_NAMES, self.resource_type)}, "
            f"resourceName={self.resource_name}, patternType={_name(PatternType, self.pattern_type)}, "
            f"principal={self.principal}, host={self.host}, "
            f"operation={enum_text(OPERATION_NAMES, self.operation)}, "
            f"permissionType={_name(Permission, self.permission_type)}]"
        )


def _name(of: type[PatternType | Permission], code: int) -> str:
    try:
        return of(code).name
    except ValueError:
        return "UNKNOWN"


class AclFilter(NamedTuple):
    """The ACLs that a request means. None or ANY_CODE matches any value. Principals and hosts compare as
    text."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    @classmethod
    def of(cls, asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
        return cls(
            asked.resource_type_filter,
            asked.resource_name_filter,
            asked.pattern_type_filter,
            asked.principal_filter,
            asked.host_filter,
            asked.operation,
            asked.permission_type,
        )

    @property
    def is_nonsense(self) -> bool:
        """True if a field is explicitly UNKNOWN. Kafka then closes the connection."""
        return UNKNOWN in (self.resource_type, self.pattern_type, self.operation, self.permission_type)

    @property
    def has_unknown_pattern(self) -> bool:
        """True if the resource type or the pattern type has a code that doesn't exist."""
        known = self.pattern_type in (ANY_CODE, *PatternType)
        return not known or self.resource_type not in (ANY_CODE, *RESOURCE_TYPE_NAMES)

    @property
    def has_unknown_entry(self) -> bool:
        """True if the operation or the permission has a code that doesn't exist."""
        return self.operation not in (ANY_CODE, *OPERATION_NAMES) or self.permission_type not in (
            ANY_CODE,
            *Permission,
        )

    def matches(self, acl: Acl) -> bool:
        """True if the filter matches the ACL. The pattern type MATCH matches every ACL that applies to a
        resource of that name."""
        return (
            self.resource_type in (ANY_CODE, acl.resource_type)
            and self.pattern_type in (ANY_CODE, PatternType.MATCH, acl.pattern_type)
            and self._names(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY_CODE, acl.operation)
            and self.permission_type in (ANY_CODE, acl.permission_type)
        )

    def _names(self, acl: Acl) -> bool:
        name = self.resource_name
        if name is None:
            return True
        if self.pattern_type != PatternType.MATCH:
            return name == acl.resource_name
        if acl.pattern_type == PatternType.LITERAL:
            return acl.resource_name in (name, WILDCARD)
        return name.startswith(acl.resource_name)


# --- Hosts --------------------------------------------------------------------------------------------------

_IPV4_RANGE = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})/(\d{1,2})", re.ASCII)
_JAVA_INT = re.compile(r"[+-]?\d{1,100}")


def host_range(pattern: str) -> IPv4Network | IPv6Network:
    """Return the addresses in `address/bits`. Raises ValueError."""
    from ipaddress import IPv4Network, IPv6Address, IPv6Network

    if ":" not in pattern:
        match = _IPV4_RANGE.fullmatch(pattern)
        if match is None:
            raise ValueError(f"Could not parse [{pattern}]")
        *octets, bits = map(int, match.groups())
        for value, most in (*((octet, 255) for octet in octets), (bits, 32)):
            if value > most:
                raise ValueError(f"Value [{value}] not in range [0,{most}]")
        return IPv4Network((bytes(octets), bits), strict=False)
    text, _, length = pattern.partition("/")
    if not _JAVA_INT.fullmatch(length) or not -(2**31) <= int(length) < 2**31:
        raise ValueError(f"Could not parse [{pattern}] - invalid prefix length")
    if not 0 <= int(length) <= 128:
        raise ValueError(f"Could not parse [{pattern}] - prefix length must be between 0 and 128")
    is_bracketed = text.startswith("[") and text.endswith("]")
    bare, percent, scope = (text[1:-1] if is_bracketed else text).partition("%")
    try:
        address = IPv6Address(bare)
    except ValueError:
        raise ValueError(f"Could not parse [{text}]") from None
    if percent and not scope.isalnum():
        raise ValueError(f"Could not parse [{text}]")
    if address.ipv4_mapped is not None:
        raise ValueError(f"Could not parse [{text}] - not an IPv6 address")
    return IPv6Network((address.packed, int(length)), strict=False)


@lru_cache(1_000)
def is_in_range(host: str, pattern: str) -> bool:
    """True if the address lies in `address/bits`. False if either isn't valid."""
    if "/" not in pattern:
        return False
    from ipaddress import ip_address

    try:
        return ip_address(host.partition("%")[0]) in host_range(pattern)
    except ValueError:
        return False


@lru_cache(1_000)
def java_host_address(host: str) -> str:
    """Return an address as Java's `InetAddress.getHostAddress` writes it: ACLs' hosts are compared with that.

    IPv6 addresses have eight groups without leading zeros. An IPv4-mapped one becomes IPv4. Any other text
    stays as it is.
    """
    if ":" not in host:
        return host
    from ipaddress import IPv6Address

    bare, percent, scope = host.partition("%")
    try:
        address = IPv6Address(bare)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    groups = (f"{int(group, 16):x}" for group in address.exploded.split(":"))
    return ":".join(groups) + percent + scope
