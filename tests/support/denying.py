"""An authorizer that denies what a test names, and records what it was asked."""

from __future__ import annotations

from typing import NamedTuple

from broker.controller.image import KeptRecords
from broker.security.authorizer import AuthorizableRequest, Operation, ResourceType


class Asked(NamedTuple):
    operation: Operation
    resource_type: ResourceType
    name: str | None  # None: any of the type


class DenyingAuthorizer:
    """Denies what `deny` names, and allows everything else. `asked` has every question, in order."""

    allows_everything = False

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._denied: set[Asked] = set()

    def deny(
        self, operation: Operation, resource_type: ResourceType, name: str | None = None
    ) -> DenyingAuthorizer:
        """Deny the operation on one resource, or without a name on all of the type."""
        self._denied.add(Asked(operation, resource_type, name))
        return self

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
        asked = Asked(operation, resource_type, name)
        self.asked.append(asked)
        return asked not in self._denied and asked._replace(name=None) not in self._denied

    def allows_any(
        self, context: AuthorizableRequest, operation: Operation, resource_type: ResourceType
    ) -> bool:
        asked = Asked(operation, resource_type, None)
        self.asked.append(asked)
        return asked not in self._denied

    async def follow(self, kept: KeptRecords) -> None:
        """Do nothing: ACLs don't matter here."""
        kept.take_acl_changes()
