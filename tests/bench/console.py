"""What the console costs, and how fast it is: `make bench-console`.

It measures the page's size; how soon it is painted with 1,000 topics; how soon it shows a transaction that begins, one
that is committed, and an appended record; and the broker's processor time while pages are open, idle and under load.
With `--bootstrap` only the speed is measured, on another Kafka. `--full` only measures what a busy broker loses by a
page and by being scraped for metrics, beside one that has neither. No browser draws that page: it would take its part
of the same machine.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import barnabas
from cli.console.app import STATIC
from tests.bench import measures, transactions
from tests.bench.checkouts import ROOT, OfCheckout
from tests.bench.watched import Watched
from tests.cli.console.conftest import chromium_path, console_of
from tests.cli.transactional import plain, send_at_once, send_each
from tests.clients.transactions import new_producer

TOPICS = 1_000
ROUNDS = 20
IDLE_S = 10.0
LOAD_S = 8.0
RATE = 100_000
TURN_S = 0.02
PAIRS = 3
FULL_ROUNDS = 5
SEEN = """
addEventListener("DOMContentLoaded", () => {
  window.seen = {};
  const look = () => {
    if (!window.seen.topics && document.querySelector("table.lines tbody th a")) window.seen.topics = performance.now();
    for (const bar of document.querySelectorAll(".bar")) {
      const key = `${bar.getAttribute("href")} ${bar.className}`;
      window.seen[key] ||= Date.now();
    }
    const end = document.querySelector("#end");
    if (end) window.seen[`end ${end.textContent}`] ||= Date.now();
  };
  new MutationObserver(look).observe(document.documentElement, { subtree: true, childList: true, characterData: true, attributes: true });
});
"""  # noqa: E501


def main() -> None:
    """Measure, and print the results line by line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", help="another Kafka, of which the quickness alone is measured")
    parser.add_argument("--cost", action="store_true", help="measure nothing but what the broker pays")
    parser.add_argument("--full", action="store_true", help="measure a broker that does as much as it can")
    options = parser.parse_args()
    if options.full:
        _full()
        return
    from playwright.sync_api import sync_playwright

    total = sum(path.stat().st_size for path in STATIC.rglob("*") if path.is_file())
    print(f"page: {total:,} bytes with all licences")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=["--no-sandbox"])
        with _kafka(options.bootstrap) as (bootstrap, pid):
            _topics(bootstrap)
            if not options.cost:
                _paint(browser, bootstrap)
                _latency(browser, bootstrap)
            if pid is not None:
                _idle(browser, bootstrap, psutil.Process(pid))
                _load(browser, bootstrap, psutil.Process(pid))
        browser.close()


@contextlib.contextmanager
def _kafka(bootstrap: str | None) -> Iterator[tuple[str, int | None]]:
    if bootstrap is not None:
        yield bootstrap, None
        return
    with barnabas.Broker() as broker:
        yield broker.bootstrap, broker.pid


def _topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(f"topic-{number:04d}", 1, 1) for number in range(TOPICS)]
    for future in admin.create_topics(topics, request_timeout=120).values():
        with contextlib.suppress(Exception):  # some exist already
            future.result(120)


def _page(browser: Any, url: str) -> Any:
    page = browser.new_context(bypass_csp=True).new_page()  # to evaluate the conditions to wait for
    page.add_init_script(SEEN)
    page.goto(url)
    return page


def _paint(browser: Any, bootstrap: str) -> None:
    found: dict[str, list[tuple[float, float]]] = {"just started": [], "while another page is open": []}
    for _ in range(5):
        with console_of("console", "--bootstrap", bootstrap) as console:
            for name, times in found.items():
                page = _page(browser, f"{console.address}/#/topics")
                page.wait_for_function("window.seen && window.seen.topics")
                paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
                times.append((paint, page.evaluate("window.seen.topics")))
                if name == "while another page is open":
                    page.context.close()
    for name, times in found.items():
        paint, topics = (statistics.median(each) for each in zip(*times, strict=True))
        print(f"{TOPICS:,} topics, a console {name}: first paint {paint:.0f} ms, the list {topics:.0f} ms")


def _latency(browser: Any, bootstrap: str) -> None:
    topic = f"latency-{time.time_ns()}"
    send_each(plain(bootstrap), topic, "a")
    began, ended, appended = [], [], []
    with console_of("console", "--bootstrap", bootstrap) as console:
        lanes = _page(browser, f"{console.address}/#/transactions")
        log = _page(browser, f"{console.address}/#/log/{topic}/0")
        log.wait_for_function("document.querySelector('#end')?.textContent === '1'")
        name = f"{topic}-watched"
        producer = new_producer(bootstrap, name)
        end = 1
        for _ in range(ROUNDS):
            producer.begin_transaction()
            send_at_once(producer, topic, "a")
            at_ms = time.time() * 1000
            end += 1
            began.append(_seen(lanes, f"{name}", "open") - at_ms)
            appended.append(_value(log, f"end {end}") - at_ms)
            producer.commit_transaction(60)
            at_ms = time.time() * 1000
            end += 1
            ended.append(_seen(lanes, f"{name}", "committed") - at_ms)
            lanes.evaluate("window.seen = {}")
    for what, times in (("begun", began), ("committed", ended)):
        print(f"a transaction that is {what} is seen after {_spread(times)}")
    print(f"a record is seen after {_spread(appended)}")


