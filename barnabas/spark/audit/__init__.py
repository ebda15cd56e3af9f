"""What topics hold, counted with Spark: records, transactions, duplicates, and gaps with their reasons.

    python -m barnabas.spark.audit localhost:9092 orders --key key --parquet audit.parquet

The logs are read as they lie there, with markers and aborted records, by tasks that each take some ranges of offsets
and send back sums.
"""

from barnabas.spark.audit.report import audit

__all__ = ["audit"]
