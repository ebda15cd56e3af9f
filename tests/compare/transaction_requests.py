"""Requests of transactional producers that scripts send often, and a producer that keeps its epoch and sequences."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .batches import TRANSACTIONAL, batch, record
from .masking import masked
from .plain import plain
from .play import Play
from .requests import fetch, produce
from .scene import Topic
from .waiting import ScriptStuck

Fields = dict[str, Any]
Part = tuple[Topic | str, int]

CONCURRENT_TRANSACTIONS = 51
NO_COORDINATOR_YET = (14, 15, 16)
UNDER_WAY = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")
STRANGER = 10**12
"""A producer id that nobody was given."""

# For each transaction version, the versions of Produce, EndTxn and TxnOffsetCommit that its clients send.
PRODUCE_VERSION = {1: 11, 2: 12}
END_VERSION = {1: 4, 2: 5}
OFFSETS_VERSION = {1: 4, 2: 5}


def init(
    transactional_id: str | None, timeout_ms: int = 60_000, producer_id: int = -1, producer_epoch: int = -1
) -> Fields:
    return {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": timeout_ms,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
    }


def topics_of(parts: Sequence[Part], *, indexes: str = "partitions") -> list[Fields]:
    """(topic, partition). Neighbours of one topic share an entry."""
    topics: list[Fields] = []
    for topic, partition in parts:
        name = topic if isinstance(topic, str) else topic.name
        if not topics or topics[-1]["name"] != name:
            topics.append({"name": name, indexes: []})
        topics[-1][indexes].append(partition)
    return topics


def transaction(
    transactional_id: str, producer_id: int, producer_epoch: int, *parts: Part, verify_only: bool = False
) -> Fields:
    """One of the transactions of an AddPartitionsToTxn from v4 on."""
    return {
        "transactional_id": transactional_id,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "verify_only": verify_only,
        "topics": topics_of(parts),
    }


def add_partitions(
    transactional_id: str, producer_id: int, producer_epoch: int, *parts: Part, verify_only: bool = False
) -> Fields:
    """The request in the form of clients and in that of brokers."""
    one = transaction(transactional_id, producer_id, producer_epoch, *parts, verify_only=verify_only)
    return {
        "v3_and_below_transactional_id": transactional_id,
        "v3_and_below_producer_id": producer_id,
        "v3_and_below_producer_epoch": producer_epoch,
        "v3_and_below_topics": one["topics"],
        "transactions": [one],
    }


def add_offsets(transactional_id: str, producer_id: int, producer_epoch: int, group: str) -> Fields:
    return {
        "transactional_id": transactional_id,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "group_id": group,
    }


def end_txn(transactional_id: str, producer_id: int, producer_epoch: int, *, commit: bool) -> Fields:
    return {
        "transactional_id": transactional_id,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "committed": commit,
    }


def txn_commit(
    transactional_id: str,
    group: str,
    producer_id: int,
    producer_epoch: int,
    *parts: tuple[Topic | str, int, int] | tuple[Topic | str, int, int, str | None],
    member_id: str = "",
    generation: int = -1,
    **more: Any,
) -> Fields:
    """(topic, partition, offset[, metadata]), each with an entry of its own."""
    return {
        "transactional_id": transactional_id,
        "group_id": group,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "topics": [
            {
                "name": topic if isinstance(topic, str) else topic.name,
                "partitions": [
                    {
                        "partition_index": partition,
                        "committed_offset": offset,
                        "committed_metadata": metadata[0] if metadata else "",
                    }
                ],
            }
            for topic, partition, offset, *metadata in parts
        ],
    } | more


def marker(
    producer_id: int,
    producer_epoch: int,
    *parts: Part,
    commit: bool = False,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> Fields:
    """One of the markers of a WriteTxnMarkers."""
    return {
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "transaction_result": commit,
        "topics": topics_of(parts, indexes="partition_indexes"),
        "coordinator_epoch": coordinator_epoch,
        "transaction_version": transaction_version,
    }


def markers(*each: Fields) -> Fields:
    return {"markers": list(each)}


def describe(*transactional_ids: str) -> Fields:
    return {"transactional_ids": list(transactional_ids)}


def producers(*parts: Part) -> Fields:
    """DescribeProducers."""
    return {"topics": topics_of(parts, indexes="partition_indexes")}


def transactional(
    play: Play,
    sequence: int,
    count: int = 1,
    *,
    producer_id: int,
    producer_epoch: int,
    value: bytes = b"x",
    **lies: Any,
) -> bytes:
    """Return a transactional batch of this minute: producers that were silent for a day are forgotten."""
    return batch(
        [record(value, offset_delta=i) for i in range(count)],
        **{
            "attributes": TRANSACTIONAL,
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "base_sequence": sequence,
            "base_timestamp": play.now_ms,
        }
        | lies,
    )


def coordinator_is_there(play: Play) -> None:
    """Wait until every partition of `__transaction_state` is served, and producer ids are available."""
    ids = [f"{play.prefix}any{i}" for i in range(12)]
    play.until(
        "the transaction topic is there",
        lambda: (
            play.quietly("FindCoordinator", 4, {"key_type": 1, "coordinator_keys": ids[:1]})
            .coordinators[0]
            .error_code
            == 0
        ),
    )

    def served() -> bool:
        answer = play.quietly("DescribeTransactions", 0, describe(*ids))
        return all(each.error_code not in NO_COORDINATOR_YET for each in answer.transaction_states)

    play.until("the transaction coordinator is there", served)
    play.until(
        "producer ids are there", lambda: play.quietly("InitProducerId", 4, init(None)).error_code == 0
    )


def state_of(play: Play, transactional_id: str) -> str:
    """Return the transaction's state, or "" if there is none."""
    answer = play.quietly("DescribeTransactions", 0, describe(transactional_id))
    return str(answer.transaction_states[0].transaction_state)


