"""Users' SCRAM credentials (KIP-554): a request and the image become records, or an error.

Pure functions (Kafka: `ScramControlManager`, `ScramImage`). The records never hold a password: only keys
derived from it, with salt and iterations.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Container, Sequence
from typing import TypeAlias

from broker.controller.image import ClusterImage
from broker.security.sasl import MIN_ITERATIONS, ScramCredential
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.messages.security import ScramCredentialDeletion, ScramCredentialUpsertion
from protocol.waiting import Pause, turn
from protocol.wire.schema import Message

# mechanism → its hash (ScramMechanism)
HASHES = {1: "sha256", 2: "sha512"}
MAX_ITERATIONS = 16384

_TWICE = "A user credential cannot be altered twice in the same request"

Outcomes: TypeAlias = dict[str, KafkaError | None]
"""Each user's error, or None."""


def credentials(image: ClusterImage) -> dict[tuple[str, int], records.UserScramCredentialRecord]:
    """The credentials in force, by (user, mechanism)."""
    found = {}
    for record in image.kept.of_type(records.UserScramCredentialRecord):
        assert isinstance(record, records.UserScramCredentialRecord)
        found[record.name, record.mechanism] = record
    return dict(sorted(found.items()))


def scram_credential(image: ClusterImage, mechanism: int, user: str) -> ScramCredential | None:
    """The credential with which a user signs in, or None."""
    record = image.kept.find(records.UserScramCredentialRecord, (mechanism, user))
    if not isinstance(record, records.UserScramCredentialRecord):
        return None
    return ScramCredential(
        bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
    )


async def altered(
    image: ClusterImage,
    deletions: Sequence[ScramCredentialDeletion],
    upsertions: Sequence[ScramCredentialUpsertion],
) -> tuple[list[Message], Outcomes]:
    """Return the records and each user's error. An error for one user doesn't affect the others."""
    known = set()
    pause = Pause()
    for stored in [*image.kept.of_type(records.UserScramCredentialRecord)]:
        if pause.is_due():
            await turn()
        assert isinstance(stored, records.UserScramCredentialRecord)
        known.add((stored.name, stored.mechanism))
    accepted: dict[str, ScramCredentialDeletion | ScramCredentialUpsertion] = {}
    refused: dict[str, KafkaError] = {}
    every: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*deletions, *upsertions]
    for wanted in every:
        if pause.is_due():
            await turn()
        user = wanted.name
        if user in refused:
            continue
        try:
            if accepted.pop(user, None) is not None:
                raise KafkaError(Error.DUPLICATE_RESOURCE, _TWICE)
            _check(known, wanted)
            accepted[user] = wanted
        except KafkaError as error:
            refused[user] = error.as_value()
    decided: dict[str, Message] = {}
    for user, wanted in accepted.items():
        if pause.is_due():
            await turn()
        try:
            decided[user] = (
                _upserted(wanted) if isinstance(wanted, ScramCredentialUpsertion) else _deleted(wanted)
            )
        except KafkaError as error:
            refused[user] = error.as_value()
    return [*decided.values()], {**dict.fromkeys(decided), **refused}


def _check(
    known: Container[tuple[str, int]],
    wanted: ScramCredentialDeletion | ScramCredentialUpsertion,
) -> None:
    if not wanted.name:
        raise KafkaError(Error.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if wanted.mechanism not in HASHES:
        raise KafkaError(Error.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(wanted, ScramCredentialUpsertion):
        if not MIN_ITERATIONS <= wanted.iterations <= MAX_ITERATIONS:
            raise KafkaError(
                Error.UNACCEPTABLE_CREDENTIAL, f"Iterations can be from {MIN_ITERATIONS} to {MAX_ITERATIONS}"
            )
    elif (wanted.name, wanted.mechanism) not in known:
        raise KafkaError(Error.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")


def _deleted(wanted: ScramCredentialDeletion) -> Message:
    return records.RemoveUserScramCredentialRecord(name=wanted.name, mechanism=wanted.mechanism)


def _upserted(wanted: ScramCredentialUpsertion) -> Message:
    if not wanted.salted_password:
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR)  # Java's Mac rejects an empty key
    stored_key, server_key = derived_keys(wanted.mechanism, wanted.salted_password)
    return records.UserScramCredentialRecord(
        name=wanted.name,
        mechanism=wanted.mechanism,
        salt=wanted.salt,
        stored_key=stored_key,
        server_key=server_key,
        iterations=wanted.iterations,
    )


def derived_keys(mechanism: int, salted_password: bytes) -> tuple[bytes, bytes]:
    """(stored key, server key) of RFC 5802."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return hashlib.new(name, client_key).digest(), hmac.digest(salted_password, b"Server Key", name)
