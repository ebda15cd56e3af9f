"""ACLs, and an authorizer that follows them."""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

from broker.controller.acls import Acl, PatternType, Permission
from broker.controller.image import KeptRecords
from broker.security.authorizer import READ, TOPIC, Principal, ResourceType
from broker.security.standard_authorizer import StandardAuthorizer
from protocol.messages.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from protocol.waiting import at_once

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY


class Asker(NamedTuple):
    principal: Principal
    peer_host: str
    listener_name: str = "PLAINTEXT"
    api_key: int = 3


ALICE = Asker(Principal("User", "alice"), "127.0.0.1")


class Kept:
    """The metadata's ACLs, and an authorizer that follows them."""

    def __init__(self, *super_users: str, allow_if_no_acl: bool = False) -> None:
        self.records = KeptRecords()
        self.authorizer = StandardAuthorizer(super_users, allow_if_no_acl=allow_if_no_acl)
        self._ids: dict[Acl, bytes] = {}
        self._numbers = count(1)

    def add(self, *acls: Acl) -> Kept:
        for acl in acls:
            acl_id = self._ids.setdefault(acl, next(self._numbers).to_bytes(16))
            record = AccessControlEntryRecord(id=acl_id, **acl._asdict())
            self.records.apply(record)
        at_once(self.authorizer.follow(self.records))
        return self

    def remove(self, *acls: Acl) -> None:
        for acl in acls:
            self.records.apply(RemoveAccessControlEntryRecord(id=self._ids.pop(acl)))
        at_once(self.authorizer.follow(self.records))


def acl(
    operation: int = READ,
    name: str = "orders",
    *,
    who: str = "User:alice",
    permission: Permission = ALLOW,
    pattern: PatternType = LITERAL,
    host: str = "*",
    of: ResourceType = TOPIC,
) -> Acl:
    return Acl(of, name, pattern, who, host, operation, permission)
