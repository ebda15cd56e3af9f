"""A refused batch is freed at once, with the bytes of its request and everything that it unpacked to. An exception in a
cycle would hold them until the collector comes, which is seldom."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from broker.network.turns import PER_TURN
from broker.replicas.append_records import checking
from broker.server import Server
from protocol.errors import Error, KafkaError
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.batch import BATCH_OVERHEAD, patch_crc
from protocol.records.checks import RecordRules, validate
from protocol.records.compression import CODEC_NAMES, GZIP, LZ4, NONE, SNAPPY, ZSTD
from protocol.records.validation_budget import ANY, LITTLE, MODERATE, Effort, TooMuchEffortError
from protocol.waiting import Later, turn
from tests.node.admin_requests import create
from tests.support.cycles import nothing_in_a_cycle
from tests.support.record_bytes import NOW_MS, batch, record
from tests.support.straight import Straight
from tests.support.wire import Client, Outcome

CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
EFFORTS = {"little": LITTLE, "moderate": MODERATE, "any": ANY}


def refused(codec: int) -> Iterator[bytearray]:
    """Yield batches, each of which is wrong in another way."""
    fine = [record(0, value=bytes(range(256)) * 40)]
    sealed = batch(fine, attributes=codec)
    yield sealed[:-1]
    for cut in (BATCH_OVERHEAD, BATCH_OVERHEAD + 3, BATCH_OVERHEAD + 40, len(sealed) - 5):
        for value in (0x00, 0xFF):
            broken = bytearray(sealed)
            broken[cut : cut + 8] = bytes([value]) * len(broken[cut : cut + 8])
            patch_crc(broken, 0, len(broken))
            yield broken
    yield batch([fine[0] + b"!"], attributes=codec)
    yield batch([b"\x01" + fine[0][1:]], attributes=codec)
    yield batch([b"\xff" * 12], attributes=codec)
    yield batch(fine, attributes=codec, records_count=2, last_offset_delta=1)
    yield batch([record(0, headers=[(None, b"")])], attributes=codec)
    yield batch([record(0, timestamp_delta=-NOW_MS // 2)], attributes=codec)
    yield batch([record(0, value=bytes(LITTLE.unpacked_bytes)) + b"!"], attributes=codec)


@pytest.mark.parametrize("effort", [pytest.param(each, id=name) for name, each in EFFORTS.items()])
@pytest.mark.parametrize("codec", [pytest.param(codec, id=CODEC_NAMES[codec]) for codec in CODECS])
def test_a_refusal_by_a_check_leaves_no_cycle(codec: int, effort: Effort) -> None:
    rules = RecordRules(max_message_bytes=8 << 20, before_max_ms=1000)
    wrong = 0
    batches = [*refused(codec)]
    with nothing_in_a_cycle():
        for each in batches:
            try:
                validate(each, rules, NOW_MS, "t", 0, effort)
            except (KafkaError, TooMuchEffortError):
                wrong += 1
    assert wrong > len(batches) // 2


def test_an_error_found_in_a_thread_comes_without_the_frames_that_found_it(node: Server) -> None:
    create(node, ("t", 1))
    partition = node.partitions.by_name["t"].partitions[0]
    for codec in CODECS:
        for each in refused(codec):
            found = checking(partition, memoryview(each), NOW_MS, ANY)()
            if isinstance(found, KafkaError):
                assert (found.__traceback__, found.__cause__, found.__context__) == (None, None, None)


def produce(*batches: tuple[int, bytes | bytearray], acks: int) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=bytes(records)) for index, records in batches]
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )


SOUND = batch([record(0)])
REQUESTS = {
    "corrupt": [(0, batch([record(0) + b"!"], attributes=ZSTD))],
    "long": [(0, batch([record(0, value=bytes(LITTLE.unpacked_bytes)) + b"!"], attributes=ZSTD))],
    "two batches": [(0, SOUND + SOUND)],
    "rubbish behind the batch": [(0, SOUND + bytes(12))],
    "many partitions": [(index, SOUND) for index in range(PER_TURN + 1)],
    "no batch": [(0, bytes(20))],
}


@pytest.mark.parametrize("acks", [-1, 0])
@pytest.mark.parametrize("kind", REQUESTS)
async def test_a_refused_request_leaves_no_cycle(node: Server, kind: str, acks: int) -> None:
    create(node, ("t", 1))
    request = produce(*REQUESTS[kind], acks=acks)
    with nothing_in_a_cycle():
        client = Client(Straight(node))
        sent = client.send(request, 9)
        while (answer := client.receive(sent, within_s=0)) is Outcome.SILENCE:
            await asyncio.sleep(0)
        if acks == 0:
            assert answer is Outcome.CLOSED
        else:
            assert not isinstance(answer, Outcome)
            codes = [each.error_code for each in answer.message.responses[0].partition_responses]
            assert any(code != Error.NONE for code in codes)
            client.close()


async def test_a_step_that_fails_by_an_awaited_error_leaves_no_cycle(node: Server) -> None:
    async def fails() -> None:
        await turn()
        raise KafkaError(Error.INVALID_RECORD)

    async def waits() -> None:
        awaited = node.turns.answer(fails())
        assert isinstance(awaited, Later)
        await awaited

    with nothing_in_a_cycle():
        answer = node.turns.answer(waits())
        assert isinstance(answer, Later)
        told: list[str] = []
        answer.when_answered(lambda: told.append("told"))
        while not told:
            await asyncio.sleep(0)
        failed_with = Error.NONE
        try:
            answer.result()
        except KafkaError as failure:
            failed_with = failure.error
    assert failed_with is Error.INVALID_RECORD
