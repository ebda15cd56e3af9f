"""Leaders ask their controller together, one request at a time, until it has answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from broker.controller.broker_records import BrokerIncarnation
from broker.peers.alter_partition_manager import (
    ALTER_PARTITION_RETRY_MS,
    MOST_PARTITIONS_PER_REQUEST,
    AlterPartitionManager,
)
from broker.replicas.in_sync_replicas import LeaderAndIsr, WantedIsr
from protocol.errors import Error, KafkaError
from protocol.messages.broker_to_controller import (
    AlteredPartition,
    AlteredPartitionTopic,
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerState,
)
from tests.support.controller_channel import Channel, Timers
from tests.support.failing_calls import fail
from tests.support.wishes import tell

ORDERS, LINES = bytes(15) + b"\x07", bytes(15) + b"\x08"
WANTED = WantedIsr(leader_epoch=3, isr=[(1, 40), (2, -1)], leader_recovery_state=0, partition_epoch=9)
NOW = LeaderAndIsr(leader_id=1, leader_epoch=3, isr=[1, 2], leader_recovery_state=0, partition_epoch=10)

Key = tuple[bytes, int]


class Leaders:
    """The leaders of one broker, and what they were told."""

    def __init__(self) -> None:
        self.timers, self.channel = Timers(), Channel()
        self.broker_epoch = 40
        self.told: list[tuple[Key, LeaderAndIsr | Error]] = []
        self.manager = AlterPartitionManager(
            lambda: BrokerIncarnation(1, self.broker_epoch),
            self.channel,  # type: ignore[arg-type]
            self.timers,
        )

    def submit(self, *key: object, then: Callable[[], None] = lambda: None) -> None:
        topic_id, index = key
        assert isinstance(topic_id, bytes)
        assert isinstance(index, int)

        def told(outcome: LeaderAndIsr | KafkaError) -> None:
            self.told.append(
                ((topic_id, index), outcome.error if isinstance(outcome, KafkaError) else outcome)
            )
            then()

        tell(self.manager.submit((topic_id, index), WANTED), told)

    def asked(self) -> list[Key]:
        """Return the partitions of the request in flight."""
        request = self.channel.request
        assert isinstance(request, AlterPartitionRequest)
        return [
            (topic.topic_id, partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
        ]


def answer_to(keys: Iterable[Key], error: Error = Error.NONE, recovery: int = 0) -> AlterPartitionResponse:
    """Return an answer that says the same of each partition."""
    return AlterPartitionResponse(
        topics=[
            AlteredPartitionTopic(
                topic_id=topic_id,
                partitions=[
                    AlteredPartition(
                        partition_index=index,
                        error_code=error,
                        leader_id=1,
                        leader_epoch=3,
                        isr=[1, 2],
                        leader_recovery_state=recovery,
                        partition_epoch=10,
                    )
                ],
            )
            for topic_id, index in keys
        ]
    )


def test_a_request_names_the_broker_and_each_members_epoch() -> None:
    leaders = Leaders()
    leaders.submit(ORDERS, 0)
    assert leaders.channel.request == AlterPartitionRequest(
        broker_id=1,
        broker_epoch=40,
        topics=[
            AlterPartitionTopic(
                topic_id=ORDERS,
                partitions=[
                    AlterPartitionPartition(
                        partition_index=0,
                        leader_epoch=3,
                        new_isr_with_epochs=[
                            BrokerState(broker_id=1, broker_epoch=40),
                            BrokerState(broker_id=2, broker_epoch=-1),
                        ],
                        leader_recovery_state=0,
                        partition_epoch=9,
                    )
                ],
            )
        ],
    )
    assert leaders.channel.timeout_ms is None
    leaders.channel.answer(answer_to([(ORDERS, 0)]))
    assert leaders.told == [((ORDERS, 0), NOW)]
    assert not leaders.channel.is_busy


def test_wishes_made_during_a_request_go_together_in_the_next() -> None:
    leaders = Leaders()
    for key in [(ORDERS, 0), (LINES, 0), (ORDERS, 1), (LINES, 1)]:
        leaders.submit(*key)
    assert leaders.asked() == [(ORDERS, 0)]
    leaders.channel.answer(answer_to([(ORDERS, 0)]))
    assert leaders.asked() == [(LINES, 0), (LINES, 1), (ORDERS, 1)]
    assert len(leaders.channel.request.topics) == 2
    leaders.channel.answer(answer_to(leaders.asked()))
    assert [key for key, _ in leaders.told] == [(ORDERS, 0), (LINES, 0), (ORDERS, 1), (LINES, 1)]


def test_a_partition_has_one_wish_at_a_time() -> None:
    leaders = Leaders()
    leaders.submit(ORDERS, 0)
    leaders.submit(ORDERS, 0)
    assert leaders.told == [((ORDERS, 0), Error.OPERATION_NOT_ATTEMPTED)]
    leaders.channel.answer(answer_to([(ORDERS, 0)]))
    assert leaders.told[1:] == [((ORDERS, 0), NOW)]
    leaders.submit(ORDERS, 0)
    assert leaders.asked() == [(ORDERS, 0)]


def test_a_callback_may_wish_more_and_all_such_wishes_go_together() -> None:
    leaders = Leaders()
    for index in range(3):
        leaders.submit(ORDERS, index, then=lambda index=index: leaders.submit(LINES, index))  # type: ignore[misc]
    leaders.channel.answer(answer_to([(ORDERS, 0)]))
    assert leaders.asked() == [(ORDERS, 1), (ORDERS, 2), (LINES, 0)]
    leaders.channel.answer(answer_to(leaders.asked()))
    assert leaders.asked() == [(LINES, 1), (LINES, 2)]


@pytest.mark.parametrize(
    "error",
    [
        Error.FENCED_LEADER_EPOCH,
        Error.INVALID_UPDATE_VERSION,
        Error.INELIGIBLE_REPLICA,
        Error.NEW_LEADER_ELECTED,
        Error.UNKNOWN_TOPIC_ID,
    ],
)
def test_a_refused_wish_calls_back_and_another_may_follow(error: Error) -> None:
    leaders = Leaders()
    leaders.submit(ORDERS, 0)
    leaders.channel.answer(answer_to([(ORDERS, 0)], error))
    assert leaders.told == [((ORDERS, 0), error)]
    assert not leaders.channel.is_busy
    assert not leaders.timers.waiting
    leaders.submit(ORDERS, 0)
    assert leaders.channel.is_busy


def test_a_state_of_recovery_that_there_is_not_is_an_error() -> None:
    leaders = Leaders()
    leaders.submit(ORDERS, 0)
    leaders.channel.answer(answer_to([(ORDERS, 0)], recovery=2))
    assert leaders.told == [((ORDERS, 0), Error.UNKNOWN_SERVER_ERROR)]


@pytest.mark.parametrize(
    "refusal",
    [
        AlterPartitionResponse(error_code=Error.STALE_BROKER_EPOCH),
        AlterPartitionResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED),
        AlterPartitionResponse(error_code=12_345),
        KafkaError(Error.UNSUPPORTED_VERSION),
    ],
)
def test_a_refused_request_is_sent_again_with_the_wishes_made_meanwhile(
    refusal: AlterPartitionResponse | KafkaError,
) -> None:
    leaders = Leaders()
    leaders.submit(ORDERS, 0)
    leaders.channel.answer(refusal)
    assert leaders.told == []
    leaders.broker_epoch = 50  # it has registered again
    assert leaders.timers.next() == ALTER_PARTITION_RETRY_MS
    assert (leaders.asked(), leaders.channel.request.broker_epoch) == ([(ORDERS, 0)], 50)
    leaders.channel.answer(refusal)
    leaders.submit(LINES, 0)  # doesn't wait for the timer, as in Kafka
    assert leaders.asked() == [(ORDERS, 0), (LINES, 0)]
    assert leaders.timers.waiting == []
    leaders.channel.answer(answer_to(leaders.asked()))
    assert [key for key, _ in leaders.told] == [(ORDERS, 0), (LINES, 0)]


def test_a_partition_missing_from_the_answer_is_requested_again() -> None:
    leaders = Leaders()
    leaders.submit(ORDERS, 0)
    leaders.channel.answer(answer_to([(LINES, 5)]))
    assert not leaders.channel.is_busy  # else a controller that always does so would be asked without end
    assert leaders.timers.next() == ALTER_PARTITION_RETRY_MS
    assert leaders.asked() == [(ORDERS, 0)]
    assert leaders.told == []


@pytest.mark.limit("broker.peers.alter_partition_manager.MOST_PARTITIONS_PER_REQUEST")
def test_a_request_has_a_limit_of_partitions_and_the_next_one_has_the_rest() -> None:
    leaders = Leaders()
    leaders.submit(LINES, 0)
    for index in range(MOST_PARTITIONS_PER_REQUEST + 2):
        leaders.submit(ORDERS, index)
    leaders.channel.answer(answer_to([(LINES, 0)]))
    assert len(leaders.asked()) == MOST_PARTITIONS_PER_REQUEST
    leaders.channel.answer(answer_to(leaders.asked()))
    assert leaders.asked() == [
        (ORDERS, MOST_PARTITIONS_PER_REQUEST),
        (ORDERS, MOST_PARTITIONS_PER_REQUEST + 1),
    ]


def test_a_callback_that_fails_does_not_keep_others_from_being_called() -> None:
    leaders = Leaders()
    leaders.submit(LINES, 0)

    def fail() -> None:
        raise ZeroDivisionError

    leaders.submit(ORDERS, 0, then=fail)
    leaders.submit(ORDERS, 1)
    leaders.channel.answer(answer_to([(LINES, 0)]))
    with pytest.raises(ZeroDivisionError):
        leaders.channel.answer(answer_to(leaders.asked()))
    assert [key for key, _ in leaders.told] == [(LINES, 0), (ORDERS, 0), (ORDERS, 1)]
    assert leaders.channel.request is None


@pytest.mark.parametrize("when", ["asked", "waiting"])
def test_after_a_stop_no_callback_is_called_and_nothing_is_asked(when: str) -> None:
    leaders = Leaders()
    leaders.submit(ORDERS, 0)
    if when == "waiting":
        leaders.channel.answer(KafkaError(Error.UNSUPPORTED_VERSION))
    leaders.manager.stop()
    assert not leaders.channel.is_busy
    assert leaders.timers.waiting == []
    leaders.submit(ORDERS, 1)
    assert not leaders.channel.is_busy
    assert leaders.told == []


def test_no_callback_follows_the_one_that_stops_the_manager() -> None:
    leaders = Leaders()
    leaders.submit(LINES, 0)
    leaders.submit(ORDERS, 0, then=leaders.manager.stop)
    leaders.submit(ORDERS, 1)
    leaders.channel.answer(answer_to([(LINES, 0)]))
    leaders.channel.answer(answer_to(leaders.asked()))
    assert [key for key, _ in leaders.told] == [(LINES, 0), (ORDERS, 0)]
    assert not leaders.channel.is_busy
    assert leaders.timers.waiting == []


def test_a_wish_that_lacked_memory_may_be_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leaders = Leaders()
    with monkeypatch.context() as patch:
        fail(patch, leaders.channel, "ask")
        with pytest.raises(MemoryError):
            leaders.submit(ORDERS, 0)
    leaders.submit(ORDERS, 0)
    assert leaders.asked() == [(ORDERS, 0)]
    assert leaders.told == []
