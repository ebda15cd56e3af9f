"""Codecs that batches can't be packed with here: their library is an extra."""

from __future__ import annotations

from collections.abc import Mapping

from broker.config.errors import invalid_value
from broker.config.parsing import trimmed

COMPRESSION_TYPE = "compression.type"
REMEDY = "it needs the package cramjam, which isn't installed: pip install 'barnabas[compression]'"


def is_missing(compression_type: str) -> bool:
    """Whether batches are stored as they come, though this value has them packed."""
    # Here, so that no start waits for it.
    from protocol.records.checks import TARGET_CODECS
    from protocol.records.compression import is_available

    codec = TARGET_CODECS.get(trimmed(compression_type))
    return codec is not None and not is_available(codec)


def check_codec(wanted: Mapping[str, str | None], stored: Mapping[str, str]) -> None:
    """Raises ConfigError where `wanted` asks for one. What is `stored` so stays: it may be another node's wish."""
    value = wanted.get(COMPRESSION_TYPE)
    if value is not None and value != stored.get(COMPRESSION_TYPE) and is_missing(value):
        raise invalid_value(COMPRESSION_TYPE, value, REMEDY)
