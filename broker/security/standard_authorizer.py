"""Authorization by the ACLs in the metadata log, as in Kafka's `StandardAuthorizer`.

A super user may do everything. For all others, ACLs that deny take precedence over ACLs that allow. What no
ACL allows is denied, unless the resource has no ACLs at all and `allow.everyone.if.no.acl.found` is set. If
READ, WRITE, DELETE or ALTER are allowed, so is DESCRIBE. If ALTER_CONFIGS is allowed, so is DESCRIBE_CONFIGS.
Denying them implies nothing.

The audit log gets each decision with the rule behind it: denials at INFO, all at DEBUG.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from broker.controller.acls import (
    ALL_OPERATIONS,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    PatternType,
    Permission,
    is_in_range,
    java_host_address,
)
from broker.security.authorizer import AuthorizableRequest, Operation, Principal, ResourceType
from protocol.apis import APIS
from protocol.waiting import Pause, turn

if TYPE_CHECKING:
    from broker.controller.image import KeptRecords

audit = logging.getLogger("kafka.authorizer.logger")

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED

_IMPLY = {
    Operation.DESCRIBE: frozenset(
        (Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
    ),
    Operation.DESCRIBE_CONFIGS: frozenset((Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)),
}
"""By operation: those whose permission is enough for it."""

SUPER_USER, DEFAULT_ALLOW, DEFAULT_DENY = "SuperUser", "DefaultAllow", "DefaultDeny"

Rule: TypeAlias = Acl | str
"""The rule behind a decision."""

Heard: TypeAlias = Callable[[AuthorizableRequest, Operation, ResourceType, str, Rule], None]
"""Called with who asked for what, and the rule that denied it."""

RESOURCE_NAMES = {
    ResourceType.TOPIC: "Topic",
    ResourceType.GROUP: "Group",
    ResourceType.CLUSTER: "Cluster",
    ResourceType.TRANSACTIONAL_ID: "TransactionalId",
    ResourceType.DELEGATION_TOKEN: "DelegationToken",
    ResourceType.USER: "User",
}


# --- The ACLs, indexed for decisions ------------------------------------------------------------------------


def _order(acl: Acl) -> tuple[int, str, str, int]:
    """The order of ACLs with the same pattern (`StandardAcl.compareTo`)."""
    return acl.operation, acl.principal, acl.host, acl.permission_type


_Pattern: TypeAlias = tuple[int, int, str]
"""Resource type, pattern type, name."""


class AclIndex:
    """ACLs by pattern and principal, so that a decision looks at few of them, however many there are."""

    __slots__ = ("_by_pattern", "_by_principal", "_prefixes")

    def __init__(self) -> None:
        self._by_pattern: dict[_Pattern, dict[str, list[Acl]]] = {}
        self._by_principal: dict[tuple[int, str], dict[_Pattern, list[Acl]]] = {}
        """The same lists, by resource type and principal."""
        self._prefixes: dict[int, dict[int, int]] = {}
        """By resource type: prefix length → how many patterns have it."""

    def add(self, acl: Acl) -> None:
        """Add an ACL that isn't there yet."""
        pattern = acl.resource_type, acl.pattern_type, acl.resource_name
        if pattern not in self._by_pattern:
            self._by_pattern[pattern] = {}
            self._count_prefix(acl, 1)
        by_principal = self._by_pattern[pattern]
        held = by_principal.get(acl.principal)
        if held is None:
            held = by_principal[acl.principal] = []
            self._by_principal.setdefault((acl.resource_type, acl.principal), {})[pattern] = held
        insort(held, acl, key=_order)

    def remove(self, acl: Acl) -> None:
        """Remove an ACL that is there."""
        pattern = acl.resource_type, acl.pattern_type, acl.resource_name
        by_principal = self._by_pattern[pattern]
        held = by_principal[acl.principal]
        del held[bisect_left(held, _order(acl), key=_order)]
        if not held:
            del by_principal[acl.principal]
            of_principal = self._by_principal[acl.resource_type, acl.principal]
            del of_principal[pattern]
            if not of_principal:
                del self._by_principal[acl.resource_type, acl.principal]
        if not by_principal:
            del self._by_pattern[pattern]
            self._count_prefix(acl, -1)

    def holds(self, acl: Acl) -> bool:
        """True if the ACL is there."""
        pattern = acl.resource_type, acl.pattern_type, acl.resource_name
        return acl in self._by_pattern.get(pattern, {}).get(acl.principal, ())

    def _count_prefix(self, acl: Acl, more: int) -> None:
        if acl.pattern_type != PREFIXED:
            return
        lengths = self._prefixes.setdefault(acl.resource_type, {})
        length = len(acl.resource_name)
        lengths[length] = lengths.get(length, 0) + more
        if not lengths[length]:
            del lengths[length]
        self._prefixes[acl.resource_type] = dict(sorted(lengths.items(), reverse=True))

    def of_resource(self, resource_type: int, name: str) -> Iterator[dict[str, list[Acl]]]:
        """Return the ACLs, by principal, of each pattern that matches the resource, nearest pattern first."""
        find = self._by_pattern.get
        if (found := find((resource_type, LITERAL, name))) is not None:
            yield found
        for length in self._prefixes.get(resource_type, ()):
            if length <= len(name) and (found := find((resource_type, PREFIXED, name[:length]))) is not None:
                yield found
        if name != WILDCARD and (found := find((resource_type, LITERAL, WILDCARD))) is not None:
            yield found

    def of_principals(self, resource_type: int, *principals: str) -> Iterator[Acl]:
        """Return all ACLs for resources of the type that name one of these principals."""
        for principal in principals:
            for held in self._by_principal.get((resource_type, principal), {}).values():
                yield from held


