"""Watches a Kafka while pages show it: threads ask as often as pages show what they ask for.

Each round costs the brokers its requests. The longer a round took, the longer the pause after it, so a busy broker is
asked less. While no page is open, nothing is asked.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final

from cli.client.cluster import KafkaCluster
from cli.client.fetching import fetch_from_leader
from cli.client.groups import list_groups
from cli.client.offsets import (
    EARLIEST,
    LATEST_OFFSET,
    NO_LEADER,
    Partition,
    leaders_of,
    list_offsets,
    stable_and_ends,
)
from cli.client.sizes import sizes_of_leaders
from cli.client.transactions import TRANSACTION_TOPIC, list_transactions
from cli.console.lanes import MOST, Lanes
from cli.console.sections import LOG, Sections
from cli.errors import CommandError
from cli.topics import of_each_topic, summed
from protocol.errors import Error
from protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from protocol.records.batch import UNREADABLE, read_records, walk_batches

log = logging.getLogger("barnabas.console")

PAUSE_PER_ROUND: Final = 50
"""A pause is this many times as long as the round before it, so rounds take 2 % of the time."""
FAST_S: Final = 0.1
METADATA_S: Final = 1.0
OFFSETS_S: Final = 1.0
SIZES_S: Final = 5.0
GROUPS_S: Final = 1.0
RUNNING_S: Final = 5.0
"""For so long a transaction has had no step when its coordinator is asked about it."""
LONGEST_PAUSE_S: Final = 20.0
LOST_S: Final = 1.0
"""The pause after an error."""
PATIENCE_S: Final = 1.0
TAIL_WAIT_MS: Final = 250
"""How long a fetch waits at most. It returns as soon as there is something."""
ROUND_WAIT_MS: Final = 100
"""How long the fetches from several leaders, one after the other, wait in all. The others aren't heard meanwhile."""
TAIL_BYTES: Final = 128 * 1024
TAIL_OFFSETS: Final = 300
"""How far before its end each partition of the transactions' topic is read at the start."""
DECODED_AT_ONCE_S: Final = 0.5
"""So much decoding of transactions' records goes on without a pause. More than that takes 2 % of the time, as rounds
do. If there are very many transactions, some are skipped."""
BUSY_BYTES: Final = 64 * 1024
"""If a waiting fetch has returned more than this, the log is busy."""
FIRST_READ: Final = 5_000
"""Offsets to read at the start, over all partitions."""
EVENTS: Final = 2_000
MOST_HELD: Final = 50


def partition_of_section(name: str) -> Partition | None:
    """Return the section's partition, or None if it is another section."""
    if not name.startswith(LOG):
        return None
    topic, colon, index = name.removeprefix(LOG).rpartition(":")
    return (topic, int(index)) if colon and index.isascii() and index.isdigit() else None


class Round:
    """A question that is repeated while one of these sections is shown."""

    def __init__(
        self,
        every_s: float,
        ask: Callable[[KafkaCluster], None],
        is_wanted: Callable[[frozenset[str]], bool],
        *,
        pauses: bool = True,
    ) -> None:
        self.every_s = every_s
        self.pauses = pauses
        """True if a long round is followed by a long pause."""
        self.ask = ask
        self.is_wanted = is_wanted
        self.due_s = 0.0


