"""Reading a value as Kafka's ConfigDef.parseType does.

The details are Java's and have been tried on Kafka 4.3: `String.trim` takes off everything up to U+0020 and
nothing else, a number may have a plus sign and any script's digits but no underscores, a double may be `.5`,
`1f`, `0x1p-2` or `NaN`.
"""

from __future__ import annotations

from broker.config.definitions import ConfigDef, ConfigType, Value
from broker.config.errors import invalid_value
from broker.config.validators import takes_each_element_once, validate

_TRIMMED = "".join(map(chr, range(0x21)))  # what Java's String.trim removes
_SPACES = " \t\n\x0b\f\r"  # \s of Java's regular expressions
_DECIMAL = frozenset("0123456789+-.eE")

_INTEGER_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


def parse_value(definition: ConfigDef, text: str | None) -> Value:
    """A setting's value from its text, parsed and validated (ConfigDef.parseValue). Raises ConfigError."""
    value = parse_type(definition.name, text, definition.type)
    if isinstance(value, tuple) and takes_each_element_once(definition.validator):
        value = tuple(dict.fromkeys(value))
    validate(definition.name, value, definition.validator)
    return value


def parse_type(name: str, text: str | None, config_type: ConfigType) -> Value:
    """A text as a value of a type (ConfigDef.parseType), without validation. Raises ConfigError."""
    if text is None:
        return None
    stripped = trimmed(text)
    if config_type is ConfigType.BOOLEAN:
        lowered = stripped.lower()
        if lowered not in ("true", "false"):
            raise invalid_value(name, text, "Expected value to be either true or false")
        return lowered == "true"
    bits = _INTEGER_BITS.get(config_type)
    if bits is not None:
        number = _parse_integer(stripped, bits)
        if number is None:
            raise invalid_value(name, text, f"Not a number of type {config_type.name}")
        return number
    if config_type is ConfigType.DOUBLE:
        double = _parse_double(stripped)
        if double is None:
            raise invalid_value(name, text, "Not a number of type DOUBLE")
        return double
    if config_type is ConfigType.LIST:
        return tuple(part.strip(_SPACES) for part in stripped.split(",")) if stripped else ()
    return stripped


def trimmed(text: str) -> str:
    """`String.trim`."""
    return text.strip(_TRIMMED)


def parse_int(text: str) -> int | None:
    """`Integer.parseInt`; None where that fails."""
    return _parse_integer(text, _INTEGER_BITS[ConfigType.INT])


def _parse_integer(text: str, bits: int) -> int | None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if (
        not digits.isdecimal() or len(digits) > 100
    ):  # leading zeros are legal; no end of them isn't worth reading
        return None
    number = int(text)
    return number if -(1 << (bits - 1)) <= number < 1 << (bits - 1) else None


def _parse_double(text: str) -> float | None:
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    if unsigned in ("NaN", "Infinity"):
        return float(text)
    try:
        if unsigned[:2] in ("0x", "0X"):
            return float.fromhex(text.rstrip("fFdD")) if "p" in unsigned.lower() else None
        if text[-1:] in tuple("fFdD"):
            text = text[:-1]
        return float(text) if _DECIMAL.issuperset(text) else None
    except (ValueError, OverflowError):
        return None