# --- Decisions ----------------------------------------------------------------------------------------------

MOST_REMEMBERED = 10_000
"""How many allowing decisions to remember. They are looked up until an ACL changes."""
LONGEST_REMEMBERED = 249
"""The longest resource name to remember, in characters: clients may send names of any length."""


class StandardAuthorizer:
    """Decides by the ACLs that it follows (`follow`), and by the settings."""

    __slots__ = ("_acls", "_allowed", "_by_type", "_without_acl", "denied", "heard", "super_users")

    allows_everything = False

    def __init__(self, super_users: Iterable[str], *, allow_if_no_acl: bool) -> None:
        """`super_users` have the form `Type:name`."""
        self.super_users = frozenset(super_users)
        self._without_acl = DEFAULT_ALLOW if allow_if_no_acl else DEFAULT_DENY
        self._acls = AclIndex()
        self._allowed: set[tuple[Principal, str, int, int, str]] = set()
        self._by_type: dict[tuple[Principal, str, int, int], bool] = {}
        self.denied: Counter[tuple[Operation, ResourceType]] = Counter()
        """How often each thing was denied, as far as the audit log gets it."""
        self.heard: Heard | None = None
        """Called for each denial for the audit log, whether or not that writes it."""

    def holds(self, acl: Acl) -> bool:
        """True if this ACL is among those in force."""
        return self._acls.holds(acl)

    async def follow(self, kept: KeptRecords) -> None:
        """Follow changes of the ACLs. The old ones stay in force until all new ones are there."""
        changes = kept.take_acl_changes()
        if changes is None:
            acls = AclIndex()
            pause = Pause()
            for acl in [*kept.acls]:
                if pause.is_due():
                    await turn()
                acls.add(acl)
            self._acls = acls
        elif changes:
            for acl, is_there in changes:
                (self._acls.add if is_there else self._acls.remove)(acl)
        else:
            return
        self._allowed.clear()
        self._by_type.clear()

    # --- one resource ---------------------------------------------------------------------------------------

    def allows(
        self,
        context: AuthorizableRequest,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        log_allowed: bool = True,
        log_denied: bool = True,
        count: int = 1,
    ) -> bool:
        """Decide, and log the decision with its rule. `count`, for the log line, is how often the request
        names the resource."""
        principal, host = context.principal, context.peer_host
        asked = principal, host, operation, resource_type, name
        if asked in self._allowed and not audit.isEnabledFor(logging.DEBUG):
            return True
        rule = self._rule(principal, java_host_address(host), operation, resource_type, name)
        is_allowed = _allows(rule)
        if is_allowed and len(name) <= LONGEST_REMEMBERED:
            if len(self._allowed) >= MOST_REMEMBERED:
                self._allowed.clear()
            self._allowed.add(asked)
        if not is_allowed and log_denied:
            self.denied[operation, resource_type] += 1
            if self.heard is not None:
                self.heard(context, operation, resource_type, name, rule)
        if audit.isEnabledFor(logging.DEBUG if is_allowed else logging.INFO) and (
            log_allowed if is_allowed else log_denied
        ):
            audit.log(
                logging.DEBUG if is_allowed else logging.INFO,
                "%s",
                audit_text(context, operation, resource_type, name, rule, count),
            )
        return is_allowed

    def _rule(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> Rule:
        """Return the deciding rule, starting from the nearest pattern: the first ACL that denies, otherwise
        the last that allows."""
        who = str(principal)
        if who in self.super_users:
            return SUPER_USER
        enough = _IMPLY.get(operation, (operation,))
        allowed: Acl | None = None
        is_about = False
        for by_principal in self._acls.of_resource(resource_type, name):
            is_about = True
            own, everyones = by_principal.get(who, ()), by_principal.get(WILDCARD_PRINCIPAL, ())
            for acl in sorted((*own, *everyones), key=_order) if own and everyones else own or everyones:
                if acl.host not in (WILDCARD, host) and not is_in_range(host, acl.host):
                    continue
                if acl.permission_type == Permission.ALLOW:
                    if acl.operation == ALL_OPERATIONS or acl.operation in enough:
                        allowed = acl
                elif acl.operation in (ALL_OPERATIONS, operation):
                    return acl
        if allowed is not None:
            return allowed
        return DEFAULT_DENY if is_about else self._without_acl

    # --- some resource of a type ----------------------------------------------------------------------------

    def allows_any(
        self, context: AuthorizableRequest, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Return True if a rule allows it for all resources, or an ACL for one that no other ACL denies."""
        if self.allows(context, operation, resource_type, "hardcode", log_denied=False, count=0):
            return True  # a super user, or a right to all resources
        asked = context.principal, context.peer_host, operation, resource_type
        found = self._by_type.get(asked)
        if found is None:
            found = self._allows_some(
                str(context.principal), java_host_address(context.peer_host), operation, resource_type
            )
            if len(self._by_type) >= MOST_REMEMBERED:
                self._by_type.clear()
            self._by_type[asked] = found
        return found

    def _allows_some(self, who: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Return True if an ACL allows a name or a prefix that no other ACL denies. Here no operation implies
        another (Kafka: `Authorizer.authorizeByResourceType`)."""
        denied: dict[int, set[str]] = {LITERAL: set(), PREFIXED: set()}
        allowed: dict[int, set[str]] = {LITERAL: set(), PREFIXED: set()}
        for acl in self._acls.of_principals(resource_type, who, WILDCARD_PRINCIPAL):
            if acl.host not in (WILDCARD, host) and not is_in_range(host, acl.host):
                continue
            if acl.operation in (ALL_OPERATIONS, operation):
                told = denied if acl.permission_type == Permission.DENY else allowed
                told[acl.pattern_type].add(acl.resource_name)
        if WILDCARD in denied[LITERAL]:
            return False
        if WILDCARD in allowed[LITERAL]:
            return True
        lengths = {len(prefix) for prefix in denied[PREFIXED]}
        return any(
            (pattern_type == PREFIXED or name not in denied[LITERAL])
            and not any(length <= len(name) and name[:length] in denied[PREFIXED] for length in lengths)
            for pattern_type, names in allowed.items()
            for name in names
        )


def _allows(rule: Rule) -> bool:
    if isinstance(rule, Acl):
        return rule.permission_type == Permission.ALLOW
    return rule != DEFAULT_DENY


def audit_text(
    context: AuthorizableRequest,
    operation: Operation,
    resource_type: ResourceType,
    name: str,
    rule: Rule,
    count: int,
) -> str:
    """Return a line of the audit log, as Kafka writes it (`StandardAuthorizerData.buildAuditMessage`)."""
    api = APIS.get(context.api_key)
    return (
        f"Principal = {context.principal} is {'Allowed' if _allows(rule) else 'Denied'} "
        f"operation = {operation.name} from host = {java_host_address(context.peer_host)} "
        f"on resource = {RESOURCE_NAMES[resource_type]}:LITERAL:{name} "
        f"for request = {context.api_key if api is None else api.name} with resourceRefCount = {count} "
        f"based on rule {f'MatchingAcl(acl={rule})' if isinstance(rule, Acl) else rule}"
    )
