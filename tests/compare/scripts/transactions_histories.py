"""Random histories of transactional producers, from seeds: they begin, send, add, end, crash, are fenced, and time out.

An end is answered before it is complete, and Kafka completes it later. So each step begins at rest, and
CONCURRENT_TRANSACTIONS is retried and not compared. Everything else has to be equal: errors, offsets of records and
markers, last stable offsets, aborted transactions. A few histories are recorded. More are played live to both brokers
with

    COMPARE_MORE_HISTORIES=6-105 python -m tests.compare both 'transactions_histories/more*'
"""

from __future__ import annotations

import os
import random
from typing import Any

from ..group_requests import coordinator_is_there as group_coordinator_is_there
from ..group_requests import fetch_offsets
from ..play import Play, script
from ..requests import fetch, list_offsets, produce
from ..transaction_requests import (
    CONCURRENT_TRANSACTIONS,
    END_VERSION,
    OFFSETS_VERSION,
    PRODUCE_VERSION,
    STRANGER,
    Producer,
    add_offsets,
    add_partitions,
    coordinator_is_there,
    describe,
    end_txn,
    error_codes,
    init,
    producers,
    rest,
    state_of,
    transactional,
    txn_commit,
)

SEEDS = 6
MORE = os.environ.get("COMPARE_MORE_HISTORIES", "")
STEPS = 45
PARTITIONS = 3
LATE_TIMEOUT_MS = 5_000
"""It holds for what that client begins when it is back, too, which then has to be done in time."""
PATIENT_MS = 900_000

Who = tuple[str, int, int]


class Instance:
    """A client with a transactional id: the live instance, or a zombie with old knowledge."""

    def __init__(self, name: str, tv: int) -> None:
        self.name = name
        self.tv = tv
        self.producer_id = -1
        self.producer_epoch = -1
        self.sequences: dict[int, int] = {}
        self.added: set[int] = set()
        self.last_end: tuple[Who, bool] | None = None

    @property
    def who(self) -> Who:
        return self.name, self.producer_id, self.producer_epoch


