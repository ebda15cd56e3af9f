"""Ahead of a commit: does each partition hold of this try what its task reported, and nothing else?

A producer's sequences count its records, from 0 in each epoch, so that the last one that a partition's leader knows
tells how many it holds: of whichever tasks, reported or not. What is left to be wrong after that are contents.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from barnabas.spark import hanging
from barnabas.spark.codes import ResponseError
from barnabas.spark.errors import NotAsReportedError
from barnabas.spark.plan import SEQUENCES
from barnabas.spark.reports import PartitionReport
from barnabas.spark.wire import Identity, Wire
from barnabas.spark.wire_transactions import Leaders

log = logging.getLogger(__name__)


def check(
    connection: Wire, identity: Identity, leaders: Callable[[], Leaders], written: Iterable[PartitionReport]
) -> None:
    """leaders: of all partitions that might have been written to. Raises NotAsReportedError.

    A cluster that doesn't answer DescribeProducers, or not to this principal, is taken at its tasks' word.
    """
    try:
        found = connection.open_transactions(leaders)
    except ResponseError as error:
        if error.code not in hanging.UNSEEN:
            raise
        hanging.warn_unseen(error)
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
