"""Security of a test's broker: who may sign in, at which listener, and what a client needs for that."""

from __future__ import annotations

import os
import re
import secrets
import weakref
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.certificates import Certificates, kept_certificates, write_file
from barnabas.client_configs import LIBRARIES, PLAIN_MODULE, Access, jaas_quoted

if TYPE_CHECKING:
    from barnabas.tokens import TokenIssuer

PROTOCOLS = {
    "plaintext": "PLAINTEXT",
    "ssl": "SSL",
    "sasl_plaintext": "SASL_PLAINTEXT",
    "sasl_ssl": "SASL_SSL",
}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
BY_TOKEN = "OAUTHBEARER"  # noqa: S105 - a name

ADMIN = "barnabas-admin"
"""The user who may do everything. Each broker draws a password for it."""

NODE = "barnabas-node"
"""The user as whom the nodes of a cluster sign in to each other."""

_AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}

SET_BY_SECURITY = frozenset(
    (
        "advertised.listeners",
        "authorizer.class.name",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "sasl.enabled.mechanisms",
        "sasl.mechanism.controller.protocol",
        "sasl.mechanism.inter.broker.protocol",
        "security.inter.broker.protocol",
        "super.users",
    )
)

WRONGS = {
    "password": "another password",
    "ca": "it trusts another authority than the broker's",
    "expired_certificate": "its own certificate, which has expired",
    "foreign_certificate": "its own certificate, signed by an authority that the broker doesn't trust",
    "no_certificate": "no certificate",
    "expired_token": "a token that has expired",
}
"""What can be wrong in a client config."""

_USER = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_TOKEN_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"  # noqa: S105
_TOKEN_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"  # noqa: S105
_AUDIENCE, _ISSUER = "barnabas", "barnabas-tests"


def protocol_of(security: str) -> str:
    """Return Kafka's name of a security protocol. Raises ValueError."""
    known = PROTOCOLS.get(security.lower()) if isinstance(security, str) else None
    if known is None:
        raise ValueError(f"security={security!r}: it can be {', '.join(PROTOCOLS)}")
    return known


