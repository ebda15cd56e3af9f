"""kafka-python's first contact."""

from __future__ import annotations

from tests.clients.kafka_python import NewPartitions, NewTopic, kafka


def first_contact(bootstrap: str, name: str) -> None:
    """All firsts, with topics, groups and ids of this name."""
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    producer.send(f"{name}-created", b"x").get(60)
    producer.close()

    consumer = kafka.KafkaConsumer(
        f"{name}-created",
        bootstrap_servers=bootstrap,
        group_id=f"{name}-classic",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    assert next(consumer).value == b"x"
    consumer.commit()
    consumer.close()

    transactional = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    transactional.init_transactions()
    for _ in range(2):
        transactional.begin_transaction()
        transactional.send(f"{name}-transactional", b"y")
        transactional.commit_transaction()
    transactional.close()

    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    topic = f"{name}-administered"
    admin.create_topics([NewTopic(topic, 3, -1)])
    admin.create_partitions({topic: NewPartitions(5)})
    admin.describe_topics([topic])
    admin.describe_cluster()
    admin.delete_topics([topic])
    admin.close()
