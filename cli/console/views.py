"""The source of a page's data: a running Kafka, or a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from cli.client.offsets import Partition
from cli.console.pieces import Piece
from cli.places import Place


class Shown(Protocol):
    """Every method raises CommandError, also if it needs a broker and there is none."""

    def piece(self, partition: Partition, offset: int, max_bytes: int) -> Piece:
        """See `ReadPiece`."""

    def offset_at(self, partition: Partition, place: Place) -> int:
        """Return the place as an offset. A given offset may be outside of the partition."""

    def partitions_of(self, topic: str) -> int:
        """Return its number of partitions; 0 if it doesn't exist."""

    def topic(self, name: str) -> dict[str, Any]:
        """Return its partitions and its settings."""

    def broker(self, node: int) -> dict[str, Any]:
        """Return its settings."""

    def groups(self) -> list[dict[str, Any]]:
        """Return all groups."""

    def group(self, name: str) -> dict[str, Any]:
        """Return a group with its members and its lag."""

    def transactions(self) -> list[dict[str, Any]]:
        """Return all transactional ids."""

    def explanation(self, topics: Sequence[str]) -> dict[str, Any]:
        """Return why readers of committed records wait."""

    def rights(self) -> dict[str, Any]:
        """Return users and ACLs."""

    def clients(self) -> dict[str, Any]:
        """Return what clients report about themselves."""

    def client(self, instance_id: str, listener: str) -> dict[str, Any]:
        """Return one client, with everything that it has reported there."""

    def abort(self, asked: Mapping[str, Any], *, execute: bool) -> dict[str, Any]:
        """Abort a transaction. Without `execute`, return the question to answer first."""

    def reset(self, asked: Mapping[str, Any], *, execute: bool) -> dict[str, Any]:
        """Reset a group's offsets, in the same way."""

    def delete_records(self, asked: Mapping[str, Any], *, execute: bool) -> dict[str, Any]:
        """Delete the records before an offset, in the same way."""
