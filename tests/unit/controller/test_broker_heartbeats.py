"""What the active controller remembers about brokers: the cases of Kafka's BrokerHeartbeatManagerTest and its
tracker's."""

from __future__ import annotations

import pytest

from broker.controller.broker_heartbeats import BrokerControlState, BrokerHeartbeats
from broker.controller.broker_records import BrokerIncarnation, begin_controlled_shutdown, fence, unfence
from broker.controller.image import ClusterImage
from protocol.errors import BrokenInvariantError
from protocol.messages import metadata_records as records

TIMEOUT_MS = 10
EPOCH = 7


def broker(broker_id: int, epoch: int = EPOCH) -> BrokerIncarnation:
    return BrokerIncarnation(broker_id, epoch)


def registered(broker_id: int, *, epoch: int = EPOCH, fenced: bool = True) -> records.RegisterBrokerRecord:
    return records.RegisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch, fenced=fenced)


def of(*fenced: int, unfenced: tuple[int, ...] = ()) -> BrokerHeartbeats:
    """Return the heartbeats of brokers that registered at offset 100."""
    heartbeats = BrokerHeartbeats(TIMEOUT_MS)
    for broker_id in (*fenced, *unfenced):
        heartbeats.replay(registered(broker_id, fenced=broker_id in fenced), 100)
    return heartbeats


def shutting_down(heartbeats: BrokerHeartbeats, broker_id: int, offset: int | None) -> None:
    heartbeats.replay(begin_controlled_shutdown(broker_id, EPOCH), 200)
    if offset is not None:
        heartbeats.shutdown_written(broker(broker_id), offset)


def ended(heartbeats: BrokerHeartbeats, now_ms: int) -> list[int]:
    """End the sessions that have run out by then, and return their brokers."""
    found = []
    while (each := heartbeats.end_one_session(now_ms)) is not None:
        found.append(each.node_id)
    return found


