"""A log piece by piece, batch by batch, byte by byte, and a transaction's steps: without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from cli.client.transactions import CoordinatedTransaction
from cli.console import records as console_records
from cli.console import sections as console_sections
from cli.console.lanes import MOST_PARTITIONS, MOST_STEPS, UNKNOWN, Lanes
from cli.console.pieces import Piece, walk
from cli.console.records import MOST_RECORDS, MOST_VALUE_BYTES, page_of_records
from cli.console.sections import LOG, Sections
from cli.console.watching import partition_of_section
from cli.inspecting.batch_bytes import MOST_RECORDS as MOST_SHOWN
from cli.inspecting.batch_bytes import fields_of_batch
from protocol.messages.transactions import PartitionsSchema, TransactionLogKey, TransactionLogValue
from protocol.records.batch import (
    ABORT,
    BATCH_OVERHEAD,
    COMMIT,
    Record,
    build_batch,
    build_end_txn_marker,
    patch_offset_and_epoch,
    read_header,
    read_records,
)
from protocol.wire.codec import encode

NOW_MS = 1_700_000_000_000
ORDERS = ("orders", 0)


class Log:
    """A log of consecutive batches. A transaction is open until `end`."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.next = 0
        self.aborted: set[tuple[int, int, int]] = set()
        self.began: dict[int, int] = {}

    def add(self, values: Iterable[bytes], producer: int = -1, key: bytes | None = None) -> None:
        is_transactional = producer >= 0
        batch = build_batch(
            [(NOW_MS + self.next, key, value, ()) for value in values],
            producer_id=producer,
            producer_epoch=0 if is_transactional else -1,
            base_sequence=0 if is_transactional else -1,
            transactional=is_transactional,
        )
        if is_transactional:
            self.began.setdefault(producer, self.next)
        self._append(batch)

    def add_with_headers(self, headers: list[tuple[bytes, bytes | None]]) -> None:
        self._append(build_batch([(NOW_MS, None, b"v", headers)]))

    def end(self, producer: int, *, commit: bool) -> None:
        if not commit:
            self.aborted.add((producer, self.began[producer], self.next))
        del self.began[producer]
        self._append(
            build_end_txn_marker(
                COMMIT if commit else ABORT,
                coordinator_epoch=1,
                producer_id=producer,
                producer_epoch=0,
                timestamp=NOW_MS + self.next,
            )
        )

    def _append(self, batch: bytearray) -> None:
        patch_offset_and_epoch(batch, 0, self.next, 0)
        self.next = read_header(batch).last_offset + 1
        self.batches.append(bytes(batch))

    def read(self, _partition: object, offset: int, max_bytes: int) -> Piece:
        data = b""
        for batch in self.batches:
            if read_header(batch).last_offset >= offset and (not data or len(data) + len(batch) <= max_bytes):
                data += batch
        stable = min(self.began.values(), default=self.next)
        aborted = {(producer, first) for producer, first, marker in self.aborted if marker >= offset}
        return Piece(0, stable, self.next, data, frozenset(aborted))


def history() -> Log:
    log = Log()
    log.add([b"a"])
    log.add([b"b", b"c"], 7)
    log.add([b"d"], 8)
    log.end(7, commit=True)
    log.add([b"e"], 7)
    log.end(8, commit=False)
    log.add([b"f"])
    return log


def told(log: Log, offset: int = 0, most: int = 100, max_bytes: int = 10_000) -> list[tuple[int, str, str]]:
    seen = walk(log.read, ORDERS, offset, most, max_bytes)
    return [(each.header.base_offset, each.kind, each.fate) for each in seen.batches]


def test_each_batch_has_the_fate_that_its_marker_gives_it() -> None:
    assert told(history()) == [
        (0, "plain", ""),
        (1, "plain", "committed"),
        (3, "plain", "aborted"),
        (4, "commit", ""),
        (5, "plain", "open"),
        (6, "abort", ""),
        (7, "plain", ""),
    ]


