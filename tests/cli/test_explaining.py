"""The fate of an open transaction, and its explanation."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import cast

import pytest

from cli import explaining
from cli.client.cluster import KafkaCluster
from cli.client.counting import ALL, Counted, Effort, count_records
from cli.client.transactions import NEVER_MS, CoordinatedTransaction, OpenTransaction
from cli.explaining import (
    ENDING,
    HANGING,
    OPEN,
    UNKNOWN,
    Blocker,
    Explanation,
    WaitingPartition,
    verdict_of,
)
from cli.explanation_words import as_document, told_in_words
from cli.options import BOOTSTRAP
from cli.pasting import in_shell
from tests.cli.conftest import Kafka, Run
from tests.cli.transactional import ends, plain
from tests.clients.confluent import PATIENCE_S

HERE, ELSEWHERE = ("orders", 0), ("orders", 1)
NOW_MS = 1_800_000_000_000
FOUND = OpenTransaction(HERE, 7, 3, 100, 5, NOW_MS - 60_000)
LATER = replace(FOUND, start_offset=102)
"""Another one of the same producer."""


def coordinated(
    state: str, *partitions: tuple[str, int], timeout_ms: int = 90_000, name: str = "billing"
) -> CoordinatedTransaction:
    return CoordinatedTransaction(name, 1, state, 7, 3, NOW_MS - 60_000, timeout_ms, frozenset(partitions))


def told(known: CoordinatedTransaction | None, *, complete: bool = True, now_ms: int = NOW_MS) -> str:
    verdict, why = verdict_of(FOUND, known, complete=complete)
    blocker = Blocker(FOUND, 2, known, verdict, why)
    counted = Counted(records=3, waiting=1, undecided={7: 2})
    waiting = WaitingPartition(HERE, 1, 100, 103, counted, [blocker])
    return told_in_words(Explanation([waiting], [], [], 1), "", now_ms)


@pytest.mark.parametrize(
    ("known", "complete", "verdict"),
    [
        (None, True, HANGING),
        (None, False, UNKNOWN),
        (coordinated("Ongoing", HERE), True, OPEN),
        (coordinated("Ongoing", ELSEWHERE), True, HANGING),
        (coordinated("PrepareCommit", HERE), True, ENDING),
        (coordinated("PrepareAbort", HERE, ELSEWHERE), True, ENDING),
        (coordinated("PrepareAbort", ELSEWHERE), True, HANGING),
        (coordinated("CompleteCommit"), True, HANGING),
        (coordinated("Empty"), False, HANGING),
    ],
)
def test_a_transaction_hangs_where_its_coordinator_will_never_write_its_marker(
    known: CoordinatedTransaction | None, complete: bool, verdict: str
) -> None:
    assert verdict_of(FOUND, known, complete=complete)[0] == verdict


@pytest.mark.parametrize(("then", "waits"), [([FOUND], True), ([], False), ([LATER], False)])
def test_a_transaction_that_ends_while_it_is_examined_is_nothing_to_wait_for(
    monkeypatch: pytest.MonkeyPatch, then: list[OpenTransaction], waits: bool
) -> None:
    looks = iter([{HERE: [FOUND]}, {HERE: then}])
    stable = iter([100, 100 if waits else 103])
    monkeypatch.setattr(explaining, "open_transactions", lambda *_: next(looks))
    monkeypatch.setattr(explaining, "leaders_of", lambda _: {HERE: 1})
    monkeypatch.setattr(explaining, "stable_and_ends", lambda *_: ({HERE: next(stable)}, {HERE: 103}))
    monkeypatch.setattr(explaining, "list_offsets", lambda *_: {HERE: next(stable)})
    monkeypatch.setattr(explaining, "list_transactions", lambda *_: [coordinated("CompleteCommit")])
    monkeypatch.setattr(explaining, "coordinators_are_complete", lambda _: True)
    monkeypatch.setattr(explaining, "count_records", lambda *_: Counted(undecided={7: 2}))
    found = explaining.explain(cast(KafkaCluster, None), [], ALL, with_tails=False)
    assert [[one.verdict for one in each.blockers] for each in found.waiting] == (
        [[HANGING]] if waits else []
    )


def test_a_partition_whose_marker_isnt_replicated_waits_for_its_replicas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stable = [100, 100]
    monkeypatch.setattr(explaining, "open_transactions", lambda *_: {HERE: []})
    monkeypatch.setattr(explaining, "leaders_of", lambda _: {HERE: 1})
    monkeypatch.setattr(explaining, "stable_and_ends", lambda *_: ({HERE: stable.pop(0)}, {HERE: 103}))
    monkeypatch.setattr(explaining, "list_offsets", lambda *_: {HERE: stable.pop(0)})
    monkeypatch.setattr(explaining, "coordinators_are_complete", lambda _: True)
    monkeypatch.setattr(explaining, "count_records", lambda *_: Counted(waiting=2))
    nobody = cast(KafkaCluster, None)
    found = explaining.explain(nobody, [], ALL, with_tails=False)
    said = told_in_words(found, "", NOW_MS)
    assert "orders-0: readers of committed records wait at offset 100 (of 103)." in said
    assert "the replicas in sync don't have its marker yet" in said
    assert as_document(found, "", NOW_MS)["waiting"][0]["since_ms"] is None
    stable += [100, 103]
    assert explaining.explain(nobody, [], ALL, with_tails=False).waiting == []


def test_a_partition_without_a_leader_is_reported() -> None:
    said = told_in_words(Explanation([], [], [HERE], 2), "", NOW_MS)
    assert "Nobody waits for a transaction: of 2 partitions none" in said
    assert "Without a leader, so nobody can read them or know more: orders-0." in said


def test_an_open_transactions_deadline_is_shown() -> None:
    assert "the broker aborts it at" in told(coordinated("Ongoing", HERE))
    assert "in 30 s (timeout: 1 min 30 s)" in told(coordinated("Ongoing", HERE))
    late = told(coordinated("Ongoing", HERE), now_ms=NOW_MS + 40_000)
    assert "was up at" in late
    assert "the broker is about to abort it" in late
    assert "two-phase commit" in told(coordinated("Ongoing", HERE, timeout_ms=NEVER_MS))


def test_a_transaction_that_is_being_ended_needs_no_command() -> None:
    said = told(coordinated("PrepareCommit", HERE))
    assert "its markers are on their way" in said
    assert "barnabas transactions abort" not in said


def test_a_transaction_of_another_user_counts_as_hanging_only_once_its_last_record_is_old() -> None:
    assert "It seems to hang" in told(None)
    assert "that you may describe" in told(None)
    assert "It hangs" in told(None, now_ms=NOW_MS + 15 * 60_000)


def test_nothing_counts_as_hanging_while_a_coordinator_is_missing() -> None:
    said = told(None, complete=False)
    assert "It is unknown whether it hangs" in said
    assert "barnabas transactions abort" not in said


def test_a_name_from_outside_neither_moves_the_cursor_nor_ends_the_word_in_a_shell() -> None:
    name = "a'b\x1b[2J\\ c\u009b$(true)"
    known = coordinated("Ongoing", HERE, name=name)
    assert "\x1b" not in told(known)
    assert "\u009b" not in told(known)
    echoed = subprocess.run(
        ["bash", "-c", f"printf %s {in_shell(name)}"],
        capture_output=True,
        check=True,
        env={"LC_ALL": "C.UTF-8"},
    )
    assert echoed.stdout.decode() == name
    verdict, why = verdict_of(FOUND, known, complete=True)
    waiting = WaitingPartition(HERE, 1, 100, 103, Counted(), [Blocker(FOUND, 2, known, verdict, why)])
    document = as_document(Explanation([waiting], [], [], 1), " --bootstrap b:1", NOW_MS)
    command = document["waiting"][0]["transactions"][0]["end_with"]
    assert command == f"barnabas transactions abort --id {in_shell(name)} --bootstrap b:1"


def test_a_count_that_is_cut_short_is_a_least_one_and_an_exact_one_goes_on(
    cli: Run, kafka: Kafka, topic: str
) -> None:
    assert cli("topics", "create", topic).status == 0
    producer = plain(kafka.bootstrap)
    for _ in range(900):
        producer.produce(topic, b"x" * 10_000, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    stable, end = ends(kafka.bootstrap, topic)
    with KafkaCluster({BOOTSTRAP: kafka.bootstrap}) as cluster:
        cut = count_records(cluster, (topic, 0), 0, stable, end, Effort(max_bytes=1))
        full = count_records(cluster, (topic, 0), 0, stable, end, ALL)
    assert (0 < cut.records < 900, cut.is_exact) == (True, False)
    assert (full.records, full.given, full.is_exact) == (900, 900, True)
