"""What all open pages get: sections with a value each, and lists that only grow.

Threads write, and one event loop reads. Nothing waits for a slow page: it next gets the newest value.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

LOG = "log:"
"""A section of one partition, `log:orders:0`. Each partition may have one. It is dropped when no page shows it."""


def as_json(value: object) -> str:
    """Return JSON on one line, because an event of the stream needs that."""
    return json.dumps(value, separators=(",", ":"))


class Sections:
    """The value of each section as JSON, with a number that grows with each change of the section."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, tuple[int, str]] = {}
        self._waiters: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Event]] = {}
        self._wanted: dict[int, frozenset[str]] = {}
        self._kept: set[str] = set()
        self._askers: list[Callable[[], None]] = []
        self._number = 0
        self.lists: dict[str, GrowingList] = {}

    def publish(self, name: str, value: object) -> bool:
        """Set a value, and wake the waiting pages if it changed. Return True if it did."""
        text = as_json(value)
        with self._lock:
            number, before = self._values.get(name, (0, ""))
            if text == before:
                return False
            self._values[name] = (number + 1, text)
        self.wake()
        return True

    def publish_for_good(self, name: str, value: object) -> None:
        """Set a value that doesn't change, and that stays when no page shows it."""
        self.publish(name, value)
        self._kept.add(name)

    def list_of(self, name: str, most: int) -> GrowingList:
        """Add a new list with this name."""
        found = GrowingList(most, self.wake)
        self.lists[name] = found
        return found

    def value(self, name: str) -> tuple[int, str]:
        """Return the section's number and its JSON, or (0, "") before there is any."""
        with self._lock:
            return self._values.get(name, (0, ""))

    @property
    def wanted(self) -> frozenset[str]:
        """The sections that the open pages show."""
        with self._lock:
            return frozenset().union(*self._wanted.values())

    def enter(self, wanted: Iterable[str]) -> tuple[int, asyncio.Event]:
        """Register a page. Return its number, and the event that wakes it. The page must call `leave`."""
        event = asyncio.Event()
        with self._lock:
            self._number += 1
            self._waiters[self._number] = (asyncio.get_running_loop(), event)
            self._wanted[self._number] = frozenset(wanted)
            number = self._number
        for page_came in self._askers:
            page_came()
        return number, event

    def tell_of_pages(self, page_came: Callable[[], None]) -> None:
        """Call this function with each new page."""
        self._askers.append(page_came)

    def leave(self, number: int) -> None:
        """Unregister a page."""
        with self._lock:
            self._waiters.pop(number, None)
            self._wanted.pop(number, None)
            wanted = frozenset[str]().union(*self._wanted.values())
            for name in [
                each for each in self._values if each.startswith(LOG) and each not in wanted | self._kept
            ]:
                del self._values[name]

    @property
    def pages(self) -> int:
        """The number of open pages."""
        return len(self._waiters)

    def wake(self) -> None:
        """Wake all waiting pages."""
        with self._lock:
            waiters = [*self._waiters.values()]
        for loop, event in waiters:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)


class GrowingList:
    """Documents by key, in the order of their last change. The oldest are dropped."""

    def __init__(self, most: int, wake: Callable[[], None]) -> None:
        self._most = most
        self._wake = wake
        self._lock = threading.Lock()
        self._documents: OrderedDict[Any, tuple[int, dict[str, Any]]] = OrderedDict()
        self.number = 0
        """The number of the last change."""

    def put(self, changed: Iterable[tuple[Any, dict[str, Any]]]) -> None:
        """Add new or changed documents."""
        with self._lock:
            before = self.number
            for key, document in changed:
                self.number += 1
                self._documents[key] = (self.number, document)
                self._documents.move_to_end(key)
            while len(self._documents) > self._most:
                self._documents.popitem(last=False)
            has_changed = self.number != before
        if has_changed:
            self._wake()

    def get(self, key: Any) -> dict[str, Any] | None:
        """Return the present document of this key."""
        with self._lock:
            found = self._documents.get(key)
            return None if found is None else found[1]

    def since(self, number: int, most: int) -> tuple[int, list[dict[str, Any]]]:
        """Return the number for the next call, and the documents that have changed since `number`: the newest ones if
        there are more than `most`."""
        found: list[dict[str, Any]] = []
        with self._lock:
            for changed, document in reversed(self._documents.values()):
                if changed <= number or len(found) == most:
                    break
                found.append(document)
            return self.number, found[::-1]
