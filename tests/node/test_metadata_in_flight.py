"""Changes of the metadata while earlier ones aren't on the disk yet: random requests, whose disk syncs now and then.

A second node that commits at once gives the expected answers, and the metadata at the end.
`IN_FLIGHT_ROUNDS=500` tries so many seeds, and `IN_FLIGHT_FROM` is the first one.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broker.controller import controller
from broker.controller import metadata_log as record_batches
from broker.controller.controller import Controller
from broker.controller.image import TopicImage
from broker.controller.metadata_log import image_records
from broker.controller.metadata_versions import encode_metadata_record
from broker.environment.environment import Environment
from broker.handlers import (
    alter_partition_reassignments,
    create_topics,
    init_producer_id,
    metadata,
    update_features,
)
from broker.server import Server
from protocol import waiting
from protocol.messages import metadata_records as records
from tests.node.metadata_requests import TIMEOUT_MS, TOPICS, Request, Requests, asked, begun, told
from tests.support.disk import files
from tests.support.held_syncs import HeldSyncs
from tests.support.manual_clock import ManualClock
from tests.support.nodes import begin
from tests.support.whole_server import configured, take_turns

FIRST = int(os.environ.get("IN_FLIGHT_FROM", "0"))
ROUNDS = int(os.environ.get("IN_FLIGHT_ROUNDS", "20"))
REQUESTS = 40

_CODED_AS_A_WHOLE = (alter_partition_reassignments, metadata, update_features)
"""Handlers whose answers have an error for the whole besides those for their parts."""


@pytest.fixture(autouse=True)
def _pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have everything that may go in steps pause after each entry."""
    monkeypatch.setattr(waiting.Pause.__init__, "__defaults__", (1,))
    monkeypatch.setattr(controller, "PER_STEP", 0)
    monkeypatch.setattr(record_batches, "PER_STEP", 1)


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[Controller]:
    """Return a list that gets the controller of each submitted request."""
    found: list[Controller] = []
    submit = Controller.submit

    def noting(self: Controller, *given: Any) -> Any:
        found.append(self)
        return submit(self, *given)

    monkeypatch.setattr(Controller, "submit", noting)
    return found


async def started(folder: Path, seed: int) -> tuple[Server, HeldSyncs]:
    syncs = HeldSyncs()
    here = replace(Environment.of_this_machine(ManualClock(), files), background=syncs)
    node = await begin(configured(folder), here)
    chance = Random(seed)  # a separate one, because what follows from a commit draws numbers, too
    node.topics._new_topic_id = lambda: chance.randbytes(16)
    node.metadata.append([records.RegisterBrokerRecord(broker_id=7, broker_epoch=3, fenced=True)])
    return node, syncs


def visible(node: Server) -> dict[str, Any]:
    """Return what other clients can see of the metadata and its effects."""
    quotas = node.quotas
    return {
        "image": [(type(record).__name__, _encoded(record)) for record in image_records(node.metadata.image)],
        "partitions": {name: sorted(topic.partitions) for name, topic in node.partitions.by_name.items()},
        "folders": sorted(
            os.path.basename(path)
            for path in files.list_directory(node.log_dirs.metadata.path)
            if not path.endswith("-delete") and "-" in path
        ),
        "limits": (quotas.produce.limits._limits, quotas.fetch.limits._limits),
        "addresses": (dict(quotas.connections.limits), quotas.connections.default),
        "retention": node.config.get("log.retention.ms"),
        "epochs": {
            (name, index): partition.role.leader_epoch
            for name, topic in node.partitions.by_name.items()
            for index, partition in topic.partitions.items()
        },
    }


def _encoded(record: Any) -> bytes:
    if isinstance(record, records.RegisterBrokerRecord):
        record.incarnation_id, record.log_dirs, record.end_points = bytes(16), [], []
    if isinstance(record, records.PartitionRecord):
        record.directories = []
    return encode_metadata_record(record, type(record).VERSIONS[1])


