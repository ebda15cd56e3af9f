"""One worker, a process of its own: `python -m tests.clients.consume_transform_produce.worker CONFIG`.

Reads numbers, writes for each a JSON object {"input", "square", "transaction"}, and commits the offsets of what it
read with what it wrote (KIP-447). Prints a line of JSON {"stage", "transaction"} after each of STAGES, one with
"refused" where it had to abort, and one with "died" where it can't go on; then it ends, with status 1.
SIGUSR1 has it stop itself (SIGSTOP) in its next transaction, between its records and their offsets.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

JOINED = "joined"
BEGUN = "begun"
SENT = "sent"
FROZEN = "frozen"
OFFSETS_SENT = "offsets sent"
COMMITTED = "committed"
STAGES = (BEGUN, SENT, OFFSETS_SENT, COMMITTED)
"""What has been done of a transaction; records are under way, and not all acknowledged, when they are SENT."""

PATIENCE_S = 30.0
POLL_S = 0.1
RECORDS_A_TRANSACTION = 8
COLLECTING_S = 0.02


class Worker:
    """config: name, bootstrap, group, instance (None for a dynamic member), transactional_id, timeout_ms of a
    transaction, session_ms, source and target (topics), target_partitions."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.count = 0
        self.records: list[Message] = []
        self.membership: Any = None
        self.freezes = False
        signal.signal(signal.SIGUSR1, self._freeze_soon)
        shared = {"bootstrap.servers": config["bootstrap"], "log_level": 0, "reconnect.backoff.max.ms": 100}
        self.producer = Producer(
            {
                "transactional.id": config["transactional_id"],
                "transaction.timeout.ms": config["timeout_ms"],
                "linger.ms": 0,
                "metadata.recovery.strategy": "none",
                **shared,
            }
        )
        self.producer.init_transactions(PATIENCE_S)
        member = {"group.instance.id": config["instance"]} if config["instance"] else {}
        self.consumer = Consumer(
            {
                "group.id": config["group"],
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": config["session_ms"],
                "heartbeat.interval.ms": config["session_ms"] // 5,
                "fetch.wait.max.ms": 50,
                "metadata.recovery.strategy": "none",
                **member,
                **shared,
            }
        )
        # Without these callbacks librdkafka gives partitions up, and joins again, while records of them are in
        # work here: their offsets would then go out with the new generation, and nobody could refuse them.
        self.consumer.subscribe(
            [config["source"]], on_assign=self._assigned, on_revoke=self._gone, on_lost=self._gone
        )

    def _freeze_soon(self, number: int, frame: object) -> None:
        self.freezes = True

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # Kept, since the records that follow are this generation's. Asked for later, when its session is over and
        # before it knows that its partitions are lost, librdkafka names no member, and nobody could refuse that.
        self.membership = consumer.consumer_group_metadata()
        self.say(JOINED)

    def _gone(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.records.clear()

    @property
    def transaction(self) -> str:
        return f"{self.config['name']}, transaction {self.count}"

    def say(self, stage: str, **more: str) -> None:
        print(json.dumps({"stage": stage, "transaction": self.transaction, **more}), flush=True)

    def collect(self) -> None:
        """Wait for a record, and take what else comes with it."""
        deadline_s = time.monotonic() + POLL_S
        while len(self.records) < RECORDS_A_TRANSACTION:
            message = self.consumer.poll(max(deadline_s - time.monotonic(), 0))
            if message is None:
                return
            error = message.error()
            if error is not None:
                # Such as that a static member is fenced: librdkafka, whose session was over while the broker was
                # away, sends a last heartbeat without its member id.
                if error.code() == KafkaError._FATAL:
                    raise KafkaException(error)
                continue
            if not self.records:
                deadline_s = time.monotonic() + COLLECTING_S
            self.records.append(message)

    def transact(self) -> None:
        """Process the collected records, all or none. Raise KafkaException if this worker has to end."""
        self.count += 1
        try:
            self.producer.begin_transaction()
            self.say(BEGUN)
            for message in self.records:
                self._send(int(message.value()))
            self.say(SENT)
            if self.freezes:
                self.freezes = False
                self.producer.flush(
                    PATIENCE_S
                )  # what it has written is aborted, if another one takes its partitions
                self.say(FROZEN)
                os.kill(os.getpid(), signal.SIGSTOP)
            ends = {message.partition(): message.offset() + 1 for message in self.records}
            self.producer.send_offsets_to_transaction(
                [TopicPartition(self.config["source"], index, end) for index, end in ends.items()],
                self.membership,
                PATIENCE_S,
            )
            self.say(OFFSETS_SENT)
            self.producer.commit_transaction(PATIENCE_S)
            self.say(COMMITTED)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self.say("aborting", refused=error.args[0].name())
            self.producer.abort_transaction(PATIENCE_S)
            self._rewind()
        self.records.clear()

    def _send(self, number: int) -> None:
        value = json.dumps({"input": number, "square": number * number, "transaction": self.transaction})
        partition = number % self.config["target_partitions"]
        self.producer.produce(self.config["target"], value, partition=partition)

    def _rewind(self) -> None:
        """Go back to the committed offsets: the records of an aborted transaction are read once more."""
        assigned = self.consumer.assignment()
        for each in self.consumer.committed(assigned, timeout=PATIENCE_S) if assigned else []:
            self.consumer.seek(TopicPartition(each.topic, each.partition, max(each.offset, 0)))


def main() -> int:
    config = json.loads(sys.argv[1])
    try:
        worker = Worker(config)
        while True:
            worker.collect()
            if worker.records:
                worker.transact()
    except KafkaException as error:
        print(json.dumps({"stage": "died", "transaction": config["name"], "died": str(error)}), flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
