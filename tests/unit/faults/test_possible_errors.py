"""Which errors an API can't return, compared with all recorded answers of Apache Kafka."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.faults.armed_fault import ArmedFault, FaultError
from broker.faults.possible_errors import can_give, possible_errors
from protocol.apis import APIS
from protocol.errors import Error
from tests.support.house import ROOT

RECORDED = ROOT / "tests" / "compare" / "recorded"
NAMES = {api.name for api in APIS.values()}


def errors_in(said: Any) -> Iterator[str]:
    if isinstance(said, dict):
        for name, value in said.items():
            if name in ("error_code", "partition_error_code") and isinstance(value, str):
                yield value.split()[-1]
            else:
                yield from errors_in(value)
    elif isinstance(said, list):
        for each in said:
            yield from errors_in(each)


def given(path: Path) -> set[tuple[str, str]]:
    """Return the APIs and errors of a file of recordings."""
    found = set()
    for cases in json.loads(gzip.decompress(path.read_bytes())).values():
        for case in cases:
            api = str(case.get("request", "")).split(" ")[0]
            if api in NAMES:
                found |= {(api, error) for error in errors_in(case.get("answer"))}
    return found


def test_kafka_never_gave_an_error_that_its_api_cannot_give() -> None:
    found = set().union(*map(given, RECORDED.glob("*.json.gz")))
    assert len(found) > 300
    wrong = {(api, error) for api, error in found if not can_give(api, Error[error])}
    assert wrong == set()


def test_each_error_can_be_given_by_some_api() -> None:
    for error in Error:
        assert any(can_give(name, error) for name in NAMES), error


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("Metadata", "PRODUCER_FENCED"),
        ("Produce", "MEMBER_ID_REQUIRED"),
        ("EndTxn", "FENCED_INSTANCE_ID"),
        (["EndTxn", "Fetch"], "CONCURRENT_TRANSACTIONS"),
    ],
)
def test_a_fault_with_such_an_error_is_refused_with_the_possible_ones(api: Any, error: str) -> None:
    with pytest.raises(FaultError, match=f"can't give {error}; it can give .*UNKNOWN_SERVER_ERROR"):
        ArmedFault(1, {"api": api, "do": "error", "error": error})


def test_the_errors_that_an_api_can_give() -> None:
    assert {"PRODUCER_FENCED", "CONCURRENT_TRANSACTIONS", "NOT_COORDINATOR"} <= {*possible_errors("EndTxn")}
    assert "NONE" not in possible_errors("EndTxn")
