"""All keys and certificates of a node that are read anew while it runs: its listeners', and those that it shows where
it connects to others."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from broker.config.definitions import ConfigError

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig

log = logging.getLogger("barnabas.server")


class Renewable(Protocol):
    """Keys and certificates in use (`broker.network.tls`)."""

    def check(self, after: BrokerConfig) -> None:
        """Raises ConfigError where these couldn't go over to the settings."""
        ...

    def follow(self, config: BrokerConfig) -> bool:
        """Go over to what is there now; whether that is something else. Raises ConfigError."""
        ...


class KeyStores:
    """Of the listeners by their names, and of others by whose they are."""

    def __init__(
        self, listeners: Mapping[str, Renewable], others: Mapping[str, Renewable] | None = None
    ) -> None:
        self._followed = {f"listener {name}": each for name, each in listeners.items()} | {**(others or {})}

    def __bool__(self) -> bool:
        return bool(self._followed)

    def check(self, after: BrokerConfig) -> None:
        """Raises ConfigError where one of them couldn't go over to these settings."""
        for each in self._followed.values():
            each.check(after)

    def follow(self, config: BrokerConfig) -> list[ConfigError]:
        """Go over to the files that are there now, which may be others though the settings are as before. What can't
        be followed stays as it is, and is told."""
        failures = []
        for whose, each in self._followed.items():
            try:
                if each.follow(config):
                    log.info("%s: keys and certificates are read anew", whose)
            except ConfigError as error:
                log.warning("%s: the keys and certificates stay as they are: %s", whose, error)
                failures.append(error)
        return failures


NO_KEY_STORES = KeyStores({})
