"""Quotas of clients: what is measured, whose quota holds, and that a client above it has to wait."""

import asyncio
import math
import socket
import struct
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.config.broker_config import BrokerConfig
from broker.environment.network import SystemNames
from broker.handlers.alter_client_quotas import MOST_PARTS
from broker.network.connection import Connection
from broker.network.endpoints import HostNames
from broker.quotas import (
    IDLE_MS,
    MAX_THROTTLE_MS,
    MISSING,
    MOST_MEASURED,
    UNLIMITED,
    ClientQuotas,
    Limits,
    Measures,
    MutationQuota,
    Rate,
    RateQuota,
    TokenBucket,
    Windows,
    charge,
)
from broker.security.authorizer import ANONYMOUS, Principal
from broker.server import Server
from protocol.errors import Error, KafkaError
from protocol.messages.configs import AlterClientQuotasRequest, AlterEntryData, OpData
from protocol.messages.configs import EntityData as AlteredPart
from protocol.messages.fetch import FetchRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.metadata_records import ClientQuotaRecord, EntityData
from protocol.wire.codec import encode
from tests.support.straight import Straight
from tests.support.whole_server import clock_of, started
from tests.support.wire import Client

WINDOWS = Windows(samples=11, window_ms=1000)
NOW_MS = 1_700_000_000_000


def test_a_rate_is_taken_over_ten_windows_and_the_elapsed_part_of_the_eleventh() -> None:
    rate = Rate(WINDOWS)
    rate.record(2000, NOW_MS)
    assert rate.throttle_ms(200, NOW_MS) == 0
    # 2000 in 10 s are 200 a second; with 100 allowed, 10 s more have to pass.
    assert rate.throttle_ms(100, NOW_MS) == 10_000
    assert rate.throttle_ms(100, NOW_MS + 500) == 9_500


def test_usage_older_than_the_windows_is_forgotten() -> None:
    rate = Rate(WINDOWS)
    rate.record(100_000, NOW_MS)
    assert rate.throttle_ms(1, NOW_MS + 10_999) > 0
    assert rate.throttle_ms(1, NOW_MS + 11_000) == 0


def test_windows_are_used_again_in_turn() -> None:
    rate = Rate(WINDOWS)
    for second in range(100):
        rate.record(10, NOW_MS + 1000 * second)
    assert rate.throttle_ms(12, NOW_MS + 99_000) == 0
    assert rate.throttle_ms(9, NOW_MS + 99_000) > 0


def test_recorded_usage_can_be_taken_back() -> None:
    rate = Rate(WINDOWS)
    rate.record(5000, NOW_MS)
    rate.record(-5000, NOW_MS)
    assert rate.throttle_ms(1, NOW_MS) == 0


def test_a_bucket_begins_full_and_owes_the_excess() -> None:
    bucket = TokenBucket(WINDOWS)
    bucket.record(11, 1, NOW_MS)
    assert bucket.throttle_ms(1, NOW_MS) == 0
    bucket.record(4, 1, NOW_MS)
    assert bucket.throttle_ms(1, NOW_MS) == 4000
    assert bucket.throttle_ms(1, NOW_MS + 3000) == 1000
    assert bucket.throttle_ms(1, NOW_MS + 4000) == 0


@pytest.mark.limit("broker.quotas.MAX_THROTTLE_MS")
@pytest.mark.parametrize("limit", [1e-300, 5e-324, 0.0, 1e-7])
def test_however_low_a_limit_the_time_fits_into_an_answer(limit: float) -> None:
    rate = Rate(WINDOWS)
    rate.record(3_000_000, NOW_MS)
    assert rate.throttle_ms(limit, NOW_MS) == MAX_THROTTLE_MS
    bucket = TokenBucket(WINDOWS)
    bucket.record(1, limit or 1e-9, NOW_MS)
    assert bucket.throttle_ms(limit or 1e-9, NOW_MS) <= MAX_THROTTLE_MS


@pytest.mark.parametrize("limit", [math.nan, math.inf])
def test_a_limit_of_none_throttles_nobody(limit: float) -> None:
    rate = Rate(WINDOWS)
    rate.record(3_000_000, NOW_MS)
    assert rate.throttle_ms(limit, NOW_MS) == 0


