"""Ids that stand for no log directory in particular (Kafka: `DirectoryId`; KIP-858)."""

from __future__ import annotations

MIGRATING = bytes(16)
"""The broker has chosen a directory before records could say which."""

UNASSIGNED = bytes(15) + b"\x01"
"""The broker is yet to choose one, and will tell the controller."""

LOST = bytes(15) + b"\x02"
"""One that is offline, whichever it is."""
