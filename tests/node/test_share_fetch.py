"""ShareFetch on a whole node: what it reads and answers, and what wakes a fetch that waits. The answers are those that
Apache Kafka gave when it was asked the same."""

from __future__ import annotations

import asyncio

import pytest

from broker.network.turns import Turns
from broker.replicas import searches_by_time
from broker.server import Server
from broker.shares import share_fetching as delayed_share_fetch
from protocol.errors import Error
from protocol.records.batch import walk_batches
from protocol.waiting import Later
from storage.files import FileRange
from tests.node.shares import (
    ACCEPT,
    GROUP,
    RELEASE,
    Shares,
    ack_errors,
    acquired,
    errors,
    told,
)
from tests.support.partition_logs import append, batch, end_transaction
from tests.support.topics import topics_of
from tests.support.whole_server import take_turns

LOCK_MS = 30_000


@pytest.fixture
def shares(node: Server) -> Shares:
    return Shares(node)


def record_offsets(answer: object) -> list[int]:
    """Return the base offsets of the batches in an answer with one partition."""
    records = answer.responses[0].partitions[0].records  # type: ignore[attr-defined]
    chunks = records if isinstance(records, list) else [records]
    whole = b"".join(
        chunk.read(0, len(chunk)) if isinstance(chunk, FileRange) else bytes(chunk) for chunk in chunks
    )
    return [header.base_offset for _, header in walk_batches(whole)]


# --- what is told -------------------------------------------------------------------------------------------


async def test_records_come_with_their_acquired_ranges(shares: Shares) -> None:
    shares.produce(5, 5, 5)
    client = shares.client()
    response = client.fetch(0, 0, max_records=7)
    assert acquired(response) == {0: [(0, 9, 1)]}
    assert record_offsets(response) == [0, 5]
    assert response.acquisition_lock_timeout_ms == LOCK_MS
    assert ack_errors(client.fetch(1, acks={0: [(6, 6, RELEASE)]}, max_records=0)) == {0: 0}
    response = client.fetch(2)
    assert acquired(response) == {0: [(6, 6, 2), (10, 14, 1)]}
    assert record_offsets(response) == [5, 10]


async def test_mode_record_limit(shares: Shares) -> None:
    shares.produce(5, 5)
    client = shares.client()
    assert acquired(client.fetch(0, 0, max_records=3, share_acquire_mode=1)) == {0: [(0, 2, 1)]}
    assert client.fetch(1, share_acquire_mode=2).error_code == Error.UNKNOWN_SERVER_ERROR
    assert acquired(client.fetch(2, max_records=3, share_acquire_mode=1)) == {0: [(3, 4, 1), (5, 5, 1)]}


async def test_nothing_is_fetched_of_no_records_or_bytes(shares: Shares) -> None:
    shares.produce(5)
    client = shares.client()
    assert acquired(client.fetch(0, 0, max_records=0, max_wait_ms=60_000)) == {}
    assert acquired(client.fetch(1, max_bytes=0, max_wait_ms=60_000)) == {}
    assert acquired(client.fetch(2)) == {0: [(0, 4, 1)]}


async def test_a_large_batch_comes_whole(shares: Shares) -> None:
    shares.produce(50, 1)
    assert acquired(shares.client().fetch(0, 0, max_bytes=1)) == {0: [(0, 49, 1)]}


async def test_an_unknown_topic(shares: Shares) -> None:
    client = shares.client()
    unknown = bytes(15) + b"\7"
    assert errors(client.fetch(0, 0, topic_id=unknown)) == {0: Error.UNKNOWN_TOPIC_ID}  # from Kafka 4.4 on
    assert errors(client.fetch(1)) == {0: Error.UNKNOWN_TOPIC_ID}
    assert client.fetch(2, forget=(0,), topic_id=unknown).error_code == 0
    response = client.acknowledge(3, {0: [(0, 0, ACCEPT)]}, topic_id=unknown)
    assert errors(response) == {0: Error.UNKNOWN_TOPIC_ID}


async def test_a_partition_that_there_is_not(shares: Shares) -> None:
    client = shares.client()
    assert errors(client.fetch(0, 7)) == {7: Error.UNKNOWN_TOPIC_OR_PARTITION}
    assert errors(client.fetch(1)) == {7: Error.UNKNOWN_TOPIC_OR_PARTITION}
    assert errors(client.acknowledge(2, {7: [(0, 0, ACCEPT)]})) == {7: Error.UNKNOWN_TOPIC_OR_PARTITION}


