"""What a setting is: its type, default and valid values, how its text is read and written, and how it is
shown.

Modelled on Kafka's ConfigDef, with its error texts. Settings are literal rows (`broker_definitions`,
`topic_config`). A row becomes a `ConfigDef` only when needed, so 340 of them cost a start nothing.

Types are read as `ConfigDef.parseType` does. The details are Java's, as observed on Kafka 4.3. `String.trim`
removes everything up to U+0020 and nothing else. A number may have a plus sign and digits of any script, but
no underscores. A double may be `.5`, `1f`, `0x1p-2` or `NaN`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeAlias

# --------------------------------------------------------------------------------------------------------------
# Errors that keep a broker from starting: an invalid value, a mistake of the user, and what the start found.


class ConfigError(Exception):
    """An invalid value of a setting, in Kafka's words (its ConfigException).

    `name` is the setting at fault, if there is one.
    """

    def __init__(self, message: str, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name


def invalid_value(name: str, value: str, reason: str) -> ConfigError:
    """Return an error like Kafka's ConfigException with three arguments."""
    return ConfigError(f"Invalid value {value} for configuration {name}: {reason}", name)


class UsageError(Exception):
    """A mistake of the user who starts the broker: one line that says what is wrong, and where.

    `exit_status` is 2 if somebody has to change a command line or a setting, and 1 if the disk is the cause.
    """

    def __init__(self, message: str, exit_status: int = 2) -> None:
        super().__init__(" ".join(message.split("\n")))
        self.exit_status = exit_status


class StartError(Exception):
    """One line for the user that says what is wrong, and where. The exit status is 2 if a setting has to be
    changed, and 1 if a later start may succeed."""

    def __init__(self, message: str, exit_status: int = 1) -> None:
        super().__init__(message)
        self.exit_status = exit_status


# --------------------------------------------------------------------------------------------------------------


def value_text(value: Value) -> str | None:
    """A parsed value as Kafka writes it (ConfigDef.convertToString): lists with commas, doubles as in
    Java."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return double_text(value) if isinstance(value, float) else str(value)


def double_text(value: float) -> str:
    """A double as Java's Double.toString writes it: `0.5`, `1.0E-6`, `1.7976931348623157E308`, `Infinity`."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = repr(value).partition("e")
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    power = int(exponent or 0) + len(whole) - 1 - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{power}"


# --- Legal values, written in a row much as Kafka's documentation writes them -------------------------------
#
# | Notation | Kafka's class | Legal |
# |---|---|---|
# | (empty) | | everything |
# | `[1,...]` `[0,...,1]` | Range | numbers from 1; from 0 to 1, both included; never null |
# | `[1,...,9] or -1` | CompressionType.GZIP's | a range, or that one number |
# | `[a, b]` | ValidString; ValidList.in for lists | one of these; each element one of these |
# | `[a, b] non-empty` | ValidList.in(false, ...) | the same, and at least one |
# | `(case insensitive) [A, B]` | CaseInsensitiveValidString | one of these, in any case |
# | `distinct`, `distinct, non-empty`, `... or null` | ValidList.anyNonDuplicateValues | no empty element, none twice |
# | `non-empty string` | NonEmptyString | null, or a string that isn't empty |
# | `non-null` | NonNullValidator | all but null |
# | `throttled replicas` | ThrottledReplicaListValidator | `*`, or `partition:broker` each |
#
# Error texts are Kafka's.


def takes_each_element_once(notation: str) -> bool:
    """True if Kafka drops repeated elements before it validates (any ValidList)."""
    return notation.startswith(("distinct", "["))


def validate(name: str, value: Value, notation: str) -> None:
    """Raise ConfigError unless the value is legal."""
    if not notation:
        return
    if notation.startswith("distinct") or (isinstance(value, tuple) and notation[0] == "["):
        _validate_list(name, value, notation)
    elif ",...," in notation or ",...]" in notation:
        _validate_range(name, value, notation)
    elif notation[0] == "[":
        legal = notation[1:-1].split(", ")
        if value not in legal:
            raise _invalid(name, value, "String must be one of: " + ", ".join(legal))
    elif notation.startswith("(case insensitive)"):
        legal = notation[len("(case insensitive) [") : -1].split(", ")
        if not isinstance(value, str) or value.upper() not in legal:
            raise _invalid(name, value, "String must be one of (case insensitive): " + ", ".join(legal))
    elif notation == "non-empty string":
        if value == "":
            raise _invalid(name, value, "String must be non-empty")
    elif notation == "non-null":
        if value is None:
            raise _invalid(name, value, "entry must be non null")
    elif notation == "throttled replicas":
        _validate_throttled_replicas(name, value)
    else:
        raise AssertionError(f"{name}: the notation {notation!r} isn't known")


