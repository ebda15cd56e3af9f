"""Makes the pictures of the console anew, from a broker and a scene of its own: `make pictures`.

It needs the machine's chromium.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from confluent_kafka import Consumer, Producer  # noqa: E402

import barnabas  # noqa: E402
from tests.cli.console.conftest import chromium_path, console_of  # noqa: E402
from tests.cli.transactional import without_verification  # noqa: E402
from tests.clients.transactions import new_producer  # noqa: E402

FOLDER = ROOT / "docs" / "pictures"
SIZE = {"width": 1120, "height": 700}
SCENE_S = 14.0


def main() -> None:
    """Writes them over."""
    from playwright.sync_api import sync_playwright

    FOLDER.mkdir(exist_ok=True)
    with (
        sync_playwright() as playwright,
        barnabas.Broker(config={"num.partitions": 1}) as broker,
        console_of("console", "--bootstrap", broker.bootstrap) as console,
    ):
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=["--no-sandbox"])
        holder = play(broker.bootstrap)
        page = browser.new_page(viewport=SIZE, color_scheme="light")

        def picture(
            name: str, place: str, until: str, prepare: Callable[[Any], object] = lambda _: None
        ) -> None:
            page.goto(f"{console.address}/{place}")
            page.locator(until).first.wait_for()
            prepare(page)
            page.wait_for_timeout(1_500)  # the chart has some points, what moves has come to rest
            page.screenshot(path=FOLDER / f"{name}.png")
            print(f"docs/pictures/{name}.png", (FOLDER / f"{name}.png").stat().st_size, "bytes")

        def at_ten_seconds(page: Any) -> None:
            page.get_by_label("Transactional id or partition").fill("")
            page.get_by_role("button", name="1 min").click()

        picture("console-transactions", "#/transactions", ".bar.open", at_ten_seconds)
        picture("console-log", "#/log/orders/0", "#records tbody tr")
        picture(
            "console-bytes",
            "#/log/orders/0",
            ".batch.committed",
            lambda page: (
                page.locator(".batch.committed").first.click()
                or page.locator(".bytes").scroll_into_view_if_needed()
            ),
        )
        holder.abort_transaction(60)
        browser.close()


def play(bootstrap: str) -> Producer:
    """Shops that commit, one that aborts, a billing that forgets to end, and one that nobody will ever end."""
    shops = [new_producer(bootstrap, f"shop-{number}") for number in (1, 2, 3)]
    billing = new_producer(bootstrap, "billing-1", **{"transaction.timeout.ms": 900_000})
    invoices = new_producer(bootstrap, "invoices-1")
    reader = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "warehouse", "auto.offset.reset": "earliest"}
    )
    reader.subscribe(["orders"])
    began_s = time.monotonic()
    round_ = 0
    is_open = False
    while time.monotonic() - began_s < SCENE_S:
        for number, shop in enumerate(shops):
            shop.begin_transaction()
            shop.produce(
                "orders",
                f'{{"shop": {number + 1}, "order": {round_}}}',
                key=f"shop-{number + 1}",
                partition=0,
            )
            shop.flush(60)
            time.sleep(0.15 * (number + 1))
            if number == 2 and round_ % 3 == 1:
                shop.abort_transaction(60)
            else:
                shop.commit_transaction(60)
        if round_ % 4 == 2:
            invoices.begin_transaction()
            invoices.produce("invoices", f"invoice {round_}", partition=0)
            invoices.flush(60)
            time.sleep(0.8)
            invoices.commit_transaction(60)
        if not is_open and time.monotonic() - began_s > SCENE_S / 2:
            billing.begin_transaction()
            billing.produce("orders", "billed", partition=0)
            billing.produce("invoices", "billed", partition=0)
            billing.flush(60)
            is_open = True
        reader.poll(0)
        round_ += 1
    plain = Producer({"bootstrap.servers": bootstrap})
    plain.produce("payments", "paid")
    plain.flush(60)
    with without_verification(bootstrap, "payments"):
        pass  # what it tries it out with hangs
    reader.close()
    return billing


if __name__ == "__main__":
    main()
