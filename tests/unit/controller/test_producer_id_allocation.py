"""Blocks of producer ids: the cases of Kafka's ProducerIdControlManagerTest."""

from __future__ import annotations

import pytest

from broker.controller.broker_records import BrokerIncarnation
from broker.handlers.allocate_producer_ids import allocate_producer_ids
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from tests.unit.controller.active_controller import ActiveController

LONG_MAX = 2**63 - 1


@pytest.fixture
def controller() -> ActiveController:
    """Return a controller with brokers 0 to 3, of epoch 100."""
    controller = ActiveController()
    controller.write([records.RegisterBrokerRecord(broker_id=each, broker_epoch=100) for each in range(4)])
    return controller


def given_up_to(controller: ActiveController, next_id: int) -> None:
    controller.write([records.ProducerIdsRecord(broker_id=1, broker_epoch=100, next_producer_id=next_id)])


def allocated(controller: ActiveController, broker_id: int = 1) -> int | KafkaError:
    return controller.decide(allocate_producer_ids(controller.image, BrokerIncarnation(broker_id, 100)))[1]


def test_the_first_block_begins_with_0_and_has_a_thousand(controller: ActiveController) -> None:
    result = allocate_producer_ids(controller.image, BrokerIncarnation(1, 100))
    assert [*result.records] == [
        records.ProducerIdsRecord(broker_id=1, broker_epoch=100, next_producer_id=1_000)
    ]
    assert result.answer(None) == 0


def test_no_two_have_an_id_in_common(controller: ActiveController) -> None:
    assert [allocated(controller, number % 4) for number in range(100)] == [*range(0, 100_000, 1_000)]
    assert controller.image.next_producer_id == 100_000


def test_a_block_begins_where_the_log_says_though_there_is_a_gap(controller: ActiveController) -> None:
    for next_id in (42, 50):
        given_up_to(controller, next_id)
        assert allocate_producer_ids(controller.image, BrokerIncarnation(3, 100)).answer(None) == next_id


def test_a_block_may_have_another_size(controller: ActiveController) -> None:
    (record,) = allocate_producer_ids(controller.image, BrokerIncarnation(1, 100), 7).records
    assert isinstance(record, records.ProducerIdsRecord)
    assert record.next_producer_id == 7


@pytest.mark.parametrize(
    "broker", [BrokerIncarnation(99, 100), BrokerIncarnation(1, 99), BrokerIncarnation(1, 101)]
)
def test_a_run_that_isn_t_registered_gets_none(
    controller: ActiveController, broker: BrokerIncarnation
) -> None:
    with pytest.raises(KafkaError, match="STALE_BROKER_EPOCH"):
        allocate_producer_ids(controller.image, broker)


def test_the_last_block_ends_with_the_last_number(controller: ActiveController) -> None:
    given_up_to(controller, LONG_MAX - 1_000)
    assert allocated(controller) == LONG_MAX - 1_000
    assert controller.image.next_producer_id == LONG_MAX
    with pytest.raises(KafkaError) as refusal:
        allocated(controller)
    assert refusal.value.error is Error.UNKNOWN_SERVER_ERROR
    assert refusal.value.message is not None
    assert refusal.value.message.startswith("Exhausted all producerIds")


def test_a_block_that_would_be_too_short_isn_t_given(controller: ActiveController) -> None:
    given_up_to(controller, LONG_MAX - 999)
    with pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR"):
        allocated(controller)


def test_a_failed_write_is_reported_to_the_caller(controller: ActiveController) -> None:
    failure = KafkaError(Error.NOT_CONTROLLER)
    assert allocate_producer_ids(controller.image, BrokerIncarnation(1, 100)).answer(failure) is failure
