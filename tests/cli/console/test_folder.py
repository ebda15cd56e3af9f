"""The console over folders that Apache Kafka left: its numbers are those of `inspect`, and of what readers find."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import barnabas
from cli.console import folder
from cli.console.folder import FolderKafka
from cli.console.lanes import MOST_PARTITIONS
from cli.console.sections import Sections
from tests.cli.conftest import Looker
from tests.cli.console.conftest import console_of
from tests.cli.looking import state_of
from tests.clients.transactions import new_producer
from tests.support import kafka_folders


@pytest.mark.parametrize("name", kafka_folders.NAMES)
def test_a_folders_numbers_are_those_of_inspect_and_nothing_in_it_is_changed(
    tmp_path: Path, look: Looker, name: str
) -> None:
    folder = kafka_folders.unpack(name, tmp_path)
    before = state_of(folder)
    inspected = {
        (each["topic"], each["partition"]): each
        for each in look("inspect", folder, "--json").of_kind("partition")
    }
    with console_of("inspect", "--console", folder) as console:
        with console.live("topics", "held", "lanes") as events:
            topics = events.until(lambda seen: seen.values.get("topics"))
            held = events.until(lambda seen: seen.values.get("held"))["waiting"]
        for topic, partitions, _, records, not_stable, size, _, _ in topics:
            of_it = [each for key, each in inspected.items() if key[0] == topic]
            assert partitions == len(of_it)
            assert records == sum(each["end_offset"] - each["start_offset"] for each in of_it)
            assert not_stable == sum(each["end_offset"] - each["last_stable_offset"] for each in of_it)
            assert size == sum(each["bytes"] for each in of_it)
        waits = {(each["topic"], each["partition"]): each["last_stable_offset"] for each in held}
        assert waits == {
            key: each["last_stable_offset"]
            for key, each in inspected.items()
            if each["last_stable_offset"] < each["end_offset"]
        }
        assert {one["transactional_id"] for each in held for one in each["transactions"]} == {"tx-c"}
        for (topic, partition), offset in waits.items():
            path = f"{folder}/{topic}-{partition}"
            (of_log,) = look("inspect", path, "--json").of_kind("partition")
            assert [one["first_offset"] for one in of_log["open_transactions"]] == [offset]
            ribbon = console.api("ribbon", topic=topic, partition=partition)
            assert (ribbon["stable"], ribbon["end"]) == (offset, of_log["end_offset"])
            (open_batch,) = (each for each in ribbon["batches"] if each["fate"] == "open")
            assert open_batch["base"] == offset
            batch = console.api("batch", topic=topic, partition=partition, offset=offset)
            assert sum(each["size"] for each in batch["fields"]) == batch["bytes"]
        for verb in ("abort", "reset", "delete-records"):
            refused = console.post(verb, {"execute": True})
            assert (refused.status, b"needs a broker" in refused.body) == (409, True)
    assert state_of(folder) == before


def test_fates_are_those_of_the_transaction_indexes_where_markers_lie_behind(tmp_path: Path) -> None:
    folder = kafka_folders.unpack(kafka_folders.DOWN, tmp_path)
    with console_of("inspect", "--console", folder) as console:
        whole = {}
        at = 0
        while True:
            ribbon = console.api("ribbon", topic="txn", partition=0, **{"from": at})
            whole |= {each["base"]: each["fate"] for each in ribbon["batches"]}
            if ribbon["next"] >= ribbon["end"]:
                break
            at = ribbon["next"]
        assert {"committed", "aborted", "open", ""} == {*whole.values()}
        one_by_one = {}
        for base in list(whole)[:40]:
            page = console.api("records", topic="txn", partition=0, **{"from": base}, most=1)
            one_by_one[base] = page["records"][0]["fate"]
        assert one_by_one == {base: whole[base] for base in one_by_one}


def test_a_folder_shows_its_coordinators_answers_however_many_partitions_they_have(
    tmp_path: Path, look: Looker
) -> None:
    """A lane holds a hundred partitions of a transaction, and none if its id has begun nothing. The partitions left out
    seemed to hang, because nothing else in a folder could tell."""
    count = MOST_PARTITIONS + 5
    with barnabas.Broker(data=tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics([NewTopic("wide", count, 1)]).values():
            future.result(60)
        for name in ("idle", "holder"):
            producer = new_producer(broker.bootstrap, name)
            producer.begin_transaction()
            for partition in range(count):
                producer.produce("wide", b"v", partition=partition)
            assert producer.flush(60) == 0
            if name == "idle":
                producer.commit_transaction(60)
        new_producer(broker.bootstrap, "idle")
        told = look("transactions", "list", "--bootstrap", broker.bootstrap, "--json").json()
    with console_of("inspect", "--console", tmp_path) as console:
        assert console.api("transactions") == [{**each, "coordinator": -1} for each in told]
        assert [(each["transactional_id"], each["state"]) for each in told] == [
            ("holder", "Ongoing"),
            ("idle", "Empty"),
        ]
        verdicts = [
            one["verdict"] for each in console.api("explain")["waiting"] for one in each["transactions"]
        ]
        assert verdicts == ["open"] * count


def test_a_log_too_long_to_read_is_named_and_decides_nothing_about_hanging(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last state read may be long outdated."""
    path = str(kafka_folders.unpack(kafka_folders.DOWN, tmp_path))

    def shown() -> tuple[str, set[tuple[str, str]]]:
        sections = Sections()
        found = FolderKafka(path, sections).explanation([])
        verdicts = {
            (one["transactional_id"], one["verdict"])
            for each in found["waiting"]
            for one in each["transactions"]
        }
        return sections.value("problem:cluster")[1], verdicts

    assert shown() == ('""', {("tx-c", "open")})
    monkeypatch.setattr(folder, "MOST_BATCHES", 1)
    problem, verdicts = shown()
    assert "newer steps are missing: " in problem
    assert "__transaction_state-" in problem
    assert verdicts == {(None, "unknown")}


@pytest.mark.parametrize("bound", ["READ_BYTES", "READ_S"])
@pytest.mark.parametrize(("most", "part"), [(60, [0, 10, 30, 20]), (6, [0, 1, 3, 2])])
def test_reading_at_the_beginning_is_bounded_over_all_partitions(
    monkeypatch: pytest.MonkeyPatch, bound: str, most: int, part: list[int]
) -> None:
    """Each of fifty partitions used to have its own bound. Now what fits is read to its end, however it is spread."""
    clock = {"s": 0.0}
    monkeypatch.setattr(folder.time, "monotonic", lambda: clock["s"])
    monkeypatch.setattr(folder, bound, most)
    sizes = [0, 10, 30, 20]
    left = folder._Left(sum(sizes))
    given = []
    for size in sizes:
        read_bytes, time_s = left.share(size)
        given.append(read_bytes if bound == "READ_BYTES" else time_s)
        clock["s"] += time_s
    assert given == pytest.approx(part)
