"""`python -m barnabas.spark.audit`: the audit as a table."""

from __future__ import annotations

import argparse
import logging
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.spark import connector
from barnabas.spark.audit import refusals

if TYPE_CHECKING:
    from pyspark.sql import Row

TIMEOUT_MS = 30_000
NOT_COUNTED = 2
# Errors from these modules explain themselves.
TELLING = ("barnabas.", "pyspark.", "py4j.")

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if the topics are fine, 1 with duplicates or unexplained gaps, 2 if that is unknown."""
    options = _options(arguments)
    try:
        return _audit(options)
    except Exception as error:
        if not (isinstance(error, ValueError | OSError) or type(error).__module__.startswith(TELLING)):
            traceback.print_exc()
        where = f"{', '.join(options.topics)} at {options.bootstrap}"
        print(f"barnabas.spark.audit: {where}: {refusals.reason(error)}", file=sys.stderr)
        return NOT_COUNTED


def _audit(options: argparse.Namespace) -> int:
    client = dict(options.client)
    # Check this before Spark starts, which takes some seconds.
    if options.parquet:
        refusals.check_folder(options.parquet)
    refusals.check_topics(
        options.bootstrap, options.topics, keyed=bool(options.key), client=client, timeout_ms=TIMEOUT_MS
    )
    spark = connector.session("barnabas-audit", options.master)
    # pyspark is there from here on.
    from pyspark.logger import PySparkLogger

    from barnabas.spark.audit.report import audit

    # A failure becomes one line. Spark's own reports go to the JVM's log and to a Python logger.
    spark.sparkContext.setLogLevel("OFF")
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        table = audit(
            spark,
            options.bootstrap,
            options.topics,
            key=options.key,
            client=client,
            options=dict(options.option),
            timeout_ms=TIMEOUT_MS,
        )
        rows = table.collect()
        print(as_table(rows), flush=True)
        if options.parquet:
            table.write.mode("errorifexists").parquet(options.parquet)
    finally:
        spark.stop()
    return 1 if any(row.unexplained_offsets or row.duplicates for row in rows) else 0


def as_table(rows: Sequence[Row]) -> str:
    """Return the rows with headings, their sum, and the first unexplained gaps."""
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
        f"{row.topic}-{row.partition}: the first offset missing without a reason is "
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


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
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
    parser.add_argument("--parquet", metavar="FOLDER", help="also write the table to a new folder")
    parser.add_argument("--master", default="local[*]", help="Spark's master (%(default)s)")
    security = "a security setting for %s, as name=value (may be repeated)"
    parser.add_argument(
        "--client",
        action="append",
        type=_pair,
        default=[],
        help=security % "reading logs, by kafka-python's names",
    )
    parser.add_argument(
        "--option",
        action="append",
        type=_pair,
        default=[],
        help=security % "Spark's connector, by Kafka's names",
    )
    return parser.parse_args(arguments)


def _pair(setting: str) -> tuple[str, str]:
    name, equals, value = setting.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{setting!r} is not name=value")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
