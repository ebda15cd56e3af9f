"""What a page is shown of: a Kafka that runs, or a folder of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from cli.client.offsets import Partition
from cli.console.pieces import Piece
from cli.places import Place


class Shown(Protocol):
    """Every method raises CommandError, also where it needs a broker and there is none."""

    def piece(self, partition: Partition, offset: int, max_bytes: int) -> Piece:
        """As `ReadPiece`."""

    def offset_at(self, partition: Partition, place: Place) -> int:
        """Where this is in the partition; an offset itself may be outside of it."""

    def partitions_of(self, topic: str) -> int:
        """How many it has; 0 where it isn't there."""

    def topic(self, name: str) -> dict[str, Any]:
        """Its partitions and its settings."""

    def broker(self, node: int) -> dict[str, Any]:
        """Its settings."""

    def groups(self) -> list[dict[str, Any]]:
        """All of them."""

    def group(self, name: str) -> dict[str, Any]:
        """One, with its members and its lag."""

    def transactions(self) -> list[dict[str, Any]]:
        """All transactional ids."""

    def explanation(self, topics: Sequence[str]) -> dict[str, Any]:
        """Why readers of committed records wait."""

    def rights(self) -> dict[str, Any]:
        """Users and ACLs."""

    def clients(self) -> dict[str, Any]:
        """What clients tell of themselves."""

    def client(self, instance_id: str, listener: str) -> dict[str, Any]:
        """One of them, and all that it has told there."""

    def abort(self, asked: Mapping[str, Any], *, execute: bool) -> dict[str, Any]:
        """A transaction; without `execute` the question that is to be answered first."""

    def reset(self, asked: Mapping[str, Any], *, execute: bool) -> dict[str, Any]:
        """Offsets of a group, in the same way."""

    def delete_records(self, asked: Mapping[str, Any], *, execute: bool) -> dict[str, Any]:
        """Records before an offset, in the same way."""
