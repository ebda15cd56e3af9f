"""All keys and certificates of a node that it reloads while it runs: those of its listeners, and those with which it
connects to other nodes."""

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
        """Check that these could change to the settings. Raises ConfigError."""
        ...

    def follow(self, config: BrokerConfig) -> bool:
        """Change to the present settings and files. Returns True if they differ from before. Raises ConfigError."""
        ...


class KeyStores:
    """The key stores of listeners, by name, and other ones, by owner."""

    def __init__(
        self, listeners: Mapping[str, Renewable], others: Mapping[str, Renewable] | None = None
    ) -> None:
        self._followed = {f"listener {name}": each for name, each in listeners.items()} | {**(others or {})}

    def __bool__(self) -> bool:
        return bool(self._followed)

    def check(self, after: BrokerConfig) -> None:
        """Check that all of them could change to these settings. Raises ConfigError."""
        for each in self._followed.values():
            each.check(after)

    def follow(self, config: BrokerConfig) -> list[ConfigError]:
        """Change to the present settings and files. Files may differ even if the settings are as before.

        A store that can't change stays as it is. Returns the errors of these."""
        failures = []
        for whose, each in self._followed.items():
            try:
                if each.follow(config):
                    log.info("%s: keys and certificates are reloaded", whose)
            except ConfigError as error:
                log.warning("%s: keys and certificates stay as they are: %s", whose, error)
                failures.append(error)
        return failures


NO_KEY_STORES = KeyStores({})
