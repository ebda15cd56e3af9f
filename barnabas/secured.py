"""What a broker and a cluster have in common for tests of security: users, rights, denials, certificates."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, Literal, overload

from barnabas.child import Asked, OfNodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.rights import Acl, Denial, Rights
    from barnabas.security import Security
    from barnabas.tokens import TokenIssuer

Library = Literal[
    "confluent-kafka", "kafka-python", "aiokafka", "java", "spark", "franz-go", "kafkajs", "kcat"
]


class Secured(OfNodes):
    """The methods by which a test says who may do what, and asks why somebody may not."""

    _security: Security | None

    @property
    @abc.abstractmethod
    def bootstrap(self) -> str:
        """`host:port` for a client's bootstrap servers."""

    @abc.abstractmethod
    def _followers(self) -> Sequence[Asked]:
        """The brokers that clients ask, as far as they can be told of anything."""

    # --- who ------------------------------------------------------------------------------------------------

    @overload
    def client_config(
        self,
        user: str | None = None,
        library: Literal["confluent-kafka", "kafka-python", "aiokafka", "java", "spark", "kafkajs"] = ...,
        mechanism: str | None = None,
        *,
        wrong: str | None = None,
    ) -> dict[str, Any]: ...
    @overload
    def client_config(
        self,
        user: str | None = None,
        library: Literal["franz-go"] = ...,
        mechanism: str | None = None,
        *,
        wrong: str | None = None,
    ) -> str: ...
    @overload
    def client_config(
        self,
        user: str | None = None,
        library: Literal["kcat"] = ...,
        mechanism: str | None = None,
        *,
        wrong: str | None = None,
    ) -> list[str]: ...
    def client_config(
        self,
        user: str | None = None,
        library: Library = "confluent-kafka",
        mechanism: str | None = None,
        *,
        wrong: str | None = None,
    ) -> Any:
        """What a client of this library takes to come in as this user, or without one as an administrator who may do
        everything: a dict, for `franz-go` a file of Go, for `kcat` a list of arguments.

        mechanism: of SASL: PLAIN, where nothing else is said, SCRAM-SHA-256 or SCRAM-SHA-512, and with tokens=True
            OAUTHBEARER.
        wrong: what is to be wrong with it: "password", "ca" (it doesn't trust the broker), "expired_certificate",
            "foreign_certificate" (that the broker doesn't trust), "no_certificate" or "expired_token".

        Raises ValueError for a user, library or mechanism that there isn't.
        """
        if self._security is not None:
            return self._security.client_config(self.bootstrap, user, library, mechanism, wrong)
        from barnabas.security import Security

        return Security("plaintext", None, ()).client_config(self.bootstrap, user, library, mechanism, wrong)

    def token(self, user: str, *, lifetime: float = 3600, **claims: Any) -> str:
        """A signed token, by which a client signs in as this user (OAUTHBEARER) for so many seconds; `claims` stand in
        it, in place of those that would. Raises ValueError but for a broker with tokens=True."""
        return self._token_issuer().token(user, lifetime=lifetime, **claims)

    def expired_token(self, user: str, **claims: Any) -> str:
        """As `token`, and its time is over."""
        return self._token_issuer().expired_token(user, **claims)

    def _token_issuer(self) -> TokenIssuer:
        if self._security is None:
            raise ValueError("who signs in by a token needs a broker with security=... and tokens=True")
        return self._security.issuer

    def _add_users(self) -> None:
        """Those that `security` says, by SCRAM: where it has begun, and before anybody knows where it is."""
        if self._security is not None:
            self._rights().add_users(self._security.passwords())

    def _let_go_of_tokens(self) -> None:
        if self._security is not None:
            self._security.close()

    # --- may do what ----------------------------------------------------------------------------------------

    def allow(
        self,
        user: str,
        operation: str,
        *,
        topic: str | Iterable[str] | None = None,
        group: str | Iterable[str] | None = None,
        transactional_id: str | Iterable[str] | None = None,
        cluster: bool = False,
        prefix: bool = False,
        host: str = "*",
    ) -> None:
        """Let a user do something; it holds when the call returns, on all brokers that run and can be reached.

        user: "*" is everybody.
        operation: "read", "write", "create", "delete", "alter", "describe", "describe_configs", "alter_configs",
            "cluster_action", "idempotent_write", "two_phase_commit" or "all"; or for several at once "produce"
            (write, describe and create) and "consume" (read and describe, and read of the group).
        topic, group, transactional_id: names, or "*" for all. cluster=True is the cluster as a whole. "all",
            "produce" and "consume" without any of them are for all that there is.
        prefix: the names are beginnings of names.
        host: an address, or a range of them ("10.0.0.0/8").

        Raises ValueError for a word or a user that there isn't, naming those that there are. `User:...` is a principal
        as ACLs have it, and not looked up.
        """
        from barnabas.rights import ALLOW

        given = {"topic": topic, "group": group, "transactional_id": transactional_id, "cluster": cluster}
        self._rule(user, operation, ALLOW, given, prefix=prefix, host=host)

    def deny(
        self,
        user: str,
        operation: str,
        *,
        topic: str | Iterable[str] | None = None,
        group: str | Iterable[str] | None = None,
        transactional_id: str | Iterable[str] | None = None,
        cluster: bool = False,
        prefix: bool = False,
        host: str = "*",
    ) -> None:
        """As `allow`, and goes before all that allows."""
        from barnabas.rights import DENY

        given = {"topic": topic, "group": group, "transactional_id": transactional_id, "cluster": cluster}
        self._rule(user, operation, DENY, given, prefix=prefix, host=host)

    def revoke(
        self,
        user: str,
        operation: str = "all",
        *,
        topic: str | Iterable[str] | None = None,
        group: str | Iterable[str] | None = None,
        transactional_id: str | Iterable[str] | None = None,
        cluster: bool = False,
        prefix: bool = False,
        host: str | None = None,
        denied: bool = False,
    ) -> None:
        """Take back what `allow` said in the same words, or with `denied` what `deny` said. "all" takes back every such
        rule of the user about what is named, or, where nothing is, every rule of the user, of either kind.

        Raises LookupError where there is no such rule: what "all" allows isn't taken back by "write", for which there
        is `deny`.
        """
        from barnabas.rights import ALLOW, DENY, RESOURCES, acls

        given = {"topic": topic, "group": group, "transactional_id": transactional_id, "cluster": cluster}
        permission = DENY if denied else ALLOW
        said = acls(user, operation, permission, given, prefix=prefix, host="*" if host is None else host)
        is_all = operation == "all" and not any(given.values())
        kinds = list(RESOURCES.values()) if is_all else ()
        self._rights().revoke(said, hosts=host is not None, kinds=kinds)

    def _rule(
        self,
        user: str,
        operation: str,
        permission: int,
        given: Mapping[str, str | Iterable[str] | bool | None],
        *,
        prefix: bool,
        host: str,
    ) -> None:
        from barnabas.rights import acls

        if self._security is not None:
            self._security.check_user(user)
        made: list[Acl] = acls(user, operation, permission, given, prefix=prefix, host=host)
        self._rights().allow(made)

    def _rights(self) -> Rights:
        from barnabas.rights import Rights

        return Rights(self._decider, self._followers)

    # --- and why not ----------------------------------------------------------------------------------------

    @property
    def denials(self) -> list[Denial]:
        """What was denied since the start, the last 100 of each node, the oldest first."""
        from barnabas.rights import denials

        return denials(self._named_nodes(), self.bootstrap)

    def explain_denial(self) -> str:
        """Of the last denial which request it was, who asked, from where, and for what, by which rule it was denied,
        and the line of a test and the command of Kafka's that would let it through."""
        found = self.denials
        return str(found[-1]) if found else "nothing was denied since the start"
