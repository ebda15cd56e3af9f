"""Settings as somebody gave them: the text, and where it stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from broker.config.broker_definitions import BROKER_SYNONYMS


class Setting(NamedTuple):
    """A value as text, and where it stands: `server.properties:12`, `-o`, `KAFKA_LOG_DIRS`."""

    value: str
    origin: str


Layer: TypeAlias = dict[str, Setting]
"""The settings of one place, by name."""

_SAME_SETTING: tuple[tuple[str, ...], ...] = (("node.id", "broker.id"), ("log.dirs", "log.dir"))


def other_names(name: str) -> Iterable[str]:
    """The names that say the same thing as this one, in another unit or form."""
    for names in _SAME_SETTING:
        if name in names:
            return names
    return BROKER_SYNONYMS.get(name, ())


def layered(layers: Iterable[Mapping[str, Setting]]) -> Layer:
    """The layers put over each other, the last one on top.

    A setting takes its other names of the layers below with it: `log.retention.hours` on the command line
    beats `log.retention.ms` in the file, though Kafka prefers milliseconds where both stand in one place.
    """
    merged: Layer = {}
    for layer in layers:
        for name in layer:
            for other in other_names(name):
                if other not in layer:
                    merged.pop(other, None)
        merged.update(layer)
    return merged
