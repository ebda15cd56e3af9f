"""The console in a real browser: what a person sees and does, and what attackers can't make the page do."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import barnabas
from cli.console.app import FIRST_OF_A_LIST, MOST_PAGES
from cli.console.records import SEARCHED_BYTES
from protocol.wire.primitives import encode_varint
from tests.cli.conftest import ON_OURS_ALONE, Kafka, Run
from tests.cli.console.asking import Asking
from tests.cli.console.conftest import OpenPage, console_of
from tests.cli.transactional import (
    aborted,
    commit,
    committed,
    inserted,
    plain,
    send_at_once,
    send_each,
    without_verification,
)
from tests.clients.transactions import new_producer
from tests.support import kafka_folders

PATIENCE_MS = 30_000
SCRIPT = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"


def expect(found: Any) -> Any:
    from playwright.sync_api import expect as of_playwright

    of_playwright.set_options(timeout=PATIENCE_MS)
    return of_playwright(found)


def bar(page: Any, transactional_id: str, fate: str) -> Any:
    lane = page.locator(".lane", has=page.get_by_text(transactional_id, exact=True))
    return lane.locator(f".bar.{fate}")


@pytest.mark.several_nodes_matter
def test_a_transaction_is_watched_from_its_begin_to_its_marker(
    cli: Run, kafka: Kafka, console: Asking, topic: str, open_page: OpenPage
) -> None:
    assert cli("topics", "create", topic, "-p", 1, "-r", kafka.brokers).status == 0
    name = f"{topic}-watched"
    page = open_page(f"{console.address}/#/transactions")
    partition = open_page(f"{console.address}/#/log/{topic}/0")
    expect(partition.locator("#end")).to_have_text("0")
    producer = new_producer(kafka.bootstrap, name)
    producer.begin_transaction()
    send_at_once(producer, topic, "ab")
    expect(bar(page, name, "open")).to_have_count(1)
    expect(page.locator(f"section[aria-label='Readers of {topic}-0 wait']")).to_contain_text(name)
    expect(partition.locator("#end")).to_have_text("2")
    expect(partition.locator("#stable")).to_have_text("0")
    expect(partition.locator(".batch.open")).not_to_have_count(0)
    expect(partition.locator(".waiting")).to_contain_text(f"{name} open")

    producer.commit_transaction(60)

    expect(bar(page, name, "committed")).to_have_count(1)
    expect(page.locator(f"section[aria-label='Readers of {topic}-0 wait']")).to_have_count(0)
    expect(partition.locator("#stable")).to_have_text("3")
    expect(partition.locator(".batch.commit")).to_have_text("C")
    expect(partition.locator(".batch.open")).to_have_count(0)
    # back in time: the marker isn't there yet, and readers wait
    partition.locator("#back").click()
    expect(partition.locator("#stable")).to_have_text("0")
    expect(partition.locator(".batch.commit")).to_have_count(0)
    expect(partition.locator("main")).to_contain_text("readers of committed records waited for producer id")
    partition.locator("#forth").click()
    expect(partition.locator("#stable")).to_have_text("3")
    # the bytes of its batch, and the records that stand for it
    partition.locator(".batch.committed").first.click()
    expect(partition.locator("#fields")).to_contain_text("transactional")
    expect(partition.locator("#fields")).to_contain_text("the CRC-32C of all that follows: right")
    partition.locator(".bytes").get_by_role("link", name=re.compile("CompleteCommit")).click()
    expect(partition.get_by_role("heading", level=1)).to_contain_text("__transaction_state")
    expect(partition.locator(".bytes")).to_contain_text(name)
    expect(partition.locator(".bytes pre").first).to_contain_text('"state": "CompleteCommit"')


def test_the_application_that_holds_back_a_topics_readers_is_seen_among_busy_ones(
    open_page: OpenPage,
) -> None:
    """A new user asks: which application blocks the readers of `orders`, since when, and what can I do about it? That
    application is shown before those that hold readers for a moment, and only once however many partitions it holds.
    It has a lane however much was written since."""
    one_partition = {"transaction.state.log.num.partitions": 1}
    with (
        barnabas.Broker(config=one_partition) as broker,
        console_of("console", "--bootstrap", broker.bootstrap) as console,
    ):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topics = [NewTopic("orders", 6, 1), NewTopic("invoices", 1, 1)]
        for future in admin.create_topics(topics).values():
            future.result(60)
        holder = new_producer(broker.bootstrap, "inventory-sync")
        holder.begin_transaction()
        for partition in range(6):
            holder.produce("orders", b"v", partition=partition)
        assert holder.flush(60) == 0
        busy = new_producer(broker.bootstrap, "billing")
        for _ in range(FIRST_OF_A_LIST):
            busy.begin_transaction()
            send_at_once(busy, "invoices", "a")
            busy.commit_transaction(60)
        busy.begin_transaction()
        send_at_once(busy, "invoices", "a")
        page = open_page(f"{console.address}/#/transactions")
        lines = page.locator(".held li")
        expect(lines).to_have_count(2)
        holds = re.compile(
            "inventory-sync open holds the readers of orders-0, orders-1, orders-2, orders-3 and 2 more since"
        )
        expect(lines.first).to_have_text(holds)
        expect(lines.last).to_contain_text("billing open holds the readers of invoices-0 since")
        expect(page.locator("#held section").first).to_contain_text("orders-")
        expect(bar(page, "inventory-sync", "open")).to_have_count(1)
        busy.commit_transaction(60)
        expect(lines).to_have_count(1)
        lines.first.get_by_role("link", name="inventory-sync").click()
        expect(page.locator("#state")).to_have_text("Ongoing")
        expect(page.locator(".waiting").first).to_contain_text("stop or restart the application")
        expect(page.get_by_role("button", name="Abort…").first).to_be_visible()
        page.get_by_role("link", name="Topics", exact=True).click()
        page.get_by_role("link", name="orders", exact=True).click()
        expect(page.locator(".held li")).to_have_text(holds)


LEAVE_AND_ASK_AT_ONCE = """async ([section, label]) => {
    document.querySelector("dialog .leave").click();
    await new Promise((drawn) => setTimeout(drawn)); // without what comes behind the paint
    const buttons = document.querySelectorAll(`section[aria-label='${section}'] button`);
    [...buttons].find((each) => each.textContent === label).click();
}"""


@pytest.mark.several_nodes_matter
def test_a_hanging_transaction_is_found_explained_and_aborted(
    cli: Run, kafka: Kafka, console: Asking, topic: str, open_page: OpenPage
) -> None:
    assert cli("topics", "create", topic, "-p", 1, "-r", kafka.brokers).status == 0
    with without_verification(kafka.bootstrap, topic):
        assert inserted(kafka.bootstrap, topic, 4_713) == 0
    page = open_page(f"{console.address}/#/topics")
    page.get_by_role("link", name=re.compile("Transactions")).click()
    waiting = page.locator(f"section[aria-label='Readers of {topic}-0 wait']")
    for left in (2, 1):  # one is from `without_verification`
        expect(waiting.locator("li")).to_have_count(left)
        expect(waiting).to_contain_text("It hangs: no coordinator knows producer id")
        waiting.get_by_role("button", name="Abort…").first.click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text(f"in {topic}-0 that starts at")
        page.evaluate(LEAVE_AND_ASK_AT_ONCE, [f"Readers of {topic}-0 wait", "Abort…"])
        expect(dialog).to_contain_text(f"in {topic}-0 that starts at")
        expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        dialog.get_by_role("button", name="Abort the transaction").click()
        expect(dialog).to_contain_text("is aborted")
        dialog.get_by_role("button", name="Close").click()
        expect(dialog).to_have_count(0)
    expect(waiting).to_have_count(0)
    assert cli("transactions", "explain", topic, "--json").json()["waiting"] == []


@ON_OURS_ALONE
def test_a_record_written_after_its_marker_is_found_hanging_though_its_application_is_done(
    cli: Run, kafka: Kafka, console: Asking, topic: str, open_page: OpenPage
) -> None:
    """The lane of its transactional id shows everything committed, and its coordinator has nothing open."""
    assert cli("topics", "create", topic, "-p", 2, "-r", kafka.brokers).status == 0
    name = f"{topic}-late"
    producer = new_producer(kafka.bootstrap, name)
    producer.begin_transaction()
    producer.produce(topic, b"in time", partition=1)
    assert producer.flush(60) == 0
    producer.commit_transaction(60)
    known = [each for each in cli("transactions", "--json").json() if each["transactional_id"] == name]
    page = open_page(f"{console.address}/#/transactions")
    expect(bar(page, name, "committed")).to_have_count(1)
    with without_verification(kafka.bootstrap, topic):
        producer_id, epoch = known[0]["producer_id"], known[0]["producer_epoch"]
        assert inserted(kafka.bootstrap, topic, producer_id, epoch=epoch) == 0

    waiting = page.locator(f"section[aria-label='Readers of {topic}-0 wait'] li", has_text=name)
    expect(waiting).to_contain_text("its coordinator doesn't have this partition in the transaction")
    expect(page.locator("#nobody-waits")).to_have_count(0)
    for each in console.api("explain", topic=topic)["waiting"][0]["transactions"]:
        asked = {"topic": topic, "partition": 0, "start_offset": each["start_offset"]}
        seen = console.post("abort", asked).json()["seen"]
        console.post("abort", {**asked, "seen": seen, "execute": True}).json()
    expect(waiting).to_have_count(0)


@ON_OURS_ALONE
def test_the_contents_of_a_record_stay_text(
    kafka: Kafka, console: Asking, topic: str, open_page: OpenPage
) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, SCRIPT, key=SCRIPT, headers={"<b>name</b>": SCRIPT.encode()})
    assert producer.flush(60) == 0
    commit(kafka, "<i>group</i>", topic, 0)
    page = open_page(f"{console.address}/#/log/{topic}/0")
    expect(page.locator("#records")).to_contain_text(SCRIPT)
    page.locator(".batch").first.click()
    expect(page.locator("#fields")).to_contain_text("<script>document.title=")
    assert page.locator("main script, main img, main b:text('name')").count() == 0
    page.goto(f"{console.address}/#/group/{'%3Ci%3Egroup%3C%2Fi%3E'}")
    expect(page.get_by_role("heading", level=1)).to_have_text("<i>group</i>")
    expect(page.locator("#lag")).to_contain_text(topic)
    assert page.title() != "taken"
    assert page.locator("main i").count() == 0


@ON_OURS_ALONE
def test_names_that_clients_choose_are_text_lead_to_their_pages_and_fit(
    kafka: Kafka, console: Asking, topic: str, open_page: OpenPage
) -> None:
    """Transactional ids may be any text. One of 3,000 letters made the page 27,000 pixels wide."""
    names = [f"{topic}{end}" for end in (SCRIPT, "%zz/../?#&,:", "x" * 3_000, "\u202eabc", "/__proto__")]
    producers = []
    for name in names:
        producer = new_producer(kafka.bootstrap, name)
        producer.begin_transaction()
        send_at_once(producer, topic, "a")
        producers.append(producer)
    page = open_page(f"{console.address}/#/transactions")
    page.get_by_label("Transactional id or partition").fill(topic)
    links = page.locator("#transactions tbody th a")
    expect(links).to_have_count(len(names))
    held = page.locator("#held .waiting li").filter(has_text=topic)  # others may hold readers meanwhile
    expect(held).to_have_count(len(names))
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    for link in [each.get_attribute("href") for each in links.all()]:
        page.goto(f"{console.address}/{link}")
        expect(page.locator("#state")).to_have_text("Ongoing")
        assert page.get_by_role("heading", level=1).inner_text() in names
        assert page.locator("main script, main img").count() == 0
    for producer in producers:
        producer.abort_transaction(60)


@ON_OURS_ALONE
def test_everything_is_reached_by_keyboard(
    cli: Run, kafka: Kafka, console: Asking, topic: str, open_page: OpenPage
) -> None:
    send_each(plain(kafka.bootstrap), topic, "abc")
    page = open_page(f"{console.address}/#/transactions")
    expect(page.get_by_role("heading", name="Transactions", exact=True)).to_be_visible()

    def tab_to(what: Any) -> None:
        for _ in range(200):
            page.keyboard.press("Tab")
            if what.count() and what.first.evaluate("it => it === document.activeElement"):
                return
        raise AssertionError(f"no tab stop: {what}")

    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    tab_to(page.get_by_role("link", name="Topics", exact=True))
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    tab_to(page.get_by_role("searchbox"))
    page.keyboard.type(topic)
    expect(page.get_by_role("link", name=topic, exact=True)).to_be_visible()
    tab_to(page.get_by_role("link", name=topic, exact=True))
    page.keyboard.press("Enter")
    tab_to(page.get_by_role("link", name=f"{topic}-0"))
    page.keyboard.press("Enter")
    expect(page.locator(".batch")).to_have_count(3)
    tab_to(page.locator(".batch"))
    page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".batch").nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".bytes")).to_be_focused()
    expect(page.locator(".bytes h2")).to_contain_text("Batch 1 to 1")
    tab_to(page.get_by_label("Before offset"))
    page.keyboard.type("2")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text(f"Delete offsets 0 to 1 of {topic}-0")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    tab_to(page.get_by_label("Before offset"))
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    expect(dialog.get_by_role("button", name="Delete the records")).to_be_enabled()
    page.keyboard.press("Shift+Tab")
    expect(dialog.get_by_role("button", name="Delete the records")).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text(f"{topic}-0 now starts at 2")
    assert cli("topics", topic, "--json").json()[0]["start"] == 2


@ON_OURS_ALONE
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    cli: Run, kafka: Kafka, console: Asking, topic: str, open_page: OpenPage, scheme: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    send_each(plain(kafka.bootstrap), topic, "ab")
    aborted(kafka.bootstrap, topic, f"{topic}-aborted", "kl")
    committed(kafka.bootstrap, topic, f"{topic}-committed", "de")
    commit(kafka, topic, topic, 1)
    holder = new_producer(kafka.bootstrap, f"{topic}-holder")
    holder.begin_transaction()
    send_at_once(holder, topic, "fg")
    page = open_page(f"{console.address}/#/transactions", color_scheme=scheme, bypass_csp=True)
    expect(bar(page, f"{topic}-holder", "open")).to_have_count(1)
    expect(bar(page, f"{topic}-committed", "committed")).to_have_count(1)
    (lane,) = (link.get_attribute("href") for link in bar(page, f"{topic}-committed", "committed").all())
    views = {
        "#/transactions": page.locator(".waiting").first,
        lane: page.locator("#steps"),
        "#/topics": page.get_by_role("link", name=topic, exact=True),
        f"#/topic/{topic}": page.locator("#partitions"),
        f"#/log/{topic}/0?at=3": page.locator("#fields"),
        "#/groups": page.get_by_role("link", name=topic, exact=True),
        f"#/group/{topic}": page.locator("#lag"),
        "#/clients": page.locator("#no-listener"),
        "#/cluster": page.locator("#brokers"),
        "#/rights": page.get_by_role("heading", name="Access control lists"),
    }
    found = []
    for view, sign in views.items():
        page.goto(f"{console.address}/{view}")
        if view in ("#/topics", "#/groups"):  # of a long list only the visible part is built
            page.get_by_label("Filter").fill(topic)
        expect(sign).to_be_visible()
        if view.startswith("#/log"):
            expect(page.locator("#records tbody tr").first).to_be_visible()
        violations = Axe().run(page).response["violations"]
        found += [
            (view, each["id"], [node["html"][:200] for node in each["nodes"][:3]])
            for each in violations
            if each["impact"] in ("serious", "critical")
        ]
    holder.abort_transaction(60)
    assert found == []


def test_of_a_thousand_topics_the_page_builds_only_the_visible_ones(open_page: OpenPage) -> None:
    with (
        barnabas.Broker(config={"num.partitions": 1}) as broker,
        console_of("console", "--bootstrap", broker.bootstrap) as console,
    ):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        names = [f"topic-{number:04d}" for number in range(1_000)]
        for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            future.result(60)
        page = open_page(f"{console.address}/#/topics")
        expect(page.locator("#count")).to_have_text("1,000 topics")
        assert page.locator("tbody tr").count() < 100
        page.locator(".scrolls").evaluate("box => box.scrollTo(0, box.scrollHeight)")
        expect(page.get_by_role("link", name="topic-0999")).to_be_visible()
        assert page.locator("tbody tr").count() < 100
        page.get_by_role("searchbox").fill("topic-05")
        expect(page.locator("#count")).to_have_text("100 topics")
        page.get_by_role("button", name=re.compile("^Topic")).click()
        expect(page.locator("tbody th a").first).to_have_text("topic-0599")


@ON_OURS_ALONE
def test_values_are_shown_as_text_json_hexadecimal_and_avro(
    kafka: Kafka, console: Asking, topic: str, open_page: OpenPage
) -> None:
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "what", "type": ["null", "string"]},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["OLD", "NEW"]}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "price", "type": "double"},
        ],
    }
    order = encode_varint(2_254_643_456) + bytes.fromhex("020c") + b"flower" + bytes.fromhex("02040261026200")
    order += bytes.fromhex("000000000000f83f")
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for value in (b'{"a": [1, 2]}', b"plain", b"\xff\x00\x01", b"\0\0\0\0\x07" + order, order):
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0
    page = open_page(f"{console.address}/#/log/{topic}/0")
    values = page.locator("#records tbody tr td:nth-child(4)")
    expect(values).to_have_count(5)
    assert json.loads(values.nth(0).inner_text()) == {"a": [1, 2]}
    expect(values.nth(1)).to_have_text("plain")
    expect(values.nth(2)).to_have_text("ff 00 01")
    page.locator("label", has_text=re.compile("^As")).locator("select").select_option("hex")
    expect(values.nth(1)).to_have_text("70 6c 61 69 6e")
    page.locator("label", has_text=re.compile("^As")).locator("select").select_option("Avro")
    expect(values.nth(1)).to_have_text("(no schema given)")
    page.get_by_label("Avro schema of the values (JSON)").fill(json.dumps(schema))
    said = {"id": 2_254_643_456, "what": "flower", "kind": "NEW", "tags": ["a", "b"], "price": 1.5}
    expect(values.nth(4)).to_contain_text("flower")
    assert json.loads(values.nth(3).inner_text()) == json.loads(values.nth(4).inner_text()) == said
    expect(values.nth(1)).to_contain_text("not of this schema")


@ON_OURS_ALONE
def test_json_is_shown_with_every_digit_that_it_has(
    kafka: Kafka, console: Asking, topic: str, open_page: OpenPage
) -> None:
    value = r'{"id":12345678901234567890,"price":1.10,"empty":[{},[]],"te\"xt":"a, {b}: \\\"","2":0,"1":0}'
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0
    page = open_page(f"{console.address}/#/log/{topic}/0")
    expect(page.locator("#records tbody tr")).to_have_count(1)
    said = page.locator("#records tbody tr td:nth-child(4)").inner_text()
    assert json.loads(said) == json.loads(value)
    assert said.splitlines()[1:4] == [' "id": 12345678901234567890,', ' "price": 1.10,', ' "empty": [']


@ON_OURS_ALONE
def test_a_hidden_page_lets_its_stream_go_and_a_refused_page_asks_again(
    console: Asking, open_page: OpenPage
) -> None:
    """Six pages of one browser took all of its connections to a host, and the seventh page stayed empty."""
    page = open_page(f"{console.address}/#/transactions")
    expect(page.get_by_role("heading", name="Transactions", exact=True)).to_be_visible()

    def seen(is_hidden: bool) -> None:
        page.evaluate(
            "is => { Object.defineProperty(document, 'hidden', {get: () => is, configurable: true});"
            " document.dispatchEvent(new Event('visibilitychange')); }",
            is_hidden,
        )

    def is_stream(request: Any) -> bool:
        return "/api/live" in str(request.url)

    with page.expect_event("requestfailed", is_stream):
        seen(is_hidden=True)
    with ExitStack() as others:
        with suppress(AssertionError):  # some earlier ones may still be open
            for _ in range(MOST_PAGES):
                others.enter_context(console.live("events"))
        seen(is_hidden=False)
        expect(page.locator("main")).to_contain_text("The console doesn't answer")
    expect(page.locator("main")).not_to_contain_text("The console doesn't answer")


@ON_OURS_ALONE
def test_a_nonsense_address_does_not_break_the_page(console: Asking, open_page: OpenPage) -> None:
    page = open_page(f"{console.address}/#/group/%zz")
    expect(page.get_by_role("heading", level=1)).to_have_text("%zz")


@ON_OURS_ALONE
def test_records_are_found_by_offset_time_and_key_and_seen_as_they_come(
    kafka: Kafka, console: Asking, topic: str, open_page: OpenPage
) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(300):
        stamp = 1_700_000_000_000 + number * 1000
        producer.produce(topic, f"value {number}", key=f"key {number % 7}", timestamp=stamp, partition=0)
    assert producer.flush(60) == 0
    page = open_page(f"{console.address}/#/log/{topic}/0")
    offsets = page.locator("#records tbody th")
    expect(offsets.last).to_have_text("299")
    producer.produce(topic, "the next", partition=0)
    assert producer.flush(60) == 0
    expect(offsets.last).to_have_text("300")
    start = page.get_by_label("From")
    start.fill("earliest")
    start.press("Enter")
    expect(offsets).to_have_count(100)
    expect(offsets.first).to_have_text("0")
    page.get_by_role("button", name="Next ▶").click()
    expect(offsets.first).to_have_text("100")
    start.fill("2023-11-14T22:15:00+00:00")
    start.press("Enter")
    expect(offsets.first).to_have_text("100")
    start.fill("earliest")
    page.get_by_label("Key").fill("key 3")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(offsets.first).to_have_text("3")
    expect(offsets.nth(1)).to_have_text("10")
    expect(offsets).to_have_count(43)


@ON_OURS_ALONE
def test_a_search_for_a_key_goes_on_until_it_finds_the_key(
    kafka: Kafka, console: Asking, topic: str, open_page: OpenPage
) -> None:
    """One request searches a limited number of bytes, and the log has more."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0})
    for number in range(2 * SEARCHED_BYTES // 900_000):
        producer.produce(topic, b"v" * 900_000, key=f"key {number}", partition=0)
    producer.produce(topic, b"it", key="the key", partition=0)
    assert producer.flush(60) == 0
    page = open_page(f"{console.address}/#/log/{topic}/0")
    page.get_by_label("From").fill("earliest")
    page.get_by_label("Key").fill("the key")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator("#records tbody tr")).to_have_count(1)
    expect(page.locator("#records tbody tr")).to_contain_text("the key")
    page.get_by_label("Key").fill("no such key")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator("main")).to_contain_text("None with this key up to offset")


