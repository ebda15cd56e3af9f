"""Transactions that have ended for their coordinator, and that a partition never got the marker of.

A broker should leave none, and two do. Apache Kafka 4.3, killed with a transaction open or prepared, may log its end
after the restart without a marker in any partition: for a moment they have no leader, and count as deleted. And before
3.6 (KIP-890) a task that was given up could write into a partition behind the marker. What hangs there keeps
`read_committed` readers waiting for ever, and becomes part of the query's next transaction, to be committed or aborted
with that one. So the sink looks for it whenever it takes an epoch, in the partitions that it is about to write to, and
writes the marker itself, as `kafka-transactions.sh abort` does.

Which marker? The epoch tells which transaction a record is of. Of the last one the coordinator knows, up to the moment
when InitProducerId replaces its state: a lost commit is made good before that. Of earlier ones the query's own markers
tell: who has one there was committed, and a later one than all of them was not. Where neither tells, the query fails.
A transaction of a later epoch is that of a driver which has taken over, and is let alone.

A group's offsets are not looked for: the next batch's replace them.
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
"""Producer id and epoch of batches that are committed: what the query's markers were written under."""


def next_identity(
    connection: Wire,
    transactional_id: str,
    leaders: Callable[[], Leaders],
    committed: Callable[[], Committed],
    take: Callable[[], Identity],
) -> Identity:
    """What `take` gives, InitProducerId's answer, with nothing left of earlier transactions in these partitions.

    committed: of all markers that can be read, and is asked only where something hangs.

    Raises HangingTransactionError where something does that can't be told, or that the broker doesn't allow to end.
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
            "and it can't be told any more whether it was committed. If the records there are to count, copy them from "
            "there under read_uncommitted; then abort them with `kafka-transactions.sh abort`"
        )
    for commit in (True, False):
        _end(connection, [one for one, result in results if result is commit], commit=commit)


def _was_committed(one: OpenTransaction, committed: Committed) -> bool | None:
    """None where it can't be told: compaction keeps the last marker of a checkpoint alone."""
    identity = (one.producer_id, one.epoch)
    if identity in committed:
        return True
    # Later producer ids are greater ones.
    return False if not committed or identity > max(committed) else None


def _last(connection: Wire, transactional_id: str) -> DescribedTransaction | None:
    """The id's last transaction, open or ended, but not between the two."""
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
                f"the last transaction of {transactional_id} is in {last.state} for {connection.timeout_ms} ms"
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
        "the cluster lost the %s markers of a transaction, which are written now: %s",
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
        "what producers have written can't be seen, neither what hangs of earlier transactions nor whether partitions "
        "hold what the tasks reported: %s", reason,
    )  # fmt: skip


def warn_unseen(error: ResponseError) -> None:
    """Say that DescribeProducers isn't answered, once a reason."""
    _warned(str(error))


# --- Ahead of a commit: does each partition hold of this try what its task reported, and nothing else? --------
#
# A producer's sequences count its records, from 0 in each epoch, so that the last one that a partition's leader knows
# tells how many it holds: of whichever tasks, reported or not. What is left to be wrong after that are contents.


def check(
    connection: Wire, identity: Identity, leaders: Callable[[], Leaders], written: Iterable[PartitionReport]
) -> None:
    """leaders: of all partitions that might have been written to. Raises NotAsReportedError.

    A cluster that doesn't answer DescribeProducers, or not to this principal, is taken at its tasks' word.
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
                f"partition {partition} of {topic} holds {_up_to(last)} of this try's, and its task reported "
                f"{_up_to(wanted)}: another attempt wrote there"
            )


def _up_to(sequence: int | None) -> str:
    return "nothing" if sequence is None else f"records up to the sequence {sequence}"
