"""Transactions that have ended for their coordinator, and that a partition never got the marker of.

A broker should leave none, and two do. Apache Kafka 4.3, killed with a transaction open or prepared, may log its end
after the restart without a marker in any partition: for a moment they have no leader, and count as deleted. And before
3.6 (KIP-890) a task that was given up could write into a partition behind the marker. What hangs there keeps
`read_committed` readers waiting for ever, and becomes part of the query's next transaction, to be committed or aborted
with that one. So the sink looks for it whenever it takes an epoch, and writes the marker itself, as
`kafka-transactions.sh abort` does.

Which marker? The coordinator's last state tells, up to the moment when InitProducerId replaces it: a lost commit is
made good before that, and all else is an abort, which can be done after it. Wherever the driver dies between, the next
one finds the same.

A group's offsets are not looked for: the next batch's replace them.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Collection

from barnabas.spark import codes, wire_connection
from barnabas.spark.codes import ResponseError
from barnabas.spark.errors import HangingTransactionError, TryFailedError
from barnabas.spark.wire import Identity, Wire
from barnabas.spark.wire_transactions import DescribedTransaction, Leaders, OpenTransaction

log = logging.getLogger(__name__)

COMMITTED = "CompleteCommit"
ENDING = {"PrepareCommit", "PrepareAbort", "PrepareEpochFence"}
UNSEEN = {codes.TOPIC_AUTHORIZATION_FAILED, codes.UNSUPPORTED_VERSION}


def next_identity(
    connection: Wire, transactional_id: str, leaders: Callable[[], Leaders], take: Callable[[], Identity]
) -> Identity:
    """What `take` gives, InitProducerId's answer, with nothing left of earlier transactions in these partitions.

    Raises HangingTransactionError where something is, and the broker doesn't allow to end it.
    """
    last = _last(connection, transactional_id)
    is_committed = last is not None and last.state == COMMITTED
    if last is not None and is_committed:
        _end(connection, {last.producer_id}, leaders, commit=True)
    identity = take()
    if last is not None and not is_committed:
        _end(connection, {last.producer_id, identity.producer_id}, leaders, commit=False)
    return identity


def _last(connection: Wire, transactional_id: str) -> DescribedTransaction | None:
    """The id's last transaction, open or ended, but not between the two."""
    deadline_s = time.monotonic() + connection.timeout_ms / 1000
    while True:
        try:
            last = connection.describe_transaction(transactional_id)
        except ResponseError as error:
            if error.code == codes.UNSUPPORTED_VERSION:
                return None
            raise
        if last is None or last.state not in ENDING:
            return last
        if time.monotonic() > deadline_s:
            raise TryFailedError(
                f"the last transaction of {transactional_id} is in {last.state} for {connection.timeout_ms} ms"
            )
        time.sleep(wire_connection.RETRY_S)


def _end(
    connection: Wire, producers: Collection[int], leaders: Callable[[], Leaders], *, commit: bool
) -> None:
    try:
        found = connection.open_transactions(leaders)
    except ResponseError as error:
        if error.code not in UNSEEN:
            raise
        warn_unseen(error)
        return
    hanging = [one for one in found if one.producer_id in producers]
    if not hanging:
        return
    result = "commit" if commit else "abort"
    places = ", ".join(f"{one.topic}-{one.partition} from offset {one.start_offset} on" for one in hanging)
    log.warning("the cluster lost the %s markers of a transaction, which are written now: %s", result, places)
    try:
        connection.write_markers(hanging, commit=commit)
    except ResponseError as error:
        if error.code != codes.CLUSTER_AUTHORIZATION_FAILED:
            raise
        raise HangingTransactionError(_refused(hanging, result, places)) from error


@functools.cache
def _warned(reason: str) -> None:
    log.warning(
        "what producers have written can't be seen, neither what hangs of earlier transactions nor whether partitions "
        "hold what the tasks reported: %s", reason,
    )  # fmt: skip


def warn_unseen(error: ResponseError) -> None:
    """Say that DescribeProducers isn't answered, once a reason."""
    _warned(str(error))


def _refused(hanging: Collection[OpenTransaction], result: str, places: str) -> str:
    return (
        f"the cluster lost the {result} markers of the query's last transaction, which hangs in {places} (producer id "
        f"{', '.join(sorted({str(one.producer_id) for one in hanging}))}). The sink may not write them: allow its "
        "principal the operation ClusterAction on the cluster"
        + ("" if result == "commit" else ", or abort them with `kafka-transactions.sh abort`")
    )
