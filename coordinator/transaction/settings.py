"""The settings of the transaction coordinator (Kafka: `TransactionStateManagerConfig`)."""

from __future__ import annotations

from typing import NamedTuple


class TransactionSettings(NamedTuple):
    """Kafka's names are in the comments. Defaults are Kafka's."""

    max_timeout_ms: int = 900_000  # transaction.max.timeout.ms
    transactional_id_expiration_ms: int = 604_800_000  # transactional.id.expiration.ms
    abort_timed_out_interval_ms: int = 10_000  # transaction.abort.timed.out.transaction.cleanup.interval.ms
    remove_expired_interval_ms: int = 3_600_000  # transaction.remove.expired.transaction.cleanup.interval.ms
    two_phase_commit_enable: bool = False  # transaction.two.phase.commit.enable
    retry_backoff_ms: int = 20  # none in Kafka, where the way to another broker is pause enough
