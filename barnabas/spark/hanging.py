"""Hanging transactions: their coordinator has ended them, but a partition never got the marker.

Brokers should leave none, but two do. Apache Kafka 4.3, killed with a transaction open or prepared, may log the
transaction's end after the restart without a marker in any partition: for a moment the partitions have no leader and
count as deleted. And before 3.6 (KIP-890) an abandoned task could write into a partition after the marker. A hanging
transaction makes `read_committed` readers wait forever. Its records also become part of the query's next transaction,
and are committed or aborted with it. So whenever the sink takes an epoch, it looks for hanging transactions in the
partitions that it is about to write to. It writes the marker itself, as `kafka-transactions.sh abort` does.

Which marker? The epoch shows which transaction a record belongs to. The coordinator knows the last one until
InitProducerId replaces its state, so a lost commit is repaired before that. The query's own markers show earlier ones:
a transaction with a marker was committed, one later than all markers wasn't. If neither helps, the query fails. A
transaction of a later epoch belongs to a driver that has taken over, and the sink leaves it alone.

It doesn't look at a group's offsets, because the next batch's offsets replace them.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Collection, Iterable

from barnabas.spark import errors, wire_connection
from barnabas.spark.errors import HangingTransactionError, NotAsReportedError, ResponseError, TryFailedError
from barnabas.spark.plan import SEQUENCES, PartitionReport
from barnabas.spark.wire import Identity, Wire
from barnabas.spark.wire_connection import DescribedTransaction, Leaders, OpenTransaction

log = logging.getLogger(__name__)

COMMITTED = "CompleteCommit"
ENDING = {"PrepareCommit", "PrepareAbort", "PrepareEpochFence"}
UNSEEN = {errors.TOPIC_AUTHORIZATION_FAILED, errors.UNSUPPORTED_VERSION}

Committed = Collection[tuple[int, int]]
"""Producer id and epoch of committed batches: those under which the query's markers were written."""


def next_identity(
    connection: Wire,
    transactional_id: str,
    leaders: Callable[[], Leaders],
    committed: Callable[[], Committed],
    take: Callable[[], Identity],
) -> Identity:
    """Return the identity from `take` (InitProducerId) and end earlier transactions that hang in these partitions.

    committed: reads all markers; it is only called if something hangs.

    Raises HangingTransactionError if the outcome of one is unknown, or the broker doesn't let the sink end it.
    """
    last = _last(connection, transactional_id)
    if last is not None and last.state == COMMITTED:
        committed_last = (last.producer_id, last.epoch)
        lost = [one for one in _open(connection, leaders) if (one.producer_id, one.epoch) == committed_last]
        _end(connection, lost, commit=True)
    identity = take()
    if last is not None:
        hanging = [one for one in _open(connection, leaders) if _is_earlier(one, last, identity)]
        if hanging:
            _end_earlier(connection, hanging, committed())
    return identity


def _is_earlier(one: OpenTransaction, last: DescribedTransaction, identity: Identity) -> bool:
    if one.producer_id == identity.producer_id:
        return one.epoch < identity.epoch
    return one.producer_id == last.producer_id


def _end_earlier(connection: Wire, hanging: Collection[OpenTransaction], committed: Committed) -> None:
    results = [(one, _was_committed(one, committed)) for one in hanging]
    unknown = [one for one, result in results if result is None]
    if unknown:
        raise HangingTransactionError(
            f"the cluster lost the markers of an earlier transaction of the query, which hangs in {_places(unknown)}, "
            "and nobody knows any more whether it was committed. To keep the records there, copy them from "
            "there under read_uncommitted; then abort them with `kafka-transactions.sh abort`"
        )
    for commit in (True, False):
        _end(connection, [one for one, result in results if result is commit], commit=commit)


def _was_committed(one: OpenTransaction, committed: Committed) -> bool | None:
    """Return None if it is unknown: compaction keeps only the last marker of a checkpoint."""
    identity = (one.producer_id, one.epoch)
    if identity in committed:
        return True
    # Later producer ids are greater.
    return False if not committed or identity > max(committed) else None


