"""BrokerRegistration and UnregisterBroker: the cases of Kafka's ClusterControlManagerTest, and the order of its
checks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.controller.broker_records import BrokerIncarnation, check_broker_epoch
from broker.controller.controller import MAX_RECORDS_PER_REQUEST
from broker.controller.image import ClusterImage
from broker.controller.partition_changes import BrokerChange
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.messages.broker_to_controller import BrokerRegistrationRequest
from protocol.waiting import Waiting, at_once, turn
from protocol.wire.schema import Message
from tests.support.wishes import pauses
from tests.unit.controller.active_controller import (
    LATEST,
    MARK,
    ActiveController,
    all_features,
    beat,
    directory,
    features,
    listener,
    registration,
)

BEFORE_DIRECTORIES = 16


class TestNewRegistration:
    def test_the_record_holds_the_brokers_request_and_fences_it(self) -> None:
        controller = ActiveController()
        request = registration(
            3,
            rack="r1",
            listeners=[listener("A", "a", 1), listener("B", "b", 65_535, 3)],
            features=features(metadata_version=(7, 30), kraft_version=(0, 1)),
            log_dirs=[directory(3, 1), directory(3, 0)],
        )
        (mark, record), epoch = controller.register(request)
        assert mark is MARK
        assert epoch == 100
        assert record == records.RegisterBrokerRecord(
            broker_id=3,
            is_migrating_zk_broker=False,
            incarnation_id=bytes((1,)) * 16,
            broker_epoch=100,
            end_points=[
                records.BrokerEndpoint(name="A", host="a", port=1, security_protocol=0),
                records.BrokerEndpoint(name="B", host="b", port=65_535, security_protocol=3),
            ],
            features=[
                records.BrokerFeature(
                    name="metadata.version", min_supported_version=7, max_supported_version=30
                ),
                records.BrokerFeature(name="kraft.version", min_supported_version=0, max_supported_version=1),
            ],
            rack="r1",
            fenced=True,
            in_controlled_shutdown=False,
            log_dirs=[directory(3, 1), directory(3, 0)],
            cordoned_log_dirs=None,
        )

    def test_the_epoch_is_the_next_offset_though_the_record_follows_others(self) -> None:
        """The broker has caught up once it knows the record."""
        controller = ActiveController()
        _, epoch = controller.register(registration())
        assert epoch == controller.image.brokers[1].broker_epoch == 100
        assert not controller.heartbeats.is_caught_up(1, 100)
        assert controller.heartbeats.is_caught_up(1, 101)

    def test_the_record_has_no_listeners_if_the_broker_names_none(self) -> None:
        (_, record), _ = ActiveController().register(registration(listeners=[]))
        assert isinstance(record, records.RegisterBrokerRecord)
        assert record.end_points == []

    def test_the_last_of_listeners_with_one_name_counts(self) -> None:
        request = registration(listeners=[listener("A", "a"), listener("B", "b"), listener("A", "c")])
        (_, record), _ = ActiveController().register(request)
        assert isinstance(record, records.RegisterBrokerRecord)
        assert [(each.name, each.host) for each in record.end_points] == [("A", "c"), ("B", "b")]

    def test_the_record_names_no_directories_before_metadata_version_knows_of_them(self) -> None:
        (_, record), _ = ActiveController(BEFORE_DIRECTORIES).register(registration())
        assert isinstance(record, records.RegisterBrokerRecord)
        assert record.log_dirs == []

    def test_a_registration_that_kafka_accepts_is_not_checked_further(self) -> None:
        """Kafka accepts a broker with the id 0, a run without an id, and an empty rack."""
        _, epoch = ActiveController().register(registration(0, run=0, rack=""))
        assert epoch == 100

    def test_the_cleanup_may_be_several_batches_with_the_registration_last(self) -> None:
        """If one of them fails, the broker registers again, and the rest is done then."""
        result = at_once(ActiveController().registering(registration()))
        assert result.may_split
        failure = KafkaError(Error.NOT_CONTROLLER)
        assert result.answer(failure) is failure


class TestAnotherRun:
    def test_another_run_gets_a_new_epoch_and_is_fenced(self) -> None:
        controller = ActiveController()
        controller.start(1)
        controller.now_ms += 11
        (_, record), epoch = controller.register(registration(run=2))
        assert isinstance(record, records.RegisterBrokerRecord)
        assert record.broker_epoch == epoch == controller.next_offset - 2
        assert record.fenced
        assert not record.in_controlled_shutdown

    def test_another_run_waits_until_the_previous_runs_session_has_ended(self) -> None:
        controller = ActiveController()
        controller.start(1)
        controller.now_ms += 10
        assert controller.refusal(registration(run=2))[0] is Error.DUPLICATE_BROKER_REGISTRATION
        controller.now_ms += 1
        controller.register(registration(run=2))

    def test_another_run_need_not_wait_if_the_previous_one_was_never_heard(self) -> None:
        controller = ActiveController()
        controller.register(registration(run=1))
        controller.register(registration(run=2))

    def test_a_fenced_run_that_is_heard_holds_it_up_as_well(self) -> None:
        controller = ActiveController()
        broker = controller.start(1, fenced=True)
        controller.heartbeat(beat(broker, want_fence=True))
        assert controller.refusal(registration(run=2))[0] is Error.DUPLICATE_BROKER_REGISTRATION

    @pytest.mark.parametrize(
        ("elr", "version", "previous", "expected"),
        [
            (1, 4, 100, BrokerChange(removed=1)),
            (1, 3, 100, BrokerChange(removed=1)),
            (1, 2, 100, BrokerChange(unclean=1)),
            (1, 4, -1, BrokerChange(unclean=1)),
            (1, 4, 99, BrokerChange(unclean=1)),
            (0, 4, 100, BrokerChange(removed=1)),
            (0, 4, -1, BrokerChange(removed=1)),
            (0, 2, -1, BrokerChange(removed=1)),
        ],
    )
    def test_the_previous_run_ended_cleanly_if_its_epoch_is_given(
        self, elr: int, version: int, previous: int, expected: BrokerChange
    ) -> None:
        controller = ActiveController(elr=elr)
        controller.register(registration(run=1))
        controller.updates.changes.clear()
        controller.register(registration(run=2, previous_broker_epoch=previous), version=version)
        assert controller.updates.changes == [expected]

    @pytest.mark.parametrize(
        ("elr", "expected"), [(0, BrokerChange(removed=1)), (1, BrokerChange(unclean=1))]
    )
    @pytest.mark.parametrize("previous", [-1, 100])
    def test_an_unregistered_previous_run_did_not_end_cleanly(
        self, elr: int, expected: BrokerChange, previous: int
    ) -> None:
        controller = ActiveController(elr=elr)
        controller.register(registration(previous_broker_epoch=previous))
        assert controller.updates.changes == [expected]


class TestTheSameRunAgain:
    def test_registering_again_keeps_the_epoch_and_the_fencing(self) -> None:
        controller = ActiveController()
        broker = controller.start(1)
        decided, epoch = controller.register(registration(rack="another", log_dirs=[directory(1, 5)]))
        assert epoch == broker.broker_epoch
        assert [type(each) for each in decided] == [records.RegisterBrokerRecord]
        (record,) = decided
        assert isinstance(record, records.RegisterBrokerRecord)
        assert (record.broker_epoch, record.fenced, record.in_controlled_shutdown) == (epoch, False, False)
        assert (record.rack, record.log_dirs) == ("another", [directory(1, 5)])
        assert controller.updates.changes == []

    def test_registering_again_keeps_a_shutdown(self) -> None:
        controller = ActiveController()
        broker = controller.start(1)
        controller.lead(1)
        controller.heartbeat(beat(broker, 200, want_shut_down=True))
        (record,), _ = controller.register(registration())
        assert isinstance(record, records.RegisterBrokerRecord)
        assert record.in_controlled_shutdown

    def test_registering_again_keeps_the_session(self) -> None:
        controller = ActiveController()
        broker = controller.start(1)
        controller.register(registration())
        assert controller.heartbeats.has_session(broker, 10)

    def test_a_live_session_is_no_hindrance(self) -> None:
        controller = ActiveController()
        controller.start(1)
        controller.register(registration())
        assert controller.refusal(registration(run=2))[0] is Error.DUPLICATE_BROKER_REGISTRATION

    def test_registering_again_keeps_a_fenced_broker_fenced(self) -> None:
        controller = ActiveController()
        controller.start(1, fenced=True)
        (record,), _ = controller.register(registration())
        assert isinstance(record, records.RegisterBrokerRecord)
        assert record.fenced


class TestUnregistering:
    def test_unregistering_changes_the_partitions_first(self) -> None:
        controller = ActiveController()
        broker = controller.start(1)
        assert [*controller.unregister(1)] == [
            MARK,
            records.UnregisterBrokerRecord(broker_id=1, broker_epoch=broker.broker_epoch),
        ]
        assert controller.updates.changes == [BrokerChange(removed=1)]
        assert controller.image.brokers == {}

    def test_unregistering_an_unregistered_broker_is_refused(self) -> None:
        with pytest.raises(KafkaError) as refusal:
            ActiveController().unregister(1)
        assert refusal.value.error is Error.BROKER_ID_NOT_REGISTERED
        assert refusal.value.message == "Broker ID 1 is not currently registered"

    @pytest.mark.parametrize("changes", [MAX_RECORDS_PER_REQUEST - 1, MAX_RECORDS_PER_REQUEST])
    def test_unregistering_a_broker_with_too_many_partitions_in_sync_is_refused(self, changes: int) -> None:
        controller = ActiveController()
        controller.start(1)
        controller.updates = many(changes)  # type: ignore[assignment]
        if changes < MAX_RECORDS_PER_REQUEST:
            assert len(controller.unregister(1)) == MAX_RECORDS_PER_REQUEST
            return
        with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
            controller.unregister(1)

    def test_heartbeats_after_unregistering_are_refused(self) -> None:
        controller = ActiveController()
        broker = controller.start(1)
        controller.unregister(1)
        with pytest.raises(KafkaError, match="STALE_BROKER_EPOCH"):
            controller.heartbeat(beat(broker))


def many(changes: int) -> Callable[[ClusterImage, BrokerChange], Waiting[list[Message]]]:
    async def updates(image: ClusterImage, change: BrokerChange) -> list[Message]:
        await turn()
        return [MARK] * changes

    return updates


def test_a_long_registration_goes_in_steps() -> None:
    def steps(request: BrokerRegistrationRequest, brokers: int = 0) -> int:
        controller = ActiveController()
        for broker_id in range(brokers):
            controller.write([records.RegisterBrokerRecord(broker_id=100 + broker_id, broker_epoch=1)])
        return pauses(controller.registering(request))

    usual = steps(registration())
    most = 1_000
    assert steps(registration(listeners=[listener(str(number)) for number in range(most)])) >= usual + 4
    assert (
        steps(registration(log_dirs=[directory(1, 0)[:-2] + n.to_bytes(2, "big") for n in range(most)]))
        >= usual + 2
    )
    unknown = features(**{f"f{number}": (0, 1) for number in range(most)})
    assert steps(registration(features=[*all_features(), *unknown])) >= usual + 2
    assert steps(registration(), brokers=most) >= usual + 2


@pytest.mark.parametrize(
    ("broker", "message"),
    [
        (BrokerIncarnation(2, 100), "No broker registration found for broker id 2"),
        (BrokerIncarnation(1, 101), "Expected broker epoch 100, but got broker epoch 101"),
        (BrokerIncarnation(1, 99), "Expected broker epoch 100, but got broker epoch 99"),
    ],
)
def test_a_run_that_isn_t_registered_is_stale(broker: BrokerIncarnation, message: str) -> None:
    controller = ActiveController()
    controller.register(registration())
    with pytest.raises(KafkaError) as refusal:
        check_broker_epoch(controller.image, broker)
    assert (refusal.value.error, refusal.value.message) == (Error.STALE_BROKER_EPOCH, message)


def test_the_run_that_is_registered_is_found() -> None:
    controller = ActiveController(LATEST)
    controller.register(registration())
    found = check_broker_epoch(controller.image, BrokerIncarnation(1, 100))
    assert found is controller.image.brokers[1]
