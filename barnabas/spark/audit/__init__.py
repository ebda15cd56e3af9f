"""What topics hold, counted with Spark: records, transactions, duplicates, and gaps with their reasons.

    python -m barnabas.spark.audit localhost:9092 orders --key key --parquet audit.parquet

The logs are read as they lie there, with markers and aborted records, by tasks that each take some ranges of offsets
and send back sums.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.spark.audit.report import audit

__all__ = ["audit"]


def __getattr__(name: str) -> Any:
    # Without pyspark the command line has yet to say that it is missing.
    if name == "audit":
        from barnabas.spark.audit.report import audit

        return audit
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
