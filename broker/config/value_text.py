"""Writing a value as Kafka's ConfigDef.convertToString and Java's toString do."""

from __future__ import annotations

from broker.config.definitions import Value


def value_text(value: Value) -> str | None:
    """A parsed value as Kafka writes it (ConfigDef.convertToString): lists by commas, doubles as in Java."""
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