def _validate_range(name: str, value: Value, notation: str) -> None:
    bounds, _, exception = notation.partition(" or ")
    lowest, _, highest = bounds[1:-1].partition(",...")
    highest = highest.lstrip(",")
    if value is None:
        raise _invalid(name, value, "Value must be non-null")
    assert isinstance(value, int | float)
    if exception:
        if value != float(exception) and not float(lowest) <= value <= float(highest):
            raise _invalid(
                name, value, f"Value must be between {lowest} and {highest} or equal to {exception}"
            )
        return
    if value < _number(lowest):
        raise _invalid(name, value, f"Value must be at least {lowest}")
    if highest and value > _number(highest):
        raise _invalid(name, value, f"Value must be no more than {highest}")


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)


def _validate_list(name: str, value: Value, notation: str) -> None:
    legal = notation[1 : notation.index("]")].split(", ") if notation[0] == "[" else []
    if value is None:
        if notation.endswith("or null"):
            return
        raise ConfigError(f"Configuration '{name}' values must not be null.", name)
    assert isinstance(value, tuple)
    if not value and "non-empty" in notation:
        valid = f"[{', '.join(legal)}]" if legal else "any non-empty value"
        raise ConfigError(f"Configuration '{name}' must not be empty. Valid values include: {valid}", name)
    if len({*value}) != len(value):
        raise ConfigError(f"Configuration '{name}' values must not be duplicated.", name)
    for element in value:
        if not element:
            raise ConfigError(f"Configuration '{name}' values must not be empty.", name)
        if legal and element not in legal:
            raise _invalid(name, element, "String must be one of: " + ", ".join(legal))


def _validate_throttled_replicas(name: str, value: Value) -> None:
    assert isinstance(value, tuple)
    if value == ("*",) or all(_is_replica(element) for element in value):
        return
    form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    reason = f"{name} must be the literal '*' or a list of replicas in the following format: {form}"
    raise _invalid(name, value, reason)


def _is_replica(text: str) -> bool:
    partition, colon, broker = text.partition(":")
    return not text or (colon == ":" and _is_ascii_number(partition) and _is_ascii_number(broker))


def _is_ascii_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _invalid(name: str, value: Value, reason: str) -> ConfigError:
    if isinstance(value, tuple):
        shown = f"[{', '.join(value)}]"
    else:
        shown = "null" if value is None else str(value_text(value))
    return invalid_value(name, shown, reason)


# --- Types, rows and definitions ----------------------------------------------------------------------------

Row: TypeAlias = tuple[str, str | None, str, str, str]
"""Type, default (None is Kafka's null), validator (see above), importance, update mode."""

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None
"""A parsed value: INT, SHORT and LONG are int, LIST is a tuple, STRING, CLASS and PASSWORD are str."""


class ConfigType(IntEnum):
    """ConfigDef.Type, with the numbers of DescribeConfigs (v3 and later)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


READ_ONLY = "read-only"
PER_BROKER = "per-broker"


class ConfigDef(NamedTuple):
    """One setting. `default` is text, as in a file. None if Kafka's is null."""

    name: str
    type: ConfigType
    default: str | None
    validator: str
    importance: str
    update_mode: str
    internal: bool = False

    @property
    def sensitive(self) -> bool:
        """True for a password, which is never shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def dynamic(self) -> bool:
        """True if it may be altered at run time (DynamicBrokerConfig.ALL_DYNAMIC_CONFIGS)."""
        return self.update_mode != READ_ONLY


def definition_of(name: str, row: Row, *, internal: bool = False) -> ConfigDef:
    """Return the definition in a row."""
    type_name, default, validator, importance, update_mode = row
    return ConfigDef(name, ConfigType[type_name], default, validator, importance, update_mode, internal)


# --- Reading texts as ConfigDef.parseType does --------------------------------------------------------------

_TRIMMED = "".join(map(chr, range(0x21)))  # the characters that Java's String.trim removes
_SPACES = " \t\n\x0b\f\r"  # \s of Java's regular expressions
_DECIMAL = frozenset("0123456789+-.eE")

_INTEGER_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


def parse_value(definition: ConfigDef, text: str | None) -> Value:
    """Parse and validate a setting's text (ConfigDef.parseValue). Raises ConfigError."""
    value = parse_type(definition.name, text, definition.type)
    if isinstance(value, tuple) and takes_each_element_once(definition.validator):
        value = tuple(dict.fromkeys(value))
    validate(definition.name, value, definition.validator)
    return value


def parse_type(name: str, text: str | None, config_type: ConfigType) -> Value:
    """Parse a text as a type (ConfigDef.parseType), without validation. Raises ConfigError."""
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
    """`Integer.parseInt`, but None if that fails."""
    return _parse_integer(text, _INTEGER_BITS[ConfigType.INT])


def _parse_integer(text: str, bits: int) -> int | None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal() or len(digits) > 100:  # leading zeros are legal, but not without limit
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


# --- Settings in the admin APIs -----------------------------------------------------------------------------


class ConfigSource(IntEnum):
    """Where a value comes from, with the numbers of DescribeConfigs (v1 and later)."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class ConfigSynonym(NamedTuple):
    """A place that sets a value for a setting."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """A setting in the admin APIs. A sensitive one has no value."""

    name: str
    value: str | None
    source: ConfigSource
    is_sensitive: bool
    read_only: bool
    config_type: ConfigType
    synonyms: tuple[ConfigSynonym, ...] = ()
