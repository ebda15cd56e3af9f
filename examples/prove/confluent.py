"""Orders in, bills out, exactly once, with confluent-kafka: `python -m examples.prove.confluent [MISTAKE]`.

It ends once there are no more orders. Where it fails it ends with another status than 0, and whoever supervises it
starts it again: it goes on from what is committed.
"""

from __future__ import annotations

import os
import sys
import uuid

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

ORDERS, BILLS, GROUP = "orders", "bills", "billing"
PER_TRANSACTION = 4
TIMEOUT_S = 5.0
COMMIT_TIMEOUT_S = 2.0
"""Whoever supervises the program starts it again sooner than a call with librdkafka's own times goes on."""

MISTAKES = {
    "retries-commit": "a commit that fails is retried as a new transaction",
    "offsets-beside": "offsets are committed beside the transaction",
    "random-id": "the transactional id is drawn at each start, and offsets don't say who consumes",
    "swallows-abort": "the transaction of records that failed is aborted, and the next ones follow",
}


class Billing:
    """One instance of it."""

    def __init__(self, bootstrap: str, mistake: str = "") -> None:
        self.mistake = mistake
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        transactional_id = f"{GROUP}-{uuid.uuid4()}" if mistake == "random-id" else GROUP
        self.settings = {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "socket.timeout.ms": 3_000,  # some calls go on for as long as this says, whatever time they were given
        }
        self.producer = Producer(self.settings)

    def run(self) -> None:
        """Until there are no more orders."""
        self.producer.init_transactions(TIMEOUT_S)
        # One instance has all of the topic: who else has it is found out by the transactional id alone.
        [place] = self.consumer.committed([TopicPartition(ORDERS, 0)], timeout=TIMEOUT_S)
        self.consumer.assign([TopicPartition(ORDERS, 0, max(place.offset, 0))])
        _, end = self.consumer.get_watermark_offsets(TopicPartition(ORDERS, 0), timeout=TIMEOUT_S)
        following = max(place.offset, 0)
        while following < end:
            orders = [
                order
                for order in self.consumer.consume(min(PER_TRANSACTION, end - following), 10)
                if not order.error()
            ]
            if orders:
                self.bill(orders)
                following = orders[-1].offset() + 1
        self.consumer.close()

    def bill(self, orders: list[Message]) -> None:
        """One transaction."""
        following = [TopicPartition(ORDERS, 0, orders[-1].offset() + 1)]
        try:
            self.write(orders)
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
                self.bill(orders)
                return
            raise  # whoever supervises it starts it again, and it goes on from what is committed

    def write(self, orders: list[Message]) -> None:
        """A bill for each order."""
        self.producer.begin_transaction()
        for order in orders:
            self.producer.produce(BILLS, key=order.key(), value=b"bill for " + (order.value() or b""))


if __name__ == "__main__":
    Billing(os.environ["BARNABAS_BOOTSTRAP"], *sys.argv[1:]).run()
