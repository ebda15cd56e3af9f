"""By which settings a follower fetches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Kafka's `replica.fetch.*`, and `replica.socket.timeout.ms`."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    response_max_bytes: int = 10 * 1024 * 1024
    max_bytes: int = 1024 * 1024
    backoff_ms: int = 1_000
    timeout_ms: int = 30_000

    @classmethod
    def of(cls, config: BrokerConfig) -> FetchSettings:
        """Those of a start: none of them can be altered."""
        return cls(
            wait_max_ms=config.get_int("replica.fetch.wait.max.ms"),
            min_bytes=config.get_int("replica.fetch.min.bytes"),
            response_max_bytes=config.get_int("replica.fetch.response.max.bytes"),
            max_bytes=config.get_int("replica.fetch.max.bytes"),
            backoff_ms=config.get_int("replica.fetch.backoff.ms"),
            timeout_ms=config.get_int("replica.socket.timeout.ms"),
        )
