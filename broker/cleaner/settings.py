"""What the broker's settings say of the cleaner (Kafka: `CleanerConfig`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig


class CleanerSettings(NamedTuple):
    """A change of any of them ends the passes under way, and begins anew, as in Kafka."""

    threads: int
    """How many partitions are gone through at the same time, beside as many that are put in place; 0 where the cleaner
    is off."""
    backoff_s: float
    max_keys: int
    """How many keys the offset map of one pass takes."""
    bytes_per_s: float

    @classmethod
    def of(cls, config: BrokerConfig) -> CleanerSettings:
        from storage.cleaning.offset_map import keys_for

        threads = config.get_int("log.cleaner.threads") if config.get_boolean("log.cleaner.enable") else 0
        load_factor = config.get("log.cleaner.io.buffer.load.factor")
        bytes_per_s = config.get("log.cleaner.io.max.bytes.per.second")
        assert isinstance(load_factor, float)
        assert isinstance(bytes_per_s, float)
        map_bytes = config.get_int("log.cleaner.dedupe.buffer.size") // max(threads, 1)
        return cls(
            threads=threads,
            backoff_s=config.get_int("log.cleaner.backoff.ms") / 1000,
            max_keys=keys_for(map_bytes, load_factor),
            bytes_per_s=bytes_per_s,
        )