def test_batches_below_the_last_stable_offset_are_known_without_their_marker() -> None:
    log = history()
    log.end(7, commit=True)
    assert told(log, most=3) == [(0, "plain", ""), (1, "plain", "committed"), (3, "plain", "aborted")]


def test_a_batch_keeps_its_fate_among_several_aborted_transactions_of_its_producer() -> None:
    log = Log()
    for commit in (False, True, False, True, False):
        log.add([b"a"], 7)
        log.add([b"b"], 7)
        log.end(7, commit=commit)
    whole = {base: fate for base, _, fate in told(log)}
    for base, fate in whole.items():
        for most in (1, 2, 4):
            assert told(log, base, most)[0][2] == fate


def test_later_batches_are_undecided_where_the_walk_ends_before_the_log_does() -> None:
    log = history()
    assert told(log, 5, 1) == [(5, "plain", "undecided")]
    assert told(log, 5, 3)[0] == (5, "plain", "open")


def test_a_walk_goes_on_by_pieces_and_ends_with_its_bytes() -> None:
    log = history()
    one = max(map(len, log.batches))
    assert len(told(log, max_bytes=1)) == 1
    assert told(log, max_bytes=2 * one)[:2] == told(log)[:2]


def test_a_page_of_records_says_where_to_go_on_and_leaves_out_uncommitted_ones() -> None:
    log = history()
    page = page_of_records(log.read, ORDERS, 2, 2, committed=False)
    assert ([each["offset"] for each in page["records"]], page["next"]) == ([2, 3], 4)
    page = page_of_records(log.read, ORDERS, 0, 100, committed=True)
    assert [each["offset"] for each in page["records"]] == [0, 1, 2, 7]


def test_records_are_found_by_their_key() -> None:
    log = Log()
    for number in range(30):
        log.add([b"v"], key=f"k{number % 3}".encode())
    page = page_of_records(log.read, ORDERS, 1, 100, key="k0", committed=False)
    assert [each["offset"] for each in page["records"]] == list(range(3, 30, 3))


class Counted(Log):
    """A log that counts how often it was read."""

    reads = 0

    def read(self, _partition: object, offset: int, max_bytes: int) -> Piece:
        self.reads += 1
        return super().read(_partition, offset, min(max_bytes, 1))


