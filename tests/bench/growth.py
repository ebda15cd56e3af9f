"""`python -m tests.bench.growth`: what a request costs a broker that has little of something, and one that has much.

Brokers of each size run at the same time, and each exchange is measured with each of them in turn. The figure is the
broker's processor time, including the kernel's for it: it doesn't include waiting, and other processes hardly change
it. Nothing that a request touches may grow with what doesn't concern it, so the lines of the plot should be level.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.bench import measures, transactions
from tests.bench.checkouts import ROOT, OfCheckout, compile_checkout
from tests.bench.clusters import Nodes, ours
from tests.bench.grown import AXES, OF_GROUPS, commit, find_coordinator, insist
from tests.support.ready_requests import fetch_frame
from tests.support.wire import Client

TOPIC = "measured"
BROKERS = "brokers"
CLUSTERS = (1, 3, 5)

Do = Callable[[str, str, int], object]
Curves = dict[str, dict[int, list[float]]]
"""The µs of each round by exchange and size."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What is done, and how many times."""

    title: str
    do: Do
    times: int


@dataclass(frozen=True, slots=True)
class Measured:
    """A broker to measure: its address and its process."""

    bootstrap: str
    pid: int


def _fetch(bootstrap: str, topic: str, times: int) -> None:
    """Fetch the batch in the middle of the log, again and again."""
    frame = fetch_frame(topic, measures.end_offset(bootstrap, topic) // 2, 1)
    with Client.of(bootstrap) as client:
        for _ in range(times):
            client.send_bytes(frame)
            client.next_frame()


def _metadata(bootstrap: str, topic: str, times: int) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    with Client.of(bootstrap) as client:
        for _ in range(times):
            client.ask(request, 12)


def _commit(bootstrap: str, topic: str, times: int) -> None:
    """Commit for a group without members: a consumer would also read the partition."""
    request = commit("committing", topic)
    with Client.of(bootstrap) as client:
        find_coordinator(client, OF_GROUPS)
        insist(lambda: client.ask(request, 8).topics[0].partitions[0].error_code)
        for _ in range(times):
            client.ask(request, 8)


EXCHANGES = {
    "produce": Exchange("Produce of one record", measures.single_records_raw, 3_000),
    "fetch": Exchange("Fetch of one batch", _fetch, 3_000),
    "metadata": Exchange("Metadata of one topic", _metadata, 3_000),
    "commit": Exchange("OffsetCommit of one partition", _commit, 3_000),
    "transaction": Exchange("transaction of one record", transactions.some, 800),
}
WITHOUT_COORDINATORS = ("produce", "fetch", "metadata")
"""The exchanges that are measured in a cluster, where a coordinator may be any broker."""


def main() -> int:
    options = _options()
    compile_checkout(ROOT)
    curves: dict[str, Curves] = {}
    load = {"before": os.getloadavg()}
    for key in options.only:
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="barnabas-growth-") as folder:
            curves[key] = _of_axis(key, Path(folder), options.rounds, options.smaller)
        _print(key, curves[key])
    load["after"] = os.getloadavg()
    print("load of the machine in 1, 5 and 15 minutes", *(f"{when} {each}" for when, each in load.items()))
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / f"growth-{time.strftime('%Y%m%d-%H%M%S')}.json"
    file.write_text(json.dumps({"load": load, "us": curves}, indent=2) + "\n")
    print(f"Every figure is in {file}.")
    if options.plot:
        _plot(curves, options.plot)
        print(f"The plot is in {options.plot}.")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.growth", description=__doc__)
    keys = [*AXES, BROKERS]
    parser.add_argument("--only", nargs="+", choices=keys, metavar="AXIS", default=keys, help=", ".join(keys))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--smaller", action="store_true", help="without the largest size of each")
    parser.add_argument("--folder", type=Path, help="where the data goes")
    parser.add_argument("--output", type=Path, default=Path(".benchmarks"), help="where the JSON file goes")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the curves (with matplotlib)")
    return parser.parse_args()


def _title(key: str) -> str:
    return AXES[key].title if key in AXES else "brokers in the cluster"


# --- measuring ------------------------------------------------------------------------------------------------


