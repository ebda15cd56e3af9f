"""Batches that take long to check: others are served meanwhile, and the state at the end of the check counts."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.environment.scheduler import IN_A_ROW_S
from broker.environment.threads import LONG_AT_ONCE as AT_ONCE
from broker.environment.threads import Alone, Brief, ComputingThreads
from broker.network import dispatch
from broker.network.turns import PER_TURN
from broker.replicas.append_records import MANY_BATCHES, Appends
from broker.server import Server
from protocol.errors import BrokenInvariantError, Error
from protocol.messages.metadata import MetadataRequest
from protocol.messages.metadata_records import ClientQuotaRecord, EntityData
from protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState
from protocol.records.batch import LOG_APPEND_TIME, build_batch, crc_is_valid
from protocol.records.compression import GZIP, ZSTD
from protocol.records.validation_budget import BRIEF, LITTLE, MOST_BESIDE_OTHERS
from tests.node.admin_requests import create
from tests.node.computing import LONG, SHORT, Held, produce, told
from tests.support.manual_clock import ManualClock
from tests.support.ready_requests import produce_frame
from tests.support.record_bytes import batch, record
from tests.support.straight import Straight
from tests.support.whole_server import crash
from tests.support.wire import Client, Outcome


@pytest.fixture
def held(node: Server, monkeypatch: pytest.MonkeyPatch) -> Held:
    create(node, ("t", 2))
    computing = Held()
    monkeypatch.setattr(node.turns, "_computing", computing)
    return computing


async def test_others_append_before_and_the_connection_s_next_request_waits(node: Server, held: Held) -> None:
    long, other = Client(Straight(node)), Client(Straight(node))
    sent = long.send(produce((0, LONG)), 9)
    after = long.send(produce((0, SHORT)), 9)
    assert long.receive(sent, within_s=0) is Outcome.SILENCE
    assert other.ask(produce((0, SHORT)), 9).responses[0].partition_responses[0].base_offset == 0
    await held.let_go()
    assert told(long.receive(sent)) == [(0, Error.NONE, 1)]
    assert told(long.receive(after)) == [(0, Error.NONE, 2)]


async def test_a_batch_of_the_same_request_that_is_short_is_appended_at_once(
    node: Server, held: Held
) -> None:
    client = Client(Straight(node))
    sent = client.send(produce((0, LONG), (1, SHORT)), 9)
    assert node.partitions.by_name["t"].partitions[1].log.log_end_offset == 1
    await held.let_go()
    assert sorted(told(client.receive(sent))) == [(0, Error.NONE, 0), (1, Error.NONE, 0)]


async def test_a_partition_deleted_meanwhile_takes_nothing(node: Server, held: Held) -> None:
    client, other = Client(Straight(node)), Client(Straight(node))
    sent = client.send(produce((0, LONG)), 9)
    other.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
    await held.let_go()
    [(_, error, offset)] = told(client.receive(sent))
    assert (error, offset) == (Error.NOT_LEADER_OR_FOLLOWER, -1)


async def test_an_invalid_batch_is_answered_like_any_other(node: Server, held: Held) -> None:
    client = Client(Straight(node))
    broken = batch([record(0, value=bytes(LITTLE.unpacked_bytes)) + b"!"], attributes=ZSTD)
    sent = client.send(produce((0, broken)), 9)
    await held.let_go()
    assert told(client.receive(sent)) == [(0, Error.INVALID_RECORD, -1)]


async def test_a_batch_is_appended_though_its_client_has_gone_meanwhile(node: Server, held: Held) -> None:
    client = Client(Straight(node))
    client.send(produce((0, LONG), acks=0), 9)
    client.close()
    await asyncio.sleep(0)
    await held.let_go()
    assert node.partitions.by_name["t"].partitions[0].log.log_end_offset == 1


async def test_later_batches_are_appended_though_their_client_sends_and_closes(
    node: Server, held: Held
) -> None:
    client = Client(Straight(node))
    for records in (LONG, SHORT, SHORT):
        client.send(produce((0, records), acks=0), 9)
    client.finish_sending()
    await held.let_go()
    assert node.partitions.by_name["t"].partitions[0].log.log_end_offset == 3
    assert not node.listeners["PLAINTEXT"].connections


async def test_nothing_goes_on_once_its_node_has_crashed(
    node: Server, held: Held, caplog: pytest.LogCaptureFixture
) -> None:
    Client(Straight(node)).send(produce((0, LONG)), 9)
    [(compute, then)] = held.waiting
    crash(node)
    caplog.clear()
    then(compute(), None)
    for _ in range(5):
        await asyncio.sleep(0)
    assert node.partitions.by_name["t"].partitions[0].log.log_end_offset == 0
    assert caplog.messages == []


async def test_a_broken_invariant_stops_the_broker_where_its_client_has_gone_too(
    node: Server, held: Held, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise BrokenInvariantError("a log that ends before it starts")

    monkeypatch.setattr(Appends, "append_checked", fails)
    client = Client(Straight(node))
    client.send(produce((0, LONG)), 9)
    client.close()
    await asyncio.sleep(0)
    await held.let_go()
    assert isinstance(node.failure, BrokenInvariantError)
    assert any("a request of" in text and "failed" in text for text in caplog.messages)


async def test_a_refusal_without_acks_is_no_failure_where_its_client_has_gone(
    node: Server, held: Held, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(Straight(node))
    broken = batch([record(0, value=bytes(LITTLE.unpacked_bytes)) + b"!"], attributes=ZSTD)
    client.send(produce((0, broken), acks=0), 9)
    client.close()
    await asyncio.sleep(0)
    await held.let_go()
    assert node.failure is None
    assert not [text for text in caplog.messages if "failed" in text]


@pytest.mark.parametrize("before", ["CreateTime", "LogAppendTime"])
async def test_a_batch_checked_earlier_is_stamped_when_it_is_appended(
    node: Server, held: Held, before: str
) -> None:
    """That holds even if the topic's timestamp type has changed since the check."""
    topic = node.partitions.by_name["t"]
    topic.rules = replace(topic.rules, message_timestamp_type=before)
    long, other = Client(Straight(node)), Client(Straight(node))
    sent = long.send(produce((0, LONG)), 9)
    topic.rules = replace(topic.rules, message_timestamp_type="LogAppendTime")
    assert isinstance(node.clock, ManualClock)
    node.clock.advance_ms(60_000)
    other.ask(produce((0, SHORT)), 9)
    await held.let_go()
    assert told(long.receive(sent)) == [(0, Error.NONE, 1)]
    log = node.partitions.by_name["t"].partitions[0].log
    for header, data in log.batches(0, upper_bound=log.log_end_offset):
        assert (header.timestamp_type, header.max_timestamp) == (LOG_APPEND_TIME, node.clock.now_ms())
        assert crc_is_valid(data, 0, len(data))