class TestSessions:
    def test_a_session_lasts_as_long_as_the_timeout_after_each_heartbeat(self) -> None:
        heartbeats = of(0, 1)
        heartbeats.heard(broker(0), 0, 0)
        heartbeats.heard(broker(1), 0, 5)
        assert [heartbeats.has_session(broker(each), 10) for each in (0, 1)] == [True, True]
        assert [heartbeats.has_session(broker(each), 11) for each in (0, 1)] == [False, True]
        heartbeats.heard(broker(0), 0, 12)
        assert [heartbeats.has_session(broker(each), 16) for each in (0, 1)] == [True, False]

    def test_a_broker_never_heard_of_since_it_registered_has_no_session(self) -> None:
        heartbeats = of(0)
        assert not heartbeats.has_session(broker(0), 0)
        assert ended(heartbeats, 1_000) == []

    def test_unknown_brokers_and_runs_have_no_session(self) -> None:
        heartbeats = of(0)
        heartbeats.heard(broker(3), 0, 0)
        heartbeats.heard(broker(0, EPOCH + 1), 0, 0)
        assert not heartbeats.has_session(broker(3), 0)
        assert not heartbeats.has_session(broker(0, EPOCH + 1), 0)
        assert not heartbeats.has_session(broker(0), 0)
        heartbeats.heard(broker(0), 0, 0)
        assert not heartbeats.has_session(broker(0, EPOCH - 1), 0)
        assert ended(heartbeats, 1_000) == [0]

    def test_sessions_end_in_the_order_they_run_out_and_once_each(self) -> None:
        heartbeats = of(0, 1, 2)
        for broker_id, now_ms in ((0, 0), (1, 1), (2, 2), (0, 3)):
            heartbeats.heard(broker(broker_id), 0, now_ms)
        assert ended(heartbeats, 11) == []
        assert ended(heartbeats, 12) == [1]
        assert ended(heartbeats, 30) == [2, 0]
        assert ended(heartbeats, 1_000) == []

    def test_an_ended_session_is_reported_with_its_epoch(self) -> None:
        heartbeats = of(0)
        heartbeats.heard(broker(0), 0, 0)
        assert heartbeats.end_one_session(11) == broker(0)

    def test_a_session_whose_end_could_not_be_written_is_reported_again_before_others(self) -> None:
        heartbeats = of(0, 1)
        heartbeats.heard(broker(0), 0, 0)
        heartbeats.heard(broker(1), 0, 1)
        assert heartbeats.end_one_session(20) == broker(0)
        heartbeats.session_has_not_ended()
        assert ended(heartbeats, 20) == [0, 1]

    def test_a_session_heard_of_since_its_end_could_not_be_written_goes_on(self) -> None:
        heartbeats = of(0)
        heartbeats.heard(broker(0), 0, 0)
        assert ended(heartbeats, 11) == [0]
        heartbeats.heard(broker(0), 0, 12)
        heartbeats.session_has_not_ended()
        assert ended(heartbeats, 20) == []
        assert ended(heartbeats, 23) == [0]

    def test_an_ended_session_begins_again_with_the_next_heartbeat(self) -> None:
        heartbeats = of(0)
        heartbeats.heard(broker(0), 0, 0)
        assert ended(heartbeats, 11) == [0]
        assert not heartbeats.has_session(broker(0), 11)
        heartbeats.heard(broker(0), 0, 11)
        assert heartbeats.has_session(broker(0), 11)
        assert ended(heartbeats, 22) == [0]

    def test_a_fenced_broker_has_one_as_well_and_it_ends(self) -> None:
        """So a broker that was let go is fenced once more, as in Kafka."""
        heartbeats = of(unfenced=(0,))
        heartbeats.heard(broker(0), 0, 0)
        heartbeats.replay(fence(0, EPOCH), 101)
        assert heartbeats.has_session(broker(0), 10)
        assert ended(heartbeats, 11) == [0]

    def test_an_earlier_time_than_the_last_contact_ends_nothing(self) -> None:
        heartbeats = of(0)
        heartbeats.heard(broker(0), 0, 100)
        assert heartbeats.has_session(broker(0), 0)
        assert ended(heartbeats, 0) == []

    def test_another_run_begins_without_a_session_and_the_same_run_keeps_its_own(self) -> None:
        heartbeats = of(0, 1)
        for broker_id in (0, 1):
            heartbeats.heard(broker(broker_id), 0, 0)
        heartbeats.replay(registered(0), 101)
        heartbeats.replay(registered(1, epoch=EPOCH + 1), 102)
        assert heartbeats.has_session(broker(0), 5)
        assert not heartbeats.has_session(broker(1, EPOCH + 1), 5)
        assert ended(heartbeats, 1_000) == [0]

    def test_an_unregistered_broker_has_no_session(self) -> None:
        heartbeats = of(0)
        heartbeats.heard(broker(0), 0, 0)
        heartbeats.replay(records.UnregisterBrokerRecord(broker_id=0, broker_epoch=EPOCH), 101)
        assert not heartbeats.has_session(broker(0), 0)
        assert ended(heartbeats, 1_000) == []

    @pytest.mark.parametrize(
        ("timeout_ms", "interval_ms"), [(9_000, 1_125.0), (100, 12.5), (4, 1.0), (8, 1.0)]
    )
    def test_sessions_are_checked_eight_times_within_a_timeout(
        self, timeout_ms: int, interval_ms: float
    ) -> None:
        assert BrokerHeartbeats(timeout_ms).check_interval_ms == interval_ms
        assert BrokerHeartbeats().check_interval_ms == 1_125


