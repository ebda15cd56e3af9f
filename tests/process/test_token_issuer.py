"""The issuer that signs tokens for tests of OAUTHBEARER."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from barnabas.tokens import ALGORITHMS, TokenIssuer, unsecured_token

ROOT = Path(__file__).parents[2]


def claims_of(token: str) -> dict[str, Any]:
    body = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return claims


def fetched(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=10) as answer:
        keys: dict[str, Any] = json.load(answer)
    return keys


def test_an_unsecured_token_needs_no_package() -> None:
    program = (
        "import sys; sys.modules['joserfc'] = None\n"
        "from barnabas.tokens import unsecured_token; print(unsecured_token('alice', lifetime=60, scope='a', iat=None))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    header, _, signature = run.stdout.strip().split(".")
    assert (json.loads(base64.urlsafe_b64decode(header + "==")), signature) == ({"alg": "none"}, "")
    claims = claims_of(run.stdout.strip())
    assert (claims["sub"], claims["scope"], "iat" in claims) == ("alice", "a", False)
    assert 0 < claims["exp"] - time.time() <= 60
    assert claims_of(unsecured_token("bob"))["iat"] <= time.time()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_issuers_keys_verify_its_tokens(algorithm: str) -> None:
    jwt = pytest.importorskip("joserfc.jwt", reason="needs joserfc, of the extra `security`")
    jwk = pytest.importorskip("joserfc.jwk")
    with TokenIssuer(algorithm=algorithm, issuer="https://idp", audience="kafka") as issuer:
        keys = fetched(issuer.jwks_url)
        assert all("d" not in key for key in keys["keys"]), "a private key"
        verified = jwt.decode(
            issuer.token("alice", scope=["a"]), jwk.KeySet.import_key_set(keys), algorithms=[algorithm]
        )
        assert verified.claims["sub"] == "alice"
        assert (verified.claims["iss"], verified.claims["aud"]) == ("https://idp", "kafka")
        assert claims_of(issuer.expired_token("alice"))["exp"] < time.time() - 3000


def test_an_issuer_rotates_its_key_and_ends() -> None:
    pytest.importorskip("joserfc", reason="needs joserfc, of the extra `security`")
    with TokenIssuer() as issuer:
        first = fetched(issuer.jwks_url)["keys"]
        issuer.rotate(keep=True)
        assert fetched(issuer.jwks_url)["keys"][1:] == first
        issuer.rotate()
        [only] = fetched(issuer.jwks_url)["keys"]
        assert only not in first
        assert issuer.served == 3
    with pytest.raises(OSError, match="refused"):
        fetched(issuer.jwks_url)


def test_an_algorithm_that_signs_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="isn't one of"):
        TokenIssuer(algorithm="none")
