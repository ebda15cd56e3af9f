"""Looking into a broker without a client: its topics, records, transactions and groups.

    broker.create_topics({"orders": 3})
    ...
    assert [each.value for each in broker.wait_for_records("orders", 2)] == [b"one", b"two"]

`broker.process.looking_in` (in the broker's process) answers. In a cluster each question goes to the node that leads
or coordinates what it is about.
"""

from __future__ import annotations

import abc
import base64
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from barnabas.child import Asked, OfNodes, QuestionRefusedError

POLL_S = 0.005
NOBODYS = (
    "NOT_COORDINATOR",
    "NOT_LEADER_OR_FOLLOWER",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "no partition of",
    "this node",
)
"""How a refusal begins if another node has to be asked."""

T = TypeVar("T")
TopicPartition = tuple[str, int]
Topics = Mapping[str, "int | Mapping[str, Any]"] | Collection[str]

COMMITTED, ABORTED, OPEN = "committed", "aborted", "open"


@dataclass(frozen=True)
class SeenRecord:
    """A record in a partition.

    `outcome` is that of its transaction ("committed", "aborted", "open"), or None if it has none. `marker` is the
    offset of the marker that ended it. `attempt` counts the producer's transactions in the partition, from 1 on.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    producer_id: int
    epoch: int
    sequence: int
    transactional_id: str | None
    outcome: str | None
    marker: int | None
    attempt: int | None

    @property
    def place(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"

    @property
    def is_committed(self) -> bool:
        """True if its transaction is committed, or if it has none."""
        return self.outcome in (None, COMMITTED)

    @property
    def story(self) -> str:
        """One line that says who wrote it and what happened to its transaction."""
        said = f"{self.place} {_shown(self.key)}: {_shown(self.value)}"
        if self.producer_id < 0:
            return f"{said}, of a producer without an id"
        who = f"producer id {self.producer_id}, epoch {self.epoch}, sequence {self.sequence}"
        if self.outcome is None:
            return f"{said}, of {who}, in no transaction"
        name = "an unknown transactional id" if self.transactional_id is None else repr(self.transactional_id)
        end = "" if self.marker is None else f" by the marker at {self.marker}"
        state = "is still open" if self.outcome == OPEN else f"was {self.outcome}{end}"
        return f"{said}, of {who}; transaction {self.attempt} of {name} here, which {state}"


_MOST_SHOWN = 40


def _shown(data: bytes | None) -> str:
    if data is None:
        return "null"
    text = repr(data)[1:]
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


@dataclass(frozen=True)
class SeenTransaction:
    """A transactional id as its coordinator knows it. `partitions` are those of its transaction. While that is
    being ended, they are those that still need their marker."""

    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]

    @property
    def is_open(self) -> bool:
        """True if it is neither completely committed nor completely aborted."""
        return self.state in ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


@dataclass(frozen=True)
class OpenInPartition:
    """A transaction that is open in a partition. Readers of committed records wait at its first offset."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    first_offset: int
    transactional_id: str | None

    def __str__(self) -> str:
        name = (
            "no transactional id that is known"
            if self.transactional_id is None
            else repr(self.transactional_id)
        )
        return (
            f"{self.topic}-{self.partition}@{self.first_offset}: producer id {self.producer_id}, epoch {self.epoch}, "
            f"of {name}"
        )


