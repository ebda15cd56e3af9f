"""Orders in, bills out, exactly once, with confluent-kafka: `python -m examples.prove.confluent [MISTAKE]`.

It ends once there are no more orders. Where it fails it ends with another status than 0, and whoever supervises it
starts it again: it goes on from what is committed.
"""

from __future__ import annotations

import os
import sys
import uuid
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

ORDERS, BILLS = "orders", "bills"
PER_TRANSACTION = 4
TIMEOUT_S = 5.0
READ_S = 10.0
COMMIT_TIMEOUT_S = 2.0
"""Whoever supervises the program starts it again sooner than a call with librdkafka's own times goes on."""

MISTAKES = {
    "retries-commit": "a commit that fails is retried as a new transaction",
    "offsets-beside": "offsets are committed beside the transaction",
    "random-id": "the transactional id is drawn at each start, and offsets don't say who consumes",
    "swallows-abort": "the transaction of records that failed is aborted, and the next ones follow",
}


class Step(NamedTuple):
    """What is read, what is written, and by which group and transactional id."""

    source: str
    target: str
    group: str
    made: str
    """What is written is this of what is read."""


BILLING = Step(ORDERS, BILLS, "billing", "bill for")


class Worker:
    """One instance of a step."""

    def __init__(
        self, bootstrap: str, mistake: str = "", step: Step = BILLING, isolation: str = "read_committed"
    ) -> None:
        self.mistake = mistake
        self.step = step
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": step.group,
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        transactional_id = f"{step.group}-{uuid.uuid4()}" if mistake == "random-id" else step.group
        self.settings = {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "socket.timeout.ms": 3_000,  # some calls go on for as long as this says, whatever time they were given
        }
        self.producer = Producer(self.settings)

    def run(self) -> None:
        """Until there is no more to read."""
        self.producer.init_transactions(TIMEOUT_S)
        # One instance has all of the topic: who else has it is found out by the transactional id alone.
        [place] = self.consumer.committed([TopicPartition(self.step.source, 0)], timeout=TIMEOUT_S)
        self.consumer.assign([TopicPartition(self.step.source, 0, max(place.offset, 0))])
        while records := self.following():
            self.work(records)
        self.consumer.close()

    def following(self) -> list[Message]:
        """The records of the next transaction. There are none at the end."""
        found: list[Message] = []
        while len(found) < PER_TRANSACTION:
            [*read] = self.consumer.consume(1, READ_S)
            if not read:
                raise TimeoutError(f"nothing of {self.step.source} came within {READ_S:g} s")
            error = read[0].error()
            if error is None:
                found.append(read[0])
            elif error.code() == KafkaError._PARTITION_EOF:
                break
        return found

    def work(self, records: list[Message]) -> None:
        """One transaction."""
        following = [TopicPartition(self.step.source, 0, records[-1].offset() + 1)]
        try:
            self.write(records)
            if self.mistake == "offsets-beside":
                self.producer.commit_transaction(COMMIT_TIMEOUT_S)
                self.consumer.commit(offsets=following, asynchronous=False)
                return
            self.producer.send_offsets_to_transaction(
                following, self.consumer.consumer_group_metadata(), TIMEOUT_S
            )
            self.producer.commit_transaction(COMMIT_TIMEOUT_S)
        except KafkaException:
            if self.mistake == "swallows-abort":
                self.producer.abort_transaction(TIMEOUT_S)
                return
            if self.mistake == "retries-commit":
                self.producer = Producer(self.settings)
                self.producer.init_transactions(TIMEOUT_S)
                self.work(records)
                return
            raise  # whoever supervises it starts it again, and it goes on from what is committed

    def write(self, records: list[Message]) -> None:
        """A record for each."""
        self.producer.begin_transaction()
        for each in records:
            value = f"{self.step.made} {(each.value() or b'').decode()}"
            self.producer.produce(self.step.target, key=each.key(), value=value)


if __name__ == "__main__":
    Worker(os.environ["BARNABAS_BOOTSTRAP"], *sys.argv[1:]).run()
