"""The table of rights: users with each single right, requests that each of them sends, and their answers.

A user signs in by SASL PLAIN on a connection with the user's name. Every request names resources that a user has a
right to and others, existing or not. So the answers show the order of the checks and what is hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from broker.security.authorizer import CLUSTER_NAME, ResourceType

from .play import Play
from .principals import ADMIN, CHANGING, EVERYTHING, OWNER, RIGHTS, USERS, password
from .requests import metadata, unknown
from .scene import Topic
from .waiting import ScriptStuck

Fields = dict[str, Any]
Asked = Fields | Callable[[str], Fields]
"""A request for all users, or a function that makes each user's."""

ANY_OPERATION, ALL = 1, 2
DENY, ALLOW = 2, 3
LITERAL, PREFIXED = 3, 4


def acl(
    user: str,
    kind: ResourceType,
    name: str,
    operation: int,
    *,
    prefixed: bool = False,
    denied: bool = False,
) -> Fields:
    return {
        "resource_type": int(kind),
        "resource_name": name,
        "resource_pattern_type": PREFIXED if prefixed else LITERAL,
        "principal": f"User:{user}",
        "host": "*",
        "operation": int(operation),
        "permission_type": DENY if denied else ALLOW,
    }


@dataclass(frozen=True, slots=True)
class Names:
    """Names for topics, groups and transactional ids alike: the users' own, which the rights are about, and others."""

    mine: str
    other: str
    gone_mine: str
    gone_other: str

    def __iter__(self) -> Any:
        return iter((self.mine, self.other, self.gone_mine, self.gone_other))

    @property
    def gone_prefix(self) -> str:
        return self.gone_mine[:-1]


def _acls_of_rights(names: Names) -> Iterable[Fields]:
    own_kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
    for kind in ResourceType:
        everything = CLUSTER_NAME if kind is ResourceType.CLUSTER else "*"
        for user in (EVERYTHING, *(f"not_{right}" for right in RIGHTS)):
            yield acl(user, kind, everything, ALL)
        if kind in own_kinds:
            yield acl(OWNER, kind, names.mine, ALL)
            yield acl(OWNER, kind, names.gone_prefix, ALL, prefixed=True)
    for right, (kind, operation) in RIGHTS.items():
        for user, denied in ((f"may_{right}", False), (f"not_{right}", True)):
            if kind in own_kinds:
                yield acl(user, kind, names.mine, operation, denied=denied)
                yield acl(user, kind, names.gone_prefix, operation, prefixed=True, denied=denied)
            elif kind is ResourceType.CLUSTER:
                yield acl(user, kind, CLUSTER_NAME, operation, denied=denied)
            else:
                yield acl(user, kind, ADMIN, operation, denied=denied)


class Table:
    """The answers to each user for each request."""

    def __init__(self, play: Play, *, is_open: bool = False) -> None:
        """`is_open`: what no ACL is about belongs to everybody, and no ACL is made."""
        self.play = play
        self._is_open = is_open
        self.names = Names(*(play.name(suffix) for suffix in ("mine", "other", "gone-mine", "gone-other")))
        self.mine = play.topic("mine", 2)
        self.other = play.topic("other", 2)
        self.topics: tuple[Topic, ...] = (
            self.mine,
            self.other,
            unknown(self.names.gone_mine),
            unknown(self.names.gone_other),
        )
        play.names.other_ports[play.broker.sasl_port] = "<port>"
        self._marks = 0
        if not is_open:
            self.give(*_acls_of_rights(self.names))

    def give(self, *acls: Fields) -> None:
        """Create these ACLs. They are in force when this returns."""
        answer = self.play.quietly("CreateAcls", 3, {"creations": [*acls]})
        if any(result.error_code for result in answer.results):
            raise ScriptStuck(f"ACLs can't be made: {answer}")
        self.settle()

    def take(self, user: str, kind: ResourceType, name: str, operation: int = ANY_OPERATION) -> None:
        """Remove the user's ACLs. They are gone when this returns."""
        match = {
            "resource_type_filter": int(kind),
            "resource_name_filter": name,
            "pattern_type_filter": LITERAL,
            "principal_filter": f"User:{user}",
            "host_filter": None,
            "operation": int(operation),
            "permission_type": 1,
        }
        answer = self.play.quietly("DeleteAcls", 3, {"filters": [match]})
        if not all(result.matching_acls for result in answer.filter_results):
            raise ScriptStuck(f"there is no such ACL: {match}")
        self.settle()

    def settle(self) -> None:
        """ACLs come into force in their order, at the broker and at the controller, so wait until one more is."""
        self._marks += 1
        mark = self.play.name(f"mark-{self._marks}")
        whose = OWNER if self._is_open else CHANGING
        self.play.quietly("CreateAcls", 3, {"creations": [acl(whose, ResourceType.TOPIC, mark, ALL)]})
        told = 29 if self._is_open else 3
        on = self.sign_in(CHANGING, "mark")
        more = {
            "topics": [{"name": mark, "count": 2, "assignments": None}],
            "timeout_ms": 20_000,
            "validate_only": True,
        }

        def is_in_force() -> bool:
            (seen,) = self.play.quietly("Metadata", 12, metadata(mark), on=on).topics
            (grown,) = self.play.quietly("CreatePartitions", 3, more, on=on).results
            return (seen.error_code, grown.error_code) == (told, told)

        self.play.until("the ACLs are in force", is_in_force)

    def sign_in(self, user: str, on: str | None = None) -> str:
        """Open the user's connection, and return its name."""
        name = on or user
        self.play.sign_in(name, user, password(user))
        return name

    def ask(self, case: str, api: str, version: int, asked: Asked, users: Collection[str] = USERS) -> None:
        """Add a row: the answer to each of the users."""
        for user in users:
            fields = asked(user) if callable(asked) else asked
            self.play.ask(f"{case}: {user}", api, version, fields, on=self.sign_in(user))


def rows(table: Table, api: str, version: int, asked: Mapping[str, Asked], **how: Any) -> None:
    """Add a row for each of the requests."""
    for case, fields in asked.items():
        table.ask(f"{case} ({api} v{version})", api, version, fields, **how)
