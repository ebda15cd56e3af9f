"""The legal values of a setting, written in its row much as Kafka's documentation writes them.

| Notation | Kafka's class | Legal |
|---|---|---|
| (empty) | | everything |
| `[1,...]` `[0,...,1]` | Range | numbers from 1; from 0 to 1, both included; never null |
| `[1,...,9] or -1` | CompressionType.GZIP's | a range, or that one number |
| `[a, b]` | ValidString; ValidList.in for lists | one of these; each element one of these |
| `[a, b] non-empty` | ValidList.in(false, ...) | the same, and at least one |
| `(case insensitive) [A, B]` | CaseInsensitiveValidString | one of these, in any case |
| `distinct`, `distinct, non-empty`, `... or null` | ValidList.anyNonDuplicateValues | no empty element |
| `non-empty string` | NonEmptyString | null, or a string that isn't empty |
| `non-null` | NonNullValidator | all but null |
| `throttled replicas` | ThrottledReplicaListValidator | `*`, or `partition:broker` each |

Error texts are Kafka's.
"""

from __future__ import annotations

from broker.config.definitions import Value
from broker.config.errors import ConfigError, invalid_value
from broker.config.value_text import value_text


def takes_each_element_once(notation: str) -> bool:
    """Whether Kafka drops an element's repetitions before it validates (any ValidList)."""
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
