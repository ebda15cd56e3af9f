"""A broker's heartbeats report directories that failed or are cordoned. Kafka's version decides what is recorded."""

from __future__ import annotations

import pytest

from broker.controller.broker_records import BrokerIncarnation, begin_controlled_shutdown, fence, unfence
from broker.controller.cluster_control import BrokerHeartbeatReply
from broker.controller.partition_changes import BrokerChange
from protocol.messages import metadata_records as records
from protocol.wire.codec import encode
from tests.unit.controller.active_controller import (
    MARK,
    ActiveController,
    beat,
    directory,
    registration,
)

RUNS = BrokerHeartbeatReply(True, False, False, False)


def log_dirs(broker: BrokerIncarnation, *online: bytes) -> records.BrokerRegistrationChangeRecord:
    return records.BrokerRegistrationChangeRecord(
        broker_id=broker.node_id, broker_epoch=broker.broker_epoch, log_dirs=[*online]
    )


def cordoned(broker: BrokerIncarnation, *directories: bytes) -> records.BrokerRegistrationChangeRecord:
    return records.BrokerRegistrationChangeRecord(
        broker_id=broker.node_id, broker_epoch=broker.broker_epoch, cordoned_log_dirs=[*directories]
    )


class TestDirectories:
    A, B, C = directory(1), directory(1, 1), b"\xff" * 16
    """Kafka sorts the last one first, because its numbers are signed."""

    def controller(self, metadata_version: int = 30) -> tuple[ActiveController, BrokerIncarnation]:
        controller = ActiveController(metadata_version)
        _, epoch = controller.register(registration(log_dirs=[self.B, self.A, self.C]))
        assert isinstance(epoch, int)
        broker = BrokerIncarnation(1, epoch)
        controller.heartbeat(beat(broker, 200))
        controller.updates.changes.clear()
        return controller, broker

    def test_partitions_in_a_failed_directory_change_before_the_registration(self) -> None:
        controller, broker = self.controller()
        decided, reply = controller.heartbeat(beat(broker, 200, offline_log_dirs=[self.B]))
        assert [*decided] == [MARK, log_dirs(broker, self.C, self.A)]
        assert controller.updates.changes == [BrokerChange(removed=1, directories=[self.B])]
        assert reply == RUNS

    def test_several_change_in_one_walk(self) -> None:
        controller, broker = self.controller()
        decided, _ = controller.heartbeat(beat(broker, 200, offline_log_dirs=[self.A, self.C]))
        assert [*decided] == [MARK, log_dirs(broker, self.B)]
        assert controller.updates.changes == [BrokerChange(removed=1, directories=[self.C, self.A])]

    def test_a_directory_that_failed_before_is_named_again_and_changes_nothing(self) -> None:
        controller, broker = self.controller()
        controller.heartbeat(beat(broker, 200, offline_log_dirs=[self.B]))
        assert controller.heartbeat(beat(broker, 200, offline_log_dirs=[self.B])) == ([], RUNS)
        decided, _ = controller.heartbeat(beat(broker, 200, offline_log_dirs=[self.B, self.A]))
        assert [*decided] == [MARK, log_dirs(broker, self.C)]

    def test_a_directory_missing_from_the_registration_changes_nothing(self) -> None:
        controller, broker = self.controller()
        assert controller.heartbeat(beat(broker, 200, offline_log_dirs=[directory(2)])) == ([], RUNS)

    def test_the_last_ones_stay_in_the_registration(self) -> None:
        """An empty list in such a record means nothing. The broker ends itself."""
        controller, broker = self.controller()
        every = [self.A, self.B, self.C]
        decided, _ = controller.heartbeat(beat(broker, 200, offline_log_dirs=every))
        assert [*decided] == [MARK, log_dirs(broker)]
        assert {*controller.image.brokers[1].log_dirs} == {*every}

    def test_failed_directories_are_ignored_before_metadata_version_knows_of_them(self) -> None:
        controller, broker = self.controller(16)
        controller.write([log_dirs(broker, self.A)])
        assert controller.heartbeat(beat(broker, 200, offline_log_dirs=[self.A])) == ([], RUNS)
        controller, broker = self.controller(17)
        assert controller.heartbeat(beat(broker, 200, offline_log_dirs=[self.A]))[0]

    def test_cordoned_ones_are_recorded_once_though_there_are_none(self) -> None:
        controller, broker = self.controller()
        decided, reply = controller.heartbeat(beat(broker, 200, cordoned_log_dirs=[]))
        assert [*decided] == [cordoned(broker)]
        assert reply == RUNS
        assert controller.updates.changes == []
        assert controller.heartbeat(beat(broker, 200, cordoned_log_dirs=[])) == ([], RUNS)

    def test_changed_cordons_are_recorded(self) -> None:
        controller, broker = self.controller()
        for told in ([self.A, self.B], [self.A], [], [self.C]):
            decided, _ = controller.heartbeat(beat(broker, 200, cordoned_log_dirs=told))
            assert [*decided] == [cordoned(broker, *told)]

    def test_the_same_cordons_in_another_order_are_not_recorded(self) -> None:
        controller, broker = self.controller()
        controller.heartbeat(beat(broker, 200, cordoned_log_dirs=[self.A, self.B]))
        assert controller.heartbeat(beat(broker, 200, cordoned_log_dirs=[self.B, self.A, self.B])) == (
            [],
            RUNS,
        )

    def test_an_absent_list_is_no_change(self) -> None:
        controller, broker = self.controller()
        controller.heartbeat(beat(broker, 200, cordoned_log_dirs=[self.A]))
        assert controller.heartbeat(beat(broker, 200, cordoned_log_dirs=None)) == ([], RUNS)

    def test_cordoned_directories_are_skipped_before_metadata_version_knows_of_them(self) -> None:
        controller, broker = self.controller(29)
        assert controller.heartbeat(beat(broker, 200, cordoned_log_dirs=[self.A])) == ([], RUNS)

    def test_after_a_new_registration_cordons_have_to_be_reported_again(self) -> None:
        controller, broker = self.controller()
        controller.heartbeat(beat(broker, 200, cordoned_log_dirs=[]))
        controller.register(registration(log_dirs=[self.A]))
        decided, _ = controller.heartbeat(beat(broker, 200, cordoned_log_dirs=[]))
        assert [*decided] == [cordoned(broker)]


