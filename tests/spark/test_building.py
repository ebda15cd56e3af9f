"""Rows on their way into record batches, in the task that writes them."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

import pyarrow as pa

from barnabas.spark import arrow_batches, tasks
from tests.spark.plans import plan


@pytest.mark.parametrize("count", [1 << 16, (1 << 16) + 1, 100_000])
def test_rows_come_to_their_partitions_however_many_there_are(count: int) -> None:
    """Up to 65,536 they are ordered by numbers of 16 bits."""
    partitions = [count - 1, 5, count - 1, 0, count // 2, 5]
    values = arrow_batches.from_bytes([b"%d" % number for number in range(len(partitions))])
    rows = pa.record_batch({"value": values, "partition": pa.array(partitions, pa.int32())})
    told = plan(1, batch_bytes=1000, t=count)
    blobs = list(tasks.build(told, [rows], [0], 1))
    assert [(blob.target, blob.batch.records) for blob in blobs] == [
        (0, 1),
        (5, 2),
        (count // 2, 1),
        (count - 1, 2),
    ]