class Asker(threading.Thread):
    """A thread with its own connections that runs its rounds."""

    def __init__(
        self, name: str, settings: Mapping[str, str], sections: Sections, rounds: list[Round]
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._settings = settings
        self._sections = sections
        self._rounds = rounds
        self._woken = threading.Event()
        self._is_ended = False
        self._problems: dict[Round, str] = {}
        sections.tell_of_pages(self._woken.set)

    def end(self) -> None:
        """End after the present round."""
        self._is_ended = True
        self._woken.set()

    def run(self) -> None:
        """Run until `end`."""
        with KafkaCluster(self._settings, patience_s=PATIENCE_S) as cluster:
            while not self._is_ended:
                self._woken.clear()
                wanted = self._sections.wanted
                now_s = time.monotonic()
                self._forget_unwanted(wanted)
                for each in self._rounds:
                    if not self._is_ended and each.due_s <= now_s and each.is_wanted(wanted):
                        self._go(cluster, each)
                now_s = time.monotonic()
                due = [each.due_s for each in self._rounds if each.is_wanted(wanted)]
                if not self._is_ended:
                    self._woken.wait(max(min(due) - now_s, 0.0) if due else None)

    def _go(self, cluster: KafkaCluster, each: Round) -> None:
        began_s = time.monotonic()
        pause_s = 0.0
        problem = ""
        try:
            each.ask(cluster)
        except CommandError as error:
            problem = str(error)
        except Exception as error:  # a bug of ours: show it, and go on with everything else
            problem = f"the console failed: {error!r}"
            if problem != self._problems.get(each):
                log.exception("the console failed")
        if problem:
            pause_s = LOST_S
        self._problems[each] = problem  # another round may go well meanwhile
        self._tell_problems()
        now_s = time.monotonic()
        if each.pauses:
            pause_s = max(pause_s, min(PAUSE_PER_ROUND * (now_s - began_s), LONGEST_PAUSE_S))
        each.due_s = max(began_s + each.every_s, now_s + pause_s)

    def _forget_unwanted(self, wanted: frozenset[str]) -> None:
        """The problems of rounds that nobody wants any more: no round would say that they have passed."""
        unwanted = [each for each in self._problems if not each.is_wanted(wanted)]
        for each in unwanted:
            del self._problems[each]
        if unwanted:
            self._tell_problems()

    def _tell_problems(self) -> None:
        said = dict.fromkeys(filter(None, self._problems.values()))
        self._sections.publish(f"problem:{self.name}", "; ".join(said))


class Watch:
    """All questions to a running Kafka, and the sections that result."""

    def __init__(
        self,
        settings: Mapping[str, str],
        sections: Sections,
        explain: Callable[[list[str]], dict[str, Any]],
        learned: Callable[[dict[int, MetadataResponseBroker]], None],
    ) -> None:
        self._sections = sections
        self._explain = explain
        self._learned = learned
        self._events = sections.list_of("events", EVENTS)
        self._lanes = Lanes(sections.list_of("lanes", MOST))
        self._transaction_log = TransactionLog(self._lanes)
        self._leaders: dict[Partition, int] = {}
        self._metadata: MetadataResponse | None = None
        self._sizes: dict[Partition, int] = {}
        self._ends: dict[Partition, int] = {}
        self._busy: set[Partition] = set()
        """Shown logs that grow quickly."""
        self._sizes_due_s = 0.0
        self._groups: dict[str, str] = {}
        self._is_first = True
        self._event_number = 0

        def shows(*names: str) -> Callable[[frozenset[str]], bool]:
            return lambda wanted: not wanted.isdisjoint(names)

        anything = bool
        tables = [
            Round(METADATA_S, self._ask_metadata, anything),
            Round(OFFSETS_S, self._ask_offsets, anything),
            Round(GROUPS_S, self._ask_groups, anything),
        ]
        tail = [
            Round(FAST_S, self._transaction_log.read_on, anything, pauses=False),
            Round(RUNNING_S, self._ask_running, anything),
        ]
        fast = [
            Round(
                FAST_S,
                self._ask_logs,
                lambda wanted: any(name.startswith(LOG) for name in wanted),
                pauses=False,
            )
        ]
        self._askers = [
            Asker("cluster", settings, sections, tables),
            Asker("transactions", settings, sections, tail),
            Asker("log", settings, sections, fast),
        ]

    def start(self) -> None:
        """Start the threads. They ask nothing while no page is open."""
        for each in self._askers:
            each.start()

    def end(self) -> None:
        """End the threads after their present rounds."""
        for each in self._askers:
            each.end()
        for each in self._askers:
            each.join(2 * PATIENCE_S)

    # --- Rounds

    def _ask_metadata(self, cluster: KafkaCluster) -> None:
        answer = cluster.metadata()
        self._learned(cluster.brokers)
        now_ms = round(time.time() * 1000)
        brokers = {each.node_id: f"{each.host}:{each.port}" for each in answer.brokers}
        leaders = leaders_of(answer.topics)
        if self._metadata is not None:
            self._tell_changes(answer, leaders, now_ms)
        self._metadata, self._leaders = answer, leaders
        if "topics" in self._sections.wanted and not self._sections.value("topics")[0]:
            self._sections.publish("topics", self._lines(answer, {}))  # the numbers follow
        self._sections.publish(
            "brokers",
            {
                "cluster_id": answer.cluster_id,
                "controller": answer.controller_id,
                "brokers": [
                    {
                        "node": each.node_id,
                        "address": brokers[each.node_id],
                        "rack": each.rack,
                        "leads": sum(1 for leader in leaders.values() if leader == each.node_id),
                    }
                    for each in sorted(answer.brokers, key=lambda broker: broker.node_id)
                ],
                "topics": len(answer.topics),
                "partitions": len(leaders),
                "without_leader": sum(1 for leader in leaders.values() if leader == NO_LEADER),
                "under_replicated": sum(
                    1
                    for topic in answer.topics
                    for each in topic.partitions
                    if len(each.isr_nodes) < len(each.replica_nodes)
                ),
            },
        )

    def _tell_changes(self, answer: MetadataResponse, leaders: dict[Partition, int], now_ms: int) -> None:
        assert self._metadata is not None
        before = {each.node_id for each in self._metadata.brokers}
        now = {each.node_id for each in answer.brokers}
        told: list[tuple[str, str, list[str]]] = []
        told += [("broker", f"broker {node} is gone", []) for node in sorted(before - now)]
        told += [("broker", f"broker {node} is there", []) for node in sorted(now - before)]
        moved: dict[tuple[int, int], list[str]] = {}
        for partition, leader in leaders.items():
            was = self._leaders.get(partition)
            if was is not None and was != leader:
                moved.setdefault((was, leader), []).append(f"{partition[0]}-{partition[1]}")
        for (was, leader), names in sorted(moved.items()):
            to = f"broker {leader} leads" if leader != NO_LEADER else "nobody leads"
            of = f", which {was} led" if was != NO_LEADER else ", which nobody led"
            what = names[0] if len(names) == 1 else f"{len(names)} partitions"
            told.append(("election", f"{to} {what}{of}", names[:MOST_HELD]))
        topics = {each.name for each in answer.topics}
        topics_before = {each.name for each in self._metadata.topics}
        told += [
            ("topic", f"topic {name} was created", []) for name in sorted(map(str, topics - topics_before))
        ]
        told += [
            ("topic", f"topic {name} was deleted", []) for name in sorted(map(str, topics_before - topics))
        ]
        for kind, text, names in told:
            self._tell(kind, text, now_ms, names)

    def _tell(self, kind: str, text: str, now_ms: int, names: list[str]) -> None:
        self._event_number += 1
        document = {"key": self._event_number, "kind": kind, "text": text, "at": now_ms, "names": names}
        self._events.put([(self._event_number, document)])

    def _ask_offsets(self, cluster: KafkaCluster) -> None:
        """Ask which partitions' readers wait, and for whom; and the topics' sizes, if they are shown."""
        if self._metadata is None:
            return
        leaders = self._leaders
        stable, ends = stable_and_ends(cluster, leaders, leaders)
        behind = sorted({key[0] for key, end in ends.items() if stable.get(key, end) < end})[:MOST_HELD]
        found = self._explain(behind) if behind else {"waiting": [], "words": "", "at_ms": 0}
        self._sections.publish("held", {key: found[key] for key in ("at_ms", "waiting", "words")})
        if "topics" in self._sections.wanted:
            self._sections.publish("topics", self._topics(cluster, self._metadata, leaders, stable, ends))

    def _topics(
        self,
        cluster: KafkaCluster,
        answer: MetadataResponse,
        leaders: dict[Partition, int],
        stable: dict[Partition, int],
        ends: dict[Partition, int],
    ) -> list[list[Any]]:
        """Return a line for each topic: the columns of `barnabas topics`, then the number of partitions that lack an
        in-sync replica, and whether it is internal."""
        starts = list_offsets(cluster, dict.fromkeys(leaders, EARLIEST), known_leaders=leaders)
        if time.monotonic() >= self._sizes_due_s:
            began_s = time.monotonic()
            self._sizes = sizes_of_leaders(cluster, leaders)
            took_s = time.monotonic() - began_s
            self._sizes_due_s = time.monotonic() + max(SIZES_S, PAUSE_PER_ROUND * took_s)
        rows: list[list[Any]] = [
            [*key, leader, [], [], starts.get(key), ends.get(key), stable.get(key), self._sizes.get(key)]
            for key, leader in leaders.items()
        ]
        return self._lines(answer, of_each_topic(rows))

    def _lines(self, answer: MetadataResponse, by_topic: Mapping[str, list[list[Any]]]) -> list[list[Any]]:
        topics = []
        for topic in sorted(answer.topics, key=lambda each: each.name or ""):
            of_it = by_topic.get(topic.name or "", [[topic.name, *[None] * 8]])
            name, _, _, records, not_stable, size = summed(topic, of_it)
            replicas = max((len(each.replica_nodes) for each in topic.partitions), default=0)
            lacking = sum(1 for each in topic.partitions if len(each.isr_nodes) < len(each.replica_nodes))
            topics.append(
                [name, len(topic.partitions), replicas, records, not_stable, size, lacking, topic.is_internal]
            )
        return topics

    def _ask_groups(self, cluster: KafkaCluster) -> None:
        found = list_groups(cluster)
        now_ms = round(time.time() * 1000)
        states = {each.name: each.state for each in found}
        if not self._is_first:
            for name, state in states.items():
                if self._groups.get(name) != state:
                    self._tell("group", f"group {name} is {state}", now_ms, [])
            for name in self._groups.keys() - states.keys():
                self._tell("group", f"group {name} is gone", now_ms, [])
        self._is_first = False
        self._groups = states
        rows = [[each.name, each.kind, each.protocol, each.state, each.coordinator] for each in found]
        self._sections.publish("groups", rows)

    def _ask_running(self, cluster: KafkaCluster) -> None:
        """What became of transactions of which no record says anything any more: records may have been passed over, and
        a broker may have been set back."""
        still = self._lanes.still_running()
        if not still:
            return
        before = _coordinators(cluster)
        found = list_transactions(cluster, still.values())
        # One that nobody tells of is over only if all coordinators were asked: none lacked a leader, or moved.
        were_all_asked = NO_LEADER not in before.values() and _coordinators(cluster) == before
        told = {each.transactional_id for each in found}
        settled = [name for name in still if were_all_asked or name in told]
        self._lanes.settle(settled, found, round(time.time() * 1000))

    def _ask_logs(self, cluster: KafkaCluster) -> None:
        """Ask for start, end and last stable offset of each log that is shown, as soon as something is appended,
        including markers."""
        leaders = self._leaders  # a snapshot: another thread finds out who leads
        shown = {name: partition_of_section(name) for name in self._sections.wanted}
        wanted = {partition: name for name, partition in shown.items() if partition is not None}
        by_leader: dict[int, list[Partition]] = defaultdict(list)
        for partition, name in wanted.items():
            leader = leaders.get(partition, NO_LEADER)
            if leader == NO_LEADER:
                self._sections.publish(name, None)
            else:
                by_leader[leader].append(partition)
        for leader, partitions in by_leader.items():
            partitions = self._ask_busy(cluster, leader, partitions, wanted)
            if not partitions:
                continue
            unknown = [each for each in partitions if each not in self._ends]
            if unknown:
                self._ends |= list_offsets(cluster, dict.fromkeys(unknown, LATEST_OFFSET))
            asked = {each: self._ends[each] for each in partitions if each in self._ends}
            wait_ms = 0 if unknown else wait_of(len(by_leader))
            for partition, data in fetch_from_leader(cluster, leader, asked, 1, wait_ms).items():
                if data.error_code:
                    del self._ends[partition]  # the leader has moved, or its log was truncated
                    continue
                self._ends[partition] = data.high_watermark
                if len(data.records or b"") > BUSY_BYTES:
                    self._busy.add(partition)
                offsets = [data.log_start_offset, data.last_stable_offset, data.high_watermark]
                self._sections.publish(wanted[partition], offsets)
        for partition in self._ends.keys() - wanted.keys():
            del self._ends[partition]
            self._busy.discard(partition)

    def _ask_busy(
        self, cluster: KafkaCluster, leader: int, partitions: list[Partition], names: Mapping[Partition, str]
    ) -> list[Partition]:
        """Ask busy logs only for their offsets until they rest: a fetch would return a batch each time, perhaps a
        megabyte. Return the partitions to fetch from."""
        busy = {each: leader for each in partitions if each in self._busy and each in self._ends}
        if not busy:
            return partitions
        starts = list_offsets(cluster, dict.fromkeys(busy, EARLIEST), known_leaders=busy)
        stable, ends = stable_and_ends(cluster, busy, busy)
        for partition in busy:
            end = ends.get(partition)
            if end is None or end == self._ends[partition]:
                self._busy.discard(partition)
                continue
            self._ends[partition] = end
            offsets = [starts.get(partition, 0), stable.get(partition, end), end]
            self._sections.publish(names[partition], offsets)
        return [each for each in partitions if each not in self._busy]


def _coordinators(cluster: KafkaCluster) -> dict[Partition, int]:
    """Return the leaders of the partitions of `__transaction_state`. There are none before the first transaction."""
    return leaders_of(cluster.metadata([TRANSACTION_TOPIC]).topics)


def wait_of(leaders: int) -> int:
    """Return how many ms the fetch from one of so many leaders waits."""
    return TAIL_WAIT_MS if leaders == 1 else ROUND_WAIT_MS // leaders


class TransactionLog:
    """Reads `__transaction_state` on from where it stopped. If it may not be read, it asks the coordinators."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._next: dict[Partition, int] = {}
        self._by_leader: dict[int, list[Partition]] = defaultdict(list)
        self._leaders_due_s = 0.0
        self._is_forbidden = False
        self._topic_id = b""
        self._last_read: dict[Partition, int] = {}
        """The number of the read in which a partition last had something. A small fetch begins with the others."""
        self._reads = 0
        self._decoded_s = 0.0
        """Time of decoding for which no pause has been made yet, and when that was."""
        self._decoded_at_s = time.monotonic()

    def read_on(self, cluster: KafkaCluster) -> None:
        """Read what has come since, or comes soon. Raises CommandError."""
        if time.monotonic() >= self._leaders_due_s:
            self._find_leaders(cluster)
        if self._is_forbidden:
            began_s = time.monotonic()
            self._lanes.told(list_transactions(cluster), round(time.time() * 1000))
            time.sleep(min(PAUSE_PER_ROUND * (time.monotonic() - began_s), LONGEST_PAUSE_S))
            return
        for leader, partitions in self._by_leader.items():
            partitions.sort(key=lambda each: self._last_read.get(each, 0))
            asked = {each: self._next[each] for each in partitions if each in self._next}
            if asked:
                self._read(cluster, leader, asked, wait_of(len(self._by_leader)))

    def _find_leaders(self, cluster: KafkaCluster) -> None:
        topic = next(iter(cluster.metadata([TRANSACTION_TOPIC]).topics), None)
        self._leaders_due_s = time.monotonic() + METADATA_S
        self._by_leader = defaultdict(list)
        self._is_forbidden = topic is not None and topic.error_code == Error.TOPIC_AUTHORIZATION_FAILED
        if topic is None or topic.error_code:
            self._next.clear()  # the first transaction creates it
            return
        # It may be another topic of this name, as after a reset: its offsets begin anew.
        if topic.topic_id != self._topic_id:
            self._topic_id = bytes(topic.topic_id)
            self._next.clear()
        for partition, leader in leaders_of([topic]).items():
            if leader != NO_LEADER:
                self._by_leader[leader].append(partition)
        self._begin(
            cluster, [each for of in self._by_leader.values() for each in of if each not in self._next]
        )

    def _begin(self, cluster: KafkaCluster, new: list[Partition]) -> None:
        """Begin near the end, and leave out what is older."""
        if not new:
            return
        starts = list_offsets(cluster, dict.fromkeys(new, EARLIEST))
        ends = list_offsets(cluster, dict.fromkeys(new, LATEST_OFFSET))
        held = sum(1 for each in new if ends.get(each, 0) > starts.get(each, 0))
        back = max(FIRST_READ // held if held else 0, TAIL_OFFSETS)
        for each in new:
            if each in starts and each in ends:
                self._next[each] = max(starts[each], ends[each] - back)

    def _read(self, cluster: KafkaCluster, leader: int, asked: dict[Partition, int], wait_ms: int) -> None:
        self._reads += 1
        answer = fetch_from_leader(cluster, leader, asked, TAIL_BYTES, wait_ms)
        began_s = time.monotonic()
        for partition, data in answer.items():
            if data.error_code:
                self._leaders_due_s = 0.0
            if data.error_code == Error.OFFSET_OUT_OF_RANGE:
                del self._next[partition]
            if data.error_code or not isinstance(data.records, bytes | memoryview):
                continue
            batches = []
            try:
                for at, header in walk_batches(data.records):
                    self._next[partition] = max(self._next[partition], header.last_offset + 1)
                    batches.append((header, read_records(data.records[at : at + header.size_bytes])))
            except UNREADABLE:
                pass
            if batches:
                self._last_read[partition] = self._reads
            self._lanes.read(partition[1], batches)
            if data.high_watermark - self._next[partition] > FIRST_READ:
                self._next[partition] = data.high_watermark - TAIL_OFFSETS
        self._pause(began_s)

    def _pause(self, began_s: float) -> None:
        """Pause for the decoding that began then, if there was much of it lately."""
        now_s = time.monotonic()
        passed_s = now_s - self._decoded_at_s
        self._decoded_s = max(self._decoded_s - passed_s / PAUSE_PER_ROUND, 0.0) + now_s - began_s
        self._decoded_at_s = now_s
        if (excess_s := self._decoded_s - DECODED_AT_ONCE_S) > 0:
            time.sleep(min(excess_s * PAUSE_PER_ROUND, LOST_S))
