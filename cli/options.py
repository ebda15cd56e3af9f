"""The options of every command that asks a Kafka, and the settings they make, by librdkafka's names."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping
from typing import Final

from cli.errors import CommandUsageError

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
BOOTSTRAP: Final = "bootstrap.servers"
CLIENT_ID: Final = "barnabas-cli"

JAVA_ONLY: Final = {
    "sasl.jaas.config": "sasl.username and sasl.password",
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.password": "ssl.ca.location, a PEM file without a password",
}
"""Settings in files for Java's clients, and the names to use instead."""


def name_in_kafka(text: str) -> str:
    """The type of arguments that name something in a Kafka: a topic, a group, a transactional id. An empty name is
    mostly an unset variable of a script. Bytes that aren't UTF-8 can't be sent."""
    if not text:
        raise argparse.ArgumentTypeError("the name is empty")
    if not is_utf8(text):
        raise argparse.ArgumentTypeError(f"{text} isn't UTF-8, which names in Kafka are")
    return text


def is_utf8(text: str) -> bool:
    """Return False if an argument, or JSON, had bytes that aren't text: librdkafka's binding would end the process."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Add the options for where the Kafka is, and how to talk to it."""
    group = parser.add_argument_group("which Kafka")
    group.add_argument(
        "--bootstrap",
        metavar="HOST:PORT",
        help=f"a broker's address, or several with commas (default: BARNABAS_BOOTSTRAP, or {DEFAULT_BOOTSTRAP})",
    )
    group.add_argument(
        "--config", metavar="FILE", help="file of client settings by librdkafka's names, one per line"
    )
    group.add_argument(
        "-X",
        dest="settings",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="one such setting, such as security.protocol=SASL_SSL; may be repeated",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`, for programs."""
    parser.add_argument(
        "--json", action="store_true", help="a JSON document for programs, instead of a table"
    )


def client_settings(options: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the settings, from the weakest source to the strongest: the default, BARNABAS_BOOTSTRAP, the file, `-X`,
    `--bootstrap`. Raises CommandUsageError."""
    settings = {BOOTSTRAP: environ.get("BARNABAS_BOOTSTRAP") or DEFAULT_BOOTSTRAP}
    if options.config is not None:
        settings |= properties_of(options.config)
    settings |= key_values(options.settings, "-X")
    if options.bootstrap is not None:
        settings[BOOTSTRAP] = options.bootstrap
    for key, instead in JAVA_ONLY.items():
        if key in settings:
            raise CommandUsageError(f"{key} is for Java's clients: give {instead} (in --config or with -X)")
    for key, value in settings.items():
        if not (is_utf8(key) and is_utf8(value)):
            raise CommandUsageError(f"the setting {key} isn't UTF-8")
    return settings


def key_values(given: Iterable[str], option: str) -> dict[str, str]:
    """Return the values of `KEY=VALUE` texts by key. Raises CommandUsageError, which names the option."""
    values = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise CommandUsageError(f"{option} {text}: KEY=VALUE is the form")
        values[key.strip()] = value
    return values


def host_and_port(text: str, option: str) -> tuple[str, int]:
    """Split HOST:PORT, and return the host without brackets. Raises CommandUsageError."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise CommandUsageError(f"{option} {text}: HOST:PORT is the form")
    return host.removeprefix("[").removesuffix("]"), int(port)


def properties_of(path: str) -> dict[str, str]:
    """Return the values in the properties file from `--config` by key. Raises CommandUsageError."""
    from broker.config.definitions import UsageError
    from broker.config.given_settings import read_properties

    try:
        return {found.name: found.value for found in read_properties(os.path.expanduser(path))}
    except UsageError as error:
        raise CommandUsageError(f"--config: {error}") from None