class History:
    """Three transactional ids, their clients, and one topic."""

    def __init__(self, play: Play, seed: int) -> None:
        self.play = play
        self.seed = seed
        self.chance = random.Random(seed)
        self.topic = play.topic(f"t{seed}", PARTITIONS)
        self.group = play.name(f"g{seed}")
        self.names = [play.name(f"p{seed}{letter}") for letter in "abc"]
        self.live = [Instance(name, self.chance.choice((1, 2))) for name in self.names]
        self.zombies: list[Instance] = []
        self.late = Producer(play, f"late{seed}", tv=self.chance.choice((1, 2)), timeout_ms=LATE_TIMEOUT_MS)
        self.step = 0
        self.count = 0
        for instance in self.live:
            self.begin_anew(instance)

    # --- asking ---------------------------------------------------------------------------------------------

    def ask(self, instance: Instance, what: str, api: str, version: int, fields: Any) -> Any:
        """Ask one case, beginning at rest. Ask again while the answer says that the request came too early."""
        self.count += 1
        case = f"{self.seed}.{self.step}.{self.count} {what} of {instance.name[-1]}"
        name = instance.name

        def settled(answer: Any) -> bool:
            early = CONCURRENT_TRANSACTIONS in error_codes(answer)
            if early:
                rest(self.play, *self.names)
            return not early

        # Wait for all: the marker of another transaction's end could land before or after this request.
        rest(self.play, *self.names)
        return self.play.ask_until(case, settled, api, version, fields, on=f"{name} {id(instance)}")

    def send(
        self,
        instance: Instance,
        partition: int,
        *,
        count: int = 1,
        skipped: int = 0,
        what: str = "a batch",
        version: int | None = None,
    ) -> None:
        if version is None:
            version = PRODUCE_VERSION[instance.tv]
        sequence = instance.sequences.get(partition, 0) + skipped
        data = transactional(
            self.play,
            max(sequence, 0),
            count,
            producer_id=instance.producer_id,
            producer_epoch=instance.producer_epoch,
        )
        asked = produce((self.topic, partition, data), transactional_id=instance.name)
        answer = self.ask(instance, f"{what} to {partition}", "Produce", version, asked)
        produced = answer.responses[0].partition_responses[0]
        if produced.error_code == 0 and skipped >= 0:
            instance.sequences[partition] = sequence + count

    # --- what clients do ------------------------------------------------------------------------------------

    def begin_anew(self, instance: Instance) -> None:
        self.took(
            instance,
            self.ask(instance, "a new instance", "InitProducerId", 5, init(instance.name, PATIENT_MS)),
        )

    def go_on(self, instance: Instance) -> None:
        """The client sends the id and epoch that it has (KIP-360)."""
        _, producer_id, epoch = instance.who
        epoch -= self.chance.choice((0, 0, 0, 1))
        asked = init(instance.name, PATIENT_MS, producer_id, max(epoch, 0))
        self.took(instance, self.ask(instance, "a bump", "InitProducerId", 5, asked))

    def took(self, instance: Instance, answer: Any) -> None:
        if answer.error_code != 0 or answer.producer_id == -1:
            return
        if (answer.producer_id, answer.producer_epoch) != (instance.producer_id, instance.producer_epoch):
            instance.sequences.clear()
        instance.producer_id, instance.producer_epoch = answer.producer_id, answer.producer_epoch
        instance.added.clear()

    def write(self, instance: Instance) -> None:
        """Write as a client should."""
        partition = self.chance.randrange(PARTITIONS)
        if instance.tv == 1 and partition not in instance.added:
            asked = add_partitions(*instance.who, (self.topic, partition))
            self.ask(instance, f"adding {partition}", "AddPartitionsToTxn", 3, asked)
            instance.added.add(partition)
        self.send(instance, partition, count=self.chance.randrange(1, 4))

    def write_wrongly(self, instance: Instance) -> None:
        """Write to a partition that wasn't added, with a wrong sequence, or by an older version of Produce."""
        partition = self.chance.randrange(PARTITIONS)
        skipped = self.chance.choice((0, -1, 1, 3))
        version = self.chance.choice((9, 11, 12, PRODUCE_VERSION[instance.tv]))
        self.send(instance, partition, skipped=skipped, what=f"a batch {skipped:+}", version=version)

    def commit_offset(self, instance: Instance) -> None:
        if instance.tv == 1:
            asked = add_offsets(*instance.who, self.group)
            self.ask(instance, "adding offsets", "AddOffsetsToTxn", 3, asked)
        part = (self.topic, self.chance.randrange(PARTITIONS), self.chance.randrange(100))
        asked = txn_commit(instance.name, self.group, instance.producer_id, instance.producer_epoch, part)
        self.ask(instance, "an offset", "TxnOffsetCommit", OFFSETS_VERSION[instance.tv], asked)

    def end(self, instance: Instance) -> None:
        commit = self.chance.random() < 0.6
        who = instance.who
        asked = end_txn(*who, commit=commit)
        verb = "a commit" if commit else "an abort"
        answer = self.ask(instance, verb, "EndTxn", END_VERSION[instance.tv], asked)
        if answer.error_code == 0:
            instance.last_end = (who, commit)
            instance.added.clear()
            if instance.tv == 2:
                self.took(instance, answer)

    def end_again(self, instance: Instance) -> None:
        """Retry the last end, or ask for the other one. If the answer has a new epoch, the client continues with it."""
        if instance.last_end is None:
            return
        who, commit = instance.last_end
        if self.chance.random() < 0.3:
            commit = not commit
        asked = end_txn(*who, commit=commit)
        verb = "a commit" if commit else "an abort"
        answer = self.ask(instance, f"{verb} again", "EndTxn", END_VERSION[instance.tv], asked)
        if answer.error_code == 0:
            instance.added.clear()
            if instance.tv == 2:
                self.took(instance, answer)

    def verify(self, instance: Instance) -> None:
        """Verify partitions, as a broker does."""
        parts = [(self.topic, index) for index in self.chance.sample(range(PARTITIONS), 2)]
        asked = add_partitions(*instance.who, *parts, verify_only=True)
        self.ask(instance, "verifying", "AddPartitionsToTxn", 5, asked)

    def lie(self, instance: Instance) -> None:
        """Use another epoch, or another client's producer id."""
        name, producer_id, epoch = instance.who
        epoch += self.chance.choice((-1, 1))
        if self.chance.random() < 0.3:
            producer_id = self.chance.choice((STRANGER, *(each.producer_id for each in self.live)))
        match self.chance.randrange(3):
            case 0:
                asked = add_partitions(name, producer_id, epoch, (self.topic, 0))
                self.ask(instance, "a lie: adding", "AddPartitionsToTxn", 3, asked)
            case 1:
                asked = end_txn(name, producer_id, epoch, commit=self.chance.random() < 0.5)
                version = self.chance.choice((4, 5))
                self.ask(instance, "a lie: an end", "EndTxn", version, asked)
            case 2:
                data = transactional(self.play, 0, producer_id=producer_id, producer_epoch=epoch)
                asked = produce((self.topic, 0, data), transactional_id=name)
                self.ask(instance, "a lie: a batch", "Produce", PRODUCE_VERSION[instance.tv], asked)

    def crash(self, instance: Instance) -> None:
        """The client loses its connection and all of its knowledge. Or it is only believed to be dead."""
        index = self.live.index(instance)
        fresh = Instance(instance.name, self.chance.choice((1, 2)))
        if self.chance.random() < 0.6:
            self.zombies.append(instance)
        else:
            self.play.drop(f"{instance.name} {id(instance)}")
        self.live[index] = fresh
        self.begin_anew(fresh)

    def plain(self, instance: Instance) -> None:
        data = transactional(self.play, 0, producer_id=-1, producer_epoch=-1, attributes=0, base_sequence=-1)
        partition = self.chance.randrange(PARTITIONS)
        asked = produce((self.topic, partition, data))
        self.ask(instance, "a plain batch beside those", "Produce", 9, asked)

    # --- steps ----------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        acts = {
            self.write: 30,
            self.write_wrongly: 8,
            self.commit_offset: 8,
            self.end: 22,
            self.end_again: 6,
            self.verify: 4,
            self.lie: 8,
            self.go_on: 4,
            self.crash: 6,
            self.plain: 4,
        }
        for _ in range(steps):
            self.step += 1
            if self.zombies and self.chance.random() < 0.12:
                instance = self.chance.choice(self.zombies)
                act = self.chance.choice(
                    (self.write, self.end, self.end_again, self.commit_offset, self.go_on)
                )
            else:
                instance = self.chance.choice(self.live)
                (act,) = self.chance.choices(list(acts), list(acts.values()))
            act(instance)
            if self.step % 5 == 0:
                self.look()

    def look(self) -> None:
        """Record everything that can be seen, at rest."""
        play, when = self.play, f"{self.seed}.{self.step}"
        rest(play, *self.names)
        play.ask(f"{when} the transactions", "DescribeTransactions", 0, describe(*self.names))
        for level in (0, 1):
            parts = [(self.topic, index, 0) for index in range(PARTITIONS)]
            asked = fetch(*parts, isolation_level=level)
            play.ask(f"{when} the logs at level {level}", "Fetch", 12, asked)
            ends = list_offsets(
                *((self.topic.name, index, -1) for index in range(PARTITIONS)), isolation_level=level
            )
            play.ask(f"{when} the ends at level {level}", "ListOffsets", 7, ends)
        asked = producers(*((self.topic, index) for index in range(PARTITIONS)))
        play.ask(f"{when} the producers", "DescribeProducers", 0, asked)
        offsets = fetch_offsets(8, self.group, [(self.topic, tuple(range(PARTITIONS)))])
        play.ask(f"{when} the offsets", "OffsetFetch", 8, offsets | {"require_stable": True})

    def begin_late(self) -> None:
        """Begin a transaction that nobody ends."""
        self.late.init()
        for partition in range(PARTITIONS):
            self.late.send(self.topic, partition)

    def time_out(self) -> None:
        """Let the transaction time out. Its client comes back without knowing that."""
        self.step += 1
        late = Instance(self.late.transactional_id, self.late.tv)
        self.names.append(late.name)
        late.producer_id, late.producer_epoch = self.late.producer_id, self.late.producer_epoch
        late.sequences = dict.fromkeys(range(PARTITIONS), 1)
        late.added = set(range(PARTITIONS))
        self.play.until("it has timed out", lambda: state_of(self.play, late.name) == "CompleteAbort")
        self.look()
        for act in self.chance.sample([self.write, self.end, self.commit_offset, self.write, self.end], 4):
            act(late)
        self.live.append(late)


def play_histories(play: Play, seeds: range) -> None:
    """The transactions that time out do so together."""
    coordinator_is_there(play)
    histories = [History(play, seed) for seed in seeds]
    group_coordinator_is_there(play, *(history.group for history in histories))
    for history in histories:
        history.run(STEPS)
    for history in histories:
        history.begin_late()
    for history in histories:
        history.time_out()
        history.run(STEPS // 3)


@script(properties="transactions")
def random_histories(play: Play) -> None:
    play_histories(play, range(SEEDS))


if MORE:

    @script(properties="transactions")
    def more_histories(play: Play) -> None:
        begin, end = (int(seed) for seed in MORE.split("-"))
        for seed in range(begin, end + 1, SEEDS):
            play_histories(play, range(seed, min(seed + SEEDS, end + 1)))
