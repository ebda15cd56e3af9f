"""What a group's offset of a partition may be: commits and fetches, each with its begin and end.

A fetch returns a commit that may have been in force at some moment between the fetch's begin and end. Each commit has a
tag of its own in its metadata, so a value shows which commit made it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

NO_OFFSET = -1


@dataclass(slots=True)
class Commit:
    """Times are in seconds, infinite if unknown. `visible_s`: nobody can get it before; in a transaction it is known at
    the end.

    Of two commits, the later written one counts, not the one whose transaction ends later.
    """

    tag: str
    offset: int
    began_s: float
    visible_s: float
    written_s: float = math.inf
    ended_s: float = math.inf
    """From then on it is in force, unless a later one overtakes it."""
    is_refused: bool = False

    def written(self, now_s: float) -> None:
        """Note that it was written: it is pending, if not in force."""
        self.written_s = min(self.written_s, now_s)

    def in_force(self, now_s: float) -> None:
        """Note that everybody who comes now must see it."""
        self.written(now_s)
        self.ended_s = min(self.ended_s, now_s)


class Commits:
    """The commits of one partition of a group."""

    def __init__(self) -> None:
        self.by_tag: dict[str, Commit] = {}

    def begin(self, offset: int, now_s: float, name: str, *, in_transaction: bool = False) -> Commit:
        tag = f"{name} {len(self.by_tag)}"
        commit = Commit(tag, offset, now_s, math.inf if in_transaction else now_s)
        self.by_tag[tag] = commit
        return commit

    def complaint(
        self,
        offset: int,
        tag: str,
        began_s: float,
        now_s: float,
        *,
        may_lose: bool = False,
        may_be_old: bool = False,
    ) -> str | None:
        """Return what is wrong with the answer to a fetch that began at `began_s`. `may_lose`: commits and
        transactions' ends may be lost. `may_be_old`: the answer came from somebody who doesn't know that another one is
        the coordinator now."""
        # the newest of those that were in force when the fetch began
        known = max(
            (each for each in self.by_tag.values() if each.ended_s < began_s and not each.is_refused),
            key=lambda each: each.began_s,
            default=None,
        )
        if may_be_old:
            known = None
        if offset == NO_OFFSET:
            if known is not None and not may_lose:
                return f"nothing is committed, and {known.tag!r} was"
            return None
        found = self.by_tag.get(tag)
        if found is None or found.offset != offset:
            return f"{offset} {tag!r} was never committed"
        if found.visible_s > now_s:
            return None if may_lose else f"{tag!r} is there before its transaction's end"
        if may_lose:
            return None
        if found.is_refused:
            return f"{tag!r} was refused, and is there"
        if known is not None and found.written_s < known.began_s:
            return f"{tag!r} is there, and {known.tag!r} was committed behind it"
        found.in_force(now_s)
        return None
