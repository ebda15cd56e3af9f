"""What a broker knows, all of which follows from its logs, in comparable values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from coordinator.transaction.states import AWAITS_MARKERS
from protocol.records.batch import BatchHeader, CorruptRecordError, walk_batches
from storage.log.leader_epochs import UNDEFINED_EPOCH
from tests.simulation.machine import Machine

DELETED_FROM = frozenset({"__share_group_state", "tickets"})
"""Topics whose records are deleted from the beginning on. If the broker dies soon, the records are back but their
epochs aren't, as in Kafka: epochs are removed at once, the log's start is written a minute later."""

LeaderEpochs = dict[str, int]
"""By the log's folder."""


def is_deleted_from(folder: str) -> bool:
    """Return True if a partition's folder belongs to `DELETED_FROM`."""
    return folder.rpartition("/")[2].rpartition("-")[0] in DELETED_FROM


class KnownByLog(NamedTuple):
    """What a partition's log knows."""

    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    producers: list[tuple[int, int, int, int, int]]
    """Producer id, epoch, last sequence, last data offset, first offset of an open transaction, for each producer."""


def by_records(state: KnownByLog) -> KnownByLog:
    """Leave out producers without a record in the log, and the transactions that they left open."""
    start = state.log_start_offset
    kept = [each for each in state.producers if max(each[3:]) >= start]
    stable = state.last_stable_offset
    if any(each[4] >= 0 for each in state.producers if each not in kept):
        stable = min((each[4] for each in kept if each[4] >= 0), default=state.log_end_offset)
    return state._replace(producers=kept, last_stable_offset=stable)


def of_what_both_have(one: KnownByLog, other: KnownByLog) -> tuple[KnownByLog, KnownByLog]:
    """Make two states comparable that don't begin at the same offset."""
    start = max(one.log_start_offset, other.log_start_offset)
    first, second = (by_records(each._replace(log_start_offset=start)) for each in (one, other))
    return first, second


def of_logs(machine: Machine) -> dict[str, KnownByLog]:
    """Return the states by the log's folder."""
    found: dict[str, KnownByLog] = {}
    assert machine.server is not None
    for partition in machine.server.partitions.all():
        log = partition.log
        if machine.disk.find(log.directory) is not None:
            producers = sorted(
                # a snapshot only has the last batch, like Kafka's
                (
                    each.producer_id,
                    each.epoch,
                    each.last_sequence,
                    each.last_data_offset,
                    each.txn_first_offset,
                )
                for each in log.producers.producers.values()
            )
            found[log.directory] = KnownByLog(
                log.log_start_offset, log.log_end_offset, log.last_stable_offset, producers
            )
    return found


def of_coordinators(machine: Machine) -> dict[str, object]:
    """Return the state of each transactional id, and for each group's partition the committed and pending offsets."""
    found: dict[str, object] = {}
    assert machine.server is not None
    for transactions in machine.server.transactions.all_shards():
        for name, metadata in transactions._manager.transactions.items():
            found[f"transactional id {name}"] = (
                metadata.state,
                metadata.pending_state,
                metadata.producer_id,
                metadata.producer_epoch,
                # who has got its marker isn't in the log; it is asked again after a start
                sorted(metadata.partitions) if metadata.state not in AWAITS_MARKERS else None,
                metadata.start_timestamp_ms,
                metadata.last_update_timestamp_ms,
            )
    for groups in machine.server.groups.all_shards():
        offsets = groups.offsets
        for name, topics in offsets.committed.items():
            for topic, partitions in topics.items():
                for index, offset in partitions.items():
                    found[f"offset of {name} in {topic}-{index}"] = offset
        for producer_id, pending in offsets._pending.items():
            for key, offset in pending.items():
                found[f"pending of {producer_id}: {key}"] = offset
    return found


def open_transactions(machine: Machine) -> list[str]:
    """Return the transactional ids that aren't at rest."""
    assert machine.server is not None
    return [
        f"{name} is {metadata.state.value}, pending {metadata.pending_state}"
        for transactions in machine.server.transactions.all_shards()
        for name, metadata in transactions._manager.transactions.items()
        if metadata.pending_state is not None or not metadata.state.name.startswith(("EMPTY", "COMPLETE"))
    ]


def leader_epochs(machine: Machine) -> tuple[LeaderEpochs, list[str]]:
    """Return the leader epochs of a node that leads all its partitions, and complaints: those of `of_batch_epochs`, and
    logs that don't know the present epoch."""
    found: LeaderEpochs = {}
    complaints = of_batch_epochs(machine)
    assert machine.server is not None
    for partition in machine.server.partitions.all():
        log = partition.log
        found[log.directory] = partition.leader_epoch
        entries = log.leader_epochs.entries
        if not entries or entries[-1][0] != partition.leader_epoch:
            complaints.append(f"{log.directory} is led in {partition.leader_epoch}, and knows {entries}")
    return found, complaints


def of_batch_epochs(machine: Machine) -> list[str]:
    """Return complaints if a log's epochs disagree with a batch."""
    complaints = []
    assert machine.server is not None
    for partition in machine.server.partitions.all():
        log = partition.log
        entries = log.leader_epochs.entries
        if entries != sorted(entries):
            complaints.append(f"{log.directory} knows {entries}")
        held = batches(machine, log.directory) if machine.disk.find(log.directory) is not None else ()
        for header in held:
            offset, epoch = header.base_offset, header.partition_leader_epoch
            is_there = log.log_start_offset <= offset < log.log_end_offset
            known = log.leader_epochs.epoch_for(offset)
            is_forgotten = known == UNDEFINED_EPOCH and log.topic in DELETED_FROM
            if is_there and known != epoch and not is_forgotten:
                complaints.append(f"{log.directory} has a batch of {epoch} at {offset}, and knows {entries}")
                break
    return complaints


def log_bytes(machine: Machine, folder: str) -> bytes:
    """Return what a partition's log holds on the disk, as the broker sees it."""
    names = machine.disk.names(folder)
    return b"".join(machine.disk.bytes_of(f"{folder}/{name}") for name in names if name.endswith(".log"))


def batches(machine: Machine, folder: str) -> Iterator[BatchHeader]:
    """Yield the batches up to the first one that can't be read."""
    try:
        for _, header in walk_batches(log_bytes(machine, folder)):
            yield header
    except CorruptRecordError:
        return