class TestBecomingActive:
    def image(self) -> ClusterImage:
        image = ClusterImage()
        image.apply(registered(0, fenced=True))
        image.apply(registered(1, fenced=False))
        return image

    def test_brokers_that_are_not_fenced_have_a_fresh_session(self) -> None:
        heartbeats = BrokerHeartbeats(TIMEOUT_MS)
        heartbeats.become_active(self.image(), 50, 5)
        assert not heartbeats.has_session(broker(0), 5)
        assert heartbeats.has_session(broker(1), 15)
        assert ended(heartbeats, 15) == []
        assert ended(heartbeats, 16) == [1]

    def test_each_is_in_the_state_that_its_registration_says(self) -> None:
        heartbeats = BrokerHeartbeats(TIMEOUT_MS)
        heartbeats.become_active(self.image(), 50, 0)
        assert heartbeats.state_of(0) is BrokerControlState.FENCED
        assert heartbeats.state_of(1) is BrokerControlState.UNFENCED

    def test_each_broker_has_to_catch_up_with_the_whole_log(self) -> None:
        heartbeats = BrokerHeartbeats(TIMEOUT_MS)
        heartbeats.become_active(self.image(), 50, 0)
        assert not heartbeats.is_caught_up(0, 49)
        assert heartbeats.is_caught_up(0, 50)

    def test_a_shutdown_that_the_controller_before_has_begun_isnt_known(self) -> None:
        """The broker's next heartbeat begins the shutdown anew, as in Kafka."""
        image = self.image()
        image.apply(begin_controlled_shutdown(1, EPOCH))
        heartbeats = BrokerHeartbeats(TIMEOUT_MS)
        heartbeats.become_active(image, 50, 0)
        assert heartbeats.state_of(1) is BrokerControlState.UNFENCED
        heartbeats.shutdown_written(broker(1), 60)
        assert heartbeats.state_of(1) is BrokerControlState.CONTROLLED_SHUTDOWN

    def test_nobody_waits_for_a_broker_that_continues_its_shutdown(self) -> None:
        image = self.image()
        for broker_id in (1, 2):
            image.apply(registered(broker_id, fenced=False))
            image.apply(begin_controlled_shutdown(broker_id, EPOCH))
        heartbeats = BrokerHeartbeats(TIMEOUT_MS)
        heartbeats.become_active(image, 50, 0)
        heartbeats.shutdown_written(broker(1), 60)
        assert not heartbeats.others_have_passed(1)
        heartbeats.shutdown_written(broker(2), 70)
        assert heartbeats.others_have_passed(1)
        assert heartbeats.others_have_passed(2)

    def test_becoming_active_forgets_earlier_state(self) -> None:
        heartbeats = of(5, unfenced=(6,))
        heartbeats.heard(broker(5), 3, 0)
        heartbeats.become_active(self.image(), 50, 5)
        heartbeats.heard(broker(1), 60, 5)
        shutting_down(heartbeats, 1, 60)
        assert heartbeats.others_have_passed(1)
        assert ended(heartbeats, 1_000) == [1]
        with pytest.raises(BrokenInvariantError, match="broker 5"):
            heartbeats.state_of(5)

    def test_resigning_forgets_all_brokers(self) -> None:
        heartbeats = of(unfenced=(0,))
        heartbeats.heard(broker(0), 0, 0)
        heartbeats.resign()
        assert not heartbeats.has_session(broker(0), 0)
        assert ended(heartbeats, 1_000) == []
        with pytest.raises(BrokenInvariantError, match="broker 0"):
            heartbeats.state_of(0)


