"""Log directories as a broker's registration names them (Kafka: `DirectoryId`, `BrokerRegistration`; KIP-858)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from broker.controller.directory_ids import LOST, MIGRATING, UNASSIGNED

RESERVED = 100
"""Ids below it stand for no directory of a broker."""


def is_reserved(directory_id: bytes) -> bool:
    """Whether no directory may have the id. Its second half counts as a signed number, as in Kafka."""
    upper, lower = _halves(directory_id)
    return upper == 0 and lower < RESERVED


def in_order(directory_ids: Iterable[bytes]) -> list[bytes]:
    """As Kafka orders uuids: by two signed numbers."""
    return sorted(directory_ids, key=_halves)


def has_online(registered: Collection[bytes], directory_id: bytes) -> bool:
    """Whether a broker that has registered these can have a partition in the directory. One that has named none, since
    it registered before metadata.version knew of directories, is taken to have each."""
    if directory_id in (UNASSIGNED, MIGRATING):
        return True
    if directory_id == LOST:
        return False
    return not registered or directory_id in registered


def _halves(directory_id: bytes) -> tuple[int, int]:
    return (
        int.from_bytes(directory_id[:8], "big", signed=True),
        int.from_bytes(directory_id[8:], "big", signed=True),
    )