async def test_a_state_never_initialized(shares: Shares) -> None:
    shares.persisters.states.clear()
    client = shares.client()
    assert errors(client.fetch(0, 0, max_wait_ms=60_000)) == {0: Error.UNKNOWN_SERVER_ERROR}
    assert len(shares.shares) == 0
    shares.persisters.initialize(GROUP, shares.topic_id, 0)
    shares.produce(1)
    assert acquired(client.fetch(1)) == {0: [(0, 0, 1)]}


async def test_after_records_were_deleted_one_answer_is_empty(shares: Shares) -> None:
    shares.produce(5, 5)
    client = shares.client()
    client.fetch(0, 0, max_records=1)
    client.acknowledge(1, {0: [(0, 4, RELEASE)]})
    shares.node.partitions.get("t", 0).log.delete_records_before(5)
    assert acquired(client.fetch(2, max_wait_ms=60_000)) == {}
    assert acquired(client.fetch(3)) == {0: [(5, 9, 1)]}


async def test_aborted_records_are_not_acquired_where_the_group_reads_committed_ones(shares: Shares) -> None:
    """The log has data at 0-1, committed records at 2-4 with their marker at 5, aborted ones at 6-8 with their marker
    at 9, data at 10-11, and 12-13 of an open transaction."""
    partition = shares.node.partitions.get("t", 0)
    partition.log.verifies_transactions = False
    producer = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    append(partition.log, batch(2))
    append(partition.log, batch(3, base_sequence=0, **producer))
    end_transaction(partition.log, True)
    append(partition.log, batch(3, base_sequence=3, **producer))
    end_transaction(partition.log, False)
    append(partition.log, batch(2))
    append(partition.log, batch(2, base_sequence=6, **producer))
    partition.leader().advance()
    shares.overrides["share.isolation.level"] = "read_committed"
    response = shares.client().fetch(0, 0)
    assert acquired(response) == {0: [(0, 5, 1), (9, 11, 1)]}
    assert record_offsets(response) == [0, 2, 5, 6, 9, 10]


async def test_most_of_a_large_answer_stays_in_its_file(shares: Shares) -> None:
    partition = shares.node.partitions.get("t", 0)
    for _ in range(40):
        append(partition.log, batch(2, value_bytes=10_000))
    partition.leader().advance()
    client = shares.client()
    response = client.fetch(0, 0, max_records=60, max_bytes=1 << 24)
    assert acquired(response) == {0: [(0, 59, 1)]}
    assert record_offsets(response) == [*range(0, 60, 2)]
    assert any(isinstance(chunk, FileRange) for chunk in response.responses[0].partitions[0].records)
    client.fetch(1, acks={0: [(31, 31, RELEASE)]}, max_records=0)
    response = client.fetch(2, max_records=1, max_bytes=1 << 24)
    assert (acquired(response), record_offsets(response)) == ({0: [(31, 31, 2)]}, [30])


@pytest.mark.parametrize(
    ("reset", "first"), [("earliest", 0), ("latest", 6), ("by_duration:PT5S", 3), ("by_duration:P1D", 0)]
)
async def test_the_first_offset_of_a_group(shares: Shares, reset: str, first: int) -> None:
    partition = shares.node.partitions.get("t", 0)
    now_ms = shares.node.clock.now_ms()
    for age_ms in (10_000, 4_000):
        append(partition.log, batch(3, timestamp=now_ms - age_ms))
    partition.leader().advance()
    shares.overrides["share.auto.offset.reset"] = reset
    client = shares.client()
    client.fetch(0, 0, max_records=1)
    append(partition.log, batch(1))
    partition.leader().advance()
    client.fetch(1)
    found = shares.shares.find(GROUP, (shares.topic_id, 0))
    assert found is not None
    assert found.share.records.start_offset == first


async def test_a_long_search_for_the_beginning_holds_nobody_up(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searches_by_time, "_IN_PASSING", searches_by_time._IN_PASSING._replace(records=1))
    shares.overrides["share.auto.offset.reset"] = "by_duration:P30000D"
    shares.produce(3, 3)
    later = shares.client().fetch(0, 0, max_wait_ms=60_000)
    assert isinstance(later, Later)
    answered = asyncio.Event()
    later.when_answered(answered.set)
    await answered.wait()
    assert acquired(told(shares, later)) == {0: [(0, 5, 1)]}


async def test_nothing_was_appended_since_then(shares: Shares) -> None:
    shares.overrides["share.auto.offset.reset"] = "by_duration:PT1S"
    assert errors(shares.client().fetch(0, 0)) == {0: Error.OFFSET_NOT_AVAILABLE}


# --- waiting ------------------------------------------------------------------------------------------------


async def test_a_fetch_waits_until_something_is_appended(shares: Shares) -> None:
    client = shares.client()
    later = client.fetch(0, 0, 1, max_wait_ms=60_000)
    assert isinstance(later, Later)
    shares.produce(3, index=1)
    assert acquired(told(shares, later)) == {0: [], 1: [(0, 2, 1)]}
    assert not shares.node.partitions.get("t", 0).waiting


async def test_a_fetch_waits_until_the_log_has_grown_to_the_state(
    shares: Shares,
) -> None:
    """An unclean election leaves such a log. Kafka answers each fetch at once, so that clients ask again and again."""
    shares.persisters.initialize(GROUP, shares.topic_id, 0, start_offset=4)
    shares.produce(2)
    client = shares.client()
    assert errors(client.fetch(0, 0)) in ({}, {0: 0})
    later = client.fetch(1, max_wait_ms=60_000)
    assert isinstance(later, Later)
    shares.produce(1)
    assert later.answer() is later
    shares.produce(3)
    assert acquired(told(shares, later)) == {0: [(4, 5, 1)]}
    found = shares.shares.find(GROUP, (shares.topic_id, 0))
    assert found is not None
    assert found.share.records.start_offset == 4


async def test_a_fetch_waits_for_as_many_bytes_as_it_asks_for(shares: Shares) -> None:
    later = shares.client().fetch(0, 0, max_wait_ms=60_000, min_bytes=200)
    shares.produce(1)
    assert later.answer() is later
    shares.produce(10)
    assert acquired(told(shares, later)) == {0: [(0, 10, 1)]}


async def test_after_its_time_a_fetch_takes_the_records_there(shares: Shares) -> None:
    shares.produce(1)
    later = shares.client().fetch(0, 0, max_wait_ms=1, min_bytes=5_000)
    answered = asyncio.Event()
    later.when_answered(answered.set)
    await answered.wait()
    assert acquired(told(shares, later)) == {0: [(0, 0, 1)]}


async def test_a_release_wakes_a_fetch(shares: Shares) -> None:
    """In Kafka the fetch waits until its time is over."""
    shares.produce(3)
    client, other = shares.client(), shares.client()
    client.fetch(0, 0)
    later = other.fetch(0, 0, member="n", max_wait_ms=60_000)
    assert isinstance(later, Later)
    client.acknowledge(1, {0: [(1, 1, RELEASE)]})
    assert acquired(told(shares, later)) == {0: [(1, 1, 2)]}


async def test_a_lock_that_ends_wakes_a_fetch(shares: Shares) -> None:
    shares.produce(3)
    shares.client().fetch(0, 0)
    later = shares.client().fetch(0, 0, member="n", max_wait_ms=60_000)
    shares.pass_ms(LOCK_MS)
    assert acquired(told(shares, later)) == {0: [(0, 2, 2)]}


async def test_a_fetch_woken_by_a_lock_finds_all_its_records(shares: Shares) -> None:
    shares.produce(3)
    client = shares.client()
    client.fetch(0, 0)
    client.acknowledge(1, {0: [(1, 1, ACCEPT)]})
    later = shares.client().fetch(0, 0, member="n", max_wait_ms=60_000)
    shares.pass_ms(LOCK_MS)
    assert acquired(told(shares, later)) == {0: [(0, 0, 2), (2, 2, 2)]}


async def test_a_start_that_moves_wakes_a_fetch(shares: Shares) -> None:
    shares.overrides["share.partition.max.record.locks"] = "100"
    shares.produce(100, 100)
    client = shares.client()
    client.fetch(0, 0, max_records=100)
    later = shares.client().fetch(0, 0, member="n", max_wait_ms=60_000, max_records=100)
    assert isinstance(later, Later)
    client.acknowledge(1, {0: [(0, 99, ACCEPT)]})
    assert acquired(told(shares, later)) == {0: [(100, 199, 1)]}


async def test_a_loaded_state_wakes_waiting_fetches(shares: Shares) -> None:
    shares.produce(3, 3)
    state = shares.persisters.states[GROUP, shares.topic_id, 0]
    state.holds = True
    first = shares.client().fetch(0, 0, max_wait_ms=60_000, max_records=1)
    second = shares.client().fetch(0, 0, member="n", max_wait_ms=60_000, max_records=1)
    assert (first.answer(), second.answer()) == (first, second)
    state.go_on()
    assert acquired(told(shares, first)) == {0: [(0, 2, 1)]}
    assert acquired(told(shares, second)) == {0: [(3, 5, 1)]}


