"""Arguments of the sink that can't be meant are refused by name, before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("kafka", reason="needs kafka-python, of the extra `spark`")
pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

from barnabas.spark import ExactlyOnceKafkaSink
from barnabas.spark.wire import Wire
from barnabas.spark.wire_connection import OWN_SETTINGS

ADDRESS = "127.0.0.1:1"


def sink(**options: Any) -> ExactlyOnceKafkaSink:
    return ExactlyOnceKafkaSink(ADDRESS, **{"query": "q", "topic": "t", **options})


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"query": "a b"}, "query's name"),
        ({"compression": "brotli"}, "compression"),
        ({"topics": ["u"]}, "either topic"),
        ({"topic": ""}, "topic's name is empty"),
        ({"topic": None, "topics": []}, "names no topic"),
        ({"topic": None, "topics": ["a", ""]}, "topic's name is empty"),
    ],
)
def test_names_that_make_no_sense_are_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        sink(**options)


@pytest.mark.parametrize(
    "bootstrap",
    ["", " ", [], "localhost", ":9092", "localhost:", "localhost:0", "localhost:x", "a:1,,b:2", ["a:1", ""]],
)
def test_an_invalid_address_is_refused_where_it_is_given(bootstrap: Any) -> None:
    with pytest.raises(ValueError, match="bootstrap is host:port of one or more brokers"):
        ExactlyOnceKafkaSink(bootstrap, query="q", topic="t")
    text = bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)
    with pytest.raises(ValueError, match="bootstrap is host:port"):
        Wire(text, {}, 1_000)


@pytest.mark.parametrize("bootstrap", ["localhost:9092", "a:1, b:65535", ["a:1", "[::1]:2"]])
def test_addresses_are_taken(bootstrap: Any) -> None:
    ExactlyOnceKafkaSink(bootstrap, query="q", topic="t")


@pytest.mark.parametrize(
    "options",
    [
        {"topic": "__barnabas-spark-q"},
        {"topic": "__barnabas-spark-other"},
        {"topic": None, "topics": ["out", "__barnabas-spark-q"]},
    ],
)
def test_a_topic_of_a_querys_marker_takes_no_rows(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"the topic __barnabas-spark-\w+ holds the marker of the query"):
        sink(**options)


def test_one_name_for_a_list_of_topics_is_not_taken_letter_by_letter() -> None:
    with pytest.raises(TypeError, match=r"a list of names, such as \['out'\]"):
        sink(topic=None, topics="out")


@pytest.mark.parametrize("options", [{"topic": b"out"}, {"topic": None, "topics": ["a", None]}])
def test_a_topic_that_is_no_string_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="a topic's name is a string"):
        sink(**options)


NUMBERS = ("transaction_timeout_ms", "max_tries", "max_batch_bytes", "request_timeout_ms")


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [0, -1, 1 << 31])
def test_a_number_that_kafka_could_not_take_is_refused(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{name} is from 1 to"):
        sink(**{name: value})


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [1.5, "3", None, True])
def test_a_number_that_is_not_whole_is_refused(name: str, value: object) -> None:
    with pytest.raises(TypeError, match=f"{name} is a whole number"):
        sink(**{name: value})


def test_a_client_setting_that_the_library_would_pass_over_is_refused() -> None:
    with pytest.raises(ValueError, match=r"nonsense, which kafka-python's client doesn't know.*ssl_cafile"):
        sink(client={"nonsense": 1, "security_protocol": "SSL"})


@pytest.mark.parametrize("name", sorted(OWN_SETTINGS))
def test_a_client_setting_that_the_sink_makes_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"client sets {name}, which barnabas.spark sets itself"):
        sink(client={name: 1})


def test_a_security_protocol_that_would_be_plain_text_is_refused() -> None:
    with pytest.raises(ValueError, match=r"security_protocol is one of .*SASL_SSL, not 'ssl'"):
        sink(client={"security_protocol": "ssl"})


def test_a_connection_without_a_sink_refuses_the_same_settings() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        Wire(ADDRESS, {"nonsense": 1}, 1_000)


def test_security_settings_are_taken() -> None:
    settings = {"security_protocol": "SASL_SSL", "ssl_cafile": "ca.pem", "sasl_mechanism": "PLAIN"}
    assert sink(client=settings).settings.client == settings


@pytest.mark.parametrize("batch_id", [None, "1", 1.0, False])
def test_a_batch_id_that_is_no_whole_number_is_refused(batch_id: Any) -> None:
    with pytest.raises(TypeError, match="batch_id is a whole number"):
        sink().write(None, batch_id)  # type: ignore[arg-type]


def test_a_negative_batch_id_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_id must be 0 or more"):
        sink().write(None, -1)  # type: ignore[arg-type]
