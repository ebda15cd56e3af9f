"""The catalogue of hazards: what goes wrong, and at which steps of the protocol. `docs/prove.md` explains it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from barnabas.journal import Request

STEPS = (
    "InitProducerId",
    "AddPartitionsToTxn",
    "Produce",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "OffsetCommit",
    "EndTxn",
)
"""The requests that change something, in the order in which a transaction sends them."""


class Strike(Enum):
    """What happens at a step. The value is its name in a report."""

    REQUEST_LOST = "request lost"
    ANSWER_LOST = "answer lost"
    ANSWER_AWAITED = "answer never comes"
    PROGRAM_KILLED_BEFORE = "program killed before it"
    PROGRAM_KILLED_AFTER = "program killed after it"
    BROKER_KILLED_BEFORE = "broker killed before it"
    BROKER_KILLED_AFTER = "broker killed after it"
    TAKEN_OVER = "taken over"
    TIMED_OUT = "timed out"
    GROUP_MOVED_ON = "group moved on"
    MOVED = "moved to another broker"


TOLD: dict[Strike, str] = {
    Strike.REQUEST_LOST: "the connection broke before the broker had seen the request",
    Strike.ANSWER_LOST: "the broker did it, and the connection broke before the program heard of it",
    Strike.ANSWER_AWAITED: "the broker did it, and the program waits for the answer until it gives up",
    Strike.PROGRAM_KILLED_BEFORE: "kill -9 of the program before the broker had seen the request; started again",
    Strike.PROGRAM_KILLED_AFTER: "kill -9 of the program once the broker had done it; started again",
    Strike.BROKER_KILLED_BEFORE: "kill -9 of the broker before it did anything; started again",
    Strike.BROKER_KILLED_AFTER: "kill -9 of the broker once it had done it; started again",
    Strike.TAKEN_OVER: "the request hung in the network while a second instance of the program took over",
    Strike.TIMED_OUT: "the request hung in the network for six minutes: sessions and transactions timed out",
    Strike.GROUP_MOVED_ON: "the group had rebalanced: its offsets are refused, and the transaction is aborted",
    Strike.MOVED: "the coordinator (the leader, at Produce) moved to another broker before it had seen the request",
}
"""What each strike does, in a sentence."""

OF_QUICK = (
    Strike.ANSWER_LOST,
    Strike.ANSWER_AWAITED,
    Strike.PROGRAM_KILLED_AFTER,
    Strike.TAKEN_OVER,
    Strike.GROUP_MOVED_ON,
    Strike.MOVED,
)

OF_OFFSETS = ("TxnOffsetCommit", "OffsetCommit")
"""The requests that go to a group's coordinator."""


class Hazard(NamedTuple):
    """Something that goes wrong at a step: at the `nth` request of this `api` at one broker."""

    api: str
    nth: int
    strike: Strike

    def __str__(self) -> str:
        return f"{self.api} #{self.nth}: {self.strike.value}"


class Thoroughness(Enum):
    """Which requests of one API are tried, and with which strikes."""

    QUICK = "quick"
    NORMAL = "normal"
    THOROUGH = "thorough"


FIRST_OF_BROKERS = 4
"""The version of AddPartitionsToTxn from which on only brokers send it, to a coordinator elsewhere (KIP-890)."""


def is_a_step(request: Request) -> bool:
    """True for a request of the program that changes something."""
    api = request["api"]
    return api in STEPS and not (api == "AddPartitionsToTxn" and request["version"] >= FIRST_OF_BROKERS)


def client_of(requests: Iterable[Request], api: str) -> str | None:
    """Return the program's client id at these requests, if brokers send some of them too and it has only one."""
    sent = [each for each in requests if each["api"] == api]
    found = {each["client_id"] for each in sent if is_a_step(each)}
    return found.pop() if len(found) == 1 and not all(map(is_a_step, sent)) else None


def hazards_of(requests: Iterable[Request], how: Thoroughness, most: int, brokers: int = 1) -> list[Hazard]:
    """Return at most `most` hazards for a program that sent these requests undisturbed to so many brokers."""
    counts: dict[str, int] = {}
    initializes_at_any = False  # without a transactional id there is no coordinator that could move
    for each in requests:
        if is_a_step(each):
            counts[each["api"]] = counts.get(each["api"], 0) + 1
        if each["api"] == "InitProducerId" and not each.get("transactional_ids"):
            initializes_at_any = True
    strikes = OF_QUICK if how is Thoroughness.QUICK else tuple(Strike)
    found = [
        Hazard(api, nth, strike)
        for api in STEPS
        for nth in _numbers(counts.get(api, 0), how, brokers)
        for strike in strikes
        if strike is not Strike.GROUP_MOVED_ON or api in OF_OFFSETS
        if strike is not Strike.MOVED
        or (brokers > 1 and not (initializes_at_any and api == "InitProducerId"))
    ]
    return found[:most]


def _numbers(count: int, how: Thoroughness, brokers: int) -> Sequence[int]:
    """Return which of `count` requests to try. The second one shows a program under way; the first may differ from all
    others. However they are spread over the brokers, one of these gets its share or more."""
    share = -(-count // brokers)
    if how is Thoroughness.THOROUGH:
        return range(1, share + 1)
    return [min(share, 2)] if count else []


def lasting(requests: Iterable[Request]) -> Iterator[Request]:
    """Yield the requests by which a program makes progress. A program that sends none of these is idle."""
    return filter(is_a_step, requests)
