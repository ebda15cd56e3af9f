"""One record by each client library: "written", or the error's name, "refused" where the client can't come in."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import TopicAuthorizationFailedError
from confluent_kafka import KafkaError, Producer

from tests.clients.confluent import PATIENCE_S
from tests.clients.kafka_python import kafka

NOT_LET_IN = (KafkaError._AUTHENTICATION,)


def sent_by_confluent(config: Mapping[str, Any], topic: str, refusals: tuple[int, ...] = NOT_LET_IN) -> str:
    """`refusals`: librdkafka's errors that say that it can't."""
    told: list[str] = []
    errors: list[KafkaError] = []
    producer = Producer({**config, "error_cb": errors.append})
    producer.produce(
        topic, b"v", on_delivery=lambda error, _: told.append(error.name() if error else "written")
    )
    while not told and not any(error.code() in refusals for error in errors):
        producer.poll(0.1)
    if not told:
        producer.purge()
        return "refused"
    return told[0]


def sent_by_kafka_python(config: Mapping[str, Any], topic: str) -> str:
    """Nothing is left open: a KafkaProducer that is refused while it is made leaves its sockets to the garbage
    collector, whose warning would fail whichever test runs then."""
    clients: list[Any] = []

    def client(**settings: Any) -> Any:
        clients.append(kafka.KafkaProducer.DEFAULT_CONFIG["kafka_client"](**settings))
        return clients[-1]

    producer = None
    try:
        producer = kafka.KafkaProducer(**config, kafka_client=client)
        producer.send(topic, b"v").get(PATIENCE_S)
    except kafka.errors.TopicAuthorizationFailedError:
        return "TOPIC_AUTHORIZATION_FAILED"
    except kafka.errors.KafkaError:
        return "refused"
    finally:
        if producer is not None:
            producer.close(timeout=0)
        else:
            for each in clients:
                each.close()
    return "written"


def sent_by_aiokafka(config: Mapping[str, Any], topic: str) -> str:
    """Other errors than those of a connection are raised as they are."""

    async def send() -> str:
        producer = AIOKafkaProducer(**config)
        try:
            await producer.start()
            await producer.send_and_wait(topic, b"v")
        except TopicAuthorizationFailedError:
            return "TOPIC_AUTHORIZATION_FAILED"
        except Exception as error:
            return "refused" if "onnect" in type(error).__name__ + str(error) else repr(error)
        finally:
            await producer.stop()
        return "written"

    return asyncio.run(send())