def test_in_one_answer_the_state_comes_first_then_failed_and_then_cordoned_directories() -> None:
    controller = ActiveController()
    broker = controller.start(1, fenced=True)
    request = beat(broker, 200, offline_log_dirs=[directory(1)], cordoned_log_dirs=[])
    decided, _ = controller.heartbeat(request)
    assert [*decided] == [unfence(1, broker.broker_epoch), MARK, MARK, log_dirs(broker), cordoned(broker)]
    assert controller.updates.changes == [
        BrokerChange(added=1),
        BrokerChange(removed=1, directories=[directory(1)]),
    ]


@pytest.mark.parametrize(
    ("change", "version"),
    [
        (fence(1, 5), 0),
        (unfence(1, 5), 0),
        (begin_controlled_shutdown(1, 5), 1),
        (log_dirs(BrokerIncarnation(1, 5), directory(1)), 2),
        (cordoned(BrokerIncarnation(1, 5)), 3),
        (cordoned(BrokerIncarnation(1, 5), directory(1)), 3),
    ],
)
def test_a_change_is_written_as_kafka_does_in_the_least_version_that_can_say_it(
    change: records.BrokerRegistrationChangeRecord, version: int
) -> None:
    newest = encode(change, records.BrokerRegistrationChangeRecord.VERSIONS[1])
    assert encode(change, version) == newest
    if version:
        assert _encoded_or_none(change, version - 1) != newest


def _encoded_or_none(change: records.BrokerRegistrationChangeRecord, version: int) -> bytes | None:
    try:
        return encode(change, version)
    except Exception:  # this version has no field for it
        return None
