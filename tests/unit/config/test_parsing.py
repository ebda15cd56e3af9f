"""How values of each type are parsed and written. Kafka 4.3.1 and Java's own parsers were tried for this."""

from __future__ import annotations

import math
import re

import pytest

from broker.config.definitions import (
    ConfigDef,
    ConfigError,
    ConfigType,
    Value,
    parse_type,
    parse_value,
    value_text,
)

NUMBER = "Not a number of type "


def message_of(config_type: ConfigType, text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        parse_type("x", text, config_type)
    assert raised.value.name == "x"
    return str(raised.value)


@pytest.mark.parametrize(
    ("config_type", "text", "value"),
    [
        (ConfigType.BOOLEAN, " TRUE ", True),
        (ConfigType.BOOLEAN, "False", False),
        (ConfigType.INT, "\t-2147483648\n", -(2**31)),
        (ConfigType.INT, "+5", 5),
        (ConfigType.INT, "007", 7),
        (ConfigType.INT, "٣", 3),
        (ConfigType.SHORT, "32767", 32767),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.DOUBLE, ".5", 0.5),
        (ConfigType.DOUBLE, "1f", 1.0),
        (ConfigType.DOUBLE, "2D", 2.0),
        (ConfigType.DOUBLE, "1e-1", 0.1),
        (ConfigType.DOUBLE, "0x1p-2", 0.25),
        (ConfigType.DOUBLE, "-Infinity", -math.inf),
        (ConfigType.LIST, " a , b,c ", ("a", "b", "c")),
        (ConfigType.LIST, "a,,b", ("a", "", "b")),
        (ConfigType.LIST, "  ", ()),
        (ConfigType.STRING, " a b ", "a b"),
        (ConfigType.CLASS, " java.lang.String", "java.lang.String"),
        (ConfigType.PASSWORD, " secret ", "secret"),
    ],
)
def test_a_text_is_read_by_its_type(config_type: ConfigType, text: str, value: Value) -> None:
    assert parse_type("x", text, config_type) == value


@pytest.mark.parametrize("config_type", [t for t in ConfigType if t is not ConfigType.UNKNOWN])
def test_null_stays_null(config_type: ConfigType) -> None:
    assert parse_type("x", None, config_type) is None


@pytest.mark.parametrize("text", ["", "abc", "5L", "1_000", "1.0", "--5", "+", "- 5", "\u20035", "²"])
def test_a_text_that_is_no_number_is_refused(text: str) -> None:
    assert message_of(ConfigType.LONG, text) == f"Invalid value {text} for configuration x: {NUMBER}LONG"


@pytest.mark.parametrize(
    ("config_type", "text"),
    [
        (ConfigType.SHORT, "32768"),
        (ConfigType.INT, "2147483648"),
        (ConfigType.INT, "-2147483649"),
        (ConfigType.LONG, "9223372036854775808"),
        (ConfigType.LONG, "9" * 5000),
    ],
)
def test_a_number_that_does_not_fit_is_no_number(config_type: ConfigType, text: str) -> None:
    assert message_of(config_type, text).endswith(NUMBER + config_type.name)


@pytest.mark.parametrize("text", ["", "inf", "nan", "infinity", "1_0.0", "1e", "0x1", "x", "1ff"])
def test_a_text_that_is_no_double_to_java_is_refused(text: str) -> None:
    assert message_of(ConfigType.DOUBLE, text).endswith(NUMBER + "DOUBLE")


