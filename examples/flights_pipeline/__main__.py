"""`python -m examples.flights_pipeline`: a broker, a feeder, the Spark job, and the picture of what came out."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import barnabas

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

PARTITIONS = 4
PICTURE = Path("flights-delays.png")
PAUSE_S = 2.0
LOOK_S = 0.5
REPEATED = 5  # so many pauses without anything new, and it is said again
# Small enough that one sees it move.
MAX_OFFSETS = 25_000
FETCHES = ", which fetches its Kafka connector the first time (60 MB)"


def main() -> int:
    """0; 1 where flights are missing or doubled; 2 for what this machine lacks."""
    options = _options()
    clock = _Clock()
    try:
        # The extra `pipeline` is needed from here on.
        from examples.flights_pipeline import counts, data, feeder, job, plot
    except ImportError as error:
        print(f"{error}: pip install --editable '.[pipeline]', or `make pipeline`", file=sys.stderr)
        return 2
    from barnabas.spark import connector

    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flights-")))
        bootstrap = options.bootstrap or stack.enter_context(barnabas.Broker()).bootstrap
        prefix = f"flights-{int(time.time())}" if options.bootstrap else "flights"
        feeder.create_topics(bootstrap, [prefix, f"{prefix}-enriched", f"{prefix}-delays"], PARTITIONS)
        clock.say(f"the broker is {bootstrap}; now Spark" + ("" if connector.is_fetched() else FETCHES))
        try:
            with connector.printing_to(folder / "spark.log"):
                spark = job.session("flights", folder / "spark")
        except connector.MissingError as error:
            print(f"{(folder / 'spark.log').read_text()[-2000:]}\n{error}", file=sys.stderr)
            return 2
        stack.callback(spark.stop)
        tables = data.tables(folder)
        clock.say("Spark is there; now the flights")

        fed = _Fed()
        work = job.Job(bootstrap, tables, folder / "checkpoints", prefix, MAX_OFFSETS)
        enriching = work.enrich(spark, processingTime="500 milliseconds")
        aggregating = work.aggregate(spark, processingTime="500 milliseconds")
        # A daemon: what fails here ends the program, however much is still to be fed.
        feeding = threading.Thread(target=fed.run, args=(bootstrap, prefix, options.every), daemon=True)
        feeding.start()
        with _progress(clock, fed, enriching, aggregating):
            wait_for_feeding(feeding, enriching, aggregating)
            if fed.error is not None:
                raise fed.error
            enriching.processAllAvailable()
            aggregating.processAllAvailable()
        enriching.stop()
        aggregating.stop()

        clock.say("all is summed up; what a reader of committed records finds:")
        days = plot.read_days(bootstrap, f"{prefix}-delays", PARTITIONS)
        enriched = plot.read_values(bootstrap, f"{prefix}-enriched", PARTITIONS)
        found = counts.count(fed.sent, enriched, days)
        print("\n".join(found.lines()), flush=True)
        plot.draw(days, options.picture)
        clock.say(f"drawn: {options.picture}" + ("" if found.add_up else "; but the numbers don't add up"))
    return 0 if found.add_up else 1


def wait_for_feeding(feeding: threading.Thread, *queries: StreamingQuery) -> None:
    """Until all is fed. Raises StreamingQueryException where a query fails meanwhile."""
    while feeding.is_alive():
        feeding.join(LOOK_S)
        for query in queries:
            if not query.isActive:
                query.awaitTermination()


class _Clock:
    def __init__(self) -> None:
        self._began_s = time.monotonic()

    def say(self, what: str) -> None:
        print(f"{time.monotonic() - self._began_s:6.1f} s  {what}", flush=True)


class _Fed:
    """The feeder's thread, and how far it is.

    sent: flights. records: these and, in the end, those that close the year.
    """

    def __init__(self) -> None:
        self.sent = self.records = 0
        self.error: BaseException | None = None

    def run(self, bootstrap: str, topic: str, every: int) -> None:
        from examples.flights_pipeline import data, feeder

        try:
            self.records = feeder.feed(bootstrap, topic, data.flights(every), PARTITIONS, self._told)
        except BaseException as error:
            self.error = error

    def _told(self, sent: int) -> None:
        self.sent = self.records = sent


@contextlib.contextmanager
def _progress(
    clock: _Clock, fed: _Fed, enriching: StreamingQuery, aggregating: StreamingQuery
) -> Iterator[None]:
    done = threading.Event()

    def tell() -> None:
        last, repeated = "", 0
        while not done.wait(PAUSE_S):
            line = progress_line(fed.records, _rows(enriching), _rows(aggregating))
            repeated = repeated + 1 if line == last else 0
            if repeated % REPEATED == 0:
                clock.say(line)
            last = line

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def progress_line(sent: int, joined: int, summed: int) -> str:
    """How far all is, in records, and what it waits for where a number doesn't move yet."""
    line = f"{sent:>9,} records sent, {joined:>9,} joined, {summed:>9,} summed up"
    if not joined:
        return f"{line} (Spark is at its first batch, which takes longest)"
    return line if summed else f"{line} (the second query is at its first batch)"


def _rows(query: StreamingQuery) -> int:
    return sum(progress.numInputRows for progress in query.recentProgress)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.flights_pipeline", description=__doc__)
    parser.add_argument("--bootstrap", help="a broker that runs, instead of one of its own")
    parser.add_argument("--every", type=int, default=1, help="take only every so many flights")
    parser.add_argument("--picture", type=Path, default=PICTURE, help="where it goes (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
