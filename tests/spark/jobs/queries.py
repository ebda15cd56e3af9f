"""The five jobs: what each of them does between its source and the sink."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as fn

from tests.spark.jobs import inputs

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

DELAY = "8 hours"
EVENT = "number long, at_ms long, user string, amount long"
ORDER = "order long, at_ms long, user string, amount long"
PAYMENT = "paid_order long, paid_ms long, part int"

Sources = Mapping[str, "DataFrame"]


class Kind(NamedTuple):
    """A job.

    inputs, outputs: the suffixes of its topics' names. If there are several outputs, each row names its topic.
    query: turns the rows of Spark's source, by input, into rows for the sink. Its argument is the topics' prefix.
    make: makes the input from a seed, a number of chunks and their size.
    close: makes the records that end the input.
    generations: how many inputs follow one another, each in new topics.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    query: Callable[[Sources, str], DataFrame]
    make: inputs.Make
    close: Callable[[], list[inputs.Record]]
    generations: int = 1


def state(sources: Sources, prefix: str) -> DataFrame:
    """Each user's sums over three hours. A window begins every hour, and its sums come out once it is over."""
    events = _parsed(sources["in"], EVENT).withWatermark("at", DELAY)
    sums = events.groupBy(fn.window("at", "3 hours", "1 hour"), "user").agg(
        fn.count("*").alias("count"),
        fn.sum("amount").alias("amount"),
        fn.min("number").alias("first"),
        fn.max("number").alias("last"),
    )
    return _records(sums.withColumn("window", fn.col("window.start")), "user")


def join(sources: Sources, prefix: str) -> DataFrame:
    """Orders with their payments within two hours. Unpaid orders come out once it is too late for a payment."""
    orders = _parsed(sources["orders"], ORDER).withWatermark("at", DELAY)
    payments = _parsed(sources["payments"], PAYMENT, "paid_ms", "paid_at").withWatermark("paid_at", DELAY)
    in_time = "order = paid_order AND paid_at BETWEEN at AND at + INTERVAL 2 HOURS"
    return _records(orders.join(payments, fn.expr(in_time), "left_outer"), "order")


def deduplication(sources: Sources, prefix: str) -> DataFrame:
    """Each event once, the first time it arrives."""
    events = _parsed(sources["in"], EVENT).withWatermark("at", DELAY)
    return _records(events.dropDuplicatesWithinWatermark(["number"]), "number")


def pandas_state(sources: Sources, prefix: str) -> DataFrame:
    """Each user's hours once they are over, with a checksum over all of the user's hours so far."""
    events = _parsed(sources["in"], EVENT).withWatermark("at", DELAY)
    hours = events.groupBy("user").applyInPandasWithState(
        _hours_over, "key string, value string", "state string", "append", "EventTimeTimeout"
    )
    return hours.select("key", "value")


def dynamic(sources: Sources, prefix: str) -> DataFrame:
    """Unchanged records, sent to the topics and partitions that their headers name."""
    rows = sources["in"].select("key", "value", "headers")

    def header(name: str) -> Any:
        return fn.expr(f"get(filter(headers, one -> one.key = '{name}'), 0).value").cast("string")

    return rows.select(
        "key",
        "value",
        "headers",
        header("partition").cast("int").alias("partition"),
        fn.concat(fn.lit(f"{prefix}-"), fn.coalesce(header("to"), fn.lit("c"))).alias("topic"),
    )


KINDS = {
    "state": Kind(("in",), ("out",), state, inputs.events, inputs.closing_events),
    "join": Kind(("orders", "payments"), ("out",), join, inputs.orders, inputs.closing_orders),
    "deduplication": Kind(("in",), ("out",), deduplication, inputs.repeated, inputs.closing_events, 2),
    "pandas-state": Kind(("in",), ("out",), pandas_state, inputs.events, inputs.closing_events),
    "dynamic": Kind(("in",), ("a", "b", "c"), dynamic, inputs.messages, inputs.closing_messages),
}


def _parsed(rows: DataFrame, schema: str, time: str = "at_ms", at: str = "at") -> DataFrame:
    parsed = rows.select(fn.from_json(fn.col("value").cast("string"), schema).alias("one")).select("one.*")
    return parsed.withColumn(at, fn.timestamp_millis(time))


def _records(rows: DataFrame, key: str) -> DataFrame:
    return rows.select(fn.col(key).cast("string").alias("key"), fn.to_json(fn.struct("*")).alias("value"))


def _hours_over(key: tuple[str], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Yield the hours that are over. The state is the checksum, and the open hours by number, as [events, amount]."""
    import pandas as pd

    (user,) = key
    checksum, hours = json.loads(state.get[0]) if state.exists else (0, {})
    if not state.hasTimedOut:
        for frame in frames:
            for at_ms, amount in zip(frame["at_ms"].tolist(), frame["amount"].tolist(), strict=True):
                count, so_far = hours.get(str(at_ms // inputs.HOUR_MS), (0, 0))
                hours[str(at_ms // inputs.HOUR_MS)] = (count + 1, so_far + amount)
    watermark_ms = state.getCurrentWatermarkMs()
    values = []
    for hour in sorted(hours, key=int):
        if (int(hour) + 1) * inputs.HOUR_MS > watermark_ms:
            break
        count, amount = hours.pop(hour)
        text = f"{user} {hour} {count} {amount}"
        checksum = zlib.crc32(text.encode(), checksum)
        values.append(f"{text} {checksum}")
    state.update((json.dumps([checksum, hours]),))
    if hours:
        state.setTimeoutTimestamp((min(map(int, hours)) + 1) * inputs.HOUR_MS)
    yield pd.DataFrame({"key": [user] * len(values), "value": values})
