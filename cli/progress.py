"""Progress through long input: a bar on a terminal if rich is installed, and nothing otherwise."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any


class Progress:
    """`count` records of `read` bytes so far, at line `line` of the present file."""

    def __init__(self) -> None:
        self.count = 0
        self.line = 0
        self.read = 0
        self._path = ""

    def begin(self, path: str) -> None:
        """Begin another file."""
        self._path, self.line = path, 0

    def place(self) -> str:
        """Return the present place, for an error."""
        return f"{self._path}:{self.line}" if self.line else self._path


@contextlib.contextmanager
def progress(verb: str, paths: Sequence[str]) -> Iterator[Progress]:
    """Show the progress. A thread of rich looks four times a second, so counting costs nothing extra."""
    shown = Progress()
    size = sum(os.path.getsize(path) for path in paths if os.path.isfile(path))
    is_typed = not paths and sys.stdin.isatty()
    bar = None if is_typed or not sys.stderr.isatty() else _bar(verb, size, shown)
    if bar is None:
        yield shown
        return
    with bar:
        yield shown


def _bar(verb: str, size: int, shown: Progress) -> Any:
    """Return the bar, or None if rich isn't installed."""
    try:
        from rich.console import Console
        from rich.live import Live
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return None

    def draw() -> Table:
        grid = Table.grid(padding=(0, 1))
        told = Text(f"{shown.count:,} records, {shown.read / 1e6:,.1f} MB {verb}")
        grid.add_row(*([ProgressBar(total=size, completed=shown.read, width=30)] if size else []), told)
        return grid

    return Live(
        get_renderable=draw,
        console=Console(stderr=True),
        refresh_per_second=4,
        transient=True,
        auto_refresh=True,
    )
