"""Who may use the console, and what a browser may do with its answers.

A foreign page that is open in the same browser can send requests to this machine, even by a name of its own
(`broker.http.host_names`). So `Host` must be a name of this console, `Origin` must be the console's own, and requests
that change something need a header that no other page may send. From other machines they also need a token.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker.http.host_names import LOOPBACK_NAMES, host_name

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
        " object-src 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Headers of each answer. They allow scripts only from the console's own files, and nothing else."""
OWN_HEADER: Final = "x-barnabas"
"""A page of another origin may not send it without permission, and no page has that."""


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach the host."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def cookie_name(host: str) -> str:
    """The name of the token's cookie, by the header `Host`. A browser sends the cookies of a host to all of its ports:
    without the port, two consoles on one machine would take each other's."""
    return f"barnabas-console-{host.rpartition(':')[2]}"


@dataclass(frozen=True)
class Guard:
    """`token` is "" if none is needed. `names` are the console's hosts beside those of this machine."""

    host: str
    token: str
    names: tuple[str, ...] = ()

    def refuses(
        self, method: str, headers: Mapping[str, str], cookies: Mapping[str, str]
    ) -> tuple[int, str] | None:
        """Return the status and the reason of a refusal, or None if the request may pass."""
        host = headers.get("host", "")
        if not self._knows(host_name(host)):
            return 421, f"{host!r} isn't a name of this console (--name adds one)"
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return 403, "another page's requests are refused"
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return 403, "another page's requests are refused"
        if method not in ("GET", "HEAD"):
            if method != "POST":
                return 405, "only GET and POST are supported"
            if origin is None or OWN_HEADER not in headers:
                return 403, "only the console's own page may request changes"
        if self.token and not self._has_token(host, headers, cookies):
            return 401, "a token is needed: open the address that the console printed when it started"
        return None

    def is_token(self, given: str) -> bool:
        """Compare in constant time."""
        return bool(self.token) and hmac.compare_digest(given.encode(), self.token.encode())

    def _has_token(self, host: str, headers: Mapping[str, str], cookies: Mapping[str, str]) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.is_token(given.strip()):
            return True
        return self.is_token(cookies.get(cookie_name(host), ""))

    def _knows(self, host: str) -> bool:
        """An IP address can't be made to point elsewhere, so any address will do if a token is needed."""
        own = (*LOOPBACK_NAMES, self.host, f"[{self.host}]", *self.names)
        return host in map(str.lower, own) or (bool(self.token) and _is_address(host))
