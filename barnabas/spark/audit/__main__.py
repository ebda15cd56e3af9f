"""`python -m barnabas.spark.audit`: the audit as a table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.spark import connector

if TYPE_CHECKING:
    from pyspark.sql import Row

HEADINGS = {
    "topic": "topic",
    "partition": "partition",
    "start_offset": "from",
    "end_offset": "to",
    "records": "records",
    "transactions_committed": "committed",
    "transactions_aborted": "aborted",
    "transactions_open": "open",
    "duplicates": "duplicates",
    "marker_offsets": "markers",
    "aborted_records": "aborted rec.",
    "open_records": "open rec.",
    "compacted_offsets": "compacted",
    "unexplained_offsets": "unexplained",
}
TEXT = {"topic"}
NOT_SUMMED = {"topic", "partition", "start_offset", "end_offset"}


def main() -> int:
    """0 if there is nothing to say against the topics, 1 with duplicates or unexplained gaps, 2 for what is missing."""
    options = _options()
    try:
        spark = connector.session("barnabas-audit", options.master)
    except connector.MissingError as error:
        print(f"barnabas.spark.audit: {error}", file=sys.stderr)
        return 2
    spark.sparkContext.setLogLevel("ERROR")
    # pyspark is there from here on.
    from barnabas.spark.audit.report import audit

    try:
        table = audit(
            spark,
            options.bootstrap,
            options.topics,
            key=options.key,
            client=_pairs(options.client),
            options=_pairs(options.option),
        )
        if options.parquet:
            table.write.mode("overwrite").parquet(options.parquet)
        rows = table.collect()
    finally:
        spark.stop()
    print(as_table(rows))
    return 1 if any(row.unexplained_offsets or row.duplicates for row in rows) else 0


def as_table(rows: Sequence[Row]) -> str:
    """The rows with headings, their sum, and where the first unexplained gaps are."""
    cells = [list(HEADINGS.values())]
    cells += [[_cell(row[name]) for name in HEADINGS] for row in rows]
    if len(rows) > 1:
        cells.append(
            ["" if name in NOT_SUMMED else _cell(_sum([row[name] for row in rows])) for name in HEADINGS]
        )
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if name in TEXT else cell.rjust(width)
            for name, cell, width in zip(HEADINGS, line, widths, strict=True)
        ).rstrip()
        for line in cells
    ]
    lines += [
        f"{row.topic}-{row.partition}: the first offset that is missing without a reason is "
        f"{row.first_unexplained_offset:,}"
        for row in rows
        if row.first_unexplained_offset is not None
    ]
    return "\n".join(lines)


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m barnabas.spark.audit",
        description="Count with Spark what topics hold: records, transactions, duplicates, gaps and their reasons.",
    )
    parser.add_argument("bootstrap", help="host:port of the broker")
    parser.add_argument("topics", nargs="+", help="topics to look at")
    parser.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="EXPRESSION",
        help="count duplicates by this: an expression over the columns of Spark's Kafka source (may be repeated)",
    )
    parser.add_argument("--parquet", metavar="FOLDER", help="write the table there, too")
    parser.add_argument("--master", default="local[*]", help="Spark's master (%(default)s)")
    security = "a security setting for %s, as name=value (may be repeated)"
    parser.add_argument(
        "--client", action="append", default=[], help=security % "reading logs, by kafka-python's names"
    )
    parser.add_argument(
        "--option", action="append", default=[], help=security % "Spark's connector, by Kafka's names"
    )
    return parser.parse_args()


def _pairs(settings: Sequence[str]) -> dict[str, str]:
    pairs = (setting.partition("=") for setting in settings)
    return {name: value for name, _, value in pairs}


if __name__ == "__main__":
    sys.exit(main())