class Security:
    """The security of a broker or a cluster, across all its starts."""

    def __init__(
        self,
        security: str,
        users: Mapping[str, str] | Iterable[str] | None,
        hosts: Sequence[str],
        *,
        tokens: bool = False,
    ) -> None:
        """`hosts` are the names by which clients may know the brokers. `tokens`: clients may also sign in by token.
        Raises ValueError, and RuntimeError if a certificate or a token has to be made and the extra isn't installed."""
        self.protocol = protocol_of(security)
        self.signs_in = self.protocol.startswith("SASL_")
        self.is_encrypted = self.protocol.endswith("SSL")
        self.users = self._users_of(users)
        self._takes_tokens = tokens
        self._issuer: TokenIssuer | None = None
        if tokens:
            if not self.signs_in:
                raise ValueError(f"tokens=True: a {self.protocol} listener has no sign-in")
            _check_can_sign()
        self._admin_password = secrets.token_urlsafe(24)
        self._node_password = secrets.token_urlsafe(24)
        self._hosts = [host for host in hosts if host not in ("", "0.0.0.0", "::")]  # noqa: S104 - told apart
        self._certificates: Certificates | None = None
        if self.is_encrypted:
            self.certificates.server(self._hosts)

    def _users_of(self, users: Mapping[str, str] | Iterable[str] | None) -> dict[str, str]:
        """Return the users' passwords. Draws one for each user without."""
        if users is None:
            return {}
        if isinstance(users, str):
            raise TypeError(
                f'users={users!r}: give a dict of passwords by name, such as {{"alice": "secret"}}'
            )
        given = (
            dict(users) if isinstance(users, Mapping) else {user: secrets.token_urlsafe(12) for user in users}
        )
        if given and self.protocol == "PLAINTEXT":
            raise ValueError(
                'security="plaintext" has no users: everybody is ANONYMOUS. Use broker.allow("ANONYMOUS", ...) '
                "to allow something"
            )
        for user, password in given.items():
            if not isinstance(user, str) or not _USER.fullmatch(user):
                raise ValueError(
                    f"{user!r}: a user's name consists of ASCII letters, digits and . _ @ - (64 at most)"
                )
            if user in (ADMIN, NODE):
                raise ValueError(f"the broker reserves the user {user}")
            if not isinstance(password, str) or not password or not password.isprintable():
                raise ValueError(f"the password of {user} has to be a text without control characters")
        return given

    def check_user(self, user: str) -> None:
        """Raise ValueError for a user who can't sign in: a rule for it would have no effect. With tokens anybody
        can."""
        known = [*self.users, "ANONYMOUS", "*"]
        if isinstance(user, str) and user and user not in known and not user.startswith("User:"):
            if self._takes_tokens:
                return
            among = ", ".join(self.users) or "none"
            raise ValueError(
                f"{user!r} is no user of this broker; its users={{...}} are {among}. For one that was made "
                f"otherwise, write {'User:' + user!r}"
            )

    @property
    def certificates(self) -> Certificates:
        """The certificates of its brokers and users."""
        if self._certificates is None:
            self._certificates = kept_certificates()
        return self._certificates

    # --- the broker's side ----------------------------------------------------------------------------------

    def settings(self, data: Path) -> dict[str, str]:
        """Return the settings of a broker with this folder, for the listener for clients. The listener is named after
        its protocol."""
        listener = f"listener.name.{self.protocol.lower()}"
        told = {**_AUTHORIZER, "super.users": f"User:{ADMIN}"}
        if self.signs_in:
            told |= self._sign_in_settings(listener)
        if self.is_encrypted:
            file = self.key_file(data)
            told |= {
                f"{listener}.ssl.keystore.type": "PEM",
                f"{listener}.ssl.keystore.location": str(file),
                f"{listener}.ssl.truststore.type": "PEM",
                f"{listener}.ssl.truststore.location": str(self.certificates.authority),
            }
            if not self.signs_in:
                told[f"{listener}.ssl.client.auth"] = "required"
                told[f"{listener}.ssl.principal.mapping.rules"] = "RULE:^CN=([^,]+).*$/$1/,DEFAULT"
        return told

    def settings_between_nodes(self, *listeners: str) -> dict[str, str]:
        """Return a cluster node's settings for the listeners between nodes, where nodes sign in."""
        told = {
            **_AUTHORIZER,
            "super.users": f"User:{ADMIN};User:{NODE}",
            "sasl.enabled.mechanisms": ",".join(self._mechanisms),
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
        }
        password = jaas_quoted(self._node_password)
        for each in listeners:
            told[f"listener.name.{each.lower()}.sasl.enabled.mechanisms"] = "PLAIN"
            told[f"listener.name.{each.lower()}.plain.sasl.jaas.config"] = (
                f'{PLAIN_MODULE} required username="{NODE}" password={password} user_{NODE}={password};'
            )
        return told

    def _sign_in_settings(self, listener: str) -> dict[str, str]:
        options = "".join(
            f" user_{user}={jaas_quoted(password)}"
            for user, password in {ADMIN: self._admin_password, **self.users}.items()
        )
        told = {
            "sasl.enabled.mechanisms": ",".join(self._mechanisms),
            f"{listener}.plain.sasl.jaas.config": f"{PLAIN_MODULE} required{options};",
        }
        if self._takes_tokens:
            prefix = f"{listener}.oauthbearer"
            told |= {
                f"{prefix}.sasl.jaas.config": f"{_TOKEN_MODULE} required;",
                f"{prefix}.sasl.server.callback.handler.class": _TOKEN_HANDLER,
                f"{prefix}.sasl.oauthbearer.jwks.endpoint.url": self.issuer.jwks_url,
                f"{prefix}.sasl.oauthbearer.expected.audience": _AUDIENCE,
                f"{prefix}.sasl.oauthbearer.expected.issuer": _ISSUER,
            }
        return told

    @property
    def _mechanisms(self) -> tuple[str, ...]:
        return (*MECHANISMS, BY_TOKEN) if self._takes_tokens else MECHANISMS

    # --- tokens ---------------------------------------------------------------------------------------------

    @property
    def issuer(self) -> TokenIssuer:
        """The issuer, from the first use until `close()`, or as long as this object lives. Raises ValueError without
        tokens."""
        if not self._takes_tokens:
            raise ValueError("tokens need a broker with tokens=True")
        if self._issuer is None:
            from barnabas.tokens import TokenIssuer

            self._issuer = TokenIssuer(issuer=_ISSUER, audience=_AUDIENCE)
            self._end_issuer = weakref.finalize(self, _end_issuer, self._issuer, os.getpid())
        return self._issuer

    def close(self) -> None:
        """Stop verifying tokens until the next start."""
        if self._issuer is not None:
            self._end_issuer()
            self._issuer = None

    def key_file(self, data: Path) -> Path:
        """Return the file with the broker's own key and certificate, in its data folder. It can be replaced while the
        broker runs."""
        file = data / "server.pem"
        if not _is_own(file, self.certificates.authority):
            data.mkdir(parents=True, exist_ok=True)
            write_file(file, self.certificates.server(self._hosts).read_bytes())
        return file

    def rotate(self, data: Path, *, expired: bool) -> None:
        """Write another key and certificate to its file. Raises ValueError if it has none."""
        if not self.is_encrypted:
            raise ValueError(f"a {self.protocol} listener has no certificate")
        self.certificates.new_server(self.key_file(data), self._hosts, is_expired=expired)

    def passwords(self) -> dict[str, str]:
        """Return the passwords of those who can sign in by SCRAM."""
        return {ADMIN: self._admin_password, **self.users} if self.signs_in else {}

    # --- a client's side ------------------------------------------------------------------------------------

    def client_config(
        self,
        bootstrap: str,
        user: str | None,
        library: str,
        mechanism: str | None,
        wrong: str | None,
    ) -> Any:
        """Raises ValueError for unknown arguments."""
        make = LIBRARIES.get(library)
        if make is None:
            raise ValueError(f"library={library!r}: it can be {', '.join(LIBRARIES)}")
        return make(self._access(bootstrap, user, mechanism, wrong))

    def _access(self, bootstrap: str, user: str | None, mechanism: str | None, wrong: str | None) -> Access:
        if wrong is not None:
            self._check_wrong(wrong)
        name = ADMIN if user is None else user
        passwords = {ADMIN: self._admin_password, **self.users}
        if self.protocol == "PLAINTEXT":
            if user not in (None, "ANONYMOUS"):
                raise ValueError(f'at security="plaintext" there is no {user!r}: everybody is ANONYMOUS')
        elif name not in passwords:
            known = ", ".join(map(repr, self.users)) or "none"
            raise ValueError(f"there is no user {name!r}; there are {known}, and without a name {ADMIN!r}")
        access = Access(bootstrap, self.protocol)
        if self.signs_in:
            access.mechanism = self._mechanism(mechanism, wrong)
            access.user, access.password = name, passwords[name]
            if wrong == "password":
                access.password += "-wrong"
            if access.mechanism == BY_TOKEN:
                issued = self.issuer
                access.token = partial(
                    issued.expired_token if wrong == "expired_token" else issued.token, name
                )
        elif mechanism is not None:
            raise ValueError(f"mechanism={mechanism!r}: a {self.protocol} listener has no sign-in")
        if self.is_encrypted:
            self._add_certificates(access, name, wrong)
        return access

    def _check_wrong(self, wrong: str) -> None:
        if wrong not in WRONGS:
            raise ValueError(f"wrong={wrong!r}: it can be {', '.join(WRONGS)}")
        has_it = {"password": self.signs_in, "expired_token": self._takes_tokens, "ca": self.is_encrypted}
        if not has_it.get(wrong, self.protocol == "SSL"):
            raise ValueError(f"wrong={wrong!r}: clients of a {self.protocol} listener have nothing like that")

    def _mechanism(self, mechanism: str | None, wrong: str | None) -> str:
        if mechanism is None:
            return BY_TOKEN if wrong == "expired_token" else MECHANISMS[0]
        known = mechanism.upper()
        if known not in self._mechanisms:
            more = "" if known != BY_TOKEN else ", and OAUTHBEARER if the broker has tokens=True"
            raise ValueError(f"mechanism={mechanism!r}: it can be {', '.join(self._mechanisms)}{more}")
        if wrong == ("password" if known == BY_TOKEN else "expired_token"):
            raise ValueError(f"wrong={wrong!r}: sign-in by {known} doesn't use that")
        return known

    def _add_certificates(self, access: Access, user: str, wrong: str | None) -> None:
        kept = self.certificates
        access.ca = kept.authority
        if wrong == "ca":
            access.ca = kept_certificates(stranger=True).authority
        if self.protocol != "SSL" or wrong == "no_certificate":
            return
        if wrong == "expired_certificate":
            access.keys = kept.expired(user)
        elif wrong == "foreign_certificate":
            access.keys = kept_certificates(stranger=True).client(user)
        else:
            access.keys = kept.client(user)


def _check_can_sign() -> None:
    from importlib.util import find_spec

    if find_spec("joserfc") is None:
        raise RuntimeError(
            "tokens=True needs the package joserfc, which isn't installed: pip install 'barnabas[security]'"
        )


def _end_issuer(issuer: TokenIssuer, maker_pid: int) -> None:
    if os.getpid() == maker_pid:  # the thread that would end isn't in a forked process
        issuer.close()


def properties_text(settings: Mapping[str, str]) -> str:
    """Return the settings as the text of a .properties file."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return "\\" + text if text.startswith(" ") else text


def _is_own(file: Path, authority: Path) -> bool:
    """True if this authority signed it. The authority's certificate is at the file's end."""
    try:
        return file.read_bytes().endswith(authority.read_bytes())
    except OSError:
        return False
