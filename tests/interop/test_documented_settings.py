"""What docs/cluster.md has Apache Kafka started with on the folder of one barnabas."""

from __future__ import annotations

import re
from pathlib import Path

from confluent_kafka import Consumer, Producer

import barnabas
from tests.support import apache_kafka
from tests.support.ports import free_ports
from tests.support.requirements import need_apache_kafka

DOCUMENT = Path(__file__).parents[2] / "docs" / "cluster.md"
HEADING = "## Apache Kafka on the folder of one barnabas\n"
PATIENCE_S = 120.0


def documented() -> dict[str, str]:
    text = DOCUMENT.read_text("utf-8").partition(HEADING)[2]
    found = re.search(r"```properties\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return dict(line.split("=", 1) for line in found[1].splitlines())


def test_groups_and_transactions_work_on_the_folder_with_the_settings_of_the_document(tmp_path: Path) -> None:
    need_apache_kafka()
    folder = tmp_path / "barnabas-data"
    with barnabas.Broker(data=folder) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("orders", b"of barnabas")
        assert producer.flush(PATIENCE_S) == 0
        del producer
    settings = documented() | {"log.dirs": str(folder)}
    for port, free in zip(("9092", "9093"), free_ports(2), strict=True):
        settings = {name: value.replace(port, str(free)) for name, value in settings.items()}
    with apache_kafka.node(tmp_path / "kafka", settings) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "t"})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.produce("orders", b"of Kafka")
        producer.commit_transaction(PATIENCE_S)
        reader = {"bootstrap.servers": kafka.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
        consumer = Consumer(reader)
        consumer.subscribe(["orders"])
        values = []
        for message in consumer.consume(2, PATIENCE_S):
            assert message.error() is None
            values.append(message.value())
        consumer.close()
    assert values == [b"of barnabas", b"of Kafka"]
