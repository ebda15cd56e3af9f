"""Ending a transaction by its transactional id, or one that hangs in a partition.

Each is looked up first, so that a person can be asked. If it has changed by the time of the answer, it is left alone.
"""

from __future__ import annotations

from cli.client.cluster import KafkaCluster
from cli.client.offsets import Partition
from cli.client.transactions import CoordinatedTransaction, describe_transaction, fence, write_abort_marker
from cli.errors import CommandError
from cli.explaining import HANGING, LARGEST_TIMEOUT_MS, Blocker, key_of, open_all_along
from cli.explanation_words import end_of
from cli.wording import number_of, span


def known_transaction(cluster: KafkaCluster, transactional_id: str) -> CoordinatedTransaction:
    """Return the transaction according to its coordinator. Raises CommandError if there is none."""
    found = describe_transaction(cluster, transactional_id)
    if found is None:
        raise CommandError(
            f"there is no transactional id {transactional_id} (barnabas transactions lists them)"
        )
    return found


def transaction_to_fence(cluster: KafkaCluster, transactional_id: str) -> CoordinatedTransaction:
    """Return this id's open transaction. Raises CommandError if none is open."""
    found = known_transaction(cluster, transactional_id)
    if not found.is_open:
        reason = "it is being ended" if found.is_ending else "it has nothing open"
        raise CommandError(f"{transactional_id} is {found.state}: {reason}")
    return found


def question_of_fencing(found: CoordinatedTransaction) -> str:
    """The question to answer with yes."""
    partitions = number_of(len(found.partitions), "partition")
    return f"Abort what {found.transactional_id} has open in {partitions}, and fence its application?"


def fence_transaction(cluster: KafkaCluster, found: CoordinatedTransaction) -> str:
    """Abort it and return what was done. Raises CommandError if it is no longer the transaction that was found."""
    name = found.transactional_id
    now = known_transaction(cluster, name)
    if (now.state, now.started_ms, now.producer_epoch) != (
        found.state,
        found.started_ms,
        found.producer_epoch,
    ):
        raise CommandError(f"{name} has gone on meanwhile and is {now.state}: nothing was done")
    fenced = fence(cluster, found)
    return f"{name}: aborted; its epoch is now {fenced.producer_epoch}, and its previous producer is fenced"


def hanging_to_abort(
    cluster: KafkaCluster, partition: Partition, start_offset: int, now_ms: int, where: str, *, force: bool
) -> Blocker:
    """Return the transaction that hangs there. Raises CommandError if none is open, and, unless forced, if it may still
    end by itself. `where` are a command's options that say which Kafka is meant."""
    one = _blocker(cluster, partition, start_offset)
    if one.verdict != HANGING and not force:
        command = end_of(one, where)
        better = f": {command}" if command else ""
        raise CommandError(f"it doesn't hang, but {one.why}{better} (or --force)")
    if one.may_be_hidden(now_ms) and not force:
        raise CommandError(
            f"it may not hang: {one.why}, and its last record is younger than {span(LARGEST_TIMEOUT_MS)},"
            " the largest timeout (wait, or --force)"
        )
    return one


def question_of_aborting(one: Blocker) -> str:
    """The question to answer with yes."""
    topic, index = one.open.partition
    return (
        f"Abort the transaction of producer id {one.open.producer_id} in {topic}-{index} that starts at"
        f" {one.open.start_offset} ({one.why})?"
    )


def abort_hanging(cluster: KafkaCluster, one: Blocker) -> str:
    """Abort it and return what was done. Raises CommandError if it has changed since it was found."""
    now = _blocker(cluster, one.open.partition, one.open.start_offset)
    if (key_of(now.open), now.verdict) != (key_of(one.open), one.verdict):
        raise CommandError(f"it has changed meanwhile: {now.why}; nothing was done")
    write_abort_marker(cluster, now.open)
    topic, index = one.open.partition
    return (
        f"{topic}-{index}: the transaction of producer id {one.open.producer_id} that started at"
        f" {one.open.start_offset} is aborted"
    )


def _blocker(cluster: KafkaCluster, partition: Partition, start_offset: int) -> Blocker:
    """Return what is open there now. Raises CommandError if nothing is."""
    found = open_all_along(cluster, [partition]).get(partition, [])
    for one in found:
        if one.open.start_offset == start_offset:
            return one
    starts = ", ".join(str(one.open.start_offset) for one in found)
    others = f": those that are open start at {starts}" if found else ", nor anywhere else"
    raise CommandError(
        f"no open transaction of {partition[0]}-{partition[1]} starts at {start_offset}{others}"
    )