def test_a_client_idle_for_an_hour_is_forgotten_as_others_come() -> None:
    measures = Measures(lambda: Rate(WINDOWS))
    idle = [measures.of(number, NOW_MS) for number in range(3)]
    for later_ms in (IDLE_MS - 1, IDLE_MS, IDLE_MS):
        measures.of("new", NOW_MS + later_ms)
    assert len(measures) == 2
    assert measures.of(2, NOW_MS + IDLE_MS - 1) is idle[2]
    assert measures.of(0, NOW_MS + IDLE_MS) is not idle[0]


@pytest.mark.limit("broker.quotas.MOST_MEASURED")
def test_the_longest_idle_of_too_many_clients_is_forgotten() -> None:
    measures = Measures(lambda: Rate(WINDOWS))
    first, second = measures.of("first", NOW_MS), measures.of("second", NOW_MS)
    for number in range(MOST_MEASURED - 2):
        measures.of(number, NOW_MS)
    assert measures.of("first", NOW_MS) is first
    measures.of("one too many", NOW_MS)
    assert len(measures) == MOST_MEASURED
    assert measures.of("first", NOW_MS) is first
    assert measures.of("second", NOW_MS) is not second


# From the most to the least specific, with who shares it.
PRECEDENCE = [
    (("u", "c"), ("u", "c")),
    (("u", None), ("u", "c")),
    (("u", MISSING), ("u", "")),
    ((None, "c"), ("u", "c")),
    ((None, None), ("u", "c")),
    ((None, MISSING), ("u", "")),
    ((MISSING, "c"), ("", "c")),
    ((MISSING, None), ("", "c")),
]


@pytest.mark.parametrize("place", range(len(PRECEDENCE)))
def test_the_most_specific_quota_holds(place: int) -> None:
    limits = Limits()
    for number, (entity, _) in enumerate(PRECEDENCE[place:], place):
        limits.set(*entity, float(number))
    assert limits.find("u", "c") == (float(place), PRECEDENCE[place][1])


def test_a_quota_of_another_user_does_not_apply() -> None:
    limits = Limits()
    limits.set("other", MISSING, 1.0)
    limits.set("u", "other", 1.0)
    limits.set(MISSING, "other", 1.0)
    assert limits.find("u", "c") is None


def test_a_quota_of_a_user_applies_to_clients_authenticated_as_that_user() -> None:
    quota_per_s = RateQuota(WINDOWS)
    quota_per_s.limits.set("alice", MISSING, 10.0)
    assert quota_per_s.most_at_once("alice", "c") == 100
    assert quota_per_s.most_at_once(ANONYMOUS.name, "c") is None
    assert quota_per_s.charge(ANONYMOUS.name, "c", 1000, NOW_MS) == 0
    assert quota_per_s.charge("alice", "c", 1000, NOW_MS) > 0
    changes = MutationQuota(WINDOWS)
    changes.limits.set("alice", MISSING, 1.0)
    refused = changes.of_request("alice", "c", strict=True, now_ms=NOW_MS)
    refused.take(12)
    with pytest.raises(KafkaError):
        refused.take(1)
    changes.of_request("bob", "c", strict=True, now_ms=NOW_MS).take(1000)


def test_a_request_is_charged_to_its_principal() -> None:
    quotas = ClientQuotas(BrokerConfig({}), HostNames(SystemNames()))
    quotas.mutation.limits.set("alice", MISSING, 1.0)
    alice: Any = SimpleNamespace(api_version=7, client_id="c", principal=Principal("User", "alice"))
    nobody: Any = SimpleNamespace(api_version=7, client_id="c", principal=ANONYMOUS)
    assert quotas.mutations_of(nobody, strict_since=6, now_ms=NOW_MS) is UNLIMITED
    assert quotas.mutations_of(alice, strict_since=6, now_ms=NOW_MS) is not UNLIMITED