class TestControlledShutdown:
    def test_a_shutdown_waits_for_the_slowest_active_broker(self) -> None:
        heartbeats = of(4, unfenced=(0, 1, 2, 5))
        for broker_id, offset in ((0, 120), (1, 98), (2, 100), (4, 0), (5, 0)):
            heartbeats.heard(broker(broker_id), offset, 0)
        shutting_down(heartbeats, 5, 99)
        assert not heartbeats.others_have_passed(5)
        heartbeats.heard(broker(1), 99, 0)
        assert heartbeats.others_have_passed(5)

    def test_a_shutdown_waits_for_no_fenced_departing_or_gone_broker(self) -> None:
        heartbeats = of(unfenced=(0, 1, 2, 5))
        for broker_id in (0, 1, 2, 5):
            heartbeats.heard(broker(broker_id), 98, 0)
        shutting_down(heartbeats, 5, 99)
        heartbeats.replay(fence(0, EPOCH), 201)
        shutting_down(heartbeats, 1, 202)
        assert not heartbeats.others_have_passed(5)
        heartbeats.replay(records.UnregisterBrokerRecord(broker_id=2, broker_epoch=EPOCH), 203)
        assert heartbeats.others_have_passed(5)

    def test_a_shutdown_waits_for_brokers_that_have_not_reported_their_offset_yet(self) -> None:
        heartbeats = of(unfenced=(0, 5))
        shutting_down(heartbeats, 5, 0)
        assert not heartbeats.others_have_passed(5)
        heartbeats.heard(broker(0), 0, 0)
        assert heartbeats.others_have_passed(5)

    def test_an_unfenced_broker_has_to_report_its_offset_again(self) -> None:
        heartbeats = of(0, unfenced=(5,))
        shutting_down(heartbeats, 5, 99)
        heartbeats.heard(broker(0), 150, 0)
        heartbeats.replay(unfence(0, EPOCH), 151)
        assert not heartbeats.others_have_passed(5)
        heartbeats.heard(broker(0), 150, 1)
        assert heartbeats.others_have_passed(5)

    def test_a_shutdown_waits_until_its_records_are_written(self) -> None:
        heartbeats = of(unfenced=(5,))
        shutting_down(heartbeats, 5, None)
        assert heartbeats.state_of(5) is BrokerControlState.CONTROLLED_SHUTDOWN
        assert not heartbeats.others_have_passed(5)
        heartbeats.shutdown_written(broker(5), 210)
        assert heartbeats.others_have_passed(5)

    def test_a_shutdowns_offset_is_that_of_its_beginning(self) -> None:
        heartbeats = of(unfenced=(0, 5))
        heartbeats.heard(broker(0), 98, 0)
        shutting_down(heartbeats, 5, 98)
        heartbeats.shutdown_written(broker(5), 99)
        assert heartbeats.others_have_passed(5)

    def test_no_shutdown_begins_for_fenced_or_unknown_brokers_or_another_run(self) -> None:
        """The answer that begins the shutdown may come after the broker's session has ended."""
        heartbeats = of(0, unfenced=(1,))
        heartbeats.shutdown_written(broker(0), 10)
        heartbeats.shutdown_written(broker(1, EPOCH + 1), 10)
        heartbeats.shutdown_written(broker(2), 10)
        assert heartbeats.state_of(0) is BrokerControlState.FENCED
        assert heartbeats.state_of(1) is BrokerControlState.UNFENCED
        heartbeats.replay(begin_controlled_shutdown(0, EPOCH), 101)
        assert heartbeats.state_of(0) is BrokerControlState.FENCED
        heartbeats.replay(unfence(0, EPOCH), 102)
        assert heartbeats.state_of(0) is BrokerControlState.UNFENCED

    def test_a_record_that_says_it_again_changes_nothing(self) -> None:
        heartbeats = of(unfenced=(0, 5))
        heartbeats.heard(broker(0), 98, 0)
        shutting_down(heartbeats, 5, 98)
        heartbeats.replay(begin_controlled_shutdown(5, EPOCH), 201)
        assert heartbeats.others_have_passed(5)

    @pytest.mark.parametrize("again", [fence(5, EPOCH), registered(5, fenced=False)])
    def test_a_shutdown_ends_if_the_broker_is_fenced_or_registers_again(
        self, again: records.RegisterBrokerRecord
    ) -> None:
        heartbeats = of(unfenced=(5,))
        shutting_down(heartbeats, 5, 99)
        heartbeats.replay(again, 300)
        heartbeats.replay(unfence(5, EPOCH), 301)
        assert heartbeats.state_of(5) is BrokerControlState.UNFENCED

    def test_other_changes_of_the_registration_leave_it(self) -> None:
        heartbeats = of(unfenced=(5,))
        shutting_down(heartbeats, 5, 99)
        change = records.BrokerRegistrationChangeRecord(broker_id=5, broker_epoch=EPOCH, cordoned_log_dirs=[])
        heartbeats.replay(change, 300)
        assert heartbeats.state_of(5) is BrokerControlState.CONTROLLED_SHUTDOWN


class TestCatchingUp:
    def test_a_broker_has_caught_up_at_the_offset_of_its_registration(self) -> None:
        heartbeats = of(0)
        assert not heartbeats.is_caught_up(0, 99)
        assert heartbeats.is_caught_up(0, 100)

    def test_each_registration_has_its_own_offset(self) -> None:
        heartbeats = of(0)
        heartbeats.replay(registered(0, epoch=110), 120)
        assert not heartbeats.is_caught_up(0, 119)
        assert heartbeats.is_caught_up(0, 120)

    def test_a_change_of_the_registration_keeps_the_offset(self) -> None:
        heartbeats = of(0)
        heartbeats.replay(unfence(0, EPOCH), 120)
        assert heartbeats.is_caught_up(0, 100)


def test_asking_about_an_unknown_broker_breaks_an_invariant() -> None:
    heartbeats = of(1, 3)
    with pytest.raises(BrokenInvariantError, match="broker 2"):
        heartbeats.state_of(2)
    with pytest.raises(BrokenInvariantError, match="broker 2"):
        heartbeats.is_caught_up(2, 0)
    with pytest.raises(BrokenInvariantError, match="broker 4"):
        heartbeats.others_have_passed(4)
    with pytest.raises(BrokenInvariantError, match="broker 4"):
        heartbeats.replay(fence(4, EPOCH), 1)


def test_records_of_other_things_change_nothing() -> None:
    heartbeats = of(unfenced=(0,))
    heartbeats.replay(records.NoOpRecord(), 101)
    assert heartbeats.state_of(0) is BrokerControlState.UNFENCED
