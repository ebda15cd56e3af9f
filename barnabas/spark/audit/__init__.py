"""Count with Spark what topics hold: records, transactions, duplicates, and gaps with their reasons.

    python -m barnabas.spark.audit localhost:9092 orders --key key --parquet audit.parquet

Tasks read the raw logs, with markers and aborted records. Each task takes some ranges of offsets
and sends back sums.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.spark.audit.report import audit

__all__ = ["audit"]


def __getattr__(name: str) -> Any:
    # Without pyspark, the command line must still be able to say that it is missing.
    if name == "audit":
        from barnabas.spark.audit.report import audit

        return audit
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
