"""Tokens for tests of OAUTHBEARER: signed by an issuer that serves its keys over HTTP, and Kafka's unsecured ones.

    with TokenIssuer() as issuer:
        issuer.jwks_url, issuer.token("alice")

Signing needs `joserfc`, of the extra `security`; unsecured tokens need nothing.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ALGORITHMS = ("ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
_RSA_BITS = 2048
_MOST_KEYS = 8
_CONNECTION_S = 10


def unsecured_token(user: str, *, lifetime: float = 3600, **claims: Any) -> str:
    """A token without a signature (`alg` none). Kafka accepts these if no callback handler is set.

    `lifetime` is in seconds from now. Your claims win over `sub`, `iat` and `exp`; None leaves one out.
    """
    header, body = ({"alg": "none"}, _claims(user, lifetime, claims))
    return ".".join((_encoded(header), _encoded(body), ""))


def _claims(user: str, lifetime: float, claims: dict[str, Any]) -> dict[str, Any]:
    now = time.time()
    body = {"sub": user, "iat": int(now), "exp": int(now + lifetime), **claims}
    return {name: value for name, value in body.items() if value is not None}


def _encoded(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


class TokenIssuer:
    """Signs tokens. Until it is closed, it serves the keys that verify them at `jwks_url`, on a loopback port."""

    def __init__(
        self, *, algorithm: str = "ES256", issuer: str | None = None, audience: str | list[str] | None = None
    ) -> None:
        """Each token has `issuer` and `audience`, as `iss` and `aud`. Raises ValueError if the algorithm isn't one of
        ALGORITHMS, and ModuleNotFoundError without the extra `security`."""
        if algorithm not in ALGORITHMS:
            raise ValueError(f"{algorithm!r} isn't one of {', '.join(ALGORITHMS)}")
        try:
            import joserfc  # noqa: F401
        except ModuleNotFoundError as error:
            error.add_note("Signed tokens need joserfc: pip install 'barnabas[security]'")
            raise
        self._algorithm = algorithm
        self._standing: dict[str, Any] = {"iss": issuer, "aud": audience}
        self._keys: list[Any] = []
        self._made = 0
        self.served = 0  # how often the keys were fetched
        self.rotate()
        issuing = self

        class Handler(BaseHTTPRequestHandler):
            timeout = _CONNECTION_S

            def do_GET(self) -> None:
                body = json.dumps(issuing.jwks()).encode()
                issuing.served += 1
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Print nothing: this server belongs to a test."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.jwks_url = f"http://127.0.0.1:{self._server.server_port}/jwks"

    def jwks(self) -> dict[str, Any]:
        """The public parts of its keys, as they are served, the newest first."""
        return {"keys": [key.as_dict(private=False) for key in self._keys]}

    def token(self, user: str, *, lifetime: float = 3600, **claims: Any) -> str:
        """A signed token for the user, which lasts `lifetime` seconds from now.

        Your claims win over `sub`, `iat`, `exp`, `iss` and `aud`; None leaves one out.
        """
        from joserfc import jwt

        key = self._keys[0]
        header = {"alg": self._algorithm, "typ": "JWT", "kid": key.kid}
        body = _claims(user, lifetime, {**self._standing, **claims})
        signed: str = jwt.encode(header, body, key, algorithms=[self._algorithm])
        return signed

    def expired_token(self, user: str, **claims: Any) -> str:
        """A token that ended an hour ago, which is more than clocks differ."""
        now = int(time.time())
        return self.token(user, **{"iat": now - 7200, "exp": now - 3600, **claims})

    def rotate(self, *, keep: bool = False) -> None:
        """Sign with a new key from now on. `keep`: also serve the old ones, at most eight keys in all."""
        from joserfc.jwk import ECKey, RSAKey

        self._made += 1
        parameters: Any = {"use": "sig", "alg": self._algorithm, "kid": f"key-{self._made}"}
        curve = _CURVES.get(self._algorithm)
        fresh: Any = (
            ECKey.generate_key(curve, parameters) if curve else RSAKey.generate_key(_RSA_BITS, parameters)
        )
        self._keys = [fresh, *(self._keys if keep else [])][:_MOST_KEYS]

    def close(self) -> None:
        """Stop serving the keys."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> TokenIssuer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
