"""One client process: `python -m tests.clients.checker.worker CONFIG`, with librdkafka's producer and consumer.

Takes a transaction per line of standard input, as JSON: {"steps": [...], "commit": true}, where a step is
["send", key, value], ["poll"], ["copy"] (what a poll returns, with its offsets), ["wait", seconds], or, once all
that it sent is acknowledged, ["crash"] or ["pause"] (until SIGCONT). Before it asks to commit it prints a line
{"steps", "commit_at_ns"}, and when the transaction is over one with "outcome", too.
`java/CheckerClient.java` does the same with Java's clients.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

PATIENCE_S = 30.0
MOST_S = 150
"""A transaction that takes longer ends the process, as a crash would: librdkafka's send_offsets_to_transaction waits
for ever for a coordinator that has left the metadata, whatever its timeout (librdkafka's issues 5456, 5511)."""
POLL_S = 0.05
RECORDS_A_POLL = 20


class Worker:
    """config: bootstrap, transactional_id, timeout_ms, keys ([topic, partition] of each), input_keys (how many of
    them are read), group (None for a consumer that keeps its positions itself), first_copy (the value it has)."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.keys: list[tuple[str, int]] = [(topic, partition) for topic, partition in config["keys"]]
        self.key_of = {place: key for key, place in enumerate(self.keys)}
        self.input_keys: int = config["input_keys"]
        self.group: str | None = config["group"]
        self.next_copy: int = config["first_copy"]
        self.positions = dict.fromkeys(range(self.input_keys), 0)
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
        self.consumer = Consumer(
            {
                "group.id": self.group or "unused",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 1_000,
                "heartbeat.interval.ms": 200,
                "fetch.wait.max.ms": 50,
                "metadata.recovery.strategy": "none",
                **shared,
            }
        )
        if self.group is None:
            self._assign()
        else:
            self.consumer.subscribe(sorted({topic for topic, _ in self.keys[: self.input_keys]}))

    def _assign(self) -> None:
        self.consumer.assign(
            [TopicPartition(*self.keys[key], offset) for key, offset in self.positions.items()]
        )

    def transact(self, command: dict[str, Any]) -> dict[str, Any]:
        steps: list[list[Any]] = []
        done: dict[str, Any] = {"steps": steps, "commit_at_ns": None, "outcome": "failed", "goes_on": True}
        try:
            self.producer.begin_transaction()
            for step in command["steps"]:
                self._take(step, steps)
            if command["commit"]:
                self.producer.flush(PATIENCE_S)
                done["commit_at_ns"] = time.monotonic_ns()
                print(json.dumps({"steps": steps, "commit_at_ns": done["commit_at_ns"]}), flush=True)
                done["outcome"] = "unknown"
                self.producer.commit_transaction(PATIENCE_S)
                done["outcome"] = "ok"
            else:
                self.producer.flush(PATIENCE_S)
                self.producer.abort_transaction(PATIENCE_S)
        except KafkaException as error:
            done["error"] = str(error)
            done["goes_on"] = error.args[0].txn_requires_abort() and self._aborts()
        if done["outcome"] == "ok":
            for step in steps:
                if step[0] == "poll":
                    self.positions.update({key: offset + 1 for key, offset, *_ in step[1]})
        elif done["goes_on"]:
            self._rewind(done)
        return done

    def _aborts(self) -> bool:
        try:
            self.producer.abort_transaction(PATIENCE_S)
        except KafkaException:
            return False
        return True

    def _rewind(self, done: dict[str, Any]) -> None:
        if self.group is None:
            self._assign()
            return
        try:
            assigned = self.consumer.assignment()
            for each in self.consumer.committed(assigned, timeout=PATIENCE_S) if assigned else []:
                self.consumer.seek(TopicPartition(each.topic, each.partition, max(each.offset, 0)))
        except KafkaException as error:
            done["error"], done["goes_on"] = str(error), False

    def _take(self, step: list[Any], steps: list[list[Any]]) -> None:
        match step:
            case ["send", key, value]:
                self._send(key, value, None, steps)
            case ["poll"]:
                self._poll(steps)
            case ["copy"]:
                self._copy(steps)
            case ["wait", seconds]:
                time.sleep(seconds)
            case ["crash"]:
                self.producer.flush(PATIENCE_S)
                os.kill(os.getpid(), signal.SIGKILL)
            case ["pause"]:
                self.producer.flush(PATIENCE_S)
                os.kill(os.getpid(), signal.SIGSTOP)

    def _send(self, key: int, value: int, source: int | None, steps: list[list[Any]]) -> None:
        sent = ["send", key, value, None, source]
        steps.append(sent)

        def delivered(error: object, message: Message) -> None:
            if error is None:
                sent[3] = message.offset()

        topic, partition = self.keys[key]
        payload = str(value) if source is None else f"{value} {source}"
        self.producer.produce(topic, payload, partition=partition, on_delivery=delivered)

    def _poll(self, steps: list[list[Any]]) -> list[list[Any]]:
        records = []
        for message in self.consumer.consume(RECORDS_A_POLL, timeout=POLL_S):
            if message.error() is None:
                key = self.key_of[message.topic(), message.partition()]
                records.append([key, message.offset(), *map(int, message.value().split())])
        steps.append(["poll", records, time.monotonic_ns()])
        return records

    def _copy(self, steps: list[list[Any]]) -> None:
        records = self._poll(steps)
        if not records:
            return
        for _key, _offset, value, *_ in records:
            self._send(self.input_keys, self.next_copy, value, steps)
            self.next_copy += 1
        ends = {key: offset + 1 for key, offset, *_ in records}
        offsets = [TopicPartition(*self.keys[key], end) for key, end in ends.items()]
        self.producer.send_offsets_to_transaction(
            offsets, self.consumer.consumer_group_metadata(), PATIENCE_S
        )


def main() -> None:
    worker = Worker(json.loads(sys.argv[1]))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        signal.alarm(MOST_S)
        done = worker.transact(json.loads(line))
        signal.alarm(0)
        print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main()
