"""A broker that goes away is told in a line of the sink's, and not in those of the library beside."""

from __future__ import annotations

import logging
import socket
import threading

import pytest

pytest.importorskip("kafka", reason="needs kafka-python, of the extra `spark`")

from kafka.net import transport

from barnabas.spark import wire_connection as wire_quiet
from barnabas.spark.errors import NoAnswerError
from barnabas.spark.wire import Wire


@pytest.fixture
def hangs_up() -> int:
    """The port of somebody who takes connections and ends each at once."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                server.accept()[0].close()
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    return int(server.getsockname()[1])


def test_a_lost_broker_is_one_line(hangs_up: int, caplog: pytest.LogCaptureFixture) -> None:
    connection = Wire(f"127.0.0.1:{hangs_up}", {}, 300)
    with caplog.at_level(logging.INFO), pytest.raises(NoAnswerError):
        connection.init_producer_id("t", 1000)
    connection.close()
    (line,) = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert line.name.startswith("barnabas.spark.")
    assert f"a broker of 127.0.0.1:{hangs_up} doesn't answer" in line.getMessage()


def test_users_who_want_the_librarys_details_get_them_all(
    hangs_up: int, caplog: pytest.LogCaptureFixture
) -> None:
    connection = Wire(f"127.0.0.1:{hangs_up}", {}, 300)
    with caplog.at_level(logging.DEBUG, logger="kafka"), pytest.raises(NoAnswerError):
        connection.init_producer_id("t", 1000)
    connection.close()
    assert [one for one in caplog.records if one.name.startswith("kafka.") and one.levelno >= logging.WARNING]


def test_the_librarys_logs_for_others_stay_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    wire_quiet.demote()
    transport.log.error("of somebody else's connection")
    with wire_quiet.quiet():
        transport.log.error("of the sink's")
    assert [one.getMessage() for one in caplog.records] == ["of somebody else's connection"]
