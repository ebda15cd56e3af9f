"""The ports on which tests start servers."""

from __future__ import annotations

import socket

import pytest

from tests.support import ports


def test_a_port_is_given_once_and_is_none_that_a_system_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ports.free_ports(3)
    assert len({*first}) == 3
    assert all(ports.FIRST <= port <= ports.LAST for port in first)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        asked = iter(
            [first[0], taken.getsockname()[1], first[2], first[0] - 1, *range(ports.FIRST, ports.LAST)]
        )
        monkeypatch.setattr(ports._chance, "randint", lambda *_: next(asked))
        assert {*first, taken.getsockname()[1]}.isdisjoint(ports.free_ports(1))
