"""The socket to the program that started a node: what it asks, and what it is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker.environment.cut_network import Cut
from broker.environment.movable_time import MovableTime
from broker.process.control import LONGEST_LINE_BYTES, Control, ParentTie
from protocol.errors import BrokenInvariantError


class Cuts:
    """Stands in for the network, and has the cuts."""

    def __init__(self) -> None:
        self.now: dict[tuple[str, int], Cut] = {}

    def cut(self, cuts: dict[tuple[str, int], Cut]) -> None:
        self.now = cuts


class FailingCuts:
    """Stands in for a network in which a cut fails."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def cut(self, cuts: object) -> None:
        raise self._error


class Asked:
    """A control, with what it has told and done."""

    def __init__(self, network: Cuts | FailingCuts | None = None) -> None:
        self.told: list[dict[str, Any]] = []
        self.stops: list[bool] = []
        self.renewals: list[Any] = []
        self.control = Control(
            lambda line: self.told.append(json.loads(line)),
            self.stops.append,
            self.renewals.append,
            MovableTime.__new__(MovableTime),  # nobody asks it here
            network,  # type: ignore[arg-type]
        )

    def ask(self, **question: object) -> dict[str, Any]:
        self.control.asked(json.dumps({"id": 7, **question}).encode())
        return self.told[-1]


def test_an_unknown_question_is_answered_with_the_list_of_questions() -> None:
    answer = Asked().ask(ask="leaders")
    assert answer["id"] == 7
    assert answer["error"] == (
        "there is no question 'leaders'; there are acls, acls_in_force, add_users, alter_acls, arm_fault, begin_anew, "
        "brokers, clock, coordinator, copy, create_topics, cut, denials, disarm_fault, elect, expire_member, "
        "expire_producer, expire_transaction, fault, faults, groups, journal, lag, open_transactions, out_of_sync, "
        "partition, partition_lag, reassign, records, release_fault, renew_certificates, run_compaction, "
        "run_retention, serve_http, stop, topic, transactions, users_known"
    )


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b"7", b'{"ask": 7}', b'{"ask": ["stop"]}', b"\xff\xfe", b'{"id": {}}']
)
def test_a_message_that_is_no_question_is_answered_with_an_error(line: bytes) -> None:
    asked = Asked()
    asked.control.asked(line)
    (answer,) = asked.told
    assert answer["error"]
    assert asked.stops == []


def test_a_question_about_the_cluster_before_the_node_has_started_is_refused_with_the_reason() -> None:
    assert Asked().ask(ask="brokers") == {"id": 7, "error": "the node hasn't started yet"}


def test_a_stop_is_answered_and_says_whether_others_take_over() -> None:
    asked = Asked()
    assert asked.ask(ask="stop") == {"id": 7, "answer": True}
    asked.ask(ask="stop", leave=False)
    assert asked.stops == [True, False]


def test_ways_are_cut_as_asked_and_no_others() -> None:
    network = Cuts()
    asked = Asked(network)
    way = {"host": "127.0.0.1", "port": 9093, "incoming": True, "outgoing": False}
    assert asked.ask(ask="cut", cuts=[way]) == {"id": 7, "answer": True}
    assert network.now == {("127.0.0.1", 9093): Cut(incoming=True, outgoing=False)}
    asked.ask(ask="cut", cuts=[])
    assert network.now == {}


@pytest.mark.parametrize("cuts", [None, 7, [{}], [{"host": "h", "port": "p"}]])
def test_cuts_that_make_no_sense_change_nothing(cuts: object) -> None:
    network = Cuts()
    network.now = {("h", 1): Cut(True, True)}
    assert Asked(network).ask(ask="cut", cuts=cuts)["error"].startswith("cut: ")
    assert network.now


@pytest.mark.parametrize("error", [RuntimeError("the handler is closed"), OSError(9, "bad"), IndexError(1)])
def test_an_error_while_answering_is_the_answer_and_does_not_end_the_node(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Asked(FailingCuts(error))
    assert asked.ask(ask="cut", cuts=[], password="secret") == {"id": 7, "error": repr(error)}
    assert str(error) in caplog.text, "with its traceback"
    assert "'cut'" in caplog.text
    assert "secret" not in caplog.text
    assert asked.ask(ask="stop") == {"id": 7, "answer": True}


def test_a_broken_invariant_found_by_a_question_is_reported_and_ends_the_node() -> None:
    asked = Asked(FailingCuts(BrokenInvariantError("it can't be")))
    with pytest.raises(BrokenInvariantError):
        asked.ask(ask="cut", cuts=[])
    assert "it can't be" in asked.told[0]["error"]


def test_a_node_without_connections_is_cut_off_from_nobody() -> None:
    assert Asked().ask(ask="cut", cuts=[]) == {"id": 7, "error": "this node connects to no other node"}


# --- the socket -------------------------------------------------------------------------------------------------


@pytest.fixture
def ends() -> Iterator[tuple[ParentTie, socket.socket]]:
    """Make the node's end of the socket, and the parent's."""
    ours, theirs = socket.socketpair()
    tie = ParentTie(ours.detach())
    with theirs:
        yield tie, theirs
    tie.close()


async def reached(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


async def test_earlier_questions_are_heard_as_soon_as_the_node_listens(
    ends: tuple[ParentTie, socket.socket],
) -> None:
    tie, parent = ends
    parent.sendall(b"one\ntwo\nthr")
    lines: list[bytes] = []
    tie.watch(lambda: None, lines.append)
    assert lines == [b"one", b"two"]
    parent.sendall(b"ee\n")
    await reached(lambda: lines[2:] == [b"three"])
    asyncio.get_running_loop().remove_reader(tie._socket.fileno())


@pytest.mark.limit("broker.process.control.LONGEST_LINE_BYTES")
async def test_a_line_that_is_too_long_comes_as_far_as_it_may_and_the_next_one_whole(
    ends: tuple[ParentTie, socket.socket],
) -> None:
    tie, parent = ends
    lines: list[bytes] = []
    tie.watch(lambda: None, lines.append)
    longest = b"a" * LONGEST_LINE_BYTES
    for sent in (longest, longest + b"b", longest * 3):
        for start in range(0, len(sent), 4000):
            parent.sendall(sent[start : start + 4000])
            await asyncio.sleep(0)
            assert len(tie._line) <= LONGEST_LINE_BYTES
        parent.sendall(b"\nnext\n")
        await reached(lambda: lines[-1:] == [b"next"])
        assert lines == [longest, b"next"]
        lines.clear()
    asyncio.get_running_loop().remove_reader(tie._socket.fileno())


async def test_an_answer_longer_than_the_sockets_buffer_arrives_whole_before_the_next(
    ends: tuple[ParentTie, socket.socket],
) -> None:
    tie, parent = ends
    parent.setblocking(False)
    long = "a" * 3_000_000
    tie.tell(long)
    tie.tell("next")
    came = bytearray()

    def has_come() -> bool:
        with contextlib.suppress(BlockingIOError):
            came.extend(parent.recv(65_536))
        return came.endswith(b"next\n")

    await reached(has_come)
    assert came == long.encode() + b"\nnext\n"


async def test_the_death_of_a_parent_is_reported_once(ends: tuple[ParentTie, socket.socket]) -> None:
    tie, parent = ends
    gone: list[bool] = []
    tie.watch(lambda: gone.append(tie.gone), lambda line: None)
    assert not tie.gone
    parent.close()
    await reached(lambda: gone)
    assert gone == [True]
