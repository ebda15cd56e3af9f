"""The size of a partition while its broker works on it."""

from __future__ import annotations

import os
from pathlib import Path


def log_bytes(partition: Path) -> int:
    """Return the bytes of its segments' batches, without segments that are being deleted."""
    size = 0
    for file in os.scandir(partition):
        if file.name.endswith(".log"):
            try:
                size += file.stat().st_size
            except FileNotFoundError:  # it is gone by now
                continue
    return size