@ON_OURS_ALONE
def test_a_group_shows_its_members_its_lag_and_the_history_of_its_rebalances(
    kafka: Kafka, console: Asking, topic: str, open_page: OpenPage
) -> None:
    send_each(plain(kafka.bootstrap), topic, "abc")
    settings = {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": topic,
        "client.id": "the-reader",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    message = consumer.poll(60)
    assert message is not None
    consumer.commit(message, asynchronous=False)
    page = open_page(f"{console.address}/#/groups")
    page.get_by_role("link", name=topic, exact=True).click()
    expect(page.locator("#lag tbody tr")).to_contain_text([f"{topic}-0"])
    expect(page.locator("#lag tbody td").nth(3)).to_have_text("2")
    expect(page.get_by_role("region", name="Members")).to_contain_text("the-reader")
    expect(page.locator("#history")).to_contain_text("1 members (the-reader)")
    consumer.close()
    expect(page.locator("#history li").first).to_contain_text("empty")
    page.get_by_label("To", exact=True).fill("earliest")
    page.get_by_role("button", name="Preview the offsets…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"Set the offsets of group {topic} in 1 partition?")
    dialog.get_by_role("button", name="Set the offsets").click()
    expect(dialog).to_contain_text("set")
    dialog.get_by_role("button", name="Close").click()
    expect(page.locator("#lag tbody td").nth(3)).to_have_text("3")


def test_an_election_is_on_the_time_line_of_several_brokers(open_page: OpenPage) -> None:
    with (
        barnabas.Cluster(brokers=3) as cluster,
        console_of("console", "--bootstrap", cluster.bootstrap) as console,
    ):
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result(60)
        cluster.wait_until_in_sync()
        page = open_page(f"{console.address}/#/cluster")
        expect(page.locator("#brokers tbody tr")).to_have_count(3)
        leader = cluster.leader_of("orders").node_id
        other = next(each.node_id for each in cluster.brokers if each.node_id != leader)
        cluster.move_leader("orders", 0, other)
        expect(page.locator("#events")).to_contain_text(f"broker {other} leads orders-0, which {leader} led")
        committed(cluster.bootstrap, "orders", "shop", "ab")
        page.goto(f"{console.address}/#/transactions")
        expect(bar(page, "shop", "committed")).to_have_count(1)
        expect(page.locator("#elections")).to_contain_text(f"broker {other} leads orders-0")
        expect(page.locator(".election").first).to_be_attached()


def test_a_folder_of_apache_kafka_is_shown_without_a_broker(tmp_path: Path, open_page: OpenPage) -> None:
    folder = kafka_folders.unpack(kafka_folders.KILL, tmp_path)
    with console_of("inspect", "--console", folder) as console:
        page = open_page(f"{console.address}/#/transactions")
        expect(page.locator(".where")).to_contain_text("a folder, not a broker")
        expect(page.locator("#held")).to_contain_text(
            "txn-0: readers of committed records wait at offset 935"
        )
        expect(page.locator("#held")).to_contain_text("tx-c open Ongoing")
        assert page.get_by_role("button", name="Abort…").count() == 0
        expect(page.locator(".lane .id", has_text="tx-a")).to_have_count(1)
        page.get_by_role("link", name="txn-0", exact=True).first.click()
        expect(page.locator("#stable")).to_have_text("935")
        expect(page.locator("#end")).to_have_text("938")
        page.locator(".batch.open").click()
        expect(page.locator(".bytes")).to_contain_text("Of the transaction of tx-c")


def test_the_printed_address_lets_a_browser_in_and_nothing_else_does(open_page: OpenPage) -> None:
    with (
        barnabas.Broker() as broker,
        console_of("console", "--bootstrap", broker.bootstrap, host="0.0.0.0") as console,
    ):
        page = open_page(console.address)
        expect(page.locator("body")).to_contain_text("a token is needed")
        token = console.url.partition("?")[2]
        page.goto(f"{console.address}/?{token}")
        expect(page.get_by_role("heading", name="Transactions", exact=True)).to_be_visible()
        assert "token" not in page.url
        expect(page.locator("#nobody-waits")).to_be_visible()
