"""The patterns of a subscription to clients' metrics. Any client that may alter settings can send them."""

from __future__ import annotations

import warnings

import pytest

from broker.config.client_metrics_config import MOST_MATCH_CHARACTERS, check_client_metrics_configs
from protocol.errors import Error, KafkaError


def refusal(match: str) -> KafkaError:
    with pytest.raises(KafkaError) as raised:
        check_client_metrics_configs({"match": match})
    return raised.value


@pytest.mark.parametrize(
    "match",
    [
        "",
        "client_id=a.*",
        "client_id = (b|c)+ ,client_source_port=12[0-9]{2}",
        "client_id=(?i)[[:alpha:]]\\d",
    ],
)
def test_a_legal_pattern_is_taken_without_a_warning(match: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_client_metrics_configs({"match": match})


@pytest.mark.parametrize(
    "pattern",
    [
        "client_id",
        "client_id=a=b",
        "other=a",
        "client_id=(",
        "client_id=a{99999999999999999999}",
        "client_id=" + "(" * 900 + ")" * 900,
        "client_id=(?=a)",
    ],
)
def test_a_nonsense_pattern_is_an_invalid_config(pattern: str) -> None:
    error = refusal(pattern)
    assert (error.error, error.message) == (
        Error.INVALID_CONFIG,
        f"Illegal client matching pattern: {pattern}",
    )


def test_a_class_of_all_characters_whatever_their_case_is_read_without_going_over_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("re.compile")
    check_client_metrics_configs({"match": "client_id=(?i)" + "[\\x{0}-\\x{10ffff}]" * 80})


@pytest.mark.limit("broker.config.client_metrics_config.MOST_MATCH_CHARACTERS")
def test_patterns_have_a_length() -> None:
    begin = "client_id="
    check_client_metrics_configs({"match": begin + "a" * (MOST_MATCH_CHARACTERS - len(begin))})
    assert refusal(begin + "a" * (MOST_MATCH_CHARACTERS - len(begin) + 1)).error is Error.INVALID_CONFIG
