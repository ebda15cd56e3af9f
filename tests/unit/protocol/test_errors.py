from pathlib import Path

from protocol.errors import Error, KafkaError

TABLE = Path(__file__).parents[2] / "golden" / "vectors" / "errors.tsv"
"""Kafka 4.4's Errors: code, name, whether it's retriable, whether it asks for fresh metadata."""


def rows() -> list[list[str]]:
    return [line.split("\t") for line in TABLE.read_text().splitlines()]


def test_codes_and_names_are_kafkas() -> None:
    assert {error.name: error.value for error in Error} == {name: int(code) for code, name, *_ in rows()}


def test_a_kafka_error_reads_as_its_name_and_message() -> None:
    assert str(KafkaError(Error.INVALID_REQUEST)) == "INVALID_REQUEST"
    assert str(KafkaError(Error.INVALID_REQUEST, "no such thing")) == "INVALID_REQUEST: no such thing"


def test_a_kafka_error_carries_its_code_and_message() -> None:
    error = KafkaError(Error.INVALID_CONFIG, "bad")
    assert (error.error, error.message) == (40, "bad")
