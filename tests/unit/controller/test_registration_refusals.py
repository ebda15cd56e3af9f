"""Which check refuses which registration of a broker, in Kafka's order."""

from __future__ import annotations

from itertools import pairwise

import pytest

from protocol.errors import Error
from protocol.wire.primitives import uuid_from_text
from tests.unit.controller.active_controller import (
    ActiveController,
    all_features,
    directory,
    features,
    listener,
    registration,
)

BEFORE_DIRECTORIES = 16


REFUSALS: dict[str, tuple[dict[str, object], Error, str]] = {
    "another cluster": (
        {"cluster_id": "WIjw3grwRZmR2uOpdpVXbg"},
        Error.INCONSISTENT_CLUSTER_ID,
        "Expected cluster ID fPZv1VBsRFmnlRvmGcOW9w, but got cluster ID WIjw3grwRZmR2uOpdpVXbg",
    ),
    "from ZooKeeper": (
        {"is_migrating_zk_broker": True},
        Error.BROKER_ID_NOT_REGISTERED,
        "Controller does not support registering ZK brokers.",
    ),
    "a negative id": ({"broker_id": -1}, Error.INVALID_REGISTRATION, "A broker can't have the id -1"),
    "no directory": ({"log_dirs": []}, Error.INVALID_REGISTRATION, "No directories specified in request"),
    "a reserved directory": (
        {"log_dirs": [directory(1), bytes(15) + b"\x63"]},
        Error.INVALID_REGISTRATION,
        "Reserved directory ID in request",
    ),
    "a directory twice": (
        {"log_dirs": [directory(1), directory(1)]},
        Error.INVALID_REGISTRATION,
        "Duplicate directory ID in request",
    ),
    "another broker's directory": (
        {"log_dirs": [uuid_from_text("Mj3CW3OSRi29cFeNJlXuAQ"), directory(1)]},
        Error.INVALID_REGISTRATION,
        "Broker 9 is already registered with directory Mj3CW3OSRi29cFeNJlXuAQ",
    ),
    "an unknown protocol": (
        {"listeners": [listener(protocol=4)]},
        Error.UNKNOWN_SERVER_ERROR,
        "Unknown security protocol 4 in listener PLAINTEXT",
    ),
    "no protocol": (
        {"listeners": [listener(protocol=-1)]},
        Error.UNKNOWN_SERVER_ERROR,
        "Unknown security protocol -1 in listener PLAINTEXT",
    ),
    "no name": ({"listeners": [listener("")]}, Error.INVALID_REGISTRATION, "Listeners must be named."),
    "no port": (
        {"listeners": [listener(port=0)]},
        Error.UNKNOWN_SERVER_ERROR,
        "Cannot serialize ephemeral port 0 in ListenerInfo.",
    ),
    "no host": (
        {"listeners": [listener(host=" \t\x01")]},
        Error.UNKNOWN_SERVER_ERROR,
        "Cannot serialize empty host in ListenerInfo.",
    ),
    "features that are too old": (
        {"features": features(metadata_version=(7, 29), kraft_version=(0, 1))},
        Error.UNSUPPORTED_VERSION,
        "Unable to register because the broker does not support finalized version 30 of metadata.version. "
        "The broker wants a version between 7 and 29, inclusive.",
    ),
    "features that are too new": (
        {"features": features(metadata_version=(31, 40), kraft_version=(0, 1))},
        Error.UNSUPPORTED_VERSION,
        "Unable to register because the broker does not support finalized version 30 of metadata.version. "
        "The broker wants a version between 31 and 40, inclusive.",
    ),
    "a feature that isn't finalized, and is needed": (
        {"features": [*all_features(), *features(test_feature=(1, 2))]},
        Error.UNSUPPORTED_VERSION,
        "Unable to register because the broker does not support finalized version 0 of test.feature. "
        "The broker wants a version between 1 and 2, inclusive.",
    ),
    "no metadata.version": (
        {"features": features(kraft_version=(0, 1))},
        Error.INVALID_REGISTRATION,
        "Request features do not contain 'metadata.version'",
    ),
    "no features": (
        {"features": []},
        Error.INVALID_REGISTRATION,
        "Request features do not contain 'metadata.version'",
    ),
    "a finalized feature that it lacks": (
        {"features": features(metadata_version=(7, 30))},
        Error.UNSUPPORTED_VERSION,
        "Unable to register because the broker does not support finalized version 1 of kraft.version. "
        "The broker wants a version between 0 and 0, inclusive.",
    ),
}


def with_another_broker() -> ActiveController:
    controller = ActiveController()
    controller.register(registration(9, log_dirs=[uuid_from_text("Mj3CW3OSRi29cFeNJlXuAQ")]))
    controller.updates.changes.clear()
    return controller


