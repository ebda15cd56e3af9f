"""A console outlives its brokers. It says that they are gone, and continues when they are back."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, NewTopic

import barnabas
from tests.cli.console.conftest import console_of
from tests.cli.transactional import committed, send_at_once
from tests.clients.transactions import new_producer


def test_a_console_names_silent_brokers_and_goes_on_with_the_others() -> None:
    with (
        barnabas.Broker() as broker,
        console_of("console", "--bootstrap", broker.bootstrap) as console,
        console.live("brokers", "lanes", "topics") as events,
    ):
        events.until(lambda seen: seen.values.get("brokers", {}).get("brokers"))
        broker.kill()
        problem = events.until(lambda seen: seen.values.get("problem:cluster"))
        assert "can't be reached" in problem or "doesn't answer" in problem
        assert console.get("/api/groups").status == 502
        broker.start()
        events.until(lambda seen: not seen.values.get("problem:cluster"))
        committed(broker.bootstrap, "orders", "shop", "ab")
        events.until(lambda seen: any(each["id"] == "shop" for each in seen.lists.get("lanes", {}).values()))
        events.until(lambda seen: any(row[0] == "orders" for row in seen.values["topics"]))


def test_a_console_given_one_broker_goes_on_by_the_others() -> None:
    with barnabas.Cluster(brokers=3) as cluster:
        first = cluster.brokers[0]
        with (
            console_of("console", "--bootstrap", first.bootstrap) as console,
            console.live("brokers", "events") as events,
        ):
            events.until(lambda seen: len(seen.values.get("brokers", {}).get("brokers", [])) == 3)
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
            admin.create_topics([NewTopic("orders", 3, 3)])["orders"].result(60)
            first.kill()
            events.until(lambda seen: len(seen.values["brokers"]["brokers"]) == 2)
            gone = f"broker {first.node_id} is gone"
            events.until(
                lambda seen: any(each["text"] == gone for each in seen.lists.get("events", {}).values())
            )
            elections = [each for each in events.lists["events"].values() if each["kind"] == "election"]
            assert elections
            assert console.api("topic", topic="orders")["partitions"][0]["end"] == 0


def test_a_console_waits_for_a_kafka_that_isnt_there_yet() -> None:
    with (
        console_of("console", "--bootstrap", "127.0.0.1:1") as console,
        console.live("brokers") as events,
    ):
        assert "can't be reached" in events.until(lambda seen: seen.values.get("problem:cluster"))
        assert console.get("/").status == 200


def test_after_a_reset_no_transaction_stays_open_that_was_before() -> None:
    """The transaction's records are gone, and no coordinator knows of it."""
    with (
        barnabas.Broker(topics={"orders": 1}) as broker,
        console_of("console", "--bootstrap", broker.bootstrap) as console,
        console.live("lanes") as events,
    ):

        def states() -> list[tuple[str, str]]:
            return [(each["id"], each["state"]) for each in events.lists.get("lanes", {}).values()]

        begin(broker, "before")
        events.until(lambda _: states() == [("before", "Ongoing")])
        broker.reset()
        events.until(lambda _: states() == [("before", "Unknown")])
        begin(broker, "behind")
        events.until(lambda _: ("behind", "Ongoing") in states())


def begin(broker: barnabas.Broker, transactional_id: str) -> None:
    producer = new_producer(broker.bootstrap, transactional_id)
    producer.begin_transaction()
    send_at_once(producer, "orders", "a")
