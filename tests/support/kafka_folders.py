"""Data folders that Apache Kafka 4.3 left behind, and their contents.

Each holds the topics plain, compacted, txn and Kafka's own, with an open transaction on txn. `down` was shut down
cleanly; `kill` and `snapshot` were killed. The metadata log of `snapshot` begins at its snapshot.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

FOLDERS = Path(__file__).parents[1] / "data" / "kafka-folders"
DOWN = "kafka-4.3-down-1"
KILL = "kafka-4.3-kill-1"
SNAPSHOT = "kafka-4.3-snapshot-3"
NAMES = (DOWN, KILL, SNAPSHOT)

# The time when the folders were made: their transactions are still within their timeout.
NOW_MS = 1_795_245_000_000


def unpack(name: str, into: Path) -> Path:
    """Make a fresh copy of the folder, and return the log directory in it."""
    with tarfile.open(FOLDERS / f"{name}.tar.gz") as archive:
        archive.extractall(into, filter="data")
    return into / "data"


def contents(name: str) -> dict[str, Any]:
    """Return what a reader must find."""
    found: dict[str, Any] = json.loads((FOLDERS / f"{name}.json").read_text())
    return found
