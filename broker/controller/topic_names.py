"""Which names a topic may have (Kafka: `org.apache.kafka.common.internals.Topic`)."""

from __future__ import annotations

import re

MAX_NAME_LENGTH = 249

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def invalid_name_reason(name: str) -> str | None:
    """Why a topic can't have this name; None where it can."""
    if not name:
        return "the topic name is empty"
    if name in (".", ".."):
        return f"the topic name can't be '{name}'"
    if len(name) > MAX_NAME_LENGTH:
        return f"the topic name is {len(name)} characters long; {MAX_NAME_LENGTH} are allowed"
    if _LEGAL.fullmatch(name) is None:
        return (
            f"the topic name '{name}' has a character other than ASCII letters and digits, '.', '_' and '-'"
        )
    return None


def collision_key(name: str) -> str | None:
    """Two names with the same key would have the same metric names: Kafka allows one of them. None for a name that
    collides with no other."""
    return name.replace(".", "_") if "." in name or "_" in name else None


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS
