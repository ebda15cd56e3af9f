"""Putting what the metadata log says of a broker's settings into force: what can't be is passed over.

Kafka's DynamicBrokerConfig.fromPersistentProps: records of the past never stop a broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from broker.config.checks.table import Occasion, Proposal, check
from broker.config.errors import ConfigError

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig


def set_dynamic(
    config: BrokerConfig,
    *,
    broker: Mapping[str, str] | None = None,
    cluster: Mapping[str, str] | None = None,
) -> list[str]:
    """Put what the metadata log says of this broker, or of all, into force; None leaves a side as it is.

    Takes the whole of a side each time. Returns a line, to be logged, for each name that can't be set so, or isn't
    legal, and is passed over.
    """
    complaints: list[str] = []

    def legal(stored: Mapping[str, str] | None, *, per_broker: bool) -> Mapping[str, str] | None:
        if stored is None:
            return None
        reasons = reasons_against(config, stored, per_broker=per_broker)
        complaints.extend(f"{name}: ignored: {reason}" for name, reason in reasons.items())
        return {name: text for name, text in stored.items() if name not in reasons}

    legal_cluster = legal(cluster, per_broker=False)
    config.set_dynamic(broker=legal(broker, per_broker=True), cluster=legal_cluster)
    return complaints


def reasons_against(config: BrokerConfig, stored: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
    """Name -> why what is stored can't be put into force."""
    reasons = {}
    for name, text in stored.items():
        try:
            check(Occasion.REPLAY, Proposal(config, {name: text}, per_broker=per_broker))
        except ConfigError as error:
            reasons[name] = str(error)
    return reasons