def rest(play: Play, *transactional_ids: str) -> None:
    """Wait until the ends of these transactions are complete: in Kafka a moment after their answers."""

    def complete() -> bool:
        answer = play.quietly("DescribeTransactions", 0, describe(*transactional_ids))
        return all(each.transaction_state not in UNDER_WAY for each in answer.transaction_states)

    play.until("the ends of transactions are complete", complete)


def log_in_any_order(play: Play, topic: Topic, partition: int = 0) -> list[str]:
    """Return the batches of a partition with unknown order, each without its offset, sorted."""
    answer = play.quietly("Fetch", 12, fetch((topic, partition, 0)))
    shown = masked("Fetch", plain(answer, 12), play.names, play.script.name)
    (found,) = shown["responses"][0]["partitions"]
    return sorted(json.dumps(each | {"base_offset": None}) for each in found["records"])


class Producer:
    """A transactional producer of transaction version 1 or 2. Nothing that it does is in the transcript."""

    def __init__(self, play: Play, suffix: str, *, tv: int = 2, timeout_ms: int = 60_000) -> None:
        self.play = play
        self.suffix = suffix
        self.transactional_id = play.name(suffix)
        self.tv = tv
        self.timeout_ms = timeout_ms
        self.producer_id = -1
        self.producer_epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    @property
    def who(self) -> tuple[str, int, int]:
        return self.transactional_id, self.producer_id, self.producer_epoch

    def init(self, **fields: Any) -> Producer:
        asked = init(self.transactional_id, self.timeout_ms) | fields
        self._take(self._until_not_concurrent("InitProducerId", 5, asked))
        return self

    def add(self, *parts: Part) -> Producer:
        answer = self._until_not_concurrent("AddPartitionsToTxn", 3, add_partitions(*self.who, *parts))
        for topic in answer.results_by_topic_v3_and_below:
            for partition in topic.results_by_partition:
                self._expect(partition.partition_error_code, "AddPartitionsToTxn")
        return self

    def add_offsets(self, group: str) -> Producer:
        answer = self._until_not_concurrent("AddOffsetsToTxn", 3, add_offsets(*self.who, group))
        self._expect(answer.error_code, "AddOffsetsToTxn")
        return self

    def batch(self, topic: Topic, partition: int, count: int = 1, **lies: Any) -> bytes:
        """Return the next batch for a partition, counted as sent."""
        sequence = self.sequences.get((topic.name, partition), 0)
        self.sequences[topic.name, partition] = sequence + count
        mine: Mapping[str, Any] = {"producer_id": self.producer_id, "producer_epoch": self.producer_epoch}
        return transactional(self.play, sequence, count, **mine | lies)

    def send(self, topic: Topic, partition: int = 0, count: int = 1, **lies: Any) -> int:
        """Send a batch, added to the transaction as clients of this version do. Return its offset."""
        if self.tv == 1:
            self.add((topic, partition))
        asked = produce(
            (topic, partition, self.batch(topic, partition, count, **lies)),
            transactional_id=self.transactional_id,
        )
        answer = self.play.quietly("Produce", PRODUCE_VERSION[self.tv], asked)
        (topic_answer,) = answer.responses
        (partition_answer,) = topic_answer.partition_responses
        self._expect(partition_answer.error_code, "Produce")
        return int(partition_answer.base_offset)

    def commit_offsets(self, group: str, *parts: tuple[Topic, int, int]) -> Producer:
        if self.tv == 1:
            self.add_offsets(group)
        asked = txn_commit(self.transactional_id, group, self.producer_id, self.producer_epoch, *parts)
        answer = self.play.quietly("TxnOffsetCommit", OFFSETS_VERSION[self.tv], asked)
        for topic in answer.topics:
            for partition in topic.partitions:
                self._expect(partition.error_code, "TxnOffsetCommit")
        return self

    def end(self, *, commit: bool = True) -> Producer:
        asked = end_txn(*self.who, commit=commit)
        self._take(self._until_not_concurrent("EndTxn", END_VERSION[self.tv], asked))
        rest(self.play, self.transactional_id)
        return self

    def crash(self) -> Producer:
        """Forget everything: what comes next is a new instance's."""
        self.producer_id = self.producer_epoch = -1
        self.sequences.clear()
        return self

    def _until_not_concurrent(self, api: str, version: int, asked: Fields) -> Any:
        answers: list[Any] = []

        def settled() -> bool:
            answers.append(self.play.quietly(api, version, asked))
            return CONCURRENT_TRANSACTIONS not in error_codes(answers[-1])

        self.play.until(f"{api} of {self.suffix} isn't concurrent", settled)
        return answers[-1]

    def _take(self, answer: Any) -> None:
        """Take id and epoch from an answer, if it has any. A new id is named after this producer."""
        self._expect(answer.error_code, type(answer).__name__)
        producer_id = getattr(answer, "producer_id", -1)
        if producer_id == -1:
            return
        if (producer_id, answer.producer_epoch) != (self.producer_id, self.producer_epoch):
            self.sequences.clear()
        self.producer_id, self.producer_epoch = producer_id, answer.producer_epoch
        given = self.play.names.given.setdefault("producer id", {})
        given.setdefault(producer_id, self._name(given))

    def _name(self, given: Mapping[Any, str]) -> str:
        names = set(given.values())
        name = f"<producer id of {self.suffix}>"
        while name in names:
            name = f"{name[:-1]}, the next>"
        return name

    def _expect(self, error_code: int, what: str) -> None:
        if error_code != 0:
            raise ScriptStuck(f"{what} of {self.suffix}: {error_code}")


def error_codes(answer: Any) -> set[int]:
    """Return all error codes in an answer, however deep."""
    found: set[int] = set()
    stack = [answer]
    while stack:
        each = stack.pop()
        for field in type(each).FIELDS:
            value = getattr(each, field.name)
            if field.name.endswith("error_code"):
                found.add(value)
            elif isinstance(value, list):
                stack += [element for element in value if hasattr(element, "FIELDS")]
    return found
