"""A name service that takes long to answer: only the client that has named the host waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.environment import network
from broker.environment.environment import Environment
from broker.environment.network import SystemNames
from broker.environment.threads import ComputingAtOnce
from broker.handlers import alter_client_quotas
from broker.network import endpoints as addresses
from broker.network.endpoints import AT_ONCE, HostNames
from broker.security.authorizer import ANONYMOUS
from broker.server import Server
from protocol.apis import APIS
from protocol.errors import Error
from protocol.messages import metadata_records as records
from protocol.waiting import Later
from tests.compare.plain import message_from
from tests.node.limited_hosts import OVERRIDES, RATE, admits, answer_at_once, set_overrides, set_quota
from tests.support.disk import files
from tests.support.held_syncs import HeldSyncs
from tests.support.manual_clock import ManualClock
from tests.support.nodes import begin
from tests.support.whole_server import configured, handled, started, take_turns
from tests.support.wishes import tell

PATIENCE_S = 30


class SlowNames:
    """A name service that answers once the test lets it. It knows names of one letter."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.is_asked = threading.Event()

    def __call__(self, host: str) -> str | None:
        if host[0].isdigit():
            return host  # it isn't asked for an address
        self.is_asked.set()
        assert self.may_answer.wait(PATIENCE_S)
        return f"10.0.0.{ord(host)}" if len(host) == 1 else None


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowNames:
    names = SlowNames()
    monkeypatch.setattr(SystemNames, "address_of", staticmethod(names))
    return names


def ask_for_quota(node: Server, *hosts: str) -> Any:
    ops = [{"key": RATE, "value": 5.0, "remove": False}]
    fields = {
        "entries": [{"entity": [{"entity_type": "ip", "entity_name": host}], "ops": ops} for host in hosts],
        "validate_only": False,
    }
    context: Any = SimpleNamespace(
        api_version=1, client_id="c", principal=ANONYMOUS, peer_host="127.0.0.1", computed_s=0.0
    )
    return handled(node, alter_client_quotas, context, message_from(APIS[49].request, fields, 1))


async def told(later: Any) -> Error:
    assert isinstance(later, Later)
    is_answered = asyncio.Event()
    later.when_answered(is_answered.set)
    await asyncio.wait_for(is_answered.wait(), PATIENCE_S)
    (entry,) = later.result().entries
    return Error(entry.error_code)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0)


async def test_nobody_waits_for_the_name_in_anothers_quota(node: Server, slow: SlowNames) -> None:
    waiting = [ask_for_quota(node, host) for host in ("a", "unknown")]
    await asyncio.to_thread(slow.is_asked.wait, PATIENCE_S)
    assert set_quota(node, "127.0.0.9") is Error.NONE
    assert node.quotas.connections.limits == {"127.0.0.9": 5}
    slow.may_answer.set()
    assert [await told(each) for each in waiting] == [Error.NONE, Error.INVALID_REQUEST]
    assert node.quotas.connections.limits == {"127.0.0.9": 5, "10.0.0.97": 5}


async def test_a_start_does_not_wait_for_the_names_of_quotas(tmp_path: Path, slow: SlowNames) -> None:
    node = await started(tmp_path)
    slow.may_answer.set()
    assert await told(ask_for_quota(node, "a")) is Error.NONE
    await node.stop()
    slow.may_answer.clear()
    again = await started(tmp_path)
    assert set_quota(again, "127.0.0.9") is Error.NONE  # that doesn't ask for the other host again
    assert again.quotas.connections.limits == {"127.0.0.9": 5}
    slow.may_answer.set()
    await until(lambda: again.quotas.connections.limits == {"127.0.0.9": 5, "10.0.0.97": 5})


async def test_a_quota_that_is_removed_while_its_host_is_looked_up_stays_so(
    tmp_path: Path, slow: SlowNames
) -> None:
    node = await started(tmp_path)
    parts = [records.EntityData(entity_type="ip", entity_name="a")]
    node.metadata.append([records.ClientQuotaRecord(entity=parts, key=RATE, value=1.0)])
    node.metadata.append([records.ClientQuotaRecord(entity=parts, key=RATE, remove=True)])
    slow.may_answer.set()
    assert await told(ask_for_quota(node, "b")) is Error.NONE
    await until(lambda: not node.quotas._awaited)
    assert node.quotas.connections.limits == {"10.0.0.98": 5}


async def test_nobody_waits_for_the_names_of_connection_limits(tmp_path: Path, slow: SlowNames) -> None:
    node = await started(tmp_path, f"{OVERRIDES}=127.0.0.1:2")
    limits = node.connection_limits
    assert set_overrides(node, "a:3") is Error.NONE
    await asyncio.to_thread(slow.is_asked.wait, PATIENCE_S)
    assert admits(limits, "127.0.0.1") == 2  # as it was
    assert set_overrides(node, "b:1,127.0.0.1:4") is Error.NONE
    slow.may_answer.set()
    await until(lambda: admits(limits, "10.0.0.98") == 1)
    assert admits(limits, "127.0.0.1") == 4
    assert admits(limits, "10.0.0.97") == 5  # others were wanted since


