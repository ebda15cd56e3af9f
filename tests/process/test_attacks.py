"""One client sends whatever it can to hold up the others. The tests measure how long those wait. The broker is a
process."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from barnabas import Broker
from tests.support.attacks import (
    WITH_LISTS,
    Attack,
    batches,
    changes,
    counted,
    damaged,
    fetches,
    lists,
    longest_wait_s,
    pipelined,
    prepare,
    searches,
    subscriptions,
    texts,
)
from tests.support.group_attacks import commits, crowds

SCALE = int(os.environ.get("ATTACK_SCALE", "1"))
ENTRIES = 10_000 * SCALE
RECORDS = min(5_000 * SCALE, 9_999)  # one request creates no more metadata records than this
FRAMES = int(os.environ.get("ATTACK_FRAMES", "2000"))

LONGEST_WAIT_S = 0.05
"""It counts the broker's CPU time."""

pytestmark = [
    pytest.mark.skipif(not counted(), reason="another process's CPU time can't be read here"),
    pytest.mark.xdist_group("attacks"),
    pytest.mark.timeout(300 * SCALE + FRAMES // 10),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    config = {"message.max.bytes": "104857600", "group.consumer.assignment.interval.ms": "0"}
    with Broker(config=config, log_level="error") as broker:
        prepare(broker)
        yield broker


def check(broker: Broker, attacks: Iterator[Attack]) -> None:
    waits = {attack.name: longest_wait_s(broker, attack, LONGEST_WAIT_S) for attack in attacks}
    assert waits
    assert {name: wait_s for name, wait_s in waits.items() if wait_s > LONGEST_WAIT_S} == {}


def test_nobody_waits_long_for_a_batch_that_is_expensive_to_check(broker: Broker) -> None:
    check(broker, batches(SCALE))


def test_nobody_waits_long_for_a_search_by_time_in_stored_records(broker: Broker) -> None:
    check(broker, searches())


@pytest.mark.one_run_in(4)  # there are 62 APIs; `make attacks` tries all
@pytest.mark.parametrize("api_name", WITH_LISTS)
def test_nobody_waits_long_for_the_lists_of_an_api(broker: Broker, api_name: str) -> None:
    check(broker, lists(ENTRIES, api_name))


def test_nobody_waits_long_for_a_change_of_thousands_of_topics_or_quotas(broker: Broker) -> None:
    check(broker, changes(RECORDS))


def test_nobody_waits_long_for_a_fetch_of_thousands_of_partitions(broker: Broker) -> None:
    check(broker, fetches())


def test_nobody_waits_long_for_texts_that_are_expensive_to_read(broker: Broker) -> None:
    check(broker, texts())


def test_nobody_waits_long_for_members_of_a_group_that_subscribe_to_thousands_of_partitions(
    broker: Broker,
) -> None:
    check(broker, subscriptions())


def test_nobody_waits_long_for_damaged_frames(broker: Broker) -> None:
    check(broker, damaged(FRAMES, SCALE))


def test_nobody_waits_long_for_a_client_that_sends_many_requests_at_once(broker: Broker) -> None:
    check(broker, iter([pipelined(5_000 * SCALE)]))


def test_nobody_waits_long_for_a_commit_of_thousands_of_offsets(broker: Broker) -> None:
    check(broker, commits(broker, min(ENTRIES, 9_900)))


def test_nobody_waits_long_for_a_hundred_clients_that_ask_for_all_settings(broker: Broker) -> None:
    check(broker, crowds())
