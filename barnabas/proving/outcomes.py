"""The outcome of a run: which records readers of committed records see, and how two runs differ."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, NamedTuple

from barnabas.journal import Request
from barnabas.looking import ABORTED
from barnabas.proving.hazards import OF_OFFSETS

if TYPE_CHECKING:
    from barnabas.broker import Broker
    from barnabas.cluster import Cluster

_SHOWN = 5
_OF_FOLLOWERS = re.compile(r"broker-\d+-fetcher-\d+")
"""The client ids by which followers fetch."""


class Output(NamedTuple):
    """A record as two runs are compared: without its offset and time."""

    topic: str
    key: bytes | None
    value: bytes | None

    def __str__(self) -> str:
        key, value = (
            "null" if each is None else each.decode("utf-8", errors="backslashreplace")
            for each in (self.key, self.value)
        )
        return f"{self.topic}: {key} = {value}"


def committed(kafka: Broker | Cluster, topics: Iterable[str]) -> Counter[Output]:
    """Return the records that readers of committed records see. A topic that doesn't exist has none."""
    found: Counter[Output] = Counter()
    for topic in topics:
        with contextlib.suppress(LookupError):
            found.update(Output(topic, each.key, each.value) for each in kafka.records(topic))
    return found


def aborted(kafka: Broker | Cluster, topics: Iterable[str]) -> dict[str, int]:
    """Return by topic how many records of aborted transactions it holds, for topics that hold any."""
    found: Counter[str] = Counter()
    for topic in {*topics}:
        with contextlib.suppress(LookupError):
            found[topic] += sum(each.outcome == ABORTED for each in kafka.records(topic, committed=False))
    return {topic: count for topic, count in found.items() if count}


class Difference(NamedTuple):
    """How a run differs from the undisturbed one. All parts are empty if the two are equal."""

    doubled: Mapping[Output, int]
    lost: Mapping[Output, int]
    foreign: Mapping[Output, int]

    @property
    def is_none(self) -> bool:
        """True if the outcome stayed equal."""
        return not (self.doubled or self.lost or self.foreign)

    def lines(self) -> Iterator[str]:
        """Yield the differences in words."""
        for what, records in (
            ("doubled", self.doubled),
            ("lost", self.lost),
            ("not in the undisturbed run", self.foreign),
        ):
            if records:
                some = [str(each) for each in list(records)[:_SHOWN]]
                more = len(records) - len(some)
                yield (
                    f"{sum(records.values())} {what}: "
                    + "; ".join(some)
                    + (f"; and {more} more" if more else "")
                )


def difference(expected: Counter[Output], found: Counter[Output]) -> Difference:
    """Return how `found` differs from `expected`."""
    more, less = found - expected, expected - found
    return Difference(
        doubled={each: count for each, count in more.items() if each in expected},
        lost=dict(less),
        foreign={each: count for each, count in more.items() if each not in expected},
    )


# --- Which of the program's calls caused it -----------------------------------------------------------------


class _Transaction(NamedTuple):
    is_commit: bool
    n: int
    offsets: Mapping[str, int]
    """Offsets by topic and partition, such as `orders-0`."""


def transactional_ids(requests: Iterable[Request]) -> Set[str]:
    """Return the transactional ids of the producers that the program has made."""
    return {
        each["request"]["transactional_id"]
        for each in requests
        if each["api"] == "InitProducerId" and each["request"].get("transactional_id")
    }


def reasons(
    requests: Sequence[Request],
    aborted: Mapping[str, int],
    undisturbed: Sequence[Request] = (),
    *,
    inputs: Collection[str] = (),
    kept_away: str = "",
) -> list[str]:
    """Return the likely reasons in words, from the requests of a program with a wrong outcome.

    aborted: by topic, how many records of aborted transactions there are. undisturbed: the requests of the undisturbed
    run. inputs: the topics that the program reads. kept_away: the API of a request that the hazard kept from the
    broker, if it did.
    """
    found: list[str] = []
    beside = [each for each in requests if each["api"] == "OffsetCommit" and each.get("offsets")]
    if beside:
        found.append(
            f"it sends its offsets by OffsetCommit (request {beside[0]['n']}), outside of the transaction: they count "
            "whether or not the transaction does"
        )
    ids = transactional_ids(requests)
    new = sorted(ids - transactional_ids(undisturbed))
    if new:
        found.append(
            f"its transactional id changes with each start ({', '.join(new[:3])}): nothing fences the previous "
            "instance or ends its transaction"
        )
    if not ids and any(each["api"] == "Produce" for each in requests):
        found.append("it writes without a transaction: what it wrote before it failed stays")
    read = {topic for each in requests if _reads_all(each) for topic in each.get("topics", {})}
    found += (
        f"it reads {topic} with isolation level read_uncommitted, where {aborted[topic]} records are of transactions "
        "that were aborted"
        for topic in sorted(read.intersection(aborted))
    )
    transactions = _transactions(requests, kept_away)
    found += _repeated(transactions)
    found += _skipped(transactions)
    usual = {place for place, _ in _begun_again(undisturbed, inputs)}
    found += [told for place, told in _begun_again(requests, inputs, kept_away) if place not in usual][:1]
    return found


