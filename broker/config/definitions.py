"""What a setting is: its type, default, legal values, and whether it may change while the broker runs.

Modelled on Kafka's ConfigDef. Settings stand as literal rows (`broker.config.rows`) and become a `ConfigDef`
only when somebody asks for one, so that 340 of them cost a start nothing.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeAlias

Row: TypeAlias = tuple[str, str | None, str, str, str]
"""Type, default (None is Kafka's null), validator (see `validators`), importance, update mode."""

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None
"""A parsed value: INT, SHORT and LONG are int, LIST is a tuple, STRING, CLASS and PASSWORD are str."""


class ConfigType(IntEnum):
    """ConfigDef.Type, with the numbers of DescribeConfigs (v3 and later)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


READ_ONLY = "read-only"
PER_BROKER = "per-broker"


class ConfigDef(NamedTuple):
    """One setting. `default` is text, as it would stand in a file; None where Kafka's is null."""

    name: str
    type: ConfigType
    default: str | None
    validator: str
    importance: str
    update_mode: str
    internal: bool = False

    @property
    def sensitive(self) -> bool:
        """A password: never shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def dynamic(self) -> bool:
        """May be altered while the broker runs (DynamicBrokerConfig.ALL_DYNAMIC_CONFIGS)."""
        return self.update_mode != READ_ONLY


def definition_of(name: str, row: Row, *, internal: bool = False) -> ConfigDef:
    """The definition that a row stands for."""
    type_name, default, validator, importance, update_mode = row
    return ConfigDef(name, ConfigType[type_name], default, validator, importance, update_mode, internal)
