"""Many clients connect and don't sign in. The tests measure how long known clients wait. The broker is a process."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator

import pytest

from barnabas import Broker
from protocol.messages.security import SaslHandshakeRequest
from tests.process.test_attacks import LONGEST_WAIT_S
from tests.support.attacks import TRIES, Pinger, counted
from tests.support.certificates import KEPT, Certificates
from tests.support.ports import free_ports
from tests.support.wire import request_frame

SCALE = int(os.environ.get("ATTACK_SCALE", "1"))
CLIENTS = 100 * SCALE
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";'

pytestmark = [
    pytest.mark.skipif(not counted(), reason="another process's CPU time can't be read here"),
    pytest.mark.xdist_group("attacks"),
    pytest.mark.timeout(300 * SCALE),
]


@pytest.fixture(scope="module")
def at() -> Iterator[tuple[Broker, int]]:
    """Return the broker, and the port at which clients use TLS and sign in."""
    plain, door = free_ports(2)
    config = {
        **Certificates(KEPT).settings(),
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},S://127.0.0.1:{door}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,S:SASL_SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.s.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.s.plain.sasl.jaas.config": JAAS,
    }
    with Broker(config=config, log_level="error") as broker:
        _shaken(door)[0].close()  # so the broker needn't load anything during the flood
        yield broker, door


def _hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def _shaken(port: int) -> list[socket.socket]:
    context = ssl.create_default_context(cafile=KEPT / "ca.pem")
    plain = socket.create_connection(("127.0.0.1", port), timeout=60)
    return [context.wrap_socket(plain, server_hostname="localhost")]


def _connected(port: int) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(CLIENTS)]


def half_a_hello(port: int) -> list[socket.socket]:
    held = _connected(port)
    for each in held:
        each.sendall(_HELLO[: len(_HELLO) // 2])
    return held


def a_hello_and_nothing_behind_it(port: int) -> list[socket.socket]:
    held = _connected(port)
    for each in held:
        each.sendall(_HELLO)
    return held


def a_byte_at_a_time(port: int) -> list[socket.socket]:
    held = _connected(port)
    for byte in _HELLO[:30]:
        for each in held:
            each.send(bytes((byte,)))
    return held


def keys_and_no_name(port: int) -> list[socket.socket]:
    return [each for _ in range(CLIENTS) for each in _shaken(port)]


def keys_and_half_a_frame(port: int) -> list[socket.socket]:
    held = keys_and_no_name(port)
    for each in held:
        each.sendall(request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)[:-1])
    return held


def in_and_out(port: int) -> list[socket.socket]:
    for each in _connected(port):
        each.sendall(_HELLO)
        each.close()
    return []


_HELLO = _hello()
FLOODS: list[Callable[[int], list[socket.socket]]] = [
    half_a_hello,
    a_hello_and_nothing_behind_it,
    a_byte_at_a_time,
    keys_and_no_name,
    keys_and_half_a_frame,
    in_and_out,
]


@pytest.mark.parametrize("flood", FLOODS)
def test_nobody_waits_long_for_clients_that_do_not_come_in(
    flood: Callable[[int], list[socket.socket]], at: tuple[Broker, int]
) -> None:
    """The wait is the broker's own time, the best of some tries, as in `test_attacks`."""
    broker, port = at
    best_s = float("inf")
    for _ in range(TRIES):
        pinger = Pinger(broker)
        pinger.start()
        held = flood(port)
        pinger.on = False
        pinger.join()
        for each in held:
            each.close()
        best_s = min(best_s, pinger.longest_s)
        if best_s <= LONGEST_WAIT_S:
            break
    assert best_s <= LONGEST_WAIT_S
    if "FLOODS_TELL" in os.environ:
        print(f"{time.strftime('%H:%M:%S')} {flood.__name__} {best_s * 1000:.1f} ms")