async def test_a_host_whose_quota_waits_for_the_disk_is_looked_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def look_up(host: str) -> str:
        asked.append(host)
        return f"10.0.0.{ord(host)}"

    answer_at_once(monkeypatch, look_up)
    syncs = HeldSyncs()
    here = replace(Environment.of_this_machine(ManualClock(), files), background=syncs)
    node = await begin(configured(tmp_path), here)
    node.metadata.commit_when_synced()
    syncs.is_held = True
    waiting = [ask_for_quota(node, host) for host in "ab"]
    assert node.quotas.connections.limits == {}
    await syncs.finish()
    assert [await told(each) for each in waiting] == [Error.NONE, Error.NONE]
    assert node.quotas.connections.limits == {"10.0.0.97": 5, "10.0.0.98": 5}
    assert asked == ["a", "b"]
    await node.stop()


class Kept:
    """Keeps work until the test carries it out."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Any, Any]] = []

    def __call__(self, compute: Any, then: Any, asker: Any = None) -> None:
        self.waiting.append((compute, then))

    def stop(self) -> None: ...

    def carry_out(self) -> None:
        """Carry out all work, and the work that follows from it."""
        while self.waiting:
            compute, then = self.waiting.pop(0)
            ComputingAtOnce()(compute, then)


async def test_no_more_names_are_looked_up_for_a_gone_client(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(SystemNames, "address_of", staticmethod(asked.append))
    kept = Kept()
    monkeypatch.setattr(node.host_names, "_computing", kept)
    gone, there = (ask_for_quota(node, f"{who}1", f"{who}2") for who in ("gone", "there"))
    compute, then = kept.waiting.pop(0)
    gone.abandon()
    kept.waiting.append((compute, then))
    kept.carry_out()
    take_turns(node)
    assert asked == ["there1", "there2"]
    assert [entry.error_code for entry in there.result().entries] == [Error.INVALID_REQUEST] * 2


async def test_a_resolved_quota_is_applied_though_the_client_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_at_once(monkeypatch, lambda host: "10.0.0.1")
    syncs = HeldSyncs()
    here = replace(Environment.of_this_machine(ManualClock(), files), background=syncs)
    node = await begin(configured(tmp_path), here)
    node.metadata.commit_when_synced()
    syncs.is_held = True
    ask_for_quota(node, "a").abandon()
    await syncs.finish()
    assert node.quotas.connections.limits == {"10.0.0.1": 5}
    await node.stop()


@pytest.mark.limit("broker.handlers.alter_client_quotas.MOST_HOST_NAMES")
async def test_a_request_has_a_bound_on_the_names_that_are_looked_up(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "AT_ONCE", 5)
    monkeypatch.setattr(alter_client_quotas, "MOST_HOST_NAMES", 3)
    asked: list[str] = []

    def look_up(host: str) -> str:
        asked.append(host)
        return "10.1.0.1"

    monkeypatch.setattr(SystemNames, "address_of", staticmethod(look_up))
    kept = Kept()
    monkeypatch.setattr(node.host_names, "_computing", kept)
    numbers = [f"10.0.0.{number}" for number in range(20)]
    names = [f"n{number}" for number in range(20)]
    mixed = [host for pair in zip(numbers, names, strict=True) for host in pair]
    later = ask_for_quota(node, *mixed)
    kept.carry_out()
    take_turns(node)
    assert asked == names[:3]
    outcomes = {entry.entity[0].entity_name: entry for entry in later.result().entries}
    refused = {host for host, entry in outcomes.items() if entry.error_code}
    assert refused == set(names[3:])
    assert outcomes["n3"].error_code == Error.INVALID_REQUEST
    assert outcomes["n3"].error_message == "n3 is not looked up: a request may have 3 names of hosts."


@pytest.mark.limit("broker.network.endpoints.AT_ONCE")
def test_others_are_served_while_a_long_list_of_addresses_is_gone_through() -> None:
    waiting: list[tuple[Any, Any]] = []
    found: list[Any] = []

    def computing(compute: Any, then: Any, asker: Any = None) -> None:
        waiting.append((compute, then))

    computing.stop = lambda: None  # type: ignore[attr-defined]
    hosts = [f"10.0.{number >> 8}.{number & 255}" for number in range(2 * AT_ONCE + 1)]
    tell(HostNames(SystemNames(), computing).look_up(hosts[:AT_ONCE]), found.append)  # type: ignore[arg-type]
    assert found.pop() == {host: host for host in hosts[:AT_ONCE]}
    tell(HostNames(SystemNames(), computing).look_up(hosts), found.append)  # type: ignore[arg-type]
    assert found == []
    (compute, then), *others = waiting
    assert others == []
    then(compute(), None)
    assert found == [{host: host for host in hosts}]


def test_a_start_that_waits_for_a_name_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "TOLD_AFTER_S", 0)
    lines: list[str] = []
    is_told = threading.Event()

    def tell(text: str, *arguments: object) -> None:
        lines.append(text % arguments)
        is_told.set()

    monkeypatch.setattr(network.log, "warning", tell)
    with network.asking_for("kafka.example"):
        assert is_told.wait(PATIENCE_S)
    assert lines == ["the start waits for the name service to look up kafka.example"]
