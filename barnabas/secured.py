"""What a broker and a cluster share for tests of security: users, rights, denials, certificates."""

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
    """Methods by which a test sets rights, and asks why something was denied."""

    _security: Security | None

    @property
    @abc.abstractmethod
    def bootstrap(self) -> str:
        """`host:port` for a client's bootstrap servers."""

    @abc.abstractmethod
    def _followers(self) -> Sequence[Asked]:
        """The brokers that clients ask, as far as they can be reached."""

    # --- who may sign in ------------------------------------------------------------------------------------

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
        """What a client of this library needs to connect as this user. It is a dict, for `franz-go` the text of a Go
        file, for `kcat` a list of arguments. Without a user it is for an administrator, who may do everything.

        mechanism: of SASL. PLAIN is the default; also SCRAM-SHA-256, SCRAM-SHA-512, and OAUTHBEARER with tokens=True.
        wrong: makes it wrong: "password", "ca" (it doesn't trust the broker), "expired_certificate",
            "foreign_certificate" (the broker doesn't trust it), "no_certificate" or "expired_token".

        Raises ValueError for an unknown user, library or mechanism.
        """
        if self._security is not None:
            return self._security.client_config(self.bootstrap, user, library, mechanism, wrong)
        from barnabas.security import Security

        return Security("plaintext", None, ()).client_config(self.bootstrap, user, library, mechanism, wrong)

    def token(self, user: str, *, lifetime: float = 3600, **claims: Any) -> str:
        """A signed token, with which a client signs in as this user (OAUTHBEARER). It lasts `lifetime` seconds.
        `claims` replace its own claims. Raises ValueError unless the broker has tokens=True."""
        return self._token_issuer().token(user, lifetime=lifetime, **claims)

    def expired_token(self, user: str, **claims: Any) -> str:
        """The same as `token`, but it has expired."""
        return self._token_issuer().expired_token(user, **claims)

    def _token_issuer(self) -> TokenIssuer:
        if self._security is None:
            raise ValueError("tokens need a broker with security=... and tokens=True")
        return self._security.issuer

    def _add_users(self) -> None:
        """Add the users of `security` for SCRAM, after the start and before anybody learns the address."""
        if self._security is not None:
            self._rights().add_users(self._security.passwords())

    def _let_go_of_tokens(self) -> None:
        if self._security is not None:
            self._security.close()

    # --- what they may do -----------------------------------------------------------------------------------

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
        """Let a user do something. It holds when the call returns, on all brokers that run and can be reached.

        user: "*" is everybody.
        operation: "read", "write", "create", "delete", "alter", "describe", "describe_configs", "alter_configs",
            "cluster_action", "idempotent_write", "two_phase_commit" or "all"; or for several at once "produce"
            (write, describe and create) and "consume" (read and describe, and read of the group).
        topic, group, transactional_id: names, or "*" for all. cluster=True is the cluster as a whole. Without any of
            them, "all", "produce" and "consume" are for everything.
        prefix: each name is the beginning of names.
        host: an address, or a range of them ("10.0.0.0/8").

        Raises ValueError for an unknown word or user, and lists the known ones. `User:...` is a principal as in ACLs,
        and needn't be known.
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
        """Forbid a user something. It takes what `allow` takes, and wins over every rule that allows."""
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
        """Remove the rule that `allow` made with the same words, or with `denied` the rule of `deny`. "all" removes
        every such rule of the user about the names given. With no names, it removes all rules of the user, of both
        kinds.

        Raises LookupError if there is no such rule. What "all" allows isn't removed by "write": use `deny` for that.
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

    # --- what was denied ------------------------------------------------------------------------------------

    @property
    def denials(self) -> list[Denial]:
        """The last 100 denials of each node since its start, the oldest first."""
        from barnabas.rights import denials

        return denials(self._named_nodes(), self.bootstrap)

    def explain_denial(self) -> str:
        """The last denial in words: which request it was, who asked, from where and for what, and which rule denied it.
        It also has the line of a test, and the command of Kafka's tool, that would allow it."""
        found = self.denials
        return str(found[-1]) if found else "nothing was denied since the start"
