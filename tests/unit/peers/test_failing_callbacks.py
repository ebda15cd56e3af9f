"""If one callback fails to take another broker's answer, the other callbacks still get it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from broker.coordination.share_persister import DELETE, ShareStateAsk
from broker.coordination.transactions import TRANSACTION_TOPIC
from broker.peers.other_brokers import (
    LatestOffsetChannels,
    MarkerChannels,
    ShareStateChannels,
    TransactionChannels,
)
from coordinator.ports import TxnMarker
from coordinator.share.share_partition_key import SharePartitionKey
from coordinator.transaction.producer_ids import TransactionalProducer
from protocol.errors import Error, KafkaError
from protocol.waiting import Later
from tests.unit.peers.several_brokers import OWN, SECOND, Channels, cluster

Ask = Callable[[int, Callable[[Any], None]], object]


class SomeChannels(Channels):
    def __call__(self, *, together: Any = len, **how: Any) -> Any:
        return super().__call__(**how)


def tell(answer: Later[Any] | None, then: Callable[[Any], None]) -> None:
    assert answer is not None
    answer.when_answered(lambda: then(answer.result()))


def markers(channels: Channels) -> Ask:
    of = MarkerChannels(OWN, cluster("t", [SECOND]), None, channels)  # type: ignore[arg-type]
    return lambda producer_id, done: of.write(TxnMarker(producer_id, 0, 0, True, 2), [("t", 0)], done)


def transactions(channels: Channels) -> Ask:
    of = TransactionChannels(OWN, cluster(TRANSACTION_TOPIC, [SECOND]), lambda _: 0, channels)
    return lambda number, then: tell(of.ask(TransactionalProducer(str(number), 9, 0), [("t", 0)], True), then)


def latest_offsets(channels: Channels) -> Ask:
    of = LatestOffsetChannels(channels)
    return lambda partition, then: tell(of.ask(SECOND, ("t", partition)), then)


def share_states(channels: Channels) -> Ask:
    of = ShareStateChannels(channels)

    def ask(partition: int, answered: Callable[[Any], None]) -> None:
        key = SharePartitionKey("g", bytes(16), partition)
        asked: Any = ShareStateAsk(key, DELETE, ask=None, part=None)  # type: ignore[arg-type]
        tell(of.ask(SECOND, asked), answered)

    return ask


@pytest.mark.parametrize("ask_by", [markers, transactions, latest_offsets, share_states])
def test_a_failing_callback_does_not_keep_others_from_their_answers(
    ask_by: Callable[[Channels], Ask],
) -> None:
    channels, told = SomeChannels(), []
    ask = ask_by(channels)

    def told_of(number: int, _: object) -> None:
        if number == 1:
            raise MemoryError
        told.append(number)

    for number in range(4):
        ask(number, partial(told_of, number))
    with pytest.raises(MemoryError):
        channels.answered(channels.items(SECOND), KafkaError(Error.NETWORK_EXCEPTION))
    assert told == [0, 2, 3]


def test_markers_here_are_written_though_the_callback_of_others_fails() -> None:
    written = []

    class Own:
        def write(self, marker: TxnMarker, partitions: list[Any], done: object) -> None:
            written.extend(partitions)

    def fail(_: object) -> None:
        raise MemoryError

    without_leader, here = ("t", 0), ("t", 1)
    channels = MarkerChannels(OWN, cluster("t", [-1, OWN]), Own(), SomeChannels())
    with pytest.raises(MemoryError):
        channels.write(TxnMarker(9, 0, 0, True, 2), [without_leader, here], fail)
    assert written == [here]
