"""Answers a test's questions about rights and users. `broker.process.control` imports this at the first such question.

ACLs and filters of ACLs are lists of seven: the fields of `Acl` and `AclFilter`, in order.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from broker.controller.acl_decisions import created, deleted
from broker.controller.acls import OPERATION_NAMES, RESOURCE_TYPE_NAMES, Acl, AclFilter, java_host_address
from broker.controller.controller import ControllerResult, Decide
from broker.controller.scram_decisions import HASHES, altered, scram_credential
from broker.security.node_authorizer import standard_of
from broker.security.sasl import MIN_ITERATIONS
from protocol.apis import APIS
from protocol.errors import KafkaError
from protocol.messages.security import ScramCredentialUpsertion

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.quorum.controller_server import ControllerNode
    from broker.security.authorizer import AuthorizableRequest, Operation, ResourceType
    from broker.security.standard_authorizer import Rule, StandardAuthorizer
    from broker.server import Server

    AnyNode = Server | ControllerNode

Given: TypeAlias = Iterable[Sequence[Any]]

# --- ACLs ---------------------------------------------------------------------------------------------------


def _standard(node: AnyNode) -> StandardAuthorizer:
    """The node's authorizer. Raises LookupError if there is none."""
    found = standard_of(node.authorizer)
    if found is None:
        raise LookupError(
            "no authorizer is configured (authorizer.class.name): all clients may do everything"
        )
    return found


def decision_on_acls(node: AnyNode, create: Given, delete: Given) -> Decide[list[Acl] | KafkaError]:
    """A decision that creates ACLs and deletes those that match filters. Its answer is the deleted ACLs, or the error
    of one; nothing is done then. Raises LookupError."""
    _standard(node)
    wanted = [Acl(*each) for each in create]
    filters = [AclFilter(*each) for each in delete]

    async def decide(image: ClusterImage) -> ControllerResult[list[Acl] | KafkaError]:
        made, refusals = await created(image, wanted, node.chance.uuid)
        gone, outcomes = await deleted(image, filters)
        refusal = next((each for each in [*refusals, *(each.error for each in outcomes)] if each), None)
        if refusal is not None:
            raise KafkaError(refusal.error, refusal.message)
        removed = [*dict.fromkeys(acl for each in outcomes for acl in each.acls)]
        return ControllerResult([*made, *gone], lambda failure: failure or removed)

    return decide


def acls_in_force(node: AnyNode, present: Given, absent: Given) -> bool:
    """True if the node's authorizer has all of `present` and none of `absent`. Raises LookupError."""
    holds = _standard(node).holds
    return all(holds(Acl(*each)) for each in present) and not any(holds(Acl(*each)) for each in absent)


MOST_TOLD = 100


def known_acls(node: AnyNode, principal: str) -> list[Acl]:
    """The ACLs of a principal, in order; only the first ones if there are many. Raises LookupError."""
    _standard(node)
    return sorted(acl for acl in node.metadata.image.kept.acls if acl.principal == principal)[:MOST_TOLD]


# --- Users who sign in by SCRAM -----------------------------------------------------------------------------


def decision_on_users(node: AnyNode, users: Mapping[str, str]) -> Decide[KafkaError | None]:
    """A decision that gives each user, by name and password, a credential of both mechanisms."""
    by_mechanism = []
    for mechanism, digest in HASHES.items():
        upsertions = []
        for user, password in users.items():
            salt = node.chance.token_bytes(16)
            salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, MIN_ITERATIONS)
            upsertions.append(
                ScramCredentialUpsertion(
                    name=user,
                    mechanism=mechanism,
                    iterations=MIN_ITERATIONS,
                    salt=salt,
                    salted_password=salted,
                )
            )
        by_mechanism.append(upsertions)

    async def decide(image: ClusterImage) -> ControllerResult[KafkaError | None]:
        decided = []
        for upsertions in by_mechanism:
            records, outcomes = await altered(image, [], upsertions)
            refusal = next((each for each in outcomes.values() if each is not None), None)
            if refusal is not None:
                raise KafkaError(refusal.error, refusal.message)
            decided += records
        return ControllerResult(decided, lambda failure: failure)

    return decide


def users_known(node: AnyNode, users: Iterable[str]) -> bool:
    """True if each user can sign in to the node by both mechanisms."""
    image = node.metadata.image
    return all(scram_credential(image, mechanism, user) is not None for user in users for mechanism in HASHES)


# --- Denials ------------------------------------------------------------------------------------------------

MOST_DENIALS = 100
"""Denials that are kept: the last ones."""
LONGEST_NAME = 249
"""Characters that are kept of a client's names."""
LONGEST_RULE = 1_000
DENIALS_TOLD = 10
"""Denials in one answer."""


class Denials:
    """The last denials of a node's authorizer that it also logs. `now_ms`: the time of day."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._kept: deque[dict[str, object]] = deque(maxlen=MOST_DENIALS)
        self._count = 0

    def __call__(
        self,
        context: AuthorizableRequest,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        rule: Rule,
    ) -> None:
        api = APIS.get(context.api_key)
        by_acl = isinstance(rule, Acl) and len(rule.resource_name) <= LONGEST_NAME
        self._count += 1
        self._kept.append(
            {
                "number": self._count,
                "time_ms": self._now_ms(),
                "request": str(context.api_key) if api is None else api.name,
                "principal": str(context.principal)[:LONGEST_NAME],
                "host": java_host_address(context.peer_host),
                "listener": context.listener_name,
                "operation": OPERATION_NAMES[operation],
                "resource_type": RESOURCE_TYPE_NAMES[resource_type],
                "resource": name[:LONGEST_NAME],
                "rule": str(rule)[:LONGEST_RULE],
                "acl": [*rule] if by_acl else None,
            }
        )

    def behind(self, number: int) -> list[dict[str, object]]:
        """Some of the denials after that number, the oldest first; empty if there are none."""
        kept = self._kept
        first = self._count - len(kept)  # how many aren't kept any more
        begin = max(number - first, 0)
        return [*islice(kept, begin, begin + DENIALS_TOLD)]


def keep_denials(node: AnyNode) -> None:
    """Keep the node's denials from now on. Raises LookupError if nothing can be denied."""
    _standard(node).heard = Denials(node.clock.now_ms)


def denials(node: AnyNode, behind: int) -> list[dict[str, object]]:
    """As `Denials.behind`. Raises LookupError."""
    heard = _standard(node).heard
    return heard.behind(behind) if isinstance(heard, Denials) else []
