"""Rights in the words of a test: rules, which become Kafka's ACLs, and denials."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from barnabas.child import Asked, BrokerError, QuestionRefusedError

Acl: TypeAlias = tuple[int, str, int, str, str, int, int]
"""Resource type, resource name, pattern type, principal, host, operation, permission, each by Kafka's code."""

ANY = 1
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3

RESOURCES = {"topic": 2, "group": 3, "cluster": 4, "transactional_id": 5, "delegation_token": 6, "user": 7}
CLUSTER_NAME = "kafka-cluster"

OPERATIONS = {
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster_action": 9,
    "describe_configs": 10,
    "alter_configs": 11,
    "idempotent_write": 12,
    "create_tokens": 13,
    "describe_tokens": 14,
    "two_phase_commit": 15,
}

SUPPORTED = {
    "topic": (
        "read",
        "write",
        "create",
        "describe",
        "delete",
        "alter",
        "describe_configs",
        "alter_configs",
    ),
    "group": ("read", "describe", "delete", "describe_configs", "alter_configs"),
    "cluster": (
        "create",
        "cluster_action",
        "describe_configs",
        "alter_configs",
        "idempotent_write",
        "alter",
        "describe",
    ),
    "transactional_id": ("describe", "write", "two_phase_commit"),
}
"""The operations that each type of resource supports (Kafka: `AclEntry.supportedOperations`), beside `all`."""

TOGETHER: Mapping[str, Mapping[str, Sequence[str]]] = {
    "produce": {
        "topic": ("write", "describe", "create"),
        "transactional_id": ("write", "describe"),
    },
    "consume": {"topic": ("read", "describe"), "group": ("read",)},
}
"""Words for several operations, like the options `--producer` and `--consumer` of kafka-acls."""

Names: TypeAlias = str | Iterable[str] | None


# --- From words to ACLs -------------------------------------------------------------------------------------


def principal_of(user: str) -> str:
    """Return the principal of a user: `alice` becomes `User:alice`, and `*` means everybody."""
    if not isinstance(user, str) or not user:
        raise ValueError(f"{user!r} is no user")
    return user if user.startswith("User:") else f"User:{user}"