async def test_a_request_of_many_partitions_is_gone_through_in_turns(node: Server) -> None:
    create(node, ("t", 2))
    client, other = Client(Straight(node)), Client(Straight(node))
    wanted = [(0, SHORT), *((index, SHORT) for index in range(2, 4 * PER_TURN)), (1, SHORT)]
    sent = client.send(produce(*wanted), 9)
    served = 0
    while (answer := client.receive(sent, within_s=0)) is Outcome.SILENCE:
        await other.answer(MetadataRequest(topics=[]), 12)
        await asyncio.sleep(0)
        served += 1
    assert served >= 4
    found = {index: (error, offset) for index, error, offset in told(answer)}
    assert len(found) == 4 * PER_TURN
    assert found[0] == found[1] == (Error.NONE, 0)
    assert found[2] == (Error.UNKNOWN_TOPIC_OR_PARTITION, -1)


@pytest.mark.limit("broker.replicas.append_records.MANY_BATCHES")
async def test_others_are_served_between_a_few_batches_that_are_expensive_to_check(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch is small enough to be checked in passing, but not all of them together."""
    count = MANY_BATCHES + 6
    create(node, ("t", count + 1))
    now_s = 0.0

    def ticking(clock: ManualClock) -> float:
        nonlocal now_s
        now_s += 2 * IN_A_ROW_S
        return now_s

    monkeypatch.setattr(ManualClock, "monotonic_s", ticking)
    client, other = Client(Straight(node)), Client(Straight(node))
    sent = client.send(produce(*((index, SHORT) for index in range(count))), 9)
    log = node.partitions.by_name["t"].partitions[count].log
    served = 0
    while (answer := client.receive(sent, within_s=0)) is Outcome.SILENCE:
        other.ask(produce((count, SHORT)), 9)
        await asyncio.sleep(0)
        served += 1
    # the first was appended within `send`, each other in its own turn, and the answer came with the last
    assert served == log.log_end_offset == count - 1
    assert told(answer) == [(index, Error.NONE, 0) for index in range(count)]


@pytest.mark.limit("broker.handlers.produce.MOST_TOLD")
async def test_a_refused_request_without_acks_names_some_of_its_partitions(
    node: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    create(node, ("t", 1))
    client = Client(Straight(node))
    client.send(produce(*((index, SHORT) for index in range(1, 500)), acks=0), 9)
    [line] = [text for text in caplog.messages if "acks=0" in text]
    assert line.count("UNKNOWN_TOPIC_OR_PARTITION") == 100


@pytest.mark.limit("broker.environment.threads.LONG_AT_ONCE")
async def test_a_limited_number_of_threads_compute_beside_the_loop() -> None:
    computing = ComputingThreads()
    begun = threading.Semaphore(0)
    go_on = threading.Event()
    found: list[object] = []

    def compute() -> str:
        begun.release()
        go_on.wait()
        return threading.current_thread().name

    for _ in range(AT_ONCE + 1):
        computing(compute, lambda value, error: found.append(value))
    for _ in range(AT_ONCE):
        await asyncio.to_thread(begun.acquire)
    assert not begun.acquire(blocking=False)
    go_on.set()
    while len(found) < AT_ONCE + 1:
        await asyncio.sleep(0)
    assert all(str(name).startswith("computing") for name in found)
    computing.stop()


async def test_a_failure_in_a_thread_is_reported_and_after_a_stop_nothing_is(tmp_path: Path) -> None:
    computing = ComputingThreads()
    told_of: list[object] = []
    computing(lambda: 1 / 0, lambda value, error: told_of.append(error))
    while not told_of:
        await asyncio.sleep(0)
    assert isinstance(told_of[0], ZeroDivisionError)
    computing(lambda: 1, lambda value, error: told_of.append(value))
    computing.stop()
    computing(lambda: 2, lambda value, error: told_of.append(value))
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(told_of) == 1


@pytest.mark.limit("protocol.records.validation_budget.MOST_BESIDE_OTHERS")
@pytest.mark.parametrize("codec", [GZIP, ZSTD])
async def test_a_batch_that_unpacks_to_much_is_checked_alone(node: Server, held: Held, codec: int) -> None:
    moderate, large = (
        build_batch([(1, None, bytes(size), ())], codec=codec)
        for size in (MOST_BESIDE_OTHERS - 1_000, MOST_BESIDE_OTHERS)
    )
    first, second = Client(Straight(node)), Client(Straight(node))
    with first, second:
        for client, batch in (first, moderate), (second, large):
            client.send_bytes(produce_frame("t", bytes(batch), acks=1))
        for _ in range(2):  # both are tried briefly first
            assert isinstance(held.waiting[0][0], Brief)
            await held.let_go()
        await held.let_go()
        assert isinstance(first.receive_frame(within_s=0), bytes)
        await held.let_go()
        assert second.receive_frame(within_s=0) is Outcome.SILENCE
        assert isinstance(held.waiting[0][0], Alone)
        await held.let_go()
        assert isinstance(second.receive_frame(within_s=0), bytes)


async def test_a_batch_that_may_take_long_is_tried_briefly_first(node: Server, held: Held) -> None:
    client = Client(Straight(node))
    headers = record(0, headers=[(b"", None)] * (BRIEF.pieces + 1))
    sent = client.send(produce((0, batch([headers]))), 9)
    assert isinstance(held.waiting[0][0], Brief)
    await held.let_go()
    assert client.receive(sent, within_s=0) is Outcome.SILENCE
    assert not isinstance(held.waiting[0][0], Brief)
    await held.let_go()
    assert told(client.receive(sent)) == [(0, Error.NONE, 0)]


async def test_a_threads_time_is_charged_to_the_request(
    node: Server, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node's clock stands still: nothing else takes time."""
    charged: list[float] = []

    def charge(quotas: Any, context: Any, response: Any, size: int, handling_s: float, now_ms: int) -> None:
        charged.append(handling_s)

    monkeypatch.setattr(dispatch, "charge", charge)
    assert isinstance(node.clock, ManualClock)
    node.clock.advance_ms(10_000)
    entity = EntityData(entity_type="client-id", entity_name="busy")
    limit = ClientQuotaRecord(entity=[entity], key="request_percentage", value=1.0, remove=False)
    node.metadata.append([limit])
    client = Client(Straight(node), client_id="busy")
    sent = client.send(produce((0, LONG)), 9)
    held.took(1.5)
    await held.let_go()
    assert told(client.receive(sent)) == [(0, Error.NONE, 0)]
    assert charged == [1.5]