def _seen(page: Any, name: str, fate: str) -> float:
    find = (
        "([name, fate]) => { const found = Object.entries(window.seen).filter(([key]) => key.includes(name) &&"
        " key.endsWith(`bar ${fate}`) && !window.past?.[key]); if (!found.length) return null;"
        " (window.past ||= {})[found[0][0]] = true; return found[0][1]; }"
    )
    return float(page.wait_for_function(find, arg=[name, fate], polling=20).json_value())


def _value(page: Any, key: str) -> float:
    return float(page.wait_for_function("key => window.seen[key]", arg=key, polling=20).json_value())


def _spread(times: list[float]) -> str:
    ordered = sorted(times)
    return f"{statistics.median(ordered):.0f} ms (median of {len(ordered)}), {ordered[-1]:.0f} ms at most"


def _idle(browser: Any, bootstrap: str, broker: psutil.Process) -> None:
    for view in (None, "transactions", "topics", "log/topic-0000/0"):
        with contextlib.ExitStack() as stack:
            if view is not None:
                console = stack.enter_context(console_of("console", "--bootstrap", bootstrap))
                page = _page(browser, f"{console.address}/#/{view}")
                stack.callback(page.context.close)
                page.wait_for_timeout(3_000)
            before = _spent(broker)
            time.sleep(IDLE_S)
            share = (_spent(broker) - before) / IDLE_S
            what = f"a page of {view}" if view else "no console"
            print(f"the broker, idle, {TOPICS:,} topics, {what}: {100 * share:.2f} % of a core")


def _load(browser: Any, bootstrap: str, broker: psutil.Process) -> None:
    """Measure in turns with and without a page, because others use the machine, too."""
    found: dict[bool, list[float]] = {False: [], True: []}
    with console_of("console", "--bootstrap", bootstrap) as console:
        for _ in range(PAIRS):
            for is_open in (False, True):
                page = _page(browser, f"{console.address}/#/transactions") if is_open else None
                if page is not None:
                    page.wait_for_timeout(2_000)
                found[is_open].append(_spent_on(bootstrap, broker))
                if page is not None:
                    page.context.close()
                    time.sleep(1)
    for is_open, costs in found.items():
        what = "with a page of transactions open" if is_open else "with none open"
        share = 100 * statistics.median(costs)
        print(f"{RATE:,} records/s, {what}: {share:.1f} % of a core for the broker")


def _spent_on(bootstrap: str, broker: psutil.Process) -> float:
    """Return the broker's share of a core while records come at a steady rate."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 500_000}
    )
    value = b"x" * 200
    before, began_s = _spent(broker), time.monotonic()
    for turn in range(round(LOAD_S / TURN_S)):
        for _ in range(round(RATE * TURN_S)):
            producer.produce("topic-0001", value)
        producer.poll(0)
        time.sleep(max(0.0, began_s + (turn + 1) * TURN_S - time.monotonic()))
    producer.flush(60)
    return (_spent(broker) - before) / (time.monotonic() - began_s)


TRANSACTIONS, LOG = "brokers,held,lanes,events", "brokers,held,lanes,log:full:0"
FULL: dict[str, tuple[str, int, Callable[[str, str], object]]] = {
    "requests of one record each": (TRANSACTIONS, 2, measures.single_records_raw),
    "batches of a client library": (TRANSACTIONS, 8, measures.produce_with_confluent),
    "batches of a client library, into the log that is shown": (LOG, 8, measures.produce_with_confluent),
    "transactions, 8 at a time": (TRANSACTIONS, 2, transactions.eight_producers),
}
"""Which sections the page shows, and what is done meanwhile, how many times."""
_READER = """
import sys, urllib.request
with urllib.request.urlopen(sys.argv[1]) as answer:
    while answer.read(65536):
        pass
"""


def _full() -> None:
    """Measure pace and processor time of a broker with metrics scraped and a page open, beside one without both. They
    take turns, because others use the machine, too. The console's process takes its part of the machine."""
    with (
        tempfile.TemporaryDirectory() as folder,
        OfCheckout(ROOT, Path(folder, "plain")) as plain,
        Watched(ROOT, Path(folder, "watched")) as watched,
        console_of("console", "--bootstrap", watched.bootstrap) as console,
    ):
        for title, (sections, times, do) in FULL.items():
            paces, costs = [], []
            for _ in range(FULL_ROUNDS):
                took_s, spent_s = {}, {}
                for broker in (plain, watched):
                    with contextlib.ExitStack() as stack:
                        measures.create_topic(broker.bootstrap, "full")
                        stack.callback(measures.delete_topic, broker.bootstrap, "full")
                        if broker is watched:
                            stack.enter_context(_open(f"{console.address}/api/live?want={sections}"))
                        before_s, began_s = measures.processor_s(broker.pid), time.perf_counter()
                        for _ in range(times):
                            do(broker.bootstrap, "full")
                        took_s[broker] = time.perf_counter() - began_s
                        spent_s[broker] = measures.processor_s(broker.pid) - before_s
                paces.append(took_s[plain] / took_s[watched])
                costs.append(spent_s[watched] / spent_s[plain])
            print(
                f"{title}, with a page and metrics: {statistics.median(paces):.3f} of the pace,"
                f" {statistics.median(costs):.3f} times the broker's processor time"
                f" ({FULL_ROUNDS} pairs: {_range(paces)}; {_range(costs)})",
                flush=True,
            )


@contextlib.contextmanager
def _open(url: str) -> Iterator[None]:
    reader = subprocess.Popen([sys.executable, "-c", _READER, url])
    try:
        time.sleep(1.5)
        yield
    finally:
        reader.kill()
        reader.wait()


def _range(found: list[float]) -> str:
    return f"{min(found):.3f} to {max(found):.3f}"


def _spent(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