def test_a_page_reads_no_further_than_its_records_and_parses_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten million records in batches of 20,000 used to be read by megabytes, with each batch parsed to its end."""
    log = Counted()
    for _ in range(5):
        log.add([b"v"] * 300)
    shown: list[int] = []
    of_record = console_records.document_of_record

    def document(*given: Any, **options: Any) -> Any:
        shown.append(given[1].offset)
        return of_record(*given, **options)

    monkeypatch.setattr(console_records, "document_of_record", document)
    page = page_of_records(log.read, ORDERS, 250, 100, committed=False)
    assert ([each["offset"] for each in page["records"]], page["next"]) == ([*range(250, 350)], 350)
    assert log.reads == 2
    assert shown[-1] == 350, "one more, to know where to go on"


def test_a_page_whose_time_is_over_says_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    for _ in range(5):
        log.add([b"v"] * 3, key=b"k")
    monkeypatch.setattr(console_records, "MAX_READ_S", -1.0)
    page = page_of_records(log.read, ORDERS, 3, 100, key="k", committed=False)
    assert (page["records"], page["next"]) == ([], 3)


def test_a_damaged_batch_shows_its_readable_records_and_then_the_reason() -> None:
    log = Log()
    log.add([b"a", b"b", b"c"])
    size = len(log.batches[0])
    log.batches[0] = log.batches[0][: size - 1] + b"\x05"  # one header more than the record has
    page = page_of_records(log.read, ORDERS, 1, 100, committed=False)
    assert [(each["offset"], "unread" in each) for each in page["records"]] == [(1, False), (2, True)]


def test_a_page_has_a_limit_of_records_and_of_bytes_of_each() -> None:
    log = Log()
    log.add([b"x" * (MOST_VALUE_BYTES + 1)])
    for _ in range(MOST_RECORDS + 5):
        log.add([b"v"])
    page = page_of_records(log.read, ORDERS, 0, 10**6, committed=False)
    assert len(page["records"]) == MOST_RECORDS
    value = page["records"][0]["value"]
    assert value["size"] == MOST_VALUE_BYTES + 1
    assert len(value["base64"]) * 3 // 4 <= MOST_VALUE_BYTES + 2
    assert console_records.MOST_BATCHES >= MOST_RECORDS
    assert len(page_of_records(log.read, ORDERS, 0, -1, committed=False)["records"]) == 1


def test_a_record_shows_a_limited_number_of_headers_and_of_bytes_of_each() -> None:
    """200 records with 100 headers of 32 KiB would have been a page of 850 MB."""
    log = Log()
    log.add_with_headers([(b"n" * 2_000, b"v" * 2_000)] * 101)
    [record] = page_of_records(log.read, ORDERS, 0, 1, committed=False)["records"]
    assert len(record["headers"]) == 100
    for name, value in record["headers"]:
        assert (len(name), value["size"]) == (1024, 2_000)
        assert len(value["base64"]) < 1_400


def test_every_byte_of_a_batch_is_in_one_field_and_each_field_says_its_meaning() -> None:
    batch = build_batch(
        [(NOW_MS, b"k", b"v1", ((b"h", b"x"), (b"n", None))), (NOW_MS + 5, None, None, ())],
        producer_id=7,
        producer_epoch=3,
        base_sequence=11,
        transactional=True,
    )
    fields = fields_of_batch(bytes(batch))
    at = 0
    for each in fields:
        assert each.at == at, each
        at += each.size
    assert at == len(batch)
    said = {each.name: (each.value, each.means) for each in fields[:13]}
    assert said["producerId"][0] == "7"
    assert said["baseSequence"] == ("11", "sequences 11 to 12")
    assert "transactional" in said["attributes"][1]
    assert said["crc"][1].endswith("right")
    assert [each.value for each in fields if each.name == "value"] == ["'v1'"]
    assert [each.value for each in fields if each.name in ("headerKey", "headerValue")] == [
        "'h'",
        "'x'",
        "'n'",
    ]
    batch[-1] ^= 1
    assert any(each.means.endswith("WRONG") for each in fields_of_batch(bytes(batch)))


@pytest.mark.parametrize("cut", range(BATCH_OVERHEAD, BATCH_OVERHEAD + 12))
def test_records_that_make_no_sense_are_one_field(cut: int) -> None:
    batch = bytearray(build_batch([(NOW_MS, b"k", b"v", ())]))
    batch[cut:] = b"\xff" * (len(batch) - cut)
    fields = fields_of_batch(bytes(batch))
    assert sum(each.size for each in fields) >= len(batch) - 1


def test_only_the_first_of_very_many_records_are_shown_one_by_one() -> None:
    batch = build_batch([(NOW_MS, None, b"v", ()) for _ in range(MOST_SHOWN + 3)])
    fields = fields_of_batch(bytes(batch))
    assert (fields[-1].name, fields[-1].value) == ("records", "3 more")


def coordinated(
    state: str, partitions: Iterable[int] = (0,), started_ms: int = NOW_MS
) -> CoordinatedTransaction:
    of = frozenset(("orders", index) for index in partitions)
    return CoordinatedTransaction("pay", 1, state, 7, 0, started_ms, 60_000, of)


def test_without_the_right_to_read_the_log_a_lane_shows_its_coordinators_answer() -> None:
    sections = Sections()
    lanes = Lanes(sections.list_of("lanes", 10))
    for number, state in enumerate(("Empty", "Ongoing", "Ongoing", "PrepareCommit", "CompleteCommit")):
        lanes.told([coordinated(state)], NOW_MS + number)
    lanes.told([coordinated("Ongoing", started_ms=NOW_MS + 9)], NOW_MS + 9)
    _, (first, second) = sections.lists["lanes"].since(0, 10)
    assert [step["state"] for step in first["steps"]] == ["Ongoing", "PrepareCommit", "CompleteCommit"]
    assert second["state"] == "Ongoing"


def test_a_lane_has_a_limit_of_steps_and_partitions() -> None:
    sections = Sections()
    lanes = Lanes(sections.list_of("lanes", 10))
    for count in range(1, MOST_PARTITIONS + 20):
        lanes.told([coordinated("Ongoing", range(count))], NOW_MS + count)
    _, (lane,) = sections.lists["lanes"].since(0, 10)
    assert len(lane["steps"]) == MOST_STEPS
    assert len(lane["partitions"]) == MOST_PARTITIONS


def recorded(
    state: str, offset: int, started_ms: int = NOW_MS, name: str = "pay"
) -> tuple[Any, list[Record]]:
    """A batch of `__transaction_state` with one record."""
    states = {"Ongoing": 1, "PrepareCommit": 2, "CompleteCommit": 4}
    partitions = [] if state == "CompleteCommit" else [PartitionsSchema(topic="orders", partition_ids=[0])]
    value = TransactionLogValue(
        producer_id=7,
        transaction_timeout_ms=60_000,
        transaction_status=states[state],
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=NOW_MS + offset,
        transaction_start_timestamp_ms=started_ms,
    )
    key = b"\0\0" + encode(TransactionLogKey(transactional_id=name), 0)
    batch = build_batch([(NOW_MS, key, b"\0\0" + encode(value, 0), ())])
    patch_offset_and_epoch(batch, 0, offset, 0)
    return read_header(batch), read_records(batch)


def shown_lanes(sections: Sections) -> dict[str, list[str]]:
    _, documents = sections.lists["lanes"].since(0, 10)
    return {each["key"]: [step["state"] for step in each["steps"]] for each in documents}


WHOLE = ("Ongoing", "PrepareCommit", "CompleteCommit")


def test_two_transactions_of_one_id_that_begin_in_one_millisecond_have_a_lane_each() -> None:
    sections = Sections()
    lanes = Lanes(sections.list_of("lanes", 10))
    lanes.read(3, [recorded(state, offset) for offset, state in enumerate((*WHOLE, "Ongoing"))])
    first = f"pay/{NOW_MS}"
    assert shown_lanes(sections) == {first: [*WHOLE], f"{first}~2": ["Ongoing"]}
    lanes.read(3, [recorded(state, offset) for offset, state in enumerate(WHOLE[1:], 4)])
    assert shown_lanes(sections) == {first: [*WHOLE], f"{first}~2": [*WHOLE]}


def test_records_that_are_read_again_leave_their_lane_as_it_was() -> None:
    """A broker that is reset to an earlier state holds them again."""
    sections = Sections()
    lanes = Lanes(sections.list_of("lanes", 10))
    records = [recorded(state, offset) for offset, state in enumerate(WHOLE)]
    lanes.read(3, records)
    lanes.read(3, records[:1])
    assert shown_lanes(sections) == {f"pay/{NOW_MS}": ["Ongoing"]}
    lanes.read(3, records[1:])
    assert shown_lanes(sections) == {f"pay/{NOW_MS}": [*WHOLE]}


def test_a_transaction_whose_end_was_missed_is_over_once_the_next_one_begins() -> None:
    sections = Sections()
    lanes = Lanes(sections.list_of("lanes", 10))
    lanes.read(3, [recorded("Ongoing", 0), recorded("Ongoing", 9_000, NOW_MS + 5)])
    assert shown_lanes(sections) == {
        f"pay/{NOW_MS}": ["Ongoing", UNKNOWN],
        f"pay/{NOW_MS + 5}": ["Ongoing"],
    }


@pytest.mark.parametrize(
    ("told", "steps"),
    [
        ([], ["Ongoing", UNKNOWN]),
        ([coordinated("Ongoing")], ["Ongoing"]),
        ([coordinated("CompleteAbort")], ["Ongoing", "CompleteAbort"]),
        ([coordinated("PrepareCommit")], ["Ongoing", "PrepareCommit"]),
        ([coordinated("Ongoing", started_ms=NOW_MS + 9)], ["Ongoing", UNKNOWN]),
    ],
)
def test_the_coordinator_decides_the_outcome_of_a_lane_without_new_steps(
    told: list[CoordinatedTransaction], steps: list[str]
) -> None:
    sections = Sections()
    lanes = Lanes(sections.list_of("lanes", 10))
    assert lanes.still_running() == {}
    lanes.read(3, [recorded("Ongoing", 0)])
    assert lanes.still_running() == {}, "it has run since the last look alone"
    assert lanes.still_running() == {"pay": 7}
    lanes.settle(["pay"], told, NOW_MS + 20)
    shown = shown_lanes(sections)
    assert shown.pop(f"pay/{NOW_MS}") == steps
    assert [*shown] == [f"pay/{each.started_ms}" for each in told if each.started_ms != NOW_MS]


@pytest.mark.parametrize("ahead", ["PrepareCommit", "CompleteCommit"])
def test_records_replace_what_the_coordinator_reported_ahead_of_them(ahead: str) -> None:
    sections = Sections()
    lanes = Lanes(sections.list_of("lanes", 10))
    lanes.read(3, [recorded("Ongoing", 0)])
    lanes.settle(["pay"], [coordinated(ahead)], NOW_MS + 20)
    lanes.read(3, [recorded(state, offset) for offset, state in enumerate(WHOLE[1:], 1)])
    assert shown_lanes(sections) == {f"pay/{NOW_MS}": [*WHOLE]}


def test_a_list_reports_its_changes_newest_first_and_drops_the_oldest() -> None:
    growing = Sections().list_of("events", 3)
    growing.put([(key, {"key": key}) for key in "abcd"])
    number, documents = growing.since(0, 10)
    assert [each["key"] for each in documents] == ["b", "c", "d"]
    growing.put([("b", {"key": "b", "again": True})])
    assert growing.since(number, 10)[1] == [{"key": "b", "again": True}]
    assert [each["key"] for each in growing.since(0, 2)[1]] == ["d", "b"]
    assert growing.get("a") is None


async def test_a_section_wakes_its_viewers_and_goes_with_the_last_one() -> None:
    sections = Sections()
    name = f"{LOG}orders:0"
    number, event = sections.enter([name])
    assert sections.wanted == {name}
    assert await asyncio.to_thread(sections.publish, name, [0, 1, 1])
    await asyncio.wait_for(event.wait(), 10)
    assert not sections.publish(name, [0, 1, 1])
    assert sections.value(name) == (1, "[0,1,1]")
    sections.publish_for_good(f"{LOG}orders:1", [0, 0, 0])
    sections.leave(number)
    assert sections.value(name) == (0, "")
    assert sections.value(f"{LOG}orders:1") == (1, "[0,0,0]")
    assert (sections.wanted, sections.pages) == (frozenset(), 0)
    assert console_sections.as_json({"a": "\n"}) == '{"a":"\\n"}'


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("log:orders:3", ("orders", 3)),
        ("log:a:b:0", ("a:b", 0)),
        ("topics", None),
        ("log:orders:", None),
        ("log:x", None),
    ],
)
def test_the_section_of_a_partition_names_it(name: str, partition: tuple[str, int] | None) -> None:
    assert partition_of_section(name) == partition
