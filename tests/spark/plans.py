"""Plans that a test gives to tasks, without a broker."""

from __future__ import annotations

from barnabas.spark.plan import Plan, Target


def plan(
    owners: int, batch_id: int = 0, topic: str | None = "t", batch_bytes: int = 1, **partitions: int
) -> Plan:
    """partitions: how many, by topic."""
    targets = tuple(Target(name, one) for name, count in partitions.items() for one in range(count))
    return Plan(
        bootstrap="",
        client={},
        request_timeout_ms=1,
        transactional_id="",
        producer_id=0,
        epoch=0,
        batch_id=batch_id,
        topic=topic,
        compression="none",
        max_batch_bytes=batch_bytes,
        targets=targets,
        leaders=(0,) * len(targets),
        max_message_bytes=dict.fromkeys(partitions, batch_bytes),
        owners=owners,
    )