def test_a_boolean_is_true_or_false_and_nothing_else() -> None:
    expected = "Invalid value  yes  for configuration x: Expected value to be either true or false"
    assert message_of(ConfigType.BOOLEAN, " yes ") == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1e-6, "1.0E-6"),
        (0.00099, "9.9E-4"),
        (0.001, "0.001"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (123456789012345680.0, "1.2345678901234568E17"),
        (-2.5e-10, "-2.5E-10"),
        (1e22, "1.0E22"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (-0.0, "-0.0"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (math.nan, "NaN"),
        (True, "true"),
        (12, "12"),
        (("a", "b"), "a,b"),
        ((), ""),
        ("text", "text"),
        (None, None),
    ],
)
def test_a_value_is_written_as_java_writes_it(value: Value, text: str | None) -> None:
    assert value_text(value) == text


def setting(type_name: str, validator: str) -> ConfigDef:
    return ConfigDef("x", ConfigType[type_name], None, validator, "LOW", "read-only")


@pytest.mark.parametrize(
    ("type_name", "validator", "text", "reason"),
    [
        ("INT", "[1,...]", "0", "Value must be at least 1"),
        ("INT", "[1,...]", None, "Value must be non-null"),
        ("INT", "[-131072,...,22]", "23", "Value must be no more than 22"),
        ("DOUBLE", "[0,...,1]", "2", "Value must be no more than 1"),
        ("DOUBLE", "[0,...,0.5]", "0.6", "Value must be no more than 0.5"),
        ("INT", "[1,...,9] or -1", "0", "Value must be between 1 and 9 or equal to -1"),
        ("STRING", "[a, b]", "A", "String must be one of: a, b"),
        ("STRING", "(case insensitive) [A, B]", "c", "String must be one of (case insensitive): A, B"),
        ("LIST", "[a, b]", "a,c", "String must be one of: a, b"),
        ("STRING", "non-empty string", "", "String must be non-empty"),
        ("STRING", "non-null", None, "entry must be non null"),
    ],
)
def test_an_illegal_value_is_refused_in_kafkas_words(
    type_name: str, validator: str, text: str | None, reason: str
) -> None:
    with pytest.raises(ConfigError, match=f"^Invalid value .* for configuration x: {re.escape(reason)}$"):
        parse_value(setting(type_name, validator), text)


@pytest.mark.parametrize(
    ("validator", "text", "message"),
    [
        (
            "distinct, non-empty",
            "",
            "Configuration 'x' must not be empty. Valid values include: any non-empty value",
        ),
        ("[a, b] non-empty", "", "Configuration 'x' must not be empty. Valid values include: [a, b]"),
        ("distinct", "a,,b", "Configuration 'x' values must not be empty."),
        ("[a, b]", ",", "Configuration 'x' values must not be empty."),
        ("distinct", None, "Configuration 'x' values must not be null."),
    ],
)
def test_a_list_that_is_not_legal_is_refused_in_kafkas_words(
    validator: str, text: str | None, message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_value(setting("LIST", validator), text)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("type_name", "validator", "text", "value"),
    [
        ("INT", "[1,...,9] or -1", "-1", -1),
        ("INT", "[1,...,9] or -1", "9", 9),
        ("DOUBLE", "[0,...,1]", "1", 1.0),
        ("STRING", "(case insensitive) [A, B]", "b", "b"),
        ("STRING", "non-empty string", None, None),
        ("LIST", "[a, b]", "", ()),
        ("LIST", "[a, b]", "b,a,b", ("b", "a")),
        ("LIST", "distinct, non-empty or null", None, None),
        ("LIST", "throttled replicas", "0:1, 1:2,0:1", ("0:1", "1:2", "0:1")),
        ("LIST", "throttled replicas", "*", ("*",)),
        ("LIST", "throttled replicas", "", ()),
    ],
)
def test_a_legal_value_passes_and_a_lists_repetitions_go(
    type_name: str, validator: str, text: str | None, value: Value
) -> None:
    assert parse_value(setting(type_name, validator), text) == value


@pytest.mark.parametrize("text", ["a", "0:1,*", "0", "0:x", "²:1"])
def test_throttled_replicas_are_partitions_and_brokers_or_a_star(text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^Invalid value \[.*\] for configuration x: x must be the literal '\*'"
    ):
        parse_value(setting("LIST", "throttled replicas"), text)


def test_nan_lies_within_every_range_as_in_kafka() -> None:
    value = parse_value(setting("DOUBLE", "[0,...,1]"), "NaN")
    assert isinstance(value, float)
    assert math.isnan(value)
