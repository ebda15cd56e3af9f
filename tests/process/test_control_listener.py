"""The requests that a test in another language sends to a broker over HTTP."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

import barnabas
from protocol.errors import Error
from protocol.messages.metadata import MetadataRequest
from tests.process.test_looking import join
from tests.support.ports import free_ports
from tests.support.transactional_client import Broker, amid_transaction
from tests.support.wire import Client

pytest.importorskip("h11", reason="needs h11, of the extra `metrics`")

TOKEN = "let me in"


def asking(port: int, path: str, said: Any = None, method: str = "POST", **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        body = said if isinstance(said, bytes) else json.dumps(said or {}).encode()
        connection.request(method, path, body if method == "POST" else None, headers)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text.startswith(b"{") else text
    finally:
        connection.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[barnabas.Broker, int]]:
    (port,) = free_ports(1)
    settings = {"barnabas.control.listener": f"127.0.0.1:{port}", "barnabas.journal.size": 100}
    with barnabas.Broker(config=settings) as running:
        yield running, port


def test_a_fault_is_armed_seen_and_disarmed(shared: tuple[barnabas.Broker, int]) -> None:
    broker, port = shared
    armed = asking(
        port, "/v1/arm_fault", {"fault": {"api": "Metadata", "do": "error", "error": "UNKNOWN_SERVER_ERROR"}}
    )
    assert armed == (200, {"answer": 1})
    with Client.of(broker.bootstrap) as client:
        assert client.ask(MetadataRequest(topics=[]), 13).error_code == Error.UNKNOWN_SERVER_ERROR
    state = {"fault": 1, "seen": 1, "fired": 1, "standing": 0}
    assert asking(port, "/v1/fault", {"number": 1}) == (200, {"answer": state})
    assert asking(port, "/v1/faults") == (200, {"answer": [state]})
    assert asking(port, "/v1/disarm_fault", {"number": 1}) == (200, {"answer": state})
    assert asking(port, "/v1/fault", {"number": 1}) == (400, {"error": "there is no fault 1; there are none"})


def test_the_requests_that_the_broker_received(shared: tuple[barnabas.Broker, int]) -> None:
    broker, port = shared
    with Client.of(broker.bootstrap, client_id="over http") as client:
        client.ask(MetadataRequest(topics=[]), 13)
    status, found = asking(port, "/v1/journal", {"about": {"api": "Metadata", "client_id": "over http"}})
    assert status == 200
    assert [each["api"] for each in found["answer"]["requests"]] == ["Metadata"]
    status, refused = asking(port, "/v1/journal", {"about": {"api": "Metadate"}})
    assert status == 400
    assert "there is no API Metadate" in refused["error"]


def test_time_is_moved_and_the_broker_emptied(shared: tuple[barnabas.Broker, int]) -> None:
    broker, port = shared
    with Client.of(broker.bootstrap) as client:
        Broker(client.ask).create_topic("orders", 1)
    before = asking(port, "/v1/clock")[1]["answer"]["now_ms"]
    after = asking(port, "/v1/clock", {"do": "advance", "ms": 3_600_000})[1]["answer"]["now_ms"]
    assert after >= before + 3_600_000
    status, answer = asking(port, "/v1/reset", {"copy": "/etc"})  # a request over HTTP can't name a folder
    assert (status, answer["answer"]["bootstrap"]) == (200, broker.bootstrap)
    with Client.of(broker.bootstrap) as client:
        assert client.ask(MetadataRequest(topics=None), 12).topics == []
    assert asking(port, "/v1/clock")[1]["answer"]["now_ms"] < after


@pytest.mark.parametrize(
    ("path", "said", "status", "text"),
    [
        ("/v1/arm_fault", {"fault": {"do": "explode"}}, 400, "it can be error, delay"),
        ("/v1/arm_fault", {}, 400, "it has to be an object"),
        ("/v1/arm_fault", b"{", 400, "isn't JSON"),
        ("/v1/arm_fault", b"[]", 400, "has to be an object"),
        ("/v1/partition", {"topic": "none", "partition": 0}, 400, "there is no partition none-0"),
        ("/v1/copy", {"to": "/tmp/x"}, 404, "There is no /v1/copy"),
        ("/v1/stop", {}, 404, "There is no /v1/stop"),
    ],
)
def test_an_impossible_question_is_answered_with_the_reason(
    shared: tuple[barnabas.Broker, int], path: str, said: Any, status: int, text: str
) -> None:
    found, answer = asking(shared[1], path, said)
    assert found == status
    assert text in str(answer)


def fits(value: Any, schema: Any) -> bool:
    """Check a value against a schema. It knows only the part of JSON Schema that is used here."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    known: dict[str, Any] = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "object": dict,
        "array": list,
        "null": type(None),
    }
    if kinds and not any(isinstance(value, known[kind]) for kind in kinds):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties", True)
        return all(name in value for name in schema.get("required", ())) and all(
            fits(each, properties[name])
            if name in properties
            else others and (others is True or fits(each, others))
            for name, each in value.items()
        )
    if isinstance(value, list):
        first = schema.get("prefixItems", [])
        rest = schema.get("items", {})
        return len(value) >= schema.get("minItems", 0) and all(
            fits(each, first[at]) if at < len(first) else rest is not False and fits(each, rest)
            for at, each in enumerate(value)
        )
    return True


