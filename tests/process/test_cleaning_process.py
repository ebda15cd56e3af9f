"""A broker compacts in a process of its own: that it does, what a kill costs, and that no process is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import barnabas
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.records.batch import build_batch, read_records, walk_batches
from tests.support.waiting import until
from tests.support.wire import Client

CONFIGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "internal.segment.bytes": "2000000",
    "file.delete.delay.ms": "0",
}
KEYS = 500


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[barnabas.Broker]:
    config = {"log.cleaner.backoff.ms": "100", "log.cleaner.io.max.bytes.per.second": "20000000"}
    with barnabas.Broker(data=tmp_path, config=config) as running:
        yield running


def fill(broker: barnabas.Broker, batches: int = 120) -> None:
    """Produce some 12 MB. The throttle doesn't let them all be compacted at once."""
    with Client.of(broker.bootstrap) as client:
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in CONFIGS.items()]
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=configs)
        client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 4)
        for number in range(batches):
            records = [(0, b"k%d" % (each % KEYS), b"%8d" % number + b"x" * 92, ()) for each in range(1000)]
            produce(client, bytes(build_batch(records)))
        produce(client, bytes(build_batch([(0, b"last", b"y" * 1_000_000, ())])))
        produce(client, bytes(build_batch([(0, b"last", b"y" * 1_000_000, ())])))


def produce(client: Client, data: bytes) -> None:
    partition = PartitionProduceData(index=0, records=memoryview(data))
    topic = TopicProduceData(name="t", partition_data=[partition])
    answer = client.ask(ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[topic]), 8)
    assert answer.responses[0].partition_responses[0].error_code == 0


def worker_of(broker: barnabas.Broker) -> psutil.Process | None:
    return next(iter(psutil.Process(broker.pid).children()), None)


def is_clean(data: Path) -> bool:
    """Check whether everything but the active segment is compacted."""
    checkpoint = data / "cleaner-offset-checkpoint"
    if not checkpoint.exists():
        return False
    active = max(int(path.stem) for path in (data / "t-0").glob("*.log"))
    return f"t 0 {active}\n" in checkpoint.read_text()


def latest(data: Path) -> dict[bytes, int]:
    """Return how many records are left of each key, except the key `last`."""
    counts: dict[bytes, int] = {}
    for path in (data / "t-0").glob("*.log"):
        content = path.read_bytes()
        for position, header in walk_batches(content):
            for record in read_records(memoryview(content)[position : position + header.size_bytes]):
                assert record.key is not None
                counts[record.key] = counts.get(record.key, 0) + 1
    del counts[b"last"]
    return counts


def test_a_log_is_compacted_by_a_process_beside_the_broker(broker: barnabas.Broker, tmp_path: Path) -> None:
    fill(broker)
    until(lambda: worker_of(broker), "a process compacts")
    until(lambda: is_clean(tmp_path), "the log is compacted")
    assert set(latest(tmp_path).values()) == {1}
    assert len(latest(tmp_path)) == KEYS


def test_a_process_that_is_killed_costs_the_pass_that_it_was_at(tmp_path: Path) -> None:
    with barnabas.Broker(data=tmp_path, config={"log.cleaner.io.max.bytes.per.second": "2000000"}) as broker:
        fill(broker)
    with barnabas.Broker(data=tmp_path, config={"log.cleaner.io.max.bytes.per.second": "4000000"}) as broker:
        until(lambda: worker_of(broker), "a process compacts")
        until(lambda: [*(tmp_path / "t-0").glob("*.cleaned")], "it has begun to write")
        worker = worker_of(broker)
        assert worker is not None
        worker.kill()
        until(lambda: not [*(tmp_path / "t-0").glob("*.cleaned")], "what it left is gone")
        with Client.of(broker.bootstrap) as client:
            produce(client, bytes(build_batch([(0, b"after", b"z", ())])))
    with barnabas.Broker(data=tmp_path, config={"log.cleaner.backoff.ms": "100"}):
        until(lambda: is_clean(tmp_path), "the log is compacted")


def test_a_broker_that_is_killed_takes_the_process_with_it_and_the_next_start_goes_on(tmp_path: Path) -> None:
    config = {"log.cleaner.backoff.ms": "100", "log.cleaner.io.max.bytes.per.second": "4000000"}
    broker = barnabas.Broker(data=tmp_path, config=config).start()
    fill(broker)
    until(lambda: [*(tmp_path / "t-0").glob("*.cleaned")], "a pass is under way")
    worker = worker_of(broker)
    assert worker is not None
    broker.kill()
    worker.wait(60)
    with barnabas.Broker(data=tmp_path, config={"log.cleaner.backoff.ms": "100"}):
        until(lambda: is_clean(tmp_path), "the log is compacted")
    assert set(latest(tmp_path).values()) == {1}


def test_a_stop_ends_the_process_and_leaves_nothing_of_its_pass(tmp_path: Path) -> None:
    config = {"log.cleaner.backoff.ms": "100", "log.cleaner.io.max.bytes.per.second": "2000000"}
    with barnabas.Broker(data=tmp_path, config=config) as broker:
        fill(broker)
        until(lambda: [*(tmp_path / "t-0").glob("*.cleaned")], "a pass is under way")
        worker = worker_of(broker)
        assert worker is not None
    assert not worker.is_running()
    assert not [*(tmp_path / "t-0").glob("*.cleaned")]
