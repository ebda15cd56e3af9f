"""A command's output: tables for people, drawn by rich on a terminal, and JSON for programs.

Names and values come from outside. They must not move a terminal's cursor or change its colours.
"""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from broker.process.printable import printable

Row = Sequence[object]


def cell(value: object) -> str:
    """Return a value as a table shows it: `-` for None, `1,234` for a number, `a, b` for several."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, list | tuple):
        return ", ".join(printable(str(each)) for each in value) or "-"
    return printable(str(value))


def show_table(columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Print a table, with numbers aligned to the right."""
    out = sys.stdout
    held = [[*row] for row in rows]
    numeric = [
        bool(held) and all(isinstance(row[index], int | float | None) for row in held)
        for index in range(len(columns))
    ]
    texts = [[cell(value) for value in row] for row in held]
    if out.isatty() and _draw(columns, texts, numeric, out):
        return
    widths = [max(len(text) for text in column) for column in zip(columns, *texts, strict=True)]
    for line in [columns, *texts]:
        cells = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        )
        out.write("  ".join(cells).rstrip() + "\n")


def show_json(value: object) -> None:
    """Print one document, for programs."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=True) + "\n")


def show_pairs(pairs: Mapping[str, object]) -> None:
    """Print the facts about one thing, one per line."""
    width = max(map(len, pairs))
    for name, value in pairs.items():
        sys.stdout.write(f"{name.ljust(width)}  {cell(value)}\n")


def say(text: str) -> None:
    """Print a line for a person at the terminal. It goes to the standard error output, out of a program's way."""
    try:
        print(printable(text), file=sys.stderr, flush=True)
    except OSError:  # nobody reads it, and what was done stays done
        to_nowhere(sys.stderr)


def to_nowhere(stream: TextIO) -> None:
    """Discard everything that is written to the stream from now on, also at Python's exit, without an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def raise_if_reader_is_gone() -> None:
    """Raise BrokenPipeError if the other end of the standard output is closed. A command with nothing to write wouldn't
    notice."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    for _, events in poll.poll(0):
        if events & (select.POLLERR | select.POLLHUP):
            raise BrokenPipeError


def _draw(
    columns: Sequence[str], texts: Sequence[Sequence[str]], numeric: Sequence[bool], out: TextIO
) -> bool:
    """Draw the table with rich. Return False if rich isn't installed."""
    try:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    table = Table(box=SIMPLE_HEAD)
    for column, right in zip(columns, numeric, strict=True):
        table.add_column(Text(column), justify="right" if right else "left", overflow="fold")
    for texts_of_row in texts:
        table.add_row(*(Text(text) for text in texts_of_row))
    Console(file=out, highlight=False).print(table)
    return True


def as_json(columns: Sequence[str], rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return a table's rows as objects. Their keys are the titles in snake_case."""
    keys = [column.replace(" ", "_").replace("-", "_") for column in columns]
    return [dict(zip(keys, row, strict=True)) for row in rows]
