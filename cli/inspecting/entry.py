"""One line of what is in a file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from broker.process.printable import printable


class Entry(NamedTuple):
    """`fields` are for programs, `text` is for people. `why` is what stands elsewhere, and explains it."""

    kind: str
    fields: dict[str, object]
    text: str
    why: str = ""
    wrong: str = ""
    """What isn't as it should be, and what comes of it; "" where nothing is."""

    @property
    def line(self) -> str:
        """Nothing in it reaches a terminal raw."""
        why = f"  ({self.why})" if self.why else ""
        wrong = f"  !! {self.wrong}" if self.wrong else ""
        return printable(f"{self.text}{why}{wrong}")

    @property
    def json(self) -> str:
        """A JSON line."""
        extra = {name: text for name, text in (("why", self.why), ("wrong", self.wrong)) if text}
        return json.dumps({"kind": self.kind, **self.fields, **extra}, ensure_ascii=True)


def write(entries: Iterable[Entry], *, as_json: bool = False) -> int:
    """A line each, as they come; how many of them have something wrong."""
    wrong = 0
    for entry in entries:
        print(entry.json if as_json else entry.line)
        wrong += bool(entry.wrong)
    return wrong