@pytest.mark.parametrize(("api_key", "is_throttled"), [(3, True), (27, False), (56, False), (59, False)])
def test_requests_between_nodes_are_not_throttled(api_key: int, is_throttled: bool) -> None:
    """WriteTxnMarkers, AlterPartition and FetchSnapshot aren't throttled. Metadata is."""
    quotas = ClientQuotas(BrokerConfig({}), HostNames(SystemNames()))
    quotas.request.limits.set("alice", MISSING, 1e-9)
    muted: list[int] = []
    context: Any = SimpleNamespace(
        api_key=api_key,
        client_id="c",
        principal=Principal("User", "alice"),
        is_between_nodes=False,
        mute=muted.append,
    )
    charge(quotas, context, SimpleNamespace(throttle_time_ms=0), 100, 1.0, NOW_MS)
    assert bool(muted) is is_throttled


def quota(key: str, value: float, *, remove: bool = False, **entity: str | None) -> ClientQuotaRecord:
    parts = [
        EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()
    ]
    return ClientQuotaRecord(entity=parts, key=key, value=value, remove=remove)


def request(correlation_id: int, client_id: str) -> bytes:
    """Return a whole Metadata request of version 1."""
    return _framed(3, 1, correlation_id, client_id, encode(MetadataRequest(topics=[]), 1))


def fetch(replica_id: int) -> bytes:
    """Return a whole Fetch request of version 11, without partitions."""
    body = FetchRequest(replica_id=replica_id, max_wait_ms=0, min_bytes=0, session_epoch=-1)
    return _framed(1, 11, 1, "busy", encode(body, 11))


def _framed(api_key: int, api_version: int, correlation_id: int, client_id: str, body: bytes) -> bytes:
    name = client_id.encode()
    header = struct.pack(f">hhih{len(name)}s", api_key, api_version, correlation_id, len(name), name)
    return (len(header) + len(body)).to_bytes(4, "big") + header + body


async def connected(node: Any) -> tuple[socket.socket, Connection]:
    listener = node.listeners["PLAINTEXT"]
    client = socket.create_connection(("127.0.0.1", listener.port))
    client.setblocking(False)
    while not listener.connections:
        await asyncio.sleep(0)
    [connection] = listener.connections
    return client, connection


async def answer(client: socket.socket) -> tuple[int, int]:
    """Return the size and the correlation id of the next answer."""
    body = await answered(client)
    return len(body), int.from_bytes(body[:4], "big")


async def answered(client: socket.socket) -> bytes:
    """Return the next answer, from its correlation id on."""
    loop = asyncio.get_running_loop()
    size = int.from_bytes(await loop.sock_recv(client, 4), "big")
    body = b""
    while len(body) < size:
        body += await loop.sock_recv(client, size - len(body))
    return body


async def test_a_client_above_its_quota_is_answered_and_then_muted_until_its_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await started(tmp_path)
    monkeypatch.setattr(node.dispatcher, "monotonic_s", count(1, 1e-3).__next__)
    node.metadata.append([quota("request_percentage", 1e-9, client_id="busy")])
    waits: list[tuple[float, Any]] = []
    loop = asyncio.get_running_loop()

    class Handle:
        def cancel(self) -> None: ...

    def call_later(delay_s: float, callback: Any, *args: Any) -> Any:
        waits.append((delay_s, callback))
        return Handle()

    client, connection = await connected(node)
    monkeypatch.setattr(connection, "_call_later", call_later)
    await loop.sock_sendall(client, request(1, "busy") + request(2, "busy"))
    assert (await answer(client))[1] == 1
    [(delay_s, unmute)] = waits
    assert 0 < delay_s <= 1  # at most one window of quota.window.size.seconds
    with pytest.raises(BlockingIOError):
        client.recv(1)
    unmute()
    assert (await answer(client))[1] == 2
    client.close()


@pytest.mark.parametrize(("replica_id", "is_throttled"), [(-1, True), (5, False)])
async def test_a_followers_fetches_take_nothing_of_its_users_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replica_id: int, is_throttled: bool
) -> None:
    """Else a quota for everybody, which covers the brokers' user too, would make replicas fall out of sync."""
    node = await started(tmp_path)
    monkeypatch.setattr(node.dispatcher, "monotonic_s", count(1, 1e-3).__next__)
    node.metadata.append([quota("request_percentage", 1e-9, user=None)])
    client, _ = await connected(node)
    await asyncio.get_running_loop().sock_sendall(client, fetch(replica_id))
    throttled_ms = int.from_bytes((await answered(client))[4:8], "big")
    assert (throttled_ms > 0) is is_throttled
    client.close()


