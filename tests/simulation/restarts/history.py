"""A history: requests with restarts in between. Everything visible before and after each restart is compared."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any

from tests.simulation.restarts import picture
from tests.simulation.restarts.data_wishes import DataWishes
from tests.simulation.restarts.group_wishes import GroupWishes
from tests.simulation.restarts.metadata_wishes import MetadataWishes
from tests.simulation.restarts.nodes import GROUP, INTERNAL, SHARE, TRANSACTION, Nodes, Unanswered
from tests.simulation.restarts.picture import Picture
from tests.simulation.restarts.share_wishes import ShareWishes
from tests.simulation.restarts.wishes import Wish, draw

KEYS = {GROUP: "g", TRANSACTION: "x", SHARE: "s:AAAAAAAAAAAAAAAAAAAAAQ:0"}
"""One key for each kind of coordinator."""


SETTLES_S = 1.0
"""Time for what goes on without anybody waiting for it, such as creating the topics of Kafka Streams."""


class How(Enum):
    STOPPED = "stopped"
    KILLED = "killed"
    KILLED_AMID = "killed amid a request"
    """What wasn't answered may be done, or not, or in part. Everything else is unchanged."""


class Restartable(Nodes):
    @abstractmethod
    async def restart(self, how: How, asked: Callable[[], Awaitable[object]] | None = None) -> None:
        """Restart, and return once they serve again. `asked`: the request during which they are killed."""


class History:
    """`anomalies`: what differed after a restart, or went wrong."""

    def __init__(self, nodes: Restartable, luck: random.Random, *, amid: bool = True) -> None:
        self.nodes = nodes
        self.luck = luck
        self.anomalies: list[str] = []
        self.counts: Counter[str] = Counter()
        self.lines: list[str] = []
        self._hows = [How.STOPPED, How.KILLED, How.KILLED, *([How.KILLED_AMID] if amid else [])]
        self._kinds = [kind(nodes, luck) for kind in (MetadataWishes, DataWishes, GroupWishes, ShareWishes)]

    async def run(self, restarts: int, wishes: tuple[int, int]) -> None:
        for kind in KEYS:
            if self.luck.random() < 0.9:
                await self.nodes.until_coordinated(KEYS[kind], kind)
        for _ in range(restarts):
            for _ in range(self.luck.randint(*wishes)):
                await self.grant(await draw(self._kinds, self.luck))
            await self.restart(self.luck.choice(self._hows))
            if self.anomalies:
                break

    async def grant(self, wish: Wish) -> None:
        self.lines.append(wish.what)
        self.counts["requests"] += 1
        try:
            await wish.grant()
        except Unanswered:
            self.anomalies.append(f"no answer: {wish.what}")

    async def restart(self, how: How) -> None:
        await self.nodes.pause(SETTLES_S)
        before = await picture.take(self.nodes)
        wish = await draw(self._kinds, self.luck) if how is How.KILLED_AMID else None
        self.lines.append(f"is {how.value}{'' if wish is None else f' ({wish.what})'}")
        await self.nodes.restart(how, None if wish is None else wish.grant)
        after = await picture.take(self.nodes)
        self.counts[how.value] += 1
        self.counts["things compared"] += len(before)
        self._compare(before, after, how, wish)
        if wish is not None:  # whatever became of it stays
            await self.nodes.restart(How.KILLED)
            self._compare(after, await picture.take(self.nodes), How.KILLED, None)

    def _compare(self, before: Picture, after: Picture, how: How, amid: Wish | None) -> None:
        _forget_producers_of_deleted_records(before, after, how)
        found = picture.differences(before, after)
        if amid is not None:
            words = amid.words | {*INTERNAL.values()}  # these are created with the first one of a kind
            found = [each for each in found if words.isdisjoint(each.partition(": ")[0].split())]
        self.anomalies += found


def _forget_producers_of_deleted_records(before: Picture, after: Picture, how: How) -> None:
    """If records were deleted, a kill rebuilds the producers' state from the segments. Producers whose records are all
    deleted may then be gone, as in Kafka (`UnifiedLog.rebuildProducerState`), or be back. A clean stop has none if
    nothing is left of a log: a snapshot at its start doesn't count (`ProducerStateManager.truncateAndReload`)."""
    for key in list(before):
        if key.startswith("producers of ") and key in after:
            place = key.removeprefix("producers of ")
            start = before[f"log start of {place}"]["offset"]
            largest = f"largest timestamp of {place}"
            if 0 <= before[largest]["offset"] < start and after[largest]["offset"] < 0:
                before[largest] = after[
                    largest
                ]  # it was a deleted record's, which another leader needn't have
            opened = [_open_below(some[key]["active"], start) for some in (before, after)]
            if opened[0] != opened[1] and how is not How.STOPPED:
                # As in Kafka, the last stable offset goes back to the log start if such a producer comes back.
                for said in (
                    f"last stable offset of {place}",
                    *(f"records of {place}, isolation {n}" for n in "01"),
                ):
                    before[said] = after[said]
            if start == before[f"high watermark of {place}"]["offset"] > 0:
                before[key] = after[key]  # after a kill they may be back, because the segment still has them
            elif start > 0 and how is not How.STOPPED:
                known = [{each["producer_id"] for each in some[key]["active"]} for some in (before, after)]
                for some in (before, after):
                    active = [
                        each | {"coordinator_epoch": "of a marker that may be deleted"}
                        for each in some[key]["active"]
                        if each["producer_id"] in known[0] & known[1]
                    ]
                    some[key] = {**some[key], "active": active}
        elif key.startswith("records of ") and key.endswith("isolation 1") and key in after:
            for some in (before, after):
                some[key] = _without_aborts_of_deleted_records(some[key])


def _open_below(active: Any, start: int) -> set[int]:
    """Return the producers with an open transaction with deleted records."""
    return {each["producer_id"] for each in active if 0 <= each["current_txn_start_offset"] < start}


def _without_aborts_of_deleted_records(records: Any) -> Any:
    """Leave out aborted transactions that began below the log start and of which only the marker is left. Whether
    readers are told of them depends on whether the producer was forgotten before the marker came."""
    producers = [batch.split(" of ")[1].partition("/")[0] for batch in records["batches"]]
    aborted = [
        each
        for each in records["aborted_transactions"] or ()
        if each["first_offset"] >= records["log_start_offset"]
        or producers.count(str(each["producer_id"])) > 1
    ]
    return records | {"aborted_transactions": aborted}
