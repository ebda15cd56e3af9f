"""What a long run prints: what it is at, and a table."""

from __future__ import annotations

import time

_began_s = time.monotonic()


def say(what: str) -> None:
    print(f"{time.monotonic() - _began_s:7.1f} s  {what}", flush=True)


def print_table(rows: list[list[str]]) -> None:
    """The first row is the header."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