async def test_a_removed_quota_holds_no_longer_and_a_restart_keeps_the_others(tmp_path: Path) -> None:
    node = await started(tmp_path)
    node.metadata.append([quota("producer_byte_rate", 10.0, client_id=None)])
    assert node.quotas.enforced
    assert node.quotas.produce.charge(ANONYMOUS.name, "anybody", 1000, NOW_MS) > 0
    node.metadata.append([quota("producer_byte_rate", 0.0, remove=True, client_id=None)])
    assert not node.quotas.enforced
    assert node.quotas.produce.charge(ANONYMOUS.name, "anybody", 1000, NOW_MS) == 0
    node.metadata.append([quota("consumer_byte_rate", 10.0, user="ANONYMOUS")])
    await node.stop()

    again = await started(tmp_path)
    assert again.quotas.fetch.most_at_once(ANONYMOUS.name, "anybody") == 100


async def test_an_address_that_connects_too_often_is_kept_waiting_and_sent_away(node: Server) -> None:
    node.metadata.append([quota("connection_creation_rate", 1.0, ip="127.0.0.1")])
    now_ms = clock_of(node).now_ms()
    delays = [node.quotas.connections.charge("127.0.0.1", now_ms) for _ in range(12)]
    assert delays == [0] * 10 + [1000, 1000]
    assert node.quotas.connections.charge("127.0.0.2", now_ms) == 0


class Newcomer:
    """A connection as its listener sees it."""

    peer_host = "127.0.0.1"
    transport = None
    gate = None

    def __init__(self) -> None:
        self.refused_after_ms: int | None = None

    def refuse_after(self, delay_ms: int) -> None:
        self.refused_after_ms = delay_ms


async def test_a_listener_sends_connections_away_that_come_too_often(node: Server) -> None:
    node.metadata.append([quota("connection_creation_rate", 1.0, ip="127.0.0.1")])
    [listener] = node.listeners.values()
    newcomers = [Newcomer() for _ in range(11)]
    for newcomer in newcomers:
        assert listener.admit(newcomer) is None  # type: ignore[arg-type]
    assert [each.refused_after_ms for each in newcomers] == [None] * 10 + [1000]
    for newcomer in newcomers:
        listener.forget(newcomer)  # type: ignore[arg-type]


@pytest.mark.limit("broker.handlers.alter_client_quotas.MOST_PARTS")
@pytest.mark.parametrize("more", [0, 1])
async def test_an_entity_has_a_bound_on_its_parts(node: Server, more: int) -> None:
    parts = [AlteredPart(entity_type="user", entity_name=f"u{number}") for number in range(MOST_PARTS + more)]
    ops = [OpData(key="producer_byte_rate", value=10.0)]
    one = [AlteredPart(entity_type="user", entity_name="one")]
    entries = [AlterEntryData(entity=entity, ops=ops) for entity in (one, parts)]
    answered = await Client(Straight(node)).answer(AlterClientQuotasRequest(entries=entries), 1)
    told = [(entry.error_code, entry.error_message, len(entry.entity)) for entry in answered.entries]
    if more:
        refused = (Error.INVALID_REQUEST, f"An entity may have {MOST_PARTS} parts.")
        assert told == [(*refused, 1), (*refused, MOST_PARTS + 1)]
    else:
        assert told == [(Error.NONE, None, 1)] * 2
    assert node.quotas.enforced == (not more)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
async def test_a_quota_has_to_be_a_finite_number(node: Server, value: float) -> None:
    entry = AlterEntryData(
        entity=[AlteredPart(entity_type="client-id", entity_name="c")],
        ops=[OpData(key="producer_byte_rate", value=value)],
    )
    answered = await Client(Straight(node)).answer(AlterClientQuotasRequest(entries=[entry]), 1)
    (refused,) = answered.entries
    assert (refused.error_code, refused.error_message) == (
        Error.INVALID_REQUEST,
        "Quota producer_byte_rate must be a finite number",
    )
