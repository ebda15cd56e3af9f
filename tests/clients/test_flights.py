"""Real records through every codec and client, with the broker killed in the midst and at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import barnabas
from tests.clients.confluent import CODECS, stored_codecs
from tests.clients.flights import data
from tests.clients.flights.readers import READERS, check
from tests.clients.flights.sender import Expected, create_topic, send
from tests.support.kafka_server import KafkaServer, Server

# One worker of xdist gets all of these, since each would send the flights again.
pytestmark = pytest.mark.xdist_group("flights")

PARTITIONS = 3


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker that may be killed."""
    if os.environ.get("BARNABAS_CLIENTS_BOOTSTRAP"):
        with KafkaServer(tmp_path_factory.mktemp("kafka")) as kafka:
            yield kafka
    else:
        with barnabas.Broker() as broker:
            yield broker


@pytest.fixture(scope="module")
def sent(server: Server) -> dict[str, Expected]:
    """What each topic must hold: one per codec, and "mixed", in whose batches the codecs take turns."""
    flights = data.sample()
    sent: dict[str, Expected] = {}
    for codec in CODECS:
        create_topic(server.bootstrap, codec, PARTITIONS)
        sent[codec] = send(
            server.bootstrap, codec, flights, codec, PARTITIONS, half_way=lambda: crash(server)
        )
    create_topic(server.bootstrap, "mixed", PARTITIONS)
    sent["mixed"] = [[] for _ in range(PARTITIONS)]
    for number, codec in enumerate(CODECS):
        part = send(server.bootstrap, "mixed", flights[number::5], codec, PARTITIONS)
        for partition, of_this_codec in zip(sent["mixed"], part, strict=True):
            partition += of_this_codec
    crash(server)
    return sent


def crash(server: Server) -> None:
    server.kill()
    server.start()


@pytest.mark.parametrize("codec", [*CODECS, "mixed"])
@pytest.mark.parametrize("reader", ["confluent-kafka", "kafka-python", "aiokafka"])
def test_sent_records_come_back_though_the_broker_was_killed(
    server: Server, sent: dict[str, Expected], reader: str, codec: str
) -> None:
    assert check(server.bootstrap, codec, sent[codec], READERS[reader]) == len(data.sample())


@pytest.mark.parametrize("codec", CODECS)
def test_batches_are_stored_with_the_codec_they_were_sent_with(
    server: Server, sent: dict[str, Expected], codec: str
) -> None:
    assert stored_codecs(server.bootstrap, codec, PARTITIONS) == {codec}


@pytest.mark.usefixtures("needs_kafka")
def test_kafkas_console_consumer_prints_records_of_every_codec(
    server: Server, sent: dict[str, Expected]
) -> None:
    read = check(server.bootstrap, "mixed", sent["mixed"], READERS["console-consumer"])

    assert read == len(data.sample())


def test_the_sample_has_every_airline_and_month() -> None:
    flights = data.sample()

    assert len(flights) == 2_005
    assert len({key for key, _ in flights}) == 16
    assert all(any(b'"month":%d,' % month in value for _, value in flights) for month in range(1, 13))