@pytest.mark.parametrize("why", REFUSALS)
def test_a_registration_is_refused(why: str) -> None:
    fields, error, message = REFUSALS[why]
    controller = with_another_broker()
    assert controller.refusal(registration(**fields)) == (error, message)
    assert controller.updates.changes == []


IN_ORDER = [
    "another cluster",
    "from ZooKeeper",
    "a negative id",
    "a reserved directory",
    "another broker's directory",
    "an unknown protocol",
    "no port",
    "features that are too old",
]


@pytest.mark.parametrize(("earlier", "later"), [*pairwise(IN_ORDER)])
def test_the_first_check_that_fails_tells(earlier: str, later: str) -> None:
    fields = {**REFUSALS[later][0], **REFUSALS[earlier][0]}
    assert with_another_broker().refusal(registration(**fields)) == REFUSALS[earlier][1:]


def test_another_runs_session_is_checked_after_the_cluster_and_before_all_else() -> None:
    controller = with_another_broker()
    controller.start(1)
    other_cluster, from_zookeeper = REFUSALS["another cluster"], REFUSALS["from ZooKeeper"]
    assert controller.refusal(registration(run=2, **other_cluster[0]))[0] is Error.INCONSISTENT_CLUSTER_ID
    assert controller.refusal(registration(run=2, **from_zookeeper[0])) == (
        Error.DUPLICATE_BROKER_REGISTRATION,
        "Another broker is registered with that broker id. If the broker was recently restarted this should "
        "self-resolve once the heartbeat manager expires the broker's session.",
    )


def test_a_host_of_one_letter_is_not_blank() -> None:
    assert ActiveController().register(registration(listeners=[listener(host=" !")]))[1] == 100


class TestFeatures:
    def test_features_at_level_0_need_not_be_known(self) -> None:
        controller = ActiveController()
        _, epoch = controller.register(
            registration(features=features(metadata_version=(7, 30))), kraft_version=0
        )
        assert epoch == 100

    def test_kraft_version_counts_as_one_that_is_finalized(self) -> None:
        request = registration(features=features(metadata_version=(7, 30), kraft_version=(0, 0)))
        assert ActiveController().refusal(request, kraft_version=1) == (
            Error.UNSUPPORTED_VERSION,
            "Unable to register because the broker does not support finalized version 1 of kraft.version. "
            "The broker wants a version between 0 and 0, inclusive.",
        )
        request = registration(features=features(metadata_version=(7, 30), kraft_version=(1, 1)))
        assert ActiveController().refusal(request, kraft_version=0)[0] is Error.UNSUPPORTED_VERSION
        assert ActiveController().register(request, kraft_version=1)[1] == 100

    @pytest.mark.parametrize("supported", [(7, 7), (4, 7), (7, 30)])
    def test_a_range_has_both_its_ends(self, supported: tuple[int, int]) -> None:
        controller = ActiveController(7)
        _, epoch = controller.register(
            registration(features=features(metadata_version=supported, kraft_version=(0, 1)))
        )
        assert epoch == 100


class TestDirectories:
    @pytest.mark.parametrize("number", [0, 1, 2, 99])
    def test_the_first_hundred_ids_are_reserved(self, number: int) -> None:
        request = registration(log_dirs=[number.to_bytes(16, "big")])
        assert ActiveController().refusal(request)[1] == "Reserved directory ID in request"

    def test_ids_whose_second_half_is_negative_to_kafka_are_reserved_too(self) -> None:
        request = registration(log_dirs=[bytes(8) + b"\x80" + bytes(7)])
        assert ActiveController().refusal(request)[1] == "Reserved directory ID in request"

    @pytest.mark.parametrize(
        "directory_id",
        [(100).to_bytes(16, "big"), bytes(7) + b"\x01" + bytes(8), bytes(8) + b"\x01" + bytes(7)],
    )
    def test_all_other_ids_are_free(self, directory_id: bytes) -> None:
        assert ActiveController().register(registration(log_dirs=[directory_id]))[1] == 100

    def test_a_broker_keeps_its_own_over_runs(self) -> None:
        controller = ActiveController()
        controller.register(registration(run=1))
        _, epoch = controller.register(registration(run=2))
        assert epoch == 102

    def test_none_is_checked_before_metadata_version_knows_of_them(self) -> None:
        controller = ActiveController(BEFORE_DIRECTORIES)
        assert controller.register(registration(log_dirs=[]))[1] == 100
        first_to_know = ActiveController(BEFORE_DIRECTORIES + 1)
        assert first_to_know.refusal(registration(log_dirs=[]))[0] is Error.INVALID_REGISTRATION
        assert controller.register(registration(log_dirs=[bytes(16)] * 2))[1] == 100
