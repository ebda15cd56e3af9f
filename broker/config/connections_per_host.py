"""`max.connections.per.ip.overrides`: how many connections single hosts may have."""

from __future__ import annotations

import re

from broker.config.definitions import Value
from broker.config.errors import ConfigError
from broker.config.parsing import parse_int, trimmed

CONNECTIONS_PER_HOST = "max.connections.per.ip.overrides"

_COMMA = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")
_HOST = re.compile(r"[0-9a-zA-Z\-%._:]*")  # Utils.validHostPattern


def connections_per_host(value: Value) -> dict[str, int]:
    """`max.connections.per.ip.overrides` as host -> number; the last colon parts them (Kafka: `Csv.parseCsvMap`).

    The host may be empty, and the number below zero: nobody is let in then. Raises ConfigError.
    """
    name = CONNECTIONS_PER_HOST
    limits: dict[str, int] = {}
    entries = _COMMA.split(str(value or ""))
    while entries and not entries[-1]:
        del entries[-1]  # as Java's String.split
    for entry in entries:
        host, colon, text = entry.rpartition(":")
        number = parse_int(trimmed(text))
        if not colon or number is None:
            raise ConfigError(f"Error parsing configuration property '{name}': {entry}", name)
        limits[trimmed(host)] = number
    invalid = [host for host in limits if _HOST.fullmatch(host) is None]
    if invalid:
        raise ConfigError(f"{name} contains invalid addresses : {','.join(invalid)}", name)
    return limits
