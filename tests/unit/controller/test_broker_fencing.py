"""Heartbeats and ends of sessions become records in Kafka's order, as in its ReplicationControlManager."""

from __future__ import annotations

import pytest

from broker.controller.broker_records import BrokerIncarnation, begin_controlled_shutdown, fence, unfence
from broker.controller.cluster_control import (
    BrokerHeartbeatReply,
    fence_stale_broker,
    heartbeat,
)
from broker.controller.controller import ControllerResult
from broker.controller.partition_changes import BrokerChange
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.messages.broker_to_controller import BrokerHeartbeatRequest
from protocol.waiting import at_once
from tests.support.wishes import pauses
from tests.unit.controller.active_controller import (
    MARK,
    TOPIC_ID,
    ActiveController,
    beat,
    directory,
)

STAYS_FENCED = BrokerHeartbeatReply(True, True, False, False)
RUNS = BrokerHeartbeatReply(True, False, False, False)
SHUTS_DOWN = BrokerHeartbeatReply(True, False, True, False)
LET_GO = BrokerHeartbeatReply(True, True, False, True)


class TestUnfencing:
    def test_a_broker_that_has_caught_up_is_unfenced_and_leaderless_partitions_find_a_leader(self) -> None:
        controller = ActiveController()
        broker = controller.start(1, fenced=True)
        decided, reply = controller.heartbeat(beat(broker, 101))
        assert [*decided] == [unfence(1, broker.broker_epoch), MARK]
        assert controller.updates.changes == [BrokerChange(added=1)]
        assert reply == RUNS
        assert not controller.image.brokers[1].fenced

    def test_a_broker_that_has_not_caught_up_stays_fenced(self) -> None:
        controller = ActiveController()
        broker = controller.start(1, fenced=True)
        decided, reply = controller.heartbeat(beat(broker, 100))
        assert [*decided] == []
        assert reply == BrokerHeartbeatReply(False, True, False, False)

    def test_a_broker_that_wants_it_stays_fenced_and_learns_that_it_has_caught_up(self) -> None:
        controller = ActiveController()
        broker = controller.start(1, fenced=True)
        decided, reply = controller.heartbeat(beat(broker, 101, want_fence=True))
        assert [*decided] == []
        assert reply == STAYS_FENCED

    def test_a_running_broker_goes_on(self) -> None:
        controller = ActiveController()
        broker = controller.start(1)
        assert controller.heartbeat(beat(broker, 200)) == ([], RUNS)

    def test_a_running_broker_that_reports_an_earlier_offset_goes_on(self) -> None:
        controller = ActiveController()
        broker = controller.start(1)
        assert controller.heartbeat(beat(broker, 0)) == ([], RUNS._replace(is_caught_up=False))


class TestFencing:
    def test_a_broker_that_wants_it_is_fenced_after_its_partitions_change(self) -> None:
        controller = ActiveController()
        broker = controller.start(1)
        decided, reply = controller.heartbeat(beat(broker, 200, want_fence=True))
        assert [*decided] == [MARK, fence(1, broker.broker_epoch)]
        assert controller.updates.changes == [BrokerChange(removed=1)]
        assert reply == STAYS_FENCED

    def test_a_broker_that_wants_to_be_fenced_and_to_shut_down_is_let_go_at_once(self) -> None:
        controller = ActiveController()
        broker = controller.start(1)
        controller.lead(1)
        decided, reply = controller.heartbeat(beat(broker, 200, want_fence=True, want_shut_down=True))
        assert [*decided] == [MARK, fence(1, broker.broker_epoch)]
        assert reply == LET_GO

    def test_a_broker_whose_session_has_ended_is_fenced(self) -> None:
        controller = ActiveController()
        broker = controller.start(1)
        controller.now_ms += 10
        assert controller.fence_stale() == ([], False)
        controller.now_ms += 1
        decided, found = controller.fence_stale()
        assert [*decided] == [MARK, fence(1, broker.broker_epoch)]
        assert controller.updates.changes == [BrokerChange(removed=1)]
        assert found is True
        assert controller.fence_stale() == ([], False)

    def test_the_longest_silent_of_several_brokers_is_fenced_first_and_alone(self) -> None:
        controller = ActiveController()
        first, second = controller.start(1), controller.start(2)
        controller.now_ms += 1
        controller.heartbeat(beat(first, 200))
        controller.now_ms += 20
        assert controller.fence_stale()[0][-1] == fence(2, second.broker_epoch)
        assert not controller.image.brokers[1].fenced
        assert controller.fence_stale()[0][-1] == fence(1, first.broker_epoch)

    def test_a_stale_broker_is_unfenced_with_its_next_heartbeat(self) -> None:
        controller = ActiveController()
        broker = controller.start(1)
        controller.now_ms += 11
        controller.fence_stale()
        decided, reply = controller.heartbeat(beat(broker, 200))
        assert [*decided] == [unfence(1, broker.broker_epoch), MARK]
        assert reply == RUNS

    def test_a_broker_that_was_let_go_is_fenced_once_more(self) -> None:
        """Kafka's log has this record, too."""
        controller = ActiveController()
        broker = controller.start(1)
        controller.heartbeat(beat(broker, 200, want_shut_down=True))
        controller.now_ms += 11
        assert controller.fence_stale()[0][-1] == fence(1, broker.broker_epoch)

    def test_a_failed_write_is_reported_to_the_caller(self) -> None:
        controller = ActiveController()
        controller.start(1)
        failure = KafkaError(Error.KAFKA_STORAGE_ERROR)
        nobody = fence_stale_broker(controller.image, controller.heartbeats, 10, controller.updates)
        assert isinstance(nobody, ControllerResult)
        assert nobody.answer(failure) is failure
        deciding = fence_stale_broker(controller.image, controller.heartbeats, 11, controller.updates)
        assert not isinstance(deciding, ControllerResult)
        result = at_once(deciding)
        assert result.answer(failure) is failure
        assert result.may_split