def _is_fetch(each: Request) -> bool:
    """True for a Fetch that no follower sends."""
    return each["api"] == "Fetch" and not _OF_FOLLOWERS.fullmatch(each["client_id"] or "")


def _reads_all(each: Request) -> bool:
    """True for the Fetch of a program that reads everything."""
    return _is_fetch(each) and each.get("request", {}).get("isolation_level") == 0


def _places(each: Request) -> dict[str, int]:
    """Return the request's offsets by topic and partition, such as `orders-0`."""
    return {
        f"{topic}-{partition}": offset
        for topic, partitions in each.get("offsets", {}).items()
        for partition, offset in partitions.items()
    }


def _is_done(each: Request, kept_away: str) -> bool:
    """True if the broker has done it. An answer that doesn't come says nothing about that."""
    return "errors" not in each and not ("outcome" in each and each["api"] == kept_away)


def _transactions(requests: Iterable[Request], kept_away: str = "") -> list[_Transaction]:
    """Return the transactions in the order of their ends, with their offsets. An end that got an error or never came to
    the broker doesn't count, nor do offsets that the broker refused."""
    asked: dict[str, dict[str, int]] = {}
    taken: dict[str, dict[str, int]] = {}
    found = []
    for each in requests:
        if each["api"] == "InitProducerId":  # the broker aborts what was open
            producer = f"{each.get('answer', {}).get('producer_id')}"
            asked.pop(producer, None)
            taken.pop(producer, None)
        if each["api"] not in ("TxnOffsetCommit", "EndTxn"):
            continue
        producer = f"{each['request'].get('producer_id')}"
        if each["api"] == "TxnOffsetCommit":
            said = _places(each)
            asked.setdefault(producer, {}).update(said)
            if _is_done(each, kept_away):
                taken.setdefault(producer, {}).update(said)
        elif _is_done(each, kept_away):
            is_commit = each["request"]["committed"]
            all_asked, all_taken = asked.pop(producer, {}), taken.pop(producer, {})
            found.append(_Transaction(is_commit, each["n"], all_taken if is_commit else all_asked))
    return found


def _repeated(transactions: Sequence[_Transaction]) -> Iterator[str]:
    """Yield the places where two transactions committed the same offset, the later one after the earlier one's end."""
    at: dict[tuple[str, int], int] = {}
    for each in transactions:
        if not each.is_commit:
            continue
        for place, offset in each.offsets.items():
            before = at.get((place, offset))
            if before is not None:
                yield (
                    f"it committed offset {offset} of {place} twice, by EndTxn {before} and by EndTxn {each.n}: it "
                    "began a new transaction with the same records after the commit had succeeded"
                )
                return
            at[place, offset] = each.n


def _skipped(transactions: Sequence[_Transaction]) -> Iterator[str]:
    """Yield the places where offsets continue after those of an aborted transaction."""
    aborted: dict[str, _Transaction] = {}
    committed_to: dict[str, int] = {}
    for each in transactions:
        for place, offset in each.offsets.items():
            if not each.is_commit:
                aborted[place] = each
                continue
            gone = aborted.pop(place, None)
            if gone is not None and offset > gone.offsets[place] > committed_to.get(place, 0):
                yield (
                    f"its transaction up to offset {gone.offsets[place]} of {place} was aborted (EndTxn {gone.n}), and "
                    "it went on without reading those records again"
                )
                return
            committed_to[place] = offset


def _begun_again(
    requests: Sequence[Request], inputs: Collection[str], kept_away: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield the places in the inputs that the program reads from their beginning again after a commit, in words, too.
    Places whose offsets it commits aren't among them."""
    kept = {place for each in requests if each["api"] in OF_OFFSETS for place in _places(each)}
    first: dict[str, int] = {}
    furthest: dict[str, int] = {}
    commit = 0
    for each in requests:
        if each["api"] == "EndTxn" and each["request"]["committed"] and _is_done(each, kept_away):
            commit = each["n"]
        if not _is_fetch(each):
            continue
        for place, offset in _places(each).items():
            if place in kept or place.rpartition("-")[0] not in inputs:
                continue
            if commit and offset <= first.get(place, offset) < furthest.get(place, offset):
                yield (
                    place,
                    f"it read {place} from offset {offset} again (request {each['n']}) after EndTxn {commit} had "
                    "committed what it made of those records: nothing that it keeps says how far it was",
                )
            first.setdefault(place, offset)
            furthest[place] = max(offset, furthest.get(place, offset))
