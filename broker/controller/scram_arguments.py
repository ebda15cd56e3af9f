"""Credentials as they are given when a folder is formatted: `SCRAM-SHA-256=[name=alice,password=secret]`.

Source: `ScramParser`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable

from broker.controller.scram_decisions import HASHES, MAX_ITERATIONS, MIN_ITERATIONS, derived_keys
from protocol.messages.metadata_records import UserScramCredentialRecord

_MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_DEFAULT_ITERATIONS = 4096


def credential(argument: str, new_salt: Callable[[], bytes]) -> UserScramCredentialRecord:
    """Raises ValueError, which says nothing of a password."""
    mechanism, equals, given = argument.strip().partition("=")
    if not equals:
        raise ValueError(f"Failed to find equals sign in SCRAM argument '{mechanism}'")
    if mechanism not in _MECHANISMS:
        raise ValueError(f"The add-scram mechanism {mechanism} is not supported.")
    if not given.startswith("["):
        raise ValueError("Expected configuration string to start with [")
    if not given.endswith("]"):
        raise ValueError("Expected configuration string to end with ]")
    parts = dict(_part(part) for part in given[1:-1].split(","))
    name = parts.pop("name", None)
    if name is None:
        raise ValueError("You must supply 'name' to add-scram")
    said_salt = parts.pop("salt", None)
    salt = new_salt() if said_salt is None else _decoded("salt", said_salt)
    iterations = _iterations(parts.pop("iterations", str(_DEFAULT_ITERATIONS)), mechanism)
    password, salted = parts.pop("password", None), parts.pop("saltedpassword", None)
    if password is None and salted is None:
        raise ValueError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    if password is None and said_salt is None:
        raise ValueError("You must supply 'salt' with 'saltedpassword' to add-scram")
    if parts:
        raise ValueError(f"Unknown SCRAM configurations: {', '.join(sorted(parts))}")
    number = _MECHANISMS[mechanism]
    if password is None:
        assert salted is not None
        salted_password = _decoded("saltedPassword", salted)
    else:
        salted_password = hashlib.pbkdf2_hmac(HASHES[number], password.encode(), salt, iterations)
    stored_key, server_key = derived_keys(number, salted_password)
    return UserScramCredentialRecord(
        name=name,
        mechanism=number,
        salt=salt,
        stored_key=stored_key,
        server_key=server_key,
        iterations=iterations,
    )


def _part(part: str) -> tuple[str, str]:
    name, equals, value = part.partition("=")
    if not equals:
        raise ValueError("No equals sign found in SCRAM component")
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = value[1:-1]
    return name, value


def _decoded(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError(f"Failed to decode given {name}") from None


def _iterations(text: str, mechanism: str) -> int:
    try:
        iterations = int(text)
    except ValueError:
        raise ValueError(f"Failed to parse iterations count: {text}") from None
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        bound = f">= {MIN_ITERATIONS}" if iterations < MIN_ITERATIONS else f"<= {MAX_ITERATIONS}"
        raise ValueError(f"The 'iterations' value must be {bound} for add-scram using {mechanism}")
    return iterations