def _of_axis(key: str, folder: Path, rounds: int, smaller: bool) -> Curves:
    sizes = AXES[key].sizes if key in AXES else CLUSTERS
    exchanges = WITHOUT_COORDINATORS if key == BROKERS else tuple(EXCHANGES)
    sizes = sizes[:-1] if smaller else sizes
    curves: Curves = {exchange: {size: [] for size in sizes} for exchange in exchanges}
    with contextlib.ExitStack() as stack:
        brokers = {size: stack.enter_context(_broker(key, folder / str(size), size)) for size in sizes}
        for number in range(rounds + 1):  # the first one warms up
            for exchange in exchanges:
                for size in [*brokers][:: -1 if number % 2 else 1]:
                    took_us = _measure(brokers[size], EXCHANGES[exchange])
                    if number:
                        curves[exchange][size].append(took_us)
    return curves


@contextlib.contextmanager
def _broker(key: str, folder: Path, size: int) -> Iterator[Measured]:
    """Run a broker of that size."""
    began_s = time.monotonic()
    with contextlib.ExitStack() as stack:
        if key == BROKERS:
            measured = stack.enter_context(_in_a_cluster(folder, size))
        else:
            server = OfCheckout(ROOT, folder)
            stack.enter_context(server)
            measures.create_topic(server.bootstrap, TOPIC)
            for client in AXES[key].grow(server, TOPIC, size):
                stack.enter_context(client)
            measured = Measured(server.bootstrap, server.pid)
        print(f"{size:,} {_title(key)}: there in {time.monotonic() - began_s:.1f} s", flush=True)
        yield measured


@contextlib.contextmanager
def _in_a_cluster(folder: Path, size: int) -> Iterator[Measured]:
    """Yield the broker that leads the topic, which has one replica. Each other broker leads a topic of its own."""
    nodes = Nodes(folder, ours, brokers=tuple(range(2, 2 + size)))
    try:
        nodes.start()
        admin = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
        deadline_s = time.monotonic() + measures.PATIENCE_S
        while len(admin.list_topics(timeout=measures.PATIENCE_S).brokers) < size:
            assert time.monotonic() < deadline_s, "brokers are missing"
            time.sleep(0.05)
        topics = [
            NewTopic(f"{TOPIC}-{node_id}" if number else TOPIC, 1, replica_assignment=[[node_id]])
            for number, node_id in enumerate(nodes.ports)
        ]
        for created in admin.create_topics(topics).values():
            created.result(measures.PATIENCE_S)
        leader, port = next(iter(nodes.ports.items()))
        yield Measured(f"127.0.0.1:{port}", nodes.processes[leader].pid)
    finally:
        nodes.end()


def _measure(broker: Measured, exchange: Exchange) -> float:
    """Return the µs of the broker's processor time per exchange."""
    before_ns = _processor_ns(broker.pid)
    exchange.do(broker.bootstrap, TOPIC, exchange.times)
    return (_processor_ns(broker.pid) - before_ns) / exchange.times / 1e3


def _processor_ns(pid: int) -> int:
    """Return the time of all its threads, finer than the ticks of /proc/PID/stat."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


# --- reporting ------------------------------------------------------------------------------------------------


def _print(key: str, curves: Curves) -> None:
    sizes = [*next(iter(curves.values()))]
    print(f"\n{_title(key):40}" + "".join(f"{size:>12,}" for size in sizes))
    for exchange, by_size in curves.items():
        medians = [statistics.median(by_size[size]) for size in sizes]
        cells = "".join(f"{median:12,.1f}" for median in medians)
        print(f"{EXCHANGES[exchange].title + ' (µs)':40}{cells}{medians[-1] / medians[0]:8.2f}×", flush=True)
    print()


def _plot(curves: Mapping[str, Curves], path: Path) -> None:
    """Draw a panel for each thing that grows."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 8, "font.family": "DejaVu Sans", "axes.edgecolor": "#bbbbbb"})
    columns = min(4, len(curves))
    rows = -(-len(curves) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(2.9 * columns, 2.5 * rows), sharey=True, squeeze=False
    )
    for panel in axes.flat[len(curves) :]:
        panel.axis("off")
    for panel, (key, of_axis) in zip(axes.flat, curves.items(), strict=False):
        panel.set_title(_title(key), fontsize=8, loc="left")
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.grid(axis="y", color="#eeeeee")
        panel.spines[["top", "right"]].set_visible(False)
        for exchange, by_size in of_axis.items():
            medians = [statistics.median(figures) for figures in by_size.values()]
            panel.plot(
                [*by_size], medians, marker="o", markersize=2.5, linewidth=1, label=EXCHANGES[exchange].title
            )
    for row in axes:
        row[0].set_ylabel("µs of the broker's processor")
    handles, labels = max(
        (panel.get_legend_handles_labels() for panel in axes.flat), key=lambda each: len(each[1])
    )
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), frameon=False)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    sys.exit(main())