@dataclass(frozen=True)
class SeenMember:
    """A member of a group."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str


@dataclass(frozen=True)
class SeenGroup:
    """A group as its coordinator knows it; `type` is "classic", "consumer", "share" or "streams"."""

    group_id: str
    type: str
    state: str
    members: tuple[SeenMember, ...]
    member_count: int
    topics: tuple[str, ...] | None
    """The topics that it subscribes to, if they are known."""


class WithLooking(OfNodes):
    """Methods of a broker and a cluster that look inside, without a client."""

    @abc.abstractmethod
    def _asked_brokers(self) -> Sequence[Asked]:
        """Return the brokers that can be asked now. Raises BrokerError if there is none."""

    # --- topics ---------------------------------------------------------------------------------------------

    def create_topics(self, topics: Topics) -> None:
        """Create topics. When this returns, each partition has a leader. `topics` maps each name to its number of
        partitions, such as {"orders": 3}, or to a dict of `partitions`, `replication` and `configs`. A list of names
        takes the broker's defaults. Raises ValueError for what can't be created."""
        self._make_topics(topics, if_missing=False)

    def _make_topics(self, topics: Topics, *, if_missing: bool) -> None:
        wanted = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, -1)
        if not wanted:
            return
        try:
            self._decider().ask({"ask": "create_topics", "topics": wanted, "if_missing": if_missing})
        except QuestionRefusedError as refusal:
            raise ValueError(str(refusal)) from None
        for topic in wanted:
            self.wait_until(partial(self._leaders, topic), what=f"{topic} has leaders")

    def _leaders(self, topic: str) -> dict[int, Asked]:
        """Return which broker to ask about each partition. Raises LookupError."""
        led: dict[int, Asked] = {}
        count, refused = 0, ""
        for broker in self._asked_brokers():
            try:
                found = broker.ask({"ask": "topic", "topic": topic})
            except QuestionRefusedError as refusal:
                refused = str(refusal)
                continue
            count = max(count, len(found["leaders"]))
            led |= dict.fromkeys(found["here"], broker)
        if not count:
            raise LookupError(refused)
        missing = [index for index in range(count) if index not in led]
        if missing:
            raise LookupError(f"{topic}-{missing[0]} has no leader that can be asked")
        return {index: led[index] for index in sorted(led)}

    # --- records --------------------------------------------------------------------------------------------

    def records(
        self, topic: str, *, partition: int | None = None, committed: bool = True
    ) -> list[SeenRecord]:
        """The records of a topic, partition by partition, in the order of their offsets. These are the records that a
        reader of committed records gets now. `committed=False` adds those of open and aborted transactions. Raises
        LookupError if there is no such topic, or a partition has no leader."""
        found, stable = self._read(topic, partition)
        return visible(found, stable) if committed else found

    def _read(self, topic: str, partition: int | None = None) -> tuple[list[SeenRecord], dict[int, int]]:
        """Return all records, and each partition's last stable offset."""
        leaders = self._leaders(topic)
        if partition is not None and partition not in leaders:
            raise LookupError(f"there is no partition {topic}-{partition}")
        names = self._transactional_ids()
        found: list[SeenRecord] = []
        stable: dict[int, int] = {}
        for index in leaders if partition is None else [partition]:
            documents, stable[index] = _documents_of(leaders[index], topic, index)
            found += _told(topic, index, documents, names)
        return found, stable

    def wait_for_records(
        self, topic: str, count: int, *, committed: bool = True, timeout: float = 30.0
    ) -> list[SeenRecord]:
        """The same, as soon as there are `count` records or more. Raises TimeoutError, which says what there is."""
        deadline_s = time.monotonic() + timeout
        while True:
            try:
                found, stable = self._read(topic)
                why = ""
            except LookupError as error:
                found, stable, why = [], {}, f": {error}"
            wanted = visible(found, stable) if committed else found
            if len(wanted) >= count:
                return wanted
            if time.monotonic() > deadline_s:
                others = [each.story for each in found if each not in wanted]
                told = "".join(f"\n  {story}" for story in others[:_MOST_TOLD])
                raise TimeoutError(
                    f"within {timeout:g} s {topic} has {len(wanted)} records, and not {count}{why}"
                    + (f"; not committed are:{told}" if told else "")
                )
            time.sleep(POLL_S)

    # --- transactions and groups ----------------------------------------------------------------------------

    def transactions(self) -> list[SeenTransaction]:
        """All transactional ids, as their coordinators know them."""
        found = self._paged("transactions", lambda last: last["transactional_id"])
        return sorted(
            (
                SeenTransaction(**{**each, "partitions": tuple(map(tuple, each["partitions"]))})
                for each in found
            ),
            key=lambda each: each.transactional_id,
        )

    def _transactional_ids(self) -> dict[int, str]:
        """Return the transactional ids by producer id."""
        return {each.producer_id: each.transactional_id for each in self.transactions()}

    def open_transactions(self) -> list[OpenInPartition]:
        """What is open in each partition, as its leader knows it. This includes transactions that hang, which no
        coordinator knows."""
        names = self._transactional_ids()
        found = self._paged(
            "open_transactions", lambda last: [last["topic"], last["partition"], last["producer_id"]]
        )
        return [
            OpenInPartition(
                **{**each, "transactional_id": names.get(each["producer_id"], each["transactional_id"])}
            )
            for each in found
        ]

    def hanging_transactions(self) -> list[OpenInPartition]:
        """Open transactions that no coordinator will ever end. Readers of committed records wait for them forever."""
        opened = self.open_transactions()
        known = {
            (each.producer_id, place)
            for each in self.transactions()
            for place in each.partitions
            if each.is_open
        }
        still = {*self.open_transactions()}
        return [
            each
            for each in opened
            if each in still and (each.producer_id, (each.topic, each.partition)) not in known
        ]

    def groups(self) -> list[SeenGroup]:
        """All groups, of every kind."""
        found = [
            SeenGroup(
                group_id=each["group"],
                type=each["type"],
                state=each["state"],
                members=tuple(
                    SeenMember(member["member"], member["instance"], member["client_id"], member["host"])
                    for member in each["members"]
                ),
                member_count=each["member_count"],
                topics=None if each["topics"] is None else tuple(each["topics"]),
            )
            for each in self._paged("groups", lambda last: last["group"])
        ]
        return sorted(found, key=lambda each: each.group_id)

    def lag(self, group: str, topic: str | None = None) -> int:
        """How many records a group still has to read: the committed records after its committed offsets, or from the
        start where it has committed nothing. It counts this topic, or all topics that the group has committed offsets
        of or subscribes to. Raises LookupError if there is no such group, or nothing that it reads."""
        question = {"ask": "lag", "group": group, **({} if topic is None else {"topic": topic})}
        entries = self._ask_whoever(question)
        if not entries:
            raise LookupError(f"{group} has committed nothing, and its subscription is unknown")
        return sum(
            each["lag"]
            if each["lag"] is not None
            else self._ask_whoever(
                {
                    "ask": "partition_lag",
                    "topic": each["topic"],
                    "partition": each["partition"],
                    "committed": each["committed"],
                }
            )["lag"]
            for each in entries
        )

    # --- waiting --------------------------------------------------------------------------------------------

    def wait_until(self, condition: Callable[[], T], *, timeout: float = 30.0, what: str = "") -> T:
        """Call the condition again and again until it is true, and return its result. LookupError counts as not yet.
        Raises TimeoutError, with the last result and the open transactions."""
        deadline_s = time.monotonic() + timeout
        while True:
            last: object
            try:
                found = condition()
                if found:
                    return found
                last = found
            except LookupError as error:
                last = error
            if time.monotonic() > deadline_s:
                opened = "".join(f"\n  open: {each}" for each in self.open_transactions()[:_MOST_TOLD])
                raise TimeoutError(
                    f"still not true after {timeout:g} s{f' that {what}' if what else ''}: {last!r}{opened}"
                )
            time.sleep(POLL_S)

    # --- asking ---------------------------------------------------------------------------------------------

    def _paged(self, ask: str, place_of: Callable[[Any], object]) -> list[Any]:
        """Ask all brokers, page by page, and return all entries."""
        found: list[Any] = []
        for broker in self._asked_brokers():
            question: dict[str, object] = {"ask": ask}
            while True:
                try:
                    page = broker.ask(question)
                except QuestionRefusedError as refusal:
                    raise LookupError(str(refusal)) from None
                if not page:
                    break
                found += page
                question["after"] = place_of(page[-1])
        return found

    def _ask_whoever(self, question: Mapping[str, object]) -> Any:
        """Return the answer of the one broker that accepts the question. Raises LookupError."""
        refused: list[str] = []
        for broker in self._asked_brokers():
            try:
                return broker.ask(question)
            except QuestionRefusedError as refusal:
                refused.append(str(refusal))
        raise LookupError((_telling(refused) or refused)[0])

    def _ask_all(self, question: Mapping[str, object]) -> list[Any]:
        """Return the answers of all brokers that accept the question. Raises LookupError if none does."""
        found: list[Any] = []
        refused: list[str] = []
        for broker in self._asked_brokers():
            try:
                found.append(broker.ask(question))
            except QuestionRefusedError as refusal:
                refused.append(str(refusal))
        telling = _telling(refused)
        if telling or not found:
            raise LookupError((telling or refused)[0])
        return found


