"""A registry as those of schemas are made: all that it knows is one compacted partition.

Who starts reads it to the end; who writes waits until it has read its own record. Versions of subjects are added and
deleted for good, each under a key of its own.
"""

from __future__ import annotations

import json
import random
from contextlib import closing

from confluent_kafka import Producer, TopicPartition

from tests.clients.confluent import consumer_of, create_topic

TOPIC = "_schemas"
SUBJECTS = 50
VERSIONS = 5
PATIENCE_S = 60.0


class Registry:
    def __init__(self, bootstrap: str, seed: int) -> None:
        self.known: dict[str, str] = {}
        self.writes = 0
        self._bootstrap = bootstrap
        self._chance = random.Random(seed)
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        )
        create_topic(bootstrap, TOPIC, config={"cleanup.policy": "compact"})

    def write(self) -> None:
        """A version of a subject is added, altered or deleted."""
        subject, version = self._chance.randrange(SUBJECTS), self._chance.randrange(VERSIONS)
        key = json.dumps({"keytype": "SCHEMA", "subject": f"subject-{subject}", "version": version})
        self.writes += 1
        value = None
        if self._chance.random() < 0.8:
            value = json.dumps({"id": self.writes, "schema": "{}" * self._chance.randrange(200)})
        errors: list[object] = []
        self._producer.produce(TOPIC, value, key, on_delivery=lambda error, _: errors.append(error))
        self._producer.flush(PATIENCE_S)
        assert errors == [None], errors
        if value is None:
            self.known.pop(key, None)
        else:
            self.known[key] = value

    def read(self) -> dict[str, str]:
        """What one that starts now knows."""
        found: dict[str, str] = {}
        with closing(
            consumer_of(self._bootstrap, **{"enable.partition.eof": True, "log_level": 0})
        ) as consumer:
            consumer.assign([TopicPartition(TOPIC, 0, 0)])
            while True:
                message = consumer.poll(PATIENCE_S)
                assert message is not None, "the end of the registry's topic did not come"
                if message.error() is not None:
                    return found
                key, value = message.key().decode(), message.value()
                if value is None:
                    found.pop(key, None)
                else:
                    found[key] = value.decode()
