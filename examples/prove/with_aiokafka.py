"""Orders in, bills out, exactly once, with aiokafka: `python -m examples.prove.with_aiokafka [MISTAKE]`."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

ORDERS, BILLS, GROUP = TopicPartition("orders", 0), "bills", "billing"
PER_TRANSACTION = 4
REQUEST_TIMEOUT_MS = 3_000
TIMEOUT_S = 6.0
COMMIT_TIMEOUT_S = 1.0


async def main(bootstrap: str, mistake: str = "") -> None:
    """Until there are no more orders. What fails, or takes too long, ends the program: it is started again."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=GROUP,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        request_timeout_ms=REQUEST_TIMEOUT_MS,
    )
    consumer.assign([ORDERS])
    producer = await started(bootstrap)
    await asyncio.wait_for(consumer.start(), TIMEOUT_S)
    end = (await consumer.end_offsets([ORDERS]))[ORDERS]
    while await asyncio.wait_for(consumer.position(ORDERS), TIMEOUT_S) < end:
        found = await consumer.getmany(timeout_ms=1_000, max_records=PER_TRANSACTION)
        for orders in found.values():
            try:
                await bill(producer, orders, COMMIT_TIMEOUT_S if mistake else TIMEOUT_S)
            except TimeoutError:
                if mistake != "retries-timeout":
                    raise
                producer = await started(bootstrap)
                await bill(producer, orders, TIMEOUT_S)
    await producer.stop()
    await consumer.stop()


async def started(bootstrap: str) -> Any:
    """A producer that has fenced the ones before it."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=GROUP, request_timeout_ms=REQUEST_TIMEOUT_MS
    )
    await asyncio.wait_for(producer.start(), TIMEOUT_S)
    return producer


async def bill(producer: Any, orders: list[Any], commit_timeout_s: float) -> None:
    """One transaction."""
    await producer.begin_transaction()
    for order in orders:
        await producer.send(BILLS, key=order.key, value=b"bill for " + order.value)
    following = {ORDERS: orders[-1].offset + 1}
    await asyncio.wait_for(producer.send_offsets_to_transaction(following, GROUP), TIMEOUT_S)
    await asyncio.wait_for(producer.commit_transaction(), commit_timeout_s)


if __name__ == "__main__":
    try:
        asyncio.run(main(os.environ["BARNABAS_BOOTSTRAP"], *sys.argv[1:]))
    except Exception as error:
        # At once, without the farewell of clients that may wait long for a broker.
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
