"""`python -m tests.bench.hops`: where the time of a Produce, of a Fetch that waits and of a transaction goes, by hop.

A broker serves them with a stopwatch at its hops. A hop's time is the median of its calls without the hops inside it,
times the number of its calls per exchange. The rest of the process's time is the loop's: waiting for sockets and
reading them (epoll and recv), and the work of libuv and uvloop on that. Writing to a socket is a hop. Most of it is the
kernel's time, which wakes the client meanwhile.

Figures are µs of processor time without the stopwatch's own, so other work on the machine hardly shows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from protocol.records import batch as records
from tests.bench import measures, transactions
from tests.bench.checkouts import ROOT
from tests.bench.others import ByCommand
from tests.bench.stopwatch import Stopwatch
from tests.support.ready_requests import PRODUCE_VERSION, fetch_frame, produce_frame
from tests.support.wire import Client

WARMING_UP = 500


class Exchange(NamedTuple):
    """`do`: a function of the broker's address, a topic, and the number of times."""

    title: str
    do: Callable[[str, str, int], object]
    times: int


def _woken_fetches(bootstrap: str, topic: str, times: int) -> None:
    """A Fetch waits at the log's end, and a Produce of one record wakes it."""
    batch = bytes(records.build_batch([(0, None, b"x" * measures.RECORD_BYTES, ())]))
    produced = produce_frame(topic, batch, acks=1)
    reader, writer = Client.of(bootstrap), Client.of(bootstrap)
    end = measures.end_offset(bootstrap, topic)
    for offset in range(end, end + times):
        reader.send_bytes(fetch_frame(topic, offset, measures.PARTITION_MAX_BYTES))
        writer.send_bytes(produced)
        writer.next_frame()
        reader.next_frame()
    reader.close()
    writer.close()


EXCHANGES = [
    Exchange(f"Produce v{PRODUCE_VERSION} of one record of 1 KiB", measures.single_records_raw, 5_000),
    Exchange("Fetch that waits, and the Produce that wakes it", _woken_fetches, 3_000),
    Exchange("transaction of one record, librdkafka", transactions.some, 1_000),
]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.hops", description=__doc__)
    parser.add_argument("--serve", nargs=3, metavar=("PORT", "FOLDER", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return _serve(*options.serve)
    for exchange in EXCHANGES:
        print(_table(exchange, *watched(exchange)), flush=True)
    return 0


def watched(exchange: Exchange) -> tuple[dict[str, list[int]], float, float]:
    """Return what the hops took, in ns per call, and the user and system processor time per exchange, in µs."""
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as folder:
        file = Path(folder) / "taken.json"
        command = [sys.executable, "-m", "tests.bench.hops", "--serve", "{port}", "{folder}", str(file)]
        server = ByCommand(subprocess.list2cmdline(command), Path(folder) / "data")
        server.start()
        try:
            measures.create_topic(server.bootstrap, "watched")
            exchange.do(server.bootstrap, "watched", WARMING_UP)
            before = psutil.Process(server.pid).cpu_times()
            exchange.do(server.bootstrap, "watched", exchange.times)
            after = psutil.Process(server.pid).cpu_times()
        finally:
            server.stop()
        taken, costs_ns = json.loads(file.read_text())
    user_us, system_us = (
        (getattr(after, kind) - getattr(before, kind)) / exchange.times * 1e6 for kind in ("user", "system")
    )
    calls = sum(map(len, taken.values())) / (exchange.times + WARMING_UP)
    return taken, user_us - calls * costs_ns / 1e3, system_us


def _table(exchange: Exchange, taken: dict[str, list[int]], user_us: float, system_us: float) -> str:
    whole_us = user_us + system_us
    times = exchange.times + WARMING_UP
    lines = [
        f"{exchange.title}: {whole_us:.0f} µs of the processor, {system_us / whole_us:.0%} of it the kernel's"
    ]
    known_us = 0.0
    for name, of_hop in taken.items():
        calls = len(of_hop) / times
        if calls < 0.5:
            continue
        hop_us = statistics.median(of_hop) / 1e3 * calls
        known_us += hop_us
        lines.append(f"  {name:44}{round(calls):4} ×{hop_us:8.1f} µs {hop_us / whole_us:6.0%}")
    rest_us = whole_us - known_us
    lines.append(f"  {'the loop: wait, receive':44}      {rest_us:8.1f} µs {rest_us / whole_us:6.0%}")
    return "\n".join(lines)


def _serve(port: str, folder: str, file: str) -> int:
    watch = Stopwatch()
    _place(watch)
    from broker.__main__ import main as broker

    sys.argv = ["barnabas", "--port", port, "--data", folder, "--log-level", "error"]
    status = broker()
    taken = {name: [*of_hop] for name, of_hop in watch.taken.items()}
    Path(file).write_text(json.dumps((taken, watch.costs_ns)))
    return status


def _place(watch: Stopwatch) -> None:
    """Put the stopwatch at the hops, in the order of a Produce."""
    from broker.network import connection, dispatch
    from broker.network import connection as sending_side
    from broker.replicas import append_records, fetching, leader
    from storage import disk_files
    from storage.log import partition_log

    watch.time_method("frame", connection.Connection, "buffer_updated")
    watch.time_method("header, route, context", dispatch.Dispatcher, "serve")
    _time_made(watch, dispatch.Route, "__init__", "decode", "decode")
    handlers = dispatch.with_ports
    dispatch.with_ports = lambda handle, node: watch.timed("handler", handlers(handle, node))  # type: ignore[assignment]
    watch.time_method("checks of the records", append_records, "validate")
    watch.time_method("append: offset, producer, index", partition_log.PartitionLog, "append")
    watch.time_method("write to the file", disk_files.DiskFiles, "append")
    watch.time_method("read from the file", disk_files.DiskFiles, "read")
    watch.time_method("high watermark, who waits for it", leader.Leader, "advance")
    watch.time_method("a waiting Fetch is told", fetching.DelayedFetch, "recheck")
    watch.time_method("encode", dispatch, "frame_answer")
    watch.time_method("answer that came later", connection.Connection, "_answer_is_there")
    watch.time_method("send", sending_side.SendingSide, "_write")


def _time_made(watch: Stopwatch, owner: Any, maker: str, name: str, attribute: str) -> None:
    """Time an attribute of each new instance."""
    make = getattr(owner, maker)

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        setattr(self, attribute, watch.timed(name, getattr(self, attribute)))

    setattr(owner, maker, made)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
