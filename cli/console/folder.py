"""Shows a folder of Kafka or barnabas like a running Kafka, from what its files say."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from broker.disks.examination import look
from cli.client.counting import Counted, Effort, count_read_records
from cli.client.offsets import Partition
from cli.client.rights import MECHANISMS, acl_of
from cli.client.transactions import OpenTransaction
from cli.configs import OF_TOPIC, SETTINGS_COLUMNS, WHY
from cli.console.folder_groups import FolderGroups
from cli.console.folder_log import FolderLog
from cli.console.folder_transactions import FolderTransactions
from cli.console.lanes import MOST, Lanes
from cli.console.pieces import Piece, readable, walk
from cli.console.sections import LOG, Sections
from cli.errors import CommandError, CommandUsageError
from cli.explaining import Blocker, Explanation, WaitingPartition, verdict_of
from cli.explanation_words import as_document, told_in_words
from cli.group_lag import counted_lag, note_of_offset
from cli.groups import LIST_COLUMNS, document_of_group
from cli.inspecting.decoding import OFFSETS, TRANSACTIONS
from cli.inspecting.kinds import is_data_folder
from cli.inspecting.place import FILES
from cli.output import as_json
from cli.places import Place
from cli.topics import PARTITION_COLUMNS, of_each_topic, summed
from cli.transactions import document_of
from protocol.messages.metadata import MetadataResponseTopic
from protocol.messages.metadata_records import AccessControlEntryRecord, UserScramCredentialRecord
from protocol.records.fates import WalkedLog
from protocol.wire.primitives import uuid_to_text

MOST_BATCHES: Final = 1_000_000
READ_BYTES: Final = 256 * 1024 * 1024
READ_S: Final = 20.0
"""The time limit for reading all partitions of internal topics at the start; `READ_BYTES` is for all, too."""
EFFORT: Final = Effort(64 * 1024 * 1024, 5.0)
MOST_FINDINGS: Final = 3
TOPIC_RESOURCE: Final = 2
NOWHERE: Final = -1


class FolderKafka:
    """Shows the folder as it was when this object was made. Every method raises CommandError."""

    def __init__(self, path: str, sections: Sections) -> None:
        self.path = os.path.abspath(path)
        if not os.path.isdir(self.path) or not is_data_folder(self.path):
            raise CommandUsageError(f"{path} isn't a Kafka data folder, and the console shows those")
        found = look(FILES, [self.path], self.path)
        self._image = found.metadata
        seen = dict(found.partitions[self.path])
        if found.metadata_log is not None:
            seen["__cluster_metadata", 0] = found.metadata_log
        self._logs = {
            (topic, index): FolderLog(f"{self.path}/{topic}-{index}", log)
            for (topic, index), log in sorted(seen.items())
        }
        self._findings = [each for each in found.findings if each.severity.value != "note"]
        self._cut: dict[Partition, int] = {}
        """Logs of internal topics that were too long to read to their end, and where the reading stopped."""
        self._groups = FolderGroups()
        sections.list_of("events", 1)
        lanes, transactions = Lanes(sections.list_of("lanes", MOST)), FolderTransactions()
        internal = [*self._of_topic(TRANSACTIONS), *self._of_topic(OFFSETS)]
        self._left = _Left(sum(self._logs[each].seen.size_bytes for each in internal))
        for partition in self._of_topic(TRANSACTIONS):
            batches = [*readable(self._whole(partition).batches)]
            lanes.read(partition[1], batches)
            transactions.read(batches)
        self._transactions = transactions.coordinated()
        for partition in self._of_topic(OFFSETS):
            self._groups.read(self._whole(partition).batches)
        self._now_ms = self._newest_ms()
        self._publish(sections)

    # --- Logs

    def piece(self, partition: Partition, offset: int, max_bytes: int) -> Piece:
        """See `ReadPiece`."""
        return self._log(partition).piece(offset, max_bytes)

    def offset_at(self, partition: Partition, place: Place) -> int:
        """Return the place as an offset in the partition."""
        log = self._log(partition)
        start, end = log.seen.start_offset, log.seen.end_offset
        if place.time_ms is not None:
            return next(
                (
                    header.base_offset
                    for header, _ in log.batches(start)
                    if header.max_timestamp >= place.time_ms
                ),
                end,
            )
        if place.last is not None:
            return max(start, end - place.last)
        if place.offset is not None:
            return place.offset
        return start if place.word == "earliest" else end

    def partitions_of(self, topic: str) -> int:
        """Return the topic's number of partitions. Some may be here and others elsewhere."""
        if self._image is not None and topic in self._image.topics:
            return len(self._image.topics[topic].partitions)
        return max((index + 1 for _, index in self._of_topic(topic)), default=0)

    # --- What there is

    def topic(self, name: str) -> dict[str, Any]:
        """Return its partitions and its own settings."""
        rows = [self._row(partition) for partition in self._of_topic(name)]
        if not rows:
            raise CommandError(f"topic {name} has no folder here")
        configs = self._image.configs.get((TOPIC_RESOURCE, name), {}) if self._image else {}
        settings = [[setting, value, WHY[OF_TOPIC], ""] for setting, value in sorted(configs.items())]
        return {
            "partitions": as_json(PARTITION_COLUMNS, rows),
            "settings": as_json(SETTINGS_COLUMNS, settings),
        }

    def broker(self, node: int) -> dict[str, Any]:
        """Raises CommandError: a folder doesn't have a broker's settings."""
        _only_of_a_broker(f"the settings of broker {node}")

    def groups(self) -> list[dict[str, Any]]:
        """Return all groups."""
        return as_json(LIST_COLUMNS, self._group_rows())

    def group(self, name: str) -> dict[str, Any]:
        """Return what `barnabas groups NAME --json` prints."""
        group = self._groups.described(name, self._topic_names())
        if group is None:
            raise CommandError(f"there is no group {name}")
        members = {partition: each.member_id for each in group.members for partition in each.partitions}
        lags = []
        for partition, offset in sorted(self._groups.committed(name).items()):
            log = self._logs.get(partition)
            if log is None:
                continue
            start, end = log.seen.start_offset, log.seen.end_offset
            counted = self._counted(partition, max(offset, start))
            note = note_of_offset(offset, start, end)
            lags.append(
                counted_lag(partition, offset, log.stable, end, counted, members.get(partition), note=note)
            )
        return document_of_group(group, lags)

    def transactions(self) -> list[dict[str, Any]]:
        """Return what `barnabas transactions --json` prints."""
        return [document_of(each) for each in self._transactions]

    def explanation(self, topics: Sequence[str]) -> dict[str, Any]:
        """Return what `barnabas transactions explain --json` prints, and the same in words."""
        looked_at = [each for each in self._logs if not topics or each[0] in topics]
        waiting = [self._waiting(each) for each in looked_at if self._logs[each].seen.open_transactions]
        found = Explanation(waiting, [], [], len(looked_at))
        return {**as_document(found, "", self._now_ms), "words": told_in_words(found, "", self._now_ms)}

    def rights(self) -> dict[str, Any]:
        """Return users and ACLs from the metadata log."""
        if self._image is None:
            raise CommandError("the folder has no readable metadata log")
        acls = [
            vars(acl_of(each, each))
            for each in self._image.kept.of_type(AccessControlEntryRecord)
            if isinstance(each, AccessControlEntryRecord)
        ]
        users: dict[str, list[str]] = {}
        for each in self._image.kept.of_type(UserScramCredentialRecord):
            if isinstance(each, UserScramCredentialRecord):
                mechanism = MECHANISMS.get(each.mechanism, str(each.mechanism))
                users.setdefault(each.name, []).append(f"{mechanism}, {each.iterations} iterations")
        return {"acls": acls, "users": users}

    def clients(self) -> dict[str, Any]:
        """A folder doesn't tell."""
        _only_of_a_broker("what clients tell of themselves")

    def client(self, instance_id: str, listener: str) -> dict[str, Any]:
        """A folder doesn't tell."""
        _only_of_a_broker("what a client tells of itself")

    def abort(self, asked: Mapping[str, Any], *, execute: bool) -> dict[str, Any]:
        """Raises CommandError: this needs a broker."""
        _only_of_a_broker("an abort")

    def reset(self, asked: Mapping[str, Any], *, execute: bool) -> dict[str, Any]:
        """Raises CommandError: this needs a broker."""
        _only_of_a_broker("a reset")

    def delete_records(self, asked: Mapping[str, Any], *, execute: bool) -> dict[str, Any]:
        """Raises CommandError: this needs a broker."""
        _only_of_a_broker("a deletion")

    # --- What was found at the start

    def _log(self, partition: Partition) -> FolderLog:
        if partition not in self._logs:
            raise CommandError(f"{partition[0]}-{partition[1]} has no folder here")
        return self._logs[partition]

    def _of_topic(self, name: str) -> list[Partition]:
        return [each for each in self._logs if each[0] == name]

    def _whole(self, partition: Partition) -> WalkedLog:
        start = self._logs[partition].seen.start_offset
        given = self._left.share(self._logs[partition].seen.size_bytes)
        walked = walk(self.piece, partition, start, MOST_BATCHES, *given)
        if walked.next < walked.end:
            self._cut[partition] = walked.next
        return walked

    def _newest_ms(self) -> int:
        """Return the folder's newest timestamp. It serves as the present time: no clock goes on in a folder."""
        return max(
            (walked.max_timestamp_ms for log in self._logs.values() for walked in log.seen.segments.values()),
            default=0,
        )

    def _row(self, partition: Partition) -> list[Any]:
        log = self._logs[partition]
        topic = self._image.topics.get(partition[0]) if self._image is not None else None
        known = topic.partitions.get(partition[1]) if topic is not None else None
        leader = known.leader if known is not None and known.leader != NOWHERE else None
        replicas = [*known.replicas] if known is not None else []
        in_sync = [*known.isr] if known is not None else []
        offsets = [log.seen.start_offset, log.seen.end_offset, log.stable, log.seen.size_bytes]
        return [*partition, leader, replicas, in_sync, *offsets]

    def _group_rows(self) -> list[list[Any]]:
        rows = []
        topics = self._topic_names()
        for name in self._groups.names:
            found = self._groups.described(name, topics)
            if found is not None:
                rows.append([name, found.listed.kind, found.listed.protocol, "", None])
        return rows

    def _topic_names(self) -> dict[str, str]:
        """Return the names of topics by their ids, as text."""
        if self._image is None:
            return {}
        return {uuid_to_text(each.topic_id): each.name for each in self._image.topics.values()}

    def _counted(self, partition: Partition, offset: int) -> Counted:
        log = self._logs[partition]

        def read(position: int) -> bytes:
            return bytes(log.piece(position, 1024 * 1024).data)

        return count_read_records(read, partition, offset, log.stable, log.seen.end_offset, EFFORT)

    def _waiting(self, partition: Partition) -> WaitingPartition:
        log = self._logs[partition]
        counted = self._counted(partition, log.stable)
        is_cut = any(
            topic == TRANSACTIONS for topic, _ in self._cut
        )  # then even what is known may be long over
        by_producer = {} if is_cut else {each.producer_id: each for each in self._transactions}
        complete = not is_cut and len(self._of_topic(TRANSACTIONS)) == self.partitions_of(TRANSACTIONS)
        blockers = []
        for producer, began in sorted(log.seen.open_transactions.items(), key=lambda each: each[1]):
            last = None
            for header, _ in log.batches(began):
                last = header if header.producer_id == producer else last
            if last is None:
                continue
            one = OpenTransaction(
                partition, producer, last.producer_epoch, began, NOWHERE, last.max_timestamp
            )
            coordinated = by_producer.get(producer)
            verdict, why = verdict_of(one, coordinated, complete=complete)
            if coordinated is None:  # there is no coordinator that would know of it
                why = (
                    f"no record of {TRANSACTIONS} has producer id {producer}"
                    if complete
                    else f"{TRANSACTIONS} was read in part alone"
                    if is_cut
                    else f"the folder doesn't have all partitions of {TRANSACTIONS}"
                )
            records = counted.unmarked.get(producer, 0)
            blockers.append(Blocker(one, records, coordinated, verdict, why))
        row = self._row(partition)
        leader = NOWHERE if row[2] is None else row[2]
        return WaitingPartition(partition, leader, log.stable, log.seen.end_offset, counted, blockers)

    def _publish(self, sections: Sections) -> None:
        rows = [self._row(each) for each in self._logs]
        topics = []
        for name, of_it in sorted(of_each_topic(rows).items()):
            line = summed(MetadataResponseTopic(name=name), of_it)
            lacking = sum(1 for row in of_it if len(row[4]) < len(row[3]))
            topics.append([*line, lacking, name.startswith("__")])
        sections.publish("topics", topics)
        sections.publish("groups", self._group_rows())
        found = self.explanation([])
        sections.publish("held", {"waiting": found["waiting"], "words": found["words"]})
        for (topic, index), log in self._logs.items():
            offsets = [log.seen.start_offset, log.stable, log.seen.end_offset]
            sections.publish_for_good(f"{LOG}{topic}:{index}", offsets)
        wrong = [f"{each.path}: {each.what}" for each in self._findings[:MOST_FINDINGS]]
        if len(self._findings) > MOST_FINDINGS:
            wrong.append(f"{len(self._findings) - MOST_FINDINGS} more")
        if wrong:
            wrong[-1] += " (barnabas doctor lists all)"
        cut = [f"{topic}-{index} up to offset {at:,}" for (topic, index), at in self._cut.items()]
        if cut:
            wrong.append(f"only read in part, so newer steps are missing: {', '.join(cut)}")
        sections.publish("problem:cluster", "; ".join(wrong))
        brokers = self._image.brokers if self._image is not None else {}
        sections.publish(
            "brokers",
            {
                "cluster_id": None,
                "controller": None,
                "brokers": [
                    {"node": node, "address": "", "rack": None, "leads": sum(row[2] == node for row in rows)}
                    for node in sorted(brokers)
                ],
                "topics": len(topics),
                "partitions": len(rows),
                "without_leader": None,
                "under_replicated": None,
            },
        )


class _Left:
    """What may still be read at the start. Each partition gets a share by its size."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._bytes = READ_BYTES
        self._ends_s = time.monotonic() + READ_S

    def share(self, size_bytes: int) -> tuple[int, float]:
        """Return the bytes and seconds for the next partition, which has this size."""
        part = size_bytes / self._size_bytes if self._size_bytes else 1.0
        given = round(self._bytes * part)
        self._size_bytes -= size_bytes
        self._bytes -= min(given, size_bytes)
        return given, (self._ends_s - time.monotonic()) * part


def _only_of_a_broker(what: str) -> NoReturn:
    raise CommandError(f"{what} needs a broker, but this is a folder")
