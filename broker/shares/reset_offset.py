"""Where a share group begins that has never written about a partition (Kafka: `ShareFetchUtils.offsetFor…`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.replicas.leader import Leader
from broker.replicas.searches_by_time import search_by_time
from broker.shares.share_settings import duration_ms
from protocol.errors import Error, KafkaError
from protocol.waiting import Waiting

if TYPE_CHECKING:
    from broker.environment.scheduler import Clock
    from broker.replicas.partition import Partition

_BY_DURATION = "by_duration:"


def find_reset_offset(
    partition: Partition,
    reset: str,
    clock: Clock,
    carry_out: Callable[[Waiting[None]], None],
    then: Callable[[int | KafkaError], None],
) -> None:
    """By `share.auto.offset.reset`; `then` with the offset, or NOT_LEADER_OR_FOLLOWER, OFFSET_NOT_AVAILABLE,
    KAFKA_STORAGE_ERROR.

    `carry_out`: steps that nobody waits for, in turns.
    """
    role, log = partition.role, partition.log
    if not isinstance(role, Leader):
        then(KafkaError(Error.NOT_LEADER_OR_FOLLOWER))
    elif reset == "earliest":
        then(log.log_start_offset)
    elif reset != "latest":
        since_ms = clock.now_ms() - duration_ms(reset.removeprefix(_BY_DURATION))
        carry_out(_first_since(partition, since_ms, then))
    elif role.high_watermark_lags:
        then(KafkaError(Error.OFFSET_NOT_AVAILABLE))
    else:
        then(log.high_watermark)


async def _first_since(partition: Partition, since_ms: int, then: Callable[[int | KafkaError], None]) -> None:
    """The first committed record at or after a time."""
    start: int | KafkaError
    try:
        found = await search_by_time(partition.log, since_ms)
    except KafkaError as error:
        start = error.as_value()
    else:
        if found is not None and found.offset < partition.log.high_watermark:
            start = found.offset
        else:
            topic = partition.topic
            named = f"{topic.topic_id_text}:{topic.name}-{partition.index}"
            start = KafkaError(
                Error.OFFSET_NOT_AVAILABLE,
                f"Offset for timestamp {since_ms} not found for topic partition: {named}",
            )
    then(start)