@pytest.mark.parametrize("seed", range(FIRST, FIRST + ROUNDS))
async def test_metadata_in_flight_is_shown_to_nobody_and_counts_for_later_decisions(
    seed: int, tmp_path: Path, submitted: list[Controller]
) -> None:
    chance = Random(seed)
    node, syncs = await started(tmp_path / "held", seed)
    at_once, _ = await started(tmp_path / "at-once", seed)
    node.metadata.commit_when_synced()
    syncs.is_held = True
    requests = Requests(chance)
    in_flight: list[tuple[Request, Any, Any]] = []
    met = 0

    def ask_amid(request: Request) -> Any:
        """Begin the request while others may still be undecided, or not applied yet. Requests reach the controller in
        the order in which they were asked, and then go on for a random number of turns."""
        before = len(submitted)
        answer = begun(node, request)
        while told(request, answer) is None and len(submitted) == before and node.turns._waiting:
            node.turns._take_turn()
        while node.turns._waiting and chance.random() < 0.8:
            node.turns._take_turn()
        return answer

    def sync() -> None:
        if syncs.waiting:
            syncs.run_one()
        else:
            take_turns(node)
        while node.turns._waiting and chance.random() < 0.9:
            node.turns._take_turn()
        in_flight[:] = [each for each in in_flight if not _is_told(*each)]

    for _ in range(REQUESTS):
        request = requests.draw()
        if request.committed_topics:
            take_turns(node)
        while any(_is_changing(node, name) for name in request.committed_topics):
            sync()
        expected = told(request, asked(at_once, request))
        assert expected is not None
        is_alone = not node.turns._waiting
        seen, next_offset = visible(node), node.metadata.next_offset
        answer = ask_amid(request)
        met += not is_alone
        assert visible(node)["image"] == seen["image"], request
        if is_alone:  # else earlier commits may be followed now
            assert visible(node) == seen, request
            if node.metadata.next_offset > next_offset:
                assert told(request, answer) is None, request
        if not _is_told(request, answer, expected):
            in_flight.append((request, answer, expected))
        while request.handler is metadata and in_flight and in_flight[-1][1] is answer:
            sync()  # its answer shows all that is committed by then, which may be more than its own topic
        while syncs.waiting and chance.random() < 0.3:
            sync()
    while syncs.waiting or node.turns._waiting:
        sync()
    sync()  # looks once more who is told
    assert met
    assert not in_flight
    assert visible(node) == visible(at_once)
    await node.stop()
    await at_once.stop()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + ROUNDS))
async def test_a_failing_disk_refuses_all_metadata_in_flight_and_everything_later(
    seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chance = Random(seed)
    node, syncs = await started(tmp_path, seed)
    requests = Requests(chance)
    for _ in range(chance.randrange(REQUESTS)):
        asked(node, requests.draw())
    node.metadata.commit_when_synced()
    syncs.is_held = True
    answers = []
    while len(answers) < 5:
        seen, next_offset, request = visible(node), node.metadata.next_offset, requests.draw()
        answer = asked(node, request)
        if node.metadata.next_offset > next_offset:
            answers.append((request, answer))
    caplog.clear()
    syncs.fail_one()
    take_turns(node)
    assert "takes no more records: the disk is gone" in caplog.text
    assert visible(node) == seen
    for name in set(TOPICS) - node.metadata.image.topics.keys():  # it may have been asked for in vain
        wanted = [{"name": name, "num_partitions": 1, "replication_factor": 1}]
        request = Request(create_topics, 19, 4, {"topics": wanted, "timeout_ms": TIMEOUT_MS})
        answers.append((request, asked(node, request)))
    for request, answer in answers:
        found = told(request, answer)
        assert found is not None
        if request.handler not in (metadata, init_producer_id):  # they have other words for it
            assert _errors(found) & {"56 KAFKA_STORAGE_ERROR"}, (request, found)
        assert not _errors(found) & {"0 NONE"} or request.handler in _CODED_AS_A_WHOLE, found
    assert visible(node) == seen
    await node.stop()
    assert node.failure is not None


def _is_changing(node: Server, name: str) -> bool:
    committed, written = (image.topics.get(name) for image in (node.metadata.image, node.metadata.written))
    if committed is None or written is None:
        return committed is not written
    return _told_of(committed) != _told_of(written)


def _told_of(topic: TopicImage) -> Any:
    """Return what an answer says of the topic."""
    replicas = {
        index: (partition.leader, partition.leader_epoch, *partition.replicas, *partition.isr)
        for index, partition in topic.partitions.items()
    }
    return topic.topic_id, replicas


def _errors(found: Any) -> set[str]:
    """Return all error codes in an answer."""
    if isinstance(found, list):
        return set().union(*map(_errors, found))
    if not isinstance(found, dict):
        return set()
    own = {found["error_code"]} if "error_code" in found else set()
    return own.union(*map(_errors, found.values()))


def _is_told(request: Request, answer: Any, expected: Any) -> bool:
    found = told(request, answer)
    if found is None:
        return False
    assert found == expected, request
    return True
