"""A controller's registration, as in `ClusterControlManager.registerController`."""

from __future__ import annotations

import pytest

from broker.controller.cluster_control import register_controller, unregister_controller
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.messages.broker_to_controller import ControllerRegistrationRequest
from protocol.waiting import at_once
from tests.support.wishes import pauses
from tests.unit.controller.active_controller import ActiveController, features, listener

INCARNATION = b"i" * 16


def request(**fields: object) -> ControllerRegistrationRequest:
    return ControllerRegistrationRequest(**{"controller_id": 3000, "incarnation_id": INCARNATION, **fields})


def test_the_record_holds_the_controllers_request_without_zookeeper() -> None:
    controller = ActiveController()
    asked = request(
        zk_migration_ready=True,
        listeners=[
            listener("CONTROLLER", "c", 9093),
            listener("SECURE", "s", 9094, 1),
            listener("CONTROLLER", "d"),
        ],
        features=features(metadata_version=(7, 30), kraft_version=(0, 1)),
    )
    decided, answer = controller.decide(register_controller(controller.image, asked))
    assert answer is None
    record = records.RegisterControllerRecord(
        controller_id=3000,
        incarnation_id=INCARNATION,
        zk_migration_ready=False,
        end_points=[
            records.ControllerEndpoint(name="CONTROLLER", host="d", port=9092, security_protocol=0),
            records.ControllerEndpoint(name="SECURE", host="s", port=9094, security_protocol=1),
        ],
        features=[
            records.ControllerFeature(
                name="metadata.version", min_supported_version=7, max_supported_version=30
            ),
            records.ControllerFeature(name="kraft.version", min_supported_version=0, max_supported_version=1),
        ],
    )
    assert [*decided] == [record]
    assert controller.image.controllers == {3000: record}


def test_another_one_takes_its_place() -> None:
    controller = ActiveController()
    for incarnation in (INCARNATION, b"j" * 16):
        controller.decide(register_controller(controller.image, request(incarnation_id=incarnation)))
    assert [each.incarnation_id for each in controller.image.controllers.values()] == [b"j" * 16]


def test_a_failed_write_is_reported_to_the_caller() -> None:
    failure = KafkaError(Error.NOT_CONTROLLER)
    result = at_once(register_controller(ActiveController().image, request()))
    assert result.answer(failure) is failure
    assert not result.may_split


@pytest.mark.parametrize("level", [7, 14])
def test_registration_is_refused_before_metadata_version_knows_of_it(level: int) -> None:
    with pytest.raises(KafkaError) as refusal:
        at_once(register_controller(ActiveController(level).image, request()))
    assert refusal.value.error is Error.UNSUPPORTED_VERSION
    assert (
        refusal.value.message == "The current MetadataVersion is too old to support controller registrations."
    )
    assert at_once(register_controller(ActiveController(15).image, request())).records


def test_listeners_of_a_controller_are_checked_as_those_of_a_broker() -> None:
    with pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR: Cannot serialize ephemeral port 0"):
        at_once(register_controller(ActiveController().image, request(listeners=[listener(port=0)])))


def test_a_long_one_goes_in_steps() -> None:
    many = features(**{f"f{number}": (0, 1) for number in range(1_000)})
    image = ActiveController().image
    assert pauses(register_controller(image, request(features=many))) == 2
    names = [listener(str(number)) for number in range(1_000)]
    assert pauses(register_controller(image, request(listeners=names))) == 4


# --- unregistered (KIP-1312) ------------------------------------------------------------------------------------


def test_an_unregistered_controller_is_forgotten() -> None:
    controller = ActiveController(33)
    controller.decide(register_controller(controller.image, request()))
    decided, answer = controller.decide(unregister_controller(controller.image, 3000, active_id=1))
    assert answer is None
    assert [*decided] == [records.UnregisterControllerRecord(controller_id=3000)]
    assert not controller.image.controllers


@pytest.mark.parametrize(
    ("level", "controller_id", "error"),
    [
        (32, 1, Error.INVALID_REQUEST),
        (33, 1, Error.INVALID_REQUEST),
        (32, 7, Error.UNSUPPORTED_VERSION),
        (33, 7, Error.CONTROLLER_ID_NOT_REGISTERED),
        (33, -1, Error.CONTROLLER_ID_NOT_REGISTERED),
    ],
)
def test_a_controller_is_not_unregistered_while_it_is_active_nor_at_an_older_level(
    level: int, controller_id: int, error: Error
) -> None:
    with pytest.raises(KafkaError) as refusal:
        at_once(unregister_controller(ActiveController(level).image, controller_id, active_id=1))
    assert refusal.value.error is error