def _resources(given: Mapping[str, Names | bool]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for kind, names in given.items():
        if names is None or names is False:
            continue
        if kind == "cluster":
            if names is not True:
                raise ValueError(f"cluster={names!r}: there is only one cluster; write cluster=True")
            found[kind] = [CLUSTER_NAME]
            continue
        each = [names] if isinstance(names, str) else list(names) if isinstance(names, Iterable) else [""]
        if not each or not all(isinstance(name, str) and name for name in each):
            raise ValueError(f"{kind}={names!r}: give a name or several; '*' stands for all")
        found[kind] = each
    return found


def _operations(operation: str, kind: str) -> Sequence[str]:
    """Return the operations on this type of resource, or none if the word doesn't apply to it. Raises ValueError."""
    word = operation.strip().lower().replace("-", "_").replace(" ", "_") if isinstance(operation, str) else ""
    if word in TOGETHER:
        return TOGETHER[word].get(kind, ())
    # Kafka's tools write ClusterAction and IdempotentWrite.
    squeezed = {name.replace("_", ""): name for name in OPERATIONS}
    word = squeezed.get(word.replace("_", ""), word)
    if word not in OPERATIONS:
        raise ValueError(
            f"there is no operation {operation!r}: there are {', '.join(OPERATIONS)}, and for several together "
            f"{' and '.join(TOGETHER)}"
        )
    if word != "all" and word not in SUPPORTED[kind]:
        raise ValueError(
            f"{word} isn't an operation on a {kind}: those are {', '.join(SUPPORTED[kind])}, and all"
        )
    return (word,)


def acls(
    user: str,
    operation: str,
    permission: int,
    given: Mapping[str, Names | bool],
    *,
    prefix: bool = False,
    host: str = "*",
) -> list[Acl]:
    """Return the ACLs that the words stand for. Raises ValueError if they make no sense."""
    resources = _resources(given)
    if not resources:
        if operation not in ("all", *TOGETHER):
            _operations(operation, "topic" if operation in SUPPORTED["topic"] else "cluster")
            raise ValueError(
                f"{operation} of what? topic=..., group=..., transactional_id=... or cluster=True; topic='*' is every "
                "topic"
            )
        kinds = SUPPORTED if operation == "all" else TOGETHER[operation]
        resources = {kind: [CLUSTER_NAME if kind == "cluster" else "*"] for kind in kinds}
    if prefix and "cluster" in resources:
        raise ValueError(
            "the cluster's name has no prefix: prefix=True is for topics, groups and transactional ids"
        )
    if not isinstance(host, str) or not host:
        raise ValueError(f"host={host!r}: an address, a range such as 10.0.0.0/8, or '*'")
    pattern = PREFIXED if prefix else LITERAL
    made: list[Acl] = []
    for kind, names in resources.items():
        operations = _operations(operation, kind)
        if not operations:
            raise ValueError(f"{operation} has nothing to do with a {kind}: {_wanted_by(operation)}")
        made += [
            (RESOURCES[kind], name, pattern, principal_of(user), host, OPERATIONS[each], permission)
            for name in names
            for each in operations
        ]
    return made


def _wanted_by(operation: str) -> str:
    return "it is about " + " and ".join(f"{kind}=..." for kind in TOGETHER[operation])


# --- And back -----------------------------------------------------------------------------------------------

_RESOURCE_NAMES = {code: name for name, code in RESOURCES.items()}
_OPERATION_NAMES = {code: name for name, code in OPERATIONS.items()}


def _where(resource: str, name: str, pattern: int) -> str:
    if resource == "cluster":
        return "cluster=True"
    return f"{resource}={_quoted(name)}{', prefix=True' if pattern == PREFIXED else ''}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' if text.isprintable() else repr(text)


def rule_text(acl: Acl, *, undo: bool = False) -> str:
    """Return the call that makes the rule, or with `undo` the call that removes it."""
    kind, name, pattern, principal, host, operation, permission = acl
    said = "revoke" if undo else "allow" if permission == ALLOW else "deny"
    user, word = _quoted(principal.removeprefix("User:")), _quoted(_OPERATION_NAMES[operation])
    at = "" if host == "*" else f", host={_quoted(host)}"
    denied = ", denied=True" if undo and permission == DENY else ""
    return f"{said}({user}, {word}, {_where(_RESOURCE_NAMES[kind], name, pattern)}{at}{denied})"


def kafka_acls_text(acl: Acl, bootstrap: str, *, undo: bool = False) -> str:
    """Return the command that adds the ACL, or with `undo` the command that removes it."""
    kind, name, pattern, principal, host, operation, permission = acl
    said = "allow" if permission == ALLOW else "deny"
    words = ["kafka-acls.sh", "--bootstrap-server", bootstrap, "--command-config", "admin.properties"]
    words += ["--remove", "--force"] if undo else ["--add"]
    words += [f"--{said}-principal", principal]
    if host != "*":
        words += [f"--{said}-host", host]
    camel = "".join(part.capitalize() for part in _OPERATION_NAMES[operation].split("_"))
    words += ["--operation", camel]
    flag = {"user": "user-principal"}.get(_RESOURCE_NAMES[kind], _RESOURCE_NAMES[kind].replace("_", "-"))
    words += [f"--{flag}"] if flag == "cluster" else [f"--{flag}", name]
    if pattern == PREFIXED:
        words += ["--resource-pattern-type", "prefixed"]
    return shlex.join(words)


class Denial(NamedTuple):
    """A request that a broker denied. `str()` explains it.

    - `request`: the API, such as `Produce`. `operation`, `resource_type`, `resource`: `write`, `topic`, `orders`.
    - `principal`: who asked, such as `User:alice`. `host`: from which address. `listener`: at which listener.
    - `rule`: in Kafka's words. `acl`: the ACL that denies it; without one, no rule allows it.
    - `time_ms`: when, by the node's clock. `node`: at which node, if there are several.
    - `bootstrap`: the address that `command` connects to.
    """

    request: str
    principal: str
    host: str
    listener: str
    operation: str
    resource_type: str
    resource: str
    rule: str
    acl: Acl | None
    time_ms: int
    node: str
    bootstrap: str

    @property
    def _wanted(self) -> Acl:
        return (
            RESOURCES[self.resource_type],
            self.resource,
            LITERAL,
            self.principal,
            "*",
            OPERATIONS[self.operation],
            ALLOW,
        )

    @property
    def line(self) -> str:
        """The call, to write after the name of the test's broker, that would allow it."""
        if self.acl is not None:
            return rule_text(self.acl, undo=True)
        if self.resource_type in SUPPORTED:
            return rule_text(self._wanted)
        return ""

    @property
    def command(self) -> str:
        """The command of Kafka's tool that would allow it. `admin.properties` says how an administrator signs in."""
        if self.acl is not None:
            return kafka_acls_text(self.acl, self.bootstrap, undo=True)
        return kafka_acls_text(self._wanted, self.bootstrap)

    def __str__(self) -> str:
        what = "the cluster" if self.resource_type == "cluster" else f"{self.resource_type} {self.resource!r}"
        at = f" at {self.node}" if self.node else ""
        why = (
            "no rule allows it (DefaultDeny)"
            if self.acl is None
            else f"a rule denies it, and it wins over all that allow: {rule_text(self.acl)}"
        )
        whose = "cluster" if self.node else "broker"
        ways = [f"  {whose}.{self.line}"] if self.line else []
        return "\n".join(
            (
                f"{self.request} of {self.principal} from {self.host} was denied{at}: it needs "
                f"{self.operation.upper()} on {what}, and {why}.",
                "This would allow it:" if self.acl is None else "This would remove the denying rule:",
                *ways,
                f"  {self.command}",
            )
        )


# --- Asking the nodes -----------------------------------------------------------------------------------------

POLL_S = 0.005
IN_FORCE_TIMEOUT_S = 30.0


class Rights:
    """The rules of a broker or a cluster."""

    def __init__(self, decider: Callable[[], Asked], followers: Callable[[], Sequence[Asked]]) -> None:
        """`decider` is the node that decides on the metadata. `followers` are the nodes that must know the rules when a
        call returns."""
        self._decider = decider
        self._followers = followers

    def allow(self, acls: Sequence[Acl]) -> None:
        """Create the ACLs, of either permission. Raises ValueError if the controller refuses one."""
        for some in _some(acls):
            self._alter({"create": some})
        self._wait(present=acls)

    def revoke(self, acls: Sequence[Acl], *, hosts: bool, kinds: Sequence[int] = ()) -> None:
        """Remove the rules that match these ACLs; "all" stands for any operation. `hosts`: only rules for the ACLs'
        hosts. `kinds`: all rules about resources of these types, of either permission, whatever their names. Raises
        LookupError if no rule matches."""
        principal = acls[0][3]
        filters: list[Sequence[object]]
        if kinds:
            filters = [(kind, None, ANY, principal, None, ANY, ANY) for kind in kinds]
        else:
            filters = [
                (
                    kind,
                    name,
                    pattern,
                    who,
                    host if hosts else None,
                    ANY if each == OPERATIONS["all"] else each,
                    permission,
                )
                for kind, name, pattern, who, host, each, permission in acls
            ]
        removed = [each for some in _some(filters) for each in self._alter({"delete": some})]
        if not removed:
            raise LookupError(self._nothing_to_revoke(principal))
        self._wait(absent=removed)

    def _alter(self, wanted: Mapping[str, object]) -> Any:
        try:
            return self._decider().ask({"ask": "alter_acls", **wanted})
        except QuestionRefusedError as refusal:
            raise ValueError(str(refusal)) from None

    def _nothing_to_revoke(self, principal: str) -> str:
        known = self.of(principal)
        if not known:
            return f"{principal} has no rules to remove"
        ruled = ", ".join(map(rule_text, known))
        return (
            f"{principal} has no rule with just these words; its rules are {ruled}. "
            "deny(...) wins over what is allowed, and revoke(..., denied=True) removes it"
        )

    def of(self, principal: str) -> list[Acl]:
        """Return the rules of a principal."""
        return [tuple(each) for each in self._decider().ask({"ask": "acls", "principal": principal})]

    def add_users(self, passwords: Mapping[str, str]) -> None:
        """Add users who can sign in by SCRAM when the call returns."""
        for some in _some([*passwords]):
            self._decider().ask({"ask": "add_users", "users": {name: passwords[name] for name in some}})
            self._until({"ask": "users_known", "users": some})

    def _wait(self, *, present: Sequence[Acl] = (), absent: Sequence[Acl] = ()) -> None:
        for some in _some(present):
            self._until({"ask": "acls_in_force", "present": some})
        for some in _some(absent):
            self._until({"ask": "acls_in_force", "absent": some})

    def _until(self, question: Mapping[str, object]) -> None:
        """Wait until all followers know it."""
        deadline_s = time.monotonic() + IN_FORCE_TIMEOUT_S
        for node in self._followers():
            while not node.ask(question):
                if time.monotonic() > deadline_s:
                    raise BrokerError(f"{node} hasn't learned it within {IN_FORCE_TIMEOUT_S:g} s")
                time.sleep(POLL_S)


_T = TypeVar("_T")

AT_A_TIME = 100
"""The most ACLs or users in one question: a question has a size limit."""


def _some(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    for begin in range(0, len(items), AT_A_TIME):
        yield items[begin : begin + AT_A_TIME]


def denials(nodes: Iterable[tuple[str, Asked]], bootstrap: str) -> list[Denial]:
    """Return what the nodes have denied and still remember, the oldest first. Each node comes with its name."""
    found = []
    for name, node in nodes:
        number = 0
        while some := node.ask({"ask": "denials", "behind": number}):
            number = some[-1]["number"]
            found += [_denial(each, name, bootstrap) for each in some]
    return sorted(found, key=lambda each: each.time_ms)


def _denial(told: Mapping[str, Any], node: str, bootstrap: str) -> Denial:
    return Denial(
        told["request"],
        told["principal"],
        told["host"],
        told["listener"],
        told["operation"].lower(),
        told["resource_type"].lower(),
        told["resource"],
        told["rule"],
        None if told["acl"] is None else tuple(told["acl"]),
        told["time_ms"],
        node,
        bootstrap,
    )