async def test_a_state_that_cannot_be_loaded_ends_the_wait(shares: Shares) -> None:
    state = shares.persisters.states[GROUP, shares.topic_id, 0]
    state.holds, state.error = True, Error.COORDINATOR_LOAD_IN_PROGRESS
    later = shares.client().fetch(0, 0, max_wait_ms=60_000)
    state.go_on()
    assert errors(told(shares, later)) == {0: Error.COORDINATOR_NOT_AVAILABLE}


async def test_a_topic_that_is_deleted_ends_the_wait(shares: Shares) -> None:
    later = shares.client().fetch(0, 0, max_wait_ms=60_000)
    topics_of(shares.node).delete([shares.node.metadata.image.topics["t"]])
    assert acquired(told(shares, later)) == {}
    assert len(shares.shares) == 0


async def test_a_client_that_hangs_up_waits_no_more(shares: Shares) -> None:
    later = shares.client().fetch(0, 0, max_wait_ms=60_000)
    later.abandon()
    partition = shares.node.partitions.get("t", 0)
    assert not partition.waiting
    shares.produce(3)
    assert acquired(shares.client().fetch(0, 0, member="n")) == {0: [(0, 2, 1)]}


async def test_many_waiting_fetches_are_served_one_after_the_other(shares: Shares) -> None:
    """That holds for any number of fetches: none is served within another one."""
    waiting = [
        shares.client().fetch(0, 0, member=f"m{number}", max_wait_ms=60_000, max_records=1)
        for number in range(8)
    ]
    for _ in waiting:
        append(shares.node.partitions.get("t", 0).log, batch(1))
    shares.produce(1)
    assert [acquired(told(shares, later)) for later in waiting] == [{0: [(at, at, 1)]} for at in range(8)]


async def test_a_fetch_of_many_partitions_is_checked_in_its_own_turn(shares: Shares) -> None:
    one = shares.client().fetch(0, 0, member="one", max_wait_ms=60_000)
    gone = shares.client().fetch(0, 0, 1, member="gone", max_wait_ms=60_000)
    two = shares.client().fetch(0, 0, 1, max_wait_ms=60_000)
    shares.produce(1)
    shares.produce(1, index=1)
    assert two.answer() is two
    gone.abandon()
    answered = asyncio.Event()
    two.when_answered(answered.set)
    await answered.wait()
    assert acquired(told(shares, one)) == {0: [(0, 0, 1)]}
    assert acquired(told(shares, two)) == {0: [], 1: [(0, 0, 1)]}


async def test_a_producer_looks_at_nothing_for_a_fetch_that_waits(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = shares.client().fetch(0, 0, max_wait_ms=60_000)
    looks: list[object] = []
    look = delayed_share_fetch.DelayedShareFetch._look
    monkeypatch.setattr(
        delayed_share_fetch.DelayedShareFetch, "_look", lambda self: (looks.append(self), look(self))[1]
    )
    shares.produce(1, 1)
    assert not looks
    assert acquired(told(shares, later)) == {0: [(0, 1, 1)]}
    assert len(looks) == 1


async def test_fetches_of_many_partitions_that_wait_for_one_record_have_a_turn_each(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [shares.client().fetch(0, 0, 1, member=f"m{at}", max_wait_ms=60_000) for at in range(5)]
    rechecked: list[object] = []
    look = delayed_share_fetch.DelayedShareFetch._look
    monkeypatch.setattr(
        delayed_share_fetch.DelayedShareFetch,
        "_look",
        lambda self: (rechecked.append(self), look(self))[1],
    )
    shares.produce(1)
    assert not rechecked
    members[1].abandon()
    monkeypatch.setattr("broker.network.turns.TURN_S", -1.0)  # each look is all that a turn has time for
    for turns in range(1, 5):
        shares.node.turns._take_turn()
        assert len(rechecked) == turns
    assert acquired(told(shares, members[0])) == {0: [(0, 0, 1)], 1: []}
    assert not shares.node.turns._waiting
    for waiting in members[2:]:
        waiting.abandon()


async def test_the_first_fetch_of_many_partitions_holds_nobody_up(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has to read the durable state of each partition."""
    monkeypatch.setattr(Turns, "is_over", property(lambda turns: True))
    shares.produce(1)
    shares.produce(1, index=1)
    fetch = shares.client().fetch(0, 0, 1)
    gone = shares.client().fetch(0, 0, 1, member="gone")
    assert (len(shares.shares), isinstance(fetch, Later)) == (1, True)
    gone.abandon()
    take_turns(shares.node)
    assert acquired(told(shares, fetch)) == {0: [(0, 0, 1)], 1: [(0, 0, 1)]}
    assert len(shares.shares) == 2
    assert not shares.node.turns._waiting