def _last(connection: Wire, transactional_id: str) -> DescribedTransaction | None:
    """Return the id's last transaction, open or ended. Waits while it is between the two."""
    deadline_s = time.monotonic() + connection.timeout_ms / 1000
    while True:
        try:
            last = connection.describe_transaction(transactional_id)
        except ResponseError as error:
            if error.code == errors.UNSUPPORTED_VERSION:
                return None
            raise
        if last is None or last.state not in ENDING:
            return last
        if time.monotonic() > deadline_s:
            raise TryFailedError(
                f"the last transaction of {transactional_id} stayed in {last.state} for {connection.timeout_ms} ms"
            )
        time.sleep(wire_connection.RETRY_S)


def _open(connection: Wire, leaders: Callable[[], Leaders]) -> list[OpenTransaction]:
    try:
        return connection.open_transactions(leaders)
    except ResponseError as error:
        if error.code not in UNSEEN:
            raise
        warn_unseen(error)
        return []


def _end(connection: Wire, hanging: Collection[OpenTransaction], *, commit: bool) -> None:
    if not hanging:
        return
    result = "commit" if commit else "abort"
    log.warning(
        "the cluster lost the %s markers of a transaction; the sink writes them now: %s",
        result,
        _places(hanging),
    )
    try:
        connection.write_markers(hanging, commit=commit)
    except ResponseError as error:
        if error.code != errors.CLUSTER_AUTHORIZATION_FAILED:
            raise
        raise HangingTransactionError(
            f"the cluster lost the {result} markers of an earlier transaction of the query, which hangs in "
            f"{_places(hanging)}. The sink may not write them: allow its principal the operation ClusterAction on the "
            "cluster" + ("" if commit else ", or abort them with `kafka-transactions.sh abort`")
        ) from error


def _places(hanging: Collection[OpenTransaction]) -> str:
    return ", ".join(
        f"{one.topic}-{one.partition} from offset {one.start_offset} on (producer {one.producer_id}, epoch {one.epoch})"
        for one in hanging
    )


@functools.cache
def _warned(reason: str) -> None:
    log.warning(
        "the sink can't see what producers have written: neither hanging transactions nor whether partitions "
        "hold what the tasks reported: %s", reason,
    )  # fmt: skip


def warn_unseen(error: ResponseError) -> None:
    """Warn that the broker doesn't answer DescribeProducers, once for each reason."""
    _warned(str(error))


# --- Before a commit: does each partition hold exactly what this try's task reported? -----------------------
#
# A producer's sequences count its records, from 0 in each epoch. So the last one that a partition's leader knows shows
# how many records it holds, of all tasks, reported or not. After that, only their contents can be wrong.


def check(
    connection: Wire, identity: Identity, leaders: Callable[[], Leaders], written: Iterable[PartitionReport]
) -> None:
    """leaders: those of all partitions that might have been written to. Raises NotAsReportedError.

    If the cluster doesn't answer DescribeProducers, or not to this principal, the tasks' reports count.
    """
    try:
        found = connection.open_transactions(leaders)
    except ResponseError as error:
        if error.code not in UNSEEN:
            raise
        warn_unseen(error)
        return
    held = {
        (one.topic, one.partition): one.last_sequence
        for one in found
        if (one.producer_id, one.epoch) == (identity.producer_id, identity.epoch)
    }
    told = {(one.topic, one.partition): (one.records - 1) % SEQUENCES for one in written}
    for topic, partition in sorted(held.keys() | told.keys()):
        last, wanted = held.get((topic, partition)), told.get((topic, partition))
        if last != wanted:
            raise NotAsReportedError(
                f"partition {partition} of {topic} holds {_up_to(last)} from this try, but its task reported "
                f"{_up_to(wanted)}: another attempt wrote there"
            )


def _up_to(sequence: int | None) -> str:
    return "nothing" if sequence is None else f"records up to the sequence {sequence}"
