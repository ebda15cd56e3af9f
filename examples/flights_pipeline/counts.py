"""What came out, counted by a reader of committed records, and whether it adds up to what was sent."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Counts:
    """sent: flights; their ids are 0 to `sent` - 1. closing: records that close the year, one a partition, with
    negative ids. joined: flights in the first query's output, doubled ones once; missing: those that aren't there.
    summed: flights that the days of airlines say they have.
    """

    sent: int
    closing: int
    joined: int
    doubled: int
    missing: int
    days: int
    doubled_days: int
    summed: int

    @property
    def add_up(self) -> bool:
        return self.joined == self.summed == self.sent and not (
            self.doubled or self.missing or self.doubled_days
        )

    def lines(self) -> list[str]:
        """One line each for what was sent, joined, and summed up."""
        return [
            f"{self.sent:>9,} flights were sent, and {self.closing} records beside them that close the year, one a "
            f"partition: {self.sent + self.closing:,} records",
            f"{self.joined:>9,} flights were joined: {self.doubled:,} doubled, {self.missing:,} missing",
            f"{self.summed:>9,} flights are summed up in {self.days:,} days of airlines, of which "
            f"{self.doubled_days:,} came out twice",
        ]


def count(sent: int, enriched: Iterable[bytes], days: Sequence[dict[str, Any]]) -> Counts:
    """enriched: the values of the first query's output. days: those of the second one's, parsed."""
    ids = Counter(int(json.loads(value)["id"]) for value in enriched)
    flights = {number: times for number, times in ids.items() if number >= 0}
    return Counts(
        sent=sent,
        closing=len(ids) - len(flights),
        joined=len(flights),
        doubled=ids.total() - len(ids),
        missing=len(set(range(sent)) - flights.keys()),
        days=len(days),
        doubled_days=len(days) - len({(day["day"], day["carrier"]) for day in days}),
        summed=sum(day["flights"] for day in days),
    )
