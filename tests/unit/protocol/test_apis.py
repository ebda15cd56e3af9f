import re
from pathlib import Path

import pytest

from broker.handlers import CONTROLLER_HANDLERS
from protocol.apis import APIS, NEVER_FLEXIBLE, Api, request_header_version, response_header_version

ADVERTISED = Path(__file__).parents[2] / "golden" / "vectors" / "advertised_by_kafka_4.4.txt"
"""The output of kafka-broker-api-versions for a Kafka 4.4 broker."""

ADVERTISED_BY_CONTROLLER = ADVERTISED.with_name("advertised_by_kafka_4.4_controller.txt")
"""The ApiVersions of a Kafka 4.4 controller: key, name, versions."""

ALL = [*APIS.values()]


def test_the_advertised_apis_are_those_of_kafka() -> None:
    rows = re.findall(r"(\w+) \((\d+)\): (\d+)(?: to (\d+))?$", ADVERTISED.read_text(), re.MULTILINE)
    kafkas = {(name, int(key), int(first), int(last or first)) for name, key, first, last in rows}
    ours = {
        (api.name, api.key, api.min_version, api.max_version)
        for api in APIS.values()
        if api.advertised and not api.of_controllers
    }
    assert ours == kafkas


def test_a_controller_serves_the_apis_of_kafkas_except_those_between_voters() -> None:
    rows = [line.split() for line in ADVERTISED_BY_CONTROLLER.read_text().splitlines()]
    kafkas = {(name, int(key), int(first), int(last)) for key, name, first, last in rows}
    ours = {
        (api.name, api.key, api.min_version, api.max_version)
        for api in (APIS[key] for key in CONTROLLER_HANDLERS)
    }
    assert ours <= kafkas
    assert {name for name, *_ in kafkas - ours} == {
        "Vote",
        "BeginQuorumEpoch",
        "EndQuorumEpoch",
        "UpdateRaftVoter",
    }


def test_telemetry_is_served_but_not_advertised() -> None:
    assert [api.name for api in APIS.values() if not api.advertised] == [
        "GetTelemetrySubscriptions",
        "PushTelemetry",
    ]


@pytest.mark.parametrize("api", ALL, ids=lambda api: api.name)
def test_request_and_response_are_declared_under_the_key_of_their_api(api: Api) -> None:
    assert (api.request.__name__, api.request.API_KEY) == (f"{api.name}Request", api.key)
    assert (api.response.__name__, api.response.API_KEY) == (f"{api.name}Response", api.key)


@pytest.mark.parametrize("api", ALL, ids=lambda api: api.name)
def test_a_version_is_decoded_if_it_is_advertised_and_declared(api: Api) -> None:
    first, last = api.request.VERSIONS
    for version in range(-1, 20):
        advertised = api.min_version <= version <= api.max_version
        assert api.decodes(version) == (advertised and first <= version <= last)


@pytest.mark.parametrize("api", ALL, ids=lambda api: api.name)
def test_headers_become_flexible_with_their_messages(api: Api) -> None:
    first, last = api.request.FLEXIBLE
    assert api.first_flexible == (first if first <= last else NEVER_FLEXIBLE)
    assert api.response.FLEXIBLE == api.request.FLEXIBLE


def test_produce_0_to_2_are_advertised_and_refused() -> None:
    produce = APIS[0]
    assert (produce.min_version, produce.max_version) == (0, 13)
    assert [version for version in range(-1, 16) if produce.decodes(version)] == list(range(3, 14))


def test_the_unstable_version_of_init_producer_id_is_refused() -> None:
    assert APIS[22].request.VERSIONS == (0, 6)
    assert not APIS[22].decodes(6)


def test_the_answer_to_api_versions_has_header_0_though_its_request_has_2() -> None:
    assert request_header_version(18, 3) == 2
    assert response_header_version(18, 3) == 0
    assert response_header_version(3, 9) == 1
