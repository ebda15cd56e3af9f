"""What `produce`, `consume` and `bench` share: confluent-kafka, and its errors in words."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from cli.errors import FAILED, UNREACHABLE, USAGE, CommandError, CommandUsageError
from cli.options import BOOTSTRAP, CLIENT_ID, client_settings
from cli.output import say

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

CONNECT_TIMEOUT_S: Final = 10.0
TRY_S: Final = 1.0
CREATION_PATIENCE_S: Final = 5.0
OF_CLIENTS: Final = {"_ALL_BROKERS_DOWN", "_TRANSPORT", "_RESOLVE", "_TIMED_OUT"}
"""Errors by which librdkafka says that it reaches nobody, and goes on trying."""


def confluent_kafka() -> ModuleType:
    """Return the library. Raises CommandError if it isn't installed, in one line that says how to install it."""
    try:
        import confluent_kafka as library
    except ImportError:
        raise CommandError(
            "this needs confluent-kafka, which isn't installed: pip install 'barnabas[cli]'", USAGE
        ) from None
    return library


class Client:
    """The settings of a producer or consumer, and the errors that librdkafka reports on its own.

    `config` is the argument of confluent-kafka's class. librdkafka's log doesn't reach the terminal. Only its
    errors count: that nobody answers is said once, and `failure` keeps the last fatal one.
    """

    def __init__(self, options: argparse.Namespace, own: Mapping[str, object]) -> None:
        quiet = logging.getLogger("librdkafka")
        quiet.addHandler(logging.NullHandler())
        quiet.propagate = False
        self.settings = client_settings(options)
        self.failure: KafkaError | None = None
        self.lost: str | None = None
        self._is_down = False
        self._has_answered = False
        self._is_told = False
        self.config: dict[str, Any] = {
            "client.id": CLIENT_ID,
            **own,
            **self.settings,
            "error_cb": self._failed,
            "logger": quiet,
        }

    def refuse(self, names: Mapping[str, str]) -> None:
        """Raise CommandUsageError with the reason if one of these settings is given."""
        for name, why in names.items():
            if name in self.settings:
                raise CommandUsageError(f"the setting {name}: {why}")

    def made(self, make: Any) -> Any:
        """Return a producer or consumer with the config. Raises CommandUsageError for a setting that librdkafka
        refuses."""
        library = confluent_kafka()
        try:
            return make(self.config)
        except (library.KafkaException, ValueError, TypeError) as error:
            raise CommandUsageError(f"the settings: {reason(error)}") from None

    def partitions(self, asking: Any, topic: str, *, creates: bool = False) -> list[int]:
        """Return the topic's partitions. If asking may create it, wait for it. Raises CommandError if it doesn't exist,
        with UNREACHABLE if nobody answers."""
        library = confluent_kafka()
        begun_s = time.monotonic()
        deadline_s = begun_s + (CREATION_PATIENCE_S if creates else 0)
        while True:
            try:
                found = asking.list_topics(topic, TRY_S).topics[topic]
            except library.KafkaException as error:
                asking.poll(0)  # librdkafka reports errors by a callback
                self.check()
                if self._is_down or time.monotonic() > begun_s + CONNECT_TIMEOUT_S:
                    raise self.unreachable(error) from None
                continue
            self._has_answered = True
            if found.partitions and found.error is None:
                return sorted(found.partitions)
            if time.monotonic() >= deadline_s:
                told = found.error.str() if found.error is not None else "it has no partitions"
                raise CommandError(
                    f"topic {topic}: {told} (`barnabas topics create {topic}` creates it)", FAILED
                )
            time.sleep(0.05)

    def refused(self, error: Exception, what: str) -> CommandError:
        """Return the error of a failed question: nobody answered, or the answer is an error."""
        inner = error.args[0] if error.args else None
        if inner is not None and inner.name() in OF_CLIENTS:
            return self.unreachable(error)
        return CommandError(f"{what}: {reason(error)}")

    def unreachable(self, error: Exception) -> CommandError:
        """Return the error if nobody answered, with librdkafka's reason."""
        return CommandError(
            f"{self.settings[BOOTSTRAP]} can't be reached: {self.lost or reason(error)} "
            "(is a broker running there? `barnabas` starts one)",
            UNREACHABLE,
        )

    def check(self) -> None:
        """Raise CommandError if something has failed for good."""
        if self.failure is not None:
            raise CommandError(reason(self.failure))

    def _failed(self, error: KafkaError) -> None:
        if error.name() in OF_CLIENTS:
            if error.name() != "_ALL_BROKERS_DOWN":
                self.lost = error.str()
            self._is_down |= error.name() == "_ALL_BROKERS_DOWN"
            if error.name() == "_ALL_BROKERS_DOWN" and self._has_answered and not self._is_told:
                self._is_told = True
                say(f"barnabas: {self.settings[BOOTSTRAP]} doesn't answer; waiting for it (Ctrl-C ends this)")
        elif error.fatal() or error.name() in ("_AUTHENTICATION", "_SSL"):
            self.failure = error


def reason(error: object) -> str:
    """Return librdkafka's error in its own words, with its name."""
    inner = error.args[0] if isinstance(error, Exception) and error.args else error
    text, name = getattr(inner, "str", None), getattr(inner, "name", None)
    if text is None or name is None:
        return str(error)
    return f"{text()} ({name()})"
