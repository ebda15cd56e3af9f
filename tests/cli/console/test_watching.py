"""What is asked of a Kafka while a page is open, without one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest

from cli.client.cluster import KafkaCluster
from cli.client.offsets import Partition
from cli.console import watching
from cli.console.sections import Sections
from cli.console.watching import BUSY_BYTES, Asker, Round, Watch
from cli.errors import CommandError
from protocol.messages.fetch import PartitionData

ORDERS = ("orders", 0)
LEADER = 1


class Leading:
    """The leader of `orders`-0, which notes what it is asked."""

    def __init__(self) -> None:
        self.end = 0
        self.appended_bytes = 0
        self.asked: list[str] = []

    def fetch(self, _: object, leader: int, offsets: Mapping[Partition, int], *__: object) -> dict[Any, Any]:
        assert (leader, [*offsets]) == (LEADER, [ORDERS])
        self.asked.append("fetch")
        records = memoryview(bytes(self.appended_bytes)) if offsets[ORDERS] < self.end else None
        data = PartitionData(high_watermark=self.end, last_stable_offset=self.end, records=records)
        data.log_start_offset = 0
        return {ORDERS: data}

    def list_offsets(self, _: object, wanted: Mapping[Partition, int], *__: object, **___: object) -> Any:
        return dict.fromkeys(wanted, 0)

    def stable_and_ends(self, _: object, partitions: Iterable[Partition], *__: object) -> Any:
        self.asked.append("offsets")
        ends = dict.fromkeys(partitions, self.end)
        return ends, ends


@pytest.mark.parametrize(
    ("appended_bytes", "asked"),
    [
        (BUSY_BYTES + 1, ["fetch", "fetch", "offsets", "offsets", "offsets", "fetch"]),
        (BUSY_BYTES, ["fetch"] * 5),
    ],
)
async def test_of_a_log_to_which_much_is_appended_the_offsets_alone_are_asked_for(
    appended_bytes: int, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of such a log had its batches sent, ten megabytes a second, to show where it ends."""
    leading, sections = Leading(), Sections()
    monkeypatch.setattr(watching, "fetch_from_leader", leading.fetch)
    monkeypatch.setattr(watching, "list_offsets", leading.list_offsets)
    monkeypatch.setattr(watching, "stable_and_ends", leading.stable_and_ends)
    watch = Watch({}, sections, lambda topics: {}, lambda brokers: None)
    watch._leaders = {ORDERS: LEADER}
    sections.enter(["log:orders:0"])
    cluster = cast("KafkaCluster", None)
    leading.appended_bytes = appended_bytes
    for end in (0, 10, 20, 30, 30):
        leading.end = end
        watch._ask_logs(cluster)
        assert json.loads(sections.value("log:orders:0")[1]) == [0, end, end]
    assert leading.asked == asked


async def test_a_topic_that_goes_while_its_log_is_asked_for_ends_no_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread learns who leads."""
    leading, sections = Leading(), Sections()
    watch = Watch({}, sections, lambda topics: {}, lambda brokers: None)
    payments = ("payments", 0)

    def stable_and_ends(*asked: Any) -> Any:
        watch._leaders = {}
        return leading.stable_and_ends(*asked)

    monkeypatch.setattr(watching, "list_offsets", leading.list_offsets)
    monkeypatch.setattr(watching, "stable_and_ends", stable_and_ends)
    watch._leaders = {ORDERS: LEADER, payments: 2}
    watch._ends = {ORDERS: 0, payments: 0}
    watch._busy = {ORDERS, payments}
    leading.end = 7
    sections.enter(["log:orders:0", "log:payments:0"])
    watch._ask_logs(cast("KafkaCluster", None))
    assert sections.value("log:payments:0")[1] == sections.value("log:orders:0")[1] == "[0,7,7]"


def test_a_fault_of_the_consoles_own_is_shown_and_is_in_its_log_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def ask(_: object) -> None:
        raise KeyError("orders")

    sections = Sections()
    each = Round(0.0, ask, bool)
    asker = Asker("cluster", {}, sections, [each])
    for _ in range(3):
        asker._go(cast("KafkaCluster", None), each)
    assert json.loads(sections.value("problem:cluster")[1]) == "the console failed: KeyError('orders')"
    [logged] = caplog.records
    assert logged.exc_info is not None


def test_what_is_wrong_is_told_until_the_same_question_goes_well() -> None:
    """One who may not list groups was told so for as long as it took to ask for the metadata."""
    wrong = {"groups": "you may not", "offsets": "you may not"}

    def asking(name: str) -> Round:
        def ask(_: object) -> None:
            if name in wrong:
                raise CommandError(wrong[name])

        return Round(0.0, ask, bool)

    sections = Sections()
    rounds = {name: asking(name) for name in ("groups", "offsets", "metadata")}
    asker = Asker("cluster", {}, sections, [*rounds.values()])

    def told_after(name: str) -> str:
        asker._go(cast("KafkaCluster", None), rounds[name])
        return str(json.loads(sections.value("problem:cluster")[1]))

    assert [told_after(name) for name in rounds] == ["you may not"] * 3
    wrong["offsets"] = "nobody leads it"
    assert told_after("offsets") == "you may not; nobody leads it"
    wrong.clear()
    assert [told_after(name) for name in rounds] == ["nobody leads it", "", ""]
