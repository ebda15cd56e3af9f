"""A share consumer's process, of confluent-kafka: it prints the records that it gets and those that it acknowledges.

It prints a line of JSON for each, before it does anything with that, so that a killed one has said all that it knew:

- `{"given": [[partition, offset, count, value], …], "asked": seconds, "at": seconds}`
- `{"says": [[partition, offset, kind], …], "at": seconds}` before it is sent
- `{"done": [[partition, error code], …], "at": seconds}` as they were answered

Seconds are those of the system's monotonic clock. After any line on its standard input it accepts everything.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections import deque
from typing import Any

from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer

POLL_S = 0.2
PREFETCHED_S = 1.0
"""A fetch waits half a second at most for records, and what has come is polled at once."""
COMMIT_S = 20.0
LONGEST_S = 1.2
"""What it may take before it acknowledges: less than locks hold, by more than fetches wait."""

KINDS = {1: AcknowledgeType.ACCEPT, 2: AcknowledgeType.RELEASE, 3: AcknowledgeType.REJECT}
"""By their numbers in the protocol."""


def say(**what: Any) -> None:
    print(json.dumps({**what, "at": time.monotonic()}), flush=True)


def main(bootstrap: str, group: str, seed: str) -> None:
    luck = random.Random(seed)
    is_calm = threading.Event()
    threading.Thread(target=_listen, args=(is_calm,), daemon=True).start()
    consumer = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )
    consumer.subscribe([group])
    polls: deque[float] = deque([time.monotonic()] * 2, 2)
    while True:
        asked_s = polls[0] - PREFETCHED_S
        polls.append(time.monotonic())
        try:
            messages = [each for each in consumer.poll(POLL_S) if each.error() is None]
            if messages:
                _acknowledge(consumer, messages, asked_s, luck, is_calm=is_calm.is_set())
        except KafkaException as error:
            say(failed=str(error))


def _listen(is_calm: threading.Event) -> None:
    """One line says that all is calm now; the end of lines, that whoever started this is gone."""
    for _ in sys.stdin:
        is_calm.set()
    os._exit(1)


def _acknowledge(
    consumer: ShareConsumer, messages: list[Any], asked_s: float, luck: random.Random, *, is_calm: bool
) -> None:
    given = [
        [each.partition(), each.offset(), each.delivery_count(), (each.value() or b"").decode()]
        for each in messages
    ]
    say(given=given, asked=asked_s)
    if luck.random() < 0.2 and not is_calm:
        time.sleep(luck.uniform(0.2, LONGEST_S))
    says = []
    for message in messages:
        kind = 1 if is_calm else luck.choices((1, 2, 3), (8, 2, 1))[0]
        consumer.acknowledge(message, KINDS[kind])
        says.append([message.partition(), message.offset(), kind])
    say(says=says)
    answered = consumer.commit_sync(COMMIT_S)
    say(done=[[place.partition, error.args[0].code() if error else 0] for place, error in answered.items()])


if __name__ == "__main__":
    main(*sys.argv[1:])
