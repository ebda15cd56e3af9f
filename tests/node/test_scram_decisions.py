"""Decisions of the control plane: credentials."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from broker.controller import scram_decisions
from broker.controller.broker_records import min_insync_replicas
from broker.controller.image import ClusterImage
from broker.controller.metadata_versions import feature_levels
from protocol.errors import Error
from protocol.messages import metadata_records as records
from protocol.messages.security import ScramCredentialDeletion, ScramCredentialUpsertion
from protocol.waiting import at_once
from protocol.wire.schema import Message
from tests.support.leadership import register_broker

NODE = 1
TOPIC_ID = b"T" * 16


@pytest.fixture
def image() -> ClusterImage:
    """A cluster of one broker with the topic t of one partition."""
    image = ClusterImage()
    apply(image, *feature_levels(), min_insync_replicas(1))
    apply(image, register_broker(NODE, b"i" * 16, 5, [("PLAINTEXT", "127.0.0.1", 9092)], [b"d" * 16], None))
    apply(image, records.TopicRecord(name="t", topic_id=TOPIC_ID))
    apply(
        image,
        records.PartitionRecord(
            partition_id=0, topic_id=TOPIC_ID, replicas=[NODE], isr=[NODE], leader=NODE, leader_epoch=0
        ),
    )
    return image


def apply(image: ClusterImage, *decided: Message) -> None:
    for record in decided:
        image.apply(record)


def upsert(user: str, mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=b"s", salted_password=b"p"
    )


def test_a_credential_holds_keys_and_no_password(image: ClusterImage) -> None:
    decided, outcomes = at_once(scram_decisions.altered(image, [], [upsert("a")]))
    apply(image, *decided)

    stored = scram_decisions.credentials(image)["a", 1]
    client_key = hmac.digest(b"p", b"Client Key", "sha256")
    assert outcomes == {"a": None}
    assert stored.stored_key == hashlib.sha256(client_key).digest()
    assert stored.server_key == hmac.digest(b"p", b"Server Key", "sha256")


def test_a_user_that_is_altered_twice_is_refused_and_the_others_are_not(image: ClusterImage) -> None:
    decided, outcomes = at_once(
        scram_decisions.altered(image, [], [upsert("a"), upsert("b"), upsert("a", 2)])
    )
    apply(image, *decided)

    assert [*scram_decisions.credentials(image)] == [("b", 1)]
    refusal = outcomes["a"]
    assert refusal is not None
    assert refusal.error is Error.DUPLICATE_RESOURCE


@pytest.mark.limit("broker.security.sasl.MIN_ITERATIONS")
@pytest.mark.limit("broker.controller.scram_decisions.MAX_ITERATIONS")
@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (upsert(""), Error.UNACCEPTABLE_CREDENTIAL),
        (upsert("a", 1, 4095), Error.UNACCEPTABLE_CREDENTIAL),
        (upsert("a", 1, 16385), Error.UNACCEPTABLE_CREDENTIAL),
        (upsert("a", 3), Error.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_a_credential_that_cannot_be_is_refused(
    image: ClusterImage, wanted: ScramCredentialUpsertion, error: Error
) -> None:
    decided, outcomes = at_once(scram_decisions.altered(image, [], [wanted]))

    refusal = outcomes[wanted.name]
    assert decided == []
    assert refusal is not None
    assert refusal.error is error


def test_only_a_credential_of_an_empty_password_fails_and_only_without_another_error(
    image: ClusterImage,
) -> None:
    empty = upsert("a")
    empty.salted_password = b""

    decided, outcomes = at_once(scram_decisions.altered(image, [], [empty, upsert("b")]))
    apply(image, *decided)
    _, twice = at_once(scram_decisions.altered(image, [], [empty, empty]))

    assert [*scram_decisions.credentials(image)] == [("b", 1)]
    refusals = [outcomes["a"], twice["a"]]
    assert [refusal and (refusal.error, refusal.message is None) for refusal in refusals] == [
        (Error.UNKNOWN_SERVER_ERROR, True),
        (Error.DUPLICATE_RESOURCE, False),
    ]


def test_a_credential_is_deleted_once(image: ClusterImage) -> None:
    decided, _ = at_once(scram_decisions.altered(image, [], [upsert("a")]))
    apply(image, *decided)
    deletion = ScramCredentialDeletion(name="a", mechanism=1)

    decided, _ = at_once(scram_decisions.altered(image, [deletion], []))
    apply(image, *decided)
    _, again = at_once(scram_decisions.altered(image, [deletion], []))

    assert scram_decisions.credentials(image) == {}
    refusal = again["a"]
    assert refusal is not None
    assert refusal.error is Error.RESOURCE_NOT_FOUND