_MOST_TOLD = 10


def visible(records: Iterable[SeenRecord], stable: Mapping[int, int]) -> list[SeenRecord]:
    """Return the records that a reader of committed records gets. `stable` is each partition's last stable offset."""
    return [each for each in records if each.is_committed and each.offset < stable[each.partition]]


def _telling(refused: Iterable[str]) -> list[str]:
    """Return the refusals of those nodes that the question was for."""
    return [each for each in refused if not each.startswith(NOBODYS)]


def _documents_of(leader: Asked, topic: str, partition: int) -> tuple[list[Any], int]:
    """Return all records and markers, read page by page, and the last stable offset."""
    found: list[Any] = []
    at = 0
    asked = {"ask": "records", "topic": topic, "partition": partition, "committed": False, "markers": True}
    while True:
        try:
            page = leader.ask({**asked, "offset": at})
        except QuestionRefusedError as refusal:
            raise LookupError(str(refusal)) from None
        found += page["records"]
        at = page["next"]
        if at >= page["end"]:
            return found, int(page["stable"])


def _told(
    topic: str, partition: int, documents: Iterable[Any], names: Mapping[int, str]
) -> Iterator[SeenRecord]:
    """Yield the records with their outcome. Their markers may have come in later pages."""
    of_producer: dict[int, list[Any]] = {}
    ended: dict[object, int] = {}
    kept = []
    for each in documents:
        producer_id = each["producer_id"]
        name = each["transactional_id"] or names.get(producer_id)
        each["transactional_id"] = name
        who = producer_id if name is None else name
        if each["kind"] == "record":
            kept.append(each)
            each["attempt"] = None if each["outcome"] is None else ended.get(who, 0) + 1
            if each["outcome"] is not None:
                of_producer.setdefault(producer_id, []).append(each)
        elif each["kind"] in ("commit", "abort"):
            ended[who] = ended.get(who, 0) + 1
            for earlier in of_producer.pop(producer_id, ()):
                earlier["marker"] = each["offset"]
                earlier["outcome"] = COMMITTED if each["kind"] == "commit" else ABORTED
    for each in kept:
        if each["outcome"] == "undecided":
            each["outcome"] = OPEN
        yield SeenRecord(
            topic=topic,
            partition=partition,
            offset=each["offset"],
            timestamp_ms=each["timestamp_ms"],
            key=_bytes(each["key"]),
            value=_bytes(each["value"]),
            headers=tuple((name, _bytes(value)) for name, value in each["headers"]),
            producer_id=each["producer_id"],
            epoch=each["epoch"],
            sequence=each["sequence"],
            transactional_id=each["transactional_id"],
            outcome=each["outcome"],
            marker=each["marker"],
            attempt=each["attempt"],
        )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
