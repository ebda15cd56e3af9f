"""One line about a file's contents."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from broker.process.printable import printable


class Entry(NamedTuple):
    """`fields` are for programs, `text` is for people. `why` explains it with information from elsewhere."""

    kind: str
    fields: dict[str, object]
    text: str
    why: str = ""
    wrong: str = ""
    """What is wrong and what follows from it, or ""."""

    @property
    def line(self) -> str:
        """The line for people, without unprintable characters."""
        why = f"  ({self.why})" if self.why else ""
        wrong = f"  !! {self.wrong}" if self.wrong else ""
        return printable(f"{self.text}{why}{wrong}")

    @property
    def json(self) -> str:
        """The entry as a JSON line."""
        extra = {name: text for name, text in (("why", self.why), ("wrong", self.wrong)) if text}
        return json.dumps({"kind": self.kind, **self.fields, **extra}, ensure_ascii=True)


def write(entries: Iterable[Entry], *, as_json: bool = False) -> int:
    """Print a line for each entry as it comes. Return how many have something wrong."""
    wrong = 0
    for entry in entries:
        print(entry.json if as_json else entry.line)
        wrong += bool(entry.wrong)
    return wrong