FAULT = {"api": "Metadata", "do": "hold"}

IN_THEIR_ORDER: list[tuple[str, dict[str, Any]]] = [
    ("create_topics", {"topics": {"state": {"partitions": 1, "configs": {"cleanup.policy": "compact"}}}}),
    ("topic", {"topic": "state"}),
    ("partition", {"topic": "state", "partition": 0}),
    ("brokers", {}),
    ("out_of_sync", {}),
    ("records", {"topic": "paid", "partition": 0, "committed": False, "markers": True}),
    ("transactions", {}),
    ("open_transactions", {}),
    ("coordinator", {"transactional_id": "payer"}),
    ("expire_transaction", {"transactional_id": "payer"}),
    ("groups", {}),
    ("lag", {"group": "g", "topic": "paid"}),
    ("partition_lag", {"topic": "paid", "partition": 0, "committed": None}),
    ("expire_member", {"group": "g", "member": "one"}),
    ("expire_producer", {"producer_id": 0}),
    ("run_retention", {"topic": "paid"}),
    ("run_compaction", {"topic": "state"}),
    ("clock", {"do": "skip_to_next"}),
    ("arm_fault", {"fault": FAULT}),
    ("fault", {"number": 1}),
    ("faults", {}),
    ("release_fault", {"number": 1}),
    ("disarm_fault", {"number": 1}),
    ("journal", {"about": {"api": "CreateTopics"}}),
    ("reset", {}),
]


def test_each_path_takes_and_answers_as_described() -> None:
    config = {"group.initial.rebalance.delay.ms": 0, "barnabas.journal.size": 100}
    with barnabas.Broker(config=config) as broker:
        port = int(broker.control_url.removeprefix("http://127.0.0.1:").removesuffix("/v1"))
        authorized = {"Authorization": f"Bearer {broker.control_token}"}
        status, described = asking(port, "/v1", method="GET", **authorized)
        assert (status, described["openapi"]) == (200, "3.1.0")
        paths = described["paths"]
        asked = {f"/v1/{name}" for name, _ in IN_THEIR_ORDER}
        assert asked == paths.keys() - {"/v1/denials"}, "which only a broker with an authorizer has"
        with Client.of(broker.bootstrap) as client:
            amid_transaction(client.ask, "payer", "paid", (0,))
            join(client, "g", group_instance_id="one")
            for name, said in IN_THEIR_ORDER:
                told = paths[f"/v1/{name}"]["post"]
                assert told["summary"]
                body = told["requestBody"]["content"]["application/json"]["schema"]
                assert fits(said, {**body, "additionalProperties": False}), name
                status, answer = asking(port, f"/v1/{name}", said, **authorized)
                assert status == 200, (name, answer)
                schema = told["responses"]["200"]["content"]["application/json"]["schema"]
                assert fits(answer, schema), (name, answer)
                assert not fits({"answer": object()}, schema), "else anything would"


def test_a_client_without_the_token_of_a_brokers_own_address_is_not_served() -> None:
    with barnabas.Broker() as broker:
        port = int(broker.control_url.removeprefix("http://127.0.0.1:").removesuffix("/v1"))
        assert asking(port, "/v1/faults")[0] == 401
        url = broker.control_url
        broker.reset()
        assert broker.control_url == url
        broker.restart()
        port = int(broker.control_url.removeprefix("http://127.0.0.1:").removesuffix("/v1"))
        assert asking(port, "/v1/faults", Authorization=f"Bearer {broker.control_token}")[0] == 200
    with pytest.raises(barnabas.BrokerError, match="doesn't run"):
        broker.control_url  # noqa: B018


@pytest.mark.parametrize("headers", [{"Origin": "http://evil"}, {"Host": "evil:80"}])
def test_a_page_in_a_browser_is_not_served(
    shared: tuple[barnabas.Broker, int], headers: dict[str, str]
) -> None:
    assert asking(shared[1], "/v1/reset", **headers)[0] == 403


def test_a_client_without_the_token_is_not_served() -> None:
    (port,) = free_ports(1)
    settings = {"barnabas.control.listener": f"127.0.0.1:{port}", "barnabas.control.token": TOKEN}
    with barnabas.Broker(config=settings):
        assert asking(port, "/v1/faults")[0] == 401
        assert asking(port, "/v1/faults", Authorization="Bearer no")[0] == 401
        assert asking(port, "/v1/faults", Authorization=f"Bearer {TOKEN}") == (200, {"answer": []})


def test_a_listener_open_to_other_machines_needs_a_token() -> None:
    with pytest.raises(barnabas.BrokerError, match=r"barnabas\.control\.token has to set"):
        barnabas.Broker(config={"barnabas.control.listener": "0.0.0.0:9095"}).start()
