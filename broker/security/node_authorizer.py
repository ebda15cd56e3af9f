"""Choosing a node's authorizer by its settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

from broker.security.authorizer import (
    CLUSTER_ACTION,
    AllowEverything,
    AuthorizableRequest,
    Authorizer,
    Operation,
    ResourceType,
)

if TYPE_CHECKING:
    from broker.controller.image import KeptRecords
    from broker.security.standard_authorizer import StandardAuthorizer

_WRITE_TXN_MARKERS = 27


class ClosedListeners:
    """Refuses requests between brokers on some listeners: those that need CLUSTER_ACTION, and markers. In
    Kafka, clients that may ALTER the cluster may write markers, too, to end a hanging transaction. The other
    authorizer decides everything else."""

    __slots__ = ("_closed", "denied", "other")

    allows_everything = False

    def __init__(self, closed: Collection[str], other: Authorizer) -> None:
        self._closed = closed
        self.denied: Counter[tuple[Operation, ResourceType]] = Counter()
        """Denials by the listener alone."""
        self.other = other

    def allows(
        self,
        context: AuthorizableRequest,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        log_allowed: bool = True,
        log_denied: bool = True,
    ) -> bool:
        """Check the listener first. Its refusals aren't logged."""
        if self._refuses(context, operation):
            self.denied[operation, resource_type] += 1
            return False
        return self.other.allows(
            context,
            operation,
            resource_type,
            name,
            log_allowed=log_allowed,
            log_denied=log_denied,
        )

    def allows_any(
        self, context: AuthorizableRequest, operation: Operation, resource_type: ResourceType
    ) -> bool:
        return not self._refuses(context, operation) and self.other.allows_any(
            context, operation, resource_type
        )

    def _refuses(self, context: AuthorizableRequest, operation: Operation) -> bool:
        if context.listener_name not in self._closed:
            return False
        return operation == CLUSTER_ACTION or context.api_key == _WRITE_TXN_MARKERS

    async def follow(self, kept: KeptRecords) -> None:
        await self.other.follow(kept)


def authorizer_of(
    settings: tuple[Collection[str], bool] | None, closed_to_brokers: Collection[str]
) -> Authorizer:
    """Return the authorizer of a node with these listeners closed to other brokers.

    `settings`, if ACLs decide, are the super users as `Type:name`, and whether everybody has all rights to
    resources without ACLs.
    """
    authorizer: Authorizer = AllowEverything()
    if settings is not None:
        from broker.security.standard_authorizer import StandardAuthorizer

        super_users, allow_if_no_acl = settings
        authorizer = StandardAuthorizer(super_users, allow_if_no_acl=allow_if_no_acl)
    return ClosedListeners(closed_to_brokers, authorizer) if closed_to_brokers else authorizer


def standard_of(authorizer: Authorizer) -> StandardAuthorizer | None:
    """Return the authorizer that decides by ACLs, or None."""
    if isinstance(authorizer, ClosedListeners):
        authorizer = authorizer.other
    if isinstance(authorizer, AllowEverything):
        return None
    from broker.security.standard_authorizer import StandardAuthorizer

    return authorizer if isinstance(authorizer, StandardAuthorizer) else None


def denials_of(authorizer: Authorizer) -> Counter[tuple[Operation, ResourceType]]:
    """Return how often each thing was denied since the start, by listeners and by ACLs."""
    standard = standard_of(authorizer)
    denied: Counter[tuple[Operation, ResourceType]] = Counter()
    if standard is not None:
        denied.update(standard.denied)
    if isinstance(authorizer, ClosedListeners):
        denied.update(authorizer.denied)
    return denied