class TestShuttingDown:
    def test_a_leading_broker_leaves_all_isrs_first(self) -> None:
        controller = ActiveController()
        broker = controller.start(1)
        controller.lead(1)
        decided, reply = controller.heartbeat(beat(broker, 200, want_shut_down=True))
        assert [*decided] == [begin_controlled_shutdown(1, broker.broker_epoch), MARK]
        assert controller.updates.changes == [BrokerChange(removed=1)]
        assert reply == SHUTS_DOWN

    def test_a_broker_that_leads_nothing_is_let_go_at_once(self) -> None:
        controller = ActiveController()
        controller.start(2)
        broker = controller.start(1)
        controller.lead(2)
        decided, reply = controller.heartbeat(beat(broker, 200, want_shut_down=True))
        assert [*decided] == [MARK, fence(1, broker.broker_epoch)]
        assert reply == LET_GO

    def test_a_fenced_broker_is_let_go_and_fenced_again_each_time(self) -> None:
        controller = ActiveController()
        broker = controller.start(1, fenced=True)
        for _ in range(2):
            decided, reply = controller.heartbeat(beat(broker, 0, want_shut_down=True))
            assert [*decided] == [MARK, fence(1, broker.broker_epoch)]
            assert reply == LET_GO._replace(is_caught_up=False)

    def test_a_broker_is_let_go_when_it_leads_nothing_and_all_others_know(self) -> None:
        controller = ActiveController()
        other, broker = controller.start(2), controller.start(1)
        controller.lead(1)
        controller.heartbeat(beat(other, controller.next_offset - 1))
        controller.heartbeat(beat(broker, 200, want_shut_down=True))
        last_offset = controller.next_offset - 1
        assert controller.heartbeat(beat(broker, 200, want_shut_down=True)) == ([], SHUTS_DOWN), "it leads"
        controller.write([records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=2)])
        assert controller.heartbeat(beat(broker, 200, want_shut_down=True)) == ([], SHUTS_DOWN)
        controller.heartbeat(beat(other, last_offset - 1))
        assert controller.heartbeat(beat(broker, 200, want_shut_down=True)) == ([], SHUTS_DOWN)
        controller.heartbeat(beat(other, last_offset))
        decided, reply = controller.heartbeat(beat(broker, 200, want_shut_down=True))
        assert [*decided] == [MARK, fence(1, broker.broker_epoch)]
        assert reply == LET_GO

    def test_a_controller_that_comes_to_it_writes_no_second_record_of_it(self) -> None:
        controller = ActiveController()
        broker = controller.start(1)
        controller.lead(1)
        controller.heartbeat(beat(broker, 200, want_shut_down=True))
        controller.heartbeats.become_active(controller.image, 110, 0)
        decided, reply = controller.heartbeat(beat(broker, 200, want_shut_down=True))
        assert [*decided] == [MARK]
        assert reply == SHUTS_DOWN

    def test_once_begun_it_isn_t_given_up(self) -> None:
        controller = ActiveController()
        broker = controller.start(1)
        controller.lead(1)
        controller.heartbeat(beat(broker, 200, want_shut_down=True))
        assert controller.heartbeat(beat(broker, 200)) == ([], SHUTS_DOWN)
        assert controller.heartbeat(beat(broker, 200, want_fence=True)) == ([], SHUTS_DOWN)

    def test_a_brokers_leaderships_are_looked_up_in_steps(self) -> None:
        controller = ActiveController()
        broker = controller.start(1)
        for number in range(1_000):
            controller.lead(2, topic_id=number.to_bytes(16, "big"))
        request = beat(broker, 200, want_shut_down=True)
        deciding = heartbeat(controller.image, controller.heartbeats, request, controller.updates)
        assert not isinstance(deciding, ControllerResult)
        assert pauses(deciding) >= 4


@pytest.mark.parametrize(("broker_id", "ahead"), [(1, 1), (1, -1), (2, 0)])
def test_a_heartbeat_of_an_unregistered_run_is_refused(broker_id: int, ahead: int) -> None:
    controller = ActiveController()
    broker = controller.start(1)
    request = beat(BrokerIncarnation(broker_id, broker.broker_epoch + ahead), 200)
    with pytest.raises(KafkaError, match="STALE_BROKER_EPOCH"):
        controller.heartbeat(request)


def test_a_heartbeat_of_a_broker_with_which_all_is_well_is_decided_in_passing() -> None:
    controller = ActiveController()
    broker = controller.start(1)
    controller.heartbeat(beat(broker, 200, cordoned_log_dirs=[]))

    def decided(request: BrokerHeartbeatRequest) -> object:
        return heartbeat(controller.image, controller.heartbeats, request, controller.updates)

    assert isinstance(decided(beat(broker, 200)), ControllerResult)
    assert isinstance(decided(beat(broker, 200, cordoned_log_dirs=[])), ControllerResult)
    assert isinstance(decided(beat(broker, 200, offline_log_dirs=[directory(2)])), ControllerResult)


def test_a_heartbeat_whose_records_cannot_be_written_fails() -> None:
    controller = ActiveController()
    broker = controller.start(1, fenced=True)
    deciding = heartbeat(controller.image, controller.heartbeats, beat(broker, 200), controller.updates)
    assert not isinstance(deciding, ControllerResult)
    result = at_once(deciding)
    failure = KafkaError(Error.NOT_CONTROLLER)
    assert result.answer(failure) is failure
    assert result.may_split
