"""A leader's other replicas: which come into the ISR, which leave it, and whose logs count for what is committed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.controller.image import ClusterImage
from broker.replicas.in_sync_replicas import (
    RECOVERED,
    IsrChanges,
    IsrState,
    LeaderAndIsr,
    LedReplicas,
    PartitionKey,
    Replication,
    WantedIsr,
)
from protocol.errors import Error, KafkaError
from protocol.messages.metadata_records import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from protocol.waiting import Later

ME, SECOND, THIRD = 1, 2, 3
KEY = (b"T" * 16, 0)
LAG_MS = 30_000
NOW_MS = 1_000_000
FENCE, SHUTTING_DOWN = {"fenced": 1}, {"in_controlled_shutdown": 1}

Told = Callable[[LeaderAndIsr | KafkaError], None]


class Leading:
    """Leader 1, with 2 in sync and 3 out of sync. All three are alive, with the epochs 10, 20 and 30."""

    def __init__(self, isr: list[int] | None = None, replicas: list[int] | None = None) -> None:
        self.now_ms = NOW_MS
        self.image = ClusterImage()
        for broker_id in (ME, SECOND, THIRD):
            self.image.apply(
                RegisterBrokerRecord(broker_id=broker_id, broker_epoch=broker_id * 10, fenced=False)
            )
        self.asked: list[tuple[WantedIsr, Told]] = []
        self.altered = 0
        self.has_too_little_memory = False
        self.changes = IsrChanges()
        common = Replication(
            self.image,
            now_ms=lambda: self.now_ms,
            max_lag_ms=lambda: LAG_MS,
            own_epoch=lambda: 10,
            alter=self._alter,
            changes=self.changes,
        )
        self.others = LedReplicas(ME, KEY, common, self._altered)
        self.end_offset = 100
        self.say(isr or [ME, SECOND], 0, replicas or [ME, SECOND, THIRD], is_new_leader=True)

    def _alter(self, key: PartitionKey, wanted: WantedIsr) -> Later[LeaderAndIsr]:
        assert key == KEY
        if self.has_too_little_memory:
            raise MemoryError
        altered: Later[LeaderAndIsr] = Later()

        def told(answer: LeaderAndIsr | KafkaError) -> None:
            if isinstance(answer, KafkaError):
                altered.fail(answer)
            else:
                altered.reply(answer)

        self.asked.append((wanted, told))
        return altered

    def _altered(self) -> None:
        self.altered += 1

    def say(
        self,
        isr: list[int],
        partition_epoch: int,
        replicas: list[int] | None = None,
        *,
        leader_epoch: int = 5,
        is_new_leader: bool = False,
    ) -> bool:
        """Apply what the metadata says."""
        all_replicas = replicas or [ME, SECOND, THIRD]
        return self.others.follow(
            leader_epoch, partition_epoch, all_replicas, isr, self.end_offset, is_new_leader=is_new_leader
        )

    def change(self, broker_id: int, **fields: int) -> None:
        self.image.apply(
            BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_id * 10, **fields)
        )

    def fetch(self, broker_id: int, offset: int, epoch: int | None = None, needed: int = 0) -> bool:
        """Have a replica fetch what is behind `offset`."""
        epoch = broker_id * 10 if epoch is None else epoch
        moved = self.others.fetched(broker_id, offset, 0, epoch, leader_end_offset=self.end_offset)
        self.others.expand(broker_id, needed)
        return moved

    def committed(self) -> int:
        return self.others.committed_offset(self.end_offset, self.end_offset)

    def wanted(self) -> list[list[int]]:
        """Return the ISRs that the leader asked for."""
        return [[broker_id for broker_id, _ in wanted.isr] for wanted, _ in self.asked]


def changes(it: Leading) -> tuple[int, int, int]:
    """Return how often the ISR was expanded, was shrunk and failed to change."""
    return it.changes.expanded, it.changes.shrunk, it.changes.failed


# --- coming in ----------------------------------------------------------------------------------------------


def test_a_replica_that_has_caught_up_is_proposed_with_the_epoch_of_its_run() -> None:
    it = Leading()
    it.fetch(THIRD, 49, needed=50)
    assert it.asked == []
    it.fetch(THIRD, 50, needed=50)
    [(wanted, _)] = it.asked
    assert wanted == WantedIsr(5, [(ME, 10), (SECOND, -1), (THIRD, 30)], RECOVERED, 0)


def test_a_request_that_could_not_be_made_is_made_with_the_next_fetch() -> None:
    it = Leading()
    it.has_too_little_memory = True
    with pytest.raises(MemoryError):
        it.fetch(THIRD, 100)
    assert it.others.in_sync.state is IsrState.COMMITTED
    assert list(it.others.in_sync.maximal_isr) == [ME, SECOND]
    it.has_too_little_memory = False
    it.fetch(THIRD, 100)
    assert it.wanted() == [[ME, SECOND, THIRD]]


def test_a_replica_in_sync_or_proposed_is_not_proposed_again() -> None:
    it = Leading()
    it.fetch(SECOND, 100)
    it.fetch(THIRD, 100)
    it.fetch(THIRD, 100)
    assert it.wanted() == [[ME, SECOND, THIRD]]


@pytest.mark.parametrize("change", [FENCE, SHUTTING_DOWN])
def test_a_replica_of_a_departing_broker_does_not_join(change: dict[str, int]) -> None:
    it = Leading()
    it.change(THIRD, **change)
    it.fetch(THIRD, 100)
    assert it.asked == []


def test_a_replica_of_an_unknown_broker_does_not_join() -> None:
    it = Leading(replicas=[ME, SECOND, 4])
    it.fetch(4, 100, epoch=-1)
    assert it.asked == []


@pytest.mark.parametrize(("epoch", "comes"), [(30, True), (-1, True), (31, False)])
def test_a_replica_joins_by_the_fetches_of_its_brokers_present_run(epoch: int, comes: bool) -> None:
    """A run later than the known one may come in, once the metadata knows it."""
    it = Leading()
    it.fetch(THIRD, 100, epoch)
    assert bool(it.asked) is comes


def test_a_fetch_of_an_earlier_run_is_refused_and_changes_nothing() -> None:
    it = Leading()
    it.fetch(THIRD, 40)
    with pytest.raises(KafkaError) as refused:
        it.fetch(THIRD, 100, epoch=29)
    assert refused.value.error is Error.NOT_LEADER_OR_FOLLOWER
    assert it.others.others[THIRD].log_end_offset == 40


def test_an_earlier_run_of_a_fenced_broker_may_keep_fetching() -> None:
    it = Leading()
    it.change(THIRD, **FENCE)
    assert it.fetch(THIRD, 40, epoch=29)
    assert it.asked == []


# --- leaving ------------------------------------------------------------------------------------------------


def test_a_replica_at_the_end_stays_however_long_ago_it_fetched() -> None:
    it = Leading()
    it.fetch(SECOND, 100)
    it.now_ms += 10 * LAG_MS
    it.others.shrink(it.end_offset)
    assert it.asked == []


def test_a_replica_that_lags_too_long_is_removed() -> None:
    it = Leading()
    it.fetch(SECOND, 100)
    it.end_offset = 101
    it.now_ms += LAG_MS
    it.others.shrink(it.end_offset)
    assert it.asked == []
    it.now_ms += 1
    it.others.shrink(it.end_offset)
    assert it.wanted() == [[ME]]
    it.others.shrink(it.end_offset)
    assert len(it.asked) == 1, "one change at a time"


def test_a_replica_that_never_fetches_has_its_time_from_the_begin_of_the_leader_epoch() -> None:
    it = Leading()
    it.now_ms += LAG_MS
    it.others.shrink(it.end_offset)
    assert it.asked == []
    it.now_ms += 1
    it.others.shrink(it.end_offset)
    assert it.wanted() == [[ME]]


def test_a_replica_that_reaches_the_end_of_its_previous_fetch_had_caught_up_then() -> None:
    it = Leading()
    it.fetch(SECOND, 90)
    it.now_ms += LAG_MS
    it.end_offset = 200
    it.fetch(SECOND, 100)  # this was the log's end half a minute ago
    it.now_ms += 1
    it.others.shrink(it.end_offset)
    assert it.wanted() == [[ME]]

    on_its_way = Leading()
    on_its_way.fetch(SECOND, 90)
    on_its_way.now_ms += 1_000
    on_its_way.fetch(SECOND, 95)
    on_its_way.now_ms += LAG_MS - 1_000
    on_its_way.end_offset = 200
    on_its_way.fetch(SECOND, 100)
    on_its_way.now_ms += 1_000
    on_its_way.others.shrink(200)
    assert on_its_way.asked == []


def test_a_member_in_sync_without_a_replica_leaves() -> None:
    it = Leading(isr=[ME, SECOND], replicas=[ME, THIRD])
    it.others.shrink(it.end_offset)
    assert it.wanted() == [[ME]]


# --- what is committed --------------------------------------------------------------------------------------


def test_only_replicas_in_sync_count() -> None:
    it = Leading()
    it.fetch(SECOND, 70)
    it.fetch(THIRD, 20, needed=100)
    assert it.committed() == 70
    assert it.others.committed_offset(60, 100) == 60, "the leader's own disk, too"


def test_a_joining_replica_counts_while_it_has_caught_up_lately() -> None:
    it = Leading(isr=[ME])
    it.fetch(THIRD, 100, needed=1_000)
    it.end_offset = 120
    assert it.committed() == 100
    it.now_ms += LAG_MS + 1
    assert it.committed() == 120


def test_a_proposed_replica_counts_before_the_controller_has_answered() -> None:
    it = Leading(isr=[ME])
    it.fetch(THIRD, 80)
    it.now_ms += 10 * LAG_MS
    assert it.committed() == 80


def test_a_replica_proposed_for_removal_counts_until_the_controller_has_answered() -> None:
    it = Leading()
    it.now_ms += LAG_MS + 1
    it.others.shrink(it.end_offset)
    assert it.committed() == -1
    [(_, told)] = it.asked
    told(LeaderAndIsr(ME, 5, [ME], RECOVERED, 1))
    assert (it.committed(), it.altered) == (100, 1)


# --- answers ------------------------------------------------------------------------------------------------


def test_a_request_that_the_controller_refuses_for_now_is_repeated() -> None:
    it = Leading()
    it.fetch(THIRD, 100)
    for _ in range(3):
        it.asked[-1][1](KafkaError(Error.UNKNOWN_SERVER_ERROR))
    assert it.wanted() == [[ME, SECOND, THIRD]] * 4
    assert it.altered == 0


def test_an_ineligible_replica_is_proposed_again_at_its_next_fetch() -> None:
    it = Leading()
    it.fetch(THIRD, 100)
    it.asked[0][1](KafkaError(Error.INELIGIBLE_REPLICA))
    assert it.others.in_sync.state is IsrState.COMMITTED
    it.fetch(THIRD, 100)
    assert len(it.asked) == 2


def test_a_request_unknown_to_the_controller_waits_for_the_metadata() -> None:
    it = Leading()
    it.fetch(THIRD, 100)
    it.asked[0][1](KafkaError(Error.FENCED_LEADER_EPOCH))
    it.fetch(THIRD, 100)
    assert len(it.asked) == 1
    assert it.say([ME, SECOND], 0)
    it.fetch(THIRD, 100)
    assert len(it.asked) == 2


# --- the metadata -------------------------------------------------------------------------------------------


def test_metadata_older_than_the_controllers_answer_does_not_count() -> None:
    it = Leading()
    it.fetch(THIRD, 100)
    it.asked[0][1](LeaderAndIsr(ME, 5, [ME, SECOND, THIRD], RECOVERED, 1))
    assert not it.say([ME, SECOND], 0)
    assert it.others.in_sync.isr == [ME, SECOND, THIRD]
    assert it.say([ME, SECOND, THIRD], 1)


def test_a_new_leader_knows_nothing_and_a_reelected_one_keeps_its_knowledge() -> None:
    it = Leading()
    it.fetch(SECOND, 70)
    it.now_ms += LAG_MS
    assert it.say([ME, SECOND], 1, leader_epoch=6)
    assert it.committed() == 70
    it.now_ms += LAG_MS
    it.others.shrink(it.end_offset)
    assert it.asked == [], "it has all of its time again"
    assert it.say([ME, SECOND], 2, leader_epoch=7, is_new_leader=True)
    assert it.committed() == -1


def test_replicas_that_go_are_forgotten_and_others_begin_with_nothing() -> None:
    it = Leading()
    it.fetch(SECOND, 70)
    assert it.say([ME], 1, [ME, THIRD])
    assert [*it.others.others] == [THIRD]
    assert it.say([ME], 2, [ME, SECOND, THIRD])
    assert it.others.others[SECOND].log_end_offset == -1


# --- what metrics are told ----------------------------------------------------------------------------------


def test_changes_of_the_isr_and_failed_requests_are_counted() -> None:
    it = Leading()
    it.fetch(SECOND, 100)
    it.fetch(THIRD, 100)
    [(_, told)] = it.asked
    told(KafkaError(Error.NETWORK_EXCEPTION))
    assert changes(it) == (0, 0, 1)
    [_, (_, told)] = it.asked
    told(LeaderAndIsr(ME, 5, [ME, SECOND, THIRD], RECOVERED, 1))
    assert changes(it) == (1, 0, 1)
    it.now_ms += LAG_MS + 1
    it.end_offset = 101
    it.others.shrink(it.end_offset)
    [*_, (_, told)] = it.asked
    told(LeaderAndIsr(ME, 5, [ME], RECOVERED, 2))
    assert changes(it) == (1, 1, 1)


@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(4, 9), (5, -1)])
def test_an_answer_of_an_older_epoch_counts_as_failed(leader_epoch: int, partition_epoch: int) -> None:
    it = Leading()
    it.fetch(THIRD, 100)
    [(_, told)] = it.asked
    told(LeaderAndIsr(ME, leader_epoch, [ME, SECOND, THIRD], RECOVERED, partition_epoch))
    assert changes(it) == (0, 0, 1)


def test_an_answer_older_than_the_metadata_does_not_count() -> None:
    it = Leading()
    it.fetch(THIRD, 100)
    [(_, told)] = it.asked
    it.say([ME, SECOND], 1)
    told(LeaderAndIsr(ME, 5, [ME, SECOND, THIRD], RECOVERED, 2))
    assert changes(it) == (0, 0, 0)
